"""Files of a recording that are damaged, empty or gone: the rest opens, and `problems` names what is lost."""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from stepscope.errors import DataError
from stepscope.io import store
from stepscope.model import captures
from stepscope.model.trace import Meta, Trace, analysis_names
from stepscope.readers.common.name_parts import complete_table
from stepscope.server.report import report
from stepscope.timeline import pyramid
from volume import mostly_deep

SAMPLES = Path(__file__).parents[1] / "samples"
SHARED = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = {
    "capture of Python": SAMPLES / "capture/stepscope-0.1.0/python.capture",
    "capture of PyTorch": SAMPLES / "capture/stepscope-0.1.0/torch.capture",
    "capture of TensorFlow": SAMPLES / "capture/stepscope-0.1.0/tensorflow.capture",
    "result of MindSpore": SAMPLES / "ascend_result/mindspore-2.10-cpu/lenet_ascend_ms",
    "result of torch_npu": SAMPLES / "ascend_result/torch_npu-by-hand/rank0_ascend_pt",
    "cluster output": SAMPLES / "cluster_output/by-hand/cluster_analysis_output",
    "MindInsight": SAMPLES / "mindinsight/mindspore-2.10-cpu/all_reduce",
    "msprof output": SAMPLES / "msprof_output/by-hand/mindstudio_profiler_output",
    "PROF": SAMPLES / "prof/written-by-tests/PROF_000001_20231114221320000_ABCDEFGH",
    "two ranks of MindSpore": SHARED / "mindspore_cpu/allreduce_2ranks_graph",
    "MindInsight's loose files": SHARED / "mindinsight/profiler",
    "real result of torch_npu": SHARED / "ascend/torch_npu/text/level1/rank0_ascend_pt",
    "real cluster output": SHARED / "ascend/cluster_output",
}
# Deleted, these leave no sign that they ever were there: each may be absent from a recording that is whole.
NO_SIGN = {
    "counters.000000.npz",  # captures of today count their files; these are of an earlier release
    "ranges.000000.npz",
    "steps.000000.npz",
    "torch_memory.000000.npz",
    "capture.json",
    "cpu_ms_memory_record_0.txt",
    "memory_record.csv",  # where nothing says that memory was recorded
    "npu_module_mem.csv",
    "cluster_communication.json",
    "cluster_communication_matrix.json",
    "cluster_step_trace_time.csv",
    "aicore_intermediate_1_detail.csv",
    "ascend_timeline_display_0.json",
    "device_queue_profiling_0.txt",
    "dynamic_shape_info_0.json",
    "minddata_cpu_utilization_0.json",
    "pipeline_profiling_0.json",
    "pipeline_profiling_1.json",
    "step_trace_raw_0_detail_time.csv",
    "step_trace_raw_10_detail_time.csv",
    "aging.additional.hccl_info.slice_0",  # CANN marks whole files with .done; this directory has none
    "aging.api_event.data.slice_0",
    "aging.compact.task_track.slice_0",
    "ts_track.data.0.slice_0",
    "stars_soc.data.0.slice_0",
}
TABLES = ("spans", "counters", "allocations", "links", "pipeline")


