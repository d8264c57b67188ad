"""What is done with a mutant, per target: what the command line, the pages and a running job do. Only a StepscopeError may come of it."""

import contextlib
import json
import os
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import stepscope
from fuzzing import mutators
from stepscope import exporters
from stepscope.cli.analysis import summary
from stepscope.errors import DataError, StepscopeError
from stepscope.io import store
from stepscope.model import schema
from stepscope.model.output.tables import json_text
from stepscope.model.trace import Trace, analysis, analysis_names
from stepscope.recording import monitor as dynamic
from stepscope.recording.attach import jobs, sockets
from stepscope.recording.conversion import prof_folders
from stepscope.recording.recorder import Recorder
from stepscope.timeline import cache as keeping
from stepscope.timeline import details, layout, search, tiles

# Analyses that need no parameter.
ANALYSES = [name for name in analysis_names() if all(one.default is not one.empty for one in analysis(name).parameters.values())]


class BrokenLawError(AssertionError):
    """What was read cannot be: a negative duration, a share above one, a problem without a text. `law` is the same for all such cases."""

    def __init__(self, law: str, case: object) -> None:
        self.law = law
        super().__init__(f"{law}: {case}")


class Trial:
    """One mutant being tried: where it may write, its chance, how much is asked of it, and what is being done now."""

    def __init__(self, room: Path, chance: random.Random, everything: bool, report: Callable[[str], None]) -> None:
        self.room, self.chance, self.everything, self._report = room, chance, everything, report
        self.partial = chance.random() < 0.5
        self.asked: list[str] | None = None  # of a case of the corpus: what is asked of it, no more and no less

    def doing(self, what: str) -> None:
        self._report(what)

    def asks(self, question: str, share: float) -> bool:
        if self.asked is not None:
            return question in self.asked
        return self.chance.random() < share or self.everything

    def analyses(self, new: bool) -> list[str]:
        if self.asked is not None:
            return [name for name in self.asked if name in ANALYSES]
        return ANALYSES if self.everything else self.chance.sample(ANALYSES, 10 if new else 1)


def examine(target: str, path: Path, trial: Trial) -> str:
    """opened or refused. Any other end is an exception, and a finding."""
    return _TARGETS.get(target, _recording)(path, trial)


def extra_mutators(target: str) -> tuple[mutators.Mutator, ...]:
    return _PROF_MUTATORS if target == "prof" else ()


# Recordings


def _recording(path: Path, trial: Trial) -> str:
    trial.doing("open")
    try:
        trace = stepscope.open(path, cache=False, partial=trial.partial)
    except StepscopeError as error:
        _check_message(error, path)
        return "refused"
    _look_at(trace, trial, _check_laws)
    return "opened"


def _run_folder(path: Path, trial: Trial) -> str:
    """What is in a run folder was written by us: its values are not checked on opening, but no value may break an analysis."""
    trial.doing("open")
    try:
        trace = stepscope.open(path, cache=False)
        for name in schema.TABLES:
            trial.doing(f"collect {name}")
            trace.table(name).collect()
    except StepscopeError as error:
        _check_message(error, path)
        return "refused"
    _look_at(trace, trial, None)
    return "opened"


_seen: set[tuple[Any, ...]] = set()


def _look_at(trace: Trace, trial: Trial, check: Callable[[Trace], None] | None) -> None:
    """Ask a trace a few questions; more where it looks like none before, all of them in a replay."""
    if check:
        trial.doing("laws")
        check(trace)
    shape = _shape(trace)
    new = shape not in _seen
    _seen.add(shape)
    chance = trial.chance
    for name in trial.analyses(new):
        trial.doing(f"analyse {name}")
        with _refusals():
            table = trace.analyse(name)
            if check:
                _check_table(table, name)
    if trial.asks("summary", 0.3 if new else 0.03):
        trial.doing("summary")
        with _refusals():
            found = summary.figures(trace)
            assert json_text(found)
            assert list(summary.page(found, Path("mutant"), 100))
    if trial.asks("timeline", 0.5 if new else 0.1):
        trial.doing("timeline")
        with _refusals():
            _look_at_timeline(trace, layout.build(trace), trial)
    if trial.asks("chrome", 0.1 if new else 0.03):
        trial.doing("export chrome")
        with _refusals():
            exporters.exporter("chrome").function(trace, trial.room / "exported.json")
    if trial.asks("export", 0.02):
        name = chance.choice([one for one in exporters.names() if one != "chrome"])
        trial.doing(f"export {name}")
        with _refusals():
            exporters.exporter(name).function(trace, trial.room / f"exported to {name}")
    if trial.asks("report", 0.02):
        with contextlib.suppress(ModuleNotFoundError):  # a machine without the packages of the server
            from stepscope.server import report

            trial.doing("report")
            with _refusals():
                report.report(trace, name="mutant")


