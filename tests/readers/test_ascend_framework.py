"""What torch_npu and MindSpore leave in FRAMEWORK, written by the test byte by byte: every expected value follows from what was written."""

import json
import random
import struct
from pathlib import Path

import polars as pl
import pytest

import stepscope
from prof_directories import HOST_TICKS, MONOTONIC, REAL_US, host, small_network
from stepscope.errors import StepscopeError
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_result import reader as ascend_result

START_NS = REAL_US * 1000
PID, MAIN, LAUNCHER = 42, 7, 100  # calls of the small network are on thread 100


def record(head: bytes, **fields: str) -> bytes:
    """A record as both frameworks write it: fields are `f2="name"`."""
    body = head + b"".join(struct.pack("<HI", int(key[1:]), len(text.encode())) + text.encode() for key, text in fields.items())
    return struct.pack("<HI", 1, len(body)) + body


def operator(
    name: str, start_us: float, end_us: float, *, sequence: int = -1, forward: int = 0, thread: int = MAIN, **fields: str
) -> bytes:
    head = struct.pack("<3q4QB?", host(start_us), host(end_us), sequence, PID, thread, thread, forward, 0, False)
    return record(head, f2=name, **fields)


def mark(category: int, at_us: float, queue: int, thread: int, name: str) -> bytes:
    return record(struct.pack("<q4Q", host(at_us), category, queue, thread, PID), f1=name)


def block(address: int, at_us: float, size: int, total: int, what: int, thread: int = MAIN, component: int = 0) -> bytes:
    head = struct.pack("<7q2b3B2Q", address, host(at_us), size, total, 2 * total, total, 0, 20, 0, component, what, 0, thread, PID)
    return record(head)


def written(root: Path, files: dict[str, bytes], *, prof: bool = True, name: str = "host_42_20231114_ascend_pt") -> Path:
    folder = root / name
    (folder / "FRAMEWORK").mkdir(parents=True)
    for file, data in files.items():
        (folder / "FRAMEWORK" / file).write_bytes(data)
    if prof:
        small_network().write(folder / "PROF_000001_20231114221320000_ABCDEFGH")
    started = {"syscnt_enable": True, "freq": 100, "start_cnt": HOST_TICKS, "start_monotonic": MONOTONIC}
    ended = {"collectionTimeEnd": START_NS + 5_000, "MonotonicTimeEnd": MONOTONIC + 5_000}
    (folder / "profiler_info_3.json").write_text(
        json.dumps({"config": {"common_config": {"record_shapes": True}}, "start_info": started, "end_info": ended, "rank_id": 3})
    )
    return folder


# The first step of the small network launches its operators between 105 and 143 us, its all-reduce at 160.
TORCH = {
    "torch.op_range": b"".join(
        [
            operator("ProfilerStep#5", 0, 390),
            operator("ProfilerStep#6", 390, 2000),
            operator("aten::linear", 90, 100, sequence=1, f3="float;float", f4="16,32;32,8", f9="Net_0/Linear_0"),
            operator("aten::addmm", 91, 99, sequence=1),
            operator("AddmmBackward0", 200, 210, sequence=1, forward=MAIN),
            operator("c10d::allreduce_", 150, 195, thread=LAUNCHER),
            operator("enumerate(DataLoader)#_next", 2, 20),
        ]
    ),
    "torch.op_mark": b"".join(
        [
            mark(0, 95, 77, MAIN, "aten::addmm"),
            mark(1, 96, 77, MAIN, "aten::addmm"),
            mark(2, 104, 77, LAUNCHER, "aten::addmm"),
            mark(3, 114, 77, LAUNCHER, "aten::addmm"),
            mark(3, 115, 78, LAUNCHER, "aten::lost"),
        ]
    ),
}


@pytest.fixture
def torch_trace(tmp_path: Path) -> Trace:
    return stepscope.open(written(tmp_path, TORCH), cache=False)


def spans(trace: Trace, *kinds: str) -> list[dict[str, object]]:
    rows = trace.spans.filter(pl.col("kind").is_in(kinds)).sort("start_ns")
    return rows.with_columns(pl.col("name", "scope", "op_type", "kind").cast(pl.String)).collect().to_dicts()


