"""Ascend's PROF directories, one or many: what `stepscope msprof` and `Profiler.offline_analyse` do with each.

Several are worked on at the same time, by processes of their own: `python -m stepscope.prof_folders` reads a request a line and answers a
line, both JSON. Nothing in a directory is changed but what is written into `mindstudio_profiler_output`, `analyze` and `msprof_*.db`, and
what `clear` removes.
"""

import contextlib
import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import captures, conversion, exporters, readers, store, units
from stepscope.errors import DataError, StepscopeError
from stepscope.exporters import _ascend_communication
from stepscope.exporters.msprof import iterations as marked_iterations
from stepscope.readers import prof
from stepscope.trace import Trace

OUTPUT = "mindstudio_profiler_output"
RULES = ("communication", "communication_matrix")
_PROBLEMS = 10  # named at most
_DEPTH = 6  # how far below a folder directories are looked for
_TOP = 5  # iterations that are named as the longest
_DATABASE = re.compile(r".*\.db(-journal|-wal|-shm)?")


class Request(msgspec.Struct, kw_only=True):
    """What to do with one directory, in the order of the fields."""

    folder: str
    query: bool = False
    text: bool = False  # export as JSON and CSV
    database: bool = False  # export as msprof_*.db
    rules: list[str] = []  # of RULES
    clear: bool = False
    model_id: int | None = None
    iteration_id: int | None = None
    summary_format: str = "csv"
    rule_type: str = "text"
    reports: str | None = None  # a file that says which layers the timeline has
    steps: list[int] | None = None
    pretty: bool = False


class Written(msgspec.Struct):
    """A file that is there now."""

    path: str
    bytes: int
    rows: int | None = None  # of a table


class Result(msgspec.Struct, kw_only=True):
    """What became of it."""

    folder: str
    failed: str = ""  # in one line
    found: str = ""  # what was decoded, in one line
    written: list[Written] = []
    notes: list[str] = []
    table: list[list[str]] = []  # rows of `query`
    problems: int = 0
    lost: int = 0
    problem_lines: list[str] = []  # problems that lost no records, which the numbers above do not tell of
    seconds: float = 0.0