def _look_at_timeline(trace: Trace, timeline: layout.Timeline, trial: Trial) -> None:
    trial.doing("timeline header")
    assert tiles.header(timeline)
    chance, top = trial.chance, timeline.pyramid.top
    some = timeline.tracks if len(timeline.tracks) <= 12 else chance.sample(timeline.tracks, 12)
    for level in {top, chance.randrange(top + 1)}:
        trial.doing("timeline tile")
        tiles.tile(
            timeline, some, level, chance.randrange(2 ** (top - level)) if level < top else 0, chance.choice((None, "type", "scope"))
        )
    trial.doing("timeline search")
    search.search(trace, timeline, chance.choice(("a", "aten add", "/c.*v/")))
    spans = trace.spans.select("rank", "span").head(50).collect().rows()
    if spans:
        trial.doing("timeline details")
        rank, span = chance.choice(spans)
        if rank is not None and span is not None:
            details.details(trace, timeline, rank, span)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except StepscopeError as error:
        _check_line(error)


def _check_line(error: StepscopeError) -> None:
    text = str(error)
    if not text.strip() or "\n" in text or len(text) > 3000:
        raise BrokenLawError("a message is one line", repr(text[:300])) from error


def _check_message(error: StepscopeError, path: Path) -> None:
    """One line that names the file."""
    _check_line(error)
    if isinstance(error, DataError) and str(path.parent) not in str(error.path) and path.name not in str(error):
        raise BrokenLawError("a message names the file", error) from error


def _shape(trace: Trace) -> tuple[Any, ...]:
    """What tells one trace from another for the analyses: problems by their words, kinds of spans, which columns are empty, magnitudes."""
    problems = trace.problems.select("what").collect()["what"].str.replace_all(r"[\d,.]+|'.*?'", "#").unique().sort().to_list()
    spans = trace.spans.drop("args").collect()
    kinds = spans["kind"].cast(pl.String).unique().sort().to_list()
    empty = [column.name for column in spans if column.null_count() == spans.height]
    far = [
        int(np.log2(abs(float(value)) + 1)) // 12
        for name in ("start_ns", "dur_ns", "flops", "bytes", "correlation")
        for value in spans.select(pl.col(name).max(), low=pl.col(name).min()).row(0)
        if value is not None
    ]
    others = [
        min(int(trace.table(name).select(pl.len()).collect().item()), 3) for name in schema.TABLES if name not in ("spans", "problems")
    ]
    return (*problems, *kinds, *empty, *far, *others)


def _check_laws(trace: Trace) -> None:
    for name in schema.TABLES:
        if wrong := schema.invalid_counts(trace.table(name), name):
            raise BrokenLawError(f"{name} has no {' or '.join(wrong)}", wrong)
    repeated = trace.spans.select(pl.len() - pl.struct("rank", "span").n_unique()).collect().item()
    if repeated:
        raise BrokenLawError("a span has its own number", repeated)
    if (trace.problems.select(pl.col("what").str.strip_chars()).collect()["what"] == "").any():
        raise BrokenLawError("problems have a text", "")


