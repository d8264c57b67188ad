"""msprof's files of traces that the tests write themselves: raw Ascend data, and a PyTorch trace."""

import csv
import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import prof_directories
import stepscope
from prof_directories import DEVICE_MAGIC, HOST_MAGIC, REAL_US, Directory, device, host, small_network
from stepscope.errors import DataError, UsageError
from stepscope.exporters.msprof import exporter as msprof
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

TORCH: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5, "ts": 1000.002, "dur": 30.5,
     "args": {"External id": 3, "Input Dims": [[2, 3], [3, 2]], "Input type": ["float", "float"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 1002.003, "dur": 2,
     "args": {"correlation": 9, "External id": 3}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1010.004, "dur": 5.006,
     "args": {"correlation": 9, "External id": 3, "device": 0, "stream": 7, "blocks per SM": 0.5}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "pid": 0, "tid": 7, "ts": 1020.0, "dur": 1.5,
     "args": {"device": 0, "stream": 7, "bytes": 64}},
]  # fmt: skip


@pytest.fixture
def network(tmp_path: Path) -> Trace:
    return prof.read(small_network().write(tmp_path / "raw"), Options(scratch=tmp_path))


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": TORCH}))
    return stepscope.open(tmp_path / "trace.json")


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with next(folder.glob(f"{name}_2*.csv")).open() as lines:
        return list(csv.DictReader(lines))


def events(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(next(folder.glob("msprof_2*.json")).read_text())
    return found


def test_of_a_pytorch_trace_kernels_are_tasks_and_operators_are_calls(torch: Trace, tmp_path: Path) -> None:
    msprof.export(torch, tmp_path / "out")
    (operator,) = rows(tmp_path / "out", "op_summary")
    assert {
        key: operator[key] for key in ("Op Name", "OP Type", "Task Start Time(us)", "Task Duration(us)", "Input Shapes", "Input Data Types")
    } == {
        "Op Name": "gemm",
        "OP Type": "aten::mm",
        "Task Start Time(us)": "1010.004\t",
        "Task Duration(us)": "5.006",
        "Input Shapes": '"2,3;3,2"',
        "Input Data Types": "float;float",
    }
    assert {operator[key] for key in ("Model ID", "Task ID", "OP State", "Block Num", "Output Shapes")} == {"N/A"}
    assert [(row["kernel_name"], row["stream_id"], row["task_stop(us)"]) for row in rows(tmp_path / "out", "task_time")] == [
        ("gemm", "7", "1015.010\t"),
        ("N/A", "7", "1021.500\t"),
    ]
    assert [(row["Level"], row["API Name"], row["Time(us)"]) for row in rows(tmp_path / "out", "api_statistic")] == [
        ("pytorch", "aten::mm", "30.5"),
        ("runtime", "cudaLaunchKernel", "2.0"),
    ]
    arrows = [(event["ph"], event["ts"]) for event in events(tmp_path / "out") if event.get("cat") == "HostToDevice"]
    assert arrows == [("s", "1002.003"), ("f", "1010.004")]


def test_steps_of_a_pytorch_trace_are_iterations_of_no_model(tmp_path: Path) -> None:
    marks = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 5, "tid": 5, "ts": ts, "dur": dur}
        for step, ts, dur in ((4, 990.0, 50.0), (5, 1040.0, 30.25))
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*marks, *TORCH]}))
    trace = stepscope.open(tmp_path / "trace.json", cache=False)
    msprof.export(trace, tmp_path / "out")
    iterations = [
        (row["Iteration ID"], row["Iteration End(us)"], row["Iteration Time(us)"], row["Model ID"])
        for row in rows(tmp_path / "out", "step_trace")
    ]
    assert iterations == [("4", "1040.000\t", "50.0", "4294967295"), ("5", "1070.250\t", "30.25", "4294967295")]
    again = stepscope.open(tmp_path / "out", cache=False)
    assert again.step_trace().select("step", "total_ns").rows() == [(4, 50_000), (5, 30_250)]
    assert again.overlap().drop("rank").equals(trace.overlap().drop("rank"))
    assert again.overlap()["copy_ns"].to_list() == [1500, 0]


