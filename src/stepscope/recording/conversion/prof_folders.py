"""Results of Ascend's PROF directories, one or many, for `stepscope msprof` and `Profiler.offline_analyse`.

Several are read at the same time, each in a worker process. In a directory, only `mindstudio_profiler_output`, `analyze` and `msprof_*.db`
are written, and only `clear` removes anything.
"""

import contextlib
import datetime
import os
import queue
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import exporters
from stepscope.errors import DataError, StepscopeError
from stepscope.exporters.msprof import communication as ascend_communication
from stepscope.io import cache as run_cache
from stepscope.io import open_run, store
from stepscope.model import captures, units
from stepscope.model.columns.span_details import iterations as marked_iterations
from stepscope.model.trace import Trace
from stepscope.process.worker import Parent, Worker, WorkerEndedError
from stepscope.readers.ascend.prof import reader as prof
from stepscope.recording.conversion import convert

OUTPUT = "mindstudio_profiler_output"
RULES = ("communication", "communication_matrix")
_MOST_PROBLEMS = 10
_DEPTH = 6  # levels below a folder that are searched
_TOP = 5  # longest iterations that are listed
_DATABASE = re.compile(r".*\.db(-journal|-wal|-shm)?")


class Request(msgspec.Struct, kw_only=True):
    """The results of one directory, in the order of the fields."""

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
    reports: str | None = None  # a file with the layers of the timeline
    steps: list[int] | None = None
    pretty: bool = False


class Written(msgspec.Struct):
    """A file that was written."""

    path: str
    bytes: int
    rows: int | None = None  # of a table


class Result(msgspec.Struct, kw_only=True):
    """The outcome for one directory."""

    folder: str
    failed: str = ""  # in one line
    content: str = ""  # the decoded content, in one line
    written: list[Written] = []
    notes: list[str] = []
    table: list[list[str]] = []  # rows of `query`
    problems: int = 0
    lost: int = 0
    problem_lines: list[str] = []  # problems that lost no records, which are not counted above
    seconds: float = 0.0


