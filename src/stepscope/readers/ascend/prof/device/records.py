"""Records of the device: starts and ends of tasks (HWTS or STARS), and the task scheduler's records (ts_track)."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.model.intervals import Bools, Ints
from stepscope.readers.ascend.prof.files import DEVICE_MAGIC, HOST_MAGIC, Clock, Notes, Records, Side, records, report_lost_records

NO_CONTEXT = 2**32 - 1
STREAM_DESTROYED = 0xFFFF
MARK = 11  # tag of a mark that the program set on the host; `index` is the number of the mark

HWTS = np.dtype(
    [
        *[("head", "u1"), ("sqe", "u1"), ("magic", "<u2"), ("block", "<u2"), ("task", "<u2")],
        *[("at", "<u8"), ("stream", "<u4"), ("rest", "V44")],
    ]
)
STARS = np.dtype(
    [
        *[("head", "<u2"), ("magic", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("at", "<u8")],
        *[("sub", "<u2"), ("context", "<u2"), ("ffts", "<u2"), ("thread", "<u2"), ("rest", "V40")],
    ]
)
# The newest chips write records of half the size.
STARS_SHORT = np.dtype([*[(name, STARS[name]) for name in ("head", "magic", "stream", "task", "at")], ("rest", "V16")])
TRACK = np.dtype([("mode", "u1"), ("type", "u1"), ("size", "<u2"), ("pad", "<u4"), ("at", "<u8"), ("body", "V24")])
_TRACK_BODIES: dict[str, np.dtype[Any]] = {
    "step": np.dtype([("index", "<u8"), ("model", "<u8"), ("stream", "<u2"), ("task", "<u2"), ("tag", "<u2"), ("pad", "<u2")]),
    "step_new": np.dtype([("index", "<u8"), ("model", "<u8"), ("tag", "<u2"), ("stream", "<u2"), ("task", "<u4")]),
    "state": np.dtype([("stream", "<u2"), ("task", "<u2"), ("kind", "<u2"), ("state", "u1"), ("pad", "V17")]),
    "memcpy": np.dtype([("stream", "<u2"), ("task", "<u2"), ("state", "u1"), ("pad", "V19")]),
    "flip": np.dtype([("stream", "<u2"), ("flip", "<u2"), ("pad", "<u2"), ("task", "<u2"), ("rest", "V16")]),
    "blocks": np.dtype([("stream", "<u2"), ("task", "<u2"), ("blocks", "<u4"), ("pad", "V16")]),
}
_TRACK_TYPES = {"step": 10, "memcpy": 11, "state": 12, "flip": 14, "blocks": 15}
_START, _END, _SUB_START, _SUB_END = 0b000000, 0b000001, 0b100010, 0b100011
NEWEST = ("15", "16")

_COMMON = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AIV_SQE", 3: "PLACE_HOLDER_SQE", 4: "EVENT_RECORD_SQE", 5: "EVENT_WAIT_SQE", 6: "NOTIFY_RECORD_SQE",
    7: "NOTIFY_WAIT_SQE", 8: "WRITE_VALUE_SQE",
}  # fmt: skip
HWTS_TYPES = _COMMON | {9: "SDMA_SQE"}
STARS_TYPES = _COMMON | {
    9: "VQ6_SQE", 10: "TOF_SQE", 11: "SDMA_SQE", 12: "VPC_SQE", 13: "JPEGE_SQE", 14: "JPEGD_SQE", 15: "DSA_SQE", 16: "ROCCE_SQE",
    17: "PCIE_DMA_SQE", 18: "HOST_CPU_SQE", 19: "CDQM_SQE", 20: "C_CORE_SQE",
}  # fmt: skip
NEWEST_TYPES = _COMMON | {
    1: "AIV_SQE", 2: "FUSION", 4: "AICPU_H", 5: "AICPU_D", 9: "UBDMA", 10: "ASYNCDMA", 11: "SDMA_SQE", 12: "VPC_SQE", 13: "JPEGE_SQE",
    14: "JPEGD_SQE", 15: "CMO_SQE", 16: "CCU_SQE", 20: "CONDITION_SQE", 21: "END_SQE",
}  # fmt: skip
SUB_TYPES = {
    0: "AIC", 1: "AIV", 3: "Notify Wait", 4: "Notify Record", 5: "Write Value", 6: "MIX_AIC", 7: "MIX_AIV", 8: "SDMA", 9: "Data Context",
    10: "Invalidate Data Context", 11: "Writeback Data Context", 12: "AI_CPU", 13: "Load Context", 15: "DSA",
}  # fmt: skip


class Device(NamedTuple):
    """The tasks of one device by start, and the records of its scheduler."""

    number: int
    stars: bool
    tasks: pl.DataFrame  # stream, task, batch, context, start_ns, end_ns, type: one row per execution
    steps: pl.DataFrame  # model, index, stream, task, tag, at_ns
    blocks: pl.DataFrame  # stream, task, batch, blocks: number of blocks, if it was decided on the device
    copies: pl.DataFrame  # stream, task, received_ns, start_ns: as reported by the scheduler
    clock: Clock


def read(side: Side, clock: Clock, notes: Notes) -> Device:
    assert side.device is not None
    track = _track(side, notes)
    logs = side.slices(r"stars_soc\.data\.\d+")
    if logs:
        executions, stars = _stars(side, logs, notes), True
    else:
        logs = side.slices(r"hwts\.(log\.)?data(\.\d+)?(\.dev\.profiler_default_tag)?\.\d+(\.\d+)?")
        executions, stars = hwts(logs, notes) if logs else _NO_TASKS, False
    if not stars:
        executions = pl.concat([executions, _by_state(track["state"], 1, "AI_CPU"), _by_state(track["memcpy"], None, "MEMCPY_ASYNC")])
    at = executions.select(pl.col("start", "end").cast(pl.UInt64)).to_numpy() if executions.height else np.empty((0, 2), np.uint64)
    tasks = executions.drop("start", "end").with_columns(pl.Series("start_ns", clock.ns(at[:, 0])), pl.Series("end_ns", clock.ns(at[:, 1])))
    tasks = clock.drop_implausible(tasks, side, notes, "tasks")
    track = {name: rows[clock.plausible(clock.ns(rows["at"]))] for name, rows in track.items()}
    tasks = with_batches(tasks.sort("start_ns", maintain_order=True), track["flip"], clock)
    blocks = pl.DataFrame(
        {
            "stream": _int64(track["blocks"]["stream"]),
            "task": _int64(track["blocks"]["task"]),
            "blocks": _int64(track["blocks"]["blocks"] & 0xFFFF),
            "start_ns": clock.ns(track["blocks"]["at"]),
        }
    )
    steps = pl.DataFrame(
        {
            "model": _int64(track["step"]["model"]),
            "index": _int64(track["step"]["index"]),
            "stream": _int64(track["step"]["stream"]),
            "task": _int64(track["step"]["task"]),
            "tag": _int64(track["step"]["tag"]),
            "at_ns": clock.ns(track["step"]["at"]),
        }
    ).sort("at_ns", maintain_order=True)
    return Device(side.device, stars, tasks, steps, blocks, _copies(track["memcpy"], clock), clock)


_TASK_COLUMNS: dict[str, Any] = {
    "stream": pl.Int64,
    "task": pl.Int64,
    "context": pl.Int64,
    "type": pl.String,
    "start": pl.UInt64,
    "end": pl.UInt64,
}
_NO_TASKS = pl.DataFrame(schema=_TASK_COLUMNS)


def hwts(files: list[Path], notes: Notes) -> pl.DataFrame:
    """Executions: each start with the next end of the same stream and task number."""
    logs = records(files, HWTS, notes, DEVICE_MAGIC)
    if not len(logs):
        return _NO_TASKS
    report_lost_records(logs["head"] >> 4, files[0], notes)
    tag = logs["head"] & 7
    logs, tag = logs[tag < 2], tag[tag < 2]
    stream = logs["stream"].astype(np.int64) % 2048
    key = stream << 16 | logs["task"]
    starts, ends, unpaired = pair_starts_and_ends(key, logs["at"], tag == 0)
    _report_unpaired(unpaired, files[0], notes)
    return _executions(logs, starts, ends, stream, logs["task"].astype(np.int64), None, logs["sqe"].astype(np.int64), HWTS_TYPES)


def _stars(side: Side, files: list[Path], notes: Notes) -> pl.DataFrame:
    short = side.chip in NEWEST
    logs = records(files, STARS_SHORT if short else STARS, notes, DEVICE_MAGIC)
    if not len(logs):
        return _NO_TASKS
    report_lost_records((logs["head"] >> 6) & 15, files[0], notes)
    function, sqe = logs["head"] & 63, (logs["head"] >> 10).astype(np.int64)
    stream, task = numbers(logs["stream"], logs["task"], sqe, side)
    key = stream << 32 | task
    parts = []
    whole = (function == _START) | (function == _END)
    starts, ends, unpaired = pair_starts_and_ends(key[whole], logs["at"][whole], function[whole] == _START)
    _report_unpaired(unpaired, files[0], notes)
    words = NEWEST_TYPES if short else STARS_TYPES
    parts.append(_executions(logs[whole], starts, ends, stream[whole], task[whole], None, sqe[whole], words))
    if not short:
        part = (function == _SUB_START) | (function == _SUB_END)
        logs, stream, task = logs[part], stream[part], task[part]
        context = logs["context"].astype(np.int64)
        part_key = key[part] * 65536 + context ^ logs["thread"].astype(np.int64) << 48
        starts, ends, unpaired = pair_starts_and_ends(part_key, logs["at"], function[part] == _SUB_START)
        _report_unpaired(unpaired, files[0], notes)
        parts.append(_executions(logs, starts, ends, stream, task, context, logs["sub"].astype(np.int64) & 0xFF, SUB_TYPES))
    return pl.concat(parts)


def numbers(stream: Records, task: Records, sqe: Ints | None, side: Side) -> tuple[Ints, Ints]:
    """The stream and the task of a STARS record: bits of numbers that do not fit their fields are in other fields."""
    s, t = stream.astype(np.int64), task.astype(np.int64)
    if side.chip in NEWEST:
        return s, t << 16 | s
    if side.expanded:
        plain = (s & 0x8000 == 0) | (np.isin(sqe, (3, 4)) if sqe is not None else False)
        return np.where(plain, s & 0x7FFF, t & 0x7FFF), np.where(plain, t, t & 0x8000 | s & 0x7FFF)
    high, swapped = s & 0x1000 != 0, (s & 0x1000 == 0) & (s & 0x2000 != 0)
    return (
        np.where(swapped, t & 0xFFF, s) % 2048,
        np.where(high, t & 0x1FFF | s & 0xE000, np.where(swapped, s & 0xFFF | t & 0xF000, t)),
    )


def pair_starts_and_ends(key: Ints, at: Records, is_start: Bools) -> tuple[Ints, Ints, tuple[int, int]]:
    """Rows of starts and of their ends, and the numbers of unpaired ones: an end belongs to the last start of its key before it."""
    order = np.lexsort((at, key))
    starts = is_start[order]
    is_pair = starts[:-1] & ~starts[1:] & (key[order][:-1] == key[order][1:])
    first = np.flatnonzero(is_pair)
    unpaired = int(is_start.sum()) - len(first), int((~is_start).sum()) - len(first)
    return order[first], order[first + 1], unpaired


def _report_unpaired(unpaired: tuple[int, int], file: Path, notes: Notes) -> None:
    if unpaired[0]:
        notes.add(file, "tasks with a start and no end", unpaired[0])
    if unpaired[1]:
        notes.add(file, "tasks with an end and no start", unpaired[1])


def _executions(
    logs: Records, starts: Ints, ends: Ints, stream: Ints, task: Ints, context: Ints | None, code: Ints, words: dict[int, str]
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "stream": stream[starts],
            "task": task[starts],
            "context": np.full(len(starts), NO_CONTEXT) if context is None else context[starts],
            "type": code_names(code[starts], words),
            "start": logs["at"][starts],
            "end": logs["at"][ends],
        },
        schema=_TASK_COLUMNS,
    )


def code_names(codes: Records, words: dict[int, str]) -> pl.Series:
    """The names of these codes; the digits of an unknown code."""
    number = pl.Series(np.asarray(codes).astype(np.int64))
    return number.replace_strict(list(words), list(words.values()), default=number.cast(pl.String), return_dtype=pl.String)


def _track(side: Side, notes: Notes) -> dict[str, Records]:
    """The scheduler's records by type. Each contains its size (40), which serves as the magic number."""
    raw = records(side.slices(r"ts_track\.data\.\d+"), TRACK, notes, 40, "size")
    parts = {}
    for name, number in _TRACK_TYPES.items():
        body = _TRACK_BODIES["step_new" if name == "step" and side.chip in NEWEST else name]
        rows = raw[raw["type"] == number]
        part = np.empty(len(rows), [("at", "<u8"), *[(field, body[field]) for field in body.names or ()]])
        part["at"] = rows["at"]
        decoded = np.ascontiguousarray(rows["body"]).view(body)
        for field in body.names or ():
            part[field] = decoded[field]
        parts[name] = part
    return parts


