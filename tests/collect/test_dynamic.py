"""DynamicProfilerMonitor: a file says what to record while the job runs."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stepscope
from programs import names, only, recordings, run_command, script, socket_folder, started, steps
from stepscope import DynamicProfilerMonitor, record_function
from stepscope.errors import UsageError
from stepscope.recording.monitor import DEFAULTS
from stepscope.recording.windows import window

OLD = {
    "start_step": 10,
    "stop_step": 10,
    "aicore_metrics": -1,
    "profiler_level": -1,
    "profile_framework": -1,
    "analyse_mode": 0,
    "profile_communication": False,
    "parallel_strategy": True,
    "with_stack": False,
    "data_simplification": True,
}
# What the documentation of MindSpore 2.10 shows, its own misspelling included.
NEW = {
    "start_step": 2,
    "stop_step": 5,
    "aic_metrics": "AiCoreNone",
    "profiler_level": "Level0",
    "analyse_mode": 0,
    "activities": ["CPU", "NPU"],
    "export_type": ["text"],
    "profile_memory": False,
    "mstx": False,
    "parallel_strategy": False,
    "with_stack": False,
    "data_simplification": True,
    "l2_cache": False,
    "analyse": True,
    "record_shape": False,
    "prof_path": "./",
    "mstx_domain_include": [],
    "mstx_domain_exclude": [],
    "host_sys": [],
    "sys_io": False,
    "sys_interconnection": False,
}


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_JOBS", str(socket_folder(tmp_path)))


def monitor(**choices: Any) -> DynamicProfilerMonitor:
    return DynamicProfilerMonitor("cfg", "out", 1e-6, framework="python", host_interval_ms=0, **choices)  # looks at every step


def configure(settings: Any) -> None:
    Path("cfg").mkdir(exist_ok=True)
    Path("cfg/profiler_config.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))


def iterate(one: DynamicProfilerMonitor, first: int, last: int) -> None:
    for number in range(first, last + 1):
        with record_function(f"iteration{number}"):
            pass
        one.step()


def status() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(only(list(Path("cfg/profiler_status").glob("*.rank0.json"))).read_text())
    return found


def test_a_new_configuration_records_nothing_and_holds_every_key() -> None:
    one = monitor()
    iterate(one, 1, 5)
    assert json.loads(Path("cfg/profiler_config.json").read_text()) == DEFAULTS
    assert set(NEW) - {"record_shape"} <= set(DEFAULTS)
    assert not recordings(Path("out")) and status()["taken"] == status()["rejected"] == []


@pytest.mark.parametrize(("settings", "recorded"), [(OLD, [10]), (NEW, [2, 3, 4, 5])])
def test_the_iterations_named_are_recorded_counted_from_1_with_both_ends(settings: dict[str, Any], recorded: list[int]) -> None:
    configure(settings)
    iterate(monitor(), 1, 12)
    recording = only(recordings(Path(f"out/rank0_start{recorded[0]}_stop{recorded[-1]}")))
    assert steps(recording) == recorded
    assert {name for name in names(recording) if name.startswith("iteration")} == {f"iteration{number}" for number in recorded}
    taken = only(status()["taken"])
    assert (taken["state"], taken["steps"], taken["recording"]) == ("recorded", len(recorded), str(recording.absolute()))


def test_the_first_iteration_can_be_recorded() -> None:
    configure({"start_step": 1, "stop_step": 2})
    iterate(monitor(), 1, 4)
    assert steps(only(recordings(Path("out")))) == [1, 2]


def test_a_configuration_of_the_earlier_format_is_analysed_when_its_mode_says_so() -> None:
    configure(OLD | {"start_step": 2, "stop_step": 2})
    one = monitor()
    iterate(one, 1, 3)
    assert only(recordings(Path("out"))).suffix != ".capture"
    configure({"start_step": 5, "stop_step": 5})
    iterate(one, 4, 6)
    assert [path.suffix for path in recordings(Path("out"))].count(".capture") == 1, "nobody asked for this one to be analysed"


@pytest.mark.parametrize("mode", [0, 1])
def test_a_mode_of_analysis_alone_asks_for_analysis(mode: int) -> None:
    configure({"start_step": 2, "stop_step": 2, "analyse_mode": mode})
    iterate(monitor(), 1, 3)
    window.wait_for_conversions()
    assert only(recordings(Path("out"))).suffix != ".capture"


def test_a_mode_of_analysis_without_effect_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    configure(DEFAULTS | {"start_step": 2, "stop_step": 2, "analyse_mode": 0})
    iterate(monitor(), 1, 3)
    assert only(recordings(Path("out"))).suffix == ".capture", "as in MindSpore, `analyse` comes first"
    assert only(status()["taken"])["ignored"] == ["analyse_mode (analyse is false: set it to true)"]
    assert "ignored: analyse_mode (analyse is false: set it to true)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("{ not json", "invalid JSON"),
        ("\x00\xff" * 10, "invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
        ("[1, 2]", "expected a JSON object"),
        ({"start_step": 9, "stop_step": 8}, "stop_step is 8, before start_step, 9"),
        ({"start_step": "9", "stop_step": 9}, "start_step is '9'; expected a whole number, 1 or more"),
        ({"start_step": 9}, "stop_step is None; expected a whole number, 1 or more"),
        ({"start_step": 2, "stop_step": 9}, "step 2 has begun already: step 4 runs now"),
        ({"start_step": 9, "stop_step": 9, "with_stack": "yes"}, "with_stack is 'yes'; expected True or False"),
        ({"start_step": 9, "stop_step": 9, "profiler_level": 7}, "profiler_level is 7; expected -1 to 2"),
        ({"start_step": 9, "stop_step": 9, "analyse_mode": 5}, "analyse_mode 5; expected"),
        ({"start_step": 9, "stop_step": 9, "prof_path": 5}, "prof_path is 5; expected a folder"),
    ],
)
def test_a_bad_configuration_is_told_of_and_a_later_good_one_is_taken(settings: Any, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    one = monitor()
    iterate(one, 1, 3)
    configure(settings)
    iterate(one, 4, 5)
    rejected = only(status()["rejected"])
    assert why in rejected["why"] and rejected["step"] == 4
    assert why in capfd.readouterr().err
    configure({"start_step": 8, "stop_step": 9, "analyse": True})
    iterate(one, 6, 10)
    assert steps(only(recordings(Path("out")))) == [8, 9]


def test_a_misspelt_key_is_told_of_and_the_rest_is_taken() -> None:
    configure({"start_step": 2, "stop_step": 3, "wiht_stack": True})
    iterate(monitor(), 1, 4)
    assert only(status()["taken"])["ignored"] == ["wiht_stack (did you mean with_stack?)"]
    assert steps(only(recordings(Path("out")))) == [2, 3]


def test_one_recording_after_another() -> None:
    one = monitor()
    for first in (3, 7, 11):
        configure({"start_step": first, "stop_step": first + 1, "analyse": True})
        iterate(one, first - 2, first + 1)
    assert sorted(steps(path) for path in recordings(Path("out"))) == [[3, 4], [7, 8], [11, 12]]


def test_what_the_file_does_not_say_is_what_the_monitor_was_given() -> None:
    configure({"start_step": 1, "stop_step": 1, "record_shapes": True, "prof_path": "elsewhere"})
    iterate(monitor(profile_memory=True), 1, 2)
    options = stepscope.open(only(recordings(Path("elsewhere"))), cache=False).meta.options
    assert options["profile_memory"] is options["record_shapes"] is True


def test_a_job_that_ends_while_recording_leaves_what_it_saw(tmp_path: Path) -> None:
    configure({"start_step": 3, "stop_step": 100})
    script(
        tmp_path,
        """
        from stepscope import DynamicProfilerMonitor
        monitor = DynamicProfilerMonitor("cfg", "out")
        for number in range(6):
            monitor.step()
        """,
    )
    done = run_command(tmp_path, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert steps(only(recordings(Path("out")))) == [3, 4, 5, 6]
    assert only(status()["taken"])["steps"] == 4


def test_a_folder_that_cannot_be_written_does_not_end_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    Path("cfg").write_text("a file is here")
    iterate(monitor(), 1, 3)
    assert "dynamic profiling: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cfg_path": None}, "cfg_path is None; expected a folder"),
        ({"cfg_path": "cfg", "output_path": 5}, "output_path is 5; expected a folder"),
        ({"cfg_path": "cfg", "poll_interval": 0}, "poll_interval is 0; expected seconds"),
        ({"cfg_path": "cfg", "poll_interval": "2"}, "poll_interval is '2'; expected seconds"),
        ({"cfg_path": "cfg", "with_stak": True}, "no argument 'with_stak'; did you mean 'with_stack'?"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        DynamicProfilerMonitor(**arguments)


def test_a_step_looks_at_the_file_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    one = DynamicProfilerMonitor("cfg", "out", 3600)
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **more: looked.append(path.name) or stat(path, **more))  # type: ignore[func-returns-value]
    for _ in range(1000):
        one.step()
    assert looked == []
    monkeypatch.setattr(one, "_next", 0.0)
    one.step()
    assert looked == ["profiler_config.json"]


def test_nothing_but_a_sleeping_thread_stays_with_the_job() -> None:
    before = set(threading.enumerate())
    iterate(monitor(), 1, 3)
    assert [thread.name for thread in set(threading.enumerate()) - before] == ["stepscope agent"]
    assert not list(Path("/dev/shm").glob("DynamicProfile*")) if Path("/dev/shm").exists() else True


def test_all_ranks_record_the_same_steps_though_they_hear_of_them_at_different_times(tmp_path: Path) -> None:
    """Rank 0 is in its 11th iteration when it reads of the 12th. Until the others have heard of it they may be two on: the 14th it is.
    Each rank looks at every iteration, and makes as many as it is told to."""
    script(
        tmp_path,
        """
        from stepscope import DynamicProfilerMonitor
        monitor = DynamicProfilerMonitor("cfg", "out", 1e-6, host_interval_ms=0)
        print(monitor._recorder.step, flush=True)
        for count in iter(input, ""):
            for _ in range(int(count)):
                monitor.step()
            print(monitor._recorder.step, flush=True)
        """,
    )
    cluster = {"WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "29999"}
    jobs = [started(tmp_path, sys.executable, "train.py", stdin=subprocess.PIPE, **cluster, RANK=str(rank)) for rank in range(3)]

    def iterations(rank: int, count: int) -> int:
        print(count, file=jobs[rank].stdin, flush=True)
        return int(jobs[rank].stdout.readline())  # type: ignore[union-attr]

    try:
        assert [job.stdout.readline() for job in jobs] == ["1\n"] * 3  # type: ignore[union-attr]
        assert _status(0)["job"].startswith("job-")
        assert [iterations(rank, count) for rank, count in ((0, 10), (1, 11), (2, 5))] == [11, 12, 6]
        configure({"start_step": 12, "stop_step": 14})
        for rank in (0, 1, 2):
            iterations(rank, 15)
    finally:
        for job in jobs:
            job.communicate("\n")
    recorded = [steps(only(recordings(Path("out").glob(f"rank{rank}_*").__next__()))) for rank in range(3)]
    assert recorded == [[14, 15, 16]] * 3
    assert [only(_status(rank)["taken"])["state"] for rank in range(3)] == ["recorded"] * 3
    assert only(_status(0)["taken"])["moved_from"] == 12, "too soon for the others to hear of it"


def _status(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(only(list(Path("cfg/profiler_status").glob(f"*.rank{rank}.json"))).read_text())
    return found


def test_two_jobs_in_one_folder_do_not_hear_each_others_agreements(monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.recording.monitor import _job

    for name in ("MASTER_ADDR", "MS_SCHED_HOST", "MS_SCHED_PORT", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    first = _job(2)
    assert first == _job(2)
    monkeypatch.setenv("MASTER_PORT", "2")
    assert _job(2) != first
    assert str(os.getpid()) in _job(1)


def test_a_pipe_in_the_place_of_the_file_does_not_stop_the_job(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "profiler_config.json")
    job = "import stepscope; m = stepscope.DynamicProfilerMonitor('.', poll_interval=0.001); [m.step() for _ in range(3)]; print('trained')"
    result = subprocess.run([sys.executable, "-c", job], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr
