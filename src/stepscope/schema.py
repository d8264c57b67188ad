"""The tables, their columns and units: the one data model that readers write and analyses read.

Times are integers of nanoseconds on one clock per trace. A column's name carries its unit: `_ns`, `_bytes`, `_flops`.
A `share` is 0 to 1. `span`, `parent` and `flow_in` are ids within one rank: (rank, span) is the key.
"""

from typing import Any

import polars as pl

# What a span is. `op` runs on the host, `kernel` on a device. `instant` has no duration. `other` is what no rule knows.
KINDS = (
    "step",  # one iteration, as the framework or the user marked it
    "scope",  # a module, layer or name scope
    "op",  # a framework operator, on the host
    "kernel",  # computation on a device
    "copy",  # a memory copy on a device
    "set",  # a memory fill on a device
    "communication",  # a collective or point-to-point transfer, on the host or on a device
    "api",  # a runtime or driver call: launches, allocations
    "sync",  # waiting for a device: a synchronising runtime call, an event wait on a stream
    "python",  # a Python frame
    "data",  # the input pipeline: loader waits, transforms
    "annotation",  # a range the user named
    "instant",  # a moment
    "other",
)
# Spans on a track of kind `other` have a length, but no place in time: the source has only sums or means of them.
TRACK_KINDS = ("thread", "stream", "communication", "annotation", "async", "counter", "other")
DEVICES = ("aicore", "aicpu", "hostcpu", "gpu", "tpu", "cpu")

Kind = pl.Enum(KINDS)
TrackKind = pl.Enum(TRACK_KINDS)
Text = pl.Categorical()  # text that repeats

TABLES: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    # Something with a start and a duration.
    "spans": {
        "span": pl.Int64,
        "rank": pl.Int32,
        "track": pl.Int32,
        "kind": Kind,
        "name": Text,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "self_ns": pl.Int64,  # dur_ns less what its direct children on the same track cover
        "depth": pl.Int32,  # 0 is the outermost of its track
        "parent": pl.Int64,  # the span around this one on the same track
        "step": pl.Int32,
        "scope": Text,  # module path or full scope name, outermost first, joined by "/"
        "op_type": Text,  # the framework's type; for device work, that of the operator which launched it
        "op": pl.Int64,  # device work: the span of the operator which launched it
        "correlation": pl.Int64,  # as the source numbers it: launch call and device work share it
        "flow_in": pl.Int64,  # the span that caused this one: the launch call of a kernel, the forward of a backward operator
        "shapes": Text,  # JSON text
        "dtypes": Text,  # JSON text
        "flops": pl.Int64,
        "bytes": pl.Int64,
        "category": Text,  # the source's own word for what this is
        "args": pl.String,  # JSON text of everything the source said of it
    },
    # A lane: host thread, device stream, communication plane.
    "tracks": {
        "rank": pl.Int32,
        "track": pl.Int32,
        "group": Text,  # the process or device it belongs to, as shown
        "label": pl.String,
        "kind": TrackKind,
        "device": pl.Int32,  # device number of a stream; null on the host
        "sort": pl.Int32,
        "pid": pl.String,  # as the source names them
        "tid": pl.String,
    },
    # One iteration of one model on one rank.
    "steps": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "model": Text,
        "phase": Text,  # train, infer
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "fp_start_ns": pl.Int64,  # only where the source itself says so; step_trace infers the rest
        "bp_end_ns": pl.Int64,
        "device_start_ns": pl.Int64,  # the step on the device, where the source draws steps there, too; null: as on the host
        "device_end_ns": pl.Int64,
        "fp_start_op": Text,  # the operators there, where the source names them
        "bp_end_op": Text,
        # What the source itself says of the step's time. MindSpore's computation is the step less exposed communication: idle time counts.
        "computation_ns": pl.Int64,
        "exposed_ns": pl.Int64,  # communication that no computation hides
        "stage_ns": pl.Int64,  # the step less exposed receives: the time within its pipeline stage
        "receive_ns": pl.Int64,  # exposed receives
        "collective_ns": pl.Int64,  # exposed communication without receives
        "how": Text,  # marker, given (the user chose what marks a step), inferred, whole (no marker: the trace is one step)
    },
    # A sample of a value.
    "counters": {
        "rank": pl.Int32,
        "name": Text,
        "at_ns": pl.Int64,
        "value": pl.Float64,
        "unit": Text,
    },
    # A block's life. alloc_ns is null for what was there before the recording, free_ns for what outlived it.
    "allocations": {
        "rank": pl.Int32,
        "device": Text,  # "gpu 0", "cpu"
        "address": pl.UInt64,
        "bytes": pl.Int64,
        "alloc_ns": pl.Int64,
        "free_ns": pl.Int64,
        "name": Text,
        "op": Text,  # the operator that allocated it
        "dtype": Text,
        "shape": Text,
        "format": Text,
        "category": Text,
        "scope": Text,  # the module that allocated it
    },
    # An operator of the input pipeline.
    "pipeline": {
        "rank": pl.Int32,
        "op_id": pl.Int32,
        "op_type": Text,
        "workers": pl.Int32,
        "parent": pl.Int32,
        "queue_capacity": pl.Int32,
    },
    # A transfer between two ranks.
    "links": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "op": Text,
        "src": pl.Int32,
        "dst": pl.Int32,
        "transport": Text,
        "bytes": pl.Int64,
        "dur_ns": pl.Int64,
    },
    # A chip.
    "devices": {
        "rank": pl.Int32,
        "device": pl.Int32,
        "name": pl.String,
        "kind": Text,  # one of DEVICES
        "cores": pl.Int32,
        "clock_hz": pl.Int64,
        "memory_bytes": pl.Int64,
        "peak_flops": pl.Int64,  # where the source itself says so; chips.py knows the rest
        "peak_bandwidth": pl.Int64,
        "step_flops": pl.Int64,  # of a step, where the source has only the sum
        "flops_per_s": pl.Float64,  # as the source says it
    },
    # Something that could not be read, or was read in a way the user should know of.
    "problems": {
        "rank": pl.Int32,
        "file": pl.String,
        "where": pl.String,
        "what": pl.String,
        "lost": pl.Int64,  # how many rows are missing because of it; 0 for a remark
    },
}