def test_operators_of_the_host_are_read_with_shapes_types_and_modules(torch_trace: Trace) -> None:
    first = spans(torch_trace, "op")[0]
    assert (first["name"], first["start_ns"], first["dur_ns"]) == ("aten::linear", START_NS + 90_000, 10_000)
    assert (first["shapes"], first["dtypes"], first["scope"]) == ("[[16,32],[32,8]]", '["float","float"]', "Net_0/Linear_0")
    assert torch_trace.meta.ranks == [3] and torch_trace.meta.framework == "pytorch"


def test_a_kernel_belongs_to_the_operator_that_queued_its_launch(torch_trace: Trace) -> None:
    """It is launched at 107 us by the thread that takes from the queue what `aten::addmm` put there at 95 us."""
    kernels = spans(torch_trace, "kernel")
    operators = {row["span"]: row["name"] for row in spans(torch_trace, "op")}
    assert operators[kernels[0]["op"]] == "aten::addmm"
    assert kernels[0]["op_type"] == "MatMul" and kernels[1]["op"] is None
    collective = spans(torch_trace, "communication")[0]
    assert operators[collective["op"]] == "c10d::allreduce_"


def test_what_leaves_the_queue_and_a_backward_operator_know_what_they_come_from(torch_trace: Trace) -> None:
    by_name = {str(row["name"]): row for row in spans(torch_trace, "op", "api")}
    assert by_name["Dequeue@aten::addmm"]["flow_in"] == by_name["Enqueue@aten::addmm"]["span"]
    assert by_name["AddmmBackward0"]["flow_in"] == by_name["aten::addmm"]["span"]
    assert ("marks of the queue without a start or an end", 1) in torch_trace.problems.select("what", "lost").collect().rows()


def test_steps_are_the_frameworks_and_device_work_is_of_the_step_of_its_launch(torch_trace: Trace) -> None:
    steps = torch_trace.steps.sort("step").collect()
    assert steps["step"].to_list() == [5, 6]
    assert [row["step"] for row in spans(torch_trace, "kernel")] == [5] * 4 + [6] * 8
    assert [row["step"] for row in spans(torch_trace, "communication")] == [5, 6, 6]
    assert torch_trace.links().select("transfers", "bytes").rows() == [(3, 3 << 20)]


def test_calls_of_cann_and_operators_stand_side_by_side(torch_trace: Trace) -> None:
    labels = torch_trace.tracks.filter(pl.col("device").is_null()).sort("sort").select("label", pl.col("group").cast(pl.String)).collect()
    assert labels.rows() == [("Thread 7", "python3 42"), ("Thread 100", "python3 42"), ("Thread 100 CANN", "python3 42")]


def test_blocks_are_those_that_operators_took(tmp_path: Path) -> None:
    files = TORCH | {
        "torch.memory_usage": b"".join(
            [
                block(0x10, 92, 4096, 4096, 0),
                block(0x20, 106, 512, 4608, 0, LAUNCHER),
                block(0x10, 130, -4096, 512, 1),
                block(0x10, 140, 1024, 1536, 0),
                block(0x30, 150, -64, 1472, 1),
                block(0x40, 160, 256, 256, 0, component=1),
            ]
        )
    }
    trace = stepscope.open(written(tmp_path, files), cache=False)
    rows = trace.allocations.select(
        "address", "bytes", "alloc_ns", "free_ns", pl.col("op").cast(pl.String), pl.col("device").cast(pl.String)
    )
    found = {
        (address, size, alloc and alloc - START_NS, free and free - START_NS, op)
        for address, size, alloc, free, op, _ in rows.collect().iter_rows()
    }
    assert found == {
        (0x10, 4096, 92_000, 130_000, "aten::addmm"),
        (0x20, 512, 106_000, None, "aten::addmm"),  # through the queue
        (0x10, 1024, 140_000, None, None),
        (0x30, 64, None, 150_000, None),  # was there before
        (0x40, 256, 160_000, None, None),
    }
    counters = trace.counters.filter(pl.col("name") == "allocated npu 0").sort("at_ns").select("value").collect().to_series().to_list()
    assert counters == [4096.0, 4608.0, 512.0, 1536.0, 1472.0]
    assert trace.counters.filter(pl.col("name") == "WORKSPACE allocated npu 0").collect()["value"].to_list() == [256.0]


