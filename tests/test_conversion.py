"""Recordings read in processes of their own: the same trace, and an end at any moment that leaves nothing behind."""

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stepscope
from settling import until
from stepscope.errors import DataError, StepscopeError
from stepscope.io import conversion, store
from stepscope.io.conversion import Task, Workers, read_in, start_worker
from stepscope.process.compiled import library

SAMPLE = next((Path(__file__).parent / "samples" / "chrome").rglob("*.json*"))


class StopError(StepscopeError):
    """Nobody waits any more."""


def task(path: Path, room: Path, format: str = "chrome", *, partial: bool = False) -> Task:
    room.mkdir(parents=True, exist_ok=True)
    return Task(str(path), format, str(room), partial, None)


def stuck(folder: Path) -> Path:
    """A file whose reading never ends, and that inside a call into the system: a pipe that nobody writes to."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def descendants(pid: int) -> list[int]:
    """Processes that were started below one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def gone(pids: list[int]) -> bool:
    """Whether they end. A process that ended and was not waited for counts as gone."""
    return until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def large(path: Path, events: int = 400_000) -> Path:
    row = '{"ph":"X","cat":"cpu_op","name":"op%d","pid":1,"tid":1,"ts":%d,"dur":0.5}'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"traceEvents":[' + ",".join(row % (number % 100, number) for number in range(events)) + "]}")
    assert path.stat().st_size > conversion.LARGE
    return path


def test_a_process_reads_what_this_one_reads_and_is_used_again(tmp_path: Path) -> None:
    process = start_worker()
    try:
        for number in range(2):
            read_in(process, task(SAMPLE, tmp_path / str(number)), lambda done, total: None)
            assert process.is_alive
    finally:
        process.kill()
    conversion.read_here(task(SAMPLE, tmp_path / "here"), lambda done, total: None)
    tables = [store.read(tmp_path / name / "run").tables for name in ("0", "1", "here")]
    for name, frame in tables[2].items():
        assert all(frame.collect().equals(one[name].collect()) for one in tables[:2]), name
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["run"]
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "0" / "run").iterdir()} == {0}


def test_errors_are_the_same_as_here_and_the_process_goes_on(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}, {"ph"')
    process = start_worker()
    try:
        output: list[Any] = []
        for read in (functools.partial(read_in, process), conversion.read_here):
            with pytest.raises(DataError) as found:
                read(task(cut, tmp_path / f"room{len(output)}"), lambda done, total: None)
            output.append((type(found.value), found.value.path, found.value.what, found.value.where))
        assert output[0] == output[1] and output[0][0] is DataError
        with pytest.raises(DataError, match="No such file or directory"):
            read_in(process, task(tmp_path / "none.json", tmp_path / "room2"), lambda done, total: None)
        assert process.is_alive
    finally:
        process.kill()


def test_a_reading_that_hangs_is_stopped(tmp_path: Path) -> None:
    process, calls = start_worker(), [0]

    def progress(done: int, total: int) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise StopError

    with pytest.raises(StopError):
        read_in(process, task(stuck(tmp_path), tmp_path / "room"), progress)
    assert not process.is_alive


def test_a_process_that_is_killed_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    process, path = start_worker(), stuck(tmp_path)

    def progress(done: int, total: int) -> None:
        os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(DataError, match=r"pipe: the process that read it ended \(signal 9; did memory run out\?\)"):
        read_in(process, task(path, tmp_path / "room"), progress)


def test_what_hangs_keeps_nothing_else_from_being_read(tmp_path: Path) -> None:
    workers, wanted = Workers(at_once=2, most=3, patience_s=0), threading.Event()
    errors: list[BaseException] = []

    def progress(done: int, total: int) -> None:
        if wanted.is_set():
            raise StopError

    def hang(number: int) -> None:
        try:
            workers.read(task(stuck(tmp_path / str(number)), tmp_path / f"room{number}"), progress)
        except StopError as error:
            errors.append(error)

    threads = [threading.Thread(target=hang, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        workers.read(task(SAMPLE, tmp_path / "other"), lambda done, total: None)
        assert store.sniff(tmp_path / "other" / "run")
    finally:
        wanted.set()
        for thread in threads:
            thread.join(60)
        workers.close()
    assert len(errors) == 2 and not any(thread.is_alive() for thread in threads)


def test_a_process_that_ended_while_nobody_asked_is_replaced(tmp_path: Path) -> None:
    workers = Workers()
    try:
        for number in range(2):
            workers.read(task(SAMPLE, tmp_path / str(number)), lambda done, total: None)
            (process,) = workers._idle
            process._process.kill()
            process._process.wait()
        assert store.sniff(tmp_path / "1" / "run")
    finally:
        workers.close()


def test_who_waits_for_a_turn_can_be_stopped(tmp_path: Path) -> None:
    workers, calls = Workers(at_once=0), [0]

    def progress(done: int, total: int) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise StopError

    with pytest.raises(StopError):
        workers.read(task(SAMPLE, tmp_path / "room"), progress)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_a_process_ends_with_the_one_that_asked_it(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from stepscope.io.conversion import Task, read_in, start_worker\n"
        "calls = []\n"
        "def progress(done, total):\n"
        "    calls.append(0)\n"
        "    len(calls) == 2 and print('reading', flush=True)\n"
        "read_in(start_worker(), Task(sys.argv[1], 'chrome', sys.argv[2], False, None), progress)\n"
    )
    (tmp_path / "room").mkdir()
    words = [sys.executable, "-c", code, str(stuck(tmp_path)), str(tmp_path / "room")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None and asking.stdout.readline() == "reading\n"
        below = descendants(asking.pid)
        assert below
        asking.kill()
        asking.wait()
    assert gone(below)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("decoder", ["python", "native"])
def test_a_command_that_is_ended_while_a_large_file_is_read_leaves_nothing_behind(
    number: int, code: int, decoder: str, tmp_path: Path
) -> None:
    if decoder == "native" and library.load() is None:
        pytest.skip("the scanner is not compiled")
    file = large(tmp_path / "data" / "large.json", 400_000 if decoder == "python" else 1_500_000)
    places = {"STEPSCOPE_CACHE": tmp_path / "cache", "TMPDIR": tmp_path / "tmp"}
    places["TMPDIR"].mkdir()
    environment = os.environ | {name: str(path) for name, path in places.items()} | {"STEPSCOPE_SCANNER": decoder}
    with subprocess.Popen([sys.executable, "-m", "stepscope", "summary", str(file)], env=environment, stderr=subprocess.PIPE) as process:
        assert until(lambda: process.poll() is not None or list(tmp_path.glob("cache/.reading.*/scratch/*")))  # the first columns
        assert process.poll() is None
        below = descendants(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, b"")
    assert gone(below)
    assert bool(below) == (decoder == "python")  # a scan needs no process of its own
    assert [path for place in places.values() for path in place.rglob("*")] == []


def test_a_large_file_that_is_read_apart_is_the_same_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "LARGE", 0)
    with conversion.large_apart() as read:
        apart = stepscope.open(SAMPLE, cache=False, read=read)
    here = stepscope.open(SAMPLE, cache=False)
    assert apart.spans.collect().equals(here.spans.collect()) and apart.meta == here.meta
