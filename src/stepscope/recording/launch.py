"""`stepscope run` in the terminal: starts the job so that each of its processes records, waits, and prints where the recording is."""

import contextlib
import json
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError, UsageError
from stepscope.model import captures, units
from stepscope.process.escapes import escape_controls

_STARTUP = Path(__file__).parent / "startup"
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KERNEL = 0x80  # si_code of a signal from the terminal, which the job gets as well


def command(words: list[str], *, module: bool = False) -> list[str]:
    """The command line: a script is run by this Python, anything else by its name."""
    if module:
        return [sys.executable, "-m", *words]
    path = Path(words[0])
    if path.suffix in (".py", ".pyc", ".pyw", ".pyz") or (path / "__main__.py").is_file():
        if not path.exists():
            raise UsageError(f"{path}: no such script")
        return [sys.executable, *words]
    executable = shutil.which(words[0]) or shutil.which(words[0], path=str(Path(sys.executable).parent))
    if executable is not None:
        return [executable, *words[1:]]
    if path.is_file():
        return [sys.executable, *words]
    raise UsageError(f"{words[0]}: neither a script nor a command")


def launch(words: list[str], settings: dict[str, Any], *, name: str) -> int:
    """The wait status of the command, run as a job with these settings."""
    job = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    out = Path(settings["out"]).absolute() / job
    new_folders = [out, *(folder for folder in out.parents if not folder.exists())]
    captures.check_writable(out.parent, "--out")
    with tempfile.TemporaryDirectory(prefix="stepscope.") as folder:
        journal = Path(folder) / "journal"
        job_settings = settings | {"job": job, "root": os.getpid(), "out": str(out), "journal": str(journal)}
        path = os.pathsep.join([str(_STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])])
        status = _run(words, os.environ | {"STEPSCOPE_RUN": json.dumps(job_settings), "PYTHONPATH": path})
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        for line in _report(_read(journal), settings, out):
            sys.stderr.write(f"stepscope: {escape_controls(line)}\n")
        with contextlib.suppress(OSError):  # it is not empty
            for folder_ in new_folders if out.exists() else new_folders[1:]:
                folder_.rmdir()
    return status


