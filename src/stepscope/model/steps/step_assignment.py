"""The step of each span: by its start, by the call that launched it, or by the thread that handed it over.

Readers and `step_choice` use the same rules. Spans are the rows of one rank, and `flow_in` and `parent` are row numbers in them.
"""

import numpy as np
import polars as pl

from stepscope.model import intervals
from stepscope.model.intervals import Bools, Ints

NO_MARKERS = "no step markers"  # first words of the row of `problems` where steps were not marked by the framework
DEVICE_WORK = ["kernel", "copy", "set", "communication"]
# Spans of XLA's thread pools around work that another thread handed over.
REGIONS = ("ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion")
_HANDS = 4  # work goes from the caller to a dispatcher to a pool and its helpers


def number_steps(ranges: pl.DataFrame, how: str) -> pl.DataFrame:
    """Ranges as steps: with the numbers in their names where all have one, else counted from 0."""
    ranges = ranges.sort("start_ns")
    number = ranges["name"].str.extract(r"([0-9]+)\D*$").cast(pl.Int32, strict=False)
    numbered = how != "whole" and number.null_count() == 0 and number.is_unique().all()
    return ranges.select(
        step=number if numbered else pl.int_range(pl.len(), dtype=pl.Int32),
        start_ns="start_ns",
        end_ns="end_ns",
        how=pl.lit(how),
        phase=pl.lit(None, dtype=pl.String),
    )


def steps_by_time(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """The step of each span by its start, on devices too: for steps that were recorded on the device."""
    return numbers_of(steps, _by_time(spans, steps))


def steps_by_launch(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """The step of each span: by its start on the host, by its launch on a device."""
    index = _by_time(spans, steps)
    flow_in = spans["flow_in"].fill_null(-1).to_numpy()
    launched = spans.select(pl.col("kind").is_in(DEVICE_WORK)).to_series().to_numpy() & (flow_in >= 0)
    return numbers_of(steps, np.where(launched, index[flow_in], index))


def steps_on_device(spans: pl.DataFrame, steps: pl.DataFrame, ranges: pl.DataFrame, work: pl.Expr) -> tuple[pl.DataFrame, pl.Series]:
    """Steps with their time on the device, and the step of each span, for a source that also has ranges of steps on the device.

    `ranges` are these ranges (step, start_ns, end_ns), `work` selects device work. A device runs behind its host: there, a step lasts
    until its last work ends, and then the next one starts. The work of a step was launched by the host during the step or, where the
    launch is not known, runs within the ranges. Kineto's ranges alone do not cover a step: they contain only work that the thread of the
    marker launched outside of other ranges, and so neither the backward pass nor the optimizer.
    """
    numbers = steps_by_launch(spans, steps)
    at = spans.select(work.arg_true()).to_series()
    rows = spans[at].select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), lost=pl.col("flow_in").is_null())
    rows = rows.with_columns(numbers.gather(at).alias("step"))
    launched = pl.concat([rows.filter(~pl.col("lost")).select("step", "start_ns", "end_ns"), ranges.select("step", "start_ns", "end_ns")])
    extents = launched.group_by("step").agg(first=pl.col("start_ns").min(), finish=pl.col("end_ns").max())
    extents = steps.select(pl.col("step").cast(pl.Int32), "start_ns", "end_ns").join(extents, on="step", how="left", maintain_order="left")
    # Work without a launch belongs to the step during which it runs, or to none: a step before the recording may have launched it.
    known = extents.filter(pl.col("first").is_not_null()).with_columns(low=pl.max_horizontal("first", pl.col("finish").cum_max().shift(1)))
    within = intervals.enclosing(known["low"].to_numpy(), known["finish"].to_numpy(), rows["start_ns"].to_numpy())
    rows = rows.with_columns(step=pl.when("lost").then(numbers_of(known, within)).otherwise("step"))
    others = rows.filter(pl.col("step").is_null()).sort("start_ns")
    extents = extents.with_columns(
        _last_before(others["start_ns"].to_numpy(), others["end_ns"].cum_max(), extents["first"]).alias("others_end"),
        device_end_ns=pl.max_horizontal("end_ns", "finish").cum_max(),
    )
    free = pl.when(pl.col("others_end").is_not_null()).then(pl.min_horizontal("others_end", "first"))
    windows = extents.select("device_end_ns", device_start_ns=pl.max_horizontal("start_ns", pl.col("device_end_ns").shift(1), free))
    return steps.with_columns(windows), numbers.scatter(at.filter(rows["lost"]), rows.filter("lost")["step"])


