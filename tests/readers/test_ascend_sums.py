"""Results of torch_npu without a timeline: the sums of the steps and the calls of communication are what the files beside it say."""

import csv
import json
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.model.trace import Trace
from stepscope.readers.ascend.common.memory_tables import memory_counters

DATA = Path(__file__).parents[3] / "shared" / "data" / "ascend" / "torch_npu"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="torch_npu's results are not here")


def without_timeline(kind: str, folder: Path, *names: str) -> Path:
    """A result with only these of its files."""
    shutil.copytree(DATA / kind / "level1" / "rank1_ascend_pt", folder)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for file in (folder / "ASCEND_PROFILER_OUTPUT").iterdir():
        if file.name not in names:
            file.unlink()
    return folder


def step(trace: Trace) -> tuple[int, ...]:
    row: tuple[int, ...] = (
        trace.overlap().select("step", "computing_ns", "communication_ns", "overlapped_ns", "exposed_ns", "free_ns").row(0)
    )
    return row


def test_the_sums_of_a_step_are_those_of_the_table(tmp_path: Path) -> None:
    """With and without the calls of communication."""
    with (DATA / "text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv").open(newline="") as lines:
        said = next(csv.DictReader(lines))
    names = ("Computing", "Communication", "Overlapped", "Communication(Not Overlapped)", "Free")
    expected = (
        50,
        *(round(float(said[name]) * 1000) for name in names[:4]),
        round((float(said["Free"]) + float(said["Preparing"])) * 1000),
    )
    both = stepscope.open(without_timeline("text", tmp_path / "both_ascend_pt", "step_trace_time.csv", "communication.json"), cache=False)
    alone = stepscope.open(without_timeline("text", tmp_path / "alone_ascend_pt", "step_trace_time.csv"), cache=False)
    assert step(both) == expected and step(alone) == expected
    assert both.meta.ranks == alone.meta.ranks == [1] and both.meta.framework == "pytorch"
    # Also without a call of communication, the step is where its recording was: profiler_info says when it began.
    begin = alone.steps.collect()["start_ns"][0]
    assert 0 < both.steps.collect()["start_ns"][0] - begin < 10**9
    assert any("drawn from the sums" in what for what in both.problems.collect()["what"])
    # The step is about as long as in the timeline, which begins before the first device work.
    (shown,), (whole,) = (
        stepscope.open(path, cache=False).overlap()["device_ns"].to_list()
        for path in (tmp_path / "alone_ascend_pt", DATA / "text/level1/rank1_ascend_pt")
    )
    assert shown == pytest.approx(whole, rel=0.02)


def test_a_table_of_older_tools_says_that_the_time_before_the_first_device_work_is_missing(tmp_path: Path) -> None:
    folder = without_timeline("text", tmp_path / "one_ascend_pt", "step_trace_time.csv")
    table = folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    with table.open(newline="") as lines:
        (said,) = list(csv.DictReader(lines))
    said.pop("Preparing")
    with table.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(said))
        writer.writeheader()
        writer.writerow(said)
    trace = stepscope.open(folder, cache=False)
    assert step(trace)[-1] == round(float(said["Free"]) * 1000)
    assert any(what.startswith("no column Preparing") for what in trace.problems.collect()["what"])


def test_calls_of_communication_stand_where_they_ran_with_what_they_waited(tmp_path: Path) -> None:
    folder = without_timeline("text", tmp_path / "one_ascend_pt", "step_trace_time.csv", "communication.json")
    said = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text())["step50"]["collective"]
    times = {name.partition("@")[0]: one["Communication Time Info"] for name, one in said.items() if not name.startswith("Total")}
    calls = stepscope.open(folder, cache=False).spans.filter(pl.col("kind") == "communication").collect()
    assert calls.height == len(times) == 4
    for name, start, length, args in calls.select(pl.col("name").cast(pl.String), "start_ns", "dur_ns", "args").iter_rows():
        assert abs(start - times[name]["Start Timestamp(us)"] * 1000) < 1000
        assert length == round(times[name]["Elapse Time(ms)"] * 1e6)
        assert json.loads(args)["wait_ns"] == round(times[name]["Wait Time(ms)"] * 1e6)


def test_the_database_of_the_analysis_alone_gives_the_same_kind_of_answer(tmp_path: Path) -> None:
    folder = without_timeline("db", tmp_path / "one_ascend_pt", "analysis.db")
    with sqlite3.connect(DATA / "db/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db") as database:
        names = "step, computing, communication, overlapped, communication_not_overlapped, free + preparing"
        sums = database.execute(f"select {names} from StepTraceTime")
        number, *microseconds = sums.fetchone()
        calls = dict(database.execute("select hccl_op_name, wait_time from CommAnalyzerTime").fetchall())
    trace = stepscope.open(folder, cache=False)
    assert step(trace) == (int(number), *(round(one * 1000) for one in microseconds))
    waited = dict(trace.communication().select("name", "wait_ns").iter_rows())
    assert waited == {name: round(time * 1e6) for name, time in calls.items()}


@pytest.mark.parametrize("kind", ["text", "db"])
def test_a_damaged_timeline_leaves_what_lies_beside_it(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "one_ascend_pt"
    shutil.copytree(DATA / kind / "level1" / "rank1_ascend_pt", folder)
    timeline = next(
        file for file in (folder / "ASCEND_PROFILER_OUTPUT").iterdir() if file.name in ("trace_view.json", "ascend_pytorch_profiler_1.db")
    )
    timeline.chmod(0o644)
    timeline.write_bytes(timeline.read_bytes()[: timeline.stat().st_size // 3])
    whole = stepscope.open(DATA / kind / "level1" / "rank1_ascend_pt", cache=False).overlap()
    trace = stepscope.open(folder, cache=False)
    found = trace.overlap()
    assert abs(found["computing_ns"][0] - whole["computing_ns"][0]) < 1000
    assert abs(found["communication_ns"][0] - whole["communication_ns"][0]) < 1000
    assert trace.problems.collect().filter(pl.col("lost") > 0)["where"].to_list() == [timeline.name]


def test_a_number_of_another_script_is_no_number_of_a_device(tmp_path: Path) -> None:
    """For which a regular expression would accept what the conversion refuses."""
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    (folder / "npu_module_mem.csv").write_text(
        "Component,Timestamp(us),Total Reserved(KB),Device\nHCCL,5.000\t,2.0,NPU:\u0663\nHCCL,6.000\t,3.0,NPU:1\n", encoding="utf-8"
    )
    rows = memory_counters(folder, []).select("number", "at_ns", "value").rows()
    assert rows == [(0, 5000, 2048.0), (1, 6000, 3072.0)]
