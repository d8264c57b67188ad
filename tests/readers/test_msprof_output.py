"""What msprof exported: the older layout of 2023, with a file for each iteration, and the newer one."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from stepscope.model import intervals
from stepscope.model.trace import Trace

DATA = Path(__file__).parents[3] / "shared" / "data" / "ascend"
RANKS = sorted((DATA / "prof_2023").glob("PROF_*"))
needs_2023 = pytest.mark.skipif(not RANKS, reason="prof_2023 is not here")


@pytest.fixture(scope="module")
def both() -> Trace:
    return stepscope.open(DATA / "prof_2023", cache=False)


def events(path: Path, name: str) -> list[dict[str, Any]]:
    return [event for file in sorted(path.glob(f"device_*/timeline/{name}_*.json")) for event in json.loads(file.read_text())]


def offset_ns(path: Path) -> int:
    output = json.loads(next(file for file in path.glob("device_*/start_info.*") if file.suffix != ".done").read_text())
    return int(output["collectionTimeBegin"]) * 1000 - int(output["clockMonotonicRaw"])


@needs_2023
def test_every_iteration_appears_with_its_forward_and_backward_pass(both: Trace) -> None:
    """MindInsight 2.3 shows none of this layout, and in the newer one none whose thread is called `Model ID:2`."""
    for rank, path in enumerate(RANKS):
        document = {event["args"]["Iteration ID"]: event for event in events(path, "step_trace") if event.get("cat") == "Iteration Time"}
        steps = both.step_trace().filter(pl.col("rank") == rank)
        assert steps["step"].to_list() == sorted(document) == list(range(1, 11))
        assert set(steps["clock"]) == {"source"}
        for row in steps.iter_rows(named=True):
            event = document[row["step"]]
            fp, bp, end = (event["args"][key] for key in ("FP Start", "BP End", "Iteration End"))
            assert row["total_ns"] == event["args"]["Iteration Time(ns)"]
            assert row["fp_bp_ns"] == pytest.approx((bp - fp) * 1000, abs=1)
            assert row["tail_ns"] == pytest.approx((end - bp) * 1000, abs=1)
            assert row["start_ns"] - offset_ns(path) == pytest.approx(event["ts"] * 1000, abs=8)  # the grain of a float


@needs_2023
def test_overlap_recomputed_from_the_tasks_is_the_files_own(both: Trace) -> None:
    for rank, path in enumerate(RANKS):
        own: dict[str, list[tuple[int, int]]] = {}
        all_events = events(path, "msprof")
        process = {event["pid"] for event in all_events if event["ph"] == "M" and event["args"].get("name") == "Overlap Analysis"}
        for event in all_events:
            if event["ph"] == "X" and event["pid"] in process:
                start = round(event["ts"] * 1000)
                own.setdefault(event["name"], []).append((start, start + round(event["dur"] * 1000)))
        sets = {name: intervals.merge(*np.array(rows, np.int64).T) for name, rows in own.items()}
        steps = both.overlap().filter(pl.col("rank") == rank)
        for name, column in (
            ("Computing", "computing_ns"),
            ("Communication", "communication_ns"),
            ("Communication(Not Overlapped)", "exposed_ns"),
        ):
            assert steps[column].sum() == sets[name].total, (rank, name)
        work = both.spans.filter((pl.col("rank") == rank) & pl.col("kind").is_in(["kernel", "communication"]))
        busy = work.select("start_ns", "step", end=pl.col("start_ns") + pl.col("dur_ns")).collect()
        free = 0
        for (_,), part in busy.group_by("step"):
            covered = intervals.merge(part["start_ns"].to_numpy(), part["end"].to_numpy())
            free += int(covered.ends[-1] - covered.starts[0]) - covered.total
        assert free == sets["Free"].total, rank


@needs_2023
def test_ranks_share_a_clock_and_wait_for_one_another(both: Trace) -> None:
    """Both times of day come from start_info: each rank's all-reduce begins before either's ends."""
    assert both.meta.ranks == [0, 1]
    calls = both.communication()
    assert calls["matched"].to_list() == [10, 10] and calls["note"].null_count() == 2
    assert (calls["wait_ns"] >= 0).all()
    begun = both.spans.filter(pl.col("kind") == "step").group_by("rank").agg(pl.col("start_ns").min()).sort("rank").collect()
    assert abs(int(begun["start_ns"][0]) - int(begun["start_ns"][1])) < 10**9


@needs_2023
def test_ai_cpu_operators_have_a_device_of_their_own(both: Trace) -> None:
    output: dict[str, float] = {}
    for event in events(RANKS[0], "msprof"):
        if event["ph"] == "X" and event.get("args", {}).get("Task Type") == "AI_CPU":
            output[event["name"]] = output.get(event["name"], 0) + event["dur"]
    rows = both.operators(device="aicpu").filter(pl.col("rank") == 0)
    assert dict(rows.select("name", pl.col("total_ns") / 1000).iter_rows()) == pytest.approx(output)
    assert rows["scope"].null_count() == 0


CASES = [path for path in sorted((DATA / "synth").glob("*/expected")) if list(path.glob("op_summary_*.csv")) and "c12" not in str(path)]


@pytest.mark.skipif(not CASES, reason="the synthetic directories are not here")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_operator_types_are_those_of_the_exported_statistic(path: Path) -> None:
    """op_statistic and communication_statistic, from the timeline and op_summary."""
    types = stepscope.open(path, cache=False).operator_types()
    found = {
        (row["type"]): (row["calls"], row["total_ns"])
        for row in types.filter(pl.col("device").is_in(["aicore", "aicpu"])).iter_rows(named=True)
    }
    merged: dict[str, tuple[int, float]] = {}
    for file in [*path.glob("op_statistic_*.csv"), *path.glob("communication_statistic_*.csv")]:
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                calls, total = merged.get(row["OP Type"], (0, 0.0))
                merged[row["OP Type"]] = calls + int(row["Count"]), total + float(row["Total Time(us)"])
    for name, (calls, total) in merged.items():
        assert name in found, name
        assert found[name][0] == calls, name
        assert found[name][1] == pytest.approx(total * 1000, abs=calls + 1), name


@pytest.mark.skipif(not CASES, reason="the synthetic directories are not here")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_overlap_of_a_newer_export_is_the_files_own(path: Path) -> None:
    timeline = next(path.glob("msprof_*.json"), None)
    if timeline is None:
        pytest.skip("no timeline")
    rows = json.loads(timeline.read_text())
    process = {event["pid"]: event["pid"] & 31 for event in rows if event["ph"] == "M" and event["args"].get("name") == "Overlap Analysis"}
    own: dict[tuple[int, str], int] = {}
    for event in rows:
        if event["ph"] == "X" and event["pid"] in process:
            key = process[event["pid"]], event["name"]
            own[key] = own.get(key, 0) + round(event["dur"] * 1000)
    trace = stepscope.open(path, cache=False)
    tracks = trace.tracks.select("track", "device").collect()
    for kind, name in (("kernel", "Computing"), ("communication", "Communication")):
        of_kind = trace.spans.filter(pl.col("kind") == kind)
        spans = of_kind.select("track", "category", "start_ns", end=pl.col("start_ns") + pl.col("dur_ns")).collect()
        for (device,), part in spans.join(tracks, on="track").group_by("device"):
            total = intervals.merge(part["start_ns"].to_numpy(), part["end"].to_numpy()).total
            if (int(str(device)), name) not in own:  # msprof itself takes no tags of graphs into account
                assert set(part["category"].cast(pl.String)) == {"Reduce"}
                continue
            assert total == pytest.approx(own[int(str(device)), name], abs=2 * part.height), (device, name)


@needs_2023
def test_a_folder_of_device_1_is_of_device_1(both: Trace) -> None:
    streams = both.tracks.filter(pl.col("kind") == "stream").select("rank", "device").unique().sort("rank").collect()
    assert streams.rows() == [(0, 0), (1, 1)]
    assert both.devices.select("rank", "device").sort("rank").collect().rows() == [(0, 0), (1, 1)]


CLUSTER = DATA / "cluster_output"


@pytest.mark.skipif(not CLUSTER.exists(), reason="the tables of a cluster are not here")
def test_the_sums_of_a_cluster_are_those_of_its_table() -> None:
    """Microseconds to the nanosecond; rows of stages are no ranks, and a link's rate is its bytes by its time."""
    trace = stepscope.open(CLUSTER, cache=False)
    with (CLUSTER / "cluster_step_trace_time.csv").open(newline="") as lines:
        document = {int(row["Index"]): row for row in csv.DictReader(lines) if row["Type"] == "rank"}
    names = {
        "computing_ns": "Computing",
        "communication_ns": "Communication",
        "exposed_ns": "Communication(Not Overlapped)",
        "free_ns": "Free",
    }
    rows = trace.overlap()
    assert rows["rank"].to_list() == sorted(document) == list(range(16))
    for row in rows.iter_rows(named=True):
        for column, word in names.items():
            assert row[column] == pytest.approx(float(document[row["rank"]][word]) * 1000, abs=2), (row["rank"], word)
    far = trace.links().filter(pl.col("transport") == "RDMA").row(0, named=True)
    assert far["bytes_per_s"] == pytest.approx(24.2778e9, rel=1e-5)


