"""What a span is connected with: launches, the operators of the backward pass, and the same communication on other ranks."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import polars as pl

from stepscope.analyses._meetings import meetings
from stepscope.timelines import asking
from stepscope.timelines.asking import MANY
from stepscope.timelines.lanes import WORK, Timeline
from stepscope.trace import Trace

Once = Callable[[tuple[Any, ...], Callable[[], pl.DataFrame]], pl.DataFrame]
_WITHIN = 64  # operators of one whose own links stand for it: of more it is a phase, not an operator


class _End(NamedTuple):
    """The other end of an arrow."""

    how: str  # launch, backward, flow, collective or transfer
    way: str  # in, out, or with: neither caused the other
    rank: int
    span: int


def arrows(trace: Trace, timeline: Timeline, rank: int, span: int, once: Once) -> dict[str, Any]:
    """The arrows of a span, each with its other end and how long after this span's start that one begins, and how many there are."""
    of_rank = trace.spans.filter(pl.col("rank") == rank)
    found = of_rank.filter(pl.col("span") == span).select("kind", "track", "start_ns", "dur_ns", "flow_in", "op").collect()
    if found.is_empty():
        return {"arrows": [], "arrow_count": 0}
    row = found.row(0, named=True)
    ends = [*_linked(of_rank, rank, span, row)]
    if row["kind"] == "op" and not any(end.how == "backward" for end in ends):
        ends += _inner(of_rank, rank, span, row)
    if row["kind"] == "communication":
        ends += _met(trace, rank, span, once)
    ends = list(dict.fromkeys(ends))
    return {"arrows": _told(trace, timeline, ends[:MANY], row["start_ns"]), "arrow_count": len(ends)}


def _linked(of_rank: pl.LazyFrame, rank: int, span: int, row: dict[str, Any]) -> Iterable[_End]:
    if row["flow_in"] is not None and row["flow_in"] != span:
        yield _End(_how(row["kind"]), "in", rank, row["flow_in"])
    elif row["op"] is not None and row["op"] != span:
        yield _End("launch", "in", rank, row["op"])
    effects = of_rank.filter((pl.col("flow_in") == span) | (pl.col("op") == span), pl.col("span") != span)
    for kind, other in effects.sort("start_ns").select(pl.col("kind").cast(pl.String), "span").collect().iter_rows():
        yield _End(_how(kind), "out", rank, other)


def _how(effect: str) -> str:
    return "launch" if effect in WORK else "backward" if effect == "op" else "flow"


def _inner(of_rank: pl.LazyFrame, rank: int, span: int, row: dict[str, Any]) -> Iterable[_End]:
    """Of an operator that only wraps others, forward or backward: their links lead on from it."""
    start, end = row["start_ns"], row["start_ns"] + row["dur_ns"]
    inside = of_rank.filter(
        pl.col("track") == row["track"],
        pl.col("kind") == "op",
        pl.col("start_ns").is_between(start, end),
        pl.col("start_ns") + pl.col("dur_ns") <= end,
        pl.col("span") != span,
    )
    own = inside.select("span", "flow_in").head(_WITHIN + 1).collect()
    if not 0 < own.height <= _WITHIN:
        return
    ids = own["span"].to_list()
    yield from (_End("backward", "in", rank, cause) for cause in own["flow_in"].drop_nulls() if cause not in (*ids, span))
    later = of_rank.filter(pl.col("flow_in").is_in(ids), pl.col("kind") == "op", ~pl.col("span").is_in([*ids, span]))
    yield from (_End("backward", "out", rank, one) for one in later.sort("start_ns").select("span").collect().to_series())


def _met(trace: Trace, rank: int, span: int, once: Once) -> Iterable[_End]:
    calls = once(("meetings",), lambda: meetings(trace))
    mine = calls.filter(pl.col("rank") == rank, pl.col("span") == span)
    if mine.is_empty():
        return
    role = mine["role"].item()
    how, way = ("collective", "with") if role == "together" else ("transfer", "out" if role == "send" else "in")
    others = calls.filter(pl.col("call") == mine["call"].item(), pl.col("rank") != rank)
    yield from (_End(how, way, *one) for one in others.select("rank", "span").iter_rows())


def _told(trace: Trace, timeline: Timeline, ends: list[_End], start_ns: int) -> list[dict[str, Any]]:
    known: dict[tuple[int, int], dict[str, Any]] = {}
    for rank in {end.rank for end in ends}:
        wanted = [end.span for end in ends if end.rank == rank]
        found = asking.placed_spans(timeline, trace.spans.filter(pl.col("rank") == rank), rank, wanted)
        known |= {(rank, span): event for span, event in found.items()}
    since = timeline.origin - start_ns
    return [
        {"how": end.how, "way": end.way, "delay": event["start"] + since} | event
        for end in ends
        if (event := known.get((end.rank, end.span))) is not None
    ]
