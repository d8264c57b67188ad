"""The timeline of a run: what each address below `timeline` answers. One is built per run, and the last few are kept."""

import asyncio
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from stepscope import parameters, pyramid, tables
from stepscope.errors import UsageError
from stepscope.timelines import arrows, asking, critical, finding, keeping, lanes, summing, tiles
from stepscope.timelines.lanes import READ, Lane, Timeline
from stepscope.trace import Trace
from stepscope.web.answers import TYPES
from stepscope.web.traces import CancelledError

_T = TypeVar("_T")

_KEPT = 8
_ANSWERS = 6  # that are kept, of each timeline
_RELEASED = 16  # answers, after which what was looked at is given back; or when that is more than
_MAPPED = 384 << 20  # bytes
_LONGEST = 1000  # characters of what is searched for
_ROWS = 64  # of all lanes of a tile


class Opened:
    """A timeline, the trace that it is of, a name for the state of both, and what was asked of it last."""

    def __init__(self, trace: Trace, timeline: Timeline, version: str) -> None:
        self.trace, self.timeline, self.version = trace, timeline, version
        self._lock = threading.Lock()
        self._under_way: dict[tuple[Any, ...], threading.Lock] = {}
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._answers = 0

    def answered(self) -> None:
        """Now and then what was looked at is given back: all of a large timeline would be in memory in the end."""
        self._answers += 1
        if self._answers % _RELEASED == 0 or _mapped() > _MAPPED:
            keeping.release(self.timeline)

    def once(self, key: tuple[Any, ...], ask: Callable[[], _T]) -> _T:
        """What takes long and is asked again and again; of several who ask at the same time, one computes it."""
        with self._lock:
            turn = self._under_way.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found: _T = self._kept[key]
                    return found
            try:
                found = ask()
            finally:
                with self._lock:
                    self._under_way.pop(key, None)
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > _ANSWERS:
                    self._kept.popitem(last=False)
        return found


def _mapped() -> int:
    """Bytes of files that this process holds in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


class Building:
    """One timeline that is being built, or was."""

    def __init__(self, stop: threading.Event) -> None:
        self.share = 0.0  # of the work that is done
        self.future: asyncio.Future[Opened] | None = None
        self._stop = stop

    @property
    def over(self) -> bool:
        return self.future is not None and self.future.done()

    def failed(self) -> bool:
        return self.future is not None and self.future.done() and (self.future.cancelled() or self.future.exception() is not None)

    def heard(self, share: float) -> None:
        """Called by the thread that builds; the exception ends it, and what it has written so far is removed."""
        if self._stop.is_set():
            raise CancelledError("stopped")
        self.share = share

    async def opened(self) -> Opened:
        assert self.future is not None
        return await asyncio.shield(self.future)  # who asked may leave: others wait as well

    def progress(self) -> dict[str, Any]:
        return {"share": round(self.share, 3), "what": "reading" if self.share < READ else "arranging"}


class Timelines:
    """The timelines that are open, the longest unused forgotten first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Building] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, "stepscope-timeline")
        self._stop = threading.Event()

    def begin(self, trace: Trace, ends: tuple[int, int], *how: object, keep: bool) -> Building:
        """The timeline of a trace from one moment to another, opened like this; a large one is kept in the cache if `keep`."""
        version = keeping.named(*how)
        found = self._open.get(version)
        if found is None or found.failed():
            found = self._open[version] = Building(self._stop)
            work = asyncio.get_running_loop().run_in_executor(self._pool, _opened, trace, ends, version, keep, found.heard)
            found.future = asyncio.ensure_future(work)
            while len(self._open) > _KEPT:
                self._open.popitem(last=False)
        self._open.move_to_end(version)
        return found

    def stop(self) -> None:
        """Whatever is being built is not wanted any more."""
        self._stop.set()

    def close(self) -> None:
        self.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _opened(trace: Trace, ends: tuple[int, int], version: str, keep: bool, heard: lanes.Heard) -> Opened:
    return Opened(trace, keeping.opened(trace, version if keep else None, ends, heard), version)


def overview(opened: Opened) -> Response:
    return _json(tiles.header(opened.timeline, opened.version))


def tile(opened: Opened, *, level: int, index: int, lanes: str = "", v: str = "", by: str | None = None) -> Response:
    if index + 1 << level + pyramid.BUCKETS_LOG2 > 1 << 62:
        raise UsageError(f"no tile {index} of level {level}")
    chosen = _lanes(opened.timeline, lanes)
    if sum(lane.rows for lane in chosen) > _ROWS and len(chosen) > 1:
        raise UsageError(f"more than {_ROWS} rows in one tile; ask for fewer lanes at once")
    if by not in (None, "type", "scope"):
        raise UsageError(f"no names by '{by}'; expected type or scope")
    kept = "max-age=31536000, immutable" if v == opened.version else "no-cache"
    content = tiles.tile(opened.timeline, chosen, level, index, by)
    return Response(content, media_type="application/octet-stream", headers={"Cache-Control": f"private, {kept}"})


