"""The tables, their columns and units: the one data model that readers write and analyses read.

Times are integers of nanoseconds on one clock per trace. A column's name carries its unit: `_ns`, `_bytes`, `_flops`.
A `share` is 0 to 1. `span`, `parent` and `flow_in` are ids within one rank: (rank, span) is the key.
"""

import functools
from typing import Any

import polars as pl

from stepscope.model import ascend_tables, rank_tables

# Kinds of spans. `op` runs on the host, `kernel` on a device. `instant` has no duration. `other`: no rule applies.
KINDS = (
    "step",  # one iteration, as the framework or the user marked it
    "scope",  # a module, layer or name scope
    "op",  # a framework operator, on the host
    "kernel",  # computation on a device
    "copy",  # a memory copy on a device
    "set",  # a memory fill on a device
    "communication",  # a collective or point-to-point transfer, on the host or on a device
    "api",  # a runtime or driver call: launches, allocations
    "sync",  # waiting for a device: a synchronizing runtime call, an event wait on a stream
    "python",  # a Python frame
    "data",  # the input pipeline: loader waits, transforms
    "annotation",  # a range the user named
    "instant",  # a point in time
    "other",
)
# Spans on a track of kind `other` have durations without timestamps: the source has only their sums or means.
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
        "category": Text,  # the word of the source for the kind of span
        "args": pl.String,  # JSON text of all other key/values in the source
    },
    # A row of the timeline: host thread, device stream, communication plane.
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
        "stream": pl.Int64,  # number of the device stream
        "communication_group": pl.String,  # the group whose operators or tasks the track contains
        "plane": pl.Int64,  # the plane of the group whose tasks the track contains; null on the track of its operators
    },
    # One iteration of one model on one rank.
    "steps": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "model": Text,
        "phase": Text,  # train, infer
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "fp_start_ns": pl.Int64,  # only where the source contains it; step_trace infers the rest
        "bp_end_ns": pl.Int64,
        "device_start_ns": pl.Int64,  # the step on the device, where the source has it; null: as on the host
        "device_end_ns": pl.Int64,
        "fp_start_op": Text,  # the operators there, where the source names them
        "bp_end_op": Text,
        # Times that the source contains. MindSpore's computation is the step less exposed communication: idle time counts.
        "computation_ns": pl.Int64,
        "exposed_ns": pl.Int64,  # communication that no computation overlaps
        "stage_ns": pl.Int64,  # the step less exposed receives: the time within its pipeline stage
        "receive_ns": pl.Int64,  # exposed receives
        "collective_ns": pl.Int64,  # exposed communication without receives
        # Device work of the step according to the source's own sums and tables: if less is recorded, device work is missing.
        "device_computing_ns": pl.Int64,
        "device_communication_ns": pl.Int64,
        "device_work_lost": pl.Boolean,  # true: the source shows that device work of this step is missing
        # marker, given (the user chose what marks a step), inferred, device (the source has the device work of the step only),
        # whole (no marker: the trace is one step)
        "how": Text,
    },
    # A sample of a value.
    "counters": {
        "rank": pl.Int32,
        "name": Text,
        "at_ns": pl.Int64,
        "value": pl.Float64,
        "unit": Text,
        "series": Text,  # the quantity: allocated, aicore clock, cpu user
        "owner": Text,  # the owner of the value: npu, gpu, cpu, process, loader, operator; null for the machine
        "number": pl.Int64,  # number of the owner: device, process id, operator id
    },
    # An allocation of memory. alloc_ns is null where it is older than the recording, free_ns where it outlives it.
    "allocations": {
        "rank": pl.Int32,
        "device": Text,  # owner and number, as text: "gpu 0", "cpu"
        "owner": Text,  # kind of the device: gpu, npu, cpu, or the name of an allocator
        "number": pl.Int64,  # number of the device; null for one without a number
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
        "peak_flops": pl.Int64,  # where the source contains it; chips.py has the rest
        "peak_bandwidth": pl.Int64,
        "step_flops": pl.Int64,  # of a step, where the source has only the sum
        "flops_per_s": pl.Float64,  # as the source reports it
        # The time stamp counter of the device: its rate, its value at the start, and two clocks of the host at that time.
        "counter_hz": pl.Float64,
        "counter_start": pl.Int64,
        "monotonic_ns": pl.Int64,
        "wall_ns": pl.Int64,
    },
    # The machine of a rank.
    "hosts": {
        "rank": pl.Int32,
        "host": Text,
    },
    # Operations of the stages of a pipeline-parallel job, by replica (data-parallel copy of the model) and micro-batch.
    "stage_operations": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "stage": pl.Int32,
        "replica": pl.Int32,
        "operation": Text,  # forward-compute, backward-compute, forward-send, grads-reduce-scatter, ...
        "sequence": pl.Int32,  # counts the operations of its name, rank and step
        "chunk": pl.Int32,  # part of the model on its stage; -1 for none
        "model_chunk": pl.Int32,  # part of the model; -1 for none
        "micro_batch": pl.Int32,  # null for none
    },
    # An operator in the graph of a stage, and how MindSpore's parallel strategy divides it.
    "sharded_operators": {
        "rank": pl.Int32,
        "stage": pl.Int32,
        "mode": Text,  # data_parallel, semi_auto_parallel, auto_parallel, ...
        "node": pl.String,  # in the graph of its stage
        "name": pl.String,
        "type": Text,
        "scope": pl.String,
        "instance": pl.String,  # name that the compiler gave it
        "shards": pl.String,  # JSON text: number of shards per dimension of each input
        "inputs": pl.String,  # JSON text: its input nodes
        "devices": pl.String,  # JSON text: the ranks of its stage
    },
    # A group of ranks that communicate, as a rank knows it; with the progress that a flight recorder stored: numbers of the last operation
    # of each state.
    "process_groups": {
        "rank": pl.Int32,
        "group": Text,
        "description": Text,
        "members": pl.String,  # ranks, separated by commas
        "enqueued": pl.Int64,
        "started": pl.Int64,
        "completed": pl.Int64,
    },
    # A collective or point-to-point operation that a flight recorder stored.
    "flight_records": {
        "rank": pl.Int32,
        "record": pl.Int64,  # counts all operations of the rank
        "group": Text,
        "number": pl.Int64,  # counts the collectives of the group
        "p2p_number": pl.Int64,  # counts the sends and receives of the group
        "operation": pl.Int64,  # counts both
        "is_p2p": pl.Boolean,
        "name": Text,
        "backend": Text,
        "peer": pl.Int32,  # rank of the other side of a send or receive, within the group
        "state": Text,  # scheduled, started, completed
        "created_ns": pl.Int64,
        "started_ns": pl.Int64,
        "completed_ns": pl.Int64,
        "input_shapes": Text,
        "input_dtypes": Text,
        "output_shapes": Text,
        "output_dtypes": Text,
        "timeout_ns": pl.Int64,
        "thread": Text,
        "line": Text,  # the innermost line of code outside of the framework: file:line function
        "frames": pl.String,  # JSON text, the innermost first
    },
    # Something in the input that could not be read, or a remark on how it was read.
    "problems": {
        "rank": pl.Int32,
        "file": pl.String,
        "where": pl.String,
        "what": pl.String,
        "lost": pl.Int64,  # how many rows are missing because of it; 0 for a remark
    },
}

