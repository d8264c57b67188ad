"""Live events: changes of the list of runs, and the growth of runs that are being recorded."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.errors import DataError
from stepscope.io import store
from stepscope.model import captures
from stepscope.server.runs import Run

POLL_S = 2.0
_PAUSE = 10  # the pause between two scans, in durations of a scan: there may be thousands of runs, or a slow file system
_GROWTH_S = 1.0
_QUIET = 7  # polls without a change before a comment is sent
_SAMPLES = 2000  # of a counter in one event: the latest
_STEPS = 5000


class Watch:
    """Scans the folders every two seconds while a client listens."""

    def __init__(self, rows: Callable[[], Awaitable[list[dict[str, Any]]]]) -> None:
        self._rows = rows
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Scan now: something changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self, ending: asyncio.Event) -> AsyncIterator[tuple[str, Any]]:
        rows = await self._rows()
        yield "runs", {"runs": len(rows)}
        quiet, took = 0, 0.0
        while not await _is_ending(ending, max(POLL_S, _PAUSE * took), self._changed):
            began, before = time.monotonic(), rows
            rows = await self._rows()
            took = time.monotonic() - began
            if rows != before:
                quiet = 0
                yield "runs", {"runs": len(rows)}
            elif (quiet := quiet + 1) % _QUIET == 0:
                yield "", None


async def states(
    run: Run, current: Callable[[], Awaitable[Run | None]], threaded: Callable[[Callable[[], Any]], Awaitable[Any]], ending: asyncio.Event
) -> AsyncIterator[tuple[str, Any]]:
    """Events "state" with the data recorded since the previous one; "finished" when the recording has ended."""
    captures = [CaptureTail(source.path) for source in run.sources if source.format == "capture"]
    quiet = 0
    now: Run | None = run
    while now is not None and now.state == "live":
        parts = await threaded(lambda: [capture.new_data() for capture in captures])
        if any(part["steps"]["step"] or part["counters"] or part["pipeline"] for part in parts) or not quiet:
            quiet = 0
            yield "state", {"now_ns": str(time.time_ns() - (captures[0].ahead_ns if captures else 0)), "ranks": parts}
        elif quiet % _QUIET == 0:
            yield "", None
        quiet += 1
        if await _is_ending(ending, _GROWTH_S):
            return
        now = await current()
    # Data that was written between the last poll and the end.
    parts = await threaded(lambda: [capture.last_data() for capture in captures]) if run.state == "live" else []
    if any(part["steps"]["step"] or part["counters"] or part["pipeline"] for part in parts):
        yield "state", {"now_ns": str(time.time_ns()), "ranks": parts}
    yield "finished", {"id": run.id}


class CaptureTail:
    """The data of one rank's capture that was not sent yet. Times count from `origin_ns`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: set[Path] = set()
        self._last_step: int | None = None
        self._header: dict[str, Any] = {}
        self.ahead_ns = 0  # wall clock minus the clock of the recording: the wall clock may have been set since

    def last_data(self) -> dict[str, Any]:
        """The rest of a recording that has ended. Its capture may have become a run folder, which contains the steps."""
        data = self.new_data()
        if not self._folder.is_dir():
            try:
                marked = store.read(captures.run_folder(self._folder)).steps.filter(pl.col("how").cast(pl.String) != "whole")
                steps = marked.select(_STEP_COLUMNS).sort("start_ns").collect()
            except (DataError, pl.exceptions.PolarsError):  # opening the run reports it
                return data
            later = steps if self._last_step is None else steps.filter(pl.col("step") > self._last_step)
            columns = {name: later[name].to_numpy().astype(np.int64) for name in _STEP_COLUMNS}
            more, left_out = self._latest_steps(columns, int(data["origin_ns"]))
            data["steps"] = {name: [*values, *more[name]] for name, values in data["steps"].items()}
            data["steps_left_out"] += left_out
        return data

    def new_data(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            self._header = captures.header(self._folder)
        header = self._header
        self.ahead_ns = captures.clock_ahead_ns(header)
        start = header.get("start_ns")
        origin = start if isinstance(start, int) else 0
        steps, left_out = self._steps(origin)
        return {
            **{key: header.get(key) for key in ("rank", "world_size", "pid", "program", "framework")},
            "origin_ns": str(origin),
            "steps": steps,
            "steps_left_out": left_out,
            "counters": self._counters(origin),
            "pipeline": self._pipeline(),
            "notices": [notice.get("what") for notice in header.get("notices", []) if isinstance(notice, dict)],
        }

    def _new(self, table: str, texts: tuple[str, ...] = (), arrays: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """The new pieces that have these columns. Damaged pieces are skipped: opening the run reports them."""
        pieces = []
        for file in captures.files(self._folder, table):
            if file not in self._sent:
                self._sent.add(file)
                try:
                    piece = captures.piece(file)
                except captures.DAMAGE:
                    continue
                if all(isinstance(piece.get(name), tuple) for name in texts) and all(hasattr(piece.get(name), "dtype") for name in arrays):
                    pieces.append(piece)
        return pieces

    def _steps(self, origin: int) -> tuple[dict[str, list[int]], int]:
        pieces = self._new("steps", arrays=_STEP_COLUMNS)
        columns = {name: np.concatenate([piece[name] for piece in pieces]) if pieces else np.zeros(0, np.int64) for name in _STEP_COLUMNS}
        return self._latest_steps(columns, origin)

    def _latest_steps(self, columns: dict[str, NDArray[Any]], origin: int) -> tuple[dict[str, list[int]], int]:
        if len(columns["step"]):
            self._last_step = int(columns["step"][-1])
        left_out = max(len(columns["step"]) - _STEPS, 0)
        step, start, end = (columns[name][left_out:] for name in _STEP_COLUMNS)
        return {"step": step.tolist(), "start_ns": (start - origin).tolist(), "dur_ns": (end - start).tolist()}, left_out

    def _counters(self, origin: int) -> list[dict[str, Any]]:
        """One row per counter: its latest samples, and the number of samples before them."""
        counters: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
        for piece in self._new("counters", ("name", "unit"), ("at_ns", "value")):
            (codes, names), (units, unit_names) = piece["name"], piece["unit"]
            for code in np.unique(codes):
                chosen = np.flatnonzero(codes == code)
                key = _word(names, code), _word(unit_names, units[chosen[0]])
                counters.setdefault(key, []).append((piece["at_ns"][chosen] - origin, piece["value"][chosen]))
        rows = []
        for (name, unit), parts in counters.items():
            at, value = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
            order = np.argsort(at, kind="stable")[-_SAMPLES:]
            finite = [number if np.isfinite(number) else None for number in value[order].tolist()]
            rows.append({"name": name, "unit": unit, "at_ns": at[order].tolist(), "value": finite, "left_out": len(at) - len(order)})
        return rows

    def _pipeline(self) -> list[dict[str, Any]]:
        """The operators of the input pipeline; the lengths of their queues are counters."""
        rows = []
        for piece in self._new("pipeline"):
            plain = {name: _plain(values) for name, values in piece.items()}
            rows += [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return rows


_STEP_COLUMNS = ("step", "start_ns", "end_ns")


def _plain(values: Any) -> list[Any]:
    if isinstance(values, tuple):
        codes, words = values
        return [_word(words, code) for code in codes.tolist()]
    return list(values.tolist())


def _word(words: list[str], code: int) -> str:
    return words[code] if code >= 0 else ""


async def _is_ending(ending: asyncio.Event, seconds: float, *wakes: asyncio.Event) -> bool:
    """Wait for some time, a wake-up or the end of the server. Returns whether the server is ending."""
    waits = [asyncio.ensure_future(event.wait()) for event in (ending, *wakes)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return ending.is_set()
