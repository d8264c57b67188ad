"""What changes while one looks: the list of runs, and runs that are still being recorded. Sent as events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from stepscope.web.runs import Run

POLL_S = 2.0
_QUIET = 7  # polls without news before a sign of life


class Watch:
    """Looks at the folders every two seconds for as long as someone listens."""

    def __init__(self, rows: Callable[[], Awaitable[list[dict[str, Any]]]]) -> None:
        self._rows = rows
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def changes(self, ending: asyncio.Event) -> AsyncIterator[tuple[str, Any]]:
        known = await self._rows()
        yield "runs", {"runs": len(known)}
        quiet = 0
        while not ending.is_set():
            await _pause(ending)
            rows = await self._rows()
            quiet = 0 if rows != known else quiet + 1
            if rows != known:
                known = rows
                yield "runs", {"runs": len(known)}
            elif quiet % _QUIET == 0:
                yield "", None


async def states(
    run: Run, again: Callable[[], Awaitable[Run | None]], threaded: Callable[[Callable[[], Any]], Awaitable[Any]], ending: asyncio.Event
) -> AsyncIterator[tuple[str, Any]]:
    """Event "state" whenever the recording has grown, "finished" when it is over."""
    yield "finished", {}


async def _pause(ending: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(ending.wait(), POLL_S)
    except asyncio.TimeoutError:
        return
