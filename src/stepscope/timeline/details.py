"""Details of a timeline: one span with all its fields, its neighbors, and the idle gaps of a device."""

import bisect
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import cut
from stepscope.analyses.shared.steps.coverage import complete_steps
from stepscope.errors import UsageError
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.model.output import tables
from stepscope.model.trace import Trace
from stepscope.timeline import aggregate, pyramid, search
from stepscope.timeline.construction import columns
from stepscope.timeline.layout import KINDS, WORK, Group, Timeline, Track, track_rows

MANY = 200  # entries of one list in an answer
_RELEASED = 8  # intervals after which the memory of mapped files is released
_GAP_SPANS = 1 << 21  # spans that are searched for the causes of gaps
Memo = Callable[[tuple[Any, ...], Callable[[], pl.DataFrame]], pl.DataFrame]  # the table of a key, computed by the first caller
_OWN_FIELDS = ("start_ns", "dur_ns", "self_ns", "args", "shapes", "dtypes", "rank")  # of a span, with another form in the answer


def span_at(timeline: Timeline, number: int) -> dict[str, Any]:
    """The span of this number: its track and row, name, kind and time."""
    spans = timeline.pyramid.spans
    row = int(np.searchsorted(spans.offsets, number, "right")) - 1
    tracks = [track for track in timeline.tracks if track.kind != "counter"]
    track = tracks[bisect.bisect_right([track.first for track in tracks], row) - 1]
    return {
        "rank": track.rank,
        "span": int(spans.span[number]),
        "lane": track.id,
        "row": row - track.first,
        "start": int(spans.start[number]),
        "dur": int(spans.dur[number]),
        "name": timeline.labels["name"][int(spans.label[number])],
        "kind": KINDS[spans.kind[number]],
    }


def near(timeline: Timeline, track: Track, row: int, at: int, direction: str, span: int | None = None) -> dict[str, Any] | None:
    """The span of a row at a timestamp, or the next or previous one; `span` decides between spans with the same start."""
    if not 0 <= row < track.rows or track.kind == "counter":
        raise UsageError(f"no row {row} in track {track.id}")
    spans = timeline.pyramid.spans
    row_spans = spans.row_slice(track.first + row)
    if direction == "at":
        part = pyramid.within(spans, track.first + row, at, at + 1)
        hits = np.flatnonzero((spans.start[part] + spans.dur[part] > at) | (spans.start[part] == at))
        return span_at(timeline, part.start + int(hits[-1])) if len(hits) else None
    if direction not in ("prev", "next"):
        raise UsageError(f"no direction '{direction}'; expected at, prev or next")
    low, high = (row_spans.start + int(np.searchsorted(spans.start[row_spans], at, side)) for side in ("left", "right"))
    same = (low + np.flatnonzero(spans.span[low:high] == span)).tolist() if span is not None and span >= 0 else []
    after, before = (same[0] + 1, same[0] - 1) if same else (high, low - 1)
    chosen = after if direction == "next" else before
    return span_at(timeline, chosen) if row_spans.start <= chosen < row_spans.stop else None


def details(trace: Trace, timeline: Timeline, rank: int, span: int) -> dict[str, Any]:
    """All fields of a span, its parents, its causes and its effects."""
    rank_spans = trace.spans.filter(pl.col("rank") == rank)
    rows = tables.finite(rank_spans.filter(pl.col("span") == span)).collect()
    if rows.height == 0:
        raise UsageError(f"no span {span} of rank {rank}")
    row = rows.row(0, named=True)
    start = row["start_ns"] - timeline.origin
    drawn = _find_span(timeline, rank, row["track"], span, start)
    linked = rank_spans.filter((pl.col("flow_in") == span) | (pl.col("op") == span)).select(
        "span", "track", "start_ns", "dur_ns", "flow_in"
    )
    effects = linked.sort("start_ns").collect()
    causes = [cause for cause in (row["flow_in"], row["op"]) if cause is not None and cause != span]
    parents = _parents(timeline, drawn, row)
    # The cause of a kernel is its launch call, which is part of its operator.
    related = find_spans(timeline, rank_spans, rank, [*causes, *parents])
    out = effects.filter(pl.col("flow_in") == span)
    launched = effects.filter((pl.col("flow_in") != span) | pl.col("flow_in").is_null())
    return {name: value for name, value in row.items() if name not in _OWN_FIELDS} | {
        "rank": rank,
        "lane": drawn and drawn["lane"],
        "row": drawn and drawn["row"],
        "start": start,
        "start_ns": str(row["start_ns"]),
        "dur": row["dur_ns"],
        "self": row["self_ns"],
        "share_of_step": _share_of_step(trace, rank, row),
        "shapes": _parse_json(row["shapes"]),
        "dtypes": _parse_json(row["dtypes"]),
        "args": _parse_json(row["args"]),
        "parents": [related[parent] for parent in parents if parent in related],
        "flows": {
            "in": [related[cause] for cause in causes[:1] if cause in related],
            "out": _drawn_spans(timeline, rank, out),
            "out_count": out.height,
        },
        "operator": related.get(row["op"]) if row["op"] != span else None,
        "launched": _drawn_spans(timeline, rank, launched),
        "launched_count": launched.height,
        "launched_ns": launched["dur_ns"].sum(),
        **_same_name(timeline, rank, drawn, row["name"] or ""),
    }


