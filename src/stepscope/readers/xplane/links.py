"""Relations in an XPlane file: launches and kernels, work that threads hand over, steps, allocations and their releases."""

import numpy as np
import polars as pl

from stepscope.model import intervals
from stepscope.model.columns.counters import OWNER
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import nearest_around, numbers_of, steps_by_handover
from stepscope.readers.chrome.kineto.spans import optional_rows
from stepscope.readers.chrome.kineto.steps import find_steps
from stepscope.readers.common.allocations import memory_samples, pair_releases

_ON_DEVICE = ["stream", "ops", "async"]


def separate_markers(spans: pl.DataFrame, tracks: list[dict[str, object]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans and tracks, with the step markers of threads on separate tracks: they need not nest with the Python frames around them."""
    is_marker = (pl.col("kind") == "step") & (pl.col("role") == "thread")
    threads = pl.DataFrame(tracks, infer_schema_length=None).with_columns(sort=2 * pl.int_range(pl.len(), dtype=pl.Int64))
    marked = spans.filter(is_marker)["track"].unique().sort()
    markers = threads.filter(pl.col("track").is_in(marked.to_list())).with_columns(
        pl.col("sort") - 1,
        track=pl.int_range(pl.len(), dtype=pl.Int64) + threads.height,
        label=pl.format("{} annotations", "label"),
        kind=pl.lit("annotation"),
    )
    new = dict(zip(marked.to_list(), markers["track"].to_list(), strict=True))
    moved = pl.col("track").replace_strict(new, default=pl.col("track"), return_dtype=pl.Int32)
    ordered = pl.concat([threads, markers]).sort("sort")
    return spans.with_columns(track=pl.when(is_marker).then(moved).otherwise("track")), ordered.with_columns(sort=pl.int_range(pl.len()))


def nest_spans(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with depth, parent and self time. Spans that overlap on a stream are at different depths, but none is part of another."""
    on_stream = spans["role"].cast(pl.String).is_in(["stream", "async"]).to_numpy()
    start, duration = spans["start_ns"].to_numpy(), spans["dur_ns"].to_numpy()
    nesting = intervals.nest(spans["track"].to_numpy().astype(np.int64), start, start + duration)
    return spans.with_columns(
        pl.Series("span", np.arange(spans.height)),
        pl.Series("depth", nesting.depth.astype(np.int32)),
        optional_rows("parent", np.where(on_stream, -1, nesting.parent)),
        pl.Series("self_ns", np.where(on_stream, duration, nesting.self_time)),
    )


def link_spans(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with `flow_in` (the launch of a kernel, the call that handed work over) and `op` (the operation around the launch)."""
    flow_in = _handovers(spans)
    device = spans.filter(pl.col("role").is_in(_ON_DEVICE) & pl.col("correlation").is_not_null()).select("span", "correlation")
    calls = spans.filter((pl.col("role") == "thread") & pl.col("correlation").is_not_null()).select("correlation", cause="span")
    launched = device.join(calls.unique("correlation", keep="first", maintain_order=True), on="correlation")
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    op = np.full(spans.height, -1, np.int64)
    is_op, parent = (spans["kind"] == "op").to_numpy(), spans["parent"].fill_null(-1).to_numpy()
    op[launched["span"].to_numpy()] = nearest_around(is_op, parent, launched["cause"].to_numpy())
    rows, has_op = pl.Series(np.maximum(op, 0)), pl.Series(op >= 0)
    inherited = (pl.coalesce(column, pl.when(has_op).then(spans[column].gather(rows))) for column in ("op_type", "scope", "category"))
    return spans.with_columns(optional_rows("flow_in", flow_in), optional_rows("op", op), *inherited)


def _handovers(spans: pl.DataFrame) -> Ints:
    """For each span that consumes an item, the last span before it that produced the item; -1 for none."""
    flow_in = np.full(spans.height, -1, np.int64)
    produced = spans.filter(pl.col("produces").is_not_null()).select("start_ns", type="produces_type", item="produces", cause="span")
    consumed = spans.filter(pl.col("consumes").is_not_null()).select("start_ns", "span", type="consumes_type", item="consumes")
    if produced.height and consumed.height:
        links = consumed.sort("start_ns").join_asof(produced.sort("start_ns"), on="start_ns", by=["type", "item"], check_sortedness=False)
        links = links.filter(pl.col("cause").is_not_null() & (pl.col("cause") != pl.col("span")))
        flow_in[links["span"].to_numpy()] = links["cause"].to_numpy()
    return flow_in


def drop_shared_scopes(spans: pl.DataFrame) -> pl.DataFrame:
    """Remove the scope of kernels that several instructions share.

    In a CUDA graph only the name of a kernel is known, and XLA compiles equal instructions to one kernel. A kernel that ran more often
    than the rarest kernel of its program belongs to several instructions, or to a loop.
    """
    if not spans["shared"].any():
        return spans
    calls = spans.filter("shared").group_by("program", "name").len()
    unique = calls.filter(pl.col("len") == pl.col("len").min().over("program")).select("program", "name", unique=True)
    is_unique = spans.select("program", "name").join(unique, on=["program", "name"], how="left", maintain_order="left")["unique"]
    keep = ~pl.col("shared") | is_unique.fill_null(False)
    return spans.with_columns(pl.when(keep).then(column).alias(column) for column in ("scope", "category"))


def find_marked_steps(spans: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The steps, and problems where the framework did not mark them."""
    marks = spans.filter((pl.col("kind") == "step") & (pl.col("role") == "thread"))
    number = pl.col("step_num")
    if marks.height == 0:
        # A TPU numbers its steps itself, each core on a line of its own.
        marks = spans.filter(pl.col("role") == "steps")
        marks = marks.filter(pl.col("track") == pl.col("track").min())
        number = _NUMBER
    if marks.height == 0:
        steps, problem = find_steps(spans.with_columns(kind=_kind_as_range()))
        return steps, [problem.what] if problem else []
    marks = _innermost(marks.sort("start_ns"))
    numbered = marks.select(step=number, model="name", start_ns="start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    problems = []
    numbers = numbered["step"]
    if numbers.null_count() or not numbers.is_unique().all() or not numbers.is_between(0, 2**31 - 1).all():
        numbered = numbered.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int64))
        problems.append("the step markers repeat their numbers: steps are counted from 0")
    phase = pl.col("model").cast(pl.String).str.to_lowercase()
    return numbered.with_columns(
        how=pl.lit("marker"),
        phase=pl.when(phase.str.contains("train"))
        .then(pl.lit("train"))
        .when(phase.str.contains("eval|test|valid|infer|predict"))
        .then(pl.lit("infer")),
    ), problems


_NUMBER = pl.coalesce("step_num", pl.col("name").cast(pl.String).str.extract(r"([0-9]+)$").cast(pl.Int64, strict=False))


def _innermost(marks: pl.DataFrame) -> pl.DataFrame:
    """Step markers that contain no others: an epoch is not a step."""
    start = marks["start_ns"].to_numpy()
    end = start + marks["dur_ns"].to_numpy()
    parent = intervals.nest(np.zeros(len(start), np.int64), start, end).parent
    inner = np.flatnonzero(parent >= 0)
    inner = inner[end[inner] <= end[parent[inner]]]
    keep = np.ones(len(start), np.bool_)
    keep[parent[inner]] = False
    return marks.filter(keep)


def _kind_as_range() -> pl.Expr:
    """Without markers, any range on a host thread may mark a step: the profiler does not separate ranges of users and of the runtime."""
    noise = pl.col("name").cast(pl.String).str.contains(r"^(end: |ThreadpoolListener::|<UNKNOWN>|BUFFER_FLUSH)")
    kind = pl.col("kind").cast(pl.String)
    return pl.when((kind == "other") & (pl.col("role") == "thread") & ~noise).then(pl.lit("annotation")).otherwise(kind)


def assign_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spans with their step: by the profiler's group, the steps of the device, the call that launched or handed over, else by time."""
    steps = steps.sort("start_ns")
    index = _steps_by_group(spans, _steps_by_device(spans, steps, steps_by_handover(spans, steps)))
    return spans.with_columns(step=numbers_of(steps, index))


def _steps_by_device(spans: pl.DataFrame, steps: pl.DataFrame, index: Ints) -> Ints:
    """A TPU draws its steps on a separate line; they run later than those of the host, under the same numbers."""
    drawn = spans.filter(pl.col("role") == "steps").with_columns(step=_NUMBER)
    drawn = drawn.join(steps.select(pl.col("step").cast(pl.Int64)).with_row_index("index"), on="step").sort("start_ns")
    index, start, plane = index.copy(), spans["start_ns"].to_numpy(), spans["plane"].to_numpy()
    for (number,), ranges in drawn.group_by("plane"):
        rows = np.flatnonzero(plane == number)
        at = intervals.enclosing(ranges["start_ns"].to_numpy(), (ranges["start_ns"] + ranges["dur_ns"]).to_numpy(), start[rows])
        index[rows[at >= 0]] = ranges["index"].to_numpy()[at[at >= 0]]
    return index


def _steps_by_group(spans: pl.DataFrame, index: Ints) -> Ints:
    if spans["group_id"].null_count() == spans.height:
        return index
    groups = (
        spans.with_columns(index=pl.Series(index))
        .filter((pl.col("kind") == "step") & pl.col("group_id").is_not_null() & (pl.col("index") >= 0))
        .unique("group_id", keep="first", maintain_order=True)
        .select("group_id", group_index="index")
    )
    by_group = spans.select("group_id").join(groups, on="group_id", how="left", maintain_order="left")["group_index"]
    return np.where(by_group.is_not_null().to_numpy(), by_group.fill_null(-1).to_numpy(), index)


def allocation_table(memory: pl.DataFrame) -> pl.DataFrame:
    """Each allocation with the release that follows it at the same address."""
    rows = _add_devices(memory).filter(pl.col("address").is_not_null()).sort("at_ns", maintain_order=True)
    return pair_releases(rows, ["allocator", "address"]).select(
        *("device", "owner", "number"),
        "bytes",
        "shape",
        "category",
        "alloc_ns",
        "free_ns",
        address=pl.col("address").cast(pl.UInt64, strict=False),
        op=pl.when(~pl.col("freed")).then("op"),
        dtype=pl.col("type").replace_strict(_TYPES, default=None, return_dtype=pl.String),
    )


def memory_counters(memory: pl.DataFrame) -> pl.DataFrame:
    return memory_samples(_add_devices(memory).sort("at_ns", maintain_order=True), "allocated")


# TensorFlow's numbers of its data types.
_TYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip


def _add_devices(memory: pl.DataFrame) -> pl.DataFrame:
    """`GPU_0_bfc` allocates on gpu 0; an allocator without a device in its name is shown as a device."""
    number = pl.col("allocator").str.extract(r"^GPU_([0-9]{1,9})_bfc$").cast(pl.Int64)
    gpu = pl.when(number.is_not_null()).then(pl.lit("gpu"))
    host = pl.when(pl.col("allocator").str.contains(r"^(mkl)?cpu(_bfc)?$")).then(pl.lit("cpu"))
    rows = memory.with_columns(
        freed=pl.col("name").cast(pl.String) == "MemoryDeallocation",
        owner=pl.coalesce(gpu, host, "allocator", pl.lit("unknown")),
        number=number,
    )
    return rows.with_columns(device=OWNER)
