"""The Profiler's API, and that whatever happens, the job goes on and what was recorded is whole."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import preloaded
import stepscope
import stepscope.io.store
import tiny
from programs import needs
from stepscope import Profiler, ProfilerActivity, ProfilerLevel, profile, record_function, schedule
from stepscope.cli import main
from stepscope.errors import UsageError
from stepscope.model import captures
from stepscope.model.trace import Meta, Trace
from stepscope.process import notices
from stepscope.recording.collectors import options as choices_of
from stepscope.recording.collectors.options import AicoreMetrics, ExperimentalConfig, Options
from stepscope.recording.collectors.schedules import ProfilerAction
from stepscope.recording.conversion import convert
from stepscope.recording.conversion.trace_handler import tensorboard_trace_handler
from stepscope.recording.windows.window import Window
from volume import mostly_deep, seeds

QUIET: dict[str, Any] = {"host_interval_ms": 0, "framework": "python"}  # also where another test has imported a framework


def job(script: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own in the folder."""
    with started(script, folder, None, **environ) as process:
        out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(script: str, folder: Path, stdin: int | None = None, **environ: str) -> "subprocess.Popen[str]":
    (folder / "job.py").write_text(textwrap.dedent(script))
    source = str(Path(stepscope.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning:stepscope", "job.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source, "PYTHONUNBUFFERED": "1"} | environ,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def torch_job(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a program in the folder, in a copy of a process that has imported PyTorch."""
    errors = "import warnings\nwarnings.filterwarnings('error', category=UserWarning, module='stepscope$')\n"
    (folder / "job.py").write_text(errors + textwrap.dedent(script))
    return preloaded.run("torch", folder, "job.py")


def steps_of(trace: Trace) -> list[int]:
    return trace.steps.collect()["step"].to_list()


def said_by(trace: Trace) -> str:
    return " | ".join(trace.problems.collect()["what"].to_list())


def recordings(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    one = Profiler(output_path=tmp_path, start_profile=False, **QUIET)
    yield one
    if one._started:
        one.stop()


# The stock API.


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What MindSpore's own profiler takes and says, from a process of its own."""
    needs("mindspore")
    request = job(
        """
        import enum, inspect, json, itertools, logging
        import mindspore.profiler as stock
        from mindspore.profiler.common.profiler_parameters import ProfilerParameters
        from mindspore.profiler import profiler as module

        def signature(function):
            parameters = inspect.signature(function).parameters.values()
            return [[p.name, None if p.default is p.empty else repr(p.default)] for p in parameters if p.name not in ("self", "cls")]

        def plain(value):
            return value.name if isinstance(value, enum.Enum) else [plain(item) for item in value] if isinstance(value, list) else value

        counts = ("wait", "active", "warmup", "repeat", "skip_first")
        names = ("start", "stop", "step", "analyse", "offline_analyse", "op_analyse", "add_metadata", "add_metadata_json")
        print(json.dumps({
            "all": stock.__all__,
            "parameters": {name: plain(default) for name, (_, default) in ProfilerParameters.PARAMS.items()},
            "methods": {name: signature(inspect.unwrap(getattr(stock.Profiler, name))) for name in names},
            "profile": signature(stock.profile.__init__),
            "config": signature(stock._ExperimentalConfig.__init__),
            "handler": signature(inspect.unwrap(stock.tensorboard_trace_handler)),
            "mstx": {name: signature(getattr(stock.mstx, name)) for name in ("mark", "range_start", "range_end")},
            "enums": {
                name: {member.name: member.value for member in getattr(stock, name)}
                for name in ("ProfilerLevel", "ProfilerActivity", "AicoreMetrics", "ExportType", "HostSystem")
            },
            "schedules": [
                [values, [stock.schedule(**dict(zip(counts, values)))(n).value for n in range(30)]]
                for values in itertools.product(range(3), range(1, 4), range(3), range(3), range(3))
            ],
        }))
        """,
        tmp_path_factory.mktemp("stock"),
        GLOG_v="4",
    )
    assert request.returncode == 0, request.stderr
    facts: dict[str, Any] = json.loads(request.stdout.splitlines()[-1])
    return facts


def signature(function: Any) -> list[list[str | None]]:
    import inspect

    found = inspect.signature(function).parameters.values()
    return [[p.name, None if p.default is p.empty else repr(p.default)] for p in found if p.name not in ("self", "more")]


def test_every_name_of_the_stock_module_is_in_ours(stock: dict[str, Any]) -> None:
    import stepscope.mindspore as ours

    assert set(stock["all"]) <= set(ours.__all__)
    assert set(stock["all"]) - {"EnvProfiler"} <= set(stepscope.__all__)
    for name in set(stock["all"]) - {"DynamicProfilerMonitor"}:
        assert getattr(ours, name)


def test_every_argument_has_the_stock_name_and_default(stock: dict[str, Any]) -> None:
    ours = choices_of.plain(Options()) | {"start_profile": True, "schedule": None, "on_trace_ready": None, "output_path": "./data"}
    assert set(stock["parameters"]) <= set(ours)
    differing = {name for name, default in stock["parameters"].items() if ours[name] != default}
    assert differing == {"activities"}  # ours record every device there is
    assert signature(profile.__init__) == stock["profile"]
    assert signature(tensorboard_trace_handler) == stock["handler"]
    assert [name for name, _ in signature(ExperimentalConfig.__init__)] == [name for name, _ in stock["config"]]
    assert {name: signature(getattr(stepscope.mstx, name)) for name in stock["mstx"]} == stock["mstx"]
    for name, parameters in stock["methods"].items():
        assert signature(getattr(Profiler, name)) == parameters, name


def test_every_enum_has_the_stock_members(stock: dict[str, Any]) -> None:
    for name, members in stock["enums"].items():
        assert {member.name: member.value for member in getattr(stepscope, name)} == members


def test_a_schedule_says_of_every_step_what_the_stock_one_says(stock: dict[str, Any]) -> None:
    assert len(stock["schedules"]) == 243
    for (wait, active, warmup, repeat, skip_first), actions in stock["schedules"]:
        ours = schedule(wait=wait, active=active, warmup=warmup, repeat=repeat, skip_first=skip_first)
        assert [ours(step).value for step in range(30)] == actions, ours


def test_a_schedule_says_of_every_step_what_pytorch_says(tmp_path: Path) -> None:
    needs("torch")
    request = job(
        """
        import itertools, json, warnings
        warnings.simplefilter("ignore")
        from torch.profiler import schedule
        names = ("wait", "active", "warmup", "repeat", "skip_first")
        cases = itertools.product(range(3), range(1, 4), range(3), range(3), range(3))
        print(json.dumps([[case, [schedule(**dict(zip(names, case)))(n).value for n in range(30)]] for case in cases]))
        """,
        tmp_path,
    )
    for (wait, active, warmup, repeat, skip_first), actions in json.loads(request.stdout):
        ours = schedule(wait=wait, active=active, warmup=warmup, repeat=repeat, skip_first=skip_first)
        assert [ours(step).value for step in range(30)] == actions, ours


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"active": 0}, {"warmup": 1.5}, {"repeat": True}, {"skip_first": "2"}], ids=str)
def test_a_schedule_refuses_what_is_no_count(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} is"):
        schedule(**{"wait": 1, "active": 1} | wrong)


