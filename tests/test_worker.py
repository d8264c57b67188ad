"""Worker processes: messages in both directions, errors, cancellation, and the end of the parent."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from stepscope.errors import DataError, StepscopeError, UsageError
from stepscope.process.worker import Parent, Worker, WorkerEndedError


def serve(greeting: str) -> None:
    """The function of the worker in these tests."""
    parent = Parent()
    print("this text is no answer", flush=True)
    for (command, *values), content in parent.requests():
        if command == "echo":
            parent.progress(1, 2)
            parent.reply([greeting, *values], content)
        elif command == "error":
            parent.fail(ERRORS[values[0]])
        elif command == "exit":
            os._exit(values[0])
        elif command == "hang":
            signal.pause()


ERRORS: dict[str, Exception] = {
    "usage": UsageError("no such table"),
    "data": DataError("trace.json", "truncated", "byte 7"),
    "memory": MemoryError(),
    "polars": pl.exceptions.ColumnNotFoundError("no column\nand more"),
    "other": ValueError("a bug"),
}


class CancelError(StepscopeError):
    pass


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with Worker("test_worker:serve", "hello") as started:
        yield started


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_a_message_and_its_content_come_back(worker: Worker, size: int) -> None:
    progress: list[tuple[int, int]] = []
    assert worker.ask(("echo", 1, "two"), b"x" * size) == (["hello", 1, "two"], b"x" * size)
    assert worker.ask(("echo",), on_progress=lambda done, total: progress.append((done, total))) == (["hello"], b"")
    assert worker.is_alive and set(progress) <= {(0, 0), (1, 2)}


@pytest.mark.parametrize("name", ["usage", "data"])
def test_an_error_is_raised_in_the_parent_and_the_worker_goes_on(worker: Worker, name: str) -> None:
    with pytest.raises(type(ERRORS[name])) as raised:
        worker.ask(("error", name))
    assert str(raised.value) == str(ERRORS[name])
    assert worker.ask(("echo",))[0] == ["hello"]


def test_errors_of_libraries_are_one_line(worker: Worker) -> None:
    with pytest.raises(pl.exceptions.PolarsError, match=r"^no column$"):
        worker.ask(("error", "polars"))
    with pytest.raises(MemoryError):
        worker.ask(("error", "memory"))
    with pytest.raises(RuntimeError, match=r"^ValueError: a bug$") as raised:
        worker.ask(("error", "other"))
    assert "a bug" in str(raised.value.__cause__)


@pytest.mark.parametrize("status", [0, 3])
def test_a_worker_that_ends_is_an_error_with_its_status(worker: Worker, status: int) -> None:
    with pytest.raises(WorkerEndedError, match=f"status {status}") as raised:
        worker.ask(("exit", status))
    assert raised.value.status == status and not worker.is_alive
    with pytest.raises(WorkerEndedError):
        worker.ask(("echo",))


def test_an_exception_in_on_progress_kills_the_worker(worker: Worker) -> None:
    def cancel(done: int, total: int) -> None:
        raise CancelError

    with pytest.raises(CancelError):
        worker.ask(("hang",), on_progress=cancel)
    assert not worker.is_alive
