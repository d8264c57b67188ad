"""keep_slow: everything is recorded, and only the windows with a slow step are kept."""

import os
import re
import signal
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import STEPSCOPE, needs, recordings, run, run_command, script, started, steps
from stepscope.errors import UsageError
from stepscope.recording.collectors.options import Options, parse
from stepscope.recording.process.runtime import runtime
from stepscope.recording.windows.slow_steps import SlowSteps
from stepscope.recording.windows.window import Window

FACTOR = 15
# Steps of 20 ms or, on a busy machine, more. A planted one takes twenty times as long as the longest so far; others may be slow, too.
TRAIN = """
    import sys, time, torch
    from pathlib import Path
    net = torch.nn.Linear(8, 8)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    ready = False
    longest, count, planted = 0.0, int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    for step in range(count):
        began = time.monotonic()
        net(torch.ones(4, 8)).sum().backward()
        time.sleep(0.02)
        if step in planted:
            time.sleep(20 * longest)
        if step > 2:
            longest = max(longest, time.monotonic() - began) if step not in planted else longest
        if step > 90 and not ready and any(Path("data").glob("*/rank*.capture")):
            ready = True
            print("ready", flush=True)  # a window was kept
        with open("durations", "a") as durations: durations.write(f"{time.monotonic() - began}\\n")
        sgd.step()
"""


def slow_steps(recording: Path) -> list[int]:
    """The steps for which the window was kept."""
    texts = stepscope.open(recording, cache=False).problems.collect()["what"].to_list()
    return [int(match[1]) for text in texts if (match := re.match(r"kept for a slow step: step (\d+) took", text))]


def check_kept(folder: Path, *planted: int) -> list[Path]:
    """The windows, each kept for a step that is also slow as the program measures it; all planted steps are recorded."""
    durations = [float(line) for line in (folder / "durations").read_text().splitlines()]
    kept = recordings(folder / "data")
    for window in kept:
        (step,) = slow_steps(window)
        assert step in steps(window)
        assert durations[step] > 0.8 * FACTOR * statistics.median(durations[max(step - 100, 3) : step])
    assert set(planted) <= {step for window in kept for step in steps(window)}
    return kept


def test_only_windows_with_slow_steps_are_kept(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TRAIN)
    done = run(tmp_path, "--keep-slow", str(FACTOR), "train.py", "100", "30", "50", "80")
    kept = check_kept(tmp_path, 30, 50, 80)
    recorded = [step for window in kept for step in steps(window)]
    assert len(recorded) == len(set(recorded))
    for window in kept:
        calls = stepscope.open(window, cache=False).spans.collect().filter(pl.col("name") == "aten::addmm", pl.col("step").is_not_null())
        assert calls["step"].to_list() == steps(window)  # every step of the window is recorded, with its one operator of this name
    summary = rf"stepscope: kept {len(kept)} of \d+ windows \(100 steps\): a slow step takes more than {FACTOR} times the median"
    assert re.search(summary, done.stderr)


def test_a_job_without_a_slow_step_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TRAIN)
    done = run(tmp_path, "--keep-slow", "1000", "train.py", "40")
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").rglob("*")) == []
    lines = [line for line in done.stderr.splitlines() if line.startswith("stepscope:")]
    assert len(lines) == 1
    assert re.match(r"stepscope: kept 0 of \d+ windows? \(40 steps\): a slow step takes more than 1000 times the median", lines[0])


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_a_job_that_is_killed_keeps_the_windows_that_were_kept(number: str, tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TRAIN)
    with started(
        tmp_path, *STEPSCOPE, "run", "--keep-slow", str(FACTOR), "bash", "-c", "python train.py 1000000 30 & echo $!; wait $!"
    ) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        os.kill(child, getattr(signal, f"SIG{number}"))
        _, err = process.communicate(timeout=300)
    check_kept(tmp_path, 30)
    assert ("the last window of a process that was killed is lost" in err) == (number == "KILL")
    assert not list((tmp_path / "data").glob("*/.*"))