def _check_table(table: pl.DataFrame, name: str) -> None:
    expected = list(analysis(name).columns)
    if table.columns != expected:
        raise BrokenLawError(f"{name} has its columns", table.columns)
    if "stage" in table.columns:
        table = table.filter(pl.col("stage").cast(pl.String) != "gap")  # which is between the steps, and compared with them
    for column in table:
        if column.name == "share" and column.dtype.is_float():
            wrong = column.filter(column.is_nan() | (column < -1e-9) | (column > 1 + 1e-9)).to_list()
            if wrong:
                raise BrokenLawError(f"{name}.{column.name} is a share", wrong[:3])


# Raw directories: what `stepscope msprof` makes of them, too


def _prof(path: Path, trial: Trial) -> str:
    end = _recording(path, trial)
    if trial.asks("msprof", 0.02):
        trial.doing("msprof export")
        request = prof_folders.Request(folder=str(path), query=True, text=True, database=True, rules=list(prof_folders.RULES), clear=True)
        exported = prof_folders.process(request)
        if "internal error" in exported.failed or "memory" in exported.failed or "\n" in exported.failed:
            raise BrokenLawError("msprof export", exported.failed)
        if sum(file.bytes for file in exported.written) > 50_000_000:
            raise BrokenLawError("exports end", sum(file.bytes for file in exported.written))
    return end


def missing_dictionary(root: Path, chance: random.Random) -> None:
    for file in [path for path in sorted(root.rglob("*_dic*")) if chance.random() < 0.7]:
        file.unlink()


def device_alone(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "host", ignore_errors=True)


def host_alone(root: Path, chance: random.Random) -> None:
    for path in root.glob("device_*"):
        shutil.rmtree(path)


def unknown_chip(root: Path, chance: random.Random) -> None:
    for path in sorted(root.rglob("info.json*")):
        found = json.loads(path.read_text())
        chip = chance.choice(("99", "", "-1", "0", "1", "5", "7", "15", "16", "x" * 50, 5, None))
        path.write_text(json.dumps({**found, "platform_version": chip} if isinstance(found, dict) else chip))


def other_device(root: Path, chance: random.Random) -> None:
    """Another device with the same data, or the device under another name."""
    for path in sorted(root.glob("device_*")):
        other = path.with_name(f"device_{chance.choice((1, 7, 63, 999999, 10**30, '00', '-1', 'x', '²'))}")
        if not other.exists():
            if chance.random() < 0.5:
                shutil.copytree(path, other, symlinks=True)  # another mutation may have left a link that leads in a circle
            else:
                path.rename(other)


_PROF_MUTATORS: tuple[mutators.Mutator, ...] = (missing_dictionary, device_alone, host_alone, unknown_chip, other_device)


# What stepscope keeps for itself


def _cache_entry(path: Path, trial: Trial) -> str:
    """A file is opened while what the cache has of it is damaged: the answer is that of the file."""
    cache = trial.room / "cache"
    os.environ["STEPSCOPE_CACHE"] = str(cache)
    try:
        expected = stepscope.open(path).spans.collect()
        [entry] = [found for found in cache.iterdir() if (found / "run.json").is_file()]
        if not getattr(trial.chance, "whole", False):
            mutators.mutate(entry, trial.chance)
        trial.doing("open")
        trace = stepscope.open(path)
        trial.doing("collect spans")
        if trace.spans.collect().height != expected.height and not _is_one_of_ours(entry):
            raise BrokenLawError("the cache answers as the file", (trace.spans.collect().height, expected.height))
        _look_at(trace, trial, None)
    finally:
        del os.environ["STEPSCOPE_CACHE"]
    return "opened"


def _is_one_of_ours(entry: Path) -> bool:
    """Whether a mutation left Parquet files that are whole, with other rows: nothing can tell them from ours."""
    try:
        return bool(pl.read_parquet(entry / "spans.parquet", memory_map=False).width)
    except (OSError, pl.exceptions.PolarsError):
        return False


def _timeline_files(path: Path, trial: Trial) -> str:
    """The files of a timeline in the cache. Where they are damaged it is built anew."""
    name = "0" * 32
    shutil.copytree(path / "run", trial.room / "whole")
    trace = store.read(trial.room / "whole")
    os.environ["STEPSCOPE_CACHE"] = str(trial.room / "cache")
    shutil.copytree(path, trial.room / "cache" / name, symlinks=True, ignore=_left_behind)
    try:
        trial.doing("timeline open")
        _look_at_timeline(trace, keeping.open_timeline(trace, name), trial)
    finally:
        del os.environ["STEPSCOPE_CACHE"]
    return "opened"


