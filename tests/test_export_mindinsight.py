"""Exports to MindInsight: its files say what the analyses say, and give the same answers read back, also without our own file beside them.

What MindInsight 2.3.1 itself makes of them: benchmarks/mindinsight_check.py.
"""

import csv
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stepscope
import tiny
from stepscope.errors import UsageError
from stepscope.exporters.mindinsight import exporter as mindinsight
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent / "samples"
DATA = Path(__file__).parents[2] / "shared" / "data"
SYNTH = DATA / "ascend" / "synth"

# Two steps on a GPU, whose kernels take 300 of 500 ns and 100 of 200 ns, and a transfer of 40 ns.
GPU = {
    "spans": """
        span track kind          name      start_ns dur_ns op_type    scope step op args
        0    0     op            aten::mm  1000     300    aten::mm   net   4    -  -
        1    0     op            aten::add 1300     100    aten::add  -     4    -  -
        2    0     op            aten::mm  1500     200    aten::mm   net   5    -  -
        3    1     kernel        gemm      1100     200    aten::mm   net   4    0  {"grid":[2,1,1],"block":[64,1,1]}
        4    1     kernel        plus      1310     100    aten::add  -     4    1  -
        5    1     kernel        gemm      1550     100    aten::mm   net   5    2  {"grid":[2,1,1],"block":[64,1,1]}
        6    2     communication allreduce 1410     40     -          -     4    -  -
        """,
    "tracks": """
        track group   label       kind   device tid
        0     python  "thread_7"  thread -      7
        1     "GPU_0" "stream_9"  stream 0      9
        2     "GPU_0" "stream_11" stream 0      11
        """,
    "steps": """
        step start_ns end_ns fp_start_ns bp_end_ns how
        4    1000     1500   1020        1400      marker
        5    1500     1700   1540        1640      marker
        """,
    "devices": """
        device kind
        0      gpu
        """,
    "pipeline": """
        op_id op_type    workers parent queue_capacity
        0     DataLoader 2       -      4
        """,
    "counters": """
        name            at_ns   value unit
        "queue_0_depth" 1010    3     batches
        "queue_0_wait"  1010    2500  ns
        "queue_0_depth" 1510    0     batches
        "queue_0_wait"  1510    7500  ns
        """,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))


def exported(trace: Trace, tmp_path: Path, **options: Any) -> Path:
    mindinsight.export(trace, tmp_path / "run", **options)
    return tmp_path / "run" / "profiler"


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as text:
        return list(csv.DictReader(text))


def without_our_own(folder: Path) -> Trace:
    """What the files of MindInsight alone tell."""
    for file in (*folder.glob("stepscope_*.json"), *folder.glob("*timeline_display_*.json")):
        file.unlink()
    return stepscope.open(folder, cache=False)


def test_the_list_of_mindinsight_finds_a_folder_with_the_ranks_and_the_kind_of_device(tmp_path: Path) -> None:
    folder = exported(tiny.trace(**GPU), tmp_path)
    assert folder.name.startswith("profiler") and folder.parent.name == "run"
    information = json.loads((folder / "profiler_info_0.json").read_text())
    assert (information["rank_id"], information["rank_size"], information["context_mode"]) == ("0", "1", "graph")
    assert (folder / "gpu_op_type_info_0.csv").is_file() and not list(folder.glob("ascend*")) and not list(folder.glob("output_op*"))


def test_steps_are_counts_of_ten_nanoseconds_numbered_from_one_and_end_with_their_average(tmp_path: Path) -> None:
    """The clock starts a millisecond before the first event."""
    found = rows(exported(tiny.trace(**GPU), tmp_path) / "step_trace_raw_0_detail_time.csv")
    names = ["step_num", "start_point", "end_point", "total", "fp_point", "bp_point", "iteration_interval", "fp_and_bp", "tail"]
    slot = "stream_11_1_allreduce"
    assert list(found[0]) == [*names, f"{slot}_start_point", f"{slot}_end_point", slot]
    assert [list(row.values()) for row in found] == [
        ["1", "100000", "100050", "50", "100002", "100040", "2", "38", "10", "100041", "100045", "4"],
        ["2", "100050", "100070", "20", "100054", "100064", "4", "10", "6", "0", "0", "0"],
        ["-", "100025", "100060", "35", "100028", "100052", "3", "24", "8", "100041", "100045", "4"],
    ]  # fmt: skip