@pytest.mark.skipif(not CLUSTER.exists(), reason="the tables of a cluster are not here")
def test_sums_of_a_cluster_stand_on_the_clock_of_its_operators() -> None:
    trace = stepscope.open(CLUSTER, cache=False)
    output = json.loads((CLUSTER / "cluster_communication.json").read_text())
    times = [
        float(member["Communication Time Info"]["Start Timestamp(us)"])
        for steps in output.values()
        for operators in steps.values()
        for name, members in operators.items()
        if name != "Total Op Info"
        for member in members.values()
    ]
    assert trace.steps.select(pl.col("start_ns").unique()).collect().item() == round(min(times) * 1000)
    first, last = trace.ends()
    assert last - first < 10**9  # a step is a third of a second


def test_a_step_of_a_cluster_is_divided_where_its_operators_are_all_of_its_communication(tmp_path: Path) -> None:
    """Rank 0: operators of 0.6 and 0.4 ms are its whole millisecond of communication. Of rank 1 one is missing."""
    (tmp_path / "cluster_step_trace_time.csv").write_text(
        "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
        "2,rank,0,500,1000,0,1000,500\n2,rank,1,500,1000,0,1000,500\n"
    )

    def operator(start: float, *times: float) -> dict[str, Any]:
        words = [f"{word} Time(ms)" for word in ("Elapse", "Transit", "Wait", "Idle")]
        return {"Communication Time Info": {"Start Timestamp(us)": start, **dict(zip(words, times, strict=True))}}

    first, second = operator(1e9, 0.6, 0.1, 0.2, 0.3), operator(1e9 + 700, 0.4, 0.25, 0.05, 0.1)
    document = {"(0, 1)": {"step2": {"hcom_allReduce__1_0@7": {"0": first, "1": first}, "hcom_allReduce__1_1@7": {"0": second}}}}
    (tmp_path / "cluster_communication.json").write_text(json.dumps(document))
    found = stepscope.open(tmp_path, cache=False).cluster_steps()
    assert found.select("rank", "communication_ns", "transit_ns", "wait_ns", "communication_idle_ns").rows() == [
        (0, 1_000_000, 350_000, 250_000, 400_000),
        (1, 1_000_000, None, None, None),
    ]