def test_a_profiler_keeps_slow_steps_too(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import time
        from stepscope import Profiler, record_function
        handled = []
        with Profiler(keep_slow=15, host_interval_ms=0, on_trace_ready=lambda profiler: handled.append(profiler.run)) as profiler:
            longest = 0.0
            for step in range(60):
                began = time.monotonic()
                with record_function("work"): time.sleep(0.01)
                if step == 40: time.sleep(20 * longest)
                elif step > 2: longest = max(longest, time.monotonic() - began)
                with open("durations", "a") as durations: durations.write(f"{time.monotonic() - began}\\n")
                profiler.step()
        assert len(handled) == len(profiler.analyse())
        """,
    )
    done = run_command(tmp_path, "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert f"kept {len(check_kept(tmp_path, 40))} of" in done.stderr


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Callable[[], Window]]:
    """Opens a hidden window without collectors."""
    yield lambda: Window(Options(output_path=tmp_path), [], step=0, hidden=True)
    if runtime.window is not None:
        runtime.window.discard()


def test_a_step_is_slow_by_the_median_of_those_before_it_without_the_first_three(window: Callable[[], Window], tmp_path: Path) -> None:
    now = 0
    slow = SlowSteps(Options(keep_slow=2.0), clock=lambda: now)
    opened = window()
    slow.opened()
    # Three steps start up; ten of 100 ns are needed before the first is judged.
    for number, duration in enumerate([900, 900, 900, *[100] * 9, 500, 200, 201]):
        slow.begin_step()
        now += duration
        slow.end_step(number)
        assert slow.window_is_over() == (number >= 9)
    assert slow.close(opened)
    notices = opened.capture.header["notices"]
    # Step 12 (500 ns) came too early to be judged, step 13 takes twice the median and not more.
    expected = "kept for a slow step: step 14 took 201 ns, 2.01 times the median of the 11 steps before it (100 ns); so far, 0 windows"
    assert [notice["what"].startswith(expected) for notice in notices] == [True], notices
    assert [path.name.startswith(".") for path in tmp_path.iterdir()] == [False]


def test_the_twenty_windows_with_the_slowest_steps_stay(window: Callable[[], Window], tmp_path: Path) -> None:
    now = 0
    slow = SlowSteps(Options(keep_slow=2.0), clock=lambda: now)

    def record(*durations: int) -> bool:
        nonlocal now
        opened = window()
        slow.opened()
        for duration in durations:
            slow.begin_step()
            now += duration
            slow.end_step(0)
        return slow.close(opened)

    assert not record(*[100] * 20)
    assert [record(*[100] * 20, 300 + row) for row in range(20)] == [True] * 20
    assert not record(*[100] * 20, 299)  # less slow than all of them
    assert record(*[100] * 20, 1000)
    assert len(list(tmp_path.iterdir())) == 20
    assert slow.summary() == (
        "kept 20 of 23 windows (482 steps): a slow step takes more than 2 times the median of the steps before it (in the end 100 ns);"
        " 1 window without a slow step was deleted, and 2 more for windows with slower ones"
    )


@pytest.mark.parametrize("value", [1, 0, True, "2", float("nan"), float("inf")])
def test_a_factor_that_is_no_number_above_one_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"keep_slow is .*; expected a number above 1"):
        parse({"keep_slow": value})


def test_the_command_line_takes_a_factor_or_none(tmp_path: Path) -> None:
    script(tmp_path, "print('ran')")
    for words in (["--keep-slow"], ["--keep-slow", "2"], ["--keep-slow=2"]):
        assert run_command(tmp_path, *STEPSCOPE, "run", *words, "train.py").stdout == "ran\n"
    refused = run_command(tmp_path, *STEPSCOPE, "run", "--keep-slow", "1", "train.py")
    assert refused.returncode == 2 and "--keep-slow is '1'; expected a number above 1" in refused.stderr
    refused = run_command(tmp_path, *STEPSCOPE, "run", "--keep-slow", "--idle", "train.py")
    assert refused.returncode == 2 and "use one of them" in refused.stderr