def test_pythons_calls_nest_and_modules_are_counted(tmp_path: Path) -> None:
    names = {1: "train.py(1): main", 2: "Linear######900", 3: "Linear######901", 4: "<built-in torch.relu>"}
    moments = [(1, 50, 0), (2, 85, 0), (4, 90, 2), (4, 95, 3), (2, 101, 1), (3, 102, 0), (3, 103, 1), (1, 200, 1), (9, 300, 1), (1, 310, 0)]
    files = TORCH | {
        "torch.python_tracer_func": b"".join(struct.pack("<4QB", host(at), MAIN, PID, key, tag) for key, at, tag in moments),
        "torch.python_tracer_hash": b"".join(record(struct.pack("<Q", key), f1=name) for key, name in names.items()),
        "torch.gc_record": struct.pack("<3Q", PID, host(400), host(410)),
    }
    trace = stepscope.open(written(tmp_path, files), cache=False)
    found = [(row["name"], row["start_ns"] - START_NS, row["dur_ns"]) for row in spans(trace, "python", "scope")]
    assert found == [
        ("train.py(1): main", 50_000, 150_000),
        ("nn.Module: Linear_0", 85_000, 16_000),
        ("<built-in torch.relu>", 90_000, 5_000),
        ("nn.Module: Linear_1", 102_000, 1_000),
        ("train.py(1): main", 310_000, 0),  # never returns
        ("GC", 400_000, 10_000),
    ]


def test_without_any_file_of_cann_the_folder_itself_says_how_its_counter_runs(tmp_path: Path) -> None:
    trace = stepscope.open(written(tmp_path, TORCH, prof=False), cache=False)
    assert {row["name"] for row in spans(trace, "op")} == {"aten::linear", "aten::addmm", "AddmmBackward0", "c10d::allreduce_"}
    assert spans(trace, "op")[0]["start_ns"] == START_NS + 90_000


def test_a_result_without_framework_files_is_read_from_its_raw_data(tmp_path: Path) -> None:
    folder = written(tmp_path, {})
    (folder / "FRAMEWORK").rmdir()
    trace = stepscope.open(folder, cache=False)
    assert trace.meta.ranks == [3] and len(spans(trace, "kernel")) == 12


@pytest.mark.parametrize("cut", [1, 3, 30, 70])
def test_a_record_that_is_cut_off_costs_only_itself(tmp_path: Path, cut: int) -> None:
    files = TORCH | {"torch.op_range": TORCH["torch.op_range"][:-cut]}
    trace = stepscope.open(written(tmp_path, files), cache=False)
    assert len(spans(trace, "op")) == 4 and spans(trace, "data") == []
    assert any("belong to no complete record" in what for what in trace.problems.select("what").collect().to_series())


def test_damaged_files_of_the_framework_raise_nothing_but_a_message(tmp_path: Path) -> None:
    """Texts that are no text, lengths beyond the end, files that are empty or doubled."""
    files = TORCH | {
        "torch.memory_usage": block(0x10, 92, 4096, 4096, 0) + block(0x10, 130, -4096, 512, 1),
        "torch.python_tracer_func": struct.pack("<4QB", host(50), MAIN, PID, 1, 0) + struct.pack("<4QB", host(60), MAIN, PID, 1, 1),
        "torch.python_tracer_hash": record(struct.pack("<Q", 1), f1="main"),
    }
    for seed in range(60):
        chance = random.Random(seed)
        spoilt = dict(files)
        for name in chance.sample(sorted(files), 2):
            data, at = files[name], chance.randrange(len(files[name]))
            junk = bytes(chance.randrange(256) for _ in range(chance.randint(1, 40)))
            spoilt[name] = chance.choice(
                [data[:at], data[at:], b"", data * 2, data[:at] + junk + data[at + len(junk) :], b"\xff" * len(data)]
            )
        folder = written(tmp_path / str(seed), spoilt, prof=False)
        try:
            trace = ascend_result.read(folder, Options(scratch=tmp_path))
            for name in trace.tables:
                trace.table(name).collect()
        except StepscopeError:
            continue