def test_operators_of_a_gpu_are_its_work_by_the_operator_that_launched_it(tmp_path: Path) -> None:
    folder = exported(tiny.trace(**GPU), tmp_path)
    types = rows(folder / "gpu_op_type_info_0.csv")
    assert [list(row.values())[:3] for row in types] == [["aten::mm", "2", "0.3"], ["aten::add", "1", "0.1"], ["allreduce", "1", "0.04"]]
    assert [round(float(row["total_proportion"]), 4) for row in types] == [0.6818, 0.2273, 0.0909]
    detail = rows(folder / "gpu_op_detail_info_0.csv")
    assert [(row["op_side"], row["op_full_name"], row["op_occurrences"], row["cuda_activity_cost_time(us)"]) for row in detail] == [
        ("Device", "net/aten::mm", "2", "0.3"), ("Device", "aten::add", "1", "0.1"), ("Device", "allreduce", "1", "0.04"),
    ]  # fmt: skip
    activity = rows(folder / "gpu_activity_data_0.csv")[0]
    assert list(activity.values()) == ["gemm", "cuLaunchKernel", "net/aten::mm", "9", "64,1,1", "2,1,1", "2", "0.3", "0.15", "0.2", "0.1"]
    host = rows(folder / "cpu_op_detail_info_0.csv")
    assert [(row["full_op_name"], row["op_occurrences"], row["op_total_time(ms)"]) for row in host] == [
        ("net/aten::mm", "2", "0.0005"), ("aten::add", "1", "0.0001"),
    ]  # fmt: skip


def test_a_data_loader_is_a_queue_that_is_read_batch_by_batch(tmp_path: Path) -> None:
    folder = exported(tiny.trace(**GPU), tmp_path)
    assert (folder / "dataset_iterator_profiling_0.txt").read_text().splitlines() == [
        "0 1 1 0.0 1.000010", "0 2 1 0.0025 1.000010", "0 0 1 0.0025 1.000010", "1 4 1 3 1.000010",
        "0 1 2 0.0 1.000510", "0 2 2 0.0075 1.000510", "0 0 2 0.0075 1.000510", "1 4 2 0 1.000510",
    ]  # fmt: skip
    (operator,) = rows(folder / "minddata_pipeline_raw_0.csv")
    assert operator["output_queue_size"] == "[3, 0]" and operator["output_queue_usage_rate"] == "0.375"


def test_a_cpu_has_its_operators_on_the_gpu_pages_as_those_of_the_host_or_on_the_cpu_pages_if_asked(tmp_path: Path) -> None:
    tables = {"spans": "kind name start_ns dur_ns op_type\nop Default/a-op1 0 100 a\nop Default/b-op2 100 300 b"}
    folder = exported(tiny.trace(**tables), tmp_path)
    assert [(row["op_side"], row["op_name"], row["op_total_time(us)"]) for row in rows(folder / "gpu_op_detail_info_0.csv")] == [
        ("Host", "b-op2", "0.3"), ("Host", "a-op1", "0.1"),
    ]  # fmt: skip
    cpu = exported(tiny.trace(**tables), tmp_path, overwrite=True, pages="cpu")
    assert not list(cpu.glob("gpu*")) and len(rows(cpu / "cpu_op_type_info_0.csv")) == 2
    with pytest.raises(UsageError, match=r"no MindInsight pages 'tpu'; .* ascend, gpu, cpu"):
        mindinsight.export(tiny.trace(**tables), tmp_path / "other", pages="tpu")


