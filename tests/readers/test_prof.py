"""Raw Ascend data against what Ascend's own tools made of it."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stepscope.model import intervals
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

DATA = Path(__file__).parents[3] / "shared" / "data" / "ascend"
SYNTH = DATA / "synth"
LEGACY = DATA / "legacy"
pytestmark = pytest.mark.skipif(not SYNTH.is_dir(), reason="no ../shared/data/ascend")

# Where the reference loses or spoils data its undamaged twin is the truth, see each case.md.
WHOLE = [*sorted(path.name for path in SYNTH.glob("*") if not path.name.startswith("c12")), "c12_base"] if SYNTH.is_dir() else []


def opened(case: str) -> Trace:
    return prof.read(next((SYNTH / case).glob("PROF*")), Options(scratch=Path("/nonexistent")))


def expected(case: str, table: str) -> list[dict[str, str]]:
    folder = SYNTH / case / ("expected_true" if (SYNTH / case / "expected_true").is_dir() else "expected")
    file = next(folder.glob(f"{table}_2*.csv"), None)
    if file is None:
        return []
    with file.open() as lines:
        return [{key: value.strip() for key, value in row.items() if key and isinstance(value, str)} for row in csv.DictReader(lines)]


def work(trace: Trace) -> list[dict[str, Any]]:
    """Device spans with their args, by device and start."""
    lanes = trace.tracks.select("track", "device", "tid", "label", lane="kind")
    spans = trace.spans.join(lanes, on="track").filter(pl.col("device").is_not_null(), pl.col("lane") == "stream")
    rows = spans.with_columns(pl.col("kind", "name", "scope", "op_type", "category").cast(pl.String)).sort("device", "start_ns").collect()
    return [row | {"about": json.loads(row["args"] or "{}")} for row in rows.to_dicts()]


def same_time(ns: int, us: str) -> bool:
    """The reference passes the date through a float: 0.2 microseconds."""
    return abs(ns - int(us.replace(".", ""))) <= 200


def same(value: object, text: str) -> bool:
    """Equal to the last printed digit."""
    if value is None:
        return text in ("N/A", "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(text)
        except ValueError:
            return False
        digits = len(text.partition(".")[2]) if "." in text else 0
        return abs(value - number) <= max(1.01 * 10**-digits, abs(number) * 2e-4 if digits else 0)
    return str(value) == text


NAMED = {
    "Model ID": "Model Id",
    "Task ID": "Task Id",
    "Stream ID": "Physic Stream Id",
    **{name: name for name in ("Op Name", "OP State", "Block Num", "Mix Block Num", "HF32 Eligible")},
    **{name: name for name in ("Input Data Types", "Input Formats", "Output Data Types", "Output Formats")},
}


def different_operators(trace: Trace, rows: list[dict[str, str]]) -> list[str]:
    mine = [row for row in work(trace) if row["kind"] in ("communication", "kernel") and row["category"] != "Reduce"]
    mine.sort(key=lambda row: (row["device"], row["start_ns"], row["kind"] == "communication"))
    rows = sorted(rows, key=lambda row: (int(row["Device_id"]), row["Task Start Time(us)"], row["Stream ID"] == "N/A"))
    level0 = trace.meta.options.get("profLevel") == "l0"
    wrong = [] if len(mine) == len(rows) else [f"{len(mine)} operators, not {len(rows)}"]
    for row, want in zip(mine, rows, strict=False):
        about, here = row["about"], f"{want['Op Name']} at {want['Task Start Time(us)']}"
        start, duration = (about.get("task start_ns") or row["start_ns"], about.get("task dur_ns") or row["dur_ns"])
        if want["Context ID" if "Context ID" in want else "Op Name"] != "N/A":
            start, duration = row["start_ns"], row["dur_ns"]
        if not same_time(start, want["Task Start Time(us)"]):
            wrong.append(f"{here}: starts at {start}")
        if not same(duration / 1000, want["Task Duration(us)"]):
            wrong.append(f"{here}: takes {duration}, not {want['Task Duration(us)']}")
        if row["kind"] == "communication":
            found = {"Op Name": row["name"], "OP Type": row["op_type"], "Task Type": "COMMUNICATION"}
        else:
            found = {column: about.get(key) for column, key in NAMED.items()}
            found |= {"Task Type": row["category"], "OP Type": about.get("OP Type") or row["op_type"]}
            found |= {column: about.get(column) for column in want if column in about and column not in found}
            for column in ("Input Shapes", "Output Shapes"):
                found[column] = None if about.get(column) is None else f'"{about[column]}"'
            if level0:  # little is recorded; what the runtime said of the task we keep, msprof does not
                found = {column: value for column, value in found.items() if column in ("Model ID", "Task ID", "Stream ID", "Op Name")}
            elif "Context ID" in want:
                found["Context ID"] = None if about["Subtask Id"] == 2**32 - 1 else about["Subtask Id"]
                if row["category"].startswith("MIX") and want["Context ID"] == "N/A":
                    # The host names no part of the task: msprof then finds neither its time nor its counters, we do.
                    found = {column: value for column, value in found.items() if not same(None, want[column])}
        for column, value in found.items():
            near = same(value, want[column]) if column in want else True
            if not near and value is None and column.endswith("_time(us)"):  # 0 stands for unknown: the mean of an unknown number of blocks
                near = about.get("Block Num") in (None, 0) and float(want[column]) == 0
            elif not near and column.endswith("_time(us)"):  # the reference multiplies a rounded time
                near = abs(value - float(want[column])) <= max(0.006, value * 1e-3)
            elif not near and column in ("Block Num", "Mix Block Num"):  # 0 stands for unknown
                near = value is None and want[column] == "0"
            elif not near and column == "memory_bound":  # and divides rounded ratios
                near = abs(value - float(want[column])) <= 0.01 * value
            if not near:
                wrong.append(f"{here}: {column} is {value}, not {want[column]}")
        for column in want:
            if column not in found and column not in NOT_OF_A_ROW and row["kind"] == "kernel" and want[column] not in ("N/A", "0"):
                wrong.append(f"{here}: no {column}")
    return wrong


NOT_OF_A_ROW = {"Device_id", "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)"}


@pytest.mark.parametrize("case", [case for case in WHOLE if expected(case, "op_summary")])
def test_operators_with_their_counters_are_those_of_op_summary(case: str) -> None:
    wrong = different_operators(opened(case), expected(case, "op_summary"))
    assert not wrong, wrong[:20]


@pytest.mark.parametrize("case", WHOLE)
def test_tasks_are_those_of_task_time(case: str) -> None:
    wrong = different_tasks(opened(case), expected(case, "task_time"))
    assert not wrong, wrong[:20]


def different_tasks(trace: Trace, rows: list[dict[str, str]]) -> list[str]:
    mine = [row for row in work(trace) if row["label"].startswith("Stream ")]
    # Two choices of ours: a copy is there once (msprof adds the scheduler's record of it), and the parts of a collective are.
    rows = [row for row in rows if row["kernel_type"] != "other"]
    mine = [row for row in mine if row["kind"] == "kernel" or row["about"]["Subtask Id"] == 2**32 - 1]
    mine.sort(key=lambda row: (row["device"], row["start_ns"], int(row["tid"])))
    rows = sorted(rows, key=lambda row: (int(row["Device_id"]), row["task_start(us)"], int(row["stream_id"])))
    wrong = [] if len(mine) == len(rows) else [f"{len(mine)} tasks, not {len(rows)}"]
    level0 = trace.meta.options.get("profLevel") == "l0"
    for row, want in zip(mine, rows, strict=False):
        about, here = row["about"], f"task {want['task_id']} of stream {want['stream_id']} at {want['task_start(us)']}"
        found = {
            "stream_id": row["tid"],
            "task_id": about["Task Id"],
            "task_time(us)": row["dur_ns"] / 1000,
            "kernel_name": about["kernel_name"] or about.get("Op Name"),
            "kernel_type": about["runtime type"] if level0 and row["kind"] == "kernel" else row["category"],
        }
        if want["kernel_type"] == "KERNEL_" + row["category"]:  # msprof does not find the operator of a part that the host does not name
            found["kernel_type"] = want["kernel_type"]
        wrong += [f"{here}: {column} is {value}, not {want[column]}" for column, value in found.items() if not same(value, want[column])]
        if not same_time(row["start_ns"], want["task_start(us)"]):
            wrong.append(f"{here}: starts at {row['start_ns']}")
    return wrong


@pytest.mark.parametrize("case", [case for case in WHOLE if expected(case, "step_trace")])
def test_steps_are_those_of_step_trace(case: str) -> None:
    assert not (wrong := different_steps(case)), wrong


def different_steps(case: str) -> list[str]:
    trace = opened(case)
    wrong = []
    steps = trace.step_trace().to_dicts()
    models = dict(trace.steps.select("step", pl.col("model").cast(pl.String)).collect().iter_rows())
    numbers = dict(trace.table("models").select("name", "model").collect().iter_rows())
    rows = expected(case, "step_trace")
    mine = sorted(steps, key=lambda step: (int(numbers[models[step["step"]]]), step["start_ns"]))
    rows = sorted(rows, key=lambda row: (int(row["Model ID"]), int(row["Iteration ID"])))
    if len(mine) != len(rows):
        wrong.append(f"{len(mine)} steps, not {len(rows)}")
    for step, want in zip(mine, rows, strict=False):
        here = f"iteration {want['Iteration ID']} of model {want['Model ID']}"
        if not same_time(step["end_ns"], want["Iteration End(us)"]) or not same(step["total_ns"] / 1000, want["Iteration Time(us)"]):
            wrong.append(f"{here}: {step['start_ns']} to {step['end_ns']}")
        if (case, want["Iteration ID"]) in (("c01b_loop_sink", "5"),):  # a second forward tag of iteration 4 is pushed into it
            continue
        for point, column in (("fp_start_ns", "FP Start(us)"), ("bp_end_ns", "BP End(us)")):
            if not (step[point] is None if want[column] == "N/A" else step[point] is not None and same_time(step[point], want[column])):
                wrong.append(f"{here}: {column} is {step[point]}, not {want[column]}")
        parts = {"FP to BP Time(us)": "fp_bp_ns", "Iteration Refresh(us)": "tail_ns"}
        for column, part in parts.items():
            if step["fp_start_ns"] and step["bp_end_ns"] and not same(step[part] / 1000, want[column]):
                wrong.append(f"{here}: {column} is {step[part]}, not {want[column]}")
    return wrong


@pytest.mark.parametrize("case", [case for case in WHOLE if expected(case, "api_statistic")])
def test_calls_are_those_of_api_statistic(case: str) -> None:
    rows = opened(case).spans.filter(pl.col("correlation").is_not_null(), pl.col("kind").is_in(["api", "sync"]))
    rows = rows.filter(pl.col("args").str.json_path_match("$.event") == "false")  # pairs of events are no calls to msprof
    duration = pl.col("dur_ns") / 1000
    mine = rows.group_by(level=pl.col("category").cast(pl.String), name=pl.col("name").cast(pl.String)).agg(
        duration.sum().alias("sum"),
        pl.len(),
        duration.min().alias("min"),
        duration.max().alias("max"),
        duration.var(ddof=0).alias("variance"),
    )
    found = {(row["level"], row["name"]): row for row in mine.collect().to_dicts()}
    theirs = {(row["Level"], row["API Name"]): row for row in expected(case, "api_statistic")}
    assert set(found) == set(theirs)
    for key, row in theirs.items():
        one = found[key]
        assert one["len"] == int(row["Count"]), key
        for figure, column in (("sum", "Time(us)"), ("min", "Min(us)"), ("max", "Max(us)"), ("variance", "Variance")):
            assert one[figure] == pytest.approx(float(row[column]), abs=0.0021), (key, column)


@pytest.mark.parametrize("case", [case for case in WHOLE if expected(case, "communication_statistic")])
def test_collectives_are_those_of_communication_statistic(case: str) -> None:
    trace = opened(case)
    spans = trace.spans.filter(pl.col("kind") == "communication").join(trace.tracks.select("track", "device"), on="track")
    mine = spans.group_by("device", pl.col("op_type").cast(pl.String)).agg(
        pl.len(), pl.col("dur_ns").sum(), low=pl.col("dur_ns").min(), high=pl.col("dur_ns").max()
    )
    found = {(row["device"], row["op_type"]): row for row in mine.collect().to_dicts()}
    rows = expected(case, "communication_statistic")
    assert len(found) == len(rows)
    for row in rows:
        one = found[int(row["Device_id"]), row["OP Type"]]
        assert one["len"] == int(row["Count"])
        assert (one["dur_ns"] / 1000, one["low"] / 1000, one["high"] / 1000) == pytest.approx(
            (float(row["Total Time(us)"]), float(row["Min Time(us)"]), float(row["Max Time(us)"])), abs=0.0021
        )


# The slices of 2020


@pytest.fixture(scope="module")
def job3() -> Trace:
    return prof.read(LEGACY / "raw" / "JOB3", Options(scratch=Path("/nonexistent")))


def made_of_job3(name: str) -> list[str]:
    return (LEGACY / "expected" / "run_1" / "normal_run" / "profiler" / name).read_text().splitlines()


def test_all_322_iterations_of_job3_are_exactly_those_that_mindspore_found(job3: Trace) -> None:
    rows = list(csv.DictReader(made_of_job3("step_trace_raw_1_detail_time.csv")))[:-1]
    wanted = [[int(row[point]) * 10 for point in ("start_point", "end_point", "fp_point", "bp_point")] for row in rows]
    found = job3.steps.sort("step").select("start_ns", "end_ns", "fp_start_ns", "bp_end_ns").collect()
    assert len(wanted) == 322
    assert [list(row) for row in found.iter_rows()] == wanted


def test_all_2817_executions_of_operators_of_job3_are_exactly_those_that_mindspore_found(job3: Trace) -> None:
    lines = (line.split(",") for line in made_of_job3("output_timeline_data_1.txt")[1:])
    wanted = sorted((op, stream, round(float(start) * 1e6), round(float(length) * 1e6)) for op, stream, start, length in lines)
    kernels = job3.spans.filter(pl.col("kind") == "kernel").join(job3.tracks.select("track", "tid"), on="track")
    found = kernels.select(pl.col("name").cast(pl.String), "tid", "start_ns", "dur_ns").collect()
    assert len(wanted) == 2817
    assert sorted(found.iter_rows()) == wanted


def test_all_collectives_of_job3_are_exactly_those_that_mindspore_found(job3: Trace) -> None:
    rows = list(csv.DictReader(made_of_job3("step_trace_raw_1_detail_time.csv")))[:-1]
    points = {column: column.replace("start", "end") for column in rows[0] if column.endswith("_start_point")}
    lane = "Communication on stream {}"
    wanted = {
        (int(row["step_num"]), lane.format(first.split("_")[1]), int(row[first]) * 10, int(row[last]) * 10)
        for row in rows
        for first, last in points.items()
    }
    assert set(job3.reduces().select("step", "stream", "start_ns", "end_ns").iter_rows()) == wanted


def test_job3_is_described_as_the_graph_says(job3: Trace) -> None:
    first = job3.spans.filter(pl.col("kind") == "kernel").sort("start_ns").first().collect().to_dicts()[0]
    assert (first["name"], first["scope"], first["op_type"]) == ("Default/AssignAdd-op414", "Default", "AssignAdd")
    assert (first["shapes"], first["dtypes"]) == ("[[1],[1]]", '["int","int"]')


def test_steps_beyond_the_end_of_the_task_log_are_said_to_be_without_operators(job3: Trace) -> None:
    """The last operator of the expected timeline starts at 441,029.09 ms, in step 15, which ends at 441,227 ms."""
    rows = list(csv.DictReader(made_of_job3("step_trace_raw_1_detail_time.csv")))
    assert int(rows[13]["end_point"]) < 44102908607 < int(rows[14]["end_point"])
    assert "the task log ends in step 15 of 322: the operators of later steps are missing" in lost_by_problem(job3)


def test_ai_cpu_text_gives_the_table_that_mindspore_made_of_it() -> None:
    trace = prof.read(LEGACY / "raw" / "JOB_AICPU", Options(scratch=Path("/nonexistent")))
    rows = [
        line.split()
        for line in (LEGACY / "raw" / "JOB_AICPU" / "expect" / "output_data_preprocess_aicpu_0.txt").read_text().splitlines()[2:5]
    ]
    spans = trace.spans.sort("start_ns").select(pl.col("op_type").cast(pl.String), "start_ns", "dur_ns", "args").collect().rows()
    found = [
        (
            kind,
            json.loads(args)["total time(us)"] / 1000,
            json.loads(args)["dispatch time(us)"] / 1000,
            start // 1000,
            (start + length) // 1000,
        )
        for kind, start, length, args in spans
    ]
    assert found == [(row[1], float(row[2]), float(row[3]), int(row[4]), int(row[5])) for row in rows]


def test_a_folder_of_raw_slices_opens_whatever_is_missing() -> None:
    for job in ("JOB1", "JOB4", "ERROR_JOB"):
        assert prof.sniff(LEGACY / "raw" / job)
        prof.read(LEGACY / "raw" / job, Options(scratch=Path("/nonexistent")))


# Damage


def lost_by_problem(trace: Trace) -> dict[str, int]:
    rows = trace.problems.select("what", "lost").collect().rows()
    return {what: lost for what, lost in rows if not what.startswith("no iterations")}


DAMAGE = {
    "c12a_truncated_device": {
        "35 bytes belong to no complete record": 1,
        "tasks with a start and no end": 1,
        "51 bytes belong to no complete record": 1,
    },
    "c12b_truncated_host": {"43 bytes belong to no complete record": 1, "156 bytes belong to no complete record": 1},
    "c12d_bad_magic_host": {"records with a wrong magic number": 1},
    "c12e_bad_magic_api": {"records with a wrong magic number": 1, "2 bytes belong to no complete record": 1},
    "c12h_no_hash_dic": {"no hash_dic: names are shown as numbers": 0},
    "c12i_no_type_dic": {"no type_info_dic: types of calls and tasks are shown as numbers": 0},
    "c12k_empty_stars": {"the file is empty": 0, "counters of kernels whose start or end is lost": 15},
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_lost_is_said_with_its_number(case: str) -> None:
    assert lost_by_problem(opened(case)) == DAMAGE[case]


@pytest.mark.parametrize(
    ("case", "tasks"),
    [
        ("c12a_truncated_device", 23),  # the end of the last one is cut off
        ("c12b_truncated_host", 24),
        ("c12c_bad_magic_device", 21),  # three records of three tasks
        ("c12d_bad_magic_host", 24),
        ("c12e_bad_magic_api", 24),
        ("c12f_no_info_json_device", 24),
        ("c12g_no_info_json_host", 24),
        ("c12h_no_hash_dic", 24),
        ("c12i_no_type_dic", 24),
        ("c12j_lost_records", 19),
        ("c12k_empty_stars", 0),
        ("c12l_no_ts_track", 24),
        ("c12m_no_start_log", 24),
        ("c12n_bad_sample_json", 24),
    ],
)
def test_what_can_be_read_of_damaged_data_is_read_and_equals_the_undamaged_twin(case: str, tasks: int) -> None:
    columns = ("start_ns", "dur_ns", "tid")
    twin = {tuple(row[column] for column in columns) for row in work(opened("c12_base")) if row["label"].startswith("Stream ")}
    found = [row for row in work(opened(case)) if row["label"].startswith("Stream ")]
    assert len(found) == tasks
    if case == "c12m_no_start_log":  # where the device's clock begins is not known; how long everything took is
        assert sorted(row["dur_ns"] for row in found) == sorted(length for _, length, _ in twin)
        assert min(row["start_ns"] for row in found) >= opened(case).spans.filter(pl.col("kind") == "api").collect()["start_ns"].min()
    else:
        assert {tuple(row[column] for column in columns) for row in found} <= twin


@pytest.mark.parametrize(
    "case", ["c12f_no_info_json_device", "c12g_no_info_json_host", "c12n_bad_sample_json", "c12b_truncated_host", "c12e_bad_magic_api"]
)
def test_operators_keep_their_names_where_the_reference_writes_nothing(case: str) -> None:
    names = [row["name"] for row in work(opened("c12_base")) if row["kind"] == "kernel"]
    found = [row["name"] for row in work(opened(case)) if row["kind"] == "kernel"]
    missing = {"c12b_truncated_host": 1, "c12e_bad_magic_api": 1}.get(case, 0)
    assert len([1 for one, other in zip(names, found, strict=False) if one != other]) <= missing


def test_an_end_without_a_start_does_not_last_for_hours() -> None:
    trace = opened("c12o_hwts_orphans")
    assert lost_by_problem(trace) == {"tasks with a start and no end": 1, "tasks with an end and no start": 1}
    assert max(row["dur_ns"] for row in work(trace)) < 1_000_000


def test_two_devices_of_one_directory_have_their_own_clocks_and_streams() -> None:
    trace = opened("c10_two_devices")
    assert trace.devices.select("device").collect().to_series().to_list() == [0, 1]
    assert {row["device"] for row in work(trace)} == {0, 1}


# The timeline


def exported(case: str) -> tuple[list[dict[str, Any]], dict[int, str], dict[tuple[int, int], str]]:
    """Events of the reference's timeline, names of its processes and threads."""
    case = "c07z_unsliced_twin" if case.startswith("c07") else case
    events = json.loads(next((SYNTH / case / "expected").glob("msprof_*.json")).read_text())
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return [event for event in events if event["ph"] == "X"], processes, threads


