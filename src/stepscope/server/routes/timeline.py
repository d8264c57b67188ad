"""The addresses below `timeline` of a run. In the interface, a track is called `lane`."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.memo import Memo
from stepscope.model.output import tables
from stepscope.model.trace import Trace
from stepscope.server.answers import TYPES
from stepscope.server.jobs import Job, Jobs
from stepscope.timeline import aggregate, arrows, cache, critical_path, details, pyramid, tiles
from stepscope.timeline import search as span_search
from stepscope.timeline.layout import READ, Timeline, Track

_TIMELINES = 8  # that stay open
_TABLES = 6  # that are stored for each timeline
_RELEASE_AFTER = 16  # answers after which the memory of mapped files is released; or when they use more than
_MAPPED = 384 << 20  # bytes
_LONGEST = 1000  # characters of a search
_ROWS = 64  # of all tracks of a tile


class OpenTimeline:
    """A timeline with its trace, a name for the state of both, and the tables that were computed last."""

    def __init__(self, trace: Trace, timeline: Timeline, version: str) -> None:
        self.trace, self.timeline, self.version = trace, timeline, version
        self.memo = Memo(_TABLES, lambda table: 1).get
        self._answers = 0

    def count_answer(self) -> None:
        """Release memory from time to time: otherwise all of a large timeline would be in memory in the end."""
        self._answers += 1
        if self._answers % _RELEASE_AFTER == 0 or _mapped() > _MAPPED:
            cache.release(self.timeline)


def _mapped() -> int:
    """Bytes of mapped files in the memory of this process; 0 where the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


class Building(Job[OpenTimeline]):
    """A timeline that is being built."""

    share = 0.0  # of the work that is done

    def on_progress(self, share: float) -> None:
        self.check()
        self.share = share

    def progress(self) -> dict[str, Any]:
        return {"share": round(self.share, 3), "what": "reading" if self.share < READ else "arranging"}


class Timelines:
    """The timelines of the last runs."""

    def __init__(self) -> None:
        self._timelines = Jobs[Building](_TIMELINES)
        self._pool = ThreadPoolExecutor(1, "stepscope-timeline")

    def open(self, trace: Trace, ends: tuple[int, int], *identity: object, use_cache: bool) -> Building:
        """The timeline of a trace between two timestamps; its identity names the run, the state of its files and how they are read."""
        version = cache.entry_key(*identity)
        building = self._timelines.find(version)
        if building is not None and building.error() is None:
            return building
        building, name = Building(), version if use_cache else None
        on_progress = building.on_progress
        building.start(self._pool, lambda: OpenTimeline(trace, cache.open_timeline(trace, name, ends, on_progress), version))
        return self._timelines.add(version, building)

    def stop(self) -> None:
        self._timelines.stop()

    def close(self) -> None:
        self.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)


def overview(opened: OpenTimeline) -> Response:
    return _json(tiles.header(opened.timeline, opened.version))


def tile(opened: OpenTimeline, *, level: int, index: int, lanes: str = "", v: str = "", by: str | None = None) -> Response:
    if index + 1 << level + pyramid.BUCKETS_LOG2 > 1 << 62:
        raise UsageError(f"no tile {index} of level {level}")
    tracks = _tracks(opened.timeline, lanes)
    if sum(track.rows for track in tracks) > _ROWS and len(tracks) > 1:
        raise UsageError(f"more than {_ROWS} rows in one tile; request fewer tracks at once")
    if by not in (None, "type", "scope"):
        raise UsageError(f"no names by '{by}'; expected type or scope")
    caching = "max-age=31536000, immutable" if v == opened.version else "no-cache"
    content = tiles.tile(opened.timeline, tracks, level, index, by)
    return Response(content, media_type="application/octet-stream", headers={"Cache-Control": f"private, {caching}"})


def span(opened: OpenTimeline, *, span: int, rank: int = 0) -> Response:
    fields = details.details(opened.trace, opened.timeline, rank, span)
    fields |= arrows.arrows(opened.trace, opened.timeline, rank, span, opened.memo)
    return _json(fields | critical_path.critical_part(opened.trace, opened.timeline, rank, span, fields["step"], opened.memo))


