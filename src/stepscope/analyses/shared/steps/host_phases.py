"""Phases of the host in a step: data wait, forward, backward, optimizer."""

import numpy as np
import polars as pl

from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

# The first rule that matches gives the role. `main` rules apply to the thread that runs the steps, `any` rules to every thread.
_ROLES = (
    ("backward", "any", "op", r"^autograd::engine::evaluate_function|^torch::autograd::AccumulateGrad|Backward\d*$"),
    ("communication", "any", "communication", ""),
    ("data", "main", "data", ""),
    ("optimizer", "main", "annotation", r"^Optimizer\.|zero_grad|(?i)^[^a-z]*optimizer(?:[ _.-]?step)?[^a-z]*$"),
    ("forward range", "main", "annotation", r"(?i)(?:^|[^a-z])forward(?:[ _-]?(?:pass|step))?[^a-z]*$"),
    ("backward range", "main", "annotation", r"(?i)(?:^|[^a-z])backward(?:[ _-]?(?:pass|step))?[^a-z]*$"),
    ("module", "main", "scope", ""),
    # Operators that only move the input to the device, or convert its type: they are not part of the forward pass.
    ("move", "main", "op", r"^aten::(?:to|_to_copy|copy_|pin_memory|_pin_memory|is_pinned|detach)$"),
    ("op", "main", "op", ""),
)
_Role = pl.Enum([role for role, *_ in _ROLES])


def host_spans(trace: Trace) -> pl.LazyFrame:
    """The spans that are not on a device, with `thread`: the track of the thread, also for ranges on its annotation track.

    If a thread has several tracks, as on Ascend for the framework and for its libraries, it is the first.
    """
    return on_host(trace.spans, trace)


def threads(trace: Trace) -> pl.LazyFrame:
    """The tracks of threads, each with `thread`, the first track of the same system thread."""
    same = pl.col("track").sort_by("sort", "track").first().over("rank", "group", "tid")
    has_id = pl.all_horizontal(pl.col("group", "tid").is_not_null())
    tracks = trace.tracks.filter(pl.col("kind") == "thread")
    return tracks.select("rank", "track", thread=pl.when(has_id).then(same).otherwise("track"))


def on_host(spans: pl.LazyFrame, trace: Trace) -> pl.LazyFrame:
    """`host_spans` for any table with rank and track."""
    return (
        spans.join(_thread_of_track(trace), on=["rank", "track"], how="left")
        .filter(~pl.col("elsewhere").fill_null(False))
        .with_columns(pl.coalesce("thread", "track"))
        .drop("elsewhere")
    )


def _thread_of_track(trace: Trace) -> pl.LazyFrame:
    """The thread of each track, and whether it is elsewhere, on a device. There are few tracks: threads are not looked up per span."""
    home = (
        trace.tracks.filter(pl.col("kind").is_in(["thread", "stream"]))
        .select("rank", "pid", "tid", pl.col("track").alias("thread"), (pl.col("kind") == "stream").alias("on_device"))
        .unique(["rank", "pid", "tid"], keep="first", maintain_order=True)
    )
    tracks = trace.tracks.select(
        "rank",
        "track",
        "pid",
        "tid",
        (pl.col("kind").is_in(["stream", "communication"]) | pl.col("device").is_not_null()).alias("is_stream"),
        (pl.col("kind") == "annotation").alias("beside"),
    )
    same = threads(trace).rename({"thread": "same"})
    return (
        tracks.join(home, on=["rank", "pid", "tid"], how="left")
        .with_columns(thread=pl.when("beside").then(pl.coalesce("thread", "track")).otherwise("track"))
        .join(same, left_on=["rank", "thread"], right_on=["rank", "track"], how="left")
        .select(
            "rank",
            "track",
            thread=pl.coalesce("same", "thread"),
            elsewhere=(pl.col("is_stream") | (pl.col("beside") & pl.col("on_device"))).fill_null(False),
        )
    )


