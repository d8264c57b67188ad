"""Single damages, each of which once made a reader of Ascend's files fail or wait for ever."""

import json
import os
import re
import shutil
import struct
from pathlib import Path

import polars as pl
import pytest

import stepscope
from prof_directories import small_network
from stepscope import cli
from stepscope.readers.ascend.common.texts import json_list
from stepscope.recording.conversion import prof_folders

SAMPLES = Path(__file__).parents[1] / "samples"


def copied(sample: str, room: Path) -> Path:
    (source,) = SAMPLES.glob(sample)
    copy = room / source.name
    shutil.copytree(source, copy)
    return copy


def problems(path: Path) -> dict[str, int]:
    return dict(stepscope.open(path, cache=False, partial=True).problems.select("what", "lost").collect().iter_rows())


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = copied("ascend_result/mindspore-2.10-cpu/*_ascend_ms", tmp_path)
    for file in [*(folder / "FRAMEWORK").glob("cpu_framework_*"), *(folder / "FRAMEWORK").glob("cpu_op_detail_info_*")]:
        file.unlink()
        os.mkfifo(file)
    assert stepscope.open(folder, cache=False).spans.collect().height


def test_an_iteration_that_begins_beyond_all_numbers_is_one_without_a_forward_pass(tmp_path: Path) -> None:
    folder = copied("msprof_output/by-hand/*", tmp_path)
    file = next(folder.glob("msprof_*.json"))
    events = json.loads(file.read_text())
    marked = [event for event in events if "FP Start" in event.get("args", {})]
    for event in marked:
        event["args"]["FP Start"] = "9" * 20
    file.write_text(json.dumps(events))
    steps = stepscope.open(folder, cache=False).steps.collect()
    assert marked and steps.height and steps["fp_start_ns"].null_count() == steps.height


def test_arguments_that_are_no_text_are_shown_with_a_sign(tmp_path: Path) -> None:
    folder = copied("ascend_result/torch_npu-by-hand/*_ascend_pt", tmp_path)
    file = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(file.read_text())
    events[-1]["args"] = {"a": "REPLACED"}
    named = next(event for event in events if event.get("ph") == "M" and event.get("name") == "process_name")
    named["args"]["name"] = "\ud800"
    file.write_bytes(json.dumps(events).encode().replace(b"REPLACED", b"\xff\xfe"))
    assert stepscope.open(folder, cache=False, partial=True).spans.collect().height