def copied(folder: Path, to: Path) -> Path:
    copy = to / folder.name
    shutil.copytree(folder, copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


def looked_at(path: Path) -> tuple[dict[str, int], set[tuple[str, ...]]]:
    trace = stepscope.open(path, cache=False)
    problems = trace.problems.select(pl.col("file", "where", "what").fill_null("")).collect().rows()
    return {name: trace.table(name).select(pl.len()).collect().item() for name in TABLES}, set(problems)


def each_lost(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each file of a folder in turn, emptied and then deleted; whole again afterwards."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for how in ("emptied", "deleted"):
            if how == "emptied":
                file.write_bytes(b"")
            else:
                file.unlink()
            yield how, file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


# Real data repeats the formats of the samples.
@pytest.mark.parametrize("kind", mostly_deep(FOLDERS, keep=[kind for kind, folder in FOLDERS.items() if folder.is_relative_to(SAMPLES)]))
def test_no_file_is_lost_without_a_word(tmp_path: Path, kind: str) -> None:
    if not FOLDERS[kind].is_dir():
        pytest.skip(f"no {FOLDERS[kind]}")
    folder = copied(FOLDERS[kind], tmp_path)
    whole, known = looked_at(folder)
    silent = []
    for how, file in each_lost(folder):
        try:
            left, output = looked_at(folder)
        except DataError:
            continue  # nothing is left, or nothing can be made of it: refused in one line
        less = [name for name in TABLES if left[name] < whole[name]]
        names = [
            file.name,
            *([prefix] if (prefix := file.stem.rpartition("_")[0]) else []),
            ".xplane.pb",
        ]  # cpu_framework_0.txt, cpu_framework
        if less and not any(name in text for row in output - known for text in row for name in names):
            silent.append((how, file.name, less))
    assert [one for one in silent if not (one[0] == "deleted" and one[1] in NO_SIGN)] == []


def rows_of(trace: Trace) -> list[tuple[str, str, int]]:
    return trace.problems.select("where", "what", "lost").collect().rows()


def _flip(content: bytes) -> bytes:
    return content[:600] + bytes(byte ^ 0xFF for byte in content[600:640]) + content[640:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "bytes changed": _flip,
    "no archive": lambda content: b"PK\x03\x04 and then nothing of it",
    "another array": lambda content: b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (0,), }" + b" " * 60 + b"\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", ["torch", "torch_memory", "steps", "counters"])
def test_a_damaged_column_file_of_a_capture_costs_its_rows_only(tmp_path: Path, table: str, damage: str) -> None:
    folder = copied(FOLDERS["capture of PyTorch"], tmp_path)
    whole = stepscope.open(folder, cache=False)
    file = folder / f"{table}.000000.npz"
    shutil.copy(file, folder / f"{table}.000001.npz")  # the first one stays as it is
    (folder / f"{table}.000001.npz").write_bytes(DAMAGES[damage](file.read_bytes()))
    trace = stepscope.open(folder, cache=False)
    assert trace.spans.select("name", "start_ns", "dur_ns").collect().equals(whole.spans.select("name", "start_ns", "dur_ns").collect())
    assert trace.allocations.collect().height == whole.allocations.collect().height
    named = [(what, lost) for where, what, lost in rows_of(trace) if where == f"{table}.000001.npz"]
    assert len(named) == 1 and named[0][0].startswith("the column file is damaged (") and named[0][1] == 1


def test_a_capture_without_a_whole_file_of_operators_opens_and_says_so(tmp_path: Path) -> None:
    folder = copied(FOLDERS["capture of PyTorch"], tmp_path)
    for file in folder.glob("*.npz"):
        file.write_bytes(b"")
    trace = stepscope.open(folder, cache=False)
    assert trace.spans.collect().is_empty()
    assert {where for where, what, _ in rows_of(trace) if "damaged" in what} == {file.name for file in folder.glob("*.npz")}
    report(trace, name="nothing")


def test_a_capture_says_which_of_its_files_are_gone(tmp_path: Path) -> None:
    capture = captures.Capture(tmp_path / "job.capture", {"rank": 0})
    for number in range(3):
        capture.append("counters", {"name": ["queue"], "at_ns": np.array([number]), "value": np.array([1.0]), "unit": ["1"]})
    capture.finish()
    for number in (0, 2):
        (tmp_path / "job.capture" / f"counters.{number:06d}.npz").unlink()
    trace = stepscope.open(tmp_path / "job.capture", cache=False)
    assert trace.counters.collect()["at_ns"].to_list() == [1]
    missing = [row for row in rows_of(trace) if "missing" in row[1]]
    assert missing == [(f"counters.{number:06d}.npz", "the column file is missing: its rows are lost", 1) for number in (0, 2)]


@pytest.mark.parametrize("odd", mostly_deep([None, "text", -1, 2**31, 2**63, 1.5, True, [], {"a": 1}, [[1]]], [-1, {"a": 1}]), ids=str)
def test_odd_entries_in_the_header_of_a_capture_are_ignored_and_said(tmp_path: Path, odd: Any) -> None:
    folder = copied(FOLDERS["capture of PyTorch"], tmp_path)
    whole = stepscope.open(folder, cache=False).spans.collect().height
    header = json.loads((folder / "capture.json").read_text())
    for name in [*header, "cut_steps", "in_part", "recorded_until_ns", "sessions", "clock", "pieces", "host", "parent"]:
        if name in ("capture_version", "base", "framework", "whole"):
            continue
        (folder / "capture.json").write_text(json.dumps(header | {name: odd}))
        trace = stepscope.open(folder, cache=False)
        # What says where a step was cut may well cut one.
        assert trace.spans.collect().height >= whole - (2 if name in ("open_step", "cut_steps", "recorded_until_ns") else 0), name
        trace.analyse("overview")


def test_a_file_whose_mark_is_there_is_missed(tmp_path: Path) -> None:
    """CANN leaves X.done when X is whole."""
    folder = copied(FOLDERS["PROF"], tmp_path)
    file = folder / "host" / "data" / "aging.api_event.data.slice_0"
    (file.parent / f"{file.name}.done").touch()
    assert not [row for row in rows_of(stepscope.open(folder, cache=False)) if "missing" in row[1]]
    file.unlink()
    row = (f"host/data/{file.name}", f"missing, though {file.name}.done is there", 1)
    assert row in rows_of(stepscope.open(folder, cache=False))


def test_memory_that_was_asked_for_and_is_not_there_is_missed(tmp_path: Path) -> None:
    folder = copied(FOLDERS["result of torch_npu"], tmp_path)
    info = folder / "profiler_info_0.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"config": {"common_config": {"profile_memory": True}}}))
    assert ("operator_memory.csv", "missing, though profile_memory was on", 1) in rows_of(stepscope.open(folder, cache=False))


# Traces without spans

METADATA = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "x"}}
COUNTER = {"ph": "C", "name": "q", "pid": 1, "ts": 5, "args": {"a": 1}}
MEMORY = {"Addr": 1, "Bytes": 5, "Device Type": 0, "Device Id": -1, "Total Allocated": 5}
WITHOUT_SPANS = {
    "names alone": [METADATA],
    "counters alone": [COUNTER],
    "memory alone": [{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": MEMORY}],
    "arrows alone": [{"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 5, "cat": "x", "name": "x"}],
}


@pytest.mark.parametrize("kind", [*WITHOUT_SPANS, "nothing"])
def test_a_trace_without_spans_answers_everything(tmp_path: Path, kind: str) -> None:
    if kind == "nothing":
        trace = Trace({}, Meta(ranks=[0]))
    else:
        (tmp_path / "t.json").write_text(json.dumps({"traceEvents": WITHOUT_SPANS[kind]}))
        trace = stepscope.open(tmp_path / "t.json", cache=False)
        assert "the trace has no spans, so there are no steps" in [what for _, what, _ in rows_of(trace)]
    assert trace.steps.collect().is_empty()
    assert report(trace, name="nothing").left_out == []


def test_a_row_without_events_has_empty_levels() -> None:
    found = list(pyramid.levels(iter([]), 2, 4))
    assert [(len(buckets.bucket), len(long)) for buckets, long in found] == [(0, 0)] * 3


# Samples that no column of whole numbers holds

SAMPLED = (
    "process 5 memory",
    "memory used",
    "queue 0 wait",
    "queue 99999999999 depth",
    "batch time iterator",
    "allocated cpu",
    "cpu cores",
)


@pytest.mark.parametrize("value", [1e30, -1e30, float("inf"), float("nan"), 2.0**63])
def test_samples_that_are_no_counts_break_no_analysis(value: float) -> None:
    types = {"rank": pl.Int32, "name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
    samples = [(0, name, at, value, "bytes") for name in SAMPLED for at in (1, 2)] + [(0, "reserved cpu", 1, 64.0, "bytes")]
    operators = pl.DataFrame({"rank": [0], "op_id": [0], "op_type": ["Map"], "workers": [1], "queue_capacity": [4]})
    steps = pl.DataFrame({"rank": [0], "step": [0], "start_ns": [0], "end_ns": [10], "how": ["marker"]})
    counters = pl.DataFrame(samples, types, orient="row")
    trace = Trace({"counters": complete_table(counters.lazy(), "counters"), "pipeline": operators, "steps": steps}, Meta(ranks=[0]))
    for name in ("data_pipeline", "data_queues", "queues", "cpu", "cpu_use", "memory", "memory_peaks", "overview"):
        assert name in analysis_names()
        trace.analyse(name)
    assert trace.analyse("cpu")["memory_bytes"].drop_nulls().to_list() == []
    assert trace.analyse("data_pipeline")["batch_ns"].to_list() == [None]


# Cluster output

STEPS = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"


@pytest.mark.parametrize(
    "row",
    [
        "1,rank,1,-100.5,0,0,80.0,5.0,0,0",
        "1,rank,1,100.5,0,0,80.0,-500.0,0,0",
        "1,rank,1,100.5,0,90.0,80.0,5.0,0,0",  # more overlaps than there is
        "1,rank,1,10.5,0,70.0,80.0,5.0,0,0",
        "1,rank,1,1e18,0,0,80.0,5.0,0,0",
        "1,rank,-1,100.5,0,0,80.0,5.0,0,0",
    ],
)
def test_sums_that_cannot_be_make_no_spans(tmp_path: Path, row: str) -> None:
    folder = tmp_path / "cluster_analysis_output"
    folder.mkdir()
    (folder / "cluster_step_trace_time.csv").write_text(f"{STEPS}1,rank,0,100.75,59.75,20.25,80.0,5.0,165.5,0\n{row}\n")
    trace = stepscope.open(folder, cache=False)
    assert trace.meta.ranks == [0]
    assert trace.spans.select("name", "dur_ns").collect().rows() == [
        ("computing", 100_750),
        ("communication", 80_000),
        ("ProfilerStep#1", 165_500),
    ]
    assert [lost for where, _, lost in rows_of(trace) if where == "cluster_step_trace_time.csv" and lost] == [1]


def test_operators_of_communication_with_times_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "cluster_analysis_output"
    folder.mkdir()

    def call_times(start: float, length: float) -> dict[str, Any]:
        return {"Communication Time Info": {"Start Timestamp(us)": start, "Elapse Time(ms)": length}}

    calls = {f"hcom_{at}__1@2": {"0": call_times(1000.5, length)} for at, length in enumerate((2.5, -1, 1e12))}
    (folder / "cluster_communication.json").write_text(json.dumps({"p2p": {"step1": calls}}))
    links = {"hcom_0__1@2": {"0-1": {"Transit Size(MB)": -1, "Transit Time(ms)": 1}, "0-2": {"Transit Size(MB)": 1, "Transit Time(ms)": 1}}}
    (folder / "cluster_communication_matrix.json").write_text(json.dumps({"p2p": {"step1": links}}))
    trace = stepscope.open(folder, cache=False)
    assert trace.spans.select("start_ns", "dur_ns").collect().rows() == [(1_000_500, 2_500_000)]
    assert trace.table("links").select("src", "dst", "bytes").collect().rows() == [(0, 2, 1_000_000)]
    assert [(where, lost) for where, _, lost in rows_of(trace) if lost] == [
        ("cluster_communication.json", 2),
        ("cluster_communication_matrix.json", 1),
    ]


# Run folders


@pytest.mark.parametrize("read_through", [0, 1 << 30])
def test_a_table_of_a_run_folder_whose_pages_are_damaged_is_named(
    read_through: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer is whole, so that a large folder opens; a small one is read through first."""
    monkeypatch.setattr(store, "_CHECKED_SIZE", read_through)
    folder = copied(SAMPLES / "run/stepscope-0.1.0/resnet50_h200", tmp_path)
    file = folder / "spans.parquet"
    content = bytearray(file.read_bytes())
    content[2000 : len(content) - 20_000 : 500] = bytes(len(range(2000, len(content) - 20_000, 500)))
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"spans\.parquet: (damaged|not a complete Parquet file) \(") as refused:
        stepscope.open(folder, cache=False).analyse("operators")
    assert refused.value.path == str(file)


def test_the_archives_of_captures_are_what_the_tests_take_them_for() -> None:
    """A change of one byte in the data is noticed by its checksum."""
    assert zipfile.is_zipfile(FOLDERS["capture of PyTorch"] / "torch.000000.npz")
