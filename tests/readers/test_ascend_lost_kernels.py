"""Tables of kernels without a timeline, and kernels that are missing beside the sums that torch_npu writes."""

import csv
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.model.trace import Trace

HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
SUMS = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing\n"
OUTPUT = "ASCEND_PROFILER_OUTPUT"


def result(tmp_path: Path, kernels: str, **files: str) -> Path:
    folder = tmp_path / "x_ascend_pt" / OUTPUT
    folder.mkdir(parents=True)
    (folder / "kernel_details.csv").write_text(kernels)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return tmp_path / "x_ascend_pt"


def opened(path: Path) -> Trace:
    return stepscope.open(path, cache=False)


def steps(trace: Trace) -> list[tuple[object, ...]]:
    return trace.steps.select("step", "start_ns", "end_ns", "how").collect().rows()


def sentences(trace: Trace, topic: str = "overview") -> list[str]:
    return trace.verdict(topic=topic)["text"].to_list()


def table(*rows: tuple[object, ...]) -> str:
    return HEADER + "".join(f"{step},{name},MatMul,AI_CORE,{start}.000\t,{length}\n" for step, name, start, length in rows)


def test_the_headline_of_a_table_of_kernels_rests_on_their_span(tmp_path: Path) -> None:
    """Two kernels: from 1,000 to 1,500 us, 300 us of it busy."""
    trace = opened(result(tmp_path, table((7, "a", 1000, 100), (7, "b", 1300, 200))))
    assert steps(trace) == [(7, 1_000_000, 1_500_000, "device")]
    assert sentences(trace)[:2] == [
        "NPU is idle 40.0 % of the recorded device part of the step, for several or unknown reasons.",
        "From its first to its last device work, step 7 takes 500 µs; the time of the host before and after it is not recorded.",
    ]
    assert trace.overview()["copy_share"].to_list() == [None]  # the table has no copies
    assert trace.overlap()["copy_ns"].unique().to_list() == trace.cluster_steps()["copy_ns"].unique().to_list() == [None]
    assert sentences(trace, "steps")[0].startswith("The only recorded step takes 500 µs from its first to its last device work;")


def test_steps_of_a_table_of_kernels_begin_as_in_the_table_of_steps(tmp_path: Path) -> None:
    """The device prepares for 400 us before its first kernel: the step takes 400 us more."""
    kernels = table((7, "a", 1000, 100), (7, "b", 1300, 200), (8, "a", 1900, 100), (8, "b", 2200, 200))
    sums = SUMS + "7,300,0,0,0,200,500,0,400\n8,300,0,0,0,200,500,0,350\n"
    trace = opened(result(tmp_path, kernels, step_trace_time=sums))
    # Step 8 prepares from 1,550 us on.
    assert steps(trace) == [(7, 600_000, 1_550_000, "marker"), (8, 1_550_000, 2_400_000, "marker")]
    assert trace.overview(warmup=0)["device_data"].to_list() == ["complete"]
    (remark,) = trace.problems.filter(pl.col("where") == "kernel_details.csv").collect()["what"]
    assert "the first step begins as in step_trace_time.csv" in remark


def test_a_table_of_kernels_that_is_shorter_than_its_sums_is_not_idle(tmp_path: Path) -> None:
    """Step 8 lost its last kernel: its sum says 300 us of computing in 500 us, 100 us are recorded."""
    kernels = table((7, "a", 1000, 100), (7, "b", 1300, 200), (8, "a", 1900, 100))
    sums = SUMS + "7,300,0,0,0,200,500,0,400\n8,300,0,0,0,200,500,0,350\n9,300,0,0,0,200,500,0,350\n"
    trace = opened(result(tmp_path, kernels, step_trace_time=sums))
    assert steps(trace) == [(7, 600_000, 1_550_000, "marker"), (8, 1_550_000, 2_400_000, "marker")]
    assert trace.overlap()["complete"].to_list() == [True, False]
    assert ("not in the timeline: 1 of 3 steps; only their sums are recorded", 1) in trace.problems.select("what", "lost").collect().rows()


