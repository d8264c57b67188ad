"""The quirks of XPlane files. Expected values are by hand, or jax.profiler.ProfileData's, which shares no code with ours."""

import gzip
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from programs import needs
from stepscope.errors import DataError, UsageError
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.xplane import reader as xplane
from tiny import assert_rows

SAMPLES = Path(__file__).parent.parent / "samples" / "xplane"
FILES = sorted(SAMPLES.glob("*/*.xplane.pb*"))
CPU, GPU = SAMPLES / "jax-0.10.2-cpu" / "train.xplane.pb", SAMPLES / "jax-0.11.2-gpu" / "train.xplane.pb"


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read a file, or the bytes of one."""

    def reading(source: Path | bytes, **options: Any) -> Trace:
        path = source if isinstance(source, Path) else tmp_path / "it.xplane.pb"
        if isinstance(source, bytes):
            path.write_bytes(source)
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return xplane.read(path, Options(scratch=scratch, **options))

    return reading


# Against another reader of the same files.


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training recorded just now by the jax that is installed."""
    needs("jax")
    folder = tmp_path_factory.mktemp("recorded")
    subprocess.run([sys.executable, str(SAMPLES.parent / "record_xplane.py"), str(folder)], check=True, capture_output=True)
    return next(folder.glob("*/train.xplane.pb"))