def gaps(trace: Trace, timeline: Timeline, group: Group, low: int, high: int, memo: Memo | None = None) -> list[dict[str, Any]]:
    """The idle gaps of a device within steps that overlap an interval, as in `gaps`, longest first.

    Gaps come without causes where the steps have more than _GAP_SPANS spans. `memo` stores tables for the next request.
    """
    steps = trace.steps.filter(pl.col("rank") == group.rank).sort("start_ns").collect()
    begin, end = (steps[name].to_numpy() - timeline.origin for name in ("start_ns", "end_ns"))
    inside = np.flatnonzero((begin < high) & (end > low))
    if len(inside) == 0:
        return []
    # One more step on each side: the kernel that ends a gap, or its launch, may be there.
    first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, steps.height - 1)
    if timeline.spans <= _GAP_SPANS or _count(timeline, group.rank, int(begin[first]), int(end[last])) <= _GAP_SPANS:
        numbers = None if timeline.spans <= _GAP_SPANS else (int(steps["step"][first]), int(steps["step"][last]))
        source = trace if numbers is None else _part_of_steps(trace, steps[first : last + 1])
        compute = functools.partial(source.analyse, "gaps", rank=group.rank)
        idle = compute() if memo is None else memo(("gaps", group.rank, numbers), compute)
    else:
        complete = complete_steps(trace).filter(pl.col("rank") == group.rank)["step"]
        inside = inside[steps["step"].gather(inside).is_in(complete.implode()).to_numpy()]
        if len(inside) == 0:
            return []
        idle = _idle(timeline, group, low, high, (begin[inside], end[inside], steps["step"].gather(inside)))
    start, device = pl.col("start_ns") - timeline.origin, pl.lit(group.device, pl.Int32)
    return (
        idle.filter(pl.col("device").eq_missing(device), start < high, start + pl.col("dur_ns") > low)
        .select("step", "cause", "next_kernel", "next_span", "host_activity", "share_of_step", start=start, dur="dur_ns")
        .sort("dur", "start", descending=[True, False])
        .head(MANY)
        .to_dicts()
    )


def _part_of_steps(trace: Trace, steps: pl.DataFrame) -> Trace:
    """The spans that begin in some steps of one rank; of a large file only the parts that contain them are read."""
    begin, end = steps["start_ns"].min(), steps["end_ns"].max()
    columns = ("rank", "track", "kind", "name", "start_ns", "dur_ns", "self_ns", "span", "parent", "flow_in", "step")
    spans = trace.spans.filter(pl.col("rank") == steps["rank"][0], pl.col("start_ns") >= begin, pl.col("start_ns") < end)
    return trace.part({"spans": spans.select(columns).collect(), "steps": steps})


def _idle(timeline: Timeline, group: Group, low: int, high: int, steps: tuple[Ints, Ints, pl.Series]) -> pl.DataFrame:
    """The MANY longest intervals within these steps in which no stream of the device runs, if they overlap the interval."""
    spans, (begin, end, numbers) = timeline.pyramid.spans, steps
    tracks = [track for track in timeline.tracks if track.group == group.id and track.kind == "spans" and group.kind == "device"]
    rows = [row for track in tracks for row in track_rows(track)]
    is_work = np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in WORK])
    best = [np.empty((0, 3), np.int64)]  # start, duration and step

    def add(idle: intervals.Set) -> None:
        pieces = cut(idle.starts, idle.ends, begin, end)
        start, dur = pieces.starts, pieces.ends - pieces.starts
        inside = np.flatnonzero((start < high) & (start + dur > low))
        inside = inside[np.lexsort((start[inside], -dur[inside]))[:MANY]]
        best.append(np.stack((start[inside], dur[inside], pieces.step[inside]), 1))

    busy_until, last = int(begin[0]), int(end.max())
    for number, (from_, to) in enumerate(aggregate.split_time(timeline, rows, busy_until, last) if rows else (), 1):
        sets = []
        for row in rows:
            part = pyramid.within(spans, row, from_, to)
            runs = is_work[spans.kind[part]]
            start = spans.start[part][runs]
            sets.append(intervals.merge(start, start + spans.dur[part][runs]))
        busy = intervals.clip(intervals.join(*sets), from_, to)
        until = np.append(busy_until, busy.ends)
        is_gap = busy.starts > until[:-1]
        add(intervals.Set(until[:-1][is_gap], busy.starts[is_gap]))
        busy_until = int(until[-1])
        if number % _RELEASED == 0:
            columns.release(spans)
    if rows and busy_until < last:
        add(intervals.Set(np.array([busy_until]), np.array([last])))
    start, dur, step = np.concatenate(best).T
    return pl.DataFrame(
        {
            "device": pl.Series([group.device] * len(dur), dtype=pl.Int32),
            "step": numbers.gather(step),
            "start_ns": start + timeline.origin,
            "dur_ns": dur,
            "share_of_step": dur / (end - begin)[step],
        }
    ).with_columns(pl.lit(None).alias(name) for name in ("cause", "next_kernel", "next_span", "host_activity"))