def _exported(folder: Path, table: str, **more: object) -> Trace:
    """A timeline of ten microseconds with three tasks, and a table of kernels beside it."""
    folder.mkdir(parents=True)
    rows: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 2, "tid": 0, "args": {"name": "Ascend Hardware"}},
        {"name": "thread_name", "ph": "M", "pid": 2, "tid": 3, "args": {"name": "Stream 3"}},
        {"name": "process_name", "ph": "M", "pid": 4, "tid": 0, "args": {"name": "LLC"}},
        *(
            {"name": name, "ph": "X", "pid": 2, "tid": 3, "ts": f"170000000000000{at}.000", "dur": dur, "args": {"Task Type": "Other"}}
            for name, at, dur in (("aclnnAdd_AddAiCore_Add", 0, 4.0), ("PLACE_HOLDER", 5, 1.0), ("MEMCPY_ASYNC", 6, 4.0))
        ),
        *(
            {"name": "LLC 0 Read/Hit Rate", "ph": "C", "pid": 4, "tid": 0, "ts": f"170000000000000{at}.000", "args": {"Hit Rate(%)": rate}}
            for at, rate in enumerate((0.5, 0.875))
        ),
    ]  # fmt: skip
    (folder / "msprof_20240101000000.json").write_text(json.dumps(rows))
    (folder / "op_summary_20240101000000.csv").write_text(table)
    return stepscope.open(folder, cache=False)