def _left_behind(folder: str, names: list[str]) -> list[str]:
    """What is not copied: the trace beside a timeline, and pipes."""
    return [name for name in names if name == "run" or (Path(folder) / name).is_fifo()]


# What a running job reads


def _monitor(path: Path, trial: Trial) -> str:
    """The monitor's file: taken or rejected, and the job goes on."""
    os.environ["STEPSCOPE_RUN"] = "1"  # no socket
    output: list[str] = []
    dynamic.say = output.append  # type: ignore[assignment,attr-defined]
    trial.doing("monitor")
    before = Path.cwd()
    os.chdir(trial.room)  # a mutant may name any folder to write to
    try:
        monitor = dynamic.DynamicProfilerMonitor(path, output_path=trial.room / "recorded")
        for _ in range(3):
            monitor._next = 0.0
            monitor._read_changes(False, False)
            monitor.step()
        monitor._recorder.stop("over")
    finally:
        os.chdir(before)
    if internal := [line for line in output if line.startswith("dynamic profiling:")]:
        raise BrokenLawError("the monitor has no internal error", internal[0])
    return "refused" if monitor._status["rejected"] else "opened"


def _attach(path: Path, trial: Trial) -> str:
    """Both sides of the socket: what comes in is answered line by line, and what comes back is judged."""
    place = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))  # the address of a socket is short
    os.environ["STEPSCOPE_JOBS"] = str(place)
    failed: list[BaseException] = []
    before, threading.excepthook = threading.excepthook, lambda args: failed.append(args.exc_value or SystemExit())
    try:
        (_ask_agent if path.name.startswith("questions") else _ask_liar)(path.read_bytes(), trial)
    finally:
        threading.excepthook = before
        del os.environ["STEPSCOPE_JOBS"]
        shutil.rmtree(place, ignore_errors=True)
    if failed:
        raise failed[0]
    return "opened"


def _ask_agent(lines: bytes, trial: Trial) -> None:
    recorder = Recorder()
    jobs._LONGEST_WAIT = 0.01  # a mutant may repeat the question many times, and each is answered only after this long
    agent = jobs.listen(recorder, {"job": "j", "root": None, "out": trial.room})
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            trial.doing("questions")
            one.settimeout(20)
            one.connect(str(agent.path))
            with contextlib.suppress(OSError):
                one.sendall(lines)
                one.shutdown(socket.SHUT_WR)
            with one.makefile("rb") as answers:
                for answer in answers:
                    json.loads(answer)
        trial.doing("border")
        for _ in range(3):
            recorder.end_step()
        trial.doing("state")
        assert sockets.ask(agent.path, {"ask": "state"})["pid"] == os.getpid()
    finally:
        agent.close()
        recorder.stop("over")


def _ask_liar(answer: bytes, trial: Trial) -> None:
    """A process that answers with the mutant."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(sockets.folder() / f"{sockets._host()}.5.sock"))
    server.listen(8)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = server.accept()
                with caller, contextlib.suppress(OSError):
                    caller.settimeout(0.2)
                    if caller.recv(100):
                        caller.sendall(answer.replace(b"\n", b" ") + b"\n")

    threading.Thread(target=serve, daemon=True).start()
    try:
        trial.doing("members")
        with _refusals():
            list(jobs.members())
        trial.doing("record")
        with _refusals():
            jobs.record(jobs.members_of_job("j"), count=1, seconds=None, first=None, options={}, out=None).withdraw()
    finally:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()


_TARGETS: dict[str, Callable[[Path, Trial], str]] = {
    "prof": _prof,
    "run": _run_folder,
    "cache": _cache_entry,
    "timeline": _timeline_files,
    "monitor": _monitor,
    "attach": _attach,
}
# Targets whose mutation is made while they are tried: the entry of the cache is written then.
OWN_MUTATION = ("cache",)