@memoized
def main_threads(trace: Trace) -> pl.DataFrame:
    """Per rank the thread that runs the steps: the thread with the step markers, else the one with the longest self time of operators."""
    # Few names, many spans: patterns are matched once per name.
    totals = trace.spans.filter(pl.col("kind").is_in(["step", "op"])).group_by("rank", "track", "kind", "name").agg(pl.col("self_ns").sum())
    backward = pl.col("name").cast(pl.String).str.contains(_ROLES[0][3])
    return (
        on_host(totals, trace)
        .group_by("rank", "thread")
        .agg(marked=(pl.col("kind") == "step").any(), operators_ns=pl.col("self_ns").filter((pl.col("kind") == "op") & ~backward).sum())
        .sort("rank", "marked", "operators_ns", "thread", descending=[False, True, True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", "thread")
        .collect()
    )


@memoized
def roles(trace: Trace) -> pl.DataFrame:
    """The host spans that have a role, by rank and start.

    Forward ranges, modules and operators inside a data wait or inside ranges of the optimizer have no role, and neither have operators
    inside an operator that moves data.
    """
    kinds = {kind for _, _, kind, _ in _ROLES}
    spans = trace.spans.filter(pl.col("kind").is_in(list(kinds)))
    names = spans.select("kind", "name").unique().collect()
    on_main, on_any = (_role(names, places) for places in (("main", "any"), ("any",)))
    names = names.with_columns(on_main.alias("main"), on_any.alias("any"))
    main = main_threads(trace).lazy().with_columns(is_main=True)
    tracks = _thread_of_track(trace).join(main, on=["rank", "thread"], how="left").select("rank", "track", "elsewhere", "is_main")
    unlisted = main.join(trace.tracks, left_on=["rank", "thread"], right_on=["rank", "track"], how="anti")
    tracks = pl.concat([tracks, unlisted.select("rank", track="thread", elsewhere=pl.lit(value=False), is_main="is_main")])
    with_role: pl.DataFrame = (
        spans.join(names.filter(on_main.is_not_null() | on_any.is_not_null()).lazy(), on=["kind", "name"], nulls_equal=True)
        .join(tracks, on=["rank", "track"], how="left")
        .with_columns(role=pl.when("is_main").then("main").otherwise("any"), end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .filter(pl.col("role").is_not_null() & ~pl.col("elsewhere").fill_null(value=False))
        .select("rank", "step", "role", "name", "start_ns", "end_ns")
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
    )
    inside = np.zeros(with_role.height, np.bool_)
    ranks, first = np.unique(with_role["rank"].to_numpy(), return_index=True)
    for at, end in zip(first, np.append(first[1:], with_role.height), strict=True) if len(ranks) else ():
        rows = with_role.slice(at, end - at)
        other, moving = role_times(rows, "data", "optimizer"), role_times(rows, "move")
        starts = rows["start_ns"].to_numpy()
        inside[at:end] = intervals.enclosing(other.starts, other.ends, starts) >= 0
        if len(moving.starts):
            is_op = (rows["role"] == "op").to_numpy()
            inside[at:end] |= (intervals.enclosing(moving.starts, moving.ends, starts) >= 0) & is_op
    return with_role.filter(~pl.col("role").is_in(["forward range", "module", "move", "op"]) | ~pl.Series(inside))


def role_times(rows: pl.DataFrame, *names: str) -> intervals.Set:
    """The union of the spans with one of these roles."""
    spans = rows.filter(pl.col("role").is_in(names))
    return intervals.merge(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())


@memoized
def passes(trace: Trace) -> pl.DataFrame:
    """Per rank and step: the start of the forward pass, the end of the backward pass, and the evidence for each.

    Forward starts with the first range named forward, else the first module, else the first operator, both after the data wait if
    possible. Backward ends with the last operator of the autograd engine, else the last range named backward.
    `last_ns` is the end of the last operator of the step's thread.
    """
    key = ["rank", "step"]
    # Steps that only the device shows do not divide the host's time.
    on_device = trace.steps.filter(pl.col("how").cast(pl.String) == "device").select(key).collect()
    spans = roles(trace)
    spans = spans.join(on_device, on=key, how="anti") if on_device.height else spans
    role, start, end = pl.col("role"), pl.col("start_ns"), pl.col("end_ns")
    backward_start = start.filter(role.is_in(["backward", "backward range"])).min()
    waits = spans.filter(role == "data").join(spans.group_by(key).agg(backward_ns=backward_start), on=key)
    # A wait after the backward pass fetches the data of the next step.
    waits = waits.filter(pl.col("backward_ns").is_null() | (start < pl.col("backward_ns"))).group_by(key).agg(waited_ns=end.first())
    after = spans.join(waits, on=key, how="left").filter(pl.col("waited_ns").is_null() | (start >= pl.col("waited_ns")))
    forward = [
        _starts(spans, "forward range", "range"),
        _starts(after, "module", "module"),
        _starts(after, "op", "first op"),
        _starts(spans, "module", "module"),
        _starts(spans, "op", "first op"),
    ]
    backward = [_ends(spans, "backward", "autograd"), _ends(spans, "backward range", "range")]
    rows = spans.group_by(key, maintain_order=True).agg(last_ns=end.filter(role.is_in(["op", "move", "module", "forward range"])).max())
    for points in (forward, backward):
        rows = rows.join(pl.concat(points).unique(key, keep="first", maintain_order=True), on=key, how="left")
    return rows


def first_or_last(rows: pl.DataFrame, point: str, how: pl.Expr) -> pl.DataFrame:
    """Per rank and step: `fp_start` is the start of the first of these spans, `bp_end` the end of the last."""
    at = "start_ns" if point == "fp_start" else "end_ns"
    return (
        rows.sort(at, maintain_order=True)
        .unique(["rank", "step"], keep="first" if point == "fp_start" else "last", maintain_order=True)
        .select(
            "rank",
            "step",
            pl.col(at).alias(f"{point}_ns"),
            pl.col("name").cast(pl.String).alias(f"{point}_op"),
            how.alias(f"{point}_found"),
        )
    )


def _starts(rows: pl.DataFrame, role: str, how: str) -> pl.DataFrame:
    """`first_or_last` for `fp_start`, of rows that are in order of start."""
    firsts = rows.filter(pl.col("role") == role).group_by("rank", "step", maintain_order=True).agg(pl.col("start_ns", "name").first())
    return first_or_last(firsts, "fp_start", pl.lit(how))


def _ends(rows: pl.DataFrame, role: str, how: str) -> pl.DataFrame:
    return first_or_last(rows.filter(pl.col("role") == role), "bp_end", pl.lit(how))


def _role(names: pl.DataFrame, places: tuple[str, ...]) -> pl.Series:
    rule = pl.lit(None, pl.String)
    for role, place, kind, pattern in reversed(_ROLES):
        if place in places:
            fits = (pl.col("kind") == kind) & pl.col("name").cast(pl.String).fill_null("").str.contains(pattern)
            rule = pl.when(fits).then(pl.lit(role)).otherwise(rule)
    return names.select(rule.cast(_Role)).to_series()