# Arguments.


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"profile_memroy": True}, "no argument 'profile_memroy'; did you mean 'profile_memory'"),
        ({"with_stack": "yes"}, "with_stack is 'yes'; expected True or False"),
        ({"profiler_level": 1}, "profiler_level is 1; expected a member of ProfilerLevel"),
        ({"activities": "CPU"}, "activities is 'CPU'; expected a list of ProfilerActivity"),
        ({"activities": []}, "activities is empty"),
        ({"output_path": 5}, "output_path is 5; expected a path"),
        ({"output_path": "a\0b"}, "expected a path"),
        ({"worker_name": "x" * 200}, "expected text for the name of a folder, of 150 bytes at most"),
        ({"schedule": 3}, "schedule is 3; expected a function"),
        ({"on_trace_ready": "x"}, "on_trace_ready is 'x'; expected a function"),
        ({"start_profile": 1}, "start_profile is 1; expected True or False"),
        ({"host_interval_ms": -1}, "host_interval_ms is -1; expected a whole number, not negative"),
        ({"framework": "caffe"}, "framework is 'caffe'; expected one of mindspore, torch, jax, tensorflow, python"),
        ({"export_type": "xml"}, "export_type is 'xml'; expected a list of ExportType"),
        ({"mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, "exclude one another"),
        ({"aic_metrics": AicoreMetrics.Memory, "aicore_metrics": AicoreMetrics.Memory}, "two names of one argument"),
        ({"experimental_config": 4}, "experimental_config is 4; expected an _ExperimentalConfig"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_plainly_wrong_is_refused_by_name(choice: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        Profiler(**{"output_path": tmp_path, "start_profile": False} | choice)
    assert message in str(error.value)


def complaints(err: str) -> list[str]:
    """What a job said on stderr, but for where its recording is."""
    return [line for line in err.splitlines() if "; open it with: stepscope view " not in line]


def test_a_relative_output_path_is_where_the_profiler_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profiler = Profiler(output_path="data", start_profile=False, **QUIET)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with profiler:
        pass
    assert [path.parent for path in profiler.analyse()] == [tmp_path / "data"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_both_spellings_of_the_metrics_are_one(tmp_path: Path) -> None:
    for spelling in ("aicore_metrics", "aic_metrics"):
        made = choices_of.parse({spelling: AicoreMetrics.Memory})
        assert (made.aic_metrics, made.profiler_level) == (AicoreMetrics.Memory, ProfilerLevel.Level1)
    assert choices_of.parse({"profiler_level": ProfilerLevel.Level2}).aic_metrics is AicoreMetrics.PipeUtilization
    with pytest.warns(UserWarning, match="Level1 is recorded"):
        choices_of.parse({"aic_metrics": AicoreMetrics.Memory, "profiler_level": ProfilerLevel.Level0})


@pytest.mark.parametrize("name", ["op_time", "profile_communication", "profile_framework", "host_stack", "timeline_limit"])
def test_an_argument_of_earlier_releases_is_taken_with_a_warning_at_the_users_line(name: str, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated") as warned:
        made = Profiler(output_path=tmp_path, start_profile=False, **{name: True}).options
    assert warned[0].filename == __file__
    assert made.with_stack is (name == "host_stack")


def test_an_experimental_config_holds_the_other_half_of_the_arguments() -> None:
    config = stepscope._ExperimentalConfig(profiler_level=ProfilerLevel.Level1, l2_cache=True, export_type=[stepscope.ExportType.Db])
    made = choices_of.parse({"experimental_config": config})
    assert (made.profiler_level, made.l2_cache, made.export_type) == (ProfilerLevel.Level1, True, (stepscope.ExportType.Db,))


def test_json_gives_enums_by_name_or_number_and_minus_one_is_the_default() -> None:
    settings = {"aicore_metrics": 1, "profiler_level": 2, "activities": ["CPU"], "op_time": True, "timeline_limit": 500, "with_stack": True}
    made = choices_of.parse(choices_of.from_json(settings))
    assert (made.aic_metrics, made.profiler_level) == (AicoreMetrics.ArithmeticUtilization, ProfilerLevel.Level2)
    assert (made.activities, made.with_stack) == ((ProfilerActivity.CPU,), True)
    assert choices_of.parse(choices_of.from_json({"aicore_metrics": -1, "profiler_level": -1})) == Options()
    with pytest.raises(UsageError, match="aic_metrics is 9; expected -1 to 7"):
        choices_of.from_json({"aic_metrics": 9})


def test_every_argument_is_in_the_documents() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    rows = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for name in [*typing.get_type_hints(Options), "schedule", "on_trace_ready", "start_profile", "experimental_config", "aicore_metrics"]:
        assert f"`{name}`" in rows


# Start, step, stop.


def test_stop_before_start_and_a_second_start_are_refused(profiler: Profiler) -> None:
    with pytest.raises(UsageError, match="not running"):
        profiler.stop()
    profiler.start()
    with pytest.raises(UsageError, match=rf"started at {__file__}:\d+"):
        profiler.start()
    profiler.stop()
    with pytest.raises(UsageError, match="not running"):
        profiler.stop()


def test_a_second_profiler_is_told_where_the_first_was_started(profiler: Profiler, tmp_path: Path) -> None:
    profiler.start()
    with pytest.raises(UsageError, match=rf"another profiler is running: the one started at {__file__}:\d+"):
        Profiler(output_path=tmp_path)
    profiler.stop()
    with Profiler(output_path=tmp_path, **QUIET):
        pass
    assert len(recordings(tmp_path)) == 2


def test_without_a_schedule_steps_are_counted_and_those_that_ended_are_recorded(profiler: Profiler) -> None:
    for _ in range(3):
        profiler.step()
    profiler.start()
    for _ in range(2):
        with record_function("work"):
            pass
        profiler.step()
    (run,) = profiler.analyse()
    trace = stepscope.open(run)
    assert steps_of(trace) == [3, 4]
    assert trace.annotations().select("name", "calls").rows() == [("work", 2)]
    assert said_by(trace) == ""


def test_each_window_of_a_schedule_is_a_run_of_its_own_and_is_handed_over(tmp_path: Path) -> None:
    seen: list[tuple[Path | None, int]] = []
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    with Profiler(schedule=plan, output_path=tmp_path, on_trace_ready=lambda p: seen.append((p.run, p.step_num)), **QUIET) as profiler:
        for number in range(12):
            with record_function(f"step {number}"):
                pass
            profiler.step()
    assert [step for _, step in seen] == [5, 9]  # skip 0, wait 1, warm up 2, record 3 and 4; wait 5, warm up 6, record 7 and 8
    first, second = (stepscope.open(run) for run, _ in seen if run)
    assert (steps_of(first), steps_of(second)) == ([3, 4], [7, 8])
    assert first.annotations()["name"].sort().to_list() == ["step 3", "step 4"]
    assert recordings(tmp_path) == sorted(run for run, _ in seen if run)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_schedules_of_other_libraries_are_followed(tmp_path: Path) -> None:
    class Theirs:
        RECORD_AND_SAVE = type("Action", (), {"value": 3})()

    with Profiler(schedule=lambda step: Theirs.RECORD_AND_SAVE, output_path=tmp_path, **QUIET) as profiler:
        profiler.step()
    assert [steps_of(stepscope.open(path)) for path in recordings(tmp_path)] == [[0], []]
    with pytest.raises(UsageError, match="the schedule returned 'x' for step 0"):
        Profiler(schedule=lambda step: "x", output_path=tmp_path)


def test_a_window_cut_short_by_stop_says_so(tmp_path: Path) -> None:
    profiler = Profiler(schedule=schedule(wait=0, active=5), output_path=tmp_path, **QUIET)
    profiler.step()
    (run,) = profiler.analyse()
    trace = stepscope.open(run)
    assert steps_of(trace) == [0]
    assert said_by(trace) == "stopped before the active steps of the schedule were over"


@pytest.mark.parametrize(
    ("plan", "count", "why"),
    [
        (schedule(wait=1, active=5), 0, "step() was never called, and a schedule moves on with each call of it"),
        (schedule(wait=9, active=5), 3, "stopped in step 3, before those of the schedule"),
    ],
)
def test_a_schedule_that_came_to_nothing_is_told(
    plan: schedule, count: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_printed", set())  # a line is printed once in a process
    with Profiler(schedule=plan, output_path=tmp_path, **QUIET) as profiler:
        for _ in range(count):
            profiler.step()
    assert profiler.analyse() == []
    assert capsys.readouterr().err == f"stepscope: nothing was recorded: {why}\n"
    assert not recordings(tmp_path)


def test_a_profiler_that_was_never_started_is_told_of_when_it_is_analysed(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler
        print(Profiler(start_profile=False).analyse())
        """,
        tmp_path,
    )
    assert done.stdout == "[]\n"
    assert done.stderr == "stepscope: nothing was recorded: analyse() of a profiler that was never started\n"


def test_the_trace_handler_says_where_and_under_which_name(tmp_path: Path) -> None:
    handler = tensorboard_trace_handler(str(tmp_path / "there"), worker_name="worker7")
    with profile(schedule=schedule(wait=0, active=1, repeat=1), on_trace_ready=handler, **QUIET) as profiler:
        profiler.step()
    (run,) = recordings(tmp_path / "there")
    assert run.name.startswith("rank0_worker7_")
    assert (run / "run.json").is_file()
    with pytest.raises(UsageError, match="analyse_flag is 1"):
        tensorboard_trace_handler(analyse_flag=1)  # type: ignore[arg-type]


def test_a_handler_that_fails_does_not_end_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(profiler: Profiler) -> None:
        raise RuntimeError("no disk left for the report")

    with Profiler(schedule=schedule(wait=0, active=1), output_path=tmp_path, on_trace_ready=broken, **QUIET) as profiler:
        profiler.step()
        profiler.step()
    assert "on_trace_ready failed: RuntimeError: no disk left for the report" in capsys.readouterr().err
    assert len(recordings(tmp_path)) == 3


# Analyse.


def test_step_list_keeps_these_steps_and_what_happened_in_them(profiler: Profiler) -> None:
    profiler.start()
    for number in range(6):
        with record_function(f"step {number}"):
            pass
        profiler.step()
    (run,) = profiler.analyse(step_list=[1, 2, 4])
    trace = stepscope.open(run)
    assert steps_of(trace) == [1, 2, 4]
    assert trace.annotations()["name"].sort().to_list() == ["step 1", "step 2", "step 4"]


def test_of_steps_keeps_what_belongs_to_the_step_by_number_or_by_time() -> None:
    trace = tiny.trace(
        spans="""
            kind    name  start_ns dur_ns step
            op      a     0        5      0
            op      b     10       5      1
            kernel  late  21       5      1
            op      c     20       5      2
            python  loose 12       1      -
            python  other 22       1      -
        """,
        steps="""
            step start_ns end_ns
            0    0        10
            1    10       20
            2    20       30
        """,
        counters="""
            name at_ns value
            x    9     1
            x    10    2
            x    20    3
        """,
    )
    kept = convert.select_steps(trace, [1])
    assert kept.spans.collect()["name"].to_list() == ["b", "late", "loose"]
    assert kept.counters.collect()["value"].to_list() == [2.0]
    with pytest.raises(UsageError, match="no step 7 in tiny; it has steps 0 to 2"):
        convert.select_steps(trace, [1, 7])


@pytest.mark.parametrize("steps", [[], "12", [1.5], [True]], ids=str)
def test_a_step_list_that_is_none_is_refused(profiler: Profiler, steps: Any) -> None:
    with pytest.raises(UsageError, match="step_list is"):
        profiler.analyse(step_list=steps)
    with pytest.raises(UsageError, match="mode is 'zzz'; expected sync or async"):
        profiler.analyse(mode="zzz")


def test_async_analysis_is_waited_for_at_the_end_of_the_program(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler
        profiler = Profiler(host_interval_ms=0)
        for _ in range(3): profiler.step()
        (run,) = profiler.analyse(mode="async", step_list=[1])
        print(run)
        """,
        tmp_path,
        MS_PROFILER_OPTIONS='{"start": true}',
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert recordings(tmp_path / "data") == [Path(done.stdout.strip())]
    assert steps_of(stepscope.open(done.stdout.strip())) == [1]


def test_an_async_analysis_that_fails_leaves_the_capture_and_says_so(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler
        profiler = Profiler(host_interval_ms=0)
        profiler.step()
        profiler.analyse(mode="async", step_list=[5])
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert "a capture could not be converted, and stays: no step 5" in done.stderr
    (capture,) = recordings(tmp_path / "data")
    assert steps_of(stepscope.open(capture)) == [0]


@pytest.mark.parametrize(
    ("code", "several"),
    [
        ("with Profiler(**more) as p: p.step()", False),
        ("with Profiler(**more) as p: p.step(); p.step()\np.analyse()", False),
        ("p = Profiler(**more); p.step(); p.stop()", False),
        ("p = Profiler(**more); p.step(); p.analyse()", False),
        ("p = Profiler(**more); p.step(); p.analyse(mode='async')", False),
        ("with Profiler(on_trace_ready=lambda profiler: None, **more) as p: p.step()", False),
        ("with Profiler(on_trace_ready=tensorboard_trace_handler('data'), **more) as p: p.step()", False),
        ("p = Profiler(on_trace_ready=tensorboard_trace_handler('data'), **more); p.step(); p.analyse()", False),
        ("with Profiler(schedule=schedule(wait=1, active=1, repeat=1), **more) as p:\n    for _ in range(4): p.step()", False),
        ("with Profiler(schedule=schedule(wait=0, active=1), **more) as p:\n    for _ in range(4): p.step()", True),
    ],
)
def test_one_line_says_where_the_recording_is_and_how_to_open_it(code: str, several: bool, tmp_path: Path) -> None:
    imports = "from stepscope import Profiler, schedule, tensorboard_trace_handler\nmore = {'host_interval_ms': 0}\n"
    done = job(imports + code + "\n", tmp_path)
    found = recordings(tmp_path / "data")
    place = Path("data") if several else found[0].relative_to(tmp_path)
    assert len(found) > 1 if several else len(found) == 1
    lines = done.stderr.splitlines()
    assert lines[-1] == f"stepscope: recorded {place}; open it with: stepscope view {place}"
    # A capture that is analyzed afterwards has another name then, so that the line is said again.
    assert len(lines) == 1 + (code.startswith("with") and "p.analyse" in code)
    assert main(["summary", str(tmp_path / lines[-1].split()[-1])]) == 0


def test_of_several_ranks_one_says_where_the_recording_is(tmp_path: Path) -> None:
    code = "from stepscope import Profiler\nwith Profiler(host_interval_ms=0) as p: p.step()\n"
    output = [job(code, tmp_path, RANK=rank, WORLD_SIZE="2").stderr for rank in "10"]
    assert output == ["", "stepscope: recorded data; open it with: stepscope view data\n"]
    assert stepscope.open(tmp_path / "data").meta.ranks == [0, 1]


def test_what_was_only_collected_is_analysed_offline_and_the_raw_files_kept_on_request(profiler: Profiler, tmp_path: Path) -> None:
    for _ in range(2):
        profiler.start()
        profiler.step()
        profiler.stop()
    assert [path.suffix for path in recordings(tmp_path)] == [".capture", ".capture"]
    runs = Profiler.offline_analyse(tmp_path, data_simplification=False)
    assert recordings(tmp_path) == runs
    assert [(run / "raw" / captures.HEADER).is_file() for run in runs] == [True, True]
    assert Profiler.offline_analyse(tmp_path) == runs, "analysed already"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither a capture nor a PROF directory;"):
        Profiler.offline_analyse(tmp_path / "empty")
    with pytest.raises(UsageError, match="no such folder"):
        Profiler.offline_analyse(tmp_path / "nowhere")


def test_offline_what_cannot_be_analysed_is_told_and_the_others_are_done(
    profiler: Profiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in (1, 3):
        profiler.step_num = 0
        profiler.start()
        for _ in range(count):
            profiler.step()
        profiler.stop()
    profiler.start()  # a third, that is not over
    short, long, open_ = recordings(tmp_path)
    assert Profiler.offline_analyse(tmp_path, step_list=[2]) == [captures.run_folder(long)]
    err = capsys.readouterr().err
    assert f"no step 2 in {short}; it has step 0" in err and f"{open_}: process {os.getpid()} is still recording it" in err
    assert {path.suffix for path in (short, open_) if path.exists()} == {".capture"}
    profiler.stop()
    assert profiler.analyse() == [captures.run_folder(path) for path in (short, long, open_)], "the second was done already"


def test_a_conversion_that_was_killed_after_its_run_folder_was_there_is_finished_by_the_next(profiler: Profiler, tmp_path: Path) -> None:
    profiler.start()
    profiler.step()
    profiler.stop()
    (capture,) = recordings(tmp_path)
    stepscope.io.store.write(stepscope.open(capture, cache=False), captures.run_folder(capture))
    assert profiler.analyse() == recordings(tmp_path) == [captures.run_folder(capture)]


def test_a_capture_that_is_being_converted_by_another_process_is_converted_once(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler
        for _ in range(3):
            profiler = Profiler(host_interval_ms=0)
            profiler.step()
            profiler.analyse(mode="async")
            print(*Profiler.offline_analyse("data"))
        """,
        tmp_path,
    )
    assert (done.returncode, len(recordings(tmp_path / "data"))) == (0, 3), done.stderr
    assert len(done.stdout.splitlines()[-1].split()) == 3


def test_offline_path_is_the_earlier_name_of_offline_analyse(profiler: Profiler, tmp_path: Path) -> None:
    profiler.start()
    profiler.stop()
    with pytest.warns(DeprecationWarning, match="offline_path is deprecated"):
        runs = Profiler(output_path=tmp_path, start_profile=False).analyse(offline_path=tmp_path)
    assert recordings(tmp_path) == runs


def test_metadata_is_kept_also_when_it_comes_after_stop(profiler: Profiler) -> None:
    profiler.add_metadata("before", "1")
    profiler.start()
    profiler.add_metadata_json("during", '{"a": [1, 2]}')
    profiler.stop()
    profiler.add_metadata("after", "3")
    (run,) = profiler.analyse()
    assert stepscope.open(run).meta.extra["metadata"] == {"before": "1", "during": {"a": [1, 2]}, "after": "3"}
    with pytest.raises(UsageError, match="expected a text for both"):
        profiler.add_metadata("x", 1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected JSON text"):
        profiler.add_metadata_json("x", "{")
    with pytest.raises(UsageError, match="expected JSON text"):
        profiler.add_metadata_json("x", "[" * 100_000)


def test_op_analyse_refuses_what_is_no_name(profiler: Profiler) -> None:
    for wrong in ("", [], 5, [""]):
        with pytest.raises(UsageError, match="op_name is"):
            profiler.op_analyse(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device_id is '0'"):
        profiler.op_analyse("MatMul", "0")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="before anything was recorded"):
        profiler.op_analyse("MatMul")


def test_a_window_is_written_as_a_chrome_trace_also_by_the_handler_of_pytorch(profiler: Profiler, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="before a window was over"):
        profiler.export_chrome_trace(tmp_path / "trace.json")
    done = torch_job(
        """
        import torch
        from stepscope import Profiler, schedule
        from torch.profiler import tensorboard_trace_handler
        ready = tensorboard_trace_handler("theirs", use_gzip=True)
        with Profiler(schedule=schedule(wait=1, active=2, repeat=1), on_trace_ready=ready) as profiler:
            for _ in range(4):
                torch.ones(4, 4) @ torch.ones(4, 4)
                profiler.step()
        profiler.export_chrome_trace("mine.json")
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    (theirs,) = (tmp_path / "theirs").iterdir()
    assert theirs.name.endswith(".pt.trace.json.gz")
    for file in (theirs, tmp_path / "mine.json"):
        trace = stepscope.open(file, cache=False)
        assert steps_of(trace) == [1, 2]
        assert trace.operators().filter(name="aten::mm")["calls"].to_list() == [2]


def test_forward_start_and_backward_end_of_the_environment_count_where_none_are_given(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler, record_function
        with Profiler(host_interval_ms=0) as profiler:
            for _ in range(2):
                for name in ("load", "first", "last", "update"):
                    with record_function(name): pass
                profiler.step()
        print(*profiler.analyse())
        """,
        tmp_path,
        PROFILING_FP_START="first",
        PROFILING_BP_END="no such operator",
    )
    trace = stepscope.open(done.stdout.strip())
    rows = trace.step_trace()
    assert rows["fp_start_op"].to_list() == ["first", "first"]
    assert rows["found"].str.starts_with("given, ").all()
    assert "bp_end (PROFILING_BP_END) is not used: nothing in the trace is named 'no such operator'" in said_by(trace)
    again = trace.step_trace(fp_start="load", bp_end="last")
    assert again["fp_start_op"].to_list() == ["load", "load"]
    assert again["bp_end_op"].to_list() == ["last", "last"]


def test_markers_of_mindspore_are_ranges_in_the_domains_asked_for(tmp_path: Path) -> None:
    with Profiler(output_path=tmp_path, mstx=True, mstx_domain_include=["mine", "default"], **QUIET) as profiler:
        number = stepscope.mstx.range_start("epoch")
        stepscope.mstx.mark("here", None, "mine")
        stepscope.mstx.mark("not here", None, "theirs")
        stepscope.mstx.range_end(number)
    (run,) = profiler.analyse()
    assert stepscope.open(run).annotations()["name"].sort().to_list() == ["epoch", "here"]
    with Profiler(output_path=tmp_path, **QUIET) as profiler:
        stepscope.mstx.mark("not asked for")
    (run,) = profiler.analyse()
    assert stepscope.open(run).annotations().is_empty()


def test_a_bound_ends_the_window_and_says_so(tmp_path: Path) -> None:
    with Profiler(output_path=tmp_path, max_events=10, **QUIET) as profiler:
        for _ in range(4):
            for _ in range(6):
                with record_function("x"):
                    pass
            profiler.step()
    (run,) = profiler.analyse()
    trace = stepscope.open(run)
    assert steps_of(trace) == [0, 1]
    assert trace.spans.filter(pl.col("name") == "x").collect().height == 10
    assert "max_events=10" in said_by(trace)


def test_a_bound_on_bytes_ends_the_window_and_says_so(tmp_path: Path) -> None:
    class Writes:
        def start(self, capture: captures.Capture) -> None:
            self.capture = capture

        def step(self, number: int) -> None:
            self.capture.append("counters", {"name": ["x" * 5000]})

        def stop(self) -> None:
            pass

    window = Window(Options(output_path=tmp_path, max_bytes=20_000, framework="python"), [Writes()], step=0)
    assert list(itertools.takewhile(bool, (window.step(number) for number in range(1, 100)))) == [True, True]
    window.stop()
    assert captures.header(window.capture.folder)["notices"][0]["what"] == "recording ended early, at step 3: max_bytes=20,000 was reached"


# Environment variable.


def test_the_environment_variable_records_the_whole_program_and_analyses_at_its_end(tmp_path: Path) -> None:
    script = """
        from stepscope.recording.environment import from_environment
        profiler = from_environment()
        for _ in range(3): profiler.step()
    """
    done = job(script, tmp_path, MS_PROFILER_OPTIONS='{"start": true, "output_path": "out", "aicore_metrics": 0, "host_interval_ms": 0}')
    (run,) = recordings(tmp_path / "out")
    place = run.relative_to(tmp_path)
    assert (done.returncode, done.stderr) == (0, f"stepscope: recorded {place}; open it with: stepscope view {place}\n")
    assert steps_of(stepscope.open(run)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[1]", "expected a JSON object"),
        ('{"start": true, "with_stak": true}', "did you mean 'with_stack'"),
        ('{"start": true, "output_path": "/proc/no"}', "cannot be written"),
        ('{"start": "yes"}', "start is 'yes'; expected true or false"),
        ('{"start": true, "schedule": {}}', "schedule cannot be set here"),
    ],
)
def test_a_mistake_in_the_environment_variable_is_one_line_and_the_program_goes_on(text: str, message: str, tmp_path: Path) -> None:
    program = "from stepscope.recording.environment import from_environment; print(from_environment())"
    done = job(program, tmp_path, MS_PROFILER_OPTIONS=text)
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_programs_own_profiler_takes_over_from_the_environment_variable(tmp_path: Path) -> None:
    done = job(
        """
        from stepscope import Profiler
        from stepscope.recording.environment import from_environment
        from_environment()
        with Profiler(output_path="own", host_interval_ms=0): pass
        """,
        tmp_path,
        MS_PROFILER_OPTIONS='{"start": true, "output_path": "out", "host_interval_ms": 0}',
    )
    assert done.returncode == 0
    assert "takes over" in done.stderr
    assert (len(recordings(tmp_path / "own")), len(recordings(tmp_path / "out"))) == (1, 1)


# Safety of the job.


class Broken:
    """A collector that fails in one of its methods."""

    __module__ = "stepscope.recording.collectors.broken"

    def __init__(self, where: str) -> None:
        self._where = where
        self.calls: list[str] = []

    def start(self, capture: captures.Capture) -> None:
        self._come("start")

    def step(self, number: int) -> None:
        self._come("step")

    def stop(self) -> None:
        self._come("stop")

    def _come(self, where: str) -> None:
        self.calls.append(where)
        if where == self._where:
            raise RuntimeError(f"cannot {where}\nat all")


@pytest.mark.parametrize(
    ("where", "calls"), [("start", ["start"]), ("step", ["start", "step", "stop"]), ("stop", ["start", "step", "step", "step", "stop"])]
)
def test_a_collector_that_fails_is_told_and_the_others_go_on(
    where: str, calls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, fine = Broken(where), Broken("never")
    window = Window(Options(output_path=tmp_path / where, framework="python"), [broken, fine], step=0)
    for number in (1, 2):
        window.step(number)
    window.stop()
    trace = stepscope.open(window.convert())
    assert broken.calls == calls
    assert fine.calls == ["start", "step", "step", "step", "stop"]
    assert steps_of(trace) == [0, 1]
    assert said_by(trace) == f"broken: {where} failed: RuntimeError: cannot {where}"
    assert capsys.readouterr().err == f"stepscope: broken: {where} failed: RuntimeError: cannot {where}\n"


def test_a_window_that_cannot_be_opened_is_told_and_the_next_one_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.recording.process.runtime import runtime

    with monkeypatch.context() as patched:
        patched.setattr(runtime.signals, "catch", lambda: 1 / 0)
        with Profiler(output_path=tmp_path, **QUIET):
            pass
    assert not list(tmp_path.iterdir())
    with Profiler(output_path=tmp_path, **QUIET) as profiler:
        profiler.step()
    assert steps_of(stepscope.open(*profiler.analyse())) == [0]


@pytest.mark.parametrize("name", ["half a \ud83d smile", 5, None, b"bytes", 'a "quote"'], ids=repr)
def test_a_range_of_any_name_is_recorded(name: Any, tmp_path: Path) -> None:
    metadata = {"half": "\ud83d"}
    with Profiler(output_path=tmp_path, mstx=True, metadata=metadata, **QUIET) as profiler:
        with record_function(name, args=name):
            pass
        stepscope.mstx.mark(name, None, "domain")
    trace = stepscope.open(*profiler.analyse(), cache=False)
    shown = str(name).replace("\ud83d", "?")
    assert trace.annotations().select("name", "calls").rows() == [(shown, 2)]
    assert (said_by(trace), trace.meta.extra["metadata"]) == ("", {"half": "?"})


def test_a_window_with_collectors_given_by_hand_starts_no_others(tmp_path: Path) -> None:
    done = torch_job(
        """
        from pathlib import Path
        import torch
        from stepscope.recording.collectors.options import Options
        from stepscope.recording.collectors.torch.collector import Collector
        from stepscope.recording.windows.window import Window

        class Nothing:
            def start(self, capture): pass
            def step(self, number): pass
            def stop(self): pass

        options = Options(output_path=Path("data"), host_interval_ms=0)
        for given in (Collector(options), Nothing()):
            window = Window(options, [given], step=0)
            for number in (1, 2):
                torch.ones(2, 2) @ torch.ones(2, 2)
                window.step(number)
            window.stop()
            print(window.capture.folder)
        """,
        tmp_path,
    )
    assert done.returncode == 0 and "stepscope:" not in done.stderr, done.stderr
    by_torch, by_nobody = (stepscope.open(path) for path in done.stdout.split())
    assert by_torch.spans.filter(pl.col("name") == "aten::mm").collect().height == 2
    assert by_nobody.spans.filter(pl.col("kind") != "step").collect().is_empty()
    assert (steps_of(by_torch), said_by(by_torch)) == (steps_of(by_nobody), said_by(by_nobody)) == ([0, 1], "")


def test_a_torch_profiler_of_the_programs_own_goes_on_and_ours_says_what_it_could_not_record(tmp_path: Path) -> None:
    done = torch_job(
        """
        import torch
        from stepscope import Profiler
        with torch.profiler.profile() as theirs:
            with Profiler(host_interval_ms=0) as profiler:
                for _ in range(3):
                    torch.ones(2, 2) @ torch.ones(2, 2)
                    profiler.step()
        print(sum(event.name == "aten::mm" for event in theirs.events()))
        print(*profiler.analyse())
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    theirs, run = done.stdout.split()
    assert theirs == "3"
    assert said_by(stepscope.open(run)) == "torch is not recorded: the program's torch.profiler is running"
    assert steps_of(stepscope.open(run)) == [0, 1, 2]


def test_an_output_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"output_path is '.*file', which cannot be written"):
        Profiler(output_path=tmp_path / "file", start_profile=False)
    with pytest.raises(UsageError, match="cannot be written"):
        Profiler(output_path="/proc/nothing", start_profile=False)


def test_a_full_disk_does_not_end_the_job(tmp_path: Path) -> None:
    done = job(
        """
        import resource
        from stepscope import Profiler, record_function
        with Profiler(host_interval_ms=0) as profiler:
            for number in range(2000):
                with record_function(f"range {number}"): pass
                profiler.step()
            resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))  # as for a full disk, a write fails half-way
        profiler.start()
        profiler.stop()
        profiler.analyse()
        print("trained")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "could not be completed" in done.stderr
    assert ".capture is incomplete: File too large\n" in done.stderr
    assert all(line.startswith("stepscope: ") for line in done.stderr.splitlines())
    for recording in recordings(tmp_path / "data"):
        assert stepscope.open(recording).meta.ranks == [0]


@pytest.mark.parametrize("room", [20_000, 5_000])
def test_what_a_full_disk_did_not_take_is_counted(room: int, tmp_path: Path) -> None:
    """2,000 ranges take more than 20,000 bytes, 10 steps less than 5,000; the header has its room already."""
    done = job(
        f"""
        import resource
        from stepscope import Profiler, record_function
        with Profiler(host_interval_ms=0) as profiler:
            for number in range(2000):
                with record_function(f"range {{number}}"): pass
                if number % 200 == 199: profiler.step()
            resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
        """,
        tmp_path,
    )
    (capture,) = recordings(tmp_path / "data")
    assert f"stepscope: {capture} is incomplete: File too large\n" in done.stderr
    trace = stepscope.open(capture)
    assert ("2,000 rows of the table 'ranges' could not be written: File too large", 2000) in trace.problems.select(
        "what", "lost"
    ).collect().rows()
    assert steps_of(trace) == list(range(10))


def test_a_header_is_rewritten_in_its_own_room_where_the_disk_has_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = captures.Capture(tmp_path / "a.capture", {"rank": 0})

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(captures, "_write", full)
    capture.finish(short="a")
    assert captures.header(capture.folder)["short"] == "a" and captures.header(capture.folder)["whole"]
    with pytest.raises(OSError, match="No space"):
        capture.describe(long="a" * 1_000_000)
    assert captures.header(capture.folder)["short"] == "a", "what was there is whole"


def test_a_full_disk_does_not_end_the_job_whatever_is_recorded(tmp_path: Path) -> None:
    needs("torch")
    done = job(
        """
        import resource, time
        import torch
        from stepscope import Profiler, schedule
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        plan = schedule(wait=0, warmup=1, active=3)
        with Profiler(schedule=plan, host_interval_ms=10, with_stack=True, profile_memory=True, record_shapes=True) as profiler:
            for number in range(12):
                if number == 2: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
                net(torch.randn(4, 8)).sum().backward()
                optimizer.step()
                time.sleep(0.02)
                profiler.step()
        profiler.analyse()
        print("trained")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("USDT:")]
    assert lines and all(line.startswith("stepscope: ") for line in lines), done.stderr
    for recording in recordings(tmp_path / "data"):
        stepscope.open(recording)


def test_a_torch_profiler_that_the_program_starts_while_ours_records_is_told(tmp_path: Path) -> None:
    done = torch_job(
        """
        import torch
        from stepscope import Profiler
        def step():
            torch.ones(2, 2) @ torch.ones(2, 2)
            profiler.step()
        with Profiler(host_interval_ms=0) as profiler:
            step()
            with torch.profiler.profile() as theirs: step()
            step()
        print(sum(event.name == "aten::mm" for event in theirs.events()))
        print(*profiler.analyse())
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    theirs, run = done.stdout.split()
    trace = stepscope.open(run)
    assert theirs == "1"
    assert said_by(trace) == "PyTorch is recorded up to where the program's own torch.profiler started: there is one at a time"
    assert trace.spans.filter(pl.col("name") == "aten::mm").collect()["step"].to_list() == [0]
    assert steps_of(trace) == [0]


@pytest.mark.parametrize("framework", ["torch", "python"])
def test_a_profiler_may_be_stopped_by_another_thread_than_started_it(framework: str, tmp_path: Path) -> None:
    done = (torch_job if framework == "torch" else job)(
        f"""
        import threading
        from stepscope import Profiler, record_function
        if {framework == "torch"}: import torch
        def start():
            global profiler
            profiler = Profiler(host_interval_ms=10)
            with record_function("there"): pass
            profiler.step()
        thread = threading.Thread(target=start, name="trainer")
        thread.start(); thread.join()
        with record_function("here"): pass
        profiler.step()
        print(*profiler.analyse())
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    trace = stepscope.open(done.stdout.strip())
    assert steps_of(trace) == [0, 1]
    assert trace.annotations()["name"].sort().to_list() == ["here", "there"]
    assert said_by(trace) == ""


def test_an_output_folder_that_goes_away_does_not_end_the_job(tmp_path: Path) -> None:
    done = job(
        """
        import shutil
        from stepscope import Profiler
        profiler = Profiler(host_interval_ms=0)
        shutil.rmtree("data"); open("data", "w").close()
        profiler.stop()
        profiler.start()
        profiler.step()
        profiler.stop()
        profiler.analyse()
        print("trained")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "could not be completed" in done.stderr
    assert "nothing is recorded from step 0 on" in done.stderr


def test_windows_that_cannot_be_opened_are_told_once_and_when_they_can_again(tmp_path: Path) -> None:
    done = job(
        """
        import os
        from stepscope import Profiler, schedule
        with Profiler(schedule=schedule(wait=0, active=1), host_interval_ms=0) as profiler:
            for number in range(9):
                if number == 2: os.rename("data", "away"); open("data", "w").close()
                if number == 6: os.remove("data"); os.rename("away", "data")
                profiler.step()
        """,
        tmp_path,
    )
    lines = [line.removeprefix("stepscope: ").split(": ")[0] for line in complaints(done.stderr)]
    # The third window is open when its folder goes.
    assert [line for line in lines if "capture" not in line] == ["nothing is recorded from step 3 on", "recording continues from step 7 on"]
    assert [steps_of(stepscope.open(path))[:1] for path in recordings(tmp_path / "data")] == [[0], [1], [], [7], [8], []]


def test_a_forked_child_neither_writes_into_the_parents_recording_nor_ends_it(tmp_path: Path) -> None:
    done = job(
        """
        import os, sys
        from stepscope import Profiler, record_function
        profiler = Profiler(host_interval_ms=0)
        with record_function("before"): pass
        profiler.step()
        child = os.fork()
        if child == 0:
            with record_function("child"): pass
            profiler.step()
            if sys.argv[0]:  # a child may record for itself
                with Profiler(output_path="child", host_interval_ms=0) as own:
                    with record_function("own"): pass
            profiler.stop()
            sys.exit(7)  # with exit handlers, unlike multiprocessing
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with record_function("after"): pass
        profiler.step()
        (run,) = profiler.analyse()
        print(run)
        """,
        tmp_path,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert recordings(tmp_path / "data") == [Path(done.stdout.strip())]
    trace = stepscope.open(done.stdout.strip())
    assert trace.annotations()["name"].sort().to_list() == ["after", "before"]
    assert steps_of(trace) == [0, 1]
    (own,) = recordings(tmp_path / "child")
    assert stepscope.open(own).annotations()["name"].to_list() == ["own"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_leave_the_recording_alone(method: str, tmp_path: Path) -> None:
    done = job(
        f"""
        import multiprocessing, sys
        from stepscope import Profiler, record_function

        def work(number):
            with record_function("in a worker"): return number * 2

        if __name__ == "__main__":
            with Profiler(host_interval_ms=0) as profiler:
                with multiprocessing.get_context("{method}").Pool(2) as pool:
                    assert pool.map(work, range(20)) == list(range(0, 40, 2))
                with record_function("in the parent"): pass
            print(*profiler.analyse())
        """,
        tmp_path,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert recordings(tmp_path / "data") == [Path(done.stdout.strip())]
    assert stepscope.open(done.stdout.strip()).annotations()["name"].to_list() == ["in the parent"]


def test_ranges_of_every_thread_are_there(tmp_path: Path) -> None:
    done = job(
        """
        import threading
        from stepscope import Profiler, record_function
        def work():
            for _ in range(30000):
                with record_function("work"): pass

        with Profiler(host_interval_ms=0) as profiler:
            threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        print(*profiler.analyse())
        """,
        tmp_path,
    )
    trace = stepscope.open(done.stdout.strip())
    assert trace.spans.filter(pl.col("name") == "work").collect().height == 120_000
    labels = trace.tracks.filter(pl.col("group") != "garbage collection").collect()["label"].to_list()
    assert sorted(label for label in labels if label.startswith("worker")) == [f"worker {n}" for n in range(4)]


def test_an_exception_in_the_block_is_the_programs_own_and_the_window_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Profiler(output_path=tmp_path, **QUIET) as profiler:
        profiler.step()
        _ = 1 / 0
    (capture,) = recordings(tmp_path)
    assert steps_of(stepscope.open(capture)) == [0]
    assert captures.header(capture)["whole"]


def test_ctrl_c_in_the_block_keeps_the_window(tmp_path: Path) -> None:
    with started(
        """
        import time
        from stepscope import Profiler
        with Profiler(host_interval_ms=0) as profiler:
            for _ in range(3): profiler.step()
            print("ready")
            time.sleep(600)
        """,
        tmp_path,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    (capture,) = recordings(tmp_path / "data")
    assert captures.header(capture)["whole"]
    assert steps_of(stepscope.open(capture)) == [0, 1, 2]


def test_a_second_ctrl_c_does_not_wait_for_what_is_being_written(tmp_path: Path) -> None:
    done = job(
        """
        import os, signal
        from stepscope import Profiler
        from stepscope.recording.collectors import annotations as plain
        def slow(self):
            for _ in range(2): os.kill(os.getpid(), signal.SIGINT)
            print("not reached")
        plain.Collector.stop = slow
        try:
            with Profiler(host_interval_ms=0) as profiler: profiler.step()
        except KeyboardInterrupt:
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('x')"])
def test_a_profiler_that_was_never_stopped_is_stopped_and_kept_at_the_end(end: str, tmp_path: Path) -> None:
    done = job(
        f"""
        import sys
        from stepscope import Profiler, record_function
        profiler = Profiler(host_interval_ms=0)
        with record_function("x"): pass
        profiler.step()
        {end}
        """,
        tmp_path,
    )
    (capture,) = recordings(tmp_path / "data")
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1)
    assert (
        f"still recording at the end of the program: recorded {capture.relative_to(tmp_path)}; open it with: stepscope view " in done.stderr
    )
    assert captures.header(capture)["whole"]
    assert steps_of(stepscope.open(capture)) == [0]


def test_windows_are_whole_after_os_exit_also_the_one_under_way(tmp_path: Path) -> None:
    done = job(
        """
        import os
        from stepscope import Profiler, schedule
        profiler = Profiler(schedule=schedule(wait=0, active=2), host_interval_ms=0)
        for _ in range(5): profiler.step()
        os._exit(3)
        """,
        tmp_path,
    )
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1 and "still recording at the end" in done.stderr
    headers = [captures.header(path) for path in recordings(tmp_path / "data")]
    assert [header["whole"] for header in headers] == [True, True, True]
    traces = [stepscope.open(path) for path in recordings(tmp_path / "data")]
    assert [steps_of(trace) for trace in traces] == [[0, 1], [2, 3], [4]]
    assert said_by(traces[-1]) == "stopped before the active steps of the schedule were over"


TRAINS = {
    "ranges": """
        def train():
            with record_function("aten::addmm"): time.sleep(0.001)
    """,
    "torch": """
        import torch
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def train():
            net(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    """,
}


def until_killed(trains: str, before: str = "", after: str = "") -> str:
    """A loop without end, that says when it has recorded some steps."""
    return "\n".join(
        textwrap.dedent(part)
        for part in (
            "import faulthandler, os, signal, sys, time\nfrom stepscope import Profiler, record_function",
            TRAINS[trains],
            before,
            "profiler = Profiler(host_interval_ms=10)",
            after,
            """
            while True:
                train()
                profiler.step()
                if profiler.step_num == 3: print("ready")
            """,
        )
    )


@pytest.mark.parametrize(("trains", "number"), [("ranges", "TERM"), ("ranges", "HUP"), ("ranges", "USR1"), ("torch", "TERM")])
def test_a_job_that_is_killed_by_a_signal_keeps_the_window_under_way_and_its_exit_status(trains: str, number: str, tmp_path: Path) -> None:
    if trains == "torch":
        needs("torch")
    as_usual = f"signal.signal(signal.SIG{number}, signal.SIG_DFL)"  # under nohup SIGHUP is ignored
    with started(until_killed(trains, as_usual), tmp_path) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        for _ in range(2):  # as launchers do, where the scheduler does, too
            process.send_signal(getattr(signal, f"SIG{number}"))
        _, err = process.communicate(timeout=300)
    assert process.returncode == -getattr(signal, f"SIG{number}")
    (capture,) = recordings(tmp_path / "data")
    lines = [line for line in err.splitlines() if not line.startswith("USDT:")]  # Kineto's own
    place = capture.relative_to(tmp_path)
    how = f"recorded {place}; open it with: stepscope view {place}"
    assert lines == [f"stepscope: the profiler was still recording at the end of the program: {how}"]
    assert captures.header(capture)["whole"]
    trace = stepscope.open(capture)
    steps = steps_of(trace)
    assert len(steps) >= 3 and steps == list(range(len(steps)))
    calls = trace.spans.filter(pl.col("name") == "aten::addmm", pl.col("step").is_not_null()).collect()
    assert calls["step"].to_list() == steps


def test_a_second_signal_does_not_kill_a_job_before_it_reports_its_recording(tmp_path: Path) -> None:
    killed = job(
        """
        import os, signal
        from stepscope import Profiler
        def send_again(_): os.kill(os.getpid(), signal.SIGTERM)  # the window is closed, and its end is not reported yet
        profiler = Profiler(host_interval_ms=0, on_trace_ready=send_again)
        profiler.step()
        os.kill(os.getpid(), signal.SIGTERM)
        profiler.step()
        """,
        tmp_path,
    )
    (capture,) = recordings(tmp_path / "data")
    place = capture.relative_to(tmp_path)
    how = f"recorded {place}; open it with: stepscope view {place}"
    assert killed.stderr.splitlines() == [f"stepscope: the profiler was still recording at the end of the program: {how}"]
    assert killed.returncode == -signal.SIGTERM


@pytest.mark.parametrize("trains", mostly_deep(["ranges", "torch"], keep=["torch"]))
def test_a_job_that_is_killed_within_a_call_of_c_that_never_returns_keeps_its_steps_and_its_exit_status(
    trains: str, tmp_path: Path
) -> None:
    if trains == "torch":
        needs("torch")
    stuck = """
    import hashlib
    for _ in range(3):
        train()
        profiler.step()
    import threading
    threading.Timer(1, print, ["ready"]).start()  # by then the main thread is out of Python
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)
    """
    with started(until_killed(trains, after=stuck), tmp_path) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM
    (capture,) = recordings(tmp_path / "data")
    assert captures.header(capture)["whole"]
    trace = stepscope.open(capture)
    assert steps_of(trace) == [0, 1, 2]
    if trains == "torch" and trace.spans.filter(pl.col("name") == "aten::addmm").collect().height != 3:
        assert "stopped by another thread" in said_by(trace)  # PyTorch's profiler can be stopped by the main thread alone


def test_the_wakeup_of_the_programs_own_event_loop_is_left_alone(tmp_path: Path) -> None:
    done = job(
        """
        import asyncio, os, signal
        from stepscope import Profiler
        async def train(stop):
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, stop.set)
            with Profiler(host_interval_ms=0) as profiler:
                os.kill(os.getpid(), signal.SIGUSR2)
                await asyncio.wait_for(stop.wait(), 300)
            stop.clear()
            os.kill(os.getpid(), signal.SIGUSR2)
            await asyncio.wait_for(stop.wait(), 300)
            print("heard")
        asyncio.run(train(asyncio.Event()))
        with Profiler(host_interval_ms=0): assert signal.set_wakeup_fd(-1) != -1
        assert signal.set_wakeup_fd(-1) == -1
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(40))", "", 40),
        ("", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))", 41),
        ("signal.signal(signal.SIGTERM, lambda *_: os._exit(42))", "", 42),
        ("", "ours = signal.signal(signal.SIGTERM, lambda *said: (print('saved'), ours(*said)))", -signal.SIGTERM),
    ],
)
def test_a_handler_of_the_programs_own_decides_and_the_window_is_kept_all_the_same(
    before: str, after: str, status: int, tmp_path: Path
) -> None:
    with started(until_killed("ranges", before, after), tmp_path) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.terminate()
        out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (status, "saved\n" if status < 0 else "")
    (capture,) = recordings(tmp_path / "data")
    assert captures.header(capture)["whole"]
    assert len(steps_of(stepscope.open(capture))) >= 3


def test_signals_that_the_program_handles_or_ignores_stay_what_they_are_and_others_only_while_recording(tmp_path: Path) -> None:
    done = job(
        """
        import faulthandler, multiprocessing, os, signal, sys, threading, time
        from stepscope import Profiler
        names = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT")
        def ways(): return [signal.getsignal(getattr(signal, name)) for name in names]

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        faulthandler.register(signal.SIGUSR1, file=open("stacks", "w"))  # which Python's signal module does not hear of
        before = ways()
        with Profiler(host_interval_ms=0) as profiler:
            during = ways()
            print([one is other for one, other in zip(before, during)])
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGUSR1)
            told = multiprocessing.get_context("fork").Event()
            child = multiprocessing.get_context("fork").Process(target=lambda: (print(ways() == before), told.set(), time.sleep(600)))
            child.start()
            told.wait()
            child.terminate()
            child.join()
            print(child.exitcode)
        print(ways() == before)
        thread = threading.Thread(target=lambda: Profiler(host_interval_ms=0).stop())  # signals are the main thread's
        thread.start(); thread.join()
        """,
        tmp_path,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert done.stdout.splitlines() == ["[False, True, True, False, True]", "True", str(-signal.SIGTERM), "True"]
    assert "job.py" in (tmp_path / "stacks").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("verb", ["step", "stop"])
def test_a_signal_in_the_midst_of_the_profilers_own_work_waits_until_that_is_done(
    verb: str, number: signal.Signals, tmp_path: Path
) -> None:
    done = job(
        f"""
        import os, signal
        from stepscope import Profiler
        from stepscope.recording.collectors import annotations as plain
        work = plain.Collector.{verb}
        def disturbed(self, *number):
            if number in ((), (3,)): os.kill(os.getpid(), {number})
            work(self, *number)
        plain.Collector.{verb} = disturbed
        profiler = Profiler(host_interval_ms=0)
        for _ in range(5): profiler.step()
        profiler.stop()
        print("not reached")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (-number, "")
    assert ("the recording is being written; interrupt again" in done.stderr) is ((verb, number) == ("stop", signal.SIGINT))
    (capture,) = recordings(tmp_path / "data")
    assert captures.header(capture)["whole"]
    assert steps_of(stepscope.open(capture)) == ([0, 1, 2] if verb == "step" else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("attempts", seeds(2, 6))
@pytest.mark.parametrize("analysed", [False, True])
def test_every_finished_window_is_whole_after_kill_9_at_any_moment(analysed: bool, attempts: range, tmp_path: Path) -> None:
    """A window's steps are 2 and its ranges 6: what was announced as finished must have them, and whatever else is there must open."""
    moments = random.Random(9 + analysed + 10 * attempts.start)
    for attempt in attempts:
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with started(
            f"""
            import time
            from stepscope import Profiler, record_function, schedule
            def finished(profiler):
                if {analysed}: profiler.analyse()
                print(profiler.run)
            with Profiler(schedule=schedule(wait=1, active=2), on_trace_ready=finished, host_interval_ms=0) as profiler:
                while True:
                    for name in ("load", "forward", "backward"):
                        with record_function(name): time.sleep(0.001)
                    profiler.step()
            """,
            folder,
        ) as process:
            assert process.stdout
            announced = [process.stdout.readline()]
            time.sleep(moments.random() * 0.3)
            process.kill()
            announced += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        # The last line may have been cut off by the kill.
        finished = [Path(line.rstrip("\n")) for line in announced if line.endswith("\n")]
        assert finished
        for path in finished:
            trace = stepscope.open(path, cache=False)
            assert steps_of(trace) == [steps_of(trace)[0], steps_of(trace)[0] + 1]
            assert trace.spans.filter(pl.col("kind") == "annotation").collect().height == 6
            assert said_by(trace) == ""
        for path in set(recordings(folder / "data")) - set(finished):
            stepscope.open(path, cache=False)


@pytest.mark.parametrize("attempts", seeds(1, 6))
@pytest.mark.parametrize("analysed", [False, True])
def test_every_finished_window_of_pytorch_is_whole_after_kill_9_at_any_moment(analysed: bool, attempts: range, tmp_path: Path) -> None:
    """A window's steps are 2, with a layer called once forward in each. PyTorch is imported once, by the parent of all that are killed."""
    needs("torch")
    moments = random.Random(5 + analysed + 10 * attempts.start)
    with started(
        f"""
        import os, sys
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Kineto says much, and nobody listens
        import torch
        from stepscope import Profiler, schedule
        torch.set_num_threads(1)
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def finished(profiler):
            if {analysed}: profiler.analyse()
            print(profiler.run, "whole")
        def train(folder):
            print(os.getpid())
            plan = schedule(wait=1, warmup=1, active=2, repeat=1000)
            with Profiler(schedule=plan, output_path=folder, on_trace_ready=finished, record_shapes=True, host_interval_ms=10) as profiler:
                while True:
                    net(torch.randn(4, 8)).sum().backward()
                    optimizer.step()
                    profiler.step()
        for folder in iter(input, ""):
            child = os.fork()
            if not child: train(folder)
            print("\\nkilled", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tmp_path,
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout
        for attempt in attempts:
            process.stdin.write(f"{tmp_path / str(attempt)}\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            announced = [process.stdout.readline()]
            time.sleep(moments.random())
            os.kill(child, signal.SIGKILL)
            for line in process.stdout:
                if line == f"killed {-signal.SIGKILL}\n":
                    break
                announced.append(line)
            # The last line may have been cut off by the kill.
            whole = [Path(line.removesuffix(" whole\n")) for line in announced if line.endswith(" whole\n")]
            for path in whole:
                trace = stepscope.open(path, cache=False)
                first = steps_of(trace)[0]
                assert steps_of(trace) == [first, first + 1] and first % 4 == 2
                forward = trace.spans.filter(pl.col("name") == "aten::addmm").collect()
                assert (forward["step"].to_list(), forward["shapes"].null_count()) == ([first, first + 1], 0)
                assert trace.operators().height > 5 and said_by(trace) == ""
            assert whole
            for path in set(recordings(tmp_path / str(attempt))) - set(whole):
                stepscope.open(path, cache=False)
        process.stdin.write("\n")
        process.stdin.close()


def test_a_killed_job_says_of_which_steps_the_operators_are_lost(tmp_path: Path) -> None:
    done = torch_job(
        """
        import os, signal
        import torch
        from stepscope import Profiler
        from stepscope.model import captures
        from stepscope.recording.collectors.torch.sessions.budget import Budget
        captures.Pace.due = lambda pace: True  # every step is written as it ends
        Budget.is_full = lambda budget, steps=0: steps > 0 and number < 12  # and so are its operators, at first
        Budget.may_write = lambda budget: True
        net, number = torch.nn.Linear(8, 8), 0
        profiler = Profiler(output_path="data", host_interval_ms=0)
        for number in range(20):
            net(torch.randn(4, 8))
            profiler.step()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    trace = stepscope.open(recordings(tmp_path / "data")[0], cache=False)
    calls = trace.spans.filter(pl.col("name") == "aten::addmm").collect()["step"].to_list()
    problems = trace.problems.select("what", "lost").collect().rows()
    assert calls == list(range(12))
    assert ("steps 12 to 19: operators were not written when the job was killed", 8) in problems, problems


def test_a_job_killed_in_the_midst_of_any_write_leaves_finished_windows_and_nothing_torn(tmp_path: Path) -> None:
    """Three windows of two steps and two ranges: each is written with four writes, of which every one is once the last and half done."""
    done = job(
        """
        import os, pathlib, signal
        from stepscope import Profiler, record_function, schedule
        write = pathlib.Path.write_bytes
        def train(fatal):
            count = 0
            def half(path, content):
                nonlocal count
                count += 1
                if count == fatal:
                    write(path, content[: len(content) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return write(path, content)
            pathlib.Path.write_bytes = half
            plan = schedule(wait=0, active=2, repeat=3)
            ready = lambda profiler: print(fatal, profiler.run)
            with Profiler(schedule=plan, output_path=str(fatal), on_trace_ready=ready, host_interval_ms=0) as profiler:
                for _ in range(6):
                    with record_function("x"): pass
                    profiler.step()
            os._exit(0)
        for fatal in range(1, 14):
            child = os.fork()
            if not child: train(fatal)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-9 if fatal < 13 else 0)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    finished = [line.split() for line in done.stdout.splitlines()]
    assert [sum(number == str(fatal) for number, _ in finished) for fatal in range(1, 14)] == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    for _, run in finished:
        trace = stepscope.open(run, cache=False)
        assert (len(steps_of(trace)), trace.annotations()["calls"].to_list(), said_by(trace)) == (2, [2], "")
    for fatal in range(1, 13):
        for left in set(recordings(tmp_path / str(fatal))) - {Path(run) for _, run in finished}:
            assert said_by(stepscope.open(left, cache=False)) == "the job ended while recording: the trace contains what had been written"


def test_long_runs_stream_to_disk_what_they_see(tmp_path: Path) -> None:
    """Killed in the midst of the first window: ranges and steps are there but for the last pieces."""
    done = job(
        """
        import os, signal
        from stepscope import Profiler, record_function
        profiler = Profiler(host_interval_ms=0)
        for number in range(130_000):
            with record_function("x"): pass
            if number % 10 == 0: profiler.step()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL
    (capture,) = recordings(tmp_path / "data")
    trace = stepscope.open(capture)
    assert trace.spans.filter(pl.col("name") == "x").collect().height >= 100_000
    assert len(steps_of(trace)) >= 8_000
    assert steps_of(trace) == list(range(len(steps_of(trace))))


def test_recording_needs_numpy_alone_and_the_capture_opens_elsewhere(tmp_path: Path) -> None:
    done = job(
        """
        import sys
        for name in ("polars", "msgspec", "rich", "pyarrow"): sys.modules[name] = None
        from stepscope import Profiler, record_function
        with Profiler(host_interval_ms=0) as profiler:
            with record_function("x"): pass
            profiler.step()
        for mode in ("sync", "async"): print(*profiler.analyse(mode=mode))
        """,
        tmp_path,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    trace = stepscope.open(done.stdout.split()[0])
    assert done.stdout.split()[0].endswith(".capture")
    assert trace.annotations()["name"].to_list() == ["x"]
    assert steps_of(trace) == [0]


def test_a_framework_that_is_imported_late_is_told(tmp_path: Path) -> None:
    needs("torch")
    done = job(
        """
        from stepscope import Profiler
        profiler = Profiler(host_interval_ms=0)
        import torch
        profiler.stop()
        profiler.start()
        profiler.stop()
        for run in profiler.analyse(): print(run)
        import sys
        del sys.modules["torch"]  # as if it had not been imported
        profiler.start()
        profiler.step()
        sys.modules["torch"] = torch
        profiler.step()
        profiler.step()
        for run in profiler.analyse(): print(run)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    missed, whole, late = (stepscope.open(path) for path in done.stdout.split())
    assert "torch was imported after recording began, and no step was marked since: it is not recorded" in said_by(missed)
    assert "imported after" not in said_by(whole)
    assert "torch was imported after recording began: recorded from step 2 on" in said_by(late)


def test_what_another_tool_wrote_for_its_own_readers_outlives_the_capture(profiler: Profiler) -> None:
    profiler.start()
    assert profiler._windows.current
    folder = profiler._windows.current.capture.folder
    for name in ("PROF_000001", "host_1_ascend_pt", "other"):
        (folder / name).mkdir()
    profiler._windows.current.capture.header["keep"] = ["PROF_000001"]
    (run,) = profiler.analyse()
    assert sorted(path.name for path in (run / "raw").iterdir()) == ["PROF_000001", "host_1_ascend_pt"]
    assert not folder.exists()


def test_what_only_a_framework_can_do_is_told_where_there_is_none(tmp_path: Path) -> None:
    with Profiler(output_path=tmp_path, profile_memory=True, l2_cache=True, **QUIET) as profiler:
        pass
    (run,) = profiler.analyse()
    assert said_by(stepscope.open(run)) == "no effect without a framework: profile_memory, l2_cache"


@pytest.mark.parametrize("mode", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_training_with_data_sinking_has_its_steps(mode: str, tmp_path: Path) -> None:
    """MindSpore does not sink on the CPU: it says so, whatever was asked for, and every step is seen."""
    needs("mindspore")
    done = job(
        f"""
        import mindspore as ms, mindspore.dataset as ds, numpy as np
        from mindspore import nn
        from mindspore.train import Model
        from stepscope import Profiler, StopAtEpoch
        ms.set_context(mode=ms.{mode}, device_target="CPU")

        def rows():
            for _ in range(4): yield np.ones([2], np.float32), np.array(1, np.int32)

        class Says(ms.Callback):
            def on_train_step_end(self, run_context):
                said = run_context.original_args()
                print(said.cur_step_num, said.get("dataset_sink_mode"))

        def train(*callbacks, **sinking):
            net = nn.Dense(2, 2)
            model = Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True), nn.Momentum(net.trainable_params(), 1, 0.9))
            data = ds.GeneratorDataset(rows, ["data", "label"]).batch(1)
            model.train(2, data, callbacks=[Says(), *callbacks], dataset_sink_mode=True, **sinking)

        with Profiler(output_path="whole", host_interval_ms=0): train()
        with Profiler(output_path="sized", host_interval_ms=0): train(sink_size=2)
        train(StopAtEpoch(2, 2, output_path="epochs", host_interval_ms=0))
        """,
        tmp_path,
        GLOG_v="4",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{step} False" for step in range(1, 9)] * 3
    for name, steps in {"whole": [*range(1, 9)], "sized": [*range(1, 9)], "epochs": [5, 6, 7, 8]}.items():
        (run,) = recordings(tmp_path / name)
        trace = stepscope.open(run)
        assert trace.step_trace()["step"].to_list() == steps, name
        matmul = trace.spans.filter(pl.col("op_type").cast(pl.String) == "MatMul").collect()
        assert matmul["step"].sort().to_list() == sorted(2 * steps), name  # forward, and one for the weight's gradient


@pytest.mark.parametrize("mode", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_the_callbacks_record_the_steps_and_epochs_of_model_train(mode: str, tmp_path: Path) -> None:
    needs("mindspore")
    done = job(
        f"""
        import mindspore as ms, mindspore.dataset as ds, numpy as np
        from mindspore import nn
        from mindspore.train import Model
        from stepscope import MarkSteps, Profiler, StopAtEpoch, StopAtStep, schedule
        ms.set_context(mode=ms.{mode}, device_target="CPU")

        def rows():
            for _ in range(6): yield np.ones([2], np.float32), np.array(1, np.int32)

        class MadeInAStep(ms.Callback):  # as in the documentation of MindSpore 1.6
            def step_begin(self, run_context):
                if run_context.original_args().cur_step_num == 3:
                    self.profiler = Profiler(output_path="made_in_a_step", host_interval_ms=0)
            def step_end(self, run_context):
                if run_context.original_args().cur_step_num == 5:
                    self.profiler.analyse()

        def train(epochs, callback):
            net = nn.Dense(2, 2)
            model = Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True), nn.Momentum(net.trainable_params(), 1, 0.9))
            model.train(epochs, ds.GeneratorDataset(rows, ["data", "label"]).batch(1), callbacks=[callback], dataset_sink_mode=False)

        train(1, MadeInAStep())  # first, when MindSpore is not being watched yet
        train(1, StopAtStep(3, 5, output_path="steps", host_interval_ms=0))
        train(3, StopAtEpoch(2, 2, output_path="epochs", host_interval_ms=0))
        train(1, StopAtStep(5, 9, output_path="short", host_interval_ms=0))
        with Profiler(output_path="plan", schedule=schedule(wait=1, warmup=1, active=2, repeat=1), host_interval_ms=0) as profiler:
            train(1, MarkSteps(profiler))
        profiler.analyse()
        print(StopAtStep.__mro__[1:])
        """,
        tmp_path,
        GLOG_v="4",
    )
    assert done.returncode == 0, done.stderr
    expected = {"made_in_a_step": [3, 4, 5], "steps": [3, 4, 5], "epochs": [7, 8, 9, 10, 11, 12], "short": [5, 6], "plan": [2, 3]}
    for name, steps in expected.items():
        (run,) = recordings(tmp_path / name)
        trace = stepscope.open(run)
        assert trace.step_trace()["step"].to_list() == steps, name
        types = dict(trace.operator_types().select("type", "calls").iter_rows())
        assert types["MatMul"] == 2 * len(steps), (name, types)  # forward, and one for the weight's gradient
        assert ("the first step starts where recording began" in said_by(trace)) is (name not in ("epochs", "plan")), name


def test_the_drop_in_module_takes_the_environment_variable_from_mindspore(tmp_path: Path) -> None:
    needs("mindspore")
    done = job(
        """
        import stepscope.mindspore as profiler
        import mindspore as ms, numpy as np
        from mindspore import ops
        a = ms.Tensor(np.ones((4, 4), np.float32))
        for _ in range(3): ops.matmul(a, a).asnumpy()
        print(type(profiler.EnvProfiler.profiler).__module__)
        """,
        tmp_path,
        GLOG_v="4",
        MS_PROFILER_OPTIONS='{"start": true, "output_path": "out", "host_interval_ms": 0}',
    )
    assert (done.returncode, done.stdout) == (0, "stepscope.recording.profiler\n"), done.stderr
    (run,) = recordings(tmp_path / "out")
    assert dict(stepscope.open(run).operator_types().select("type", "calls").iter_rows())["MatMul"] == 3


def test_the_recorded_names_of_a_trace_are_the_defaults_of_step_trace() -> None:
    spans = """
        kind       name start_ns dur_ns step
        annotation a    0        5      0
        annotation b    5        5      0
    """
    trace = tiny.trace(spans=spans, steps="step start_ns end_ns\n0 0 20")
    recorded = Trace(trace.tables, Meta(ranks=[0], options={"fp_start": "b", "bp_end": None}))
    tiny.assert_rows(recorded.step_trace(), "fp_start_ns fp_start_op\n5 b")
    tiny.assert_rows(recorded.step_trace(fp_start="a"), "fp_start_ns fp_start_op\n0 a")
    assert recorded.step_trace()["found"].item().startswith("given")


def test_a_schedule_of_ours_says_what_it_is() -> None:
    assert repr(schedule(wait=1, active=2)) == "schedule(wait=1, active=2, warmup=0, repeat=0, skip_first=0)"
    assert schedule(wait=1, active=2)(0) is ProfilerAction.NONE
    with pytest.raises(UsageError, match="step is -1"):
        schedule(wait=1, active=2)(-1)
