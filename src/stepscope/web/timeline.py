"""The timeline of a run: what each address below `timeline` answers. One is built per run, and the last few are kept."""

import asyncio
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
_HIGHEST = 52  # level: one tile of it holds all that 62 bits can count
_LONGEST = 1000  # characters of what is searched for
_ROWS = 64  # of all lanes of a tile

Words = dict[str, str]


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


def overview(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    _no_more(words, "timeline")
    return _json(tiles.header(opened.timeline, opened.version))


def tile(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    level, index = path["level"], path["index"]
    if level > _HIGHEST or index + 1 << level + pyramid.BUCKETS_LOG2 > 1 << 62:
        raise UsageError(f"no tile {index} of level {level}")
    chosen = _lanes(opened.timeline, words.pop("lanes", ""))
    if sum(lane.rows for lane in chosen) > _ROWS and len(chosen) > 1:
        raise UsageError(f"more than {_ROWS} rows in one tile; ask for fewer lanes at once")
    version, by = words.pop("v", ""), words.pop("by", None)
    if by not in (None, "type", "scope"):
        raise UsageError(f"no names by '{by}'; expected type or scope")
    _no_more(words, "timeline/tiles")
    kept = "max-age=31536000, immutable" if version == opened.version else "no-cache"
    content = tiles.tile(opened.timeline, chosen, level, index, by)
    return Response(content, media_type="application/octet-stream", headers={"Cache-Control": f"private, {kept}"})


def span(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    rank, number = _number(words, "rank", 0), _number(words, "span")
    _no_more(words, "timeline/span")
    known = asking.details(opened.trace, opened.timeline, rank, number)
    known |= arrows.arrows(opened.trace, opened.timeline, rank, number, opened.once)
    return _json(known | critical.part(opened.trace, opened.timeline, rank, number, known["step"], opened.once))


def search(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    """Without a place the first; `after` or `before` a moment the next or previous one; `number` that one, counted from 0."""
    text, kinds = words.pop("text", "").strip(), tuple(filter(None, words.pop("kinds", "").split(",")))
    if len(text) > _LONGEST:
        raise UsageError(f"searches for more than {_LONGEST:,} characters")
    rank = _number(words, "rank") if "rank" in words else None
    args = parameters.value(bool, "args", words.pop("args")) if "args" in words else None
    places = {name: _number(words, name) for name in ("after", "before", "number") if name in words}
    _no_more(words, "timeline/search")
    if len(places) > 1:
        raise UsageError("one of after, before and number")
    key = "search", text, kinds, rank, args
    found = opened.once(key, lambda: finding.search(opened.trace, opened.timeline, text, kinds, rank, args))
    number = places.get("number", 0)
    if "after" in places:
        number = found.before(places["after"] + 1)
    elif "before" in places:
        number = found.before(places["before"]) - 1

    def one(number: int) -> dict[str, Any] | None:
        at = found.number(number)
        return None if at is None else asking.event(opened.timeline, at) | {"ordinal": number}

    about = {"count": found.count, "total_ns": found.total_ns, "searched": found.searched}
    return _json(about | {"first": one(0), "found": one(number)})


def area(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    """Arrow, and in the header X-Stepscope-Area how long each group of the lanes was busy, as JSON."""
    low, high = _number(words, "t0"), _number(words, "t1")
    said, by = words.pop("lanes", ""), words.pop("by", "name")
    _no_more(words, "timeline/area")
    # What was recorded, unless what was told from it is asked for.
    drawn = [lane for lane in _lanes(opened.timeline, said) if lane.kind == "spans" or (said and lane.kind != "counter")]
    key = "area", low, high, by, tuple(lane.id for lane in drawn)
    table = opened.once(key, lambda: summing.area(opened.timeline, drawn, low, high, by))
    groups = [group for group in opened.timeline.groups if any(lane.group == group.id for lane in drawn)]
    about = opened.once((*key, "groups"), lambda: summing.summary(opened.timeline, groups, low, high))
    headers = {"X-Stepscope-Area": msgspec.json.encode(about).decode(), "X-Stepscope-Rows": str(table.height)}
    return Response(tables.arrow(table), media_type=TYPES["arrow"], headers=headers | {"Cache-Control": "private, no-cache"})


def near(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    lane, row, at = _number(words, "lane"), _number(words, "row", 0), _number(words, "at")
    of = _number(words, "span") if "span" in words else None
    direction = words.pop("direction", "at")
    _no_more(words, "timeline/near")
    (chosen,) = _lanes(opened.timeline, str(lane))
    return _json({"event": asking.near(opened.timeline, chosen, row, at, direction, of)})


def gaps(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    low, high, number = _number(words, "t0", 0), _number(words, "t1", opened.timeline.end), _number(words, "group")
    _no_more(words, "timeline/gaps")
    if not 0 <= number < len(opened.timeline.groups):
        raise UsageError(f"no group {number}; expected 0 to {len(opened.timeline.groups) - 1}")
    group = opened.timeline.groups[number]
    return _json({"gaps": asking.gaps(opened.trace, opened.timeline, group, low, high, opened.once)})


def path(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    """The piece of the critical path at a moment, with its span."""
    rank, at = _number(words, "rank", 0), _number(words, "at")
    _no_more(words, "timeline/path")
    return _json({"piece": critical.at(opened.trace, opened.timeline, rank, at, opened.once)})


Answer = Callable[[Opened, Mapping[str, Any], Words], Response]
ROUTES: dict[str, Answer] = {
    "": overview,
    "/tiles/{level:int}/{index:int}": tile,
    "/span": span,
    "/search": search,
    "/area": area,
    "/near": near,
    "/gaps": gaps,
    "/path": path,
}


def _number(words: Words, name: str, default: int | None = None) -> int:
    if name not in words and default is None:
        raise UsageError(f"expected {name}")
    number: int = parameters.value(int, name, words.pop(name, str(default)))
    if not -(1 << 62) < number < 1 << 62:
        raise UsageError(f"{name} is {number}, which no moment is")
    return number


def _no_more(words: Words, what: str) -> None:
    parameters.values(words, {}, what)


def _lanes(timeline: Timeline, said: str) -> list[Lane]:
    """The lanes of `0,3`, in the order of the words; all of them where nothing is said."""
    if not said:
        return timeline.lanes
    numbers = [parameters.value(int, "lanes", word) for word in said.split(",")]
    for number in numbers:
        if not 0 <= number < len(timeline.lanes):
            raise UsageError(f"no lane {number}; expected 0 to {len(timeline.lanes) - 1}")
    return [timeline.lanes[number] for number in numbers]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "private, no-cache"})
