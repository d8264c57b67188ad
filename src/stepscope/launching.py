"""`stepscope run`, in the terminal: starts the job so that each of its Pythons records, waits, and says where the recording is."""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stepscope import captures, units
from stepscope.errors import StepscopeError, UsageError
from stepscope.escapes import escape_controls

_STARTUP = Path(__file__).parent / "startup"
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KERNEL = 0x80  # si_code of what the terminal sends, to the job as well as to us


def command(words: list[str], *, module: bool = False) -> list[str]:
    """The command that runs these words: a script by this Python, anything else by its name."""
    if module:
        return [sys.executable, "-m", *words]
    path = Path(words[0])
    if path.suffix in (".py", ".pyc", ".pyw", ".pyz") or (path / "__main__.py").is_file():
        if not path.exists():
            raise UsageError(f"{path}: no such script")
        return [sys.executable, *words]
    found = shutil.which(words[0]) or shutil.which(words[0], path=str(Path(sys.executable).parent))
    if found is not None:
        return [found, *words[1:]]
    if path.is_file():
        return [sys.executable, *words]
    raise UsageError(f"{words[0]}: neither a script nor a command")


def launch(words: list[str], settings: dict[str, Any], *, name: str) -> int:
    """Run the command as a job of these settings. Returns the wait status of the command."""
    job = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    out = Path(settings["out"]).absolute() / job
    new = [out, *(folder for folder in out.parents if not folder.exists())]
    captures.check_writable(out.parent, "--out")
    with tempfile.TemporaryDirectory(prefix="stepscope.") as folder:
        journal = Path(folder) / "journal"
        said = settings | {"job": job, "root": os.getpid(), "out": str(out), "journal": str(journal)}
        path = os.pathsep.join([str(_STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])])
        status = _run(words, os.environ | {"STEPSCOPE_RUN": json.dumps(said), "PYTHONPATH": path})
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        for line in _report(_read(journal), settings, out):
            sys.stderr.write(f"stepscope: {escape_controls(line)}\n")
        with contextlib.suppress(OSError):  # there is something in it
            for made in new if out.exists() else new[1:]:
                made.rmdir()
    return status