@pytest.mark.parametrize("which", ["fresh", *range(len(FILES))], ids=["fresh", *(file.parent.name for file in FILES)])
def test_every_event_is_what_another_reader_finds(which: str | int, read: Any, request: pytest.FixtureRequest) -> None:
    needs("jax")
    jax = pytest.importorskip("jax")
    path = request.getfixturevalue("fresh") if which == "fresh" else FILES[int(which)]
    trace = read(path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    started = trace.meta.extra["profile_start_time"]
    mine = trace.spans.join(trace.tracks, on=["rank", "track"]).sort("span").collect()
    rows = mine.select(pl.col("group", "name").cast(pl.String), "label", "start_ns", "dur_ns", "args").iter_rows()
    others = jax.profiler.ProfileData.from_serialized_xspace(data)
    totals: dict[str, float] = defaultdict(float)
    for plane in others.planes:
        for line in plane.lines:
            for event in line.events:
                group, name, label, start, duration, args = next(rows)
                assert (group, label.removesuffix(" annotations"), name) == (plane.name, line.name, event.name)
                assert (start - started, duration) == (event.start_ns, event.duration_ns)
                document = json.loads(args, object_pairs_hook=list) if args else []
                assert [pair for pair in document if pair[0] not in ("registers per thread", "shared memory", "grid", "block")] == list(
                    event.stats
                )
                for key, value in event.stats:
                    if key == "hlo_op":
                        totals[str(value)] += event.duration_ns
    assert next(rows, None) is None
    by_op = mine.with_columns(hlo_op=pl.col("args").str.json_path_match("$.hlo_op")).group_by("hlo_op").agg(pl.col("dur_ns").sum())
    assert dict(by_op.filter(pl.col("hlo_op").is_not_null()).iter_rows()) == dict(totals)
    assert totals


# Real recordings.


def test_steps_are_the_step_trace_annotations(read: Any) -> None:
    for path in (CPU, GPU):
        steps = read(path).steps.collect()
        assert steps["step"].to_list() == [10, 11, 12, 13]
        assert steps.select(pl.col("model", "phase", "how").cast(pl.String)).unique().rows() == [("train", "train", "marker")]
        assert (steps["end_ns"][:-1] <= steps["start_ns"][1:]).all()
        inside = (
            (steps["start_ns"] <= steps["fp_start_ns"])
            & (steps["fp_start_ns"] < steps["bp_end_ns"])
            & (steps["bp_end_ns"] <= steps["end_ns"])
        )
        assert inside.all()


def test_a_step_on_the_cpu_runs_each_operation_once_per_device(read: Any) -> None:
    spans = read(CPU).spans.collect()
    ops = spans.filter(pl.col("kind").is_in(["op", "communication"]))
    calls = ops.group_by("step", "name").len()
    assert calls["step"].null_count() == 0 and set(calls["len"]) == {2}
    assert ops.filter(pl.col("kind") == "communication").select(pl.col("name", "op_type").cast(pl.String)).unique().rows() == [
        ("all-reduce.5", "all-reduce")
    ]
    assert_rows(
        ops.filter(pl.col("name").cast(pl.String).is_in(["dot.3", "ynn_fusion.2", "add_tanh_fusion.1", "copy_subtract_fusion"]))
        .select(pl.col("name", "op_type", "category", "shapes", "dtypes").cast(pl.String))
        .unique()
        .sort("name"),
        """
        name                  op_type          category                                           shapes             dtypes
        add_tanh_fusion.1     "loop_fusion"    jit(train)/jvp(mlp)/layer0/tanh                    [[16,64],[64]]     ["f32","f32"]
        copy_subtract_fusion  "loop_fusion"    jit(train)/sgd/sub                                 [[64,64],[64,64]]  ["f32","f32"]
        dot.3                 dot              jit(train)/transpose(jvp(mlp))/layer0/dot_general  [[16,64],[16,64]]  ["f32","f32"]
        ynn_fusion.2          "custom_fusion"  jit(train)/jvp(mlp)/layer0/dot_general             [[16,64],[64,64]]  ["f32","f32"]
        """,
    )


def test_a_step_on_the_gpu_runs_eleven_kernels_of_one_graph_launch(read: Any) -> None:
    trace = read(GPU)
    spans = trace.spans.collect()
    kernels = spans.filter(pl.col("kind") == "kernel")
    assert kernels.group_by("step").len().sort("step").rows() == [(10, 11), (11, 11), (12, 11), (13, 11)]
    launches = kernels.join(spans.select(flow_in="span", cause=pl.col("name").cast(pl.String), cause_kind=pl.col("kind")), on="flow_in")
    assert launches.select("cause", "cause_kind").unique().rows() == [("cuGraphLaunch (CudaGraph:2)", "api")]
    copies = spans.filter(pl.col("kind") == "copy")
    assert copies.select(pl.col("name").cast(pl.String), "bytes", "step").rows() == [
        ("MemcpyH2D", 32 * 64 * 4, step) for step in (10, 11, 12, 13)
    ]
    assert_rows(
        kernels.filter(pl.col("step") == 10).select(pl.col("name", "scope", "op_type").cast(pl.String)),
        """
        name                            scope                  op_type
        gemm_fusion_dot_general_5       jit(train)/mlp/layer0  "custom_fusion"
        gemm_fusion_dot_general_6       jit(train)/mlp/layer1  "custom_fusion"
        input_reduce_fusion             jit(train)/loss        "input_fusion"
        loop_multiply_fusion            jit(train)/loss        "loop_fusion"
        input_multiply_reduce_fusion_1  jit(train)/mlp/layer1  "input_fusion"
        loop_subtract_fusion            -                      "loop_fusion"
        gemm_fusion_dot_general_8       jit(train)/mlp/layer1  "custom_fusion"
        input_multiply_reduce_fusion    jit(train)/mlp/layer0  "input_fusion"
        gemm_fusion_dot_1               jit(train)/mlp/layer1  "custom_fusion"
        loop_subtract_fusion            -                      "loop_fusion"
        gemm_fusion_dot                 jit(train)/mlp/layer0  "custom_fusion"
        """,
    )
    assert_rows(
        trace.devices.collect(),
        """
        device  name           kind  cores  clock_hz    memory_bytes  peak_bandwidth
        0       "NVIDIA_H200"  gpu   132    1980000000  150109880320  4814304000000
        """,
    )
    assert trace.kernels().filter(pl.col("name") == "gemm_fusion_dot").select("grid", "block", "registers", "shared_memory_bytes").row(
        0
    ) == (
        "4x1x1",
        "128x1x1",
        55,
        8192,
    )


def test_allocator_events_of_the_gpu_become_blocks_and_a_counter(read: Any) -> None:
    trace = read(GPU)
    blocks = trace.allocations.filter(pl.col("device").cast(pl.String) == "gpu 0").collect()
    # The batches of steps 10 to 13, 32 x 64 floats each.
    assert blocks.filter(pl.col("bytes") == 8192).filter(pl.col("alloc_ns").is_not_null()).height >= 4
    both = blocks.filter(pl.col("alloc_ns").is_not_null() & pl.col("free_ns").is_not_null())
    assert both.height > 0 and (both["free_ns"] >= both["alloc_ns"]).all()
    counter = trace.counters.filter(pl.col("name").cast(pl.String) == "allocated gpu 0").collect()
    events = trace.spans.filter(
        pl.col("name").cast(pl.String).str.starts_with("Memory") & pl.col("args").str.contains("GPU_0_bfc")
    ).collect()
    expected_bytes = events.sort("start_ns", maintain_order=True)["args"].str.json_path_match("$.bytes_allocated").cast(pl.Float64)
    assert counter["value"].to_list() == expected_bytes.to_list()
    assert set(events["kind"]) == {"instant"}


def test_without_markers_the_whole_recording_is_one_step_and_says_so(read: Any) -> None:
    for path in (SAMPLES / "jax-0.10.2-cpu-no-steps" / "plain.xplane.pb.gz", SAMPLES / "jax-0.11.2-gpu-no-steps" / "plain.xplane.pb.gz"):
        trace = read(path)
        assert trace.steps.select("step", pl.col("how").cast(pl.String)).collect().rows() == [(0, "whole")]
        assert "no step markers" in trace.problems.collect()["what"][0]
        named = read(path).with_steps("loop body").steps.collect()
        assert named.select("step", pl.col("how").cast(pl.String)).rows() == [(number, "given") for number in range(4)]
        with pytest.raises(UsageError, match="nothing in the trace is named 'nonsense'"):
            read(path).with_steps("nonsense")


def test_packed_and_plain_files_give_the_same(read: Any, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(CPU.read_bytes()[:30_000]) + gzip.compress(CPU.read_bytes()[30_000:]))  # two members
    assert xplane.sniff(packed)
    assert_frame_equal(read(packed).spans.collect(), read(CPU).spans.collect(), categorical_as_str=True)


# Files made here, by an encoder that knows nothing of the reader.


class Ref(str):
    """A text that stands in the table of stat names."""


class Event(NamedTuple):
    name: str
    offset_ps: int
    dur_ps: int
    stats: dict[str, Any] = {}


def number(value: int) -> bytes:
    value &= 2**64 - 1
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)