def test_a_table_of_kernels_that_ends_inside_a_row_lost_work_of_its_last_step(tmp_path: Path) -> None:
    kernels = table((7, "a", 1000, 100), (7, "b", 1300, 200), (8, "a", 1900, 100), (8, "b", 2200, 200))
    trace = opened(result(tmp_path, kernels[: kernels.rindex(",")]))
    assert trace.overlap()["complete"].to_list() == [True, False]
    found = dict(trace.problems.select("what", "lost").collect().rows())
    assert found["cut off: the last row is not complete, and rows after it are missing"] == 1
    # Without the end of the last line alone, nothing is missing.
    whole = opened(result(tmp_path / "whole", kernels.rstrip("\n")))
    assert whole.overlap()["complete"].to_list() == [True, True]


def test_a_table_of_kernels_with_fewer_calls_than_are_counted_lost_some(tmp_path: Path) -> None:
    counted = "OP Type,Core Type,Count,Total Time(us)\nMatMul,AI_CORE,3,500\nhcom_allReduce_,HCCL,9,1\n"
    kernels = table((7, "a", 1000, 100), (7, "b", 1300, 200))
    trace = opened(result(tmp_path, kernels, op_statistic=counted))
    assert sentences(trace)[0] == "NPU: some kernels are not recorded, so busy and idle time are unknown."
    found = dict(trace.problems.select("what", "lost").collect().rows())
    assert found["3 calls of kernels are counted in it, 2 are recorded"] == 1
    whole = opened(result(tmp_path / "whole", kernels, op_statistic=counted.replace(",3,", ",2,")))
    assert whole.overview()["device_data"].to_list() == ["complete"]


def test_rows_that_waited_for_rows_which_are_missing_show_that_the_table_is_no_whole_step(tmp_path: Path) -> None:
    """The second kernel waited 50 us for the one before it, and the last one in the table ended 200 us earlier."""
    kernels = table((7, "a", 1000, 100), (7, "b", 1300, 200)).replace("Duration(us)\n", "Duration(us),Wait Time(us)\n")
    kernels = kernels.replace(",100\n", ",100,0\t\n").replace(",200\n", ",200,50.000\t\n")
    assert sentences(opened(result(tmp_path, kernels)))[0] == "NPU: some kernels are not recorded, so busy and idle time are unknown."
    whole = opened(result(tmp_path / "whole", kernels.replace(",50.000", ",200.000")))
    assert whole.overview()["device_data"].to_list() == ["complete"]


