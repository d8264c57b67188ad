"""Jobs that are recorded in every way, under glibc's checks of the heap: what they must have in common with the same job left alone."""

import ctypes.util
import functools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import stepscope
from programs import STEPSCOPE, environment, free_port, recordings

HERE = Path(__file__).parent
# Has Hugging Face's and Lightning's packages; `make test-deep` makes it.
OTHER_PYTHON = HERE.parent.parent / ".venv-soak" / "bin" / "python"
FORMS = dict.fromkeys(("eager", "hooks", "compiled", "hf", "lightning", "ddp"), HERE / "torch_job.py")
FORMS["mindspore"] = HERE / "mindspore_job.py"

# What is recorded, by the name in the table. Under the checks of the heap the recorder cannot tell how much a session of torch.profiler
# holds: it ends them early. Where it may pause training as often as it likes it goes on, and most steps are recorded. In `rolls` that is
# so after every few thousand events. `plain` is what users have.
_PAUSE = {"max_pause_percent": 100}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "memory": {"profile_memory": True, "record_shapes": True, **_PAUSE},
    "stack": {"with_stack": True, **_PAUSE},
    "flops": {"with_flops": True, **_PAUSE},
    "rolls": {"max_events": 400_000, "max_held_events": 10_000, **_PAUSE},
}
_WINDOWS_OPENED = 40  # of a recording; opening one takes about as long as recording it
_LONG_S = 30  # training in which there is time to attach, on a busy machine
_MEGABYTE = 2**20
# What recording may cost in memory: the libraries that it loads, and 2.5 KB for each event that PyTorch holds until a session ends.
_ALLOWED_BYTES = 300 * _MEGABYTE + 2500 * 500_000
# How fast the memory may grow, beyond that of the job left alone, after the recording has ended. Each step makes a module of 64 KiB.
_SLOPE_BYTES = 16_384
_CRASH = re.compile(
    r"free\(\)|corrupt|malloc|double free|munmap_chunk|memory clobbered|Segmentation fault|Fatal Python error|terminate called"
    r"|^Error in cpuinfo|^\*\*\*",
    re.MULTILINE,
)
# A row of `problems`, or a line on stderr, that is a fault of ours and not a remark.
_INTERNAL = re.compile(r"\b\w+(Error|Exception)\b|\bfailed:|could not be (taken over|finished)|stays a capture")
_ENDED_EARLY = re.compile(r"ended early|max_events|recorded up to|records others")


@dataclass(frozen=True)
class Case:
    form: str
    way: str
    variant: str = "plain"
    steps: str = ""  # A:B, of `stepscope run`
    python_malloc: bool = False  # Python's own objects are checked, too

    def __str__(self) -> str:
        words = [self.form, self.way, self.variant, self.steps and f"steps {self.steps}", self.python_malloc and "PYTHONMALLOC"]
        return " ".join(word for word in words if word)


@dataclass
class Outcome:
    case: Case
    code: int | None = None  # None: it did not end
    seconds: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)  # what the job printed last
    refused: str = ""  # what attach said, where it never succeeded
    windows: int = 0
    steps: int = 0  # recorded, of all ranks and windows
    operators: int = 0
    crashes: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)  # the training was another one
    memory: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of the recording

    @property
    def failures(self) -> list[str]:
        return [*self.crashes, *self.mismatches, *self.memory, *self.faults]


@functools.cache
def malloc_checker() -> str | None:
    """The library of glibc 2.34 and later that checks the heap; earlier ones have it inside."""
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        ctypes.CDLL("libc_malloc_debug.so.0")
    except OSError:
        return None
    return "libc_malloc_debug.so.0"