def _count(timeline: Timeline, rank: int, low: int, high: int) -> int:
    """The approximate number of spans of a rank that overlap an interval."""
    rows = (row for track in timeline.tracks if track.kind == "spans" and track.rank == rank for row in track_rows(track))
    slices = (pyramid.within(timeline.pyramid.spans, row, low, high) for row in rows)
    return sum(part.stop - part.start for part in slices)


def _find_span(timeline: Timeline, rank: int, track: int | None, span: int, start: int) -> dict[str, Any] | None:
    spans = timeline.pyramid.spans
    drawn = next((drawn for drawn in timeline.tracks if drawn.kind == "spans" and (drawn.rank, drawn.track) == (rank, track)), None)
    for row in track_rows(drawn) if drawn else ():
        row_spans = spans.row_slice(row)
        low, high = row_spans.start + np.searchsorted(spans.start[row_spans], (start, start + 1))
        numbers = low + np.flatnonzero(spans.span[low:high] == span)
        if len(numbers):
            return span_at(timeline, int(numbers[0])) | {"number": int(numbers[0])}
    return None


def _drawn_spans(timeline: Timeline, rank: int, spans: pl.DataFrame) -> list[dict[str, Any]]:
    rows = spans.head(MANY).select("span", "track", pl.col("start_ns") - timeline.origin).iter_rows()
    drawn = [_find_span(timeline, rank, track, span, start) for span, track, start in rows]
    return [{key: value for key, value in span.items() if key != "number"} for span in drawn if span]


def find_spans(timeline: Timeline, spans: pl.LazyFrame, rank: int, wanted: list[int]) -> dict[int, dict[str, Any]]:
    """These spans of a rank in the timeline, by id; at most MANY."""
    rows = spans.filter(pl.col("span").is_in(wanted)).select("span", "track", "start_ns", "dur_ns").collect() if wanted else None
    return {span["span"]: span for span in _drawn_spans(timeline, rank, rows)} if rows is not None else {}


def _share_of_step(trace: Trace, rank: int, row: dict[str, Any]) -> float | None:
    if row["step"] is None:
        return None
    step = trace.steps.filter(pl.col("rank") == rank, pl.col("step") == row["step"]).select(pl.col("end_ns") - pl.col("start_ns"))
    step_ns = step.collect().to_series().to_list()
    return row["dur_ns"] / step_ns[0] if step_ns and step_ns[0] else None


def _parents(timeline: Timeline, drawn: dict[str, Any] | None, row: dict[str, Any]) -> list[int]:
    """The spans that enclose this one, innermost first; without spans that only overlap it."""
    if drawn is None or row["parent"] is None:
        return []
    track, end = timeline.tracks[drawn["lane"]], drawn["start"] + drawn["dur"] - intervals.JITTER_NS
    above = (near(timeline, track, above, drawn["start"], "at") for above in reversed(range(drawn["row"])))
    return [span["span"] for span in above if span and span["start"] + span["dur"] >= end]


def _same_name(timeline: Timeline, rank: int, drawn: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """The previous and next span with the same name in the rank, and how many there are."""
    if drawn is None:
        return {"previous": None, "next": None, "same_name": 0, "same_name_before": 0}
    matches = search.same_name(timeline, rank, name)
    same_start = matches.between(drawn["start"], drawn["start"] + 1).tolist()
    position = matches.before(drawn["start"]) + same_start.index(drawn["number"])
    previous, following = (
        None if number is None else span_at(timeline, number) for number in (matches.at(position - 1), matches.at(position + 1))
    )
    return {"previous": previous, "next": following, "same_name": matches.count, "same_name_before": position}


def _parse_json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
