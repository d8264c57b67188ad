"""What changes while one looks: the list of runs, and runs that are still being recorded. Sent as events."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import captures, conversion, store
from stepscope.errors import DataError
from stepscope.web.runs import Run

POLL_S = 2.0
_PATIENCE = 10  # times as long as a look takes, the next one waits: thousands of runs, or a slow file system
_GROWN_S = 1.0
_QUIET = 7  # polls without news before a sign of life
_SAMPLES = 2000  # of a counter, at most, in one event: the latest
_STEPS = 5000


class Watch:
    """Looks at the folders every two seconds for as long as someone listens."""

    def __init__(self, rows: Callable[[], Awaitable[list[dict[str, Any]]]]) -> None:
        self._rows = rows
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Something changed, and it is known: nobody need wait for the next look."""
        self._news.set()
        self._news = asyncio.Event()

    async def changes(self, ending: asyncio.Event) -> AsyncIterator[tuple[str, Any]]:
        known = await self._rows()
        yield "runs", {"runs": len(known)}
        quiet, took = 0, 0.0
        while not await _over(ending, max(POLL_S, _PATIENCE * took), self._news):
            began = time.monotonic()
            rows = await self._rows()
            took = time.monotonic() - began
            if rows != known:
                known, quiet = rows, 0
                yield "runs", {"runs": len(known)}
            elif (quiet := quiet + 1) % _QUIET == 0:
                yield "", None


async def states(
    run: Run, again: Callable[[], Awaitable[Run | None]], threaded: Callable[[Callable[[], Any]], Awaitable[Any]], ending: asyncio.Event
) -> AsyncIterator[tuple[str, Any]]:
    """Event "state" with what was recorded since the one before, as it grows; "finished" when the recording is over."""
    following = [Following(source.path) for source in run.sources if source.format == "capture"]
    quiet = 0
    now: Run | None = run
    while now is not None and now.state == "live":
        parts = await threaded(lambda: [one.news() for one in following])
        if any(part["steps"]["step"] or part["counters"] or part["pipeline"] for part in parts) or not quiet:
            quiet = 0
            yield "state", {"now_ns": str(time.time_ns() - (following[0].ahead_ns if following else 0)), "ranks": parts}
        elif quiet % _QUIET == 0:
            yield "", None
        quiet += 1
        if await _over(ending, _GROWN_S):
            return
        now = await again()
    # What was written last, between the look before and the end.
    parts = await threaded(lambda: [one.rest() for one in following]) if run.state == "live" else []
    if any(part["steps"]["step"] or part["counters"] or part["pipeline"] for part in parts):
        yield "state", {"now_ns": str(time.time_ns()), "ranks": parts}
    yield "finished", {"id": run.id}


class Following:
    """The capture of one rank: what of it has been told, by the files that had been written. Moments are counted from `origin_ns`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: set[Path] = set()
        self._last_step: int | None = None
        self._header: dict[str, Any] = {}
        self.ahead_ns = 0  # of the recording's clock is the wall clock, which may have been set since it began

    def rest(self) -> dict[str, Any]:
        """`news` of a recording that is over. Its capture may have become a run folder meanwhile, which has the steps."""
        found = self.news()
        if not self._folder.is_dir():
            try:
                marked = store.read(conversion.run_of(self._folder)).steps.filter(pl.col("how").cast(pl.String) != "whole")
                steps = marked.select(_OF_STEP).sort("start_ns").collect()
            except (DataError, pl.exceptions.PolarsError):  # who opens the run is told
                return found
            later = steps if self._last_step is None else steps.filter(pl.col("step") > self._last_step)
            columns = {name: later[name].to_numpy().astype(np.int64) for name in _OF_STEP}
            more, left_out = self._latest_steps(columns, int(found["origin_ns"]))
            found["steps"] = {name: [*values, *more[name]] for name, values in found["steps"].items()}
            found["steps_left_out"] += left_out
        return found

    def news(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            self._header = captures.header(self._folder)
        header = self._header
        self.ahead_ns = captures.clock_ahead_ns(header)
        began = header.get("start_ns")
        origin = began if isinstance(began, int) else 0
        said = {key: header.get(key) for key in ("rank", "world_size", "pid", "program", "framework")}
        steps, left_out = self._steps(origin)
        return {
            **said,
            "origin_ns": str(origin),
            "steps": steps,
            "steps_left_out": left_out,
            "counters": self._counters(origin),
            "pipeline": self._pipeline(),
            "notices": [one.get("what") for one in header.get("notices", []) if isinstance(one, dict)],
        }

    def _new(self, table: str, texts: tuple[str, ...] = (), arrays: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """The pieces that were written since, if they have these columns. Who opens the run is told of damage."""
        found = []
        for file in captures.files(self._folder, table):
            if file not in self._told:
                self._told.add(file)
                try:
                    piece = captures.piece(file)
                except captures.DAMAGE:
                    continue
                if all(isinstance(piece.get(name), tuple) for name in texts) and all(hasattr(piece.get(name), "dtype") for name in arrays):
                    found.append(piece)
        return found

    def _steps(self, origin: int) -> tuple[dict[str, list[int]], int]:
        pieces = self._new("steps", arrays=_OF_STEP)
        columns = {name: np.concatenate([piece[name] for piece in pieces]) if pieces else np.zeros(0, np.int64) for name in _OF_STEP}
        return self._latest_steps(columns, origin)

    def _latest_steps(self, columns: dict[str, NDArray[Any]], origin: int) -> tuple[dict[str, list[int]], int]:
        if len(columns["step"]):
            self._last_step = int(columns["step"][-1])
        left_out = max(len(columns["step"]) - _STEPS, 0)
        step, start, end = (columns[name][left_out:] for name in _OF_STEP)
        return {"step": step.tolist(), "start_ns": (start - origin).tolist(), "dur_ns": (end - start).tolist()}, left_out

    def _counters(self, origin: int) -> list[dict[str, Any]]:
        """One row per counter; of many samples the latest, and how many came before them."""
        found: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
        for piece in self._new("counters", ("name", "unit"), ("at_ns", "value")):
            (codes, names), (units, unit_names) = piece["name"], piece["unit"]
            for code in np.unique(codes):
                own = np.flatnonzero(codes == code)
                key = _word(names, code), _word(unit_names, units[own[0]])
                found.setdefault(key, []).append((piece["at_ns"][own] - origin, piece["value"][own]))
        rows = []
        for (name, unit), parts in found.items():
            at, value = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
            order = np.argsort(at, kind="stable")[-_SAMPLES:]
            finite = [number if np.isfinite(number) else None for number in value[order].tolist()]
            rows.append({"name": name, "unit": unit, "at_ns": at[order].tolist(), "value": finite, "left_out": len(at) - len(order)})
        return rows

    def _pipeline(self) -> list[dict[str, Any]]:
        """The operators of the input pipeline: their queues' lengths are counters."""
        rows = []
        for piece in self._new("pipeline"):
            plain = {name: _plain(values) for name, values in piece.items()}
            rows += [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return rows


_OF_STEP = ("step", "start_ns", "end_ns")


def _plain(values: Any) -> list[Any]:
    if isinstance(values, tuple):
        codes, words = values
        return [_word(words, code) for code in codes.tolist()]
    return list(values.tolist())


def _word(words: list[str], code: int) -> str:
    return words[code] if code >= 0 else ""


async def _over(ending: asyncio.Event, seconds: float, *wakes: asyncio.Event) -> bool:
    """Wait so long, or until the server ends, or something wakes us; is the server ending?"""
    waits = [asyncio.ensure_future(event.wait()) for event in (ending, *wakes)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    return ending.is_set()