def leave(status: int) -> int:
    """The exit code of a wait status. A signal that ended the job also ends this process, so that the shell sees the same."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the job has written its core
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _run(words: list[str], environment: dict[str, str]) -> int:
    """Start the command, forward signals, wait."""
    if not hasattr(signal, "sigwaitinfo"):  # macOS
        return _run_with_handlers(words, environment)
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = _spawn(words, environment, before)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            arrived = signal.sigwaitinfo(watched)
            # The terminal sends Ctrl-C to the job, too: it is in the same process group.
            if arrived.si_signo != signal.SIGCHLD and arrived.si_code != _FROM_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, arrived.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_with_handlers(words: list[str], environment: dict[str, str]) -> int:
    child = _spawn(words, environment, set())
    for number in _FORWARDED:
        from_terminal = number in (signal.SIGINT, signal.SIGQUIT) and sys.stdin is not None and sys.stdin.isatty()
        signal.signal(number, signal.SIG_IGN if from_terminal else lambda number, _: os.kill(child, number))
    return os.waitpid(child, 0)[1]


def _spawn(words: list[str], environment: dict[str, str], mask: Any) -> int:
    try:
        # Signals that Python ignores are not ignored by its children.
        return os.posix_spawn(words[0], words, environment, setsigmask=mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    except OSError as error:
        raise StepscopeError(f"{words[0]}: {error.strerror}") from error


def _read(journal: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in journal.read_text().splitlines()]
    except OSError:
        return []


def _report(lines: list[dict[str, Any]], settings: dict[str, Any], out: Path) -> list[str]:
    """The last lines: where the recording is and how to open it, or why there is none."""
    recorded = {Path(line["capture"]): line for line in lines if line.get("capture") and Path(line["capture"]).is_dir()}
    has_steps = any(line["whole_steps"] for line in recorded.values())
    has_work = any(not line.get("unprompted") for line in recorded.values())
    for capture, line in list(recorded.items()):
        # A process that only started others ended no step, and showed no sign of training, but may have called a module.
        idle = not line["whole_steps"] and (has_steps or (has_work and line.get("unprompted")))
        if idle and capture.parent == out:
            shutil.rmtree(capture, ignore_errors=True)
            del recorded[capture]
    # Captures of other machines, or of processes that were killed.
    for capture in sorted(out.glob("[!.]*.capture")) if out.is_dir() else []:
        recorded.setdefault(capture, {})
    undecided = _remove_undecided(out)
    converted = {line["capture"] for line in lines if line.get("capture")} - {str(capture) for capture in recorded}
    runs = [_converted(capture) for capture in recorded]
    runs += [run for run in (Path(name.removesuffix(".capture")) for name in sorted(converted)) if run.is_dir()]
    problems = dict.fromkeys(line["problem"] for line in lines if line.get("problem"))
    report = [*undecided, *(problem for problem in problems if problem != "withdrawn")]
    if not runs:
        is_explained = report or settings.get("idle") or any(line.get("refused") for line in lines)
        return [*report, *([] if is_explained else [_why_nothing(lines, settings)])]
    paths = [_short(path) for path in _run_paths(runs)]
    if not settings.get("idle") and not settings.get("seconds") and not any(line.get("whole_steps") for line in recorded.values()):
        report += _no_steps(lines, settings)
    reasons = dict.fromkeys(line["incomplete"] for line in lines if line.get("incomplete"))
    incomplete = f", which is incomplete ({', '.join(reasons)})" if reasons else ""
    return [*report, *(f"recorded {path}{incomplete}; open it with: stepscope view {shlex.quote(str(path))}" for path in paths)]


def _remove_undecided(out: Path) -> list[str]:
    """Delete the hidden windows of processes that were killed: a warm-up, or with keep_slow one that might have been deleted."""
    lost = []
    for capture in sorted(out.glob(".*.capture")) if out.is_dir() else []:
        if captures.recorder(capture) is None:
            if captures.header(capture)["options"].get("keep_slow") is not None:
                lost.append("the last window of a process that was killed is lost: whether it had a slow step was not known")
            shutil.rmtree(capture, ignore_errors=True)
    return lost


def run_paths(captures: list[Path]) -> list[Path]:
    """The paths to open, of captures that are converted to run folders where that is possible."""
    return [_short(path) for path in _run_paths([_converted(capture) for capture in captures])]


def _run_paths(runs: list[Path]) -> list[Path]:
    """The paths to open: a folder whose whole content is one run, else each run by itself."""
    try:
        from stepscope.io import discover
    except ImportError:  # numpy alone
        return sorted(runs)
    paths: list[Path] = []
    for folder in dict.fromkeys(run.parent for run in runs):
        ranks = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.startswith("rank"))
        groups = list(discover.groups([discover.Source(path, "capture" if path.suffix == captures.SUFFIX else "run") for path in ranks]))
        for group in groups:
            members = [source.path for source in group.sources if source.path in runs]
            common = discover.path_of_run(group, groups)
            paths += [common] if common is not None and members else members
    return paths


def _converted(capture: Path) -> Path:
    try:
        from stepscope.recording.conversion import convert
    except ImportError:  # numpy alone: it becomes a run folder when it is first opened elsewhere
        return capture
    try:
        return convert.convert(capture)
    except Exception as error:  # noqa: BLE001  the capture can be opened
        sys.stderr.write(f"stepscope: {escape_controls(f'{capture} stays a capture: {error}')}\n")
        return capture


def _why_nothing(lines: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    steps = max((line.get("steps", 0) for line in lines), default=0)
    frameworks = sorted({name for line in lines for name in line.get("seen", [])})
    if any(line.get("yielded") for line in lines):
        return "nothing was recorded: the program's own profiler has precedence"
    if not lines:
        return "nothing was recorded: no Python of the job could be reached (python -I, -E and -S leave PYTHONPATH out)"
    if settings.get("steps") and steps:
        first, last = settings["steps"]
        return f"nothing was recorded: the job made {units.count(steps, 'step')}, and --steps {first}:{last} requests later ones"
    if settings.get("seconds"):
        return "nothing was recorded: the job ended before recording began, shortly after its start and the import of a framework"
    if not frameworks:
        return (
            "nothing was recorded: the job imported neither torch, mindspore, jax nor tensorflow, and used no stepscope.record_function;"
            " --seconds records it in any case"
        )
    why = " ".join(_no_steps(lines, settings)) or "no step was detected"
    return f"nothing was recorded: {why}. The job imported {', '.join(frameworks)}; --seconds records without steps"


def _no_steps(lines: list[dict[str, Any]], settings: dict[str, Any]) -> list[str]:
    """That no step was detected in the job, and how to choose one; nothing where there were steps."""
    if any(line.get("steps") for line in lines):
        return []
    if settings.get("step_on"):
        reasons = dict.fromkeys(line["unnamed"] for line in lines if line.get("unnamed"))
        return [f"no step was detected: {'; '.join(reasons) or 'there is nothing of that name'} (--step-on {settings['step_on']})"]
    frameworks = {name for line in lines for name in line.get("seen", [])}
    if not frameworks:
        return []
    if "jax" in frameworks:
        return ["no step was detected: mark steps with jax.profiler.StepTraceAnnotation, or use --step-on function:__main__.train_step"]
    if frameworks == {"record_function"}:
        return ["no step was detected: choose a range that ends one, such as --step-on annotation:NAME"]
    return [
        "no step was detected, as no optimizer stepped or all is compiled: choose one, such as --step-on dataloader or --step-on"
        " function:__main__.train_step"
    ]


def _short(path: Path) -> Path:
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path
