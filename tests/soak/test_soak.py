"""The short part of the soak: real trainings under glibc's checks of the heap. `make test-deep` has the long one (soak.py)."""

import functools
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import needs, run_command
from soak.harness import Case, Outcome, _check_job, _explains, malloc_checker, malloc_checks, play, play_ranges, valgrind_errors
from volume import mostly_deep

needs("torch")
STEPS = {"eager": 160, "hooks": 160, "ddp": 60}
LIMIT_S = 900
MADE: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    for folder in MADE:
        shutil.rmtree(folder)


def played(case: Case, folder: Path, reference: Outcome | None) -> Outcome:
    return play(case, folder, steps=STEPS[case.form], seconds=LIMIT_S, limit_s=LIMIT_S, reference=reference)


@functools.cache
def left_alone(form: str) -> Outcome:
    MADE.append(Path(tempfile.mkdtemp(prefix="stepscope-test-")))
    outcome = played(Case(form, "bare"), MADE[-1] / "bare", None)
    assert not outcome.failures
    return outcome


@pytest.mark.parametrize(
    "case",
    [
        Case("eager", "monitor"),
        Case("ddp", "run", "rolls"),
        *(
            pytest.param(case, marks=pytest.mark.deep)
            for case in (
                Case("eager", "run", "rolls"),
                Case("eager", "run", "rolls", python_malloc=True),
                Case("eager", "run", "memory", steps="5:40"),
                Case("hooks", "run", "rolls"),
                Case("eager", "profiler", "rolls"),
                Case("eager", "schedule"),
            )
        ),
    ],
    ids=str,
)
def test_a_recorded_training_neither_crashes_nor_trains_anything_else_and_its_recording_is_whole(tmp_path: Path, case: Case) -> None:
    outcome = played(case, tmp_path / "job", left_alone(case.form))
    assert not outcome.failures


# The other places take minutes: soak.py has them all, 300 windows each.
PLACES = [
    "one_range",
    "ranges_across",
    "forward_hook",
    "gradient_hook",
    "function_backward",
    "operator",
    "optimizer_hook",
    "window_by_a_thread",
]


FEW = [(place, 6) for place in ("ranges_across", "gradient_hook", "window_by_a_thread")]


@pytest.mark.parametrize(("place", "windows"), mostly_deep([*FEW, *((place, 30) for place in PLACES)], FEW))
def test_windows_may_end_at_any_place_of_a_training_and_each_has_its_operators_or_says_why_not(
    tmp_path: Path, place: str, windows: int
) -> None:
    outcome = play_ranges(place, tmp_path / "job", windows=windows, limit_s=LIMIT_S)
    assert not outcome.failures


# The harness itself.


@pytest.mark.skipif(malloc_checker() is None, reason="no libc_malloc_debug.so.0 here")
def test_the_checks_notice_a_block_that_is_freed_twice_and_one_that_is_written_beyond_its_end(tmp_path: Path) -> None:
    # Python's own calls: what ctypes looks up by name is not the checked one.
    begin = """
import ctypes
take, free = ctypes.pythonapi.PyMem_RawMalloc, ctypes.pythonapi.PyMem_RawFree
take.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
block = take(40)
"""
    for wrong in ("free(block); free(block)", "ctypes.memset(ctypes.c_void_p(block), 1, 41); free(block)"):
        done = run_command(tmp_path, sys.executable, "-c", begin + wrong, **malloc_checks())
        assert done.returncode == -signal.SIGABRT and "free(): invalid pointer" in done.stderr


@pytest.mark.parametrize(
    ("code", "stderr", "stdout", "crash"),
    [
        (0, "", '{"steps": 3}', None),
        (-11, "", '{"steps": 3}', "killed by SIGSEGV"),
        (0, "free(): invalid pointer\n", '{"steps": 3}', "free()"),
        (1, "exitcode  : -6 (pid: 12)\n", "", "exit code 1: exitcode  : -6"),
        (None, "", "", "did not end in time"),
        (0, "", "no result", "printed no result"),
    ],
)
def test_a_crash_is_noticed(tmp_path: Path, code: int | None, stderr: str, stdout: str, crash: str | None) -> None:
    (tmp_path / "stderr").write_text(stderr)
    (tmp_path / "stdout").write_text(stdout)
    outcome = Outcome(Case("eager", "bare"), code=code)
    _check_job(outcome, tmp_path, None)
    assert [crash in found for found in outcome.crashes] == [True] if crash else outcome.crashes == []


def test_a_training_that_differs_in_one_bit_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "stderr").write_text("")
    (tmp_path / "stdout").write_text('{"steps": 3, "loss_hash": "a", "param_hash": "b"}')
    outcome = Outcome(Case("eager", "run"), code=0)
    _check_job(outcome, tmp_path, Outcome(Case("eager", "bare"), result={"steps": 3, "loss_hash": "a", "param_hash": "c"}))
    assert outcome.mismatches == ["param_hash: b, not c"] and not outcome.crashes


def test_only_what_a_problem_says_explains_a_step_without_operators() -> None:
    text = "steps 4 to 6 not recorded: writing may pause training for 1 % of the time (max_pause_percent)"
    assert [step for step in range(9) if _explains(text, step)] == [4, 5, 6]
    assert [step for step in range(9) if _explains("steps from 7 on not recorded: so", step)] == [7, 8]
    assert [step for step in range(9) if _explains("PyTorch is recorded from step 2 on: before, so", step)] == [0, 1]
    assert not any(_explains("training paused for 0.057 s before step 3, to write 2,121 events", step) for step in range(9))


def test_of_what_valgrind_finds_only_what_pytorch_did_counts() -> None:
    log = """
==7== Invalid read of size 8
==7==    at 0x4023C6C: strncmp (strcmp-sse2.S:160)
==7==    by 0x4004BEE: is_dst (dl-load.c:216)
==7== 
==7== Invalid write of size 8
==7==    at 0x9: std::lock (in /lib/libstdc++.so)
==7==    by 0xA: torch::profiler::leave() (in /lib/libtorch_cpu.so)
==7==  Address 0x5 is 8 bytes inside a block of size 64 free'd
==7== 
"""
    assert valgrind_errors(log.lstrip()) == ["valgrind: Invalid write of size 8: torch::profiler::leave() (in /lib/libtorch_cpu.so)"]
