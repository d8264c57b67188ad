"""The runs that the tools may open, and their tables."""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from stepscope.errors import DataError, UsageError
from stepscope.model.parameters import nearest
from stepscope.model.trace import Trace
from stepscope.query.process import MEMORY
from stepscope.server.answers import Answers, Question
from stepscope.server.routes.queries import QueryPool
from stepscope.server.runs import LARGE, Run, RunList
from stepscope.server.traces import Opening, Signature, Traces

_T = TypeVar("_T")
Report = Callable[[float, float | None, str], Awaitable[None]]
_THREADS = 4
_QUERY_S = 60.0
_REPORT_S = 1.0  # between two reports of progress
_NAMED = 10  # runs in the message of an error
_SHOWN = 200  # characters of a name that does not exist


class OpenRun:
    """A run with its trace."""

    def __init__(self, run: Run, trace: Trace, info: dict[str, Any], signature: Signature) -> None:
        self.run, self.trace, self.info = run, trace, info
        self.key = (run.id, signature)


class Library:
    """The runs below the served folders: opened once, and again when their files change."""

    def __init__(self, folders: list[Path], *, partial: bool = False, step_name: str | None = None, cache: bool = True) -> None:
        self.folders = folders
        self._scratch = Path(tempfile.mkdtemp(prefix="stepscope.mcp."))  # readable for its owner only
        self._list = RunList(folders)
        self._traces = Traces(self._scratch, partial=partial, step_name=step_name, cache=cache)
        self._answers = Answers()
        self._queries = QueryPool(_QUERY_S, MEMORY)
        self._pool = ThreadPoolExecutor(_THREADS, "stepscope-answer")
        self._waiting: Counter[str] = Counter()
        self._scan_lock = asyncio.Lock()
        self._large_turn = asyncio.Semaphore(1)  # two analyses of large runs at a time would need too much memory

    def close(self) -> None:
        self._traces.close()
        self._queries.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def threaded(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def runs(self) -> list[Run]:
        """All runs that are there now."""
        async with self._scan_lock:
            return await self.threaded(self._list.scan)

    async def find(self, word: str | None) -> Run:
        """The run with this id, name or path. Without a word, the only run."""
        run = self._list.run(word) if word else None
        if run is None or run.state == "live" or not await self.threaded(run.exists):
            run = self._choose(word, await self.runs())
        if not run.sources:
            raise DataError(run.path, run.error or "cannot be read")
        return run

    async def open(self, word: str | None, report: Report) -> OpenRun:
        """A run, read if necessary. Reading stops when no call waits for it."""
        run = await self.find(word)
        opening = await self._traces.open(run)
        self._waiting[run.id] += 1
        try:
            trace, info = await _reported(opening, report)
        except asyncio.CancelledError:
            if self._waiting[run.id] == 1:
                self._traces.cancel(run)
            raise
        finally:
            self._waiting[run.id] -= 1
        return OpenRun(run, trace, info, opening.signature)

    async def analysis(self, opened: OpenRun, question: Question) -> pl.DataFrame:
        """All rows of an analysis."""

        def compute() -> pl.DataFrame:
            return self._answers.analysis(opened.trace, question, opened.key)

        if opened.info["tables"]["spans"] > LARGE and question.steps is None:
            async with self._large_turn:
                return await self.threaded(compute)
        return await self.threaded(compute)

    async def query(self, opened: OpenRun, sql: str, rank: int | None, steps: str | None) -> pl.DataFrame:
        """The answer to a query, from a process that can reach neither files nor the network."""

        async def analyse(name: str, rank: int | None, steps: tuple[int, int] | None) -> pl.DataFrame:
            return await self.analysis(opened, Question("analyses", name, {}, rank, steps))

        async def has_left() -> bool:
            return False  # a call that is canceled ends here by an exception

        content, _ = await self._queries.run(opened.trace, {"sql": sql, "rank": rank, "steps": steps}, analyse, has_left)
        return pl.read_ipc_stream(content)

    def below(self, path: str) -> Path:
        """A path of the user as an absolute one. Only paths below the served folders are accepted, also behind links."""
        if "\0" in path:
            raise UsageError("the path contains a null character, which no path can")
        for folder in self.folders:
            place = Path(os.path.abspath(folder / path))  # noqa: PTH100 - links are kept, as in the list of runs
            if place.is_relative_to(folder) and place.resolve().is_relative_to(folder.resolve()) and (place.exists() or place == folder):
                return place
        inside = any(Path(os.path.abspath(folder / path)).is_relative_to(folder) for folder in self.folders)  # noqa: PTH100
        served = ", ".join(map(str, self.folders))
        if inside:
            raise UsageError(f"{path}: no such file or folder below {served}; list_runs shows the runs")
        raise UsageError(f"{path} is outside the served folders ({served}); start `stepscope mcp` with that folder as well")

    def _choose(self, word: str | None, runs: list[Run]) -> Run:
        if not runs:
            raise UsageError(f"no run below {', '.join(map(str, self.folders))}; record one with `stepscope run`")
        if not word:
            if len(runs) == 1:
                return runs[0]
            raise UsageError(f"missing run: there are {len(runs)} runs; expected the id of one: {_listed(runs)}")
        matches = [run for run in runs if run.id == word] or [run for run in runs if run.name == word]
        if not matches:
            if not _is_path(word):
                raise UsageError(f"no run '{word[:_SHOWN]}'" + (nearest(word, [run.id for run in runs]) or f"; there are {_listed(runs)}"))
            place = self.below(word)
            matches = [run for run in runs if place in (run.path, *(source.path for source in run.sources))]
            matches = matches or [run for run in runs if run.path.is_relative_to(place)]
            if not matches:
                raise UsageError(f"{word}: no run here; list_runs shows the runs")
        if len(matches) > 1:
            raise UsageError(f"'{word}' has {len(matches)} runs; expected the id of one: {_listed(matches)}")
        return matches[0]


async def _reported(opening: Opening, report: Report) -> tuple[Trace, dict[str, Any]]:
    """The result of reading, with reports of progress while it takes long."""
    result = asyncio.ensure_future(opening.result())
    try:
        while not (await asyncio.wait([result], timeout=_REPORT_S))[0]:
            progress = opening.progress()
            await report(progress["done"], progress["total"] or None, f"reading file {progress['file'] + 1} of {progress['files']}")
    except asyncio.CancelledError:
        result.cancel()
        raise
    return result.result()


def _is_path(word: str) -> bool:
    return "/" in word or os.sep in word or word.startswith(".") or bool(Path(word).suffix)


def _listed(runs: list[Run]) -> str:
    names = ", ".join(run.id for run in runs[:_NAMED])
    return names + (f" and {len(runs) - _NAMED} more (list_runs shows them)" if len(runs) > _NAMED else "")
