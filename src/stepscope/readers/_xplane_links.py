"""What belongs together in an XPlane file: launches and kernels, work handed to other threads, steps, allocations and their ends."""

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.intervals import Ints
from stepscope.readers import _kineto
from stepscope.step_assignment import nearest_around, numbers_of, steps_by_handover

_ON_DEVICE = ["stream", "ops", "async"]


def apart(spans: pl.DataFrame, tracks: list[dict[str, object]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The step markers of threads on tracks of their own: they need not nest with the Python frames that open and close them."""
    marks = (pl.col("kind") == "step") & (pl.col("role") == "thread")
    lanes = pl.DataFrame(tracks, infer_schema_length=None).with_columns(sort=2 * pl.int_range(pl.len(), dtype=pl.Int64))
    marked = spans.filter(marks)["track"].unique().sort()
    beside = lanes.filter(pl.col("track").is_in(marked.to_list())).with_columns(
        pl.col("sort") - 1,
        track=pl.int_range(pl.len(), dtype=pl.Int64) + lanes.height,
        label=pl.format("{} annotations", "label"),
        kind=pl.lit("annotation"),
    )
    new = dict(zip(marked.to_list(), beside["track"].to_list(), strict=True))
    moved = pl.col("track").replace_strict(new, default=pl.col("track"), return_dtype=pl.Int32)
    ordered = pl.concat([lanes, beside]).sort("sort")
    return spans.with_columns(track=pl.when(marks).then(moved).otherwise("track")), ordered.with_columns(sort=pl.int_range(pl.len()))


def nested(spans: pl.DataFrame) -> pl.DataFrame:
    """Depth, parent and self time. What overlaps on a stream or in the background stands a level deeper, but is no part of the other."""
    apart = spans["role"].cast(pl.String).is_in(["stream", "async"]).to_numpy()
    start, duration = spans["start_ns"].to_numpy(), spans["dur_ns"].to_numpy()
    nesting = intervals.nest(spans["track"].to_numpy().astype(np.int64), start, start + duration)
    return spans.with_columns(
        pl.Series("span", np.arange(spans.height)),
        pl.Series("depth", nesting.depth.astype(np.int32)),
        _or_null("parent", np.where(apart, -1, nesting.parent)),
        pl.Series("self_ns", np.where(apart, duration, nesting.self_time)),
    )


def linked(spans: pl.DataFrame) -> pl.DataFrame:
    """What caused what: a kernel its launch call, work on a thread the call that handed it over; and the operation of a launch."""
    flow_in = _handed_over(spans)
    device = spans.filter(pl.col("role").is_in(_ON_DEVICE) & pl.col("correlation").is_not_null()).select("span", "correlation")
    calls = spans.filter((pl.col("role") == "thread") & pl.col("correlation").is_not_null()).select("correlation", cause="span")
    launched = device.join(calls.unique("correlation", keep="first", maintain_order=True), on="correlation")
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    op = np.full(spans.height, -1, np.int64)
    is_op, parent = (spans["kind"] == "op").to_numpy(), spans["parent"].fill_null(-1).to_numpy()
    op[launched["span"].to_numpy()] = nearest_around(is_op, parent, launched["cause"].to_numpy())
    of_op = pl.Series(np.maximum(op, 0)), pl.Series(op >= 0)
    inherited = (pl.coalesce(column, pl.when(of_op[1]).then(spans[column].gather(of_op[0]))) for column in ("op_type", "scope", "category"))
    return spans.with_columns(_or_null("flow_in", flow_in), _or_null("op", op), *inherited)


def _handed_over(spans: pl.DataFrame) -> Ints:
    """For each span that consumes something, the last one before it that produced it; -1 for none."""
    flow_in = np.full(spans.height, -1, np.int64)
    produced = spans.filter(pl.col("produces").is_not_null()).select("start_ns", type="produces_type", item="produces", cause="span")
    consumed = spans.filter(pl.col("consumes").is_not_null()).select("start_ns", "span", type="consumes_type", item="consumes")
    if produced.height and consumed.height:
        found = consumed.sort("start_ns").join_asof(produced.sort("start_ns"), on="start_ns", by=["type", "item"], check_sortedness=False)
        found = found.filter(pl.col("cause").is_not_null() & (pl.col("cause") != pl.col("span")))
        flow_in[found["span"].to_numpy()] = found["cause"].to_numpy()
    return flow_in


def unshared(spans: pl.DataFrame) -> pl.DataFrame:
    """Forget the scope of kernels that several instructions share.

    In a CUDA graph a kernel is known by its name only, and XLA compiles alike instructions to one kernel. One that ran more often than
    the rarest of its program belongs to several of them, or to a loop.
    """
    if not spans["shared"].any():
        return spans
    calls = spans.filter("shared").group_by("program", "name").len()
    unique = calls.filter(pl.col("len") == pl.col("len").min().over("program")).select("program", "name", own=True)
    own = spans.select("program", "name").join(unique, on=["program", "name"], how="left", maintain_order="left")["own"].fill_null(False)
    keep = ~pl.col("shared") | own
    return spans.with_columns(pl.when(keep).then(column).alias(column) for column in ("scope", "category"))


def steps(spans: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The steps, and remarks where they are not the framework's own."""
    marks = spans.filter((pl.col("kind") == "step") & (pl.col("role") == "thread"))
    number = pl.col("step_num")
    if marks.height == 0:
        # A TPU numbers its steps itself, each core on a line of its own.
        marks = spans.filter(pl.col("role") == "steps")
        marks = marks.filter(pl.col("track") == pl.col("track").min())
        number = _NUMBER
    if marks.height == 0:
        ranges = spans.with_columns(kind=_kind_as_range())
        found, remark = _kineto.steps_of(ranges)
        return found, [remark.what] if remark else []
    marks = _innermost(marks.sort("start_ns"))
    numbered = marks.select(step=number, model="name", start_ns="start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    remarks = []
    own = numbered["step"].null_count() == 0 and numbered["step"].is_unique().all() and numbered["step"].is_between(0, 2**31 - 1).all()
    if not own:
        numbered = numbered.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int64))
        remarks.append("the step markers repeat their numbers: steps are counted from 0")
    phase = pl.col("model").cast(pl.String).str.to_lowercase()
    return numbered.with_columns(
        how=pl.lit("marker"),
        phase=pl.when(phase.str.contains("train"))
        .then(pl.lit("train"))
        .when(phase.str.contains("eval|test|valid|infer|predict"))
        .then(pl.lit("infer")),
    ), remarks


_NUMBER = pl.coalesce("step_num", pl.col("name").cast(pl.String).str.extract(r"(\d+)$").cast(pl.Int64, strict=False))


def _innermost(marks: pl.DataFrame) -> pl.DataFrame:
    """Step markers without those that hold others: an epoch is not a step."""
    start = marks["start_ns"].to_numpy()
    end = start + marks["dur_ns"].to_numpy()
    parent = intervals.nest(np.zeros(len(start), np.int64), start, end).parent
    inner = np.flatnonzero(parent >= 0)
    inner = inner[end[inner] <= end[parent[inner]]]
    keep = np.ones(len(start), np.bool_)
    keep[parent[inner]] = False
    return marks.filter(keep)


def _kind_as_range() -> pl.Expr:
    """For lack of markers any range on a host thread may mark a step; the profiler cannot tell the user's from the runtime's."""
    noise = pl.col("name").cast(pl.String).str.contains(r"^(end: |ThreadpoolListener::|<UNKNOWN>|BUFFER_FLUSH)")
    word = pl.col("kind").cast(pl.String)
    return pl.when((word == "other") & (pl.col("role") == "thread") & ~noise).then(pl.lit("annotation")).otherwise(word)


def stepped(spans: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The step of each span: of its group where the profiler grouped them, of the device's own steps, of the call that launched it or
    handed it over, else by time."""
    found = found.sort("start_ns")
    index = _by_group(spans, _by_device(spans, found, steps_by_handover(spans, found)))
    return spans.with_columns(step=numbers_of(found, index))


def _by_device(spans: pl.DataFrame, found: pl.DataFrame, index: Ints) -> Ints:
    """A TPU draws its steps on a line beside its operations; they run later than the host's, under the same numbers."""
    own = spans.filter(pl.col("role") == "steps").with_columns(step=_NUMBER)
    own = own.join(found.select(pl.col("step").cast(pl.Int64)).with_row_index("index"), on="step").sort("start_ns")
    index, start, plane = index.copy(), spans["start_ns"].to_numpy(), spans["plane"].to_numpy()
    for (number,), steps in own.group_by("plane"):
        rows = np.flatnonzero(plane == number)
        at = intervals.enclosing(steps["start_ns"].to_numpy(), (steps["start_ns"] + steps["dur_ns"]).to_numpy(), start[rows])
        index[rows[at >= 0]] = steps["index"].to_numpy()[at[at >= 0]]
    return index


def _by_group(spans: pl.DataFrame, index: Ints) -> Ints:
    if spans["group_id"].null_count() == spans.height:
        return index
    groups = (
        spans.with_columns(index=pl.Series(index))
        .filter((pl.col("kind") == "step") & pl.col("group_id").is_not_null() & (pl.col("index") >= 0))
        .unique("group_id", keep="first", maintain_order=True)
        .select("group_id", of_group="index")
    )
    said = spans.select("group_id").join(groups, on="group_id", how="left", maintain_order="left")["of_group"]
    return np.where(said.is_not_null().to_numpy(), said.fill_null(-1).to_numpy(), index)


def allocations(memory: pl.DataFrame) -> pl.DataFrame:
    """Each allocation with the release that follows it at the same address."""
    rows = _of_devices(memory).sort("at_ns", maintain_order=True)
    block, freed = ["allocator", "address"], pl.col("freed")
    following = pl.when(freed.shift(-1).over(block)).then(pl.col("at_ns").shift(-1).over(block))
    orphan = freed & ~(~freed).shift(1, fill_value=False).over(block)
    return (
        rows.filter(pl.col("address").is_not_null())
        .select(
            "device",
            "bytes",
            "shape",
            "category",
            address=pl.col("address").cast(pl.UInt64, strict=False),
            alloc_ns=pl.when(~freed).then("at_ns"),
            free_ns=pl.when(freed).then("at_ns").otherwise(following),
            op=pl.when(~freed).then("op"),
            dtype=pl.col("type").replace_strict(_TYPES, default=None, return_dtype=pl.String),
            kept=~freed | orphan,
        )
        .filter("kept")
        .drop("kept")
        .sort(pl.coalesce("alloc_ns", "free_ns"), maintain_order=True)
    )


def memory_counters(memory: pl.DataFrame) -> pl.DataFrame:
    return (
        _of_devices(memory)
        .filter(pl.col("allocated").is_not_null())
        .sort("at_ns", maintain_order=True)
        .select(
            name=pl.format("allocated {}", "device").cast(pl.Categorical),
            at_ns="at_ns",
            value=pl.col("allocated").cast(pl.Float64),
            unit=pl.lit("bytes"),
        )
    )


# TensorFlow's numbers of its data types.
_TYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip


def _of_devices(memory: pl.DataFrame) -> pl.DataFrame:
    """`GPU_0_bfc` serves gpu 0; an allocator that names no device stands for itself."""
    number = pl.col("allocator").str.extract(r"^GPU_(\d+)_bfc$")
    named = pl.when(number.is_not_null()).then(pl.format("gpu {}", number))
    host = pl.when(pl.col("allocator").str.contains(r"^(mkl)?cpu(_bfc)?$")).then(pl.lit("cpu"))
    return memory.with_columns(
        freed=pl.col("name").cast(pl.String) == "MemoryDeallocation", device=pl.coalesce(named, host, "allocator", pl.lit("unknown"))
    )


def _or_null(name: str, rows: Ints) -> pl.Series:
    return pl.Series(name, rows).set(pl.Series(rows < 0), None)