TABLES |= ascend_tables.TABLES
SPAN_DETAILS = [name for name, columns in TABLES.items() if "span" in columns and name != "spans"]
TABLES |= rank_tables.TABLES

# Rules that hold in every row of every trace: analyses rely on them.
_PRESENT = {
    "spans": ("span", "rank", "track", "kind", "start_ns", "dur_ns"),
    "tracks": ("rank", "track", "kind"),
    "steps": ("rank", "step", "start_ns", "end_ns"),
    "counters": ("rank", "name", "at_ns"),
    "allocations": ("rank", "device"),
    "pipeline": ("rank", "op_id"),
    "links": ("rank",),
    "devices": ("rank",),
    "hosts": ("rank", "host"),
    **dict.fromkeys(SPAN_DETAILS, ("rank", "span")),
    "models": ("rank",),
    "fusions": ("rank",),
    "sharded_operators": ("rank",),
    "process_groups": ("rank", "group"),
    "flight_records": ("rank", "group"),
    "problems": ("what",),
    **dict.fromkeys(rank_tables.TABLES, ("rank",)),
}
_NOT_NEGATIVE = {"spans": ("dur_ns", "self_ns", "depth"), "allocations": ("bytes",), "links": ("bytes", "dur_ns"), "problems": ("lost",)}
_TIMES = {"spans": ("start_ns", "dur_ns"), "steps": ("start_ns", "end_ns"), "counters": ("at_ns",), "allocations": ("alloc_ns", "free_ns")}
_IN_ORDER = {"steps": ("start_ns", "end_ns"), "allocations": ("alloc_ns", "free_ns")}


def invalid_counts(frame: pl.LazyFrame, table: str) -> dict[str, int]:
    """The number of invalid rows per fault, such as "without start_ns"; empty for a valid table."""
    counts = frame.select(condition.sum().alias(fault) for fault, condition in _faults(table).items()).collect(engine="streaming")
    return {fault: count for fault, count in counts.row(0, named=True).items() if count}


def is_valid(table: str) -> pl.Expr:
    """Whether a row is valid."""
    return ~pl.any_horizontal(condition.fill_null(False) for condition in _faults(table).values())


def _faults(table: str) -> dict[str, pl.Expr]:
    """The condition of each fault."""
    faults = {f"without {name}": pl.col(name).is_null() for name in _PRESENT[table]}
    faults |= {f"with {name} below 0": pl.col(name) < 0 for name in _NOT_NEGATIVE.get(table, ())}
    if order := _IN_ORDER.get(table):
        faults[f"with {order[1]} before {order[0]}"] = pl.col(order[1]) < pl.col(order[0])
    # 146 years from 1970: sums, means and differences of times stay within 64 bits.
    faults |= {f"with {name} beyond 62 bits": pl.col(name).is_between(-(2**62), 2**62).not_() for name in _TIMES.get(table, ())}
    if table == "spans":  # they count the spans of a rank, and the timeline keeps them in 32 bits
        faults["with a span number beyond 31 bits"] = pl.col("span").is_between(0, 2**31 - 1).not_()
    return faults


@functools.cache
def empty(table: str) -> pl.LazyFrame:
    """The table with its columns and no rows."""
    return pl.LazyFrame(schema=TABLES[table])


def conform(frame: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """The frame with exactly the table's columns, in order and typed. Missing columns are null."""
    if frame is empty(table):
        return frame
    have = frame.collect_schema()
    if have == _schema(table):  # in this order, too
        return frame
    return frame.select(
        _cast(pl.col(name), have[name], dtype) if name in have else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in TABLES[table].items()
    )


@functools.cache
def _schema(table: str) -> pl.Schema:
    return empty(table).collect_schema()


def can_hold(have: pl.DataType, want: pl.DataType | type[pl.DataType]) -> bool:
    """Whether every value of the type `have` can be converted to the type `want`."""
    if have in (want, pl.Null):
        return True
    if isinstance(want, pl.Enum):  # an earlier release had fewer words
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
    if isinstance(have, pl.Enum) and want in (Kind, TrackKind):  # an earlier release had fewer words
        return column.cast(pl.String).cast(want)
    return column.cast(want)