def test_beside_exports_only_what_they_lack_is_taken(tmp_path: Path) -> None:
    """The table of kernels alone has neither operators of the host nor memory; both are added to it."""
    folder = written(tmp_path, TORCH | {"torch.memory_usage": block(0x10, 92, 4096, 4096, 0)})
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    columns = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Stream ID"
    (output / "kernel_details.csv").write_text(f"{columns}\n5,MatMul1,MatMul,AI_CORE,{REAL_US}.000\t,10.0,3\n")
    trace = stepscope.open(folder, cache=False)
    assert [row["name"] for row in spans(trace, "kernel")] == ["MatMul1"]
    assert len(spans(trace, "op")) == 4
    assert trace.allocations.select("bytes").collect().to_series().to_list() == [4096]


# MindSpore


def range_(
    start_us: float,
    end_us: float,
    module: int,
    event: int,
    full: str,
    *,
    flow: int = 2**64 - 1,
    thread: int = MAIN,
    word: str = "op",
    stage: int = -1,
) -> bytes:
    times = (host(start_us), host(end_us))
    head = struct.pack("<5Qi3Hb3?", thread, flow, 1, *times, PID, module, event, max(stage, 0), 0, False, stage >= 0, False)
    return record(head, f13=word, f14=full)


def test_operators_and_memory_of_mindspore_are_read_and_joined_with_what_they_launched(tmp_path: Path) -> None:
    def memory(at_ns: int, address: int, size: int, used: int, owner: str) -> bytes:
        head = struct.pack("<i11QI4B", 0, MAIN, PID, at_ns, address, size, used, used, 8192, 0, 0, 0, 3, 0, 0, 0, 0)
        return record(head, f13=owner)

    files = {
        "mindspore.op_range": b"".join(
            [
                range_(10, 90, 0, 0, "", stage=5),
                range_(20, 30, 3, 28, "Default/net/MatMul-op1"),
                range_(25, 26, 3, 28, "flow", flow=9, word="flow"),
                range_(104, 114, 4, 4, "Default/net/MatMul-op1", thread=LAUNCHER, flow=9),
                range_(0, 0, 4, 4, "") .replace(struct.pack("<Q", host(0)), struct.pack("<Q", 0)),
            ]
        ),
        "mindspore.memory_usage": memory(START_NS + 100, 64, 4096, 4096, "Default/net/MatMul-op1")
        + memory(START_NS + 900, 64, 2**64 - 1, 0, ""),
    }  # fmt: skip
    trace = stepscope.open(written(tmp_path, files, name="host_42_20231114_ascend_ms"), cache=False)
    assert trace.meta.framework == "mindspore"
    operators = spans(trace, "op")
    assert [(row["name"], row["op_type"], row["scope"]) for row in operators] == [
        ("PynativeFramework::RunOp::Default/net/MatMul-op1", "MatMul", "Default/net"),
        ("Kernel::KernelLaunch::Default/net/MatMul-op1", "MatMul", "Default/net"),
    ]
    assert operators[1]["flow_in"] == operators[0]["span"]
    assert spans(trace, "kernel")[0]["op"] == operators[1]["span"]
    passes = ("FP_BP Time", "Iteration Refresh")  # of the iterations that the raw data marks
    assert [name for row in spans(trace, "annotation") if not (name := str(row["name"])).startswith(passes)] == ["RunOp"]
    assert ("records with invalid timestamps", 1) in trace.problems.select("what", "lost").collect().rows()
    row = trace.allocations.collect().row(0, named=True)
    assert (row["bytes"], row["alloc_ns"], row["free_ns"], row["op"]) == (4096, START_NS + 100, START_NS + 900, "Default/net/MatMul-op1")


def test_both_are_claimed_by_one_reader_alone(tmp_path: Path) -> None:
    folder = written(tmp_path, TORCH)
    assert ascend_result.sniff(folder)
    assert [source.format for source in stepscope.io.sources.find_sources(tmp_path)] == ["ascend_result"]
