"""Every way of recording keeps how long the steps took that it did not record."""

import json
import re
import sys
from pathlib import Path

import pytest

import preloaded
import stepscope
from programs import TORCH, needs, only, recordings, run, run_command, script, socket_folder
from stepscope import DynamicProfilerMonitor, Profiler, record_function, schedule
from stepscope.model import captures
from stepscope.model.trace import UnprofiledSteps


def unprofiled(recording: Path) -> UnprofiledSteps:
    found: UnprofiledSteps = only(stepscope.open(recording, cache=False).meta.unprofiled_steps)
    return found


def numbers(recording: Path) -> tuple[int, list[int], list[int]]:
    found = unprofiled(recording)
    assert all(duration > 0 for part in (found.before, found.after) for duration in part.dur_ns)
    assert 0 < found.p10_ns <= found.median_ns <= found.p90_ns
    return found.count, found.before.step, found.after.step


def test_run_knows_the_steps_before_and_after_those_it_recorded(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(20)\n")
    assert run(tmp_path, "--steps", "10:13", "train.py").returncode == 0
    recording = only(recordings(tmp_path / "data"))
    # Step 0 has no beginning that was seen, 14 has the end of the recording in it; 1 and 2 are among the first three.
    assert numbers(recording) == (7, list(range(1, 10)), list(range(15, 20)))
    assert json.loads((recording / "run.json").read_text())["unprofiled_steps"][0]["after"]["step"] == [15, 16, 17, 18, 19]
    summary = run_command(tmp_path, sys.executable, "-m", "stepscope", "summary", str(recording)).stdout
    assert re.search(r"per step unprofiled, \S+ \S+ while recorded", " ".join(summary.split()))


def test_a_run_of_which_everything_was_recorded_has_no_unprofiled_steps(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(5)\n")
    assert run(tmp_path, "train.py").returncode == 0
    recording = only(recordings(tmp_path / "data"))
    assert stepscope.open(recording, cache=False).meta.unprofiled_steps == []
    assert "unprofiled" not in run_command(tmp_path, sys.executable, "-m", "stepscope", "summary", str(recording)).stdout


def test_steps_that_the_programs_own_torch_profiler_records_are_not_unprofiled(tmp_path: Path) -> None:
    needs("torch")
    job = """
    from stepscope import Profiler, schedule
    profiler = Profiler(output_path="data", schedule=schedule(wait=9, active=1, repeat=1))
    for number in range(10):
        if number == 5:
            theirs = torch.profiler.profile()
            theirs.start()
        if number == 7:
            theirs.stop()
        train(1)
        profiler.step()
    """
    script(tmp_path, TORCH + job)
    done = preloaded.run("torch", tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    # It began at the end of step 4, before any operator of step 5, and ended at the beginning of step 7.
    assert unprofiled(only(recordings(tmp_path / "data"))).before.step == [1, 2, 3, 4, 8]


def test_a_killed_job_keeps_the_steps_before_its_window(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + "    train(12)\n    import os; os.kill(os.getpid(), 9)\n")
    assert run(tmp_path, "--steps", "6:9", "train.py").returncode == -9
    assert numbers(only(recordings(tmp_path / "data"))) == (3, [1, 2, 3, 4, 5], [])


def iterate(profiler: Profiler, count: int) -> None:
    for _ in range(count):
        with record_function("work"):
            sum(range(100))
        profiler.step()


def test_each_window_of_a_schedule_knows_the_steps_before_it_and_after_it(tmp_path: Path) -> None:
    needs("torch")
    job = """
    from stepscope import Profiler, schedule
    with Profiler(output_path="data", schedule=schedule(wait=5, warmup=1, active=2, repeat=2)) as profiler:
        for number in range(20):
            train(1)
            profiler.step()
    profiler.analyse()
    """
    script(tmp_path, TORCH + job)
    done = preloaded.run("torch", tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    first, second = recordings(tmp_path / "data")
    # The steps 5 and 13 warm up, 8 and 16 hold the end of a window.
    assert numbers(first) == (2, [1, 2, 3, 4], [9, 10, 11, 12])
    assert numbers(second) == (2 + 4, [1, 2, 3, 4, 9, 10, 11, 12], [17, 18, 19])


def test_a_window_that_is_analysed_at_once_knows_the_steps_before_it(tmp_path: Path) -> None:
    plan, handler = schedule(wait=4, active=2, repeat=1), stepscope.tensorboard_trace_handler(str(tmp_path))
    with Profiler(framework="python", schedule=plan, on_trace_ready=handler) as profiler:
        iterate(profiler, 10)
    assert profiler.run is not None
    # One step beyond the first three is too few: all count.
    assert numbers(profiler.run) == (3, [1, 2, 3], [])


def test_without_a_schedule_steps_before_start_and_after_stop_count(tmp_path: Path) -> None:
    profiler = Profiler(output_path=tmp_path, framework="python", start_profile=False)
    iterate(profiler, 6)
    profiler.start()
    iterate(profiler, 3)
    profiler.stop()
    iterate(profiler, 4)
    assert numbers(only(profiler.analyse())) == (3, [1, 2, 3, 4, 5], [10, 11, 12])


def test_steps_of_a_schedule_that_was_stopped_are_unprofiled_ones(tmp_path: Path) -> None:
    profiler = Profiler(output_path=tmp_path, framework="python", schedule=schedule(wait=3, active=1))
    iterate(profiler, 2)
    profiler.stop()
    iterate(profiler, 5)  # the schedule stands, the job goes on
    profiler.start()
    iterate(profiler, 2)
    assert unprofiled(only(profiler.analyse())).before.step == [1, 2, 3, 4, 5, 6]


def test_a_monitor_knows_the_steps_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_JOBS", str(socket_folder(tmp_path)))
    (tmp_path / "profiler_config.json").write_text(json.dumps({"start_step": 6, "stop_step": 7, "analyse": False}))
    monitor = DynamicProfilerMonitor(tmp_path, tmp_path / "out", framework="python")
    for _ in range(12):
        monitor.step()
    monitor._recorder.finish()
    # Counted from 1; the first three are 1 to 3.
    assert numbers(only(recordings(tmp_path / "out"))) == (2, [2, 3, 4, 5], [9, 10, 11, 12])


def test_median_and_percentiles_are_those_of_the_durations_before_the_window(tmp_path: Path) -> None:
    import numpy as np

    capture = captures.Capture(tmp_path / "rank0.capture", {"rank": 3, "pid": 1})
    order, durations = np.arange(1, 16), np.array([900, 800, *range(10, 120, 10), 5000, 6000])
    capture.append("unprofiled_steps", {"order": order, "step": order, "dur_ns": durations, "after": order > 13})
    capture.append("steps", {"step": np.array([9]), "start_ns": np.array([5]), "end_ns": np.array([9])})
    capture.finish()
    found = unprofiled(capture.folder)
    # 10, 20, ... 110: eleven values, so that the percentiles fall on the second, the sixth and the tenth.
    assert (found.rank, found.count, found.p10_ns, found.median_ns, found.p90_ns) == (3, 11, 20, 60, 100)
    assert found.before.dur_ns == [900, 800, *range(10, 120, 10)]
    assert found.after.step == [14, 15]


def test_steps_after_the_window_count_where_there_are_too_few_before_it(tmp_path: Path) -> None:
    import numpy as np

    capture = captures.Capture(tmp_path / "rank0.capture", {"rank": 0, "pid": 1})
    order = np.arange(3, 8)
    capture.append("unprofiled_steps", {"order": order, "step": order, "dur_ns": order * 10, "after": order > 3})
    capture.append("steps", {"step": np.array([3]), "start_ns": np.array([5]), "end_ns": np.array([9])})
    capture.finish()
    found = unprofiled(capture.folder)
    assert (found.count, found.median_ns) == (5, 50)


def test_ranks_keep_their_own(tmp_path: Path) -> None:
    import numpy as np

    for rank in (0, 1):
        capture = captures.Capture(tmp_path / f"rank{rank}.capture", {"rank": rank, "world_size": 2, "pid": 1})
        one = np.array([5])
        capture.append("unprofiled_steps", {"order": one, "step": one, "dur_ns": one * (rank + 1), "after": np.array([False])})
        capture.append("steps", {"step": one, "start_ns": one, "end_ns": one * 2})
        capture.finish()
    trace = stepscope.open(tmp_path, cache=False)
    assert [(one.rank, one.median_ns) for one in trace.meta.unprofiled_steps] == [(0, 5), (1, 10)]
    assert [one.rank for one in trace.of_rank(1).meta.unprofiled_steps] == [1]