def test_a_task_with_the_name_of_an_operator_is_one_though_its_type_is_other(tmp_path: Path) -> None:
    found = _exported(tmp_path / "out", "").spans.select("name", "kind").cast(pl.String).collect().rows()
    assert found == [("aclnnAdd_AddAiCore_Add", "kernel"), ("PLACE_HOLDER", "other"), ("MEMCPY_ASYNC", "copy")]


def test_a_hit_rate_is_in_percent(tmp_path: Path) -> None:
    found = _exported(tmp_path / "out", "").counters.select("value", pl.col("unit").cast(pl.String)).collect().rows()
    assert found == [(50.0, "percent"), (87.5, "percent")]


def test_kernels_of_a_table_of_another_time_have_a_length_and_no_place(tmp_path: Path) -> None:
    """A year later than all of the timeline: it is of another recording, and would make a day's picture of a step."""
    head = "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Stream ID"
    later = "0,MatMul_1,MatMul,AI_CORE,1731536000000000.000,7.0,3\n0,MatMul_2,MatMul,AI_CORE,1731536100000000.000,5.0,3"
    trace = _exported(tmp_path / "out", f"{head}\n{later}\n")
    assert trace.ends()[1] - trace.ends()[0] == 12_000  # 7 and 5 from the start on: behind the 10 of the timeline
    kernels = {row["name"]: row["total_ns"] for row in trace.kernels().iter_rows(named=True)}
    assert kernels == {"aclnnAdd_AddAiCore_Add": 4000, "MatMul_1": 7000, "MatMul_2": 5000}
    assert trace.overlap()["computing_ns"].to_list() == [4000]
    spans = trace.spans.filter(pl.col("name").cast(pl.String).str.starts_with("MatMul")).select("step", "track").collect()
    assert spans["step"].null_count() == 2
    kinds = dict(trace.tracks.select("track", pl.col("kind").cast(pl.String)).collect().iter_rows())
    assert {kinds[track] for track in spans["track"]} == {"other"}
    assert any("2 kernels" in what and "without a start" in what for what in trace.problems.collect()["what"])


def test_of_several_exports_the_newest_is_read_and_the_others_are_said(tmp_path: Path) -> None:
    """Whoever exports again adds files: each kernel ran once all the same."""
    folder = tmp_path / "out"
    alone = _exported(folder, "").spans.drop("args").collect()
    rows = json.loads((folder / "msprof_20240101000000.json").read_text())
    (folder / "msprof_20230101000000.json").write_text(json.dumps(rows[:1]))
    again = stepscope.open(folder, cache=False)
    assert again.spans.drop("args").collect().equals(alone)
    assert "files of earlier exports that are not read: 1" in again.problems.select("what").collect().to_series()
    for number, part in enumerate((rows[:2], rows[2:4], rows[4:])):
        (folder / f"msprof_slice_{number}_2024020200000{number}.json").write_text(json.dumps(part))
    (folder / "msprof_slice_3_20240101000009.json").write_text(json.dumps(rows))
    assert stepscope.open(folder, cache=False).spans.drop("args").collect().equals(alone)


def test_a_summary_says_the_same_as_json(tmp_path: Path) -> None:
    head = ["Device_id", "Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)", "Stream ID", "Input Shapes"]
    row = ["0", "aclnnAdd_AddAiCore_Add", "Add", "AI_VECTOR_CORE", "1700000000000000.000\t", "4.0", "3", '"2,3;4"']
    quoted = [one.replace('"', '""') for one in row]
    text = _exported(tmp_path / "text", ",".join(head) + "\n" + ",".join(f'"{one}"' for one in quoted) + "\n")
    _exported(tmp_path / "json", "")
    (tmp_path / "json" / "op_summary_20240101000000.csv").unlink()
    document = {name: float(one) if name == "Task Duration(us)" else one for name, one in zip(head, row, strict=True)}
    (tmp_path / "json" / "op_summary_20240101000000.json").write_text(json.dumps([document]))
    (tmp_path / "json" / "step_trace_summary_20240101000000.json").write_text(json.dumps([{"Iteration ID": 1}]))
    found = stepscope.open(tmp_path / "json", cache=False).operators().to_dicts()
    assert found == text.operators().to_dicts() and [row["shapes"] for row in found if row["type"] == "Add"] == ["[[2,3],[4]]"]


@pytest.mark.skipif(not CASES, reason="the synthetic directories are not here")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_what_msprof_exported_says_what_the_raw_data_says(path: Path) -> None:
    """Of whole cases: the sums of each step, and of each kernel, whichever of the two a user still has."""
    raw = next(path.parent.glob("PROF_*"))
    if path.parent.name.startswith(("c07_", "c07b", "c12")):
        pytest.skip("msprof itself lost something")
    one, other = (stepscope.open(folder, cache=False) for folder in (raw, path))
    steps, exported = (trace.overlap().drop("rank", "step") for trace in (one, other))
    kernels, written = (dict(trace.kernels().select("name", "total_ns").iter_rows()) for trace in (one, other))
    # Of a kernel on mixed cores msprof's table has the task around it, and its timeline the task of the cores: 0.2 us at either end.
    mixed = one.kernels().filter(pl.col("name").str.contains("mix"))["calls"].sum()
    assert exported.height == steps.height and written.keys() == kernels.keys()
    for column in steps.columns:
        assert exported[column].to_list() == pytest.approx(steps[column].to_list(), abs=20 + 400 * mixed), column
    for name, total in kernels.items():
        assert written[name] == pytest.approx(total, abs=20 + (400 * mixed if "mix" in name else 0)), name


def test_a_damaged_timeline_hides_no_other_of_its_device(shared: Path, tmp_path: Path) -> None:
    """Ten iterations in a file each: the first is cut."""
    found = sorted((shared / "ascend/prof_2023").glob("PROF_*COJGGGCANRMICFBC"))
    if not found:
        pytest.skip("no exports of 2023")
    copy = Path(shutil.copytree(found[0], tmp_path / found[0].name, copy_function=shutil.copyfile))
    (file,) = copy.rglob("msprof_0_2_10.json")
    file.write_bytes(file.read_bytes()[:100_000])
    trace = stepscope.open(copy, cache=False)
    row = trace.overview().row(0, named=True)
    assert (row["device_data"], row["device_steps"], row["steps"]) == ("partial", 8, 9)
    assert any(where.startswith("msprof_0_2_10.json") for where in trace.problems.filter(pl.col("lost") > 0).collect()["where"])
    # Its intact part may lack device work: the iteration in it does not count.
    partial = stepscope.open(copy, cache=False, partial=True)
    assert partial.overview().select("device_data", "device_steps").row(0) == ("partial", 8)