def leave(status: int) -> int:
    """The exit code of a wait status. Where a signal ended the job, it ends us, so that the shell sees what it would have seen."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core that matters is the job's
        with contextlib.suppress(OSError, ValueError):  # SIGKILL's way cannot be set, nor need it be
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _run(words: list[str], environment: dict[str, str]) -> int:
    """Start, forward signals, wait."""
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
            # Ctrl-C reaches the job by itself: it is in the same process group.
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
        # What Python ignores for itself is not for its children.
        return os.posix_spawn(words[0], words, environment, setsigmask=mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    except OSError as error:
        raise StepscopeError(f"{words[0]}: {error.strerror}") from error


def _read(journal: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in journal.read_text().splitlines()]
    except OSError:
        return []


def _report(lines: list[dict[str, Any]], settings: dict[str, Any], out: Path) -> list[str]:
    """What to say at the end: where the recording is and how to look at it, or why there is none."""
    recorded = {Path(line["capture"]): line for line in lines if line.get("capture") and Path(line["capture"]).is_dir()}
    has_steps = any(line["whole_steps"] for line in recorded.values())
    has_work = any(not line.get("unprompted") for line in recorded.values())
    for capture, line in list(recorded.items()):
        # A process that only started others has made no step, and shown no sign of work, but perhaps called a module.
        idle = not line["whole_steps"] and (has_steps or (has_work and line.get("unprompted")))
        if idle and capture.parent == out:
            shutil.rmtree(capture, ignore_errors=True)
            del recorded[capture]
    # What was recorded on other machines, or by processes that were killed.
    for capture in sorted(out.glob("*.capture")) if out.is_dir() else []:
        recorded.setdefault(capture, {})
    converted = {line["capture"] for line in lines if line.get("capture")} - {str(capture) for capture in recorded}
    runs = [_converted(capture) for capture in recorded]
    runs += [run for run in (Path(name.removesuffix(".capture")) for name in sorted(converted)) if run.is_dir()]
    problems = dict.fromkeys(line["problem"] for line in lines if line.get("problem"))
    said = [problem for problem in problems if problem != "withdrawn"]
    if not runs:
        silent = said or settings.get("idle") or any(line.get("refused") for line in lines)
        return [*said, *([] if silent else [_why_nothing(lines, settings)])]
    places = [_short(place) for place in _together(runs)]
    if not settings.get("idle") and not settings.get("seconds") and not any(line.get("whole_steps") for line in recorded.values()):
        said += _no_steps(lines, settings)
    reasons = dict.fromkeys(line["incomplete"] for line in lines if line.get("incomplete"))
    incomplete = f", which is incomplete ({', '.join(reasons)})" if reasons else ""
    return [*said, *(f"recorded {place}{incomplete}; open it with: stepscope view {_quoted(place)}" for place in places)]


def places(captures: list[Path]) -> list[Path]:
    """Captures as run folders where that is possible, and what to open to see them."""
    return [_short(place) for place in _together([_converted(capture) for capture in captures])]


def _together(runs: list[Path]) -> list[Path]:
    """What opens them: a folder where all that is in it is one run, else each by itself."""
    try:
        from stepscope import run_groups
    except ImportError:  # numpy alone
        return sorted(runs)
    shown: list[Path] = []
    for folder in dict.fromkeys(run.parent for run in runs):
        everything = [one for one in folder.iterdir() if one.is_dir() and one.name.startswith("rank")]
        found = [run_groups.Source(one, "capture" if one.suffix == captures.SUFFIX else "run") for one in sorted(everything)]
        groups = list(run_groups.groups(found))
        for group in groups:
            inside = [source.path for source in group.sources if source.path in runs]
            place = run_groups.place(group, groups)
            shown += [place] if place is not None and inside else inside
    return shown


def _converted(capture: Path) -> Path:
    try:
        from stepscope import conversion
    except ImportError:  # numpy alone: it becomes a run folder when it is first opened elsewhere
        return capture
    try:
        return conversion.convert(capture)
    except Exception as error:  # noqa: BLE001  the capture is there to be opened
        sys.stderr.write(f"stepscope: {escape_controls(f'{capture} stays a capture: {error}')}\n")
        return capture


def _why_nothing(lines: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    steps = max((line.get("steps", 0) for line in lines), default=0)
    seen = sorted({word for line in lines for word in line.get("seen", [])})
    if any(line.get("yielded") for line in lines):
        return "nothing was recorded: the program has a profiler of its own, which had precedence"
    if not lines:
        return "nothing was recorded: no Python of the job could be reached (python -I, -E and -S leave PYTHONPATH out)"
    if settings.get("steps") and steps:
        first, end = settings["steps"]
        return f"nothing was recorded: the job made {units.count(steps, 'step')}, and --steps {first}:{end} asks for later ones"
    if settings.get("seconds"):
        return "nothing was recorded: the job ended before recording began, a moment after its start and its import of a framework"
    if not seen:
        return (
            "nothing was recorded: the job imported neither torch, mindspore, jax nor tensorflow, and used no stepscope.record_function;"
            " --seconds records it all the same"
        )
    why = " ".join(_no_steps(lines, settings)) or "no step was seen"
    return f"nothing was recorded: {why}. The job imported {', '.join(seen)}; --seconds records without steps"


def _no_steps(lines: list[dict[str, Any]], settings: dict[str, Any]) -> list[str]:
    """That no step was seen in the job, and how to name one; nothing where there were steps, only not recorded whole."""
    if any(line.get("steps") for line in lines):
        return []
    if settings.get("step_on"):
        reasons = dict.fromkeys(line["unnamed"] for line in lines if line.get("unnamed"))
        return [f"no step was seen: {'; '.join(reasons) or 'nothing of that name'} (--step-on {settings['step_on']})"]
    seen = {word for line in lines for word in line.get("seen", [])}
    if not seen:
        return []
    if "jax" in seen:
        return ["no step was seen: mark steps with jax.profiler.StepTraceAnnotation, or name one: --step-on function:__main__.train_step"]
    if seen == {"record_function"}:
        return ["no step was seen: name a range that ends one, such as --step-on annotation:NAME"]
    return [
        "no step was seen, as no optimizer stepped or all is compiled: name one, such as --step-on dataloader or --step-on"
        " function:__main__.train_step"
    ]


def _short(path: Path) -> Path:
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
