"""SQL queries of a page, in separate processes: a query that needs too much time or memory is ended without harm."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import StepscopeError, UsageError
from stepscope.model import parameters
from stepscope.model.trace import Trace
from stepscope.query.process import QueryProcess
from stepscope.query.queries import Limits, Query
from stepscope.server.answers import part_of_trace

_PROCESSES = 2
_LIMITS = Limits(rows=2_000_000, size=1 << 29)
_POLL_S = 0.2
_MAX_RESIDENT = 1 << 29  # a process with more memory after its answer is ended: the libraries release memory late
_THREADS = 4  # of a query: its processor time may be longer than its time by this factor

Analyse = Callable[[str, int | None, tuple[int, int] | None], Awaitable[pl.DataFrame]]


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    rank: int | None = None
    steps: str | None = None


class QueryPool:
    """Processes for queries: started on demand, two at most."""

    def __init__(self, limit_s: float, memory: int) -> None:
        self._limit_s = limit_s
        self._memory = memory
        self._idle: list[QueryProcess] = []
        self._all: set[QueryProcess] = set()
        self._turns = asyncio.Semaphore(_PROCESSES)

    async def run(self, trace: Trace, body: Any, analyse: Analyse, has_left: Callable[[], Awaitable[bool]]) -> tuple[bytes, int]:
        """The answer as Arrow, and its number of rows. `has_left` tells whether the client disconnected."""
        try:
            request = msgspec.convert(body, Request)
        except msgspec.ValidationError as error:
            raise UsageError(f'{error}; expected {{"sql": "select ...", "rank": null, "steps": null}}') from error
        steps = parameters.steps(request.steps) if request.steps else None
        async with self._turns:
            process = self._idle.pop() if self._idle else QueryProcess(self._memory, _THREADS * self._limit_s)
            self._all.add(process)
            answer = asyncio.ensure_future(_run_query(process, trace, request, steps, analyse))
            try:
                begun = asyncio.get_running_loop().time()
                while not (await asyncio.wait([answer], timeout=_POLL_S))[0]:
                    if asyncio.get_running_loop().time() - begun > self._limit_s:
                        raise UsageError(
                            f"the query took longer than {self._limit_s:g} s and was ended; select fewer rows, or use `stepscope query`"
                        )
                    if await has_left():
                        raise UsageError("the client disconnected")
            except BaseException:
                process.kill()
                self._all.discard(process)
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)
                raise
            if process.is_alive and process.resident < _MAX_RESIDENT:
                self._idle.append(process)
            else:
                process.kill()
                self._all.discard(process)
            return answer.result()

    def close(self) -> None:
        for process in self._all:
            process.kill()


async def _run_query(
    process: QueryProcess, trace: Trace, request: Request, steps: tuple[int, int] | None, analyse: Analyse
) -> tuple[bytes, int]:
    query = await asyncio.to_thread(Query, process, request.sql)
    analyses = {name: await analyse(name, request.rank, steps) for name in query.analyses}

    def answer() -> tuple[bytes, int]:
        return query.answer(part_of_trace(trace, request.rank, steps), analyses, _LIMITS, ended=lambda: not process.is_alive)

    try:
        return await asyncio.to_thread(answer)
    except (OSError, pl.exceptions.PolarsError) as error:  # the files were removed or changed
        raise StepscopeError((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