def search(
    opened: OpenTimeline,
    *,
    text: str = "",
    kinds: str = "",
    rank: int | None = None,
    args: bool | None = None,
    after: int | None = None,
    before: int | None = None,
    number: int | None = None,
) -> Response:
    """By default the first match; the next one `after` a timestamp, the last one `before` it, or the one at position `number`, from 0."""
    if len(text) > _LONGEST:
        raise UsageError(f"searches for more than {_LONGEST:,} characters")
    if sum(place is not None for place in (after, before, number)) > 1:
        raise UsageError("expected at most one of after, before and number")
    wanted = text.strip(), tuple(dict.fromkeys(filter(None, kinds.split(",")))), rank, args
    matches = opened.memo(("search", *wanted), lambda: span_search.search(opened.trace, opened.timeline, *wanted))
    position = number or 0
    if after is not None:
        position = matches.before(after + 1)
    elif before is not None:
        position = matches.before(before) - 1

    def match(position: int) -> dict[str, Any] | None:
        at = matches.at(position)
        return None if at is None else details.span_at(opened.timeline, at) | {"ordinal": position}

    totals = {"count": matches.count, "total_ns": matches.total_ns, "searched": matches.searched}
    return _json(totals | {"first": match(0), "found": match(position)})


def area(opened: OpenTimeline, *, t0: int, t1: int, lanes: str = "", by: str = "name") -> Response:
    """Arrow, with the busy time of each group as JSON in the header X-Stepscope-Area."""
    # Derived tracks only where they are requested.
    tracks = [track for track in _tracks(opened.timeline, lanes) if track.kind == "spans" or (lanes and track.kind != "counter")]
    key = "area", t0, t1, by, tuple(track.id for track in tracks)
    table = opened.memo(key, lambda: aggregate.area(opened.timeline, tracks, t0, t1, by))
    groups = [group for group in opened.timeline.groups if any(track.group == group.id for track in tracks)]
    sums = opened.memo((*key, "groups"), lambda: aggregate.summary(opened.timeline, groups, t0, t1))
    headers = {"X-Stepscope-Area": msgspec.json.encode(sums).decode(), "X-Stepscope-Rows": str(table.height)}
    return Response(tables.arrow(table), media_type=TYPES["arrow"], headers=headers | {"Cache-Control": "private, no-cache"})


def near(opened: OpenTimeline, *, lane: int, at: int, row: int = 0, span: int | None = None, direction: str = "at") -> Response:
    (track,) = _tracks(opened.timeline, str(lane))
    return _json({"event": details.near(opened.timeline, track, row, at, direction, span)})


def gaps(opened: OpenTimeline, *, group: int, t0: int = 0, t1: int | None = None) -> Response:
    groups, high = opened.timeline.groups, opened.timeline.end if t1 is None else t1
    if group >= len(groups):
        raise UsageError(f"no group {group}; expected 0 to {len(groups) - 1}")
    return _json({"gaps": details.gaps(opened.trace, opened.timeline, groups[group], t0, high, opened.memo)})


def path(opened: OpenTimeline, *, at: int, rank: int = 0) -> Response:
    """The piece of the critical path at a timestamp."""
    return _json({"piece": critical_path.piece_at(opened.trace, opened.timeline, rank, at, opened.memo)})


Answer = Callable[..., Response]
# The keyword-only parameters are the words of path and query; they are checked before the call.
ROUTES: dict[str, Answer] = {
    "": overview,
    "/tiles/{level}/{index}": tile,
    "/span": span,
    "/search": search,
    "/area": area,
    "/near": near,
    "/gaps": gaps,
    "/path": path,
}


def _tracks(timeline: Timeline, text: str) -> list[Track]:
    """The tracks of `0,3`, in this order; without a text, all tracks."""
    if not text:
        return timeline.tracks
    numbers = [parameters.value(int, "lane", word) for word in text.split(",")]
    for number in numbers:
        if number >= len(timeline.tracks):
            raise UsageError(f"no track {number}; expected 0 to {len(timeline.tracks) - 1}")
    if len(set(numbers)) < len(numbers):
        raise UsageError("`lanes` names a track twice")
    return [timeline.tracks[number] for number in numbers]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "private, no-cache"})
