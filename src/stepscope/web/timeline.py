"""The timeline of a run: what each address below `timeline` answers. One is built per run, and the last few are kept."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.responses import Response

from stepscope import parameters, pyramid
from stepscope.errors import UsageError
from stepscope.timelines import lanes, tiles
from stepscope.timelines.lanes import Lane, Timeline
from stepscope.trace import Trace

_KEPT = 8
_ROWS = 64  # in one tile: what a client may ask for at most

Words = dict[str, str]


class Opened(msgspec.Struct, frozen=True):
    """A timeline, the trace that it is of, and a name for the state of both."""

    trace: Trace
    timeline: Timeline
    version: str


class Timelines:
    """The timelines that are open, the longest unused forgotten first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, asyncio.Future[Opened]] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, "stepscope-timeline")

    async def of(self, trace: Trace, version: str) -> Opened:
        found = self._open.get(version)
        if found is None or (found.done() and found.exception() is not None):
            found = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._pool, _opened, trace, version))
            self._open[version] = found
            while len(self._open) > _KEPT:
                self._open.popitem(last=False)
        self._open.move_to_end(version)
        return await asyncio.shield(found)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _opened(trace: Trace, version: str) -> Opened:
    return Opened(trace, lanes.build(trace), version)


def overview(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    parameters.values(words, {}, "timeline")
    found = opened.timeline
    return _json(
        {
            "origin_ns": str(found.origin),
            "end_ns": found.end,
            "top_level": found.pyramid.top,
            "buckets": pyramid.BUCKETS,
            "version": opened.version,
            "events": found.spans,
            "kinds": lanes.KINDS,
            "groups": found.groups,
            "lanes": found.lanes,
        }
    )


def tile(opened: Opened, path: Mapping[str, Any], words: Words) -> Response:
    level, index = path["level"], path["index"]
    if level > 50 or index + 1 << level + pyramid.BUCKETS_LOG2 > 1 << 62:
        raise UsageError(f"no tile {index} of level {level}")
    chosen = _lanes(opened.timeline, words.pop("lanes", ""))
    if sum(lane.rows for lane in chosen) > _ROWS and len(chosen) > 1:
        raise UsageError(f"more than {_ROWS} rows in one tile; ask for fewer lanes at once")
    version, by = words.pop("v", ""), words.pop("by", None)
    if by not in (None, "type", "scope"):
        raise UsageError(f"no names by '{by}'; there are type, scope")
    parameters.values(words, {}, "timeline/tiles")
    kept = "max-age=31536000, immutable" if version == opened.version else "no-cache"
    content = tiles.tile(opened.timeline, chosen, level, index, by)
    return Response(content, media_type="application/octet-stream", headers={"Cache-Control": f"private, {kept}"})


Answer = Callable[[Opened, Mapping[str, Any], Words], Response]
ROUTES: dict[str, Answer] = {
    "": overview,
    "/tiles/{level:int}/{index:int}": tile,
}


def _lanes(timeline: Timeline, said: str) -> list[Lane]:
    """The lanes of `0,3`, in the order of the words; all of them where nothing is said."""
    if not said:
        return timeline.lanes
    numbers = [parameters.value(int, "lanes", word) for word in said.split(",")]
    for number in numbers:
        if not 0 <= number < len(timeline.lanes):
            raise UsageError(f"no lane {number}; there are 0 to {len(timeline.lanes) - 1}")
    return [timeline.lanes[number] for number in numbers]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "private, no-cache"})