def below(path: Path) -> list[Path]:
    """The directory itself, or the directories below a folder. Links to folders are not followed: they may form a circle."""
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
        folders = sorted((entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(folder, error.strerror or str(error)) from error
    for entry in folders if depth else []:
        # The content of captures and run folders belongs to them.
        if not entry.name.startswith(".") and not entry.name.endswith(captures.SUFFIX) and not store.sniff(Path(entry.path)):
            yield from _below(Path(entry.path), depth - 1)


# Several at the same time


def each(requests: list[Request], processes: int | None = None) -> Iterator[Result]:
    """The results, in the order of completion. One directory is processed here, several by as many processes as there are processors."""
    count = min(len(requests), processes or _processors())
    if count <= 1:
        yield from (process(request) for request in requests)
        return
    workers: list[Worker] = []
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def ask_idle(request: Request) -> Result:
        try:
            worker = idle.get_nowait()
        except queue.Empty:
            worker = start_worker()
            workers.append(worker)
        result = ask(worker, request)
        if worker.is_alive:
            idle.put(worker)
        return result

    with ThreadPoolExecutor(count) as pool:
        try:
            for future in as_completed([pool.submit(ask_idle, request) for request in requests]):
                yield future.result()
        finally:  # also where the other results are not needed any more
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.kill()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> Worker:
    env = {name: value for name, value in os.environ.items() if name not in ("MS_PROFILER_OPTIONS", "STEPSCOPE_RUN")}
    return Worker("stepscope.recording.conversion.prof_folders:serve", env=env)


def ask(worker: Worker, request: Request) -> Result:
    """The outcome of a request in a worker process."""
    try:
        return msgspec.convert(worker.ask(msgspec.to_builtins(request))[0], Result)
    except WorkerEndedError as error:
        return Result(folder=request.folder, failed=f"the process that worked on it ended ({error})")


def serve() -> None:
    """Answer the requests of the parent process, until it ends."""
    parent = Parent()
    for message, _ in parent.requests():
        parent.reply(msgspec.to_builtins(process(msgspec.convert(message, Request))))


# One


def process(request: Request) -> Result:
    """The outcome of a request; a failure is one line in it."""
    start = time.monotonic()
    result = Result(folder=request.folder)
    try:
        _process(request, result)
    except StepscopeError as error:
        result.failed = str(error).removeprefix(f"{request.folder}: ")
    except MemoryError:
        result.failed = "out of memory"
    except OSError as error:
        reason = error.strerror or str(error)
        result.failed = f"{error.filename}: {reason}" if error.filename else reason
    except Exception as error:  # noqa: BLE001  one directory of many: the others are processed
        result.failed = f"internal error: {type(error).__name__}: {(str(error).splitlines() or [''])[0]} (please report it)"
    result.seconds = time.monotonic() - start
    return result


def _process(request: Request, result: Result) -> None:
    folder = Path(request.folder)
    if request.query or request.text or request.database or request.rules or not request.clear:
        if not prof.sniff(folder):
            raise DataError(folder, "no raw data in it; expected host/data or device_N/data with files in them")
        pins = run_cache.Pins()
        try:
            trace = open_run.open(folder, pins=pins)
            result.content = _summary(trace)
            lost = trace.problems.filter(pl.col("lost") > 0).select(pl.len(), pl.col("lost").sum()).collect()
            result.problems, result.lost = lost.row(0)
            result.problem_lines = _problem_lines(trace)
            if request.query:
                result.table = _table(folder, trace)
            _write(request, result, folder, convert.select_steps(trace, request.steps) if request.steps else trace)
        finally:
            pins.release()
    if request.clear:
        result.notes += _clear(folder)


def _problem_lines(trace: Trace) -> list[str]:
    rows = trace.problems.filter(pl.col("lost") == 0, pl.col("file").fill_null("") != "").select("file", "where", "what").collect().rows()
    lines = [f"{' '.join(filter(None, (file, where)))}: {message}" for file, where, message in rows]
    more = len(lines) - _MOST_PROBLEMS
    return lines if more <= 0 else [*lines[:_MOST_PROBLEMS], f"{more} more; see `stepscope show problems`"]


def _write(request: Request, result: Result, folder: Path, trace: Trace) -> None:
    if request.text:
        with _draft(folder) as draft:
            options = {name: getattr(request, name) for name in ("model_id", "iteration_id", "summary_format", "reports")}
            exporters.exporter("msprof").function(trace, draft / OUTPUT, **options)
            if request.pretty:
                _format_json(draft / OUTPUT)
            result.written += _move(draft / OUTPUT, folder / OUTPUT)
    if request.database:
        with _draft(folder) as draft:
            name = f"msprof_{time.strftime('%Y%m%d%H%M%S')}.db"
            exporters.exporter("msprof_db").function(trace, draft / name)
            result.written += _move(draft, folder)
    if request.rules:
        _analyze(request, result, folder, trace)


def _analyze(request: Request, result: Result, folder: Path, trace: Trace) -> None:
    """Several devices of one directory have operators of the same names: each gets a separate folder then."""
    devices = ascend_communication.of_devices(trace)
    if not devices:
        result.notes.append("no communication operators with their tasks: nothing to analyze")
    for device, communication in devices.items():
        with _draft(folder) as draft:
            ascend_communication.write(communication, draft, request.rules, text=request.rule_type == "text")
            target = folder / "analyze"
            target.mkdir(exist_ok=True)
            result.written += _move(draft, target if len(devices) == 1 else target / f"device_{device}")


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder next to the target, so that a partial file never has its final name."""
    try:
        with tempfile.TemporaryDirectory(prefix=".stepscope.", dir=folder) as draft:
            yield Path(draft)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            folder, f"could not be written ({reason}); `stepscope export {folder} --to msprof -o OUT` writes elsewhere"
        ) from error


def _move(draft: Path, target: Path) -> list[Written]:
    """Move the files to their folder. Files of an earlier export stay: names contain the time, and only README.txt is replaced."""
    target.mkdir(exist_ok=True)
    names = {file: file.name for file in sorted(draft.iterdir())}
    while any(_TIME.search(name) and (target / name).exists() for name in names.values()):  # an export of the same second
        names = {file: _TIME.sub(_second_later, name) for file, name in names.items()}
    return [_written(file.replace(target / name)) for file, name in names.items()]


_TIME = re.compile(r"(?<=_)\d{14}(?=\.\w+$)")


def _second_later(match: re.Match[str]) -> str:
    later = datetime.datetime.strptime(match[0], "%Y%m%d%H%M%S") + datetime.timedelta(seconds=1)
    return later.strftime("%Y%m%d%H%M%S")


def _written(file: Path) -> Written:
    rows = None
    if file.suffix == ".csv":
        with file.open("rb") as text:
            rows = max(0, sum(piece.count(b"\n") for piece in iter(lambda: text.read(1 << 20), b"")) - 1)
    return Written(str(file), file.stat().st_size, rows)


def _format_json(folder: Path) -> None:
    for file in folder.glob("*.json"):
        file.write_bytes(msgspec.json.format(file.read_bytes(), indent=4))


# Content


def _summary(trace: Trace) -> str:
    """The decoded content, in one line."""
    kinds = trace.spans.group_by(pl.col("kind").cast(pl.String)).len().collect()
    count = dict(kinds.iter_rows())
    host = trace.tracks.filter(pl.col("device").is_null()).select("rank", "track")
    waits = trace.spans.filter(pl.col("kind").is_in(["api", "sync"])).select("rank", "track")  # waits of a device are not calls
    calls = waits.join(host, on=["rank", "track"], how="semi").select(pl.len()).collect().item()
    streams = trace.tracks.filter(pl.col("kind") == "stream", pl.col("label").str.starts_with("Stream ")).select("rank", "track")
    tasks = trace.spans.select("rank", "track").join(streams, on=["rank", "track"], how="semi").select(pl.len()).collect().item()
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
    return ", ".join(f"{number:,} {singular if number == 1 else plural}" for number, singular, plural in parts)


HEADER = ("Job Info", "Device ID", "Dir Name", "Collection Time", "Model ID", "Iteration Number", "Top Time Iteration", "Rank ID")


def _table(folder: Path, trace: Trace) -> list[list[str]]:
    """The table of msprof's query: a row for each model of each device, and one for the host."""
    iterations = marked_iterations(trace)
    rows = []
    for part in sorted(folder.iterdir()):
        if not part.is_dir() or not re.fullmatch(r"host|device_\d{1,6}", part.name):
            continue
        info, start = _json(part, "info.json"), _json(part, "start_info")
        device = part.name.removeprefix("device_")
        identity = [str(info.get("jobInfo") or "NA"), device, part.name, str(start.get("collectionDateBegin") or "N/A")]
        rank = str(info.get("rank_id", "N/A"))
        device_iterations = iterations.filter(pl.col("device") == int(device)) if device.isdecimal() else iterations.clear()
        models = device_iterations["model"].unique().sort().to_list()
        for model in models:
            longest = device_iterations.filter(pl.col("model") == model).sort("dur_ns", "iteration", descending=[True, False])
            top = ",".join(map(str, longest["iteration"].head(_TOP)))
            rows.append([*identity, str(model), str(longest["iteration"].max()), top, rank])
        if not models:
            rows.append([*identity, "N/A", "N/A", "N/A", rank])
    return rows


def _json(folder: Path, name: str) -> dict[str, Any]:
    """The file `name`, or that name with a device number; empty where it cannot be read, which the reader reports."""
    for file in sorted(folder.glob(f"{name}*")):
        if file.is_file() and not file.name.endswith((".done", ".complete")):
            try:
                content = msgspec.json.decode(file.read_bytes())
            except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
                return {}
            return content if isinstance(content, dict) else {}
    return {}


# Intermediate files of Ascend's tools


def _clear(folder: Path) -> list[str]:
    """Remove the databases of `sqlite` folders, which Ascend's parser creates from the raw data. Other files stay."""
    notes = []
    parts = [folder, *(part for part in sorted(folder.iterdir()) if re.fullmatch(r"host|device_\d{1,6}", part.name))]
    for sqlite in (part / "sqlite" for part in parts):
        if sqlite.is_symlink() or not sqlite.is_dir():
            continue
        files = [file for file in sqlite.iterdir() if _DATABASE.fullmatch(file.name) and file.is_file() and not file.is_symlink()]
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink()
        others = [file.name for file in sqlite.iterdir()]
        if others:
            notes.append(f"{sqlite.relative_to(folder)} is kept: {', '.join(sorted(others)[:3])} is not from Ascend's parser")
        else:
            sqlite.rmdir()
            notes.append(f"removed {sqlite.relative_to(folder)}: {units.count(len(files), 'database')}, {units.count(size, 'byte')}")
    return notes or ["no sqlite folder to clear"]