def _by_state(states: Records, kind: int | None, word: str) -> pl.DataFrame:
    """Tasks that are missing from task logs; the scheduler reports when they are received (0), started (1) and ended (2)."""
    wanted = states["state"] > 0
    states = states[wanted & (states["kind"] == kind)] if kind is not None else states[wanted]
    if not len(states):
        return _NO_TASKS
    stream, task = _int64(states["stream"]), _int64(states["task"])
    starts, ends, _ = pair_starts_and_ends(stream << 16 | task, states["at"], states["state"] == 1)
    return _executions(states, starts, ends, stream, task, None, np.zeros(len(states), np.int64), {0: word})


def _copies(states: Records, clock: Clock) -> pl.DataFrame:
    """Copies: received (state 0), then started (state 1)."""
    stream, task = _int64(states["stream"]), _int64(states["task"])
    early = states["state"] < 2
    received, starts, _ = pair_starts_and_ends((stream << 16 | task)[early], states["at"][early], states["state"][early] == 0)
    rows = states[early]
    return pl.DataFrame(
        {
            "stream": stream[early][starts],
            "task": task[early][starts],
            "received_ns": clock.ns(rows["at"][received]),
            "start_ns": clock.ns(rows["at"][starts]),
        }
    )


def with_batches(tasks: pl.DataFrame, flips: Records, clock: Clock) -> pl.DataFrame:
    """The tasks with their batches: task numbers have 16 bits, and each flip of a stream starts the next batch at 0."""
    batch = batches(
        tasks["stream"].to_numpy(),
        tasks["task"].to_numpy(),
        tasks["start_ns"].to_numpy(),
        _int64(flips["stream"]),
        _int64(flips["task"]),
        clock.ns(flips["at"]),
        _int64(flips["flip"]),
    )
    return tasks.with_columns(pl.Series("batch", batch))