@pytest.mark.parametrize("case", ["c05_comm", "c10_two_devices"])
def test_tasks_of_collectives_on_planes_are_those_of_the_timeline(case: str) -> None:
    events, processes, threads = exported(case)
    wanted = [
        event for event in events if processes[event["pid"]] == "Communication" and threads[event["pid"], event["tid"]].startswith("Plane")
    ]
    trace = opened(case)
    lanes = trace.tracks.filter(pl.col("kind") == "communication").select("track", "device")
    rows = trace.spans.join(lanes, on="track").with_columns(pl.col("name").cast(pl.String)).collect().to_dicts()
    found = [row | {"about": json.loads(row["args"])} for row in rows]
    found.sort(key=lambda row: (row["device"], row["start_ns"], row["about"]["stream id"]))
    wanted.sort(key=lambda event: (event["pid"] & 31, event["ts"], event["args"]["stream id"]))
    assert len(found) == len(wanted) > 0
    for row, event in zip(found, wanted, strict=True):
        assert row["name"] == event["name"] and same_time(row["start_ns"], event["ts"]) and row["dur_ns"] == round(event["dur"] * 1000)
        assert {key: row["about"][key] for key in event["args"]} == pytest.approx(event["args"])


@pytest.mark.parametrize("case", [case for case in WHOLE if case not in ("c03_mix", "c03b_mix_taskblock", "c10b_level0")])
def test_times_computing_and_communicating_are_those_of_the_overlap_tracks(case: str) -> None:
    """But for three cases in which the reference takes the whole task for a kernel that is a part of it."""
    events, processes, threads = exported(case)
    rows = work(opened(case))
    for device in {row["device"] for row in rows}:
        wanted: dict[str, int] = {}
        for event in events:
            if processes[event["pid"]] == "Overlap Analysis" and event["pid"] & 31 == device:
                track = threads[event["pid"], event["tid"]]
                wanted[track] = wanted.get(track, 0) + round(event["dur"] * 1000)
        computing, communication = (_busy(rows, device, kind) for kind in ("kernel", "communication"))
        exposed = intervals.subtract(communication, computing)
        found = {"Computing": computing.total, "Communication": communication.total, "Communication(Not Overlapped)": exposed.total}
        assert {track: total for track, total in found.items() if total} == {
            track: total for track, total in wanted.items() if track != "Free"
        }