def span(opened: Opened, *, span: int, rank: int = 0) -> Response:
    known = asking.details(opened.trace, opened.timeline, rank, span)
    known |= arrows.arrows(opened.trace, opened.timeline, rank, span, opened.once)
    return _json(known | critical.part(opened.trace, opened.timeline, rank, span, known["step"], opened.once))


def search(
    opened: Opened,
    *,
    text: str = "",
    kinds: str = "",
    rank: int | None = None,
    args: bool | None = None,
    after: int | None = None,
    before: int | None = None,
    number: int | None = None,
) -> Response:
    """Without a place the first; `after` or `before` a moment the next or previous one; `number` that one, counted from 0."""
    if len(text) > _LONGEST:
        raise UsageError(f"searches for more than {_LONGEST:,} characters")
    if sum(place is not None for place in (after, before, number)) > 1:
        raise UsageError("one of after, before and number")
    wanted = text.strip(), tuple(dict.fromkeys(filter(None, kinds.split(",")))), rank, args
    found = opened.once(("search", *wanted), lambda: finding.search(opened.trace, opened.timeline, *wanted))
    chosen = number or 0
    if after is not None:
        chosen = found.before(after + 1)
    elif before is not None:
        chosen = found.before(before) - 1

    def one(number: int) -> dict[str, Any] | None:
        at = found.number(number)
        return None if at is None else asking.event(opened.timeline, at) | {"ordinal": number}

    about = {"count": found.count, "total_ns": found.total_ns, "searched": found.searched}
    return _json(about | {"first": one(0), "found": one(chosen)})


def area(opened: Opened, *, t0: int, t1: int, lanes: str = "", by: str = "name") -> Response:
    """Arrow, and in the header X-Stepscope-Area how long each group of the lanes was busy, as JSON."""
    # What was recorded, unless what was told from it is asked for.
    drawn = [lane for lane in _lanes(opened.timeline, lanes) if lane.kind == "spans" or (lanes and lane.kind != "counter")]
    key = "area", t0, t1, by, tuple(lane.id for lane in drawn)
    table = opened.once(key, lambda: summing.area(opened.timeline, drawn, t0, t1, by))
    groups = [group for group in opened.timeline.groups if any(lane.group == group.id for lane in drawn)]
    about = opened.once((*key, "groups"), lambda: summing.summary(opened.timeline, groups, t0, t1))
    headers = {"X-Stepscope-Area": msgspec.json.encode(about).decode(), "X-Stepscope-Rows": str(table.height)}
    return Response(tables.arrow(table), media_type=TYPES["arrow"], headers=headers | {"Cache-Control": "private, no-cache"})


def near(opened: Opened, *, lane: int, at: int, row: int = 0, span: int | None = None, direction: str = "at") -> Response:
    (chosen,) = _lanes(opened.timeline, str(lane))
    return _json({"event": asking.near(opened.timeline, chosen, row, at, direction, span)})


def gaps(opened: Opened, *, group: int, t0: int = 0, t1: int | None = None) -> Response:
    groups, high = opened.timeline.groups, opened.timeline.end if t1 is None else t1
    if group >= len(groups):
        raise UsageError(f"no group {group}; expected 0 to {len(groups) - 1}")
    return _json({"gaps": asking.gaps(opened.trace, opened.timeline, groups[group], t0, high, opened.once)})


def path(opened: Opened, *, at: int, rank: int = 0) -> Response:
    """The piece of the critical path at a moment, with its span."""
    return _json({"piece": critical.at(opened.trace, opened.timeline, rank, at, opened.once)})


Answer = Callable[..., Response]
# What each address answers: the words of its path and of its query are the keyword-only parameters, checked before it is called.
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


def _lanes(timeline: Timeline, said: str) -> list[Lane]:
    """The lanes of `0,3`, in the order of the words; all of them where nothing is said."""
    if not said:
        return timeline.lanes
    numbers = [parameters.value(int, "lane", word) for word in said.split(",")]
    for number in numbers:
        if number >= len(timeline.lanes):
            raise UsageError(f"no lane {number}; expected 0 to {len(timeline.lanes) - 1}")
    if len(set(numbers)) < len(numbers):
        raise UsageError("lanes names a lane twice")
    return [timeline.lanes[number] for number in numbers]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "private, no-cache"})
