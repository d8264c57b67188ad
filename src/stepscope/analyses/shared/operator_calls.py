"""Host operators with the device work that they launch, and device work with the operators behind it."""

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.model.intervals import Bools, Ints
from stepscope.model.memo import memoized
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace


def on_devices(trace: Trace) -> pl.LazyFrame:
    """All device work, with the columns of `spans`, `device` (gpu, aicore, ...), its `number` and its `stream`."""
    tracks = trace.tracks.select("rank", "track", track_kind=pl.col("kind").cast(pl.String), number="device", stream="tid")
    kinds = trace.devices.select("rank", number="device", device=pl.col("kind").cast(pl.String))
    kinds = kinds.sort(pl.col("device") == "cpu", maintain_order=True).unique(["rank", "number"], keep="first")
    # A transfer over gloo or MPI runs on a host thread.
    on_host = (pl.col("kind") == "communication") & ~pl.col("track_kind").is_in(["stream", "communication"])
    work: pl.LazyFrame = (
        trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK))
        .join(tracks, on=["rank", "track"], how="left")
        .filter(~on_host.fill_null(False))
        .join(kinds, on=["rank", "number"], how="left")
        .with_columns(pl.col("device").fill_null("gpu"))
        .with_columns(device=pl.when(_on_ai_cpu()).then(pl.lit("aicpu")).otherwise("device"))
    )
    return work


def in_recorded_steps(trace: Trace, work: pl.LazyFrame) -> pl.LazyFrame:
    """Device work without steps that lost some of theirs, on ranks that also have complete steps.

    Otherwise transfers of all steps would be compared with the kernels of a few.
    """
    covered = coverage(trace)
    ranks = [rank for rank, data in covered.launched.items() if data == "partial"]
    incomplete = covered.steps.filter(pl.col("rank").is_in(ranks) & ~pl.col("launched")).select("rank", "step")
    return work.join(incomplete.lazy(), on=["rank", "step"], how="anti") if ranks else work


def with_device_steps(trace: Trace, rows: pl.DataFrame, on_device: pl.Expr, *shares: str) -> pl.DataFrame:
    """Rows of device work with `device_steps`, the number of steps that they cover; if it is 0, shares are unknown."""
    covered = coverage(trace)
    counts = covered.steps.group_by("rank").agg(device_steps=pl.col("launched").sum().cast(pl.Int64))
    on_device = on_device & pl.col("rank").is_in([rank for rank, data in covered.launched.items() if data not in ("host", None)])
    known = ~on_device | (pl.col("device_steps").fill_null(1) > 0)
    return (
        rows.join(counts, on="rank", how="left", maintain_order="left")
        .with_columns(device_steps=pl.when(on_device).then("device_steps"))
        .with_columns(pl.when(known).then(name).alias(name) for name in shares)
    )


def _on_ai_cpu() -> pl.Expr:
    """An Ascend chip has two kinds of processors behind the same streams; the task type shows which one ran the task."""
    return (pl.col("device") == "aicore") & pl.col("category").cast(pl.String).str.contains("AI_?CPU").fill_null(False)


def with_shapes(trace: Trace, work: pl.LazyFrame) -> pl.LazyFrame:
    """Device work with the shapes and types of the operator that launched it, or its own if recorded, and `call`.

    `call` is that operator, if the work is named after it. Ascend names work after the operator that the chip runs, and an operator of the
    framework may launch several: there each span is a call.
    """
    operators = trace.spans.filter(pl.col("kind") == "op").select("rank", op_shapes="shapes", op_dtypes="dtypes", op_name="name", op="span")
    return work.join(operators, on=["rank", "op"], how="left").with_columns(
        *(pl.coalesce(pl.col(f"op_{name}").cast(pl.String), pl.col(name).cast(pl.String)).alias(name) for name in ("shapes", "dtypes")),
        call=pl.when(pl.col("op_name").cast(pl.String) == pl.col("op_type").cast(pl.String)).then("op"),
    )