def _busy(rows: list[dict[str, Any]], device: int, kind: str) -> intervals.Set:
    bounds = [
        (row["start_ns"], row["start_ns"] + row["dur_ns"])
        for row in rows
        if row["device"] == device and row["kind"] == kind and row["category"] != "Reduce"
    ]
    edges = np.array(bounds, np.int64).reshape(-1, 2)
    return intervals.merge(edges[:, 0], edges[:, 1])


@pytest.mark.parametrize("case", [case for case in WHOLE if expected(case, "aicpu")])
def test_what_ai_cpu_operators_say_of_themselves_is_that_of_the_aicpu_table(case: str) -> None:
    rows = [row for row in work(opened(case)) if row["category"] == "AI_CPU"]
    wanted = sorted(expected(case, "aicpu"), key=lambda row: (int(row["Device_id"]), row["Timestamp(us)"]))
    assert len(rows) == len(wanted) > 0
    for row, want in zip(rows, wanted, strict=True):
        about = row["about"]
        assert row["name"] == want["Node"]
        assert same(about["compute_us"], want["Compute_time(us)"]) and same(about["memcpy_us"], want["Memcpy_time(us)"])
        assert same(about["dispatch_us"], want["Dispatch_time(us)"]) and same(about["run_ns"] / 1000, want["Task_time(us)"])
        assert same(about["total_ns"] / 1000, want["Total_time(us)"])


def test_copies_say_their_bytes_and_direction() -> None:
    """msprof's Python exporter leaves both out; the sizes are those of memcpy_info."""
    rows = [row for row in work(opened("c07z_unsliced_twin")) if row["kind"] == "copy"]
    raw = b"".join(
        path.read_bytes() for path in sorted(next((SYNTH / "c07z_unsliced_twin").glob("PROF*")).glob("host/data/*memcpy_info*0"))
    )
    sizes = [int.from_bytes(raw[at + 24 : at + 32], "little") for at in range(0, len(raw), 64)]
    assert len(rows) == 16
    assert sorted(row["bytes"] for row in rows) == sorted(sizes)
    assert {row["about"]["operation"] for row in rows} <= {"host to device", "device to host", "device to device"}