# What holds in every row, whatever was read: analyses rely on it.
_PRESENT = {
    "spans": ("span", "rank", "track", "kind", "start_ns", "dur_ns"),
    "tracks": ("rank", "track", "kind"),
    "steps": ("rank", "step", "start_ns", "end_ns"),
    "counters": ("rank", "name", "at_ns"),
    "allocations": ("rank", "device"),
    "pipeline": ("rank", "op_id"),
    "links": ("rank",),
    "devices": ("rank",),
    "problems": ("what",),
}
_NOT_NEGATIVE = {"spans": ("dur_ns", "self_ns", "depth"), "allocations": ("bytes",), "links": ("bytes", "dur_ns"), "problems": ("lost",)}
_TIMES = {"spans": ("start_ns", "dur_ns"), "steps": ("start_ns", "end_ns"), "counters": ("at_ns",), "allocations": ("alloc_ns", "free_ns")}
_IN_ORDER = {"steps": ("start_ns", "end_ns"), "allocations": ("alloc_ns", "free_ns")}


def impossible(frame: pl.LazyFrame, table: str) -> dict[str, int]:
    """What no row of a table may be, in words, and how many rows of this one are: empty where the table is sound."""
    counts = frame.select(condition.sum().alias(words) for words, condition in _laws(table).items()).collect(engine="streaming")
    return {words: count for words, count in counts.row(0, named=True).items() if count}


def possible(table: str) -> pl.Expr:
    """Whether a row can be."""
    return ~pl.any_horizontal(condition.fill_null(False) for condition in _laws(table).values())


def _laws(table: str) -> dict[str, pl.Expr]:
    laws = {f"without {name}": pl.col(name).is_null() for name in _PRESENT[table]}
    laws |= {f"with {name} below 0": pl.col(name) < 0 for name in _NOT_NEGATIVE.get(table, ())}
    if order := _IN_ORDER.get(table):
        laws[f"with {order[1]} before {order[0]}"] = pl.col(order[1]) < pl.col(order[0])
    # 146 years from 1970: sums, means and differences of times stay within 64 bits.
    laws |= {f"with {name} beyond 62 bits": pl.col(name).is_between(-(2**62), 2**62).not_() for name in _TIMES.get(table, ())}
    if table == "spans":  # they count the spans of a rank, and the timeline keeps them in 32 bits
        laws["with a span number beyond 31 bits"] = pl.col("span").is_between(0, 2**31 - 1).not_()
    return laws


def empty(table: str) -> pl.LazyFrame:
    """The table with its columns and no rows."""
    return pl.LazyFrame(schema=TABLES[table])


def conform(frame: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """The frame with exactly the table's columns, in order and typed; what the frame lacks is null."""
    have = frame.collect_schema()
    return frame.select(
        _cast(pl.col(name), have[name], dtype) if name in have else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in TABLES[table].items()
    )


def can_hold(have: pl.DataType, want: pl.DataType | type[pl.DataType]) -> bool:
    """Whether every value of one type can become one of the other, whatever it is."""
    if have in (want, pl.Null):
        return True
    if isinstance(want, pl.Enum):  # an earlier release knew fewer words
        return isinstance(have, pl.Enum) and set(have.categories) <= set(want.categories)
    if want in (pl.String, Text):
        return have in (pl.String, pl.Categorical) or isinstance(have, pl.Enum)
    if want == pl.Float64:
        return have.is_numeric()
    return have.is_integer() and have in _NARROWER.get(want, ())


_NARROWER: dict[Any, tuple[Any, ...]] = {
    pl.Int32: (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16),
    pl.Int64: (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32),
    pl.UInt64: (pl.UInt8, pl.UInt16, pl.UInt32),
}


def _cast(column: pl.Expr, have: pl.DataType, want: pl.DataType | type[pl.DataType]) -> pl.Expr:
    if have == want:
        return column
    if isinstance(have, pl.Enum) and want in (Kind, TrackKind):  # an earlier release knew fewer words
        return column.cast(pl.String).cast(want)
    return column.cast(want)