def batches(stream: Ints, task: Ints, at: Ints, flip_stream: Ints, flip_task: Ints, flip_at: Ints, flip_number: Ints) -> Ints:
    """The batch of each task, from the flips of its stream before it.

    Threads take task numbers concurrently, so the flip may not have number 0: tasks directly before the flip with numbers below its
    own belong to the new batch.
    """
    batch = np.zeros(len(stream), np.int64)
    for number in np.unique(flip_stream):
        mine = np.flatnonzero(stream == number)
        mine = mine[np.argsort(at[mine], kind="stable")]
        flips = np.flatnonzero(flip_stream == number)
        flips = flips[np.argsort(flip_at[flips], kind="stable")]
        first = int(flip_number[flips[0]])
        # A recording that starts late starts in a later batch.
        batch[mine] = (first - 1 if 0 < first < STREAM_DESTROYED else 0) + np.searchsorted(flip_at[flips], at[mine], "right")
        before = np.searchsorted(at[mine], flip_at[flips])
        for flip, after in zip(flips.tolist(), before.tolist(), strict=True):
            earlier = after - 1 if flip_number[flip] != STREAM_DESTROYED else -1
            while earlier >= 0 and task[mine[earlier]] < flip_task[flip]:
                batch[mine[earlier]] += 1
                earlier -= 1
    return batch


