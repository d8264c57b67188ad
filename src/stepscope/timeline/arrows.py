"""The arrows of a span: to launches, to operators of the backward pass, and to the same communication on other ranks."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import polars as pl

from stepscope.analyses.shared.ranks.counterparts import matched_calls
from stepscope.model.trace import Trace
from stepscope.timeline import details
from stepscope.timeline.details import MANY, Memo
from stepscope.timeline.layout import WORK, Timeline

_INNER = 64  # operators inside an operator whose links stand for it; a span with more is a phase, not an operator


class _End(NamedTuple):
    """The other end of an arrow."""

    how: str  # launch, backward, flow, collective or transfer
    way: str  # in, out, or with: neither is the cause
    rank: int
    span: int


def arrows(trace: Trace, timeline: Timeline, rank: int, span: int, memo: Memo) -> dict[str, Any]:
    """The arrows of a span, each with its other end and the delay between both starts, and the number of arrows."""
    rank_spans = trace.spans.filter(pl.col("rank") == rank)
    rows = rank_spans.filter(pl.col("span") == span).select("kind", "track", "start_ns", "dur_ns", "flow_in", "op").collect()
    if rows.is_empty():
        return {"arrows": [], "arrow_count": 0}
    row = rows.row(0, named=True)
    ends = [*_linked_ends(rank_spans, rank, span, row)]
    if row["kind"] == "op" and not any(end.how == "backward" for end in ends):
        ends += _inner(rank_spans, rank, span, row)
    if row["kind"] == "communication":
        ends += _peers(trace, rank, span, memo)
    ends = list(dict.fromkeys(ends))
    return {"arrows": _arrow_rows(trace, timeline, ends[:MANY], row["start_ns"]), "arrow_count": len(ends)}


def _linked_ends(rank_spans: pl.LazyFrame, rank: int, span: int, row: dict[str, Any]) -> Iterable[_End]:
    if row["flow_in"] is not None and row["flow_in"] != span:
        yield _End(_how(row["kind"]), "in", rank, row["flow_in"])
    elif row["op"] is not None and row["op"] != span:
        yield _End("launch", "in", rank, row["op"])
    effects = rank_spans.filter((pl.col("flow_in") == span) | (pl.col("op") == span), pl.col("span") != span)
    for kind, effect in effects.sort("start_ns").select(pl.col("kind").cast(pl.String), "span").collect().iter_rows():
        yield _End(_how(kind), "out", rank, effect)


def _how(effect: str) -> str:
    return "launch" if effect in WORK else "backward" if effect == "op" else "flow"


def _inner(rank_spans: pl.LazyFrame, rank: int, span: int, row: dict[str, Any]) -> Iterable[_End]:
    """The links of the operators inside an operator that only wraps others."""
    start, end = row["start_ns"], row["start_ns"] + row["dur_ns"]
    inside = rank_spans.filter(
        pl.col("track") == row["track"],
        pl.col("kind") == "op",
        pl.col("start_ns").is_between(start, end),
        pl.col("start_ns") + pl.col("dur_ns") <= end,
        pl.col("span") != span,
    )
    inner = inside.select("span", "flow_in").head(_INNER + 1).collect()
    if not 0 < inner.height <= _INNER:
        return
    ids = inner["span"].to_list()
    yield from (_End("backward", "in", rank, cause) for cause in inner["flow_in"].drop_nulls() if cause not in (*ids, span))
    effects = rank_spans.filter(pl.col("flow_in").is_in(ids), pl.col("kind") == "op", ~pl.col("span").is_in([*ids, span]))
    yield from (_End("backward", "out", rank, effect) for effect in effects.sort("start_ns").select("span").collect().to_series())


def _peers(trace: Trace, rank: int, span: int, memo: Memo) -> Iterable[_End]:
    """The same communication on other ranks."""
    calls = memo(("meetings",), lambda: matched_calls(trace))
    call = calls.filter(pl.col("rank") == rank, pl.col("span") == span)
    if call.is_empty():
        return
    role = call["role"].item()
    how, way = ("collective", "with") if role == "together" else ("transfer", "out" if role == "send" else "in")
    others = calls.filter(pl.col("call") == call["call"].item(), pl.col("rank") != rank)
    yield from (_End(how, way, *other) for other in others.select("rank", "span").iter_rows())


def _arrow_rows(trace: Trace, timeline: Timeline, ends: list[_End], start_ns: int) -> list[dict[str, Any]]:
    drawn: dict[tuple[int, int], dict[str, Any]] = {}
    for rank in {end.rank for end in ends}:
        wanted = [end.span for end in ends if end.rank == rank]
        spans = details.find_spans(timeline, trace.spans.filter(pl.col("rank") == rank), rank, wanted)
        drawn |= {(rank, span): entry for span, entry in spans.items()}
    offset = timeline.origin - start_ns
    return [
        {"how": end.how, "way": end.way, "delay": entry["start"] + offset} | entry
        for end in ends
        if (entry := drawn.get((end.rank, end.span))) is not None
    ]