def calls_of_operators(trace: Trace, work: pl.DataFrame) -> Ints:
    """`call` of `with_shapes`, as the row of the operator among all of the trace; -1 where it is null."""
    ops = trace.spans.filter(pl.col("kind") == "op").select("rank", "span", "name").collect()
    if ops.is_empty():
        return np.full(work.height, -1, np.int64)
    row = rows_of(ops, work["rank"], work["op"])
    launched = ops["name"].gather(np.maximum(row, 0)).to_frame("name").with_columns(type=work["op_type"])
    same = launched.select((pl.col("name") == pl.col("type")).fill_null(value=False)).to_series().to_numpy()
    return np.where(same, row, -1)


def launcher() -> pl.Expr:
    """The name of the operator that launched a span of device work, or its own if the operator is unknown."""
    return pl.when(pl.col("op").is_not_null()).then(pl.col("op_type")).otherwise(pl.col("name")).cast(pl.String)


CALL = ["rank", "device", "name", "type", "scope", "call"]  # the same for all device work of one call of an operator


def calls_of_work(work: pl.LazyFrame, *sums: pl.Expr) -> pl.LazyFrame:
    """Device work as calls of the operators that launched it, with these sums; other work is a call by itself.

    An operator may launch several kernels, copies and fills: its time on the device is the time of all of them.
    """
    launched = pl.col("call").is_not_null()
    of_operators = work.filter(launched).group_by(CALL).agg(pl.col("shapes", "dtypes").drop_nulls().first(), *sums)
    columns = of_operators.collect_schema().names()
    return pl.concat([of_operators, work.filter(~launched).select(columns)])


def host_operators(trace: Trace, *columns: str) -> pl.DataFrame:
    """Every host operator with these columns of `spans`, and

    - `outer`: the row of the operator around it, -1 for none; other spans in between (Python frames, annotations) are skipped;
    - `self_ns`: its duration less that of the operators directly inside it;
    - `device_ns`: the duration of the device work launched by it or by operators inside it, and `launches`: the number of these spans.
    """
    return pl.concat([host_self_times(trace, *columns), _launched(trace)], how="horizontal")


def host_self_times(trace: Trace, *columns: str) -> pl.DataFrame:
    """`host_operators` without `device_ns` and `launches`."""
    ops = trace.spans.filter(pl.col("kind") == "op").select("rank", "span", "start_ns", "dur_ns", *columns)
    return pl.concat([ops.collect(), _nesting(trace)], how="horizontal")


@memoized
def _nesting(trace: Trace) -> pl.DataFrame:
    """The columns outer and self_ns of `host_operators`."""
    host = (
        trace.spans.filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .select("rank", "span", "parent", "depth", "start_ns", "dur_ns", is_op=pl.col("kind") == "op")
        .collect()
    )
    is_op = host["is_op"].to_numpy()
    rows = np.flatnonzero(is_op)
    outer = nearest(enclosing_rows(host), is_op)[rows]
    place = np.cumsum(is_op) - 1  # of a row, among the operators
    outer = np.where(outer < 0, -1, place[outer])
    start = host["start_ns"].to_numpy()[rows]
    end = start + host["dur_ns"].to_numpy()[rows]
    child = np.flatnonzero(outer >= 0)
    parent = outer[child]
    inside = _sums(parent, np.maximum(np.minimum(end[child], end[parent]) - start[child], 0), len(rows))
    return pl.DataFrame({"outer": outer, "self_ns": end - start - inside}, {"outer": pl.Int64, "self_ns": pl.Int64})


