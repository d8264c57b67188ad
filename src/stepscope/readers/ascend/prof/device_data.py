"""One device of a PROF directory: executions, the launches that caused them, and counters."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model import units
from stepscope.model.columns.counters import of_device
from stepscope.model.intervals import Ints
from stepscope.process import heap
from stepscope.readers.ascend.prof import communication as prof_communication
from stepscope.readers.ascend.prof import steps as prof_steps
from stepscope.readers.ascend.prof.communication import Communication
from stepscope.readers.ascend.prof.device import counters as prof_counters
from stepscope.readers.ascend.prof.device import l2_cache, records
from stepscope.readers.ascend.prof.device import pmu as prof_pmu
from stepscope.readers.ascend.prof.device import tasks as prof_tasks
from stepscope.readers.ascend.prof.device.records import Device
from stepscope.readers.ascend.prof.files import Notes, Side, bounded_time, device_clock, device_start
from stepscope.readers.ascend.prof.host import streams as prof_streams
from stepscope.readers.ascend.prof.host import usage
from stepscope.readers.ascend.prof.host.records import Host
from stepscope.readers.ascend.prof.host.streams import Streams

_CHIPS = {"0", "1", "2", "3", "4", "5", "7", "8", "9", "11", "15", "16"}


class DeviceData(NamedTuple):
    """The data of one device."""

    side: Side
    device: Device
    executions: pl.DataFrame
    pmu: pl.DataFrame
    communication: Communication
    steps: prof_steps.Steps
    counters: pl.DataFrame
    aicpu: pl.DataFrame  # reports of AI CPU operators whose tasks are lost


def read(side: Side, host_side: Side | None, host: Host | None, streams: Streams, notes: Notes) -> DeviceData:
    chip = side.chip or (host_side.chip if host_side else "")
    if chip not in _CHIPS:
        notes.add(side.path, f"unknown chip '{chip}': the layout is derived from the files")
    stars = any(name.startswith("stars_soc") for name in side.raw)
    clock, aligned = device_clock(side, host_side, 50 if stars else 100, notes)
    device = records.read(side, clock, notes)
    if chip in records.NEWEST and host is not None:
        device = _on_streams(device, host)
    executions = prof_streams.with_shown_streams(prof_tasks.join_launches(device, host), streams)
    if not aligned:
        device, executions = _align_to_launches(side, device, executions, notes)
    heap.give_back(executions.height)
    steps = prof_steps.read(device.steps)
    if steps.unfinished:
        notes.add(
            side.path,
            f"{units.count(steps.unfinished, 'iteration', 'iterations')} without an end in the recording: not in the steps",
            steps.unfinished,
            "ts_track",
        )
    at_ns, hertz = prof_pmu.frequencies(side, device.clock, notes)
    executions, unmatched = _with_aicpu(executions, records.aicpu(side, device.clock, notes))
    executions = _with_receipts(executions, device.copies)
    return DeviceData(
        side,
        device,
        executions,
        _with_cache(prof_pmu.read(side, device, executions, notes), l2_cache.read(side, executions, notes)),
        prof_communication.read(executions, host),
        steps,
        pl.concat(
            [
                _clocks(device, at_ns, hertz),
                _voltages(side, device, notes),
                prof_counters.read(side, device.clock, device_start(side), notes),
                _on_device(side, notes),
            ],
            how="diagonal",
        ),
        unmatched,
    )


def _with_cache(pmu: pl.DataFrame, cache: pl.DataFrame) -> pl.DataFrame:
    """Counters of kernels: those of the cores and of the L2 cache."""
    if pmu.is_empty() or cache.is_empty():
        return cache if pmu.is_empty() else pmu
    return pmu.join(cache, on="execution", how="full", coalesce=True, maintain_order="left")


def _on_streams(device: Device, host: Host) -> Device:
    """The device with the streams of its tasks from the host's records: the newest chips number tasks independently of streams."""
    known = host.tasks.filter(pl.col("device") == device.number).select("task", of_host="stream").unique("task", keep="first")
    tasks = device.tasks.join(known, on="task", how="left", maintain_order="left")
    return device._replace(tasks=tasks.with_columns(stream=pl.coalesce("of_host", "stream")).drop("of_host"))