def test_streams_without_a_number_have_one_behind_those_that_have(tmp_path: Path) -> None:
    """A line of a task without a stream would be no line: the timeline was no JSON."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"on {tid}", "pid": 0, "tid": tid, "ts": 1000 + 10 * place, "dur": 5, "args": {"device": 0}}
        for place, tid in enumerate(["stream 7", "compute", "other 7"])
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": kernels}))
    trace = stepscope.open(tmp_path / "trace.json", cache=False)
    msprof.export(trace, tmp_path / "out")
    found = {event["name"]: event["tid"] for event in events(tmp_path / "out") if event["ph"] == "X" and event["name"].startswith("on ")}
    assert sorted(found.values()) == [7, 8, 9] and len(found) == 3


def test_what_the_host_communicates_is_communication_of_the_device(tmp_path: Path) -> None:
    gloo = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 5, "tid": 6, "ts": 1005.5, "dur": 20.25}
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*TORCH, gloo]}))
    trace = stepscope.open(tmp_path / "trace.json", cache=False)
    assert trace.overlap()["communication_ns"].to_list() == [20_250]
    msprof.export(trace, tmp_path / "out")
    again = stepscope.open(tmp_path / "out", cache=False)
    assert again.overlap()["communication_ns"].to_list() == [20_250]
    (row,) = [event for event in events(tmp_path / "out") if event["name"] == "gloo:all_reduce" and event["ph"] == "X"]
    assert (row["ts"], row["dur"]) == ("1005.500", 20.25)


def test_of_a_trace_in_which_nothing_ran_nothing_is_written(tmp_path: Path) -> None:
    memory = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1.0, "args": {"Bytes": 64}}
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [memory]}))
    trace = stepscope.open(tmp_path / "trace.json", cache=False)
    with pytest.raises(DataError, match="no calls, tasks or iterations"):
        msprof.export(trace, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_column_is_made_up_of_what_another_source_says(torch: Trace, tmp_path: Path) -> None:
    msprof.export(torch, tmp_path / "out")
    (operator,) = rows(tmp_path / "out", "op_summary")
    assert not {"blocks per SM", "Mix Block Num", "Context ID", "aicore_time(us)"} & set(operator)


def test_of_a_run_folder_the_same_is_written_as_of_the_raw_data(network: Trace, tmp_path: Path) -> None:
    """What the reader still has as columns, and what a run folder has as text."""
    from stepscope.io import store

    store.write(network, tmp_path / "run")
    msprof.export(network, tmp_path / "one")
    msprof.export(store.read(tmp_path / "run"), tmp_path / "two")
    texts = [
        {file.name.rpartition("_")[0] + file.suffix: file.read_text() for file in (tmp_path / name).iterdir()} for name in ("one", "two")
    ]
    assert len(texts[0]) == 9 and texts[0] == texts[1]


def test_a_table_of_more_rows_than_fit_is_several_files(network: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    msprof.export(network, tmp_path / "one")
    monkeypatch.setattr(msprof, "_ROWS", 5)
    msprof.export(network, tmp_path / "cut")
    whole = next((tmp_path / "one").glob("op_summary_2*.csv")).read_text().splitlines()
    parts = [file.read_text().splitlines() for file in sorted((tmp_path / "cut").glob("op_summary_slice_?_2*.csv"))]
    assert len(whole) == 16 and [len(part) for part in parts] == [6, 6, 6]
    assert {part[0] for part in parts} == {whole[0]} and [line for part in parts for line in part[1:]] == whole[1:]


def test_tables_may_be_json(network: Trace, tmp_path: Path) -> None:
    msprof.export(network, tmp_path / "csv")
    msprof.export(network, tmp_path / "out", summary_format="json")
    found = json.loads(next((tmp_path / "out").glob("op_summary_2*.json")).read_text())
    assert [row["Op Name"] for row in found] == [row["Op Name"] for row in rows(tmp_path / "csv", "op_summary")]
    assert not list((tmp_path / "out").glob("*.csv"))
    with pytest.raises(UsageError, match="csv or json"):
        msprof.export(network, tmp_path / "other", summary_format="xml")


def test_the_readme_tells_of_every_file_and_of_no_other(network: Trace, torch: Trace, tmp_path: Path) -> None:
    for name, trace in (("network", network), ("torch", torch)):
        msprof.export(trace, tmp_path / name)
        text = (tmp_path / name / "README.txt").read_text()
        kinds = {msprof._kind(file) for file in (tmp_path / name).iterdir()} - {"README.txt"}
        assert {line.split(".", 1)[1].split(":")[0] for line in text.splitlines() if line[:1].isdigit()} == kinds


def test_ranks_are_folders(network: Trace, tmp_path: Path) -> None:
    both = Trace(
        {
            name: pl.concat([frame, frame.with_columns(rank=pl.lit(3, pl.Int32))])
            for name, frame in network.tables.items()
        },
        network.meta,
    ).with_meta(ranks=[0, 3])  # fmt: skip
    msprof.export(both, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rank_0", "rank_3"]
    assert len(rows(tmp_path / "out" / "rank_3", "op_summary")) == 15


def kernel(made: Directory, task: int, at: float, kind: str, sqe: int, *, described: bool = True) -> None:
    """Launched at a moment, and runs ten microseconds later for as long."""
    made.call("runtime", "KernelLaunch", at, at + 4)
    made.launch(at + 2, 3, task, kind, "a_kernel")
    if described:
        made.call("node", "launch", at - 1, at + 8, made.hash("net/op"))
        made.say("compact.node_basic_info", "node", at + 5, struct.pack("<QIQII", made.hash("net/op"), 0, made.hash("MatMul"), 24, 0))
    made.run(3, task, sqe, at + 10, at + 20)


def written(made: Directory, tmp_path: Path) -> tuple[Trace, Path]:
    trace = prof.read(made.write(tmp_path / "raw"), Options(scratch=tmp_path))
    msprof.export(trace, tmp_path / "out")
    return trace, tmp_path / "out"


@pytest.mark.parametrize(
    ("cycles", "core", "multiplied"),
    # Of 24 blocks at 1.8 GHz: 0.075 us, which in binary is a little less, 0.065 us, a little more, and 0.08 us.
    [(3240, "0.07", "0.035"), (2808, "0.07", "0.035"), (3456, "0.08", "0.04")],
)
def test_a_cores_time_in_the_middle_of_two_prints_is_rounded_as_its_binary_number(
    cycles: int, core: str, multiplied: str, tmp_path: Path
) -> None:
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICORE", 0)
    made.count(3, 1, 0, cycles, [cycles // 2, 0, 0, 0, 0, 0, 0, 0], 110, 120)
    (row,) = rows(written(made, tmp_path)[1], "op_summary")
    assert (row["aicore_time(us)"], row["aic_mac_time(us)"], row["aic_mac_ratio"]) == (core, multiplied, "0.5")


@pytest.mark.parametrize(("multiplied", "used"), [(2160, "10.0"), (1, "0.0")])
def test_a_kernel_that_multiplies_nothing_uses_nothing_of_the_cube_cores(multiplied: int, used: str, tmp_path: Path) -> None:
    """43,200 of the 432,000 cycles that 24 cores make in ten microseconds; of them a twentieth multiplied, or one."""
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICORE", 0)
    made.count(3, 1, 0, 43_200, [multiplied, 0, 0, 0, 0, 0, 0, 0], 110, 120)
    (row,) = rows(written(made, tmp_path)[1], "op_summary")
    assert row["cube_utilization(%)"] == used


def test_what_blocks_counted_whose_number_is_not_known_is_in_the_trace_and_not_in_the_table(tmp_path: Path) -> None:
    """A kernel on both kinds of core that no operator launched: nobody says how many blocks ran on the vector cores."""
    made = Directory()
    kernel(made, 1, 100, "KERNEL_MIX_AIC", 0, described=False)
    file = "device_0/data/ffts_profile.data.0.slice_0"
    for place, (function, core, cycles) in enumerate(((0b101000, 0, 43_200), (0b101001, 1, 1000), (0b101001, 1, 500))):
        head = struct.pack("<4HQ2H", function | place << 6, DEVICE_MAGIC, 3, 1, device(120), 6, 0)
        made.put(file, head + struct.pack("<BB10xQ8x8QQQ", core, 4 << 5, cycles, *[cycles // 2] * 8, device(110), device(120)))
    for place, at in ((0b100010, 111), (0b100011, 119)):
        record = struct.pack("<4HQ4H40x", place | (place & 1) + 2 << 6, DEVICE_MAGIC, 3, 1, device(at), 6, 0, 4 << 13, 0)
        made.put("device_0/data/stars_soc.data.0.slice_0", record)
    trace, out = written(made, tmp_path)
    (args,) = trace.spans.filter(pl.col("kind") == "kernel").select("args").collect().to_series()
    assert (json.loads(args)["aic_total_cycles"], json.loads(args)["aiv_total_cycles"]) == (43_200, 1500)
    (row,) = rows(out, "op_summary")
    assert (row["aic_total_cycles"], row["aiv_total_cycles"], row["aiv_vec_ratio"]) == ("43200", "0", "0.0")


def test_what_an_operator_on_ai_cpus_says_of_itself_is_written_though_its_launch_is_lost(tmp_path: Path) -> None:
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICPU", 1)
    made.run(3, 2, 1, 130, 140)
    for task, at in ((1, 111), (2, 131)):
        head = struct.pack("<HHIIIQ", HOST_MAGIC, 6000, 0, 0, 232, device(at + 8))
        body = struct.pack(
            "<HH12x4Q8xQ8xQ16xQ4xII", 3, task, device(at), at, at + 4, at + 7, device(at + 8), device(at), device(at + 8), 9, 0
        )
        made.put("device_0/data/aicpu.data.0.slice_0", head + body.ljust(232, b"\0"))
    found = rows(written(made, tmp_path)[1], "aicpu")
    assert [(row["Task ID"], row["Node"], row["Compute_time(us)"], row["Task_time(us)"]) for row in found] == [
        ("1", "net/op", "4.0", "8.0"),
        ("2", "N/A", "4.0", "8.0"),
    ]


def test_how_much_memory_binds_is_a_ratio_of_the_printed_ratios(tmp_path: Path) -> None:
    """An older chip: of 10,000,000 cycles 1,234,996 wait for memory, which prints as 0.123, and 400,000 multiply: 0.123 / 0.04."""
    made = Directory()
    made.call("runtime", "KernelLaunch", 100, 104)
    made.launch(102, 3, 1, "KERNEL_AICORE", "a_kernel")
    for tag, at in ((0, 110), (1, 120)):
        made.put("device_0/data/hwts.data.0.slice_0", struct.pack("<BBHHHQI44x", tag | tag << 4, 0, DEVICE_MAGIC, 0, 1, device(at), 3))
    values = [0, 400_000, 0, 0, 1_234_996, 0, 0, 0]
    record = struct.pack("<BBHHHIIQQ8QI28x", 0, 0, DEVICE_MAGIC, 0, 1, 0, 0, 10_000_000, 0, *values, 3)
    made.put("device_0/data/aicore.data.0.slice_0", record)
    root = made.write(tmp_path / "raw")
    for file in root.glob("*/sample.json"):
        document = {"ai_core_metrics": "PipeUtilization", "ai_core_profiling_events": "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"}
        file.write_text(json.dumps(json.loads(file.read_text()) | document))
    for file in root.glob("*/info.json*"):
        file.write_text(file.read_text().replace('"platform_version": "5"', '"platform_version": "1"'))
    msprof.export(prof.read(root, Options(scratch=tmp_path)), tmp_path / "out")
    (row,) = rows(tmp_path / "out", "op_summary")
    assert (row["mte2_ratio"], row["mac_ratio"], row["memory_bound"]) == ("0.123", "0.04", "3.075")


def test_what_a_program_marks_is_a_table_and_a_layer_of_the_timeline_with_arrows_to_the_device(tmp_path: Path) -> None:
    made = small_network()
    for event, start, end, text, mark in ((1, 100, 250, b"step", None), (2, 130, 300, b"forward", 5), (3, 140, 140, b"unseen", 6)):
        head = struct.pack("<HHIIIQ", HOST_MAGIC, 20500, 0, 100, 232, host(start))
        about = struct.pack("<HHIHHIIIIiQ", int(mark is not None), 0, 0, 0, 0, 42, 100, 7, event, 2, 9)
        about += struct.pack("<4Qi", host(start), host(end), mark or 0, made.hash("a domain"), 3)
        made.put("host/data/aging.additional.msproftx.slice_0", head + about + text.ljust(156, b"\0"))
    for at in (160, 210):  # the device came by mark 5 on stream 3, with task 8
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQQQHHHH", 1, 10, 40, 0, device(at), 5, 2**32 - 1, 3, 8, 11, 0))
    out = written(made, tmp_path)[1]
    at = REAL_US
    # Device, process and thread; what is known of it; from and until; which message; and when the device came by it.
    assert [list(row.values()) for row in rows(out, "msprof_tx")] == [
        ["host", "42", "100", "7", "push/pop", "2", "9", f"{at + 100}.000\t", f"{at + 250}.000\t", "3", "step", *["N/A"] * 3],
        ["0", "42", "100", "N/A", "start/end", "N/A", "N/A", f"{at + 130}.000\t", f"{at + 300}.000\t", "N/A", "forward", "a domain",
         f"{at + 160}.000\t", f"{at + 210}.000\t"],
        ["host", "42", "100", "N/A", "marker_ex", "N/A", "N/A", f"{at + 140}.000\t", f"{at + 140}.000\t", "N/A", "unseen", "a domain",
         *["N/A"] * 2],
    ]  # fmt: skip
    found = [event for event in events(out) if event.get("cat") == "MsTx" or event["name"] == "forward"]
    assert [(event["ph"], event["tid"], event["ts"], event.get("dur")) for event in found] == [
        ("X", 100, f"{at + 130}.000", 170.0),
        ("s", 100, f"{at + 130}.000", None),
        ("X", 3, f"{at + 160}.000", 50.0),
        ("f", 3, f"{at + 160}.000", None),
    ]
    assert "msprof_tx.csv" in (out / "README.txt").read_text()


def test_blocks_that_operators_take_are_allocations_and_two_tables(tmp_path: Path) -> None:
    """The first block is given back, the second stays; of a third only the end was recorded."""
    made = small_network()
    for at, address, size, name, total in (
        (100, 0x10, 2048, "net/a", 2048),
        (110, 0x20, 1024, "net/b", 3072),
        (130, 0x10, -2048, "net/a", 1024),
        (140, 0x30, -512, "net/c", 512),
    ):
        body = struct.pack("<QqQQQII", address, size, made.hash(name), total, 8192, 0, 0)
        made.say("additional.task_memory_info", "node", at, body)
    trace, out = written(made, tmp_path)
    found = trace.allocations.select("device", "bytes", pl.col("alloc_ns", "free_ns") - REAL_US * 1000, "op").collect().rows()
    assert found == [("npu 0", 2048, 100_000, 130_000, "net/a"), ("npu 0", 1024, 110_000, None, "net/b")]
    assert trace.problems.select("what", "lost").collect().rows() == [("released blocks of memory without an allocation", 1)]
    assert [list(row.values())[3:] for row in rows(out, "memory_record")] == [
        [total, "8.0", "NPU:0"] for total in ("2.0", "3.0", "1.0", "0.5")
    ]
    assert [list(row.values())[1:] for row in rows(out, "operator_memory")] == [
        ["net/a", "2.0", f"{REAL_US + 100}.000\t", "30.0", "2.0", "8.0", "1.0", "8.0", "NPU:0"],
        ["net/b", "1.0", f"{REAL_US + 110}.000\t", "N/A", "3.0", "8.0", "N/A", "N/A", "NPU:0"],
    ]


def test_a_chip_for_inference_has_the_columns_of_one_kind_of_core(tmp_path: Path) -> None:
    """Chip 7 logs tasks as larger ones do: 86,400 cycles of 24 blocks on 24 cores of 1.8 GHz are 2 us, of which a quarter multiplied."""
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICORE", 0)
    made.count(3, 1, 0, 86_400, [21_600, 0, 0, 0, 0, 0, 0, 0], 110, 120)
    root = made.write(tmp_path / "raw")
    for file in root.glob("*/info.json*"):
        file.write_text(file.read_text().replace('"platform_version": "5"', '"platform_version": "7"'))
    msprof.export(prof.read(root, Options(scratch=tmp_path)), tmp_path / "out")
    (row,) = rows(tmp_path / "out", "op_summary")
    counters = list(row)[list(row).index("aicore_time(us)") :]
    pipes = [f"{pipe}_{what}" for pipe in ("mac", "scalar", "mte1", "mte2", "fixpipe") for what in ("time(us)", "ratio")]
    assert counters == ["aicore_time(us)", "total_cycles", *pipes, "icache_miss_rate", "cube_utilization(%)"]
    columns = ("aicore_time(us)", "total_cycles", "mac_time(us)", "mac_ratio", "cube_utilization(%)")
    assert [row[name] for name in columns] == ["2.0", "86400", "0.5", "0.25", "20.0"]


@pytest.mark.parametrize(
    ("chip", "events", "values", "rates"),
    [
        # Requests are 40 + 60, hits 10 + 20, lines put out 5; such a chip has no rate of hits.
        ("5", "0xfb,0xfc,0x90,0x91,0x9c", (40, 60, 10, 20, 5, 0, 0, 0), ("N/A", "0.05")),
        # Hits are 30 of 120, lines put out 12.
        ("1", "0x5b,0x59,0x5c", (30, 120, 12, 0, 0, 0, 0, 0), ("0.25", "0.1")),
    ],
)
def test_what_kernels_find_in_the_cache_is_said_of_each_run(
    chip: str, events: str, values: tuple[int, ...], rates: tuple[str, str], tmp_path: Path
) -> None:
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICORE", 0)
    made.run(3, 1, 0, 200, 210)
    for counted in (values, (0,) * 8, values):
        made.put("device_0/data/l2_cache.data.0.slice_0", struct.pack("<4H8Q", 0, 3, 1, 0, *counted))
    root = made.write(tmp_path / "raw")
    for file in root.glob("*/sample.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"l2CacheTaskProfilingEvents": events}))
    for file in root.glob("*/info.json*"):
        file.write_text(file.read_text().replace('"platform_version": "5"', f'"platform_version": "{chip}"'))
    trace = prof.read(root, Options(scratch=tmp_path))
    msprof.export(trace, tmp_path / "out")
    nothing = ("N/A" if rates[0] == "N/A" else "0.0", "0.0")
    found = [(row["Task Id"], row["Op Name"], row["Hit Rate"], row["Victim Rate"]) for row in rows(tmp_path / "out", "l2_cache")]
    assert found == [("1", "net/op", *rates), ("1", "net/op", *nothing)]
    assert ("counters of the L2 cache of kernels whose start or end is lost", 1) in trace.problems.select("what", "lost").collect().rows()


@pytest.mark.parametrize(
    ("monotonic", "counter", "first"),
    # As msprof orders them: its floats of 1265371502718 are a little off, so that communication, cut to an integer, comes before.
    [(5_000_000_000, 90_000_000, ["net/op", "hcom_allReduce_"]), (1_265_371_392_718, 272_575_757_537, ["hcom_allReduce_", "net/op"])],
)
def test_of_a_kernel_and_a_collective_of_one_moment_the_first_is_that_of_msprof(
    monotonic: int, counter: int, first: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prof_directories, "MONOTONIC", monotonic)
    monkeypatch.setattr(prof_directories, "DEVICE_TICKS", counter)
    made = Directory()
    kernel(made, 1, 100, "KERNEL_AICORE", 0)
    prof_directories.all_reduce(made, 130, 110, 0)
    found = rows(written(made, tmp_path)[1], "op_summary")
    assert [row["OP Type"].replace("MatMul", "net/op") for row in found] == first
    assert {row["Task Start Time(us)"] for row in found} == {f"{REAL_US + 110}.000\t"}