def field(which: int, value: Any) -> bytes:
    if isinstance(value, int):
        return number(which << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(which << 3 | 2) + number(len(value)) + value


class PlaneBytes:
    """Encodes a plane: `line(...)` for each line, then `bytes()`."""

    def __init__(self, name: str, *, number: int = 0, stats: dict[str, Any] | None = None) -> None:
        self.head = (field(1, number) if number else b"") + field(2, name)
        self.lines, self.metadata = b"", b""
        self.names: dict[str, int] = {}
        self.stat_names: dict[str, int] = {}
        self.stats = b"".join(field(6, self.stat(*pair)) for pair in (stats or {}).items())

    def about(self, name: str, display: str = "", stats: dict[str, Any] | None = None) -> None:
        """Metadata of an event with more than a name."""
        which = self.names.setdefault(name, len(self.names) + 1)
        more = (field(4, display) if display else b"") + b"".join(field(5, self.stat(*pair)) for pair in (stats or {}).items())
        self.metadata += field(4, field(1, which) + field(2, field(1, which) + field(2, name) + more))

    def line(self, name: str, *events: Event, number: int = 1, timestamp_ns: int = 0) -> "PlaneBytes":
        body = b""
        for event in events:
            if event.name not in self.names:
                self.about(event.name)
            inner = field(1, self.names[event.name]) + field(2, event.offset_ps) + field(3, event.dur_ps)
            body += field(4, inner + b"".join(field(4, self.stat(*pair)) for pair in event.stats.items()))
        self.lines += field(3, field(1, number) + field(2, name) + field(3, timestamp_ns) + body)
        return self

    def stat(self, name: str, value: Any) -> bytes:
        import struct

        which = field(1, self.stat_id(name))
        if isinstance(value, Ref):
            return which + field(7, self.stat_id(value))
        if isinstance(value, float):
            return which + b"\x11" + struct.pack("<d", value)
        if isinstance(value, int):
            return which + field(4 if value < 2**63 else 3, value)
        return which + field(5 if isinstance(value, str) else 6, value)

    def stat_id(self, name: str) -> int:
        return self.stat_names.setdefault(str(name), len(self.stat_names) + 1)

    def bytes(self) -> bytes:
        names = b"".join(field(5, field(1, which) + field(2, field(1, which) + field(2, name))) for name, which in self.stat_names.items())
        return field(1, self.head + self.lines + self.metadata + names + self.stats)


def one_line(*events: Event, plane: str = "/host:CPU", line: str = "main", **more: Any) -> bytes:
    return PlaneBytes(plane).line(line, *events, **more).bytes()


def test_times_are_rounded_to_nanoseconds_at_both_ends(read: Any) -> None:
    trace = read(
        one_line(
            Event("a", 0, 1_499),  # 0 to 1
            Event("b", 1_499, 1_001),  # 1 to 3: it starts where a ends
            Event("c", 2_500, 100),  # 3 to 3
            Event("d", -1_500, 10),  # before the line's own time
            timestamp_ns=1_000,
        )
    )
    assert_rows(
        trace.spans.collect(),
        """
        name  start_ns  dur_ns
        a     1000      1
        b     1001      2
        c     1003      0
        d     999       0
        """,
    )


def test_times_count_from_the_start_of_the_recording_where_the_file_says_when_that_was(read: Any) -> None:
    environment = PlaneBytes("Task Environment", stats={"profile_start_time": 1_700_000_000_000_000_000}).bytes()
    relative, absolute = one_line(Event("a", 5_000, 0)), one_line(Event("b", 5_000, 0), timestamp_ns=1_700_000_000_000_000_001)
    starts = read(relative + absolute + environment).spans.collect()["start_ns"].to_list()
    assert starts == [1_700_000_000_000_000_005, 1_700_000_000_000_000_006]


def test_every_kind_of_stat_is_kept_as_json(read: Any) -> None:
    stats = {
        "small": 5,
        "negative": -7,
        "large": 2**64 - 1,
        "double": 0.25,
        "nan": float("nan"),
        "infinite": float("-inf"),
        "text": 'a "quoted" <b>ü</b>\n',
        "ref": Ref("shared text"),
        **{f"short {n}": text for n, text in enumerate(("", "\0", "a", "a\0", "seven b", "eight by"))},
        "bytes": b"\x00\xff",
    }
    events = [Event("e", number, 1, stats) for number in range(40)]  # many of one form are written together
    lonely = Event("f", 100, 1, {**stats, "more": 1})
    args = read(one_line(*events, lonely, Event("bare", 200, 1))).spans.collect()["args"].to_list()
    expected = {**stats, "nan": "NaN", "infinite": "-inf", "bytes": "AP8="}
    assert json.loads(args[0]) == expected
    assert len(set(args[:40])) == 1
    assert json.loads(args[40]) == {**expected, "more": 1}
    assert args[41] is None


def test_a_tpu_has_modules_steps_and_nested_operations(read: Any) -> None:
    plane = PlaneBytes(
        "/device:TPU:1",
        stats={"device_type_string": "TPU v4", "peak_teraflops_per_second": 275.0, "peak_hbm_bw_gigabytes_per_second": 1228.8},
    )
    plane.about("%while.1 = ...", "while.1", {"hlo_category": Ref("while")})
    plane.about(
        "%fusion.2 = f32[8] fusion(...)",
        "fusion.2",
        {
            "hlo_category": Ref("convolution fusion"),
            "flops": 1000,
            "bytes_accessed": 256,
            "tf_op": Ref("jit(f)/jvp(net)/dense/dot_general:"),
        },
    )
    plane.about("%all-reduce.7 = ...", "all-reduce.7", {"hlo_category": Ref("all-reduce")})
    plane.line("Steps", Event("4", 0, 100_000, {"group_id": 9}), Event("5", 100_000, 100_000, {"group_id": 10}), number=1)
    plane.line("XLA Modules", Event("jit_f(77)", 0, 90_000), number=2)
    plane.line(
        "XLA Ops",
        Event("%while.1 = ...", 0, 50_000),
        Event("%fusion.2 = f32[8] fusion(...)", 10_000, 20_000),
        Event("%all-reduce.7 = ...", 60_000, 10_000),
        Event("%fusion.2 = f32[8] fusion(...)", 120_000, 20_000, {"flops": 2000}),
        number=3,
    )
    plane.line("Async XLA Ops", Event("copy-start.3", 20_000, 5_000), Event("all-gather-start.1", 25_000, 5_000), number=4)
    plane.line("_counters_", Event("HBM read", 7_000, 0, {"counter_value": 12.5}), number=5)
    trace = read(plane.bytes())
    assert_rows(
        trace.spans.collect(),
        """
        name                kind           start_ns  dur_ns  self_ns  depth  step  scope         op_type               flops  bytes
        "4"                 step           0         100     100      0      4     -             -                     -      -
        "5"                 step           100       100     100      0      5     -             -                     -      -
        jit_f(77)           annotation     0         90      90       0      4     -             -                     -      -
        while.1             kernel         0         50      30       0      4     -             while                 -      -
        fusion.2            kernel         10        20      20       1      4     jit(f)/net/dense  "convolution_fusion"  1000   256
        all-reduce.7        communication  60        10      10       0      4     -             all-reduce            -      -
        fusion.2            kernel         120       20      20       0      5     jit(f)/net/dense  "convolution_fusion"  2000   256
        copy-start.3        copy           20        5       5        0      4     -             copy-start            -      -
        all-gather-start.1  communication  25        5       5        0      4     -             all-gather-start      -      -
        """,
    )
    assert_rows(
        trace.tracks.collect(),
        """
        track  group          label            kind        device  tid
        0      /device:TPU:1  Steps            annotation  1       "1"
        1      /device:TPU:1  "XLA_Modules"    annotation  1       "2"
        2      /device:TPU:1  "XLA_Ops"        stream      1       "3"
        3      /device:TPU:1  "Async_XLA_Ops"  stream      1       "4"
        4      /device:TPU:1  _counters_       counter     1       "5"
        """,
    )
    assert_rows(
        trace.steps.collect(),
        """
        step  start_ns  end_ns  how
        4     0         100     marker
        5     100       200     marker
        """,
    )
    assert_rows(trace.counters.collect(), "name value at_ns\n" + '"HBM_read" 12.5 7')
    assert_rows(
        trace.devices.collect(),
        """
        device  name      kind  peak_flops       peak_bandwidth
        1       "TPU_v4"  tpu   275000000000000  1228800000000
        """,
    )


def test_tensorflow_operations_are_known_by_their_names_and_launch_kernels(read: Any) -> None:
    host = PlaneBytes("/host:CPU").line(
        "tf_Compute/12",
        Event("train", 0, 900_000, {"_r": 1, "step_num": 3}),
        Event("Iterator::Root::Prefetch", 10_000, 20_000),
        Event("model/dense/MatMul:MatMul", 100_000, 100_000),
        Event("cuLaunchKernel", 150_000, 10_000, {"correlation_id": 42}),
        Event("cuStreamSynchronize", 300_000, 100_000),
        Event("MemcpyD2H", 420_000, 10_000, {"correlation_id": 44, "memcpy_details": "kind:DtoH size:64 dest:0 async:1"}),
        Event("EagerLocalExecute: Add", 500_000, 10_000),
        Event("MemoryAllocation", 510_000, 0, alloc("GPU_0_bfc", 4096, 64, tf_op="model/dense/MatMul", data_type=1, region_type="output")),
        Event("MemoryDeallocation", 520_000, 0, alloc("GPU_0_bfc", 4096, 0)),
        Event("MemoryDeallocation", 530_000, 0, alloc("cpu", 8192, 0)),
        Event("MemoryAllocation", 540_000, 0, alloc("GPU_0_bfc", 4096, 128)),
    )
    device = PlaneBytes("/device:GPU:0").line(
        "Stream #7(Compute)",
        Event("sgemm_128x64", 1_000_000, 50_000, {"correlation_id": 42, "tf_op": "model/dense/MatMul:MatMul"}),
        Event("ncclDevKernel_AllReduce_Sum_f32", 1_040_000, 30_000, {"correlation_id": 43}),
        Event("MemcpyD2H", 1_100_000, 5_000, {"correlation_id": 44, "memcpy_details": "kind:DtoH size:64 dest:0 async:1"}),
        Event("Memset", 1_110_000, 5_000, {"memset_details": "kind:device num_bytes:32 async:1"}),
    )
    device.line("XLA Ops", Event("fusion", 1_000_000, 50_000), number=2)
    trace = read(host.bytes() + device.bytes())
    assert trace.meta.framework == "tensorflow"
    assert_rows(
        trace.spans.collect(),
        """
        name                             kind           step  self_ns  depth  scope        op_type  op  flow_in  bytes
        train                            step           3     900      0      -            -        -   -        -
        Iterator::Root::Prefetch         data           3     20       0      -            -        -   -        -
        model/dense/MatMul:MatMul        op             3     90       0      model/dense  MatMul   -   -        -
        cuLaunchKernel                   api            3     10       1      -            -        -   -        -
        cuStreamSynchronize              sync           3     100      0      -            -        -   -        -
        MemcpyD2H                        api            3     10       0      -            -        -   -        -
        "EagerLocalExecute:_Add"         op             3     10       0      -            Add      -   -        -
        MemoryAllocation                 instant        3     0        0      model/dense  -        -   -        -
        MemoryDeallocation               instant        3     0        0      -            -        -   -        -
        MemoryDeallocation               instant        3     0        0      -            -        -   -        -
        MemoryAllocation                 instant        3     0        0      -            -        -   -        -
        sgemm_128x64                     kernel         3     50       0      model/dense  MatMul   2   3        -
        ncclDevKernel_AllReduce_Sum_f32  communication  -     30       1      -            -        -   -        -
        MemcpyD2H                        copy           3     5        0      -            -        -   5        64
        Memset                           set            -     5        0      -            -        -   -        32
        fusion                           annotation     -     50       0      -            -        -   -        -
        """,
    )
    assert_rows(
        trace.allocations.collect(),
        """
        device   address  bytes  alloc_ns  free_ns  op                  dtype    category
        "gpu_0"  4096     64     510       520      model/dense/MatMul  float32  output
        cpu      8192     64     -         530      -                   -        -
        "gpu_0"  4096     64     540       -        -                   -        -
        """,
    )
    assert_rows(
        trace.counters.collect(),
        """
        name               at_ns  value  unit
        "allocated_gpu_0"  510    64.0   bytes
        "allocated_gpu_0"  520    0.0    bytes
        "allocated_cpu"    530    0.0    bytes
        "allocated_gpu_0"  540    128.0  bytes
        """,
    )


def alloc(allocator: str, address: int, allocated: int, **more: Any) -> dict[str, Any]:
    return {"allocator_name": Ref(allocator), "addr": address, "allocation_bytes": 64, "bytes_allocated": allocated, **more}


def test_work_handed_to_another_thread_belongs_to_the_step_that_handed_it_over(read: Any) -> None:
    plane = PlaneBytes("/host:CPU", stats={"jax_version": "x"})
    plane.line(
        "python",
        Event("train", 0, 100_000, {"_r": 1, "step_num": 0}),
        Event("ThreadpoolListener::Record", 50_000, 0, {"_pt": 15, "_p": 1}),
        Event("send", 60_000, 5_000, {"_pt": 5, "_p": 2**64 - 3}),
        Event("train", 100_000, 100_000, {"_r": 1, "step_num": 1}),
        number=1,
    )
    plane.line(
        "worker",
        Event("ThreadpoolListener::StartRegion", 110_000, 0, {"_ct": 15, "_c": 1}),
        Event("dot.1", 120_000, 10_000, {"hlo_op": Ref("dot.1")}),
        Event("ThreadpoolListener::Record", 125_000, 0, {"_pt": 15, "_p": 2}),
        Event("ThreadpoolListener::StopRegion", 140_000, 0),
        Event("dot.2", 150_000, 10_000, {"hlo_op": Ref("dot.2")}),
        Event("receive", 160_000, 20_000, {"_ct": 5, "_c": 2**64 - 3}),
        Event("dot.3", 165_000, 5_000, {"hlo_op": Ref("dot.3")}),
        number=2,
    )
    plane.line(
        "helper",
        Event("ThreadpoolListener::StartRegion", 180_000, 0, {"_ct": 15, "_c": 2}),
        Event("dot.4", 190_000, 5_000, {"hlo_op": Ref("dot.4")}),
        number=3,
    )
    spans = read(plane.bytes()).spans.collect()
    assert_rows(
        spans.filter(pl.col("kind") == "op").select("name", "step", "op_type"),
        """
        name   step  op_type
        dot.1  0     dot
        dot.2  1     dot
        dot.3  0     dot
        dot.4  0     dot
        """,
    )
    links = spans.filter(pl.col("flow_in").is_not_null()).select("span", "flow_in").rows()
    assert links == [(4, 1), (9, 2), (11, 6)]


def test_a_marker_around_markers_is_an_epoch_not_a_step(read: Any) -> None:
    events = [Event("epoch", 0, 1_000_000, {"step_num": 0}), *(Event("train", n * 300_000, 200_000, {"step_num": n}) for n in range(3))]
    steps = read(one_line(*events)).steps.collect()
    assert steps.select("step", "start_ns", "end_ns").rows() == [(0, 0, 200), (1, 300, 500), (2, 600, 800)]


def test_without_a_description_of_the_program_the_type_is_the_name_without_its_number(read: Any) -> None:
    names = ("fusion.12", "dot.3.remat.1", "command_buffer_57", "all-reduce-start.4")
    device = PlaneBytes("/device:GPU:0").line("Stream #1", *(Event(f"kernel of {name}", 0, 1, {"hlo_op": Ref(name)}) for name in names))
    spans = read(device.bytes()).spans.collect()
    assert spans.select(pl.col("op_type", "kind").cast(pl.String)).rows() == [
        ("fusion", "kernel"),
        ("dot.3.remat", "kernel"),
        ("command_buffer", "kernel"),
        ("all-reduce-start", "communication"),
    ]


def test_a_tpu_that_runs_behind_its_host_keeps_the_numbers_of_its_steps(read: Any) -> None:
    host = PlaneBytes("/host:CPU").line("python", *(Event("train", n * 10_000, 10_000, {"step_num": n}) for n in range(2)))
    device = PlaneBytes("/device:TPU:0").line("Steps", Event("0", 12_000, 9_000), Event("1", 30_000, 9_000))
    device.line("XLA Ops", Event("dot.1", 13_000, 5_000), Event("dot.1", 31_000, 5_000), Event("dot.2", 50_000, 1_000), number=2)
    spans = read(host.bytes() + device.bytes()).spans.collect()
    assert spans.filter(pl.col("kind") == "kernel")["step"].to_list() == [0, 1, None]


def test_a_program_that_cannot_be_read_is_said_and_the_trace_stands(read: Any) -> None:
    metadata = PlaneBytes("/host:metadata")
    metadata.about("jit_f(5)", stats={"Hlo Proto": b"\x0a\x7f"})
    work = one_line(Event("dot.1", 0, 1_000, {"hlo_op": Ref("dot.1"), "program_id": 5}))
    trace = read(metadata.bytes() + work)
    assert trace.spans.select(pl.col("op_type").cast(pl.String)).collect().to_series().to_list() == ["dot"]
    assert "the description of program 5 cannot be read" in trace.problems.collect()["what"][0]


def test_steps_whose_numbers_repeat_are_counted(read: Any) -> None:
    events = [Event("train", 0, 10_000, {"step_num": 7}), Event("eval", 20_000, 10_000, {"step_num": 7})]
    trace = read(one_line(*events))
    assert trace.steps.select("step", pl.col("model", "phase").cast(pl.String)).collect().rows() == [
        (0, "train", "train"),
        (1, "eval", "infer"),
    ]
    assert "repeat their numbers" in trace.problems.collect()["what"][0]


def test_markers_stand_beside_the_frames_that_open_and_close_them(read: Any) -> None:
    data = one_line(
        Event("$annotate.py:1 enter", 0, 5_000), Event("train", 3_000, 90_000, {"step_num": 0}), Event("$f.py:2 step", 9_000, 70_000)
    )
    trace = read(data)
    assert_rows(
        trace.spans.collect(),
        """
        name                    track  depth  self_ns
        "$annotate.py:1_enter"  0      0      5
        train                   1      0      90
        "$f.py:2_step"          0      0      70
        """,
    )
    assert_rows(
        trace.tracks.collect(),
        """
        track  label               kind        tid  sort
        1      "main_annotations"  annotation  "1"  0
        0      main                thread      "1"  1
        """,
    )


def test_lines_of_one_id_and_name_are_one_track(read: Any) -> None:
    plane = (
        PlaneBytes("/host:CPU")
        .line("a", Event("x", 0, 1), number=5)
        .line("a", Event("y", 0, 1), number=5)
        .line("b", Event("z", 0, 1), number=5)
    )
    trace = read(plane.bytes())
    assert trace.spans.collect()["track"].to_list() == [0, 0, 1]
    assert trace.tracks.collect()["label"].to_list() == ["a", "b"]


def test_what_the_profiler_could_not_do_is_said(read: Any) -> None:
    plane = PlaneBytes("/device:GPU:0", stats={"dropped_traces": 12}).line("Stream #1", Event("k", 0, 1))
    counted = field(1, 1) + field(5, 30) + field(3, 7)  # an event that counts occurrences and has no start
    plane.lines += field(3, field(2, "sums") + field(4, counted))
    problems = read(plane.bytes() + field(2, "no permission") + field(3, "clock is coarse")).problems.collect()
    assert_rows(
        problems.filter(~pl.col("what").str.contains("no step markers")),
        """
        where          what                                             lost
        ""             "the_profiler_reports_an_error:_no_permission"   0
        ""             "the_profiler_warns:_clock_is_coarse"            0
        /device:GPU:0  "the_profiler_dropped_12_events"                 12
        ""             "1_event_is_a_count_without_a_time:_left_out"    1
        """,
    )


# Hosts of one run lie in one folder.


def test_a_folder_of_hosts_has_a_rank_per_host(read: Any, tmp_path: Path) -> None:
    run = tmp_path / "plugins" / "profile" / "2026_11_15_10_00_00"
    run.mkdir(parents=True)
    for host in ("host-10", "host-2"):
        data = one_line(Event(f"work of {host}", 1_000, 1_000)) + field(4, host)
        (run / f"{host}.xplane.pb").write_bytes(data)
    (run / "host-2.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert xplane.sniff(run) and not xplane.sniff(run.parent)
    trace = read(run)
    assert trace.spans.select("rank", pl.col("name").cast(pl.String)).collect().rows() == [(0, "work of host-2"), (1, "work of host-10")]
    assert trace.meta.ranks == [0, 1]


def test_ranks_in_the_names_of_files_count(read: Any, tmp_path: Path) -> None:
    for rank in (4, 2):
        (tmp_path / f"rank{rank}.xplane.pb").write_bytes(one_line(Event("x", 0, 5_000)))
    assert sorted(read(tmp_path).meta.ranks) == [2, 4]


def test_two_recordings_of_one_host_are_not_two_ranks(read: Any, tmp_path: Path) -> None:
    for name, start in (("monday", 0), ("tuesday", 10**15)):
        (tmp_path / f"{name}.xplane.pb").write_bytes(one_line(Event("x", start, 1_000)) + field(4, "host"))
    with pytest.raises(DataError, match=r"two recordings, one after the other: monday.xplane.pb and tuesday.xplane.pb"):
        read(tmp_path)


def test_a_given_rank_is_taken(read: Any) -> None:
    assert read(one_line(Event("x", 0, 1)), rank=3).spans.collect()["rank"].to_list() == [3]


# What is not ours, and what is damaged.


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\nhello, this is text that starts with a line feed",
        b'{"traceEvents": [{"ph": "X"}]}',
        b"\x1f\x8b\x08\x00 not really gzip",
        gzip.compress(b'{"traceEvents": []}', mtime=0),
        field(1, field(1, "jit_step") + field(2, "main")),  # an HloProto
        field(1, field(1, 3) + field(2, 4)) * 3,  # a pprof profile
        field(1, field(1, 1) + field(2, b"\x00\x01\x02\x03") + field(3, b"")),  # a name that is no text
        field(1, field(2, "/host:CPU") + field(9, "")) + bytes(12),  # a field that planes do not have
        bytes(range(256)) * 20,
        field(2, "only an error"),
    ],
)
def test_other_files_are_not_claimed(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not xplane.sniff(path)


@given(st.binary(max_size=300))
def test_noise_is_not_claimed_and_never_breaks_the_sniffer(noise: bytes) -> None:
    assert xplane._starts_with_plane(noise) in (True, False)
    assert not xplane._starts_with_plane(b"\x0a\xff" + noise[:0] + bytes(noise))


def test_planes_are_claimed_whatever_comes_first(tmp_path: Path) -> None:
    for data in (
        one_line(Event("x", 0, 1)),
        PlaneBytes("/host:CPU", number=7).line("a").bytes(),
        field(1, b"") + one_line(),
        PlaneBytes("Task Environment", stats={"a": 1}).bytes(),
        PlaneBytes("/host:metadata", stats={"x": b"\x00" * 100_000}).bytes(),
    ):
        path = tmp_path / "it"
        path.write_bytes(data)
        assert xplane.sniff(path)
        path.write_bytes(gzip.compress(data))
        assert xplane.sniff(path)


def test_a_file_without_events_is_refused(read: Any) -> None:
    with pytest.raises(DataError, match="the trace holds no events"):
        read(PlaneBytes("/host:CPU").line("empty").bytes())


def planes() -> tuple[bytes, bytes]:
    first = PlaneBytes("/host:CPU").line("a", *(Event(f"e{n}", n * 1_000, 500, {"k": n}) for n in range(5)))
    return first.bytes(), PlaneBytes("/host:other").line("b", *(Event(f"f{n}", n * 1_000, 500) for n in range(5))).bytes()


def test_a_file_cut_anywhere_is_refused_and_read_in_part_on_request(read: Any) -> None:
    """Of the cut file exactly the events that are whole come back; a cut between two planes cannot be seen."""
    first, second = planes()
    data = first + second
    ends = [data.index(event) + len(event) for event in (field(4, inner) for inner in inner_events())]
    assert len(ends) == 10
    for end in set(range(1, len(data))) - {len(first)}:
        with pytest.raises(DataError, match="byte"):
            read(data[:end])
        whole = sum(one <= end for one in ends)
        if whole == 0:
            with pytest.raises(DataError, match="holds no events"):
                read(data[:end], partial=True)
            continue
        trace = read(data[:end], partial=True)
        assert trace.spans.collect().height == whole
        problem_rows = trace.problems.collect()
        assert any("cut off" in what for what in problem_rows["what"]) and problem_rows["lost"].sum() >= 1


def inner_events() -> list[bytes]:
    """The ten events of `planes`, written out once more."""
    times = [field(1, n + 1) + field(2, n * 1_000) + field(3, 500) for n in range(5)]
    return [*(time + field(4, field(1, 1) + field(4, n)) for n, time in enumerate(times)), *times]


def test_a_cut_before_the_names_leaves_events_without_names(read: Any) -> None:
    data = one_line(*(Event(f"e{n}", n, 1) for n in range(3)))
    trace = read(data[: data.index(b"e0") - 8], partial=True)
    assert trace.spans.collect()["name"].cast(pl.String).to_list() == ["event 1", "event 2", "event 3"]
    assert any("3 events have no name" in what for what in trace.problems.collect()["what"])


@pytest.mark.parametrize("event", [Event("x", 0, -5), Event("x", 2**62, 1), Event("x", -(2**62), 1), Event("x", 0, 2**62)])
def test_an_event_at_no_time_is_refused_and_left_out_on_request(event: Event, read: Any) -> None:
    data = one_line(Event("good", 0, 1), event)
    with pytest.raises(DataError, match=r"byte [\d,]+: an event at .* ps that lasts .* ps"):
        read(data)
    trace = read(data, partial=True)
    assert trace.spans.collect()["name"].cast(pl.String).to_list() == ["good"]
    assert trace.problems.collect()["lost"].sum() == 1


def test_an_event_with_a_damaged_stat_is_left_out_on_request(read: Any) -> None:
    plane = PlaneBytes("/host:CPU").line("a", Event("good", 0, 1), Event("bad", 0, 1, {"k": 5}))
    stat = field(1, 1) + field(4, 5)
    data = plane.bytes().replace(stat, stat[:2] + b"\x0d\x05")
    with pytest.raises(DataError, match="field 1 has wire type 5"):
        read(data)
    trace = read(data, partial=True)
    assert trace.spans.collect()["name"].cast(pl.String).to_list() == ["good"]
    assert trace.problems.collect()["lost"].sum() == 1


def test_a_line_at_no_time_is_refused(read: Any) -> None:
    with pytest.raises(DataError, match="a line that starts at"):
        read(one_line(Event("x", 0, 1), timestamp_ns=2**63 - 1))


@pytest.mark.parametrize(
    "data",
    [
        one_line(Event("x", 0, 1)) + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of -1
        one_line(Event("x", 0, 1)) + b"\x0a\xff\xff\xff\xff\x7f",  # 32 GiB
        one_line(Event("x", 0, 1)) + b"\x0a" + b"\xff" * 20,
        one_line(Event("x", 0, 1)) + b"\x08\x01",
        one_line(Event("x", 0, 1)) + b"\x0b" * 1_000_000,  # a million groups, one in the other
        one_line(Event("x", 0, 1)) + field(1, b"\x12\x01a" + field(3, b"\x22\x7f")),
    ],
)
def test_hostile_lengths_and_types_are_one_error(data: bytes, read: Any) -> None:
    with pytest.raises(DataError, match="byte"):
        read(data)
    assert read(data, partial=True).spans.collect()["name"].cast(pl.String).to_list() == ["x"]


def test_more_planes_or_lines_than_any_recording_has_are_refused(read: Any) -> None:
    with pytest.raises(DataError, match="10,001 planes"):
        read(field(1, b"") * 10_001)
    with pytest.raises(DataError, match="a plane of 1,000,001 lines"):
        read(field(1, field(2, "/host:CPU") + field(3, b"") * 1_000_001))


def test_a_damaged_or_cut_gzip_file_is_refused_and_read_in_part_on_request(read: Any, tmp_path: Path) -> None:
    packed = gzip.compress(CPU.read_bytes())
    path, events = tmp_path / "it.gz", read(CPU).spans.collect().height
    for content, what, all_there in (
        (packed[: len(packed) * 4 // 5], "the gzip data is cut off", False),
        (packed[:-8] + bytes(8), "the gzip data is damaged", True),  # only its checksum is wrong
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=what):
            read(path)
        trace = read(path, partial=True)
        found = trace.spans.collect().height
        assert found == events if all_there else 0 < found < events
        assert any(what in output for output in trace.problems.collect()["what"])


def test_a_gzip_file_that_unpacks_to_more_than_any_of_ours_is_refused(read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.xplane.pb.gz"
    path.write_bytes(gzip.compress(one_line(Event("x", 0, 1)) + bytes(50_000_000)))
    monkeypatch.setattr(xplane, "_LARGEST", 20_000_000)
    with pytest.raises(DataError, match="unpacks to more than 20,000,000 bytes"):
        read(path)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_recording_with_any_bytes_changed_is_read_or_refused(data: st.DataObject, read: Any) -> None:
    content = bytearray(data.draw(st.sampled_from([b"".join(planes()), CPU.read_bytes(), GPU.read_bytes()])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for partial in (False, True):
        try:
            trace = read(bytes(content), partial=partial)
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert trace.spans.collect().height > 0
