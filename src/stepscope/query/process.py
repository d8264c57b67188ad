"""The process that answers SQL, as seen from outside."""

import os
import signal
import subprocess
from typing import Any

from stepscope.errors import StepscopeError, UsageError
from stepscope.process.worker import Parent, Worker, WorkerEndedError

MEMORY = 2 * 10**9  # bytes that a query may use, and bytes of the tables that it reads


class QueryProcess(Worker):
    """A locked process that answers one query after another (`engine`). It reads no file: the tables are sent to it."""

    def __init__(self, memory: int = MEMORY, cpu_s: float | None = None) -> None:
        self.memory = memory
        env = os.environ | {"POLARS_MAX_THREADS": "4"}  # it only decodes and encodes with Polars, and each thread takes memory
        super().__init__(f"{__name__}:serve", memory, cpu_s, env=env, stderr=subprocess.DEVNULL)

    def send_batch(self, table: str, content: bytes | memoryview) -> None:
        """More rows of a table, as Arrow."""
        try:
            self.send(("batch", table), content)
        except WorkerEndedError as error:
            raise self._failure(error) from None

    def call(self, function: str, *values: Any) -> Any:
        """The result of a function of the engine, and its content where it has one."""
        try:
            reply, content = self.ask((function, *values))
        except WorkerEndedError as error:
            raise self._failure(error) from None
        return (reply, content) if content else reply

    def _failure(self, error: WorkerEndedError) -> StepscopeError:
        if error.status == -signal.SIGABRT:  # how the libraries end when an allocation fails
            return UsageError(too_large(self.memory))
        if error.status == -signal.SIGXCPU:
            return UsageError("the query used up its processor time; ask for fewer rows, or use `stepscope query`")
        return StepscopeError("the query process ended; did it run out of memory? Ask for fewer rows")


def serve(memory: int, cpu_s: float | None) -> None:
    """In the process: answer queries, or report that DuckDB is missing."""
    parent = Parent()
    try:
        from stepscope.query import engine
    except ImportError:
        for _ in parent.requests():
            parent.fail(StepscopeError("SQL needs DuckDB, which cannot be imported: pip install duckdb"))
    engine.serve(parent, memory, cpu_s)


def too_large(memory: int) -> str:
    """The message for a query that does not fit into memory."""
    how = "ask for fewer rows or columns, or allow more with `stepscope query --memory`"
    return f"the query needed more than {gigabytes(memory)} of memory; {how}"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
