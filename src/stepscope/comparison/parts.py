"""Parts of each step: every nanosecond belongs to one operator, transfer, copy, or idle gap."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import cut, device_work
from stepscope.analyses.shared.operator_calls import host_operators
from stepscope.analyses.shared.steps.coverage import complete_steps, coverage
from stepscope.analyses.shared.steps.host_phases import host_spans, main_threads, role_times, roles
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.steps.gaps import gaps
from stepscope.comparison import names
from stepscope.model import intervals
from stepscope.model.devices.families import family
from stepscope.model.intervals import Ints, Set
from stepscope.model.trace import Trace

# Parts of a step, in the order in which they hide each other: a copy during computation costs no time.
COMPUTE, COMMUNICATION, COPY = "compute", "exposed communication", "copy"
IDLE = {
    "host-bound": "idle: host-bound",
    "data wait": "idle: input",
    "sync": "idle: synchronization",
    "communication": "idle: communication",
    "launch latency": "idle: launch latency",
    "unknown": "idle: unknown cause",
}
HOST_GAPS = "host outside operators"  # of a rank without a device
LABELS = ["operator", "family", "kernel", "scope", "phase", "shapes"]
SCHEMA = {"rank": pl.Int32, "step": pl.Int32, "part": pl.String, **dict.fromkeys(LABELS, pl.String)}
COLUMNS = SCHEMA | {
    "step_ns": pl.Float64,  # of the time of the step: nothing is counted twice
    "total_ns": pl.Float64,  # the sum of the durations, as on the page of operators
    "calls": pl.Float64,
}


class _Work(NamedTuple):
    """Labeled intervals that do not overlap."""

    start: Ints
    end: Ints
    row: Ints  # of the table with the labels


def step_parts(trace: Trace) -> pl.DataFrame:
    """Per rank, step, part and labels: the time of completely recorded steps; the parts of a step add up to its time on the device."""
    steps = device_steps(trace).join(complete_steps(trace), on=["rank", "step"], how="semi", maintain_order="left")
    data = coverage(trace).data
    tables = [pl.DataFrame(schema=COLUMNS)]
    idle = gaps(trace).partition_by("rank", "device", as_dict=True)
    for work in (_device_rows(trace), _host_rows(trace, [rank for rank, recorded in data.items() if recorded == "host"])):
        for (rank,), rows in work.group_by("rank", maintain_order=True):
            of_rank = steps.filter(pl.col("rank") == rank)
            if of_rank.height:
                devices = rows["device"].unique().sort().to_list()
                parts = [_of_device(trace, rows.filter(pl.col("device").eq_missing(n)), of_rank, idle.get((rank, n))) for n in devices]
                shared = [part.with_columns(pl.col("step_ns") / len(devices)) for part in parts]
                tables.append(pl.concat(shared).select(pl.lit(rank, pl.Int32).alias("rank"), *list(COLUMNS)[1:]))
    summed = pl.concat(tables).group_by(list(SCHEMA), maintain_order=True).agg(pl.col("step_ns", "total_ns", "calls").sum())
    return summed.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _of_device(trace: Trace, rows: pl.DataFrame, steps: pl.DataFrame, idle: pl.DataFrame | None) -> pl.DataFrame:
    """The parts of the steps of one device, or of a rank without a device."""
    on_host = bool(rows["on_host"].first())
    busy, tables = intervals.NONE, []
    for part, kinds in ((COMPUTE, ["kernel", "op"]), (COMMUNICATION, ["communication"]), (COPY, ["copy", "set"])):
        selected = rows.filter(pl.col("kind").is_in(kinds))
        pieces = _innermost(trace, selected) if part == COMPUTE and on_host else _first_started(selected)
        pieces = _outside(pieces, busy)
        busy = intervals.join(busy, intervals.merge(pieces.start, pieces.end))
        tables += [_labeled(pieces, selected, steps, part), _totals(selected, part)]
    if idle is not None and idle.height:
        left = _outside(_Work(idle["start_ns"].to_numpy(), (idle["start_ns"] + idle["dur_ns"]).to_numpy(), np.arange(idle.height)), busy)
        part_of = dict.fromkeys(("host-bound", "unknown", "sync", "launch latency"), HOST_GAPS) if on_host else {}
        cause = pl.col("cause").replace_strict({**IDLE, **part_of}, default=IDLE["unknown"])
        operator = pl.col("host_activity").fill_null("")
        labels = idle.select(part=cause, operator=operator, **{name: pl.lit(None, pl.String) for name in LABELS[1:]})
        tables.append(_labeled(left, labels, steps, None))
    return pl.concat(tables)


def _labeled(pieces: _Work, rows: pl.DataFrame, steps: pl.DataFrame, part: str | None) -> pl.DataFrame:
    """The labels and the time of disjoint pieces in each step."""
    order = np.argsort(pieces.start, kind="stable")
    start, end, row = pieces.start[order], pieces.end[order], pieces.row[order]
    inside = cut(start, end, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    table = rows.select("part" if part is None else pl.lit(part).alias("part"), *LABELS)[row[inside.interval]]
    times = pl.Series("step_ns", (inside.ends - inside.starts).astype(np.float64))
    table = table.with_columns(steps["step"].gather(inside.step), times)
    summed = table.group_by("step", "part", *LABELS, maintain_order=True).agg(pl.col("step_ns").sum())
    return summed.with_columns(total_ns=pl.lit(0.0), calls=pl.lit(0.0)).select(list(COLUMNS)[1:])


def _totals(rows: pl.DataFrame, part: str) -> pl.DataFrame:
    """Sums of durations, and calls: an operator that launches three kernels is called once."""
    calls = pl.when(pl.col("call").is_null()).then(1.0).otherwise(1.0 / pl.len().over("call", "step", "part_kind"))
    counted = rows.with_columns(part_kind=pl.lit(part)).with_columns(calls=calls)
    summed = (
        counted.drop_nulls("step")
        .group_by("step", *LABELS, maintain_order=True)
        .agg(total_ns=pl.col("busy_ns").sum().cast(pl.Float64), calls=pl.col("calls").sum())
    )
    return summed.with_columns(part=pl.lit(part), step_ns=pl.lit(0.0)).select(list(COLUMNS)[1:])


def _first_started(rows: pl.DataFrame) -> _Work:
    """Of spans at the same time, the one that started first has the time."""
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    if len(start):
        reach = np.maximum.accumulate(end)
        start = np.maximum(start, np.append(np.iinfo(np.int64).min, reach[:-1]))
    keep = end > start
    return _Work(start[keep], end[keep], order[keep])


def _innermost(trace: Trace, ops: pl.DataFrame) -> _Work:
    """The innermost operator at each time on the thread of the steps, then on the other threads."""
    main = dict(main_threads(trace).iter_rows()).get(int(ops["rank"][0]), -1) if ops.height else -1
    taken, parts = intervals.NONE, [_Work(*(np.empty(0, np.int64) for _ in range(3)))]
    threads = sorted(ops["thread"].unique().to_list(), key=lambda thread: (thread != main, thread))
    rows = ops.with_row_index("row")
    for thread in threads:
        pieces = _outside(_innermost_of_thread(rows.filter(pl.col("thread") == thread)), taken)
        taken = intervals.join(taken, intervals.merge(pieces.start, pieces.end))
        parts.append(pieces)
    return _Work(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _innermost_of_thread(rows: pl.DataFrame) -> _Work:
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns", "end_ns", descending=[False, True])
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    nesting = intervals.nest(np.zeros(len(start), np.int64), start, end)
    points = np.unique(np.concatenate([start, end]))
    if len(points) < 2:
        return _Work(*(np.empty(0, np.int64) for _ in range(3)))
    at = np.searchsorted(start, points[:-1], "right") - 1
    open_ = np.flatnonzero(at >= 0)
    while len(open_):  # the span that started last may have ended: then one around it has the time
        open_ = open_[end[at[open_]] <= points[open_]]
        at[open_] = nesting.parent[at[open_]]
        open_ = open_[at[open_] >= 0]
    known = at >= 0
    return _Work(points[:-1][known], points[1:][known], rows["row"].cast(pl.Int64).to_numpy()[at[known]])


def _outside(pieces: _Work, taken: Set) -> _Work:
    """The parts of disjoint pieces outside of merged intervals."""
    if len(taken.starts) == 0 or len(pieces.start) == 0:
        return pieces
    order = np.argsort(pieces.start, kind="stable")
    start, end, row = pieces.start[order], pieces.end[order], pieces.row[order]
    free = intervals.gaps(taken, int(start[0]), int(end.max()))
    inside = cut(start, end, free.starts, free.ends)
    return _Work(inside.starts, inside.ends, row[inside.interval])


_ROWS = {"rank": pl.Int32, "device": pl.Int32, "on_host": pl.Boolean, "kind": pl.String, "step": pl.Int32, "start_ns": pl.Int64}
_ROWS |= {"end_ns": pl.Int64, "busy_ns": pl.Int64, "call": pl.Int64, "thread": pl.Int64, **dict.fromkeys(LABELS, pl.String)}


def _device_rows(trace: Trace) -> pl.DataFrame:
    """Work on device streams with its labels; the labels of an operator are those of the one that launched it."""
    work = device_work(trace)
    if work.is_empty():
        return pl.DataFrame(schema=_ROWS)
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track", "device").collect()
    spans = trace.spans.filter(
        pl.col("op").is_not_null() | pl.col("kind").cast(pl.String).is_in(["kernel", "copy", "set", "communication"])
    )
    texts = [pl.col(name).cast(pl.String) for name in ("op_type", "scope", "shapes")]
    named = spans.select("rank", "span", *texts).collect()
    ops = (
        trace.spans.filter(pl.col("kind") == "op")
        .select(
            "rank", op="span", op_name=pl.col("name").cast(pl.String), op_shapes=pl.col("shapes").cast(pl.String), op_start_ns="start_ns"
        )
        .collect()
    )
    rows = (
        work.drop("device", strict=False)
        .join(streams.unique(["rank", "track"]), on=["rank", "track"], how="left", maintain_order="left")
        .join(named, on=["rank", "span"], how="left", maintain_order="left")
        .join(ops, on=["rank", "op"], how="left", maintain_order="left")
        .with_columns(name=pl.col("name").cast(pl.String), kind=pl.col("kind").cast(pl.String))
    )
    kernel = names.mapped(rows["name"], names.kernel)
    launcher = pl.when(pl.col("op").is_not_null()).then(pl.coalesce("op_type", "op_name"))
    rows = rows.with_columns(
        kernel=kernel,
        launcher=launcher,
        phase=_phases(trace, rows["rank"], pl.coalesce("op_start_ns", "launch_ns"), rows),
    ).with_columns(operator=pl.coalesce("launcher", "kernel"), source=pl.coalesce("launcher", "name"))
    rows = rows.with_columns(
        family=_family(rows["name"], rows["launcher"]),
        on_host=pl.lit(False),
        busy_ns=pl.col("end_ns") - pl.col("start_ns"),
        shapes=pl.coalesce("op_shapes", "shapes"),
        call=pl.when(pl.col("op_name") == pl.col("op_type")).then("op"),
        thread=pl.lit(None, pl.Int64),
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in _ROWS.items())


def _family(kernels: pl.Series, launchers: pl.Series) -> pl.Series:
    """The family of the operator that launched the work, or of the kernel if that is unknown."""
    of_kernel, of_operator = names.mapped(kernels, family), names.mapped(launchers, family)
    return pl.select(pl.when((of_operator != "other").fill_null(False)).then(of_operator).otherwise(of_kernel)).to_series()


def _host_rows(trace: Trace, ranks: list[int]) -> pl.DataFrame:
    """Operators and transfers of ranks without a device."""
    if not ranks:
        return pl.DataFrame(schema=_ROWS)
    ops = host_operators(trace, "track", "step", "name", "scope", "shapes").filter(pl.col("rank").is_in(ranks))
    transfers = host_spans(trace).filter(pl.col("kind") == "communication", pl.col("rank").is_in(ranks))
    columns = [pl.col("rank", "step", "start_ns", "dur_ns"), pl.col("name", "scope", "shapes").cast(pl.String)]
    rows = pl.concat(
        [
            ops.select(*columns, "track", busy_ns="self_ns", kind=pl.lit("op")),
            transfers.select(*columns, "track", busy_ns="dur_ns", kind=pl.lit("communication")).collect(),
        ]
    ).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    nothing = pl.lit(None, pl.Int64)
    rows = rows.with_columns(
        operator="name",
        family=names.mapped(rows["name"], family),
        kernel=pl.lit(None, pl.String),
        phase=_phases(trace, rows["rank"], pl.col("start_ns"), rows),
        on_host=pl.lit(True),
        device=nothing,
        call=nothing,
        thread=pl.col("track"),
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in _ROWS.items())


_PHASES = ["input", "forward", "backward", "optimizer"]


def _phases(trace: Trace, rank: pl.Series, at: pl.Expr, rows: pl.DataFrame) -> pl.Series:
    """The phase of the host at the time of a call: input, forward, backward, optimizer; null where the recording does not show them."""
    times = rows.select(at.alias("at"))["at"]
    phase = np.full(len(times), -1, np.int64)
    steps = trace.steps.select("rank", "start_ns").sort("start_ns").collect().partition_by("rank", as_dict=True)
    ranks, has_time = rank.to_numpy(), times.is_not_null().to_numpy()
    for (number,), of_rank in roles(trace).group_by("rank"):
        mine = np.flatnonzero((ranks == number) & has_time)
        moments = times.gather(mine).to_numpy()
        backward = role_times(of_rank, "backward", "backward range")
        if len(backward.starts) == 0 or (number,) not in steps:
            continue  # inference, or no evidence: everything would be forward
        # A call is part of the forward pass if a backward pass follows in its step.
        begun = np.append(steps[(number,)]["start_ns"].to_numpy(), np.iinfo(np.int64).max)
        following = np.append(backward.starts, np.iinfo(np.int64).max)[np.searchsorted(backward.starts, moments, "left")]
        earlier = np.append(np.iinfo(np.int64).min, backward.ends)[np.searchsorted(backward.ends, moments, "right")]
        step = np.searchsorted(begun, moments, "right")
        inside = (step > 0) & (following < begun[np.minimum(step, len(begun) - 1)]) & (earlier < begun[np.maximum(step - 1, 0)])
        phase[mine[inside]] = _PHASES.index("forward")
        for name, words in (("backward", ("backward", "backward range")), ("optimizer", ("optimizer",)), ("input", ("data",))):
            covering = role_times(of_rank, *words)
            phase[mine[intervals.enclosing(covering.starts, covering.ends, moments) >= 0]] = _PHASES.index(name)
    return pl.Series(_PHASES).gather(pl.Series(phase).set(pl.Series(phase < 0), None)).alias("phase")
