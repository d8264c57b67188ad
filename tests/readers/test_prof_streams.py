"""What the host says of streams: graphs that a program captured, streams of compiled graphs, streams that serve communication."""

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from prof_directories import HOST_MAGIC, LEVELS, Directory, host
from stepscope.exporters.msprof import exporter as msprof
from stepscope.exporters.msprof_db import exporter as msprof_db
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

GRAPH, CAPTURED_ON, OF_GRAPH = 5, 3, 40  # the graph, the stream that it was captured on, and its own


def captured(*, long: bool = False) -> Directory:
    """Two kernels launched while a graph is captured, which then runs twice, and a third one that is of no graph."""
    made = Directory()
    capture(made, 90, begins=True)
    for task, name in ((1, "net/MatMul"), (2, "net/Add")):
        made.call("runtime", "KernelLaunch", 100 + task * 10, 104 + task * 10)
        made.launch(102 + task * 10, OF_GRAPH, task, "KERNEL_AICORE", f"{name}_kernel")
        describe(made, 103 + task * 10, task, name, tensors=2, long=long)
    capture(made, 200, begins=False)
    made.call("runtime", "KernelLaunch", 210, 214)
    made.launch(212, OF_GRAPH, 3, "KERNEL_AICORE", "later_kernel")
    for run in (300, 400):
        made.run(OF_GRAPH, 1, 0, run, run + 10)
        made.run(OF_GRAPH, 2, 0, run + 20, run + 30)
    made.run(OF_GRAPH, 3, 0, 500, 510)
    return made


def capture(made: Directory, at: float, *, begins: bool) -> None:
    made.say("compact.capture_stream_info", "runtime", at, struct.pack("<5H", 0 if begins else 1, OF_GRAPH, CAPTURED_ON, GRAPH, 0))


def describe(made: Directory, at: float, task: int, name: str, *, tensors: int, long: bool) -> None:
    about = struct.pack("<6I", GRAPH, 0, OF_GRAPH, task, 4, 6 | 2 << 16)  # 4: a kernel on both kinds of core; 6 blocks, twice as many there
    about += struct.pack("<4QII", made.hash(name), made.hash("Type"), made.hash("axis:1"), 0, 1, tensors)
    about += b"".join(struct.pack("<11I", way, 2, 1, 16, 8 + way, *[0] * 6) for way in range(tensors))
    if not long:
        made.say("additional.capture_op_info", "runtime", at, about)
        return
    head = struct.pack("<HHIIIQ", HOST_MAGIC, LEVELS["runtime"], 0, 100, len(about), host(at))
    made.put("host/data/unaging.variable.capture_op_info.slice_0", head + about)


def read(made: Directory, tmp_path: Path) -> Trace:
    return prof.read(made.write(tmp_path / "raw"), Options(scratch=tmp_path))


def on_streams(trace: Trace) -> list[dict[str, Any]]:
    rows = trace.spans.join(trace.tracks.filter(pl.col("kind") == "stream").select("track", "label"), on="track").sort("start_ns")
    texts = rows.with_columns(pl.col("name", "kind", "op_type", "label").cast(pl.String)).collect().to_dicts()
    return [row | {"args": json.loads(row["args"])} for row in texts]


def problems(trace: Trace) -> list[tuple[str, int]]:
    return trace.problems.filter(~pl.col("what").str.starts_with("no iterations")).select("what", "lost").collect().rows()


@pytest.mark.parametrize("long", [False, True])
def test_each_run_of_a_captured_graph_has_its_operators_its_model_and_the_stream_that_it_was_captured_on(
    long: bool, tmp_path: Path
) -> None:
    trace = read(captured(long=long), tmp_path)
    *ran, later = on_streams(trace)
    assert [(row["name"], row["op_type"], row["shapes"]) for row in ran] == 2 * [
        ("net/MatMul", "Type", "[[16,8]]"),
        ("net/Add", "Type", "[[16,8]]"),
    ]
    for row in ran:
        contents = {
            key: row["args"][key] for key in ("Model Id", "original stream", "Block Num", "Mix Block Num", "attributes", "Task Type")
        }
        assert contents == {
            "Model Id": GRAPH,
            "original stream": CAPTURED_ON,
            "Block Num": 6,
            "Mix Block Num": 12,
            "attributes": "axis:1",
            "Task Type": "MIX_AIC",
        }
        assert (row["args"]["HF32 Eligible"], row["args"]["OP State"]) == ("YES", "static" if long else "dynamic")
    assert (later["name"], later["args"]["Model Id"], later["args"]["original stream"]) == ("later_kernel", 2**32 - 1, None)
    assert problems(trace) == []


