"""`stepscope msprof`: the words that users of Ascend's msprof type, on directories that the tests write themselves."""

import csv
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import stepscope.mindspore
from prof_directories import Directory, small_network
from stepscope import Profiler
from stepscope.cli import main
from stepscope.errors import StepscopeError, UsageError
from stepscope.recording.conversion import prof_folders

NAME = "PROF_000001_20231114221320000_ABCDEFGH"


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> Said:
        code = main(["msprof", *words])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return small_network().write(tmp_path / NAME)


def exported(folder: Path) -> set[str]:
    """What kinds of files there are: names without the time."""
    return {file.name.rsplit("_", 1)[0] for file in (folder / "mindstudio_profiler_output").iterdir() if file.name != "README.txt"}


# Exporting


def test_export_writes_into_the_directory_and_says_what_with_how_many_rows(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    output = say("--export=on", f"--output={raw}")
    assert (output.code, output.err) == (0, "")
    assert {"op_summary", "op_statistic", "task_time", "step_trace", "api_statistic"} <= exported(raw)
    # Three steps of four operators and an all-reduce of two tasks.
    assert "1 device, 18 tasks, 12 of them kernels, 3 communication operators" in output.out
    assert next(line for line in output.out.splitlines() if "step_trace" in line and "csv" in line).endswith("  3 rows")
    # As current msprof does, the database is written beside the text.
    (database,) = raw.glob("msprof_*.db")
    assert {path.name for path in raw.iterdir()} == {"host", "device_0", "mindstudio_profiler_output", database.name}
    with closing(sqlite3.connect(database)) as found:
        assert found.execute("select count(*) from COMPUTE_TASK_INFO").fetchone() == (12,)


def test_exporting_again_keeps_what_an_earlier_export_wrote(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    older = raw / "mindstudio_profiler_output" / "op_summary_20230101000000.csv"
    older.parent.mkdir()
    older.write_text("of another tool\n")
    assert say("--export=on", f"--output={raw}").code == 0
    assert older.read_text() == "of another tool\n" and len(list(older.parent.glob("op_summary_*"))) == 2


def test_exports_within_one_second_keep_each_others_files(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        assert say("--export=on", "--type=text", f"--output={raw}").code == 0
        assert say("--export=on", "--type=db", f"--output={raw}").code == 0
    written = [re.fullmatch(r"(\w+)_(\d{14})(\.\w+)", file.name) for file in (raw / "mindstudio_profiler_output").glob("*_*")]
    files = [(found[1] + found[3], found[2]) for found in written if found]
    assert len({at for _, at in files}) == 3 and len(files) == len(written) == 3 * len({kind for kind, _ in files})
    assert len(list(raw.glob("msprof_*.db"))) == 6  # one of each


def test_wrong_models_and_iterations_are_said_with_the_right_ones(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    output = say("--export=on", f"--output={raw}", "--model-id=8", "--iteration-id=2")
    assert (output.code, "no model 8 has iterations; models: 7" in output.err) == (1, True)
    output = say("--export=on", f"--output={raw}", "--model-id=7", "--iteration-id=4")
    assert "model 7 has no iteration 4; it has 1 to 3" in output.err
    output = say("--export=on", f"--output={raw}", "--model-id=7")
    assert (output.code, "select one iteration together" in output.err) == (2, True)


def test_one_iteration_of_one_model_is_exported(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    assert say("--export=on", f"--output={raw}", "--model-id=7", "--iteration-id=2").code == 0
    files = {kind: next((raw / "mindstudio_profiler_output").glob(f"{kind}_*.csv")) for kind in ("step_trace", "task_time", "op_summary")}
    assert [line.split(",")[1].strip() for line in files["step_trace"].read_text().splitlines()] == ["Iteration ID", "2"]
    # Four operators and the two tasks of the all-reduce; the collective is a row among the operators.
    assert [len(files[kind].read_text().splitlines()) - 1 for kind in ("task_time", "op_summary")] == [6, 5]


def test_a_file_says_which_layers_the_timeline_has(raw: Path, say, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    chosen = tmp_path / "reports.json"
    chosen.write_text(json.dumps({"json_process": {"ascend": True, "overlap_analyse": True, "cann": False}}))
    assert say("--export=on", f"--output={raw}", f"--reports={chosen}").code == 0
    (file,) = (raw / "mindstudio_profiler_output").glob("msprof_*.json")
    assert {event["args"]["name"] for event in json.loads(file.read_text()) if event["name"] == "process_name"} == {
        "Ascend Hardware",
        "Overlap Analysis",
    }
    chosen.write_text("{}")
    assert 'has no object "json_process" of layers' in say("--export=on", f"--output={raw}", f"--reports={chosen}").err
    assert "No such file" in say("--export=on", f"--output={raw}", "--reports=nowhere").err


def test_tables_can_be_json(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    assert say("--export=on", f"--output={raw}", "--summary-format=json").code == 0
    (file,) = (raw / "mindstudio_profiler_output").glob("op_statistic_*.json")
    assert {row["OP Type"] for row in json.loads(file.read_text())} == {"MatMul", "ReLU", "GetLoss", "hcom_allReduce_"} - {
        "hcom_allReduce_"
    }


def test_a_database_is_written_beside_the_raw_data(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    output = say("--export=on", "--type=db", f"--output={raw}")
    (file,) = raw.glob("msprof_*.db")
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("select count(*) from TASK").fetchone() == (18,)
    assert output.code == 0 and not (raw / "mindstudio_profiler_output").exists()


def test_all_directories_below_a_folder_are_exported_though_one_cannot_be(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    good = [small_network().write(tmp_path / "job" / f"rank{rank}_ascend_ms" / f"PROF_00000{rank}_2023_A") for rank in range(3)]
    bad = tmp_path / "job" / "PROF_000009_2023_A"
    bad.mkdir()
    output = say("--export=on", f"--output={tmp_path}")
    assert output.code == 1 and all("op_summary" in exported(folder) for folder in good)
    assert f"stepscope: {bad}: no raw data in it; expected host/data or device_N/data with files in them" in output.err.splitlines()
    assert output.err.splitlines()[-1] == "stepscope: 3 of 4 directories done"


def test_all_iterations_of_a_recording_of_2020_are_exported_with_the_times_that_mindspore_found(shared: Path, say, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    legacy = shared / "ascend" / "legacy"
    raw = shutil.copytree(legacy / "raw" / "JOB3", tmp_path / "JOB3")
    raw.chmod(0o755)
    assert say("--export=on", f"--output={tmp_path}").code == 0
    (file,) = (raw / "mindstudio_profiler_output").glob("step_trace_*.csv")
    found = list(csv.DictReader(file.read_text().splitlines()))
    expected = legacy / "expected" / "run_1" / "normal_run" / "profiler" / "step_trace_raw_1_detail_time.csv"
    rows = list(csv.DictReader(expected.read_text().splitlines()))[:-1]  # the last one is their mean
    # A tick is 10 ns, the tables have microseconds.
    for own, row in zip(found, rows, strict=True):
        assert float(own["Iteration Time(us)"]) == pytest.approx((int(row["end_point"]) - int(row["start_point"])) / 100, abs=0.006)
        assert float(own["FP to BP Time(us)"]) == pytest.approx((int(row["bp_point"]) - int(row["fp_point"])) / 100, abs=0.006)
    assert len(found) == 322


# Looking


def iterations(root: Path) -> Path:
    """Three iterations of 100, 300 and 200 us: where one ends the next begins."""
    made = Directory()
    for at, tag in ((0, 0), (100, 4), (400, 4), (600, 4), (600.5, 1)):
        made.tag(at, tag)
    return made.write(root)


def test_query_lists_models_with_their_iterations_and_the_longest_first(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    raw = iterations(tmp_path / NAME)
    output = say("--query=on", f"--output={raw}")
    header, *rows = [[word.strip() for word in line.split("\t")] for line in output.out.splitlines()]
    assert header == [
        "Job Info",
        "Device ID",
        "Dir Name",
        "Collection Time",
        "Model ID",
        "Iteration Number",
        "Top Time Iteration",
        "Rank ID",
    ]
    assert [row for row in rows if row[2] == "device_0"] == [["NA", "0", "device_0", "N/A", "7", "3", "2,3,1", "0"]]


def test_query_of_many_says_which_directory_each_row_is_of(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    for number in range(2):
        iterations(tmp_path / f"PROF_00000{number}_2023_A")
    output = say("--query=on", f"--output={tmp_path}")
    assert [f"PROF_00000{number}_2023_A/device_0" in output.out for number in range(2)] == [True, True]


def test_query_shows_what_it_can_of_small_files_that_are_damaged(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    raw = iterations(tmp_path / NAME)
    (raw / "device_0" / "start_info.0").write_bytes(b'{"collectionDateBegin": "\xff\xfe"}')
    (raw / "host" / "info.json").write_bytes(b"[" * 100_000)
    output = say("--query=on", f"--output={raw}")
    assert output.code == 0 and "2,3,1" in output.out


def test_parse_decodes_writes_nothing_and_says_what_is_there(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    before = sorted(raw.rglob("*"))
    output = say("--parse=on", f"--output={raw}")
    assert output.code == 0 and "18 tasks" in output.out and "Iteration Number" in output.out
    assert sorted(raw.rglob("*")) == before


def test_what_is_missing_is_counted(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    file = next(raw.glob("device_0/data/stars_soc*"))
    file.write_bytes(file.read_bytes()[:-30])
    output = say("--parse=on", f"--output={raw}")
    assert "records are missing; `stepscope show problems" in output.out


# Clearing


def test_clear_removes_the_databases_of_sqlite_folders_and_nothing_else(raw: Path, say, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.db").write_bytes(b"mine")
    for part in ("host", "device_0"):
        (raw / part / "sqlite").mkdir()
        (raw / part / "sqlite" / "api_event.db").write_bytes(b"12345")
    (raw / "device_0" / "sqlite" / "notes.txt").write_text("mine")
    (raw / "sqlite").symlink_to(elsewhere)
    output = say("--export=on", "--clear=on", f"--output={raw}")
    assert output.code == 0 and "removed host/sqlite: 1 database, 5 bytes" in output.out
    assert "device_0/sqlite is kept: notes.txt" in output.out
    assert not (raw / "host" / "sqlite").exists() and (elsewhere / "mine.db").exists()
    assert [file.name for file in (raw / "device_0" / "sqlite").iterdir()] == ["notes.txt"]
    assert (raw / "device_0" / "data").is_dir() and "op_summary" in exported(raw)


def test_nothing_is_cleared_where_the_export_failed(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    (raw / "host" / "sqlite").mkdir()
    (raw / "host" / "sqlite" / "api_event.db").write_bytes(b"12345")
    (raw / "mindstudio_profiler_output").write_text("in the way")
    output = say("--export=on", "--clear=on", f"--output={raw}")
    assert output.code == 1 and (raw / "host" / "sqlite" / "api_event.db").exists()
    assert output.err.count("\n") == 1 and "could not be written" in output.err


# Wrong use, and trouble


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing action; --export=on --output=PROF_XXX exports a directory"),
        (["--export=on"], "--export=on needs --output=DIR"),
        (["--export=yes", "--output=."], "'yes' is neither on nor off"),
        (["--export=on", "--output=nowhere"], "nowhere: no such folder"),
        (["--export=off", "--output=."], "missing action"),
        (["--analyze=on", "--rule=comunication", "--output=."], "no rule 'comunication'; did you mean 'communication'?"),
        (["--sys-devices=all", "--sys-period=3"], "Ascend's own msprof, on a machine with an NPU, collects data of the whole system"),
        (["--dynamic=on", "--pid=4242"], "stepscope attach 4242"),
        (["--exprt=on"], "no flag --exprt; did you mean '--export'?"),
    ],
)
def test_wrong_use_is_said_in_a_line(words: list[str], message: str, say) -> None:  # type: ignore[no-untyped-def]
    output = say(*words)
    assert output.code in (1, 2) and output.out == "" and output.err.count("\n") == 1 and message in output.err


def test_a_folder_without_directories_and_a_file_are_refused(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    assert "no PROF_* directory here" in say("--export=on", f"--output={tmp_path}").err
    (tmp_path / "file").write_text("x")
    assert "not a folder; expected a PROF_* directory" in say("--export=on", f"--output={tmp_path / 'file'}").err


def test_a_disk_that_takes_no_more_is_said_in_a_line_and_leaves_nothing_behind(raw: Path) -> None:
    for kind in ("text", "db"):
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "msprof", "--export=on", f"--type={kind}", f"--output={raw}"],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
        )
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "could not be written" in done.stderr
        assert {path.name for path in raw.iterdir()} == {"host", "device_0"}


def test_a_process_that_dies_fails_its_directory_only() -> None:
    worker = prof_folders.start_worker()
    os.kill(worker.pid, signal.SIGKILL)
    result = prof_folders.ask(worker, prof_folders.Request(folder="x"))
    assert result.failed == "the process that worked on it ended (signal 9; did memory run out?)"


# Recording


def test_a_command_is_recorded_as_run_does_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import stepscope\nwith stepscope.record_function('work'):\n    print('done')\n")
    for words in (
        ["--application=python job.py"],
        ["python", "job.py"],
        ["--aic-metrics=PipeUtilization", "--ascendcl=on", "python", "job.py"],
    ):
        out = tmp_path / f"out{len(words)}{len(words[0])}"
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "msprof", f"--output={out}", *words],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "done\n" and "recorded" in done.stderr and any(out.rglob("run.json"))


def test_flags_behind_the_command_are_the_commands_own(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys, stepscope\nwith stepscope.record_function('work'):\n    print(*sys.argv[1:])\n")
    words = [f"--output={tmp_path / 'out'}", str(tmp_path / "job.py"), "--debug", "--export=on", "--output=x"]
    done = subprocess.run([sys.executable, "-m", "stepscope", "msprof", *words], capture_output=True, text=True, check=True)
    assert done.stdout == "--debug --export=on --output=x\n"


def test_what_cannot_be_recorded_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "msprof", f"--output={tmp_path / 'out'}", "true"], capture_output=True, text=True, check=True
    )
    assert "nothing was recorded" in done.stderr and "Ascend's own msprof" in done.stderr


# From Python


def test_offline_analyse_exports_all_directories_below_a_path_from_a_plain_script(tmp_path: Path) -> None:
    raw = [small_network().write(tmp_path / "data" / f"rank_{rank}_ascend_ms" / f"PROF_00000{rank}_2023_A") for rank in range(3)]
    (tmp_path / "data" / "PROF_000009_2023_A").mkdir()
    script = "import stepscope\nprint(*stepscope.Profiler.offline_analyse('data'), sep='\\n')\n"  # no `if __name__`
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str((folder / "mindstudio_profiler_output").relative_to(tmp_path)) for folder in raw]
    assert all("op_summary" in exported(folder) for folder in raw)
    assert done.stderr == "stepscope: data/PROF_000009_2023_A: no raw data in it; expected host/data or device_N/data with files in them\n"


def test_offline_analyse_keeps_the_steps_asked_for_lays_out_json_and_clears_up(raw: Path) -> None:
    (raw / "host" / "sqlite").mkdir()
    (raw / "host" / "sqlite" / "api_event.db").write_bytes(b"12345")
    (out,) = Profiler.offline_analyse(raw, pretty=True, step_list=[2, 3], data_simplification=False)
    assert (raw / "host" / "sqlite").exists()
    (file,) = out.glob("step_trace_*.csv")
    assert len(file.read_text().splitlines()) == 3
    assert all(text.startswith(("[\n    {\n", "[]")) for text in (path.read_text() for path in out.glob("*.json")))
    Profiler.offline_analyse(raw)
    assert not (raw / "host" / "sqlite").exists()
    with pytest.raises(StepscopeError, match="no step 9"):
        Profiler.offline_analyse(raw, step_list=[9])


def test_the_function_of_mindspore_does_the_same_in_as_many_processes_as_it_may(tmp_path: Path) -> None:
    raw = [small_network().write(tmp_path / f"PROF_00000{number}_2023_A") for number in range(2)]
    stepscope.mindspore.analyse(str(tmp_path), max_process_number=1)
    assert all("op_summary" in exported(folder) for folder in raw)
    with pytest.raises(UsageError, match="max_process_number is 0"):
        stepscope.mindspore.analyse(str(tmp_path), max_process_number=0)


def test_offline_analyse_of_several_cases_gives_each_what_it_has_alone(shared: Path, tmp_path: Path) -> None:
    cases = [
        next((shared / "ascend" / "synth" / name).glob("PROF_*"))
        for name in ("c01_train_steps", "c05_comm", "c08_hwts_streams", "c12_base")
    ]
    for number, case in enumerate(cases):
        for parent in ("together", f"alone{number}"):
            shutil.copytree(case, tmp_path / parent / case.name)
            for path in (tmp_path / parent).rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
    together = Profiler.offline_analyse(tmp_path / "together")
    for number, case in enumerate(cases):
        (alone,) = Profiler.offline_analyse(tmp_path / f"alone{number}")
        (mine,) = [out for out in together if out.parent.name == case.name]
        texts = [{re.sub(r"_\d{14}", "", file.name): file.read_bytes() for file in out.iterdir()} for out in (alone, mine)]
        assert texts[0] == texts[1] and len(texts[0]) > 3


def test_a_misspelt_layer_of_the_timeline_is_refused_and_nothing_is_written(raw: Path, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    reports = tmp_path / "reports.json"
    reports.write_text(json.dumps({"json_process": {"cann": True, "overlap_analyze": True}}))
    output = say("--export=on", f"--output={raw}", f"--reports={reports}")
    assert output.code == 2 and output.out == ""
    assert "unknown layer 'overlap_analyze' of the timeline; layers are ascend, cann, " in output.err
    assert output.err.endswith("; did you mean 'overlap_analyse'?\n")
    assert not (raw / "mindstudio_profiler_output").exists()


def test_an_export_names_the_problems_that_lost_no_records(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    """A clock without its start, and a damaged sample.json: every record is there, and what is made of them rests on something else."""
    (raw / "device_0" / "dev_start.log.0").unlink()
    (raw / "device_0" / "sample.json").write_text('{"ai_core_metrics": "Pipe')
    output = say("--export=on", f"--output={raw}")
    named = [line for line in output.out.splitlines() if line.startswith("  problem: ")]
    assert output.code == 0 and "records are missing" not in output.out
    assert any("device_0: the device's clock has no start" in line for line in named)
    assert any("device_0: no readable sample.json: that of host is used" in line for line in named)


def test_a_wait_of_a_device_is_no_call_of_the_host(raw: Path, say) -> None:  # type: ignore[no-untyped-def]
    """Three steps of five launches, four calls of the runtime, two of communication and the model's event; one load of it."""
    (call,) = re.findall(r"([\d,]+) calls on the host", say("--parse=on", f"--output={raw}").out)
    assert int(call) == 3 * (5 + 4 + 2 + 1) + 1
