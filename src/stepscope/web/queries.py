"""SQL from a page, answered by processes of their own: a query that takes too long, or too much memory, is ended without harm."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import polars as pl

from stepscope import parameters
from stepscope.errors import StepscopeError, UsageError
from stepscope.queries import Limits, Query
from stepscope.query_process import QueryProcess
from stepscope.trace import Trace

_PROCESSES = 2
_LIMITS = Limits(rows=2_000_000, size=1 << 29)
_LOOKED_S = 0.2
_HELD = 1 << 29  # a process that holds more after its answer is not kept: the libraries give memory back late
_THREADS = 4  # of a query: it may use so much more processor time

Analyse = Callable[[str, int | None, tuple[int, int] | None], Awaitable[pl.DataFrame]]


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    rank: int | None = None
    steps: str | None = None


class Asker:
    """Processes that wait for queries: started when first needed, two at most."""

    def __init__(self, limit_s: float, memory: int) -> None:
        self._limit_s = limit_s
        self._memory = memory
        self._idle: list[QueryProcess] = []
        self._all: set[QueryProcess] = set()
        self._turns = asyncio.Semaphore(_PROCESSES)

    async def ask(self, trace: Trace, said: Any, analyse: Analyse, left: Callable[[], Awaitable[bool]]) -> tuple[bytes, int]:
        """The answer as Arrow, and how many rows it has. `analyse` computes an analysis; `left` says whether the one who asked has gone."""
        try:
            asked = msgspec.convert(said, Question)
        except msgspec.ValidationError as error:
            raise UsageError(f'{error}; expected {{"sql": "select ...", "rank": null, "steps": null}}') from error
        steps = parameters.steps(asked.steps) if asked.steps else None
        async with self._turns:
            process = self._idle.pop() if self._idle else QueryProcess(self._memory, _THREADS * self._limit_s)
            self._all.add(process)
            answer = asyncio.ensure_future(_answer(process, trace, asked, steps, analyse))
            try:
                begun = asyncio.get_running_loop().time()
                while not (await asyncio.wait([answer], timeout=_LOOKED_S))[0]:
                    if asyncio.get_running_loop().time() - begun > self._limit_s:
                        raise UsageError(f"took longer than {self._limit_s:g} s and was ended; ask for fewer rows, or in `stepscope query`")
                    if await left():
                        raise UsageError("nobody waits for the answer any more")
            except BaseException:
                process.kill()
                self._all.discard(process)
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)
                raise
            if process.is_alive and process.resident < _HELD:
                self._idle.append(process)
            else:
                process.kill()
                self._all.discard(process)
            return answer.result()

    def close(self) -> None:
        for process in self._all:
            process.kill()


async def _answer(
    process: QueryProcess, trace: Trace, asked: Question, steps: tuple[int, int] | None, analyse: Analyse
) -> tuple[bytes, int]:
    query = await asyncio.to_thread(Query, process, asked.sql)
    analyses = {name: await analyse(name, asked.rank, steps) for name in query.analyses}

    def answer() -> tuple[bytes, int]:
        part = trace if asked.rank is None else trace.of_rank(asked.rank)
        part = part if steps is None else part.of_steps(*steps)
        return query.answer(part, analyses, _LIMITS, ended=lambda: not process.is_alive)

    try:
        return await asyncio.to_thread(answer)
    except (OSError, pl.exceptions.PolarsError) as error:  # the files have gone, or changed
        raise StepscopeError((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