def test_a_file_whose_name_is_no_text_is_told_of(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    (raw / "host" / "data" / os.fsdecode(b"\xff.data")).write_bytes(b"12345")
    assert "not read: \ufffd.data, 5 bytes" in problems(raw)


def test_a_number_of_calls_that_cannot_be_is_told_and_makes_no_spans(tmp_path: Path) -> None:
    file = tmp_path / "aicore_intermediate_0_detail.csv"
    file.write_text("full_op_name,execution_time,execution_frequency\nMatMul-op1,0.5,2\nAdd-op2,0.5,9000000000000000\n")
    trace = stepscope.open(tmp_path, cache=False)
    spans = trace.spans.select(pl.col("name").cast(pl.String), "dur_ns").collect().rows()
    assert spans == [("MatMul-op1", 500_000)] * 2
    assert problems(tmp_path)["1 row without a name, a time or a valid number of calls"] == 1


def test_cores_and_frequencies_that_cannot_be_are_as_if_not_said(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    file = raw / "device_0" / "info.json.0"
    printed = json.loads(file.read_text())
    printed["DeviceInfo"][0] |= {"aic_frequency": 2**70, "ai_core_num": 2**70, "aiv_num": "1e400"}
    file.write_text(json.dumps(printed))
    trace = stepscope.open(raw, cache=False)
    assert trace.devices.select("cores", "clock_hz").collect().rows() == [(None, None)]
    assert trace.spans.filter(pl.col("kind") == "kernel").collect().height == 12


def test_a_result_of_which_all_that_is_said_is_of_another_kind_opens(tmp_path: Path) -> None:
    folder = copied("ascend_result/torch_npu-by-hand/*_ascend_pt", tmp_path)
    (folder / "profiler_info_0.json").write_text(json.dumps({"config": [1], "rank_id": 2**70, "profiler_parameters": "x", "start_info": 5}))
    output = folder / "ASCEND_PROFILER_OUTPUT"
    (output / "trace_view.json").unlink()  # it says more of links than the matrix does
    link = {"Transit Size(MB)": float("inf"), "Transit Time(ms)": 1e300}
    (output / "communication_matrix.json").write_text(
        json.dumps({"step²": {"collective": {"a-total": {"0-1": link, "0-99999999999": link}}}})
    )
    times = dict.fromkeys(("Start Timestamp(us)", "Wait Time(ms)", "Synchronization Time(ms)", "Transit Time(ms)", "Idle Time(ms)"), 1e300)
    document = {"Communication Time Info": times, "Communication Bandwidth Info": [1]}
    (output / "communication.json").write_text(json.dumps({"step1": {"collective": {"hcom_allReduce_": document}}}))
    found = problems(folder)
    assert found["2 pairs of ranks without size and time"] == 2
    assert found["1 transfer without times"] == 1


def test_a_recording_that_says_only_what_was_reserved_has_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("ascend_result/torch_npu-by-hand/*_ascend_pt", tmp_path)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "memory_record.csv"
    table.write_text(table.read_text().replace("Total Allocated(MB)", "lost"))
    assert cli.main(["summary", str(folder)]) == 0
    assert "4.19 MB are reserved at the peak on npu 0" in capsys.readouterr().out


def test_a_shape_that_is_none_is_not_read_as_another(tmp_path: Path) -> None:
    """`[1, 2-0]` is no shape of two sizes."""
    folder = copied("mindinsight/mindspore-2.10-cpu/*", tmp_path)
    whole = stepscope.open(folder, cache=False).spans.select("shapes").collect()["shapes"].drop_nulls()
    file = folder / "cpu_framework_0.txt"
    text = file.read_text()
    file.write_text(re.sub(r"\[(\d+)", r"[\1-0", text))
    assert file.read_text() != text and len(whole)
    shapes = stepscope.open(folder, cache=False).spans.select("shapes").collect()["shapes"].drop_nulls()
    assert len(shapes) < len(whole)


def test_a_process_name_that_is_no_text_is_shown_with_a_sign(tmp_path: Path) -> None:
    folder = copied("ascend_result/torch_npu-by-hand/*_ascend_pt", tmp_path)
    file = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(file.read_text())
    named = next(event for event in events if event.get("ph") == "M" and event.get("name") == "process_name")
    named["args"]["name"] = "REPLACED"
    file.write_bytes(json.dumps(events).encode().replace(b"REPLACED", b"\xff\xfe"))
    assert stepscope.open(folder, cache=False, partial=True).spans.collect().height


def test_a_link_that_leads_to_itself_is_no_recording(tmp_path: Path) -> None:
    small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert stepscope.open(tmp_path, cache=False).spans.collect().height


def test_one_damaged_file_or_line_of_mindspore_costs_only_itself(tmp_path: Path) -> None:
    folder = copied("mindinsight/mindspore-2.10-cpu/*", tmp_path)
    whole = stepscope.open(folder, cache=False).spans.collect().height
    calls = folder / "cpu_op_execute_timestamp_0.txt"
    calls.write_text(re.sub(r";(\d+),", ";x,", calls.read_text(), count=1))
    (folder / "pipeline_profiling_0.json").write_text("{")
    (folder / "dataset_iterator_profiling_0.txt").write_text("0 0 1 5 1000\n0 0 x 5 1000\n")
    trace = stepscope.open(folder, cache=False)
    lost_by_problem = dict(trace.problems.select("what", "lost").collect().iter_rows())
    assert trace.spans.collect().height == whole - 1
    assert lost_by_problem["1 call without a start or a duration"] == 1
    assert lost_by_problem["1 line is not five numbers, such as '0 0 x 5 1000'"] == 1
    assert sum(lost for what, lost in lost_by_problem.items() if what.startswith("not JSON")) == 1
    assert trace.counters.collect().height == 1


@pytest.mark.parametrize(
    ("text", "listed"),
    [("2,3;;4", [[2, 3], [], [4]]), ("-1,0", [[-1, 0]]), ("2-3", ["2-3"]), ("007", ["007"]), ("²", ["²"]), ('a"b\\;c\t', ['a"b\\', "c"])],
)
def test_shapes_are_lists_and_whatever_else_stands_there_is_text(text: str, listed: list[object]) -> None:
    assert json.loads(json_list(text)) == listed


def test_a_line_of_a_dictionary_whose_number_is_none_is_left_out(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    for file in (raw / "host" / "data").glob("*_dic*"):
        file.write_text("²7:a\n5000_²7:b\n" + file.read_text())
    assert stepscope.open(raw, cache=False).spans.filter(pl.col("kind") == "kernel").collect().height == 12


def test_an_offset_and_times_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    folder = copied("mindinsight/mindspore-2.10-cpu/*", tmp_path)
    (folder / "profiler_info_0.json").write_text(json.dumps({"diff_time": 1e300}))
    (folder / "minddata_cpu_utilization_0.json").write_text(json.dumps({"time_stamp": [1000, "x", 1020], "op_info": [{"op_id": None}]}))
    found = problems(folder)
    assert found["diff_time is not a number: the clock of this rank is not shifted"] == 0
    assert found["2 samples of the input pipeline without a usable time, or after such a sample"] == 2
    assert found["1 operator of the input pipeline without a number"] == 1


def test_a_time_that_is_years_off_a_plane_and_a_process_that_cannot_be_make_no_file_without_end(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    planes = next(raw.glob("host/data/*hccl_info*"))
    data = bytearray(planes.read_bytes())
    struct.pack_into("<I", data, 64, 2**31)  # the plane of the first task
    planes.write_bytes(data)
    tasks = next(raw.glob("device_0/data/stars_soc*"))
    data = bytearray(tasks.read_bytes())
    struct.pack_into("<Q", data, len(data) - 56, 50_000_000 * 86_400 * 365 * 3)  # the end of the last one: three years later
    tasks.write_bytes(data)
    for path in (raw / "host" / "info.json", raw / "device_0" / "info.json.0"):
        path.write_text(path.read_text().replace('"pid": "42"', f'"pid": {2**70}'))
    result = prof_folders.process(prof_folders.Request(folder=str(raw), text=True, database=True, rules=list(prof_folders.RULES)))
    assert result.failed == "" and sum(file.bytes for file in result.written) < 2_000_000