def below(path: Path) -> list[Path]:
    """The directory itself, or those below a folder. A link to a folder is not followed: it may lead round in a circle."""
    if not path.exists():
        raise DataError(path, "no such folder")
    if not path.is_dir():
        raise DataError(path, "not a folder; expected a PROF_* directory, or a folder of them")
    return list(_below(path, _DEPTH))


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if prof.sniff(folder) or re.match(r"PROF_\d+_", folder.name):
            yield folder
            return
        inside = sorted((entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(folder, error.strerror or str(error)) from error
    for entry in inside if depth else []:
        # What a capture or a run folder holds is its own.
        if not entry.name.startswith(".") and not entry.name.endswith(captures.SUFFIX) and not store.sniff(Path(entry.path)):
            yield from _below(Path(entry.path), depth - 1)


# Many at the same time


def each(requests: list[Request], workers: int | None = None) -> Iterator[Result]:
    """The results, as they come. One directory is worked on here, several by as many processes as there are processors."""
    count = min(len(requests), workers or _processors())
    if count <= 1:
        yield from (done(request) for request in requests)
        return
    mine = threading.local()
    started: list[_Worker] = []

    def ask(request: Request) -> Result:
        if getattr(mine, "worker", None) is None:
            mine.worker = _Worker()
            started.append(mine.worker)
        result: Result | None = mine.worker.ask(request)
        if result is None:
            status, mine.worker = mine.worker.status(), None
            return Result(folder=request.folder, failed=f"the process that worked on it ended ({status})")
        return result

    with ThreadPoolExecutor(count) as pool:
        try:
            for future in as_completed([pool.submit(ask, request) for request in requests]):
                yield future.result()
        except BaseException:  # nobody waits for the others any more
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in started:
                worker.process.kill()
            raise
        finally:
            for worker in started:
                worker.leave()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A process that does what it is asked, one request after another."""

    def __init__(self) -> None:
        ours = str(Path(__file__).parent.parent)
        environ = {name: value for name, value in os.environ.items() if name not in ("MS_PROFILER_OPTIONS", "STEPSCOPE_RUN")}
        environ["PYTHONPATH"] = os.pathsep.join([ours, *filter(None, [environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stepscope.prof_folders"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )

    def ask(self, request: Request) -> Result | None:
        """None where the process is no more."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(msgspec.json.encode(request) + b"\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            return msgspec.json.decode(answer, type=Result) if answer else None
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    def status(self) -> str:
        code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}: memory may have run out" if code < 0 else f"status {code}"

    def leave(self) -> None:
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# One


def done(request: Request) -> Result:
    """Do all that is asked with one directory; what goes wrong is told in a line."""
    began = time.monotonic()
    result = Result(folder=request.folder)
    try:
        _do(request, result)
    except StepscopeError as error:
        result.failed = str(error).removeprefix(f"{request.folder}: ")
    except MemoryError:
        result.failed = "out of memory"
    except OSError as error:
        what = error.strerror or str(error)
        result.failed = f"{error.filename}: {what}" if error.filename else what
    except Exception as error:  # noqa: BLE001  one directory of many: the others are done all the same
        result.failed = f"internal error: {type(error).__name__}: {(str(error).splitlines() or [''])[0]} (please report it)"
    result.seconds = time.monotonic() - began
    return result


def _do(request: Request, result: Result) -> None:
    folder = Path(request.folder)
    if request.query or request.text or request.database or request.rules or not request.clear:
        if not prof.sniff(folder):
            raise DataError(folder, "no raw data in it; expected host/data or device_N/data with files in them")
        with tempfile.TemporaryDirectory(prefix="stepscope.") as scratch:
            trace = readers.read(folder, "prof", readers.Options(scratch=Path(scratch)))
            trace.meta.source = request.folder
            result.found = _told(trace)
            lost = trace.problems.filter(pl.col("lost") > 0).select(pl.len(), pl.col("lost").sum()).collect()
            result.problems, result.lost = lost.row(0)
            result.problem_lines = _problem_lines(trace)
            if request.query:
                result.table = _table(folder, trace)
            _write(request, result, folder, conversion.of_steps(trace, request.steps) if request.steps else trace)
    if request.clear:
        result.notes += _clear(folder)


def _problem_lines(trace: Trace) -> list[str]:
    rows = trace.problems.filter(pl.col("lost") == 0, pl.col("file").fill_null("") != "").select("file", "where", "what").collect().rows()
    lines = [f"{' '.join(filter(None, (file, where)))}: {what}" for file, where, what in rows]
    return lines if len(lines) <= _PROBLEMS else [*lines[:_PROBLEMS], f"{len(lines) - _PROBLEMS} more; see `stepscope show problems`"]


def _write(request: Request, result: Result, folder: Path, trace: Trace) -> None:
    if request.text:
        with _draft(folder) as draft:
            found = exporters.exporter("msprof")
            chosen = {name: getattr(request, name) for name in ("model_id", "iteration_id", "summary_format", "reports")}
            found.function(trace, draft / OUTPUT, **chosen)
            if request.pretty:
                _lay_out(draft / OUTPUT)
            result.written += _moved(draft / OUTPUT, folder / OUTPUT)
    if request.database:
        with _draft(folder) as draft:
            name = f"msprof_{time.strftime('%Y%m%d%H%M%S')}.db"
            exporters.exporter("msprof_db").function(trace, draft / name)
            result.written += _moved(draft, folder)
    if request.rules:
        _analyze(request, result, folder, trace)


def _analyze(request: Request, result: Result, folder: Path, trace: Trace) -> None:
    """Several devices of one directory have operators of the same names: each has a folder of its own then."""
    found = _ascend_communication.of_devices(trace)
    if not found:
        result.notes.append("no communication operators with their tasks: nothing to analyze")
    for device, communication in found.items():
        with _draft(folder) as draft:
            _ascend_communication.write(communication, draft, request.rules, text=request.rule_type == "text")
            place = folder / "analyze"
            place.mkdir(exist_ok=True)
            result.written += _moved(draft, place if len(found) == 1 else place / f"device_{device}")


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """Room beside where the files will be, so that at no moment there is half of one under its own name."""
    try:
        with tempfile.TemporaryDirectory(prefix=".stepscope.", dir=folder) as room:
            yield Path(room)
    except OSError as error:
        what = error.strerror or str(error)
        raise DataError(
            folder, f"could not be written ({what}); `stepscope export {folder} --to msprof -o OUT` writes elsewhere"
        ) from error


def _moved(draft: Path, place: Path) -> list[Written]:
    """Files go to where they belong. What an earlier export wrote stays: names hold the time, and only README.txt is replaced."""
    place.mkdir(exist_ok=True)
    names = {file: file.name for file in sorted(draft.iterdir())}
    while any(_TIME.search(name) and (place / name).exists() for name in names.values()):  # an export of the same second
        names = {file: _TIME.sub(_second_later, name) for file, name in names.items()}
    return [_described(file.replace(place / name)) for file, name in names.items()]


_TIME = re.compile(r"(?<=_)\d{14}(?=\.\w+$)")


def _second_later(found: re.Match[str]) -> str:
    at = datetime.datetime.strptime(found[0], "%Y%m%d%H%M%S") + datetime.timedelta(seconds=1)
    return at.strftime("%Y%m%d%H%M%S")


def _described(file: Path) -> Written:
    rows = None
    if file.suffix == ".csv":
        with file.open("rb") as text:
            rows = max(0, sum(piece.count(b"\n") for piece in iter(lambda: text.read(1 << 20), b"")) - 1)
    return Written(str(file), file.stat().st_size, rows)


def _lay_out(folder: Path) -> None:
    for file in folder.glob("*.json"):
        file.write_bytes(msgspec.json.format(file.read_bytes(), indent=4))


# What is in it


def _told(trace: Trace) -> str:
    """What was decoded, in words."""
    kinds = trace.spans.group_by(pl.col("kind").cast(pl.String)).len().collect()
    count = dict(kinds.iter_rows())
    host = trace.tracks.filter(pl.col("device").is_null()).select("rank", "track")
    waits = trace.spans.filter(pl.col("kind").is_in(["api", "sync"])).select("rank", "track")  # a device's own waits are no calls
    calls = waits.join(host, on=["rank", "track"], how="semi").select(pl.len()).collect().item()
    lanes = trace.tracks.filter(pl.col("kind") == "stream", pl.col("label").str.starts_with("Stream ")).select("rank", "track")
    tasks = trace.spans.select("rank", "track").join(lanes, on=["rank", "track"], how="semi").select(pl.len()).collect().item()
    devices = trace.devices.select("device").unique().collect().height
    iterations = marked_iterations(trace)
    parts = [
        (devices, "device", "devices"),
        (tasks, "task", "tasks"),
        (count.get("kernel", 0), "of them a kernel", "of them kernels"),
        (count.get("communication", 0), "communication operator", "communication operators"),
        (calls, "call on the host", "calls on the host"),
        (iterations.height, "iteration", "iterations"),
        (iterations["model"].n_unique() if iterations.height else 0, "model", "models"),
    ]
    return ", ".join(f"{number:,} {one if number == 1 else many}" for number, one, many in parts)


HEADER = ("Job Info", "Device ID", "Dir Name", "Collection Time", "Model ID", "Iteration Number", "Top Time Iteration", "Rank ID")


def _table(folder: Path, trace: Trace) -> list[list[str]]:
    """What msprof's query shows: a row for each model of each device, and one for the host."""
    iterations = marked_iterations(trace)
    rows = []
    for part in sorted(folder.iterdir()):
        if not part.is_dir() or not re.fullmatch(r"host|device_\d{1,6}", part.name):
            continue
        info, start = _json(part, "info.json"), _json(part, "start_info")
        device = part.name.removeprefix("device_")
        about = [str(info.get("jobInfo") or "NA"), device, part.name, str(start.get("collectionDateBegin") or "N/A")]
        rank = str(info.get("rank_id", "N/A"))
        own = iterations.filter(pl.col("device") == int(device)) if device.isdecimal() else iterations.clear()
        models = own["model"].unique().sort().to_list()
        for model in models:
            longest = own.filter(pl.col("model") == model).sort("dur_ns", "iteration", descending=[True, False])
            named = ",".join(map(str, longest["iteration"].head(_TOP)))
            rows.append([*about, str(model), str(longest["iteration"].max()), named, rank])
        if not models:
            rows.append([*about, "N/A", "N/A", "N/A", rank])
    return rows


def _json(folder: Path, name: str) -> dict[str, Any]:
    """`name`, or the same with a device number behind it; empty where it cannot be read: reading has told that."""
    for file in sorted(folder.glob(f"{name}*")):
        if file.is_file() and not file.name.endswith((".done", ".complete")):
            try:
                found = msgspec.json.decode(file.read_bytes())
            except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}


# What Ascend's own tools left between


def _clear(folder: Path) -> list[str]:
    """Remove the databases of `sqlite` folders: Ascend's parser makes them of the raw data. Whatever else lies there stays."""
    notes = []
    places = [folder, *(part for part in sorted(folder.iterdir()) if re.fullmatch(r"host|device_\d{1,6}", part.name))]
    for place in (part / "sqlite" for part in places):
        if place.is_symlink() or not place.is_dir():
            continue
        files = [file for file in place.iterdir() if _DATABASE.fullmatch(file.name) and file.is_file() and not file.is_symlink()]
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink()
        left = [file.name for file in place.iterdir()]
        if left:
            notes.append(f"{place.relative_to(folder)} is kept: {', '.join(sorted(left)[:3])} is not of Ascend's parser")
        else:
            place.rmdir()
            notes.append(f"removed {place.relative_to(folder)}: {units.count(len(files), 'database')}, {units.count(size, 'byte')}")
    return notes or ["no sqlite folder to clear"]


def _answer() -> int:
    """Requests from standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    try:
        for line in sys.stdin.buffer:
            answers.write(msgspec.json.encode(done(msgspec.json.decode(line, type=Request))) + b"\n")
            answers.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(_answer())