def malloc_checks(*, python: bool = False) -> dict[str, str]:
    """Freed memory is overwritten, and every block is looked at when it is freed."""
    checks = {"MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
    if library := malloc_checker():
        checks["LD_PRELOAD"] = library
    return checks | ({"PYTHONMALLOC": "malloc"} if python else {})


def why_absent(form: str) -> str | None:
    """Why jobs of this form cannot be run, or None."""
    if not FORMS[form].exists():
        return f"there is no {FORMS[form].name}"
    if form in ("hf", "lightning"):
        return None if OTHER_PYTHON.exists() else "there is no .venv-soak: `make test-deep` makes it"
    module = "mindspore" if form == "mindspore" else "torch"
    import importlib.util

    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def play(case: Case, folder: Path, *, steps: int, seconds: float, pause: float = 0.0, limit_s: float, reference: Outcome | None) -> Outcome:
    """Run the job to its end, and hold it against the same job left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(case)
    options = VARIANTS[case.variant]
    job = [*_python(case), str(FORMS[case.form]), "--form", case.form, "--way", case.way, "--steps", str(steps)]
    job += ["--seconds", str(seconds), "--pause", str(pause), "--out", "data", "--config", "config"]
    if case.way in ("profiler", "schedule", "monitor"):
        job += ["--options", json.dumps(options)]
    if case.way == "run":
        flags = ["--steps", case.steps] if case.steps else []
        job = [*STEPSCOPE, "run", *flags, "--profiling-options", json.dumps(options), *job]
    elif case.way == "attach":
        job = [*STEPSCOPE, "run", "--idle", *job]
    more = malloc_checks(python=case.python_malloc) | {"TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "inductor"), "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        outcome.code = _run(job, folder, environment(folder, **more), out, err, limit_s, case, options, outcome)
    outcome.seconds = time.monotonic() - began
    _check_job(outcome, folder, reference)
    if not outcome.crashes and case.way != "bare":
        # A job may be over before somebody who attaches has found it: that tells nothing of the recorder.
        if case.way not in ("attach", "monitor") or recordings(folder / "data") or _trained_s(outcome) > _LONG_S:
            _check_recordings(outcome, folder, steps if reference is None else reference.result["steps"])
        _check_memory(outcome, reference)
    return outcome


def _trained_s(outcome: Outcome) -> float:
    return float(outcome.result["steps"] * outcome.result["step_ms_median"] / 1e3)


def _python(case: Case) -> list[str]:
    if case.form in ("hf", "lightning"):
        return [str(OTHER_PYTHON)]
    if case.form == "ddp":
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    return [sys.executable]


def _run(
    words: list[str],
    folder: Path,
    environ: dict[str, str],
    out: IO[str],
    err: IO[str],
    limit_s: float,
    case: Case,
    options: Mapping[str, Any],
    outcome: Outcome,
) -> int | None:
    """The exit code; None where it had to be ended. Meanwhile somebody edits the monitor's file, or attaches."""
    job = subprocess.Popen(words, cwd=folder, env=environ, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
    watch = {"monitor": lambda: _edit(job, folder), "attach": lambda: _attach(job, folder, options, outcome)}.get(case.way)
    watcher = threading.Thread(target=watch) if watch else None
    if watcher:
        watcher.start()
    try:
        return job.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        if watcher:
            watcher.join()


def _edit(job: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Ask for five steps, and when they are recorded, or were asked for too late, for five more."""
    config, status = folder / "config" / "profiler_config.json", folder / "config" / "profiler_status"
    config.parent.mkdir(exist_ok=True)
    request, start = 0, 5
    while job.poll() is None:
        output: dict[str, Any] = next((json.loads(one.read_text()) for one in status.glob("*.rank0.json")), {"taken": [], "rejected": []})
        if len(output["rejected"]) + sum(one["state"] in ("recorded", "failed") for one in output["taken"]) == request:
            if output["rejected"]:
                start = max(start, output["rejected"][-1]["step"] + 40)
            draft = config.with_suffix(".new")
            draft.write_text(json.dumps({"start_step": start, "stop_step": start + 4}))
            draft.replace(config)
            request, start = request + 1, start + 15
        time.sleep(0.05)


def _attach(job: "subprocess.Popen[bytes]", folder: Path, options: Mapping[str, Any], outcome: Outcome) -> None:
    """Attach again and again. What fails because the job has just begun, or ends, is no failure; that none succeeds is one."""
    words = [*STEPSCOPE, "attach", str(job.pid), "--steps", "5", "--profiling-options", json.dumps(dict(options))]
    succeeded, output = 0, ""
    while job.poll() is None:
        done = subprocess.run(words, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
        succeeded += done.returncode == 0
        output = output if done.returncode == 0 else done.stderr.strip()
        time.sleep(0.2)
    outcome.refused = "" if succeeded else output


def _check_job(outcome: Outcome, folder: Path, reference: Outcome | None) -> None:
    """It ended as it would have, and trained what it would have, to the last bit."""
    output = (folder / "stderr").read_text(errors="replace")
    printed = [line for line in (folder / "stdout").read_text(errors="replace").splitlines() if line.startswith('{"')]
    if outcome.code is None:
        outcome.crashes.append("did not end in time")
    elif outcome.code < 0:
        outcome.crashes.append(f"killed by {signal.Signals(-outcome.code).name}{_where(output)}")
    elif outcome.code > 0:
        outcome.crashes.append(f"exit code {outcome.code}: {_last(output)}{_where(output)}")
    elif found := _CRASH.search(output):
        outcome.crashes.append(f"stderr has {found[0]!r}: {_line(output, found.start())}")
    elif not printed:
        outcome.crashes.append("printed no result")
    if printed:
        outcome.result = json.loads(printed[-1])
    if outcome.crashes:
        return
    outcome.faults += [f"stderr: {line}" for line in output.splitlines() if line.startswith("stepscope: ") and _INTERNAL.search(line)]
    if reference is not None:
        outcome.mismatches += [
            f"{key}: {outcome.result[key]}, not {reference.result[key]}"
            for key in ("steps", "loss_hash", "param_hash")
            if outcome.result[key] != reference.result[key]
        ]


def _where(output: str) -> str:
    """The innermost Python lines of a crash, as faulthandler prints them."""
    found = re.search(r"Current thread [^\n]*\(most recent call first\):\n((?:  File [^\n]*\n){1,4})", output)
    places = re.findall(r'File "(?:[^"]*/)?([^"/]+)", line (\d+) in (\S+)', found[1]) if found else []
    text = next((line for line in output.splitlines() if re.search(r"free\(\)|corrupt|malloc\(|double free|clobbered", line)), "")
    return "".join(
        [f" ({text})" if text else "", " in " + " < ".join(f"{name} {file}:{line}" for file, line, name in places) if places else ""]
    )


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line or "exitcode" in line), lines[-1] if lines else "")


def _line(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]


def _check_recordings(outcome: Outcome, folder: Path, steps: int) -> None:
    case = outcome.case
    found = recordings(folder / "data")
    outcome.windows = len(found)
    if not found:
        outcome.faults.append(f"nothing was recorded{f': {outcome.refused}' if outcome.refused else ''}")
    every = max(1, -(-len(found) // _WINDOWS_OPENED)) | 1  # odd: windows of two ranks may alternate
    recorded: dict[int, set[int]] = {}
    output: list[str] = []
    for number, recording in enumerate(found):
        opened = number % every == 0
        try:
            problems, by_rank, without, operators = _opened(recording) if opened else ([], {}, set(), 0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            outcome.faults.append(f"{recording.name} does not open: {type(error).__name__}: {error}")
            continue
        output += problems
        outcome.faults += [f"{recording.name}: {what}" for what in problems if _INTERNAL.search(what)]
        if silent := {step for step in without if not any(_explains(what, step) for what in problems)}:
            outcome.faults.append(f"{recording.name}: {len(silent)} steps without operators, and no word of it: {sorted(silent)[:5]}")
        for rank, numbers in by_rank.items():
            recorded.setdefault(rank, set()).update(numbers)
        outcome.operators += operators * every
    outcome.steps = sum(map(len, recorded.values()))
    expected = _expected(case, steps)
    early = any(_ENDED_EARLY.search(what) for what in output) or every > 1
    for rank, numbers in sorted(recorded.items()):
        more = sorted(numbers - expected) if expected is not None else []
        missing = sorted(expected - numbers) if expected is not None and not early else []
        missing = [step for step in missing if not any(_explains(what, step) for what in output)]
        if more or missing or not numbers:
            outcome.faults.append(
                f"rank {rank}: {len(numbers)} steps; missing {len(missing)} {missing[:5]}, unexpected {len(more)} {more[:5]}"
            )
    if len(recorded) < (2 if case.form == "ddp" else 1) and found:
        outcome.faults.append(f"ranks {sorted(recorded)} recorded")


def _opened(recording: Path) -> tuple[list[str], dict[int, set[int]], set[int], int]:
    """Its problems, the steps of each rank, those without operators, and how many operators it has."""
    import polars as pl

    trace = stepscope.open(recording, cache=False)
    spans = trace.spans.select("rank", "step", "kind").collect()
    # A window in which no step ended is one step to whoever opens it.
    steps = trace.steps.filter(pl.col("how").cast(pl.String) != "whole").select("rank", "step").collect()
    working = spans.filter(pl.col("kind") == "op").select("rank", "step").unique()
    without = steps.join(working, on=["rank", "step"], how="anti")["step"].to_list()
    by_rank = {rank: set(steps.filter(rank=rank)["step"].to_list()) for rank in steps["rank"].unique().to_list()}
    return trace.problems.collect()["what"].to_list(), by_rank, set(without), len(spans.filter(pl.col("kind") == "op"))


def _explains(problem: str, step: int) -> bool:
    """Whether it says that PyTorch was not recorded in this step, or not to its end."""
    if found := re.search(r"\bstep (\d+) is recorded in part", problem):
        return step == int(found[1])
    if found := re.search(r"\bsteps? (\d+)(?: to (\d+))? not recorded", problem):
        return int(found[1]) <= step <= int(found[2] or found[1])
    if found := re.search(r"\bsteps from (\d+) on not recorded", problem):
        return step >= int(found[1])
    if found := re.search(r"PyTorch is recorded from step (\d+) on", problem):
        return step < int(found[1])
    return bool(re.search(r"PyTorch is (not recorded|recorded up to)|PyTorch did is lost|no operator of PyTorch ran", problem))


def _expected(case: Case, steps: int) -> set[int] | None:
    """Which steps are recorded; None where that depends on when somebody asked."""
    if case.way == "run":
        first, end = map(int, case.steps.split(":")) if case.steps else (0, 1000)
        return set(range(first, min(end, steps)))
    if case.way == "profiler":
        return set(range(steps))
    if case.way == "schedule":  # wait=2, warmup=1, active=3
        return {step for step in range(steps) if step % 6 >= 3}
    return None


def _check_memory(outcome: Outcome, reference: Outcome | None) -> None:
    if reference is None:
        return
    cost = outcome.result["rss_max"] - reference.result["rss_max"]
    allowed = _ALLOWED_BYTES * (1.5 if outcome.case.python_malloc else 1)  # each object of Python is a block of its own, and has its checks
    if cost > allowed:
        outcome.memory.append(f"memory: {cost / _MEGABYTE:.0f} MB more than left alone; allowed are {allowed / _MEGABYTE:.0f} MB")
    # Only where the recording ended before the last quarter, in which the slope is measured.
    if outcome.case.steps and int(outcome.case.steps.split(":")[1]) <= outcome.result["steps"] // 2:
        slope = outcome.result["rss_slope"] - reference.result["rss_slope"]
        if slope > _SLOPE_BYTES:
            outcome.memory.append(f"memory: grows by {slope:,} bytes a step after the recording has ended")


def play_ranges(place: str, folder: Path, *, windows: int, limit_s: float, python_malloc: bool = False) -> Outcome:
    """Windows that end and begin at one place: none crashes, and each has its operators or says why not."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(Case("ranges", place, python_malloc=python_malloc))
    words = [sys.executable, str(HERE / "torch_ranges.py"), place, "--windows", str(windows)]
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        environ = environment(folder, **malloc_checks(python=python_malloc))
        outcome.code = _run(words, folder, environ, out, err, limit_s, outcome.case, {}, outcome)
    outcome.seconds = time.monotonic() - began
    _check_job(outcome, folder, None)
    if outcome.crashes:
        return outcome
    found = recordings(folder / "data")
    outcome.windows = len(found)
    if not windows <= len(found) <= windows + 1:
        outcome.faults.append(f"{len(found)} windows, not {windows}")
    silent = []
    for recording in _spread(found[:-1]):  # after the last border perhaps nothing ran
        problems, _, _, operators = _opened(recording)
        outcome.operators += operators
        outcome.faults += [f"{recording.name}: {what}" for what in problems if _INTERNAL.search(what)]
        if not operators and not any("torch" in what.lower() for what in problems):
            silent.append(recording.name)
    if silent:
        outcome.faults.append(f"{len(silent)} windows have no operators, and do not say why: {silent[:3]}")
    return outcome


def play_valgrind(place: str, folder: Path, *, windows: int, limit_s: float) -> Outcome:
    """A few windows under valgrind, which sees each read and write of freed memory; importing PyTorch alone takes it minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(Case("valgrind", place, python_malloc=True))
    words = ["valgrind", "--error-limit=no", "--num-callers=25", "--log-file=valgrind.log"]
    words += [sys.executable, str(HERE / "torch_ranges.py"), place, "--windows", str(windows)]
    # Valgrind knows no AVX-512.
    environ = environment(folder, PYTHONMALLOC="malloc", OMP_NUM_THREADS="1", ATEN_CPU_CAPABILITY="default")
    began = time.monotonic()
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        outcome.code = _run(words, folder, environ, out, err, limit_s, outcome.case, {}, outcome)
    outcome.seconds = time.monotonic() - began
    _check_job(outcome, folder, None)
    outcome.windows = len(recordings(folder / "data"))
    outcome.crashes += valgrind_errors((folder / "valgrind.log").read_text(errors="replace"))
    return outcome


def valgrind_errors(log: str) -> list[str]:
    """What it says of invalid memory that PyTorch used, once each. The system's loader has findings of its own."""
    found: dict[str, int] = {}
    for block in re.split(r"^==\d+== \n", log, flags=re.MULTILINE):
        lines = [line.partition("== ")[2].strip() for line in block.splitlines()]
        if lines and lines[0].startswith("Invalid ") and re.search(r"libtorch|libc10|kineto", block):
            place = next((line for line in lines[1:] if re.search(r"libtorch|libc10|kineto", line)), "")
            what = f"valgrind: {lines[0]}: {place.partition(': ')[2]}"
            found[what] = found.get(what, 0) + 1
    return [*found]


def _spread(found: list[Path]) -> Iterator[Path]:
    every = max(1, -(-len(found) // _WINDOWS_OPENED))
    return iter(found[::every])