def _int64(column: Records) -> Ints:
    return column.astype(np.int64)


# AI CPU


AICPU = np.dtype(
    [
        *[("magic", "<u2"), ("level", "<u2"), ("kind", "<u4"), ("thread", "<u4"), ("length", "<u4"), ("written", "<u8")],
        *[("stream", "<u2"), ("task", "<u2"), ("pad", "V12"), ("start", "<u8"), ("compute", "<u8"), ("memcpy", "<u8"), ("copied", "<u8")],
        *[("pad2", "V8"), ("end", "<u8"), ("pad3", "V8"), ("submit", "<u8"), ("pad4", "V16"), ("after", "<u8"), ("pad5", "V4")],
        *[("dispatch", "<u4"), ("total", "<u4"), ("rest", "V116")],
    ]
)
AICPU_OLD = np.dtype(
    [
        *[("magic", "<u2"), ("tag", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("pad", "V8")],
        *[("start", "<u8"), ("compute", "<u8"), ("memcpy", "<u8"), ("copied", "<u8"), ("pad2", "V8"), ("end", "<u8"), ("pad3", "V8")],
        *[("submit", "<u8"), ("pad4", "V16"), ("after", "<u8"), ("pad5", "V4"), ("dispatch", "<u4"), ("total", "<u4"), ("rest", "V12")],
    ]
)


def aicpu(side: Side, clock: Clock, notes: Notes) -> pl.DataFrame:
    """Reports of AI CPU operators: times of computing and copying, and the wait for dispatch."""
    parts = []
    new, old = side.slices(r"aicpu\.data\.\d+"), side.slices(r"DATA_PREPROCESS\.AICPU\.\d+")
    if new:
        raw = records(new, AICPU, notes, HOST_MAGIC)
        parts.append(raw[raw["level"] == 6000])
    if old:
        raw = records(old, AICPU_OLD, notes, HOST_MAGIC)
        parts.append(raw[raw["tag"] == 60])
    rows = [
        pl.DataFrame(
            {
                "stream": _int64(part["stream"]),
                "task": _int64(part["task"]),
                "start_ns": clock.ns(part["start"]),
                "end_ns": clock.ns(part["end"]),
                "compute_us": _int64(part["memcpy"]) - _int64(part["compute"]),
                "memcpy_us": _int64(part["copied"]) - _int64(part["memcpy"]),
                "dispatch_us": _int64(part["dispatch"]),
                "waited_ns": clock.ns(part["after"]) - clock.ns(part["submit"]),
            }
        )
        for part in parts
    ]
    return pl.concat(rows) if rows else pl.DataFrame()