def _last_before(starts: Ints, values: pl.Series, at: pl.Series) -> pl.Series:
    """The value at the last start before each timestamp, null for none."""
    place = np.searchsorted(starts, at.fill_null(0).to_numpy(), "left") - 1
    return values.gather(pl.Series(place).set(pl.Series(place < 0) | at.is_null(), None))


def steps_by_handover(spans: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """The row in `steps` of each span, -1 for none: that of the call that launched it or handed it to another thread, else by time.

    `spans.region` marks the spans that begin or end a region of handed-over work. Steps are sorted by start.
    """
    by_time = _by_time(spans, steps)
    flow_in, parent, track = (spans[name].fill_null(-1).to_numpy() for name in ("flow_in", "parent", "track"))
    handed = (flow_in >= 0) & (track[flow_in] != track)
    root = nearest_around(handed, parent, np.arange(spans.height))
    root = np.where(root >= 0, root, _region(spans, handed))
    cause = np.where(root >= 0, flow_in[root], -1)
    index = by_time
    for _ in range(_HANDS):
        index = np.where((cause >= 0) & (index[cause] >= 0), index[cause], by_time)
    return index


def numbers_of(steps: pl.DataFrame, index: Ints) -> pl.Series:
    """The numbers of the steps at these rows, null for -1."""
    if steps.height == 0:
        return pl.Series("step", [None] * len(index), dtype=pl.Int32)
    return steps["step"].cast(pl.Int32).gather(np.maximum(index, 0)).set(pl.Series(index < 0), None)


def with_passes(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Steps with the start of the forward and the end of the backward pass, which XLA's frameworks write into the names of operations.

    JAX: jvp(...) and transpose(jvp(...)); TensorFlow: LAYER/... and gradient_tape/LAYER/...
    """
    work = spans.filter(pl.col("kind").is_in(["op", "kernel"]) & pl.col("category").is_not_null() & pl.col("step").is_not_null())
    path = pl.col("category").cast(pl.String)
    called = r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)*"  # a function that another calls
    taped = path.str.extract(called + r"(?:gradient_tape|gradients)/([^/:]+)")
    layers = work.select(taped.drop_nulls().unique()).to_series()
    backward = path.str.contains("transpose(", literal=True) | taped.is_not_null()
    forward = path.str.contains("jvp(", literal=True) | path.str.extract(called + r"([^/:]+)").is_in(layers.implode())
    passes = work.group_by("step").agg(
        fp_start_ns=pl.col("start_ns").filter(forward & ~backward).min(),
        bp_end_ns=(pl.col("start_ns") + pl.col("dur_ns")).filter(backward).max(),
    )
    joined = steps.with_columns(pl.col("step").cast(pl.Int32)).join(passes, on="step", how="left", maintain_order="left")
    inside = (
        (pl.col("fp_start_ns") >= pl.col("start_ns"))
        & (pl.col("bp_end_ns") <= pl.col("end_ns"))
        & (pl.col("fp_start_ns") <= pl.col("bp_end_ns"))
    )
    return joined.with_columns(pl.when(inside).then(column).alias(column) for column in ("fp_start_ns", "bp_end_ns"))


def nearest_around(wanted: Bools, parent: Ints, rows: Ints) -> Ints:
    """For each row, itself or the nearest span around it that is wanted; -1 for none."""
    none = len(parent)
    to = np.append(np.where(wanted, np.arange(none), np.where(parent < 0, none, parent)), none)
    while True:
        further = to[to]
        if (further == to).all():
            break
        to = further
    nearest = to[rows]
    return np.where(nearest == none, -1, nearest)


def _by_time(spans: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    return intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), spans["start_ns"].to_numpy())


def _region(spans: pl.DataFrame, handed: Bools) -> Ints:
    """The marker that began the region of handed-over work that a span runs in; -1 for none. The marker of an end has no hand-over."""
    marks = spans.filter("region").select("track", "start_ns", mark="span").sort("start_ns", maintain_order=True)
    if marks.height == 0:
        return np.full(spans.height, -1, np.int64)
    order = spans.select("span", "track", "start_ns").sort("start_ns", maintain_order=True)
    mark = order.join_asof(marks, on="start_ns", by="track", check_sortedness=False).sort("span")["mark"].fill_null(-1).to_numpy()
    return np.where((mark >= 0) & handed[mark], mark, -1)
