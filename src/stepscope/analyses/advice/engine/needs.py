"""The data that rules read: whether a recording has it, and how to record it."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.model.devices import chips
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace


class Need(NamedTuple):
    """A kind of data. `record` is the way to record it by framework, with the key "" for every other one."""

    data: str
    has: Callable[[Run], bool]
    record: dict[str, str] = {}


def missing(run: Run, names: tuple[str, ...]) -> list[str]:
    """Those of the needs that the recording lacks."""
    return [name for name in names if not NEEDS[name].has(run)]


def how_to_record(names: list[str], framework: str) -> str:
    """`Python stacks: record with --stack` for each need."""
    return "; ".join(_sentence(NEEDS[name], framework) for name in names)


def _sentence(need: Need, framework: str) -> str:
    record = need.record.get(framework, need.record.get(""))
    return f"{need.data}: {record}" if record else need.data


@memoized
def _kinds(trace: Trace) -> frozenset[str]:
    return frozenset(trace.spans.select(pl.col("kind").unique()).collect()["kind"].to_list())


@memoized
def _categories(trace: Trace) -> frozenset[str]:
    return frozenset(trace.spans.select(pl.col("category").unique()).collect()["category"].drop_nulls().to_list())


@memoized
def _is_filled(trace: Trace, table: str, column: str) -> bool:
    return bool(trace.table(table).select(pl.col(column).count()).collect().item())


@memoized
def _series(trace: Trace) -> frozenset[tuple[str, str]]:
    """Series of the counters with their owners."""
    rows = trace.counters.select("series", "owner").unique().select(pl.col("series", "owner").cast(pl.String).fill_null("")).collect()
    return frozenset(rows.iter_rows())


def _spans(kind: str) -> Callable[[Run], bool]:
    return lambda run: kind in _kinds(run.trace)


def _filled(table: str, column: str) -> Callable[[Run], bool]:
    return lambda run: _is_filled(run.trace, table, column)


def _counter(*words: str) -> Callable[[Run], bool]:
    """A counter whose series or owner has one of these words."""
    return lambda run: any(word in part for pair in _series(run.trace) for part in pair for word in words)


def _device_data(*words: str) -> Callable[[Run], bool]:
    return lambda run: any(data in words for data in coverage(run.trace).data.values())


def _known_chip(run: Run) -> bool:
    return any(chips.find(name) is not None for name in run.trace.devices.select("name").collect()["name"].drop_nulls())


def _has_streams(run: Run) -> bool:
    return bool(run.trace.tracks.filter(pl.col("kind") == "stream").select(pl.len()).collect().item())


def _is_npu(run: Run) -> bool:
    return bool((run.trace.devices.select(pl.col("kind").cast(pl.String)).collect()["kind"] == "aicore").any())


def _records_modules(run: Run) -> bool:
    """In recordings of stepscope. PyTorch has an option of the same name that concerns TorchScript alone."""
    return run.trace.meta.format == "capture" and bool(run.options().get("with_modules"))


_HOST = {"op", "python", "annotation", "api", "data", "sync"}


def _is_of_several(run: Run) -> bool:
    """A job that communicates has several ranks, also where the recording does not say how many."""
    meta = run.trace.whole.meta
    return len(meta.ranks) > 1 or (meta.world_size or 1) > 1 or (meta.world_size is None and "communication" in _kinds(run.trace))


def device_word(run: Run) -> str:
    """GPU or NPU, or `device`, a word that messages translate."""
    return "NPU" if _is_npu(run) else "GPU" if _has_streams(run) else "device"


def _kineto(flag: str, option: str) -> dict[str, str]:
    return {"": f"record with `stepscope run {flag}`", "pytorch": f"record with `stepscope run {flag}`, or `torch.profiler` with {option}"}


NEEDS: dict[str, Need] = {
    "steps": Need(
        "steps that are completely recorded",
        lambda run: not run.steps.is_empty(),
        {
            "": "record at least three steps with `stepscope run --steps A:B`, or mark steps with --step-name",
            "pytorch": "record at least three steps with `stepscope run --steps A:B`, or call prof.step() in the loop",
        },
    ),
    "device": Need(
        "kernels of the device",
        _device_data("complete", "partial"),
        {"": "record the activities of the device"},
    ),
    "work": Need(
        "kernels, or operators of a run without a device",
        _device_data("complete", "partial", "host"),
        {"": "record the activities of the device"},
    ),
    "launches": Need(
        "launch calls linked to kernels",
        lambda run: bool(run.work["launch_ns"].count()),
        {
            "": "record with `stepscope run`",
            "pytorch": "record CPU and device activities",
            "mindspore": "record with --level Level1",
        },
    ),
    "operators": Need("operators of the host", _spans("op"), {"": "record with `stepscope run`"}),
    "host": Need("spans of the host", lambda run: bool(_kinds(run.trace) & _HOST), {"": "record with `stepscope run`"}),
    "ranges": Need(
        "Python stacks or ranges of the program",
        lambda run: bool(_kinds(run.trace) & {"python", "annotation"}),
        _kineto("--stack", "with_stack=True"),
    ),
    "api": Need(
        "calls of the device runtime", _spans("api"), {"": "record with `stepscope run`", "mindspore": "record with --level Level1"}
    ),
    "program": Need(
        "Python stacks, or kernels of a device",
        lambda run: _has_streams(run) or "python" in _kinds(run.trace),
        _kineto("--stack", "with_stack=True"),
    ),
    "stacks": Need("Python stacks", _spans("python"), _kineto("--stack", "with_stack=True")),
    "collections": Need(
        "garbage collections",
        lambda run: "gc" in _categories(run.trace),
        {
            "": "time them with gc.callbacks and mark them with stepscope.record_function",
            "pytorch": "record with torch_npu and gc_detect_threshold, or mark them with gc.callbacks and torch.profiler.record_function",
        },
    ),
    "shapes": Need("shapes of operators", _filled("spans", "shapes"), _kineto("--shapes", "record_shapes=True")),
    "memory": Need(
        "memory samples or allocations",
        lambda run: _filled("allocations", "bytes")(run) or _counter("allocated", "reserved")(run),
        _kineto("--memory", "profile_memory=True"),
    ),
    "allocations": Need("allocations", _filled("allocations", "bytes"), _kineto("--memory", "profile_memory=True")),
    "modules": Need("modules", _filled("spans", "scope"), _kineto("--stack", "with_modules=True")),
    "loops": Need(
        "operators with their modules",
        lambda run: run.framework == "jax" or _records_modules(run) or _filled("spans", "scope")(run) or "scope" in _kinds(run.trace),
        {"": "record with `stepscope run`", "pytorch": "record with `stepscope run`, or `torch.profiler` with with_modules=True"},
    ),
    "input": Need("waits for input", _spans("data"), {"": "record with `stepscope run --data`"}),
    "queues": Need("samples of input queues", _counter("depth"), {"": "record with `stepscope run --data`"}),
    "pipeline": Need("operators of the input pipeline", _filled("pipeline", "op_id"), {"": "record with `stepscope run --data`"}),
    "cpu": Need("CPU samples", _counter("cpu user"), {"": "record with `stepscope run` for at least a second"}),
    "compute threads": Need("the number of compute threads", _counter("compute threads"), {"": "record with `stepscope run`"}),
    "clocks": Need("samples of the device clock", _counter("clock", "freq", "Freq"), {"": "record with `stepscope run` on the device"}),
    "chip": Need("a chip with known peaks", _known_chip, {"": "add the chip to model/devices/chips.py"}),
    "communication": Need("communication", _spans("communication"), {"": "record a job of several ranks"}),
    "ranks": Need("several ranks", lambda run: len(run.trace.meta.ranks) > 1, {"": "record all ranks and open their folder"}),
    "links": Need("transfers between ranks with their links", _filled("links", "bytes"), {"": "record with --level Level1 on Ascend"}),
    "core_counters": Need("counters of the cores", _filled("core_counters", "value"), {"": "record with --level Level1 and AiCoreMetrics"}),
    "tasks": Need("tasks of an Ascend device", _filled("tasks", "span"), {"": "record on an Ascend device"}),
    # Where a rule can apply: these are properties of a run, not of its recording.
    "gpu": Need("a GPU", lambda run: _has_streams(run) and not _is_npu(run)),
    "npu": Need("an NPU", _is_npu),
    "with device": Need("a device", lambda run: not _device_data("host")(run)),
    "pytorch": Need("PyTorch", lambda run: run.framework == "pytorch"),
    "mindspore": Need("MindSpore", lambda run: run.framework == "mindspore"),
    "jax": Need("JAX", lambda run: run.framework == "jax"),
    "several ranks": Need("several ranks", _is_of_several),
}