def test_operators_of_captured_graphs_that_are_cut_off_are_counted_and_the_others_read(tmp_path: Path) -> None:
    made = captured(long=True)
    file = made.files["host/data/unaging.variable.capture_op_info.slice_0"]
    file[-1] = file[-1][:-5]
    trace = read(made, tmp_path)
    assert [row["name"] for row in on_streams(trace)][:2] == ["net/MatMul", "net/Add_kernel"]
    assert problems(trace) == [(f"{len(file[-1])} bytes belong to no complete record", 1)]


def test_pieces_of_a_stream_of_a_compiled_graph_are_one_stream(tmp_path: Path) -> None:
    made = Directory()
    made.say("additional.logic_stream_info", "model", 90, struct.pack("<II56I", 2, 2, 7, 8, *[0] * 54))
    for stream, at in ((7, 100), (8, 200), (9, 300)):
        made.run(stream, 1, 0, at, at + 10)
    trace = read(made, tmp_path)
    found = [(row["label"], row["args"]["Physic Stream Id"]) for row in on_streams(trace)]
    assert found == [("Stream 2", 7), ("Stream 2", 8), ("Stream 9", 9)]
    msprof.export(trace, tmp_path / "out")
    events = json.loads(next((tmp_path / "out").glob("msprof_2*.json")).read_text())
    tasks = [event for event in events if "Physic Stream Id" in event.get("args", {})]
    assert [(event["tid"], event["args"]["Physic Stream Id"]) for event in tasks] == [(2, 7), (2, 8), (9, 9)]


def serving() -> Directory:
    """A kernel that computes, one on the stream that serves its communication, one that communicates on vector cores."""
    made = Directory()
    made.say("additional.mc2_comm_info", "node", 90, struct.pack("<Q5I8I", made.hash("group"), 4, 1, 1, 7, 1, 11, *[0] * 7))
    for number, (name, kind, stream, core) in enumerate(
        (
            ("net/MatmulAllReduce", "KERNEL_AICORE", 3, 0),
            ("net/Serves", "KERNEL_AICPU", 7, 1),
            ("hcom_allReduceAivKernel", "KERNEL_AIVEC", 3, 2),
        )
    ):
        at = 100 + number * 10
        made.call("node", "launch", at, at + 8, made.hash(name))
        made.launch(at + 2, stream, number, kind, "kernel")
        made.say("compact.node_basic_info", "node", at + 5, struct.pack("<QIQII", made.hash(name), core, made.hash("Type"), 24, 0))
        made.run(stream, number, core, 200 + number * 100, 250 + number * 100)
    return made


def test_kernels_that_only_serve_communication_compute_nothing_and_are_operators_all_the_same(tmp_path: Path) -> None:
    trace = read(serving(), tmp_path)
    assert [(row["name"], row["kind"]) for row in on_streams(trace)] == [
        ("net/MatmulAllReduce", "kernel"),
        ("net/Serves", "other"),
        ("hcom_allReduceAivKernel", "other"),
    ]
    assert trace.overlap()["computing_ns"].to_list() == [50_000]
    msprof.export(trace, tmp_path / "out")
    names = [line.split(",")[4] for line in next((tmp_path / "out").glob("op_summary_2*.csv")).read_text().splitlines()[1:]]
    assert names == ["net/MatmulAllReduce", "net/Serves", "hcom_allReduceAivKernel"]
    events = json.loads(next((tmp_path / "out").glob("msprof_2*.json")).read_text())
    assert [event["dur"] for event in events if event["name"] == "Computing" and event["ph"] == "X"] == [50.0]


@pytest.mark.parametrize("to", ["msprof", "msprof_db"])
def test_kernels_of_hccl_compute_nothing_in_exported_results_either(to: str, tmp_path: Path) -> None:
    trace = read(serving(), tmp_path)
    if to == "msprof":
        msprof.export(trace, tmp_path / "out" / "mindstudio_profiler_output")
    else:
        (tmp_path / "out").mkdir()
        msprof_db.export(trace, tmp_path / "out" / "msprof_20260101000000.db")
    again = stepscope.open(tmp_path / "out")
    found = {row["name"]: (row["kind"], row["op_type"]) for row in on_streams(again)}
    assert found["hcom_allReduceAivKernel"] == ("other", "Type") and found["net/MatmulAllReduce"] == ("kernel", "Type")
    msprof.export(again, tmp_path / "third")
    names = [line.split(",")[4] for line in next((tmp_path / "third").glob("op_summary_2*.csv")).read_text().splitlines()[1:]]
    assert "hcom_allReduceAivKernel" in names