def test_a_timeline_that_is_cut_off_is_not_idle(shared: Path, tmp_path: Path) -> None:
    """The device computes for 12.7 % of the step; with half of the file it seemed to be 3.2 %."""
    folder = shared / "ascend" / "trace_view"
    if not folder.is_dir():
        pytest.skip("no trace view")
    copy = Path(shutil.copytree(folder, tmp_path / "trace_view", copy_function=shutil.copyfile))
    content = (copy / "trace_view.json").read_bytes()
    (copy / "trace_view.json").write_bytes(content[: len(content) // 2])
    trace = stepscope.open(copy, cache=False, partial=True)
    assert sentences(trace)[0].startswith("NPU: some kernels are not recorded, so busy and idle time are unknown.")
    (copy / "trace_view.json").unlink()  # 29 rows of a table of 2.9 s remain
    assert opened(copy).overview()["device_data"].to_list() == ["none"]


# Real results of torch_npu. Step 50 of level0, rank 0: 8,827 us of computing, 85,517 us of communication (step_trace_time.csv).
LEVEL0 = "ascend/torch_npu/text/level0/rank0_ascend_pt"


@pytest.fixture
def real(shared: Path, tmp_path: Path) -> Path:
    if not (shared / LEVEL0).is_dir():
        pytest.skip("no result of torch_npu")
    return Path(shutil.copytree(shared / LEVEL0, tmp_path / "real_ascend_pt", copy_function=shutil.copyfile))


def keep_rows(file: Path, keep: Callable[[int, dict[str, str]], bool]) -> None:
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, rows[0].keys())
        writer.writeheader()
        writer.writerows(row for number, row in enumerate(rows) if keep(number, row))


def test_without_a_timeline_the_step_has_the_duration_of_its_sums(real: Path) -> None:
    """8,827.473 + 81,515.607 + 25,908.102 + 19,358 = 135,609.182 us. ProfilerStep#50 took 136.9 ms: 1.3 ms after the last kernel."""
    (real / OUTPUT / "trace_view.json").unlink()
    trace = opened(real)
    ((number, start, end, how),) = steps(trace)
    assert (number, how) == (50, "marker") and isinstance(start, int) and isinstance(end, int)
    assert (end - start) / 1000 == pytest.approx(135_609.182, abs=1)
    row = trace.overview().row(0, named=True)
    assert row["compute_share"] == pytest.approx(8_827.473 / 135_609.182, abs=1e-4)
    assert row["communication_share"] == pytest.approx(81_515.607 / 135_609.182, abs=1e-4)


@pytest.mark.parametrize(
    "keep",
    [
        lambda number, row: number < 96,
        lambda number, row: number < 172,
        lambda number, row: number >= 96,
        lambda number, row: number % 4 > 0,
        lambda number, row: row["Accelerator Core"] not in ("HCCL", "COMMUNICATION") and "hcom" not in row["Name"],
    ],
    ids=["first half", "nine tenths", "second half", "every fourth lost", "no communication"],
)
def test_a_real_table_of_kernels_that_lacks_rows_is_not_idle(real: Path, keep: Callable[[int, dict[str, str]], bool]) -> None:
    (real / OUTPUT / "trace_view.json").unlink()
    keep_rows(real / OUTPUT / "kernel_details.csv", keep)
    first = sentences(opened(real))[0]
    assert first.startswith("NPU: some kernels are not recorded, so busy and idle time are unknown.")
    assert first.endswith("the device computes for 8.83 ms and communicates for 85.5 ms per step.")


@pytest.mark.parametrize("sums", ["step_trace_time.csv", "Overlap Analysis"])
def test_a_timeline_without_its_kernels_is_not_idle(real: Path, sums: str) -> None:
    """Without kernels, 62 % of the step would be communication and the rest idle."""
    output = real / OUTPUT
    (output / "kernel_details.csv").unlink()
    events = json.loads((output / "trace_view.json").read_text())
    names = {event["pid"]: event["args"].get("name") for event in events if event["ph"] == "M" and event["name"] == "process_name"}
    gone = {"Ascend Hardware"} | ({"Overlap Analysis"} if sums == "step_trace_time.csv" else set())
    if sums == "Overlap Analysis":
        (output / "step_trace_time.csv").unlink()
    (output / "trace_view.json").write_text(
        json.dumps([event for event in events if names.get(event["pid"]) not in gone or event["ph"] == "M"])
    )
    trace = opened(real)
    assert trace.overview().select("device_data", "compute_share", "idle_share").row(0) == ("none", None, None)
    assert not any("on the CPU" in text for text in sentences(trace, "flops"))
    steps_of = trace.steps.select("device_computing_ns", "device_communication_ns").collect().row(0)
    assert [value / 1000 for value in steps_of] == pytest.approx([8_827.473, 85_516.889], abs=0.01)


@pytest.mark.parametrize(
    ("change", "without"),
    [
        ("delete from TASK where rowid % 3 = 0", ()),
        ("delete from TASK where rowid % 3 = 0", ("analysis.db",)),
        ("delete from TASK where rowid % 3 = 0", ("analysis.db", "OVERLAP_ANALYSIS")),
        ("delete from COMPUTE_TASK_INFO where rowid % 3 = 0", ("analysis.db",)),
        ("delete from COMMUNICATION_OP where rowid % 2 = 0", ("analysis.db", "OVERLAP_ANALYSIS")),
    ],
)
def test_a_database_without_some_of_its_rows_is_not_idle(change: str, without: tuple[str, ...], shared: Path, tmp_path: Path) -> None:
    folder = shared / "ascend/torch_npu/db/level1/rank0_ascend_pt"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    copy = Path(shutil.copytree(folder, tmp_path / "real_ascend_pt", copy_function=shutil.copyfile))
    assert opened(copy).overview()["device_data"].to_list() == ["complete"]
    (database,) = (copy / OUTPUT).glob("ascend_*.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(change)
        if "OVERLAP_ANALYSIS" in without:
            connection.execute("delete from OVERLAP_ANALYSIS")
        connection.commit()
    if "analysis.db" in without:
        (copy / OUTPUT / "analysis.db").unlink()
    for path in (copy, database):
        trace = opened(path)
        assert trace.overview().select("device_data", "idle_share").row(0) == ("none", None)
        assert not any("CPU" in text for text in sentences(trace, "flops"))


def test_the_sums_of_a_database_are_those_of_its_overlap_analysis(shared: Path, tmp_path: Path) -> None:
    """sqlite3: select type, sum(endNs - startNs) from OVERLAP_ANALYSIS group by type, without analysis.db."""
    folder = shared / "ascend/torch_npu/db/level1/rank0_ascend_pt"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    (database,) = (folder / OUTPUT).glob("ascend_*.db")
    copy = Path(shutil.copyfile(database, tmp_path / database.name))
    row = opened(copy).steps.select("device_computing_ns", "device_communication_ns").collect().row(0)
    assert row == (8_903_431, 102_108_100)


def test_missing_device_work_is_why_exposed_communication_is_unknown(shared: Path, tmp_path: Path) -> None:
    folder = shared / "ascend/torch_npu/db/level1/rank0_ascend_pt"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    copy = Path(shutil.copytree(folder, tmp_path / "real_ascend_pt", copy_function=shutil.copyfile))
    (database,) = (copy / OUTPUT).glob("ascend_*.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("delete from TASK")
        connection.commit()
    assert sentences(opened(copy), "communication")[0].endswith("Exposed communication is unknown: device work is not completely recorded.")


def test_the_task_of_a_whole_transfer_is_no_kernel_where_their_table_is_missing(shared: Path, tmp_path: Path) -> None:
    """Four tasks of type AI_CORE take 102 ms: each is linked to the call of a transfer. The kernels take 8.9 ms."""
    folder = shared / "ascend/torch_npu/db/level1/rank0_ascend_pt"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    (database,) = (folder / OUTPUT).glob("ascend_*.db")
    copy = Path(shutil.copyfile(database, tmp_path / database.name))
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("delete from COMPUTE_TASK_INFO")
        connection.commit()
    parts = opened(copy).overlap().select("computing_ns", "communication_ns").row(0)
    assert parts[0] == pytest.approx(8_903_431, rel=0.05) and parts[1] == pytest.approx(102_108_100, rel=0.01)


def test_transit_wait_and_idle_add_up_where_only_one_rank_has_them(shared: Path, tmp_path: Path) -> None:
    """Rank 0: 106 ms of communication = 3.68 + 5.94 + 96.4 in communication.json; that of rank 1 is missing."""
    folder = shared / "ascend/torch_npu/text/level1"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    job = Path(shutil.copytree(folder, tmp_path / "job", copy_function=shutil.copyfile))
    (job / "rank1_ascend_pt" / OUTPUT / "communication.json").unlink()
    row = opened(job).verdict(topic="communication").row(0, named=True)
    assert "Of 106 ms of communication per step, 3.68 ms is data in transit, 5.94 ms waiting for other ranks, 96.4 ms idle." in row["text"]
    assert row["coverage"] == "1 of 2 steps, 2 of 8 ranks"


def test_ranks_that_the_groups_name_and_the_step_times_lack_are_not_recorded(shared: Path, tmp_path: Path) -> None:
    """16 ranks are in communication_group.json; the rows of 7 of them are deleted."""
    folder = shared / "ascend/cluster_output"
    if not folder.is_dir():
        pytest.skip("no cluster output")
    job = Path(shutil.copytree(folder, tmp_path / "job", copy_function=shutil.copyfile))
    assert (opened(job).meta.world_size, len(opened(job).meta.ranks)) == (16, 16)
    keep_rows(job / "cluster_step_trace_time.csv", lambda number, row: int(row["Index"]) < 9 if row["Type"] == "rank" else True)
    for name in ("cluster_communication.json", "cluster_communication_matrix.json"):
        (job / name).unlink()
    trace = opened(job)
    assert (trace.meta.world_size, trace.meta.ranks) == (16, list(range(9)))
    assert trace.verdict(topic="communication")["coverage"][0] == "9 of 16 ranks"


def test_communication_is_recorded_where_the_step_times_of_a_cluster_are_missing(shared: Path, tmp_path: Path) -> None:
    folder = shared / "ascend/cluster_output"
    if not folder.is_dir():
        pytest.skip("no cluster output")
    job = Path(shutil.copytree(folder, tmp_path / "job", copy_function=shutil.copyfile))
    (job / "cluster_step_trace_time.csv").unlink()
    document = json.loads((job / "cluster_communication.json").read_text())
    calls = [
        times["Communication Time Info"]["Elapse Time(ms)"]
        for kind in document.values()
        for step in kind.values()
        for name, members in step.items()
        for times in members.values()
        if name != "Total Op Info" and "Start Timestamp(us)" in times["Communication Time Info"]
    ]
    assert opened(job).communication()["total_ns"].sum() / 1e6 == pytest.approx(sum(calls), rel=1e-6)