@memoized
def _launched(trace: Trace) -> pl.DataFrame:
    """The columns device_ns and launches of `host_operators`."""
    outer = _nesting(trace)["outer"].to_numpy()
    ops = trace.spans.filter(pl.col("kind") == "op").select("rank", "span").collect()
    work = on_devices(trace).filter(pl.col("op").is_not_null()).select("rank", "op", "dur_ns").collect()
    launcher = rows_of(ops, work["rank"], work["op"])
    return pl.DataFrame(
        {
            "device_ns": upward(outer, launcher, work["dur_ns"].to_numpy()),
            "launches": upward(outer, launcher, np.ones(work.height, np.int64)),
        },
        {"device_ns": pl.Int64, "launches": pl.Int64},
    )


def _sums(at: Ints, amounts: Ints, count: int) -> Ints:
    """The sum of the amounts at each of `count` places."""
    total = np.zeros(count, np.int64)
    np.add.at(total, at, amounts)
    return total


def upward(outer: Ints, at: Ints, amount: Ints) -> Ints:
    """Amounts of rows (-1: of none), summed into these rows and every row around them."""
    total = np.zeros(len(outer), np.int64)
    while (known := at >= 0).any():
        at, amount = at[known], amount[known]
        np.add.at(total, at, amount)
        at = outer[at]
    return total


def nearest(parent: Ints, marked: Bools) -> Ints:
    """For each row, the closest marked row around it, -1 for none."""
    none = len(parent)
    up = np.append(np.where(parent < 0, none, parent), none)
    stop = np.append(marked, True)
    to = np.where(stop, np.arange(none + 1), up)
    while not stop[to].all():
        to = to[to]  # each pass doubles the distance
    above = to[up[:-1]]
    return np.where(above == none, -1, above)


_SPARSE, _FEW = 64, 1 << 20


def enclosing_rows(frame: pl.DataFrame) -> Ints:
    """The row of `frame` that is the parent of each row, -1 where there is none. Needs rank, span, parent and depth.

    A parent that is not less deep is damage: following such parents may never end.
    """
    row = rows_of(frame, frame["rank"], frame["parent"])
    depth = frame["depth"].fill_null(0).to_numpy()
    return np.where((row >= 0) & (np.append(depth, 0)[row] < depth), row, -1)


def rows_of(frame: pl.DataFrame, rank: pl.Series, span: pl.Series) -> Ints:
    """The row of `frame` that is (rank, span), -1 where there is none."""
    ranks = frame["rank"].unique().sort().to_numpy()
    width = int(frame["span"].to_numpy().max(initial=0)) + 1
    if len(ranks) * width > _SPARSE * frame.height + _FEW:  # the numbers are not consecutive
        keys = frame.select("rank", "span", row=pl.int_range(pl.len(), dtype=pl.Int64)).unique(["rank", "span"], keep="last")
        wanted = pl.DataFrame({"rank": rank, "span": span.cast(pl.Int64)})
        return wanted.join(keys, on=["rank", "span"], how="left", maintain_order="left")["row"].fill_null(-1).to_numpy()
    row = np.full(len(ranks) * width + 1, -1, np.int64)
    row[_offsets(frame["rank"].to_numpy(), ranks, width) + frame["span"].to_numpy()] = np.arange(frame.height)
    ids, offset = span.fill_null(-1).to_numpy(), _offsets(rank.to_numpy(), ranks, width)
    return row[np.where((ids >= 0) & (ids < width) & (offset >= 0), offset + ids, -1)]


def _offsets(rank: Ints, ranks: Ints, width: int) -> Ints:
    """The place of each rank among the sorted `ranks`, times the width; negative for another rank."""
    if len(ranks) == 0 or len(rank) == 0:
        return np.full(len(rank), -1, np.int64)
    low, high = int(ranks[0]), int(ranks[-1])
    if high - low > _FEW:
        at = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
        return np.where(ranks[at] == rank, at * width, -1)
    offsets = np.full(high - low + 3, -1, np.int64)  # at both ends for smaller and larger ranks
    offsets[ranks - low + 1] = np.arange(len(ranks)) * width
    return offsets[np.clip(rank, low - 1, high + 1) - low + 1]