def _on_device(side: Side, notes: Notes) -> pl.DataFrame:
    """Counters of the device's control and AI CPUs, whose samples have times of its monotonic clock."""
    return usage.read(side, device_clock(side, None, 1, Notes(notes.root))[0].origin_ns - device_start(side), notes)


def _clocks(device: Device, at_ns: Ints, hertz: Ints) -> pl.DataFrame:
    rows = pl.DataFrame({"at_ns": at_ns, "value": hertz.astype(np.float64)})
    return rows.select(**of_device("aicore clock", "npu", device.number), at_ns="at_ns", value="value", unit=pl.lit("Hz"))


def _voltages(side: Side, device: Device, notes: Notes) -> pl.DataFrame:
    frames = []
    for name, kind in (("aicore voltage", prof_pmu.CORE_VOLTAGE), ("bus voltage", prof_pmu.BUS_VOLTAGE)):
        at_ns, millivolts = prof_pmu.power_readings(
            side, device.clock, kind, Notes(notes.root)
        )  # `frequencies` reports the damage of this file
        frames.append(prof_counters.frame(name, at_ns, millivolts / 1000, "V"))
    return prof_counters.samples_of_device(frames, device.number)


def _align_to_launches(side: Side, device: Device, executions: pl.DataFrame, notes: Notes) -> tuple[Device, pl.DataFrame]:
    """Executions shifted in time so that none starts before its launch: the counter's reading at the start is missing."""
    late = (executions["start_ns"] - executions["at_ns"]).min()
    first = executions["start_ns"].min()
    by = late if isinstance(late, int) else first - device.clock.origin_ns if isinstance(first, int) else 0
    notes.add(side.path, "the device's clock has no start time: its times are shifted so that no task starts before its launch")
    times = ("start_ns", "end_ns", "whole_ns", "whole_end_ns")
    aligned = device._replace(
        tasks=device.tasks.with_columns(pl.col("start_ns", "end_ns") - by),
        steps=device.steps.with_columns(pl.col("at_ns") - by),
        clock=device.clock._replace(origin_ns=bounded_time(device.clock.origin_ns - by)),
    )
    return aligned, executions.with_columns(pl.col(times) - by)


def _with_aicpu(executions: pl.DataFrame, aicpu: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Executions with the times that AI CPU operators report, and the reports without an execution."""
    if aicpu.is_empty():
        return executions.with_columns(pl.lit(None, pl.Int64).alias(name) for name in AICPU), aicpu
    runs = executions.select("execution", "stream", "task", "start_ns", until="end_ns").sort("start_ns")
    reports = aicpu.with_columns(
        pl.col("start_ns").alias("aicpu start_ns"), run_ns=pl.col("end_ns") - pl.col("start_ns"), total_ns="waited_ns"
    )
    reports = reports.sort("start_ns").join_asof(runs, on="start_ns", by=["stream", "task"], check_sortedness=False)
    matched = pl.col("execution").is_not_null() & (pl.col("start_ns") <= pl.col("until")) & pl.col("execution").is_first_distinct()
    reports = reports.with_columns(matched=matched.fill_null(False))
    times = reports.filter("matched").select("execution", *AICPU)
    return executions.join(times, on="execution", how="left", maintain_order="left"), reports.filter(~pl.col("matched"))


AICPU = ("aicpu start_ns", "compute_us", "memcpy_us", "dispatch_us", "run_ns", "total_ns")


def _with_receipts(executions: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Executions with the time at which the scheduler received a copy. The log of tasks does not contain it."""
    if copies.is_empty():
        return executions.with_columns(received_ns=pl.lit(None, pl.Int64))
    runs = executions.select("execution", "stream", "task", "start_ns").sort("start_ns")
    reports = copies.sort("start_ns").join_asof(runs, on="start_ns", by=["stream", "task"], strategy="nearest", check_sortedness=False)
    reports = reports.filter(pl.col("execution").is_not_null()).unique("execution", keep="first", maintain_order=True)
    return executions.join(reports.select("execution", "received_ns"), on="execution", how="left", maintain_order="left")