def test_only_such_an_export_is_replaced(tmp_path: Path) -> None:
    trace = tiny.trace(**GPU)
    exported(trace, tmp_path)
    with pytest.raises(UsageError, match="exists"):
        mindinsight.export(trace, tmp_path / "run")
    exported(trace, tmp_path, overwrite=True)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="more than a profiler folder"):
        mindinsight.export(trace, tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def sources() -> list[Path]:
    """Every kind of recording: of the CPU, of GPUs, of Ascend; one rank and several."""
    found = [*sorted((SAMPLES / "chrome").glob("*/*"))[:3], *sorted((SAMPLES / "capture" / "stepscope-0.1.0").iterdir())]
    found += [path for path in sorted((SAMPLES / "run").glob("*/*")) if "h200" in path.name]
    found += [path for name in ("c01_train_steps", "c04_aicpu_dsa_host", "c10_two_devices") for path in (SYNTH / name).glob("PROF_*")]
    found += [path for path in (DATA / "mindspore_cpu" / "lenet_graph", DATA / "mindspore_cpu" / "lenet_pynative") if path.is_dir()]
    return found


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.name[:40])
def test_read_back_it_gives_the_same_answers(source: Path, tmp_path: Path) -> None:
    trace = stepscope.open(source, cache=False)
    back = stepscope.open(exported(trace, tmp_path).parent, cache=False)
    assert back.meta.ranks == (trace.meta.ranks or [0]) and back.meta.format == "mindinsight"
    for name in ("operators", "operator_types", "kernels", "step_trace", "data_queues", "data_pipeline", "queue_samples", "communication"):
        assert trace.analyse(name).equals(back.analyse(name)), name


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.name[:40])
def test_mindinsights_own_files_tell_the_same_steps_operators_and_queues(source: Path, tmp_path: Path) -> None:
    """To the nanosecond for operators, to 10 for steps; their numbers count from 1."""
    trace = stepscope.open(source, cache=False)
    plain = without_our_own(exported(trace, tmp_path))
    before, after = (one.analyse("step_trace").with_row_index("row") for one in (trace, plain))
    for rank in trace.meta.ranks:
        mine, theirs = (table.filter(pl.col("rank") == rank) for table in (before, after))
        known = mine["interval_ns"].is_not_null() & mine["bp_end_ns"].is_not_null()
        assert mine.height == theirs.height and theirs["step"].to_list() == list(range(1, mine.height + 1))
        for name in ("start_ns", "end_ns", "total_ns", "interval_ns", "fp_bp_ns", "tail_ns"):
            rows = known if name in ("interval_ns", "fp_bp_ns", "tail_ns") else pl.Series([True] * mine.height)
            apart = (mine.filter(rows)[name] - theirs.filter(rows)[name]).abs().max()
            assert apart is None or int(str(apart)) <= 10, name
    on_gpu = "gpu" in trace.operators()["device"]  # its operators are those that launched something
    for device in ("aicore", "aicpu") if on_gpu else ("aicore", "aicpu", "cpu"):
        assert by_type(plain, device) == by_type(trace, device), device
    if on_gpu:
        columns = ["rank", "name", "calls", "total_ns"]
        totals = [
            one.analyse("kernels", copies=True).group_by("rank", "name").agg(pl.col("calls", "total_ns").sum()).sort("rank", "name")
            for one in (trace, plain)
        ]
        assert totals[0].select(columns).rows() == totals[1].select(columns).rows()
    loaders = trace.data_queues(per_step=False)
    if loaders.height:
        chosen = loaders.sort("batches", descending=True).head(1).select("batches", "depth", "capacity", "empty", "full", "wait_ns")
        assert plain.data_queues(per_step=False).select(chosen.columns).rows() == chosen.rows()
    pipeline = trace.data_pipeline().select("op_id", "op_type", "workers", "parent", "queue_depth", "queue_share", "empty_share")
    assert_frame_equal(plain.data_pipeline().select(pipeline.columns), pipeline)


def by_type(trace: Trace, device: str) -> list[tuple[Any, ...]]:
    """Calls and time of each type: on the host the time that is its own, on Ascend that of its cores."""
    tables = trace.tables
    computing = trace.spans.filter(~pl.col("kind").is_in(["communication", "copy", "set"])) if device != "cpu" else trace.spans
    rows = Trace(tables | {"spans": computing}, trace.meta).operator_types(device=device)
    return rows.sort("rank", "type").select("rank", "type", "calls", pl.col("self_ns")).rows()
