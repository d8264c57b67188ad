from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
import tiny
from programs import needs

H200 = """
    device  kind  name
    0       gpu   "NVIDIA_H200"
"""
STREAM = """
    track  kind    device
    0      thread  -
    1      stream  0
"""


def test_a_product_counts_two_for_each_multiply_add_over_the_time_of_its_kernels() -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name          op_type       op  start_ns  dur_ns  shapes                      dtypes
            0     0      op      aten::linear  aten::linear  -   0         900     [[64,128],[256,128],[256]]  ["half","half","half"]
            1     0      op      aten::addmm   aten::addmm   -   10        800     [[256],[64,128],[128,256]]  ["half","half","half"]
            2     1      kernel  gemm          aten::addmm   1   1000      40      -                           -
            3     1      kernel  splitK        aten::addmm   1   1040      10      -                           -
            4     0      op      aten::bmm     aten::bmm     -   2000      100     [[8,2,4],[8,4,3]]           ["float","float"]
        """,
        tracks=STREAM,
        devices=H200,
    )
    # 2 x 64 x 256 x 128 = 4,194,304 in 50 ns is 83.9 TFLOP/s, of 989.4. The product of the host: 2 x 8 x 2 x 3 x 4 = 384 in 100 ns.
    tiny.assert_rows(
        trace.flops(),
        """
        rank  device  name         calls  flops    share     time_ns  flops_per_s       utilization  precision  how            unknown_calls
        0     gpu     aten::addmm  1      4194304  0.999908  50       83886080000000.0  0.084785     fp16       "from_shapes"  0
        0     cpu     aten::bmm    1      384      0.000092  100      3840000000.0      -            fp32       "from_shapes"  0
        """,
    )
    assert trace.flops()["peak_source"].to_list() == [
        "H200 SXM, fp16: NVIDIA H200 data sheet, halved for density",
        "no peak is known for a host",
    ]


def test_recorded_flops_precede_those_of_shapes_and_an_operator_counts_once() -> None:
    trace = tiny.trace(
        spans="""
            kind  name          start_ns  dur_ns  flops  shapes
            op    aten::conv2d  0         100     700    [[1,1,4,4],[1,1,2,2]]
            op    aten::mm      10        50      -      [[2,3],[3,4]]
            op    aten::mm      200       50      -      [[2,3],[3,4]]
        """
    )
    tiny.assert_rows(
        trace.flops(),
        """
        name          calls  flops  time_ns  how
        aten::conv2d  1      700    100      recorded
        aten::mm      1      48     50       "from_shapes"
        """,
    )


def test_of_an_operator_that_calls_itself_with_other_types_the_inner_one_counts() -> None:
    trace = tiny.trace(
        spans="""
            kind  name         start_ns  dur_ns  shapes             dtypes
            op    aten::addmm  0         100     [[4],[2,3],[3,4]]  ["float","float","float"]
            op    aten::addmm  10        50      [[4],[2,3],[3,4]]  ["c10::BFloat16","c10::BFloat16","c10::BFloat16"]
        """
    )
    tiny.assert_rows(
        trace.flops(),
        """
        name         calls  flops  time_ns  precision
        aten::addmm  1      48     50       bf16
        """,
    )


def test_32_bit_products_on_tensor_cores_are_held_against_tf32() -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name                         op  start_ns  dur_ns  shapes                  dtypes
            0     0      op      aten::mm                     -   0         9       [[100,100],[100,100]]  ["float","float"]
            1     1      kernel  sm80_xmma_gemm_f32f32_tf32f32  0   10        100     -                       -
            2     0      op      aten::bmm                    -   10        9       [[1,100,100],[1,100,100]]  ["float","float"]
            3     1      kernel  ampere_sgemm_128x64_nn       2   200       100     -                       -
        """,
        tracks=STREAM,
        devices=H200,
    )
    # 2e6 FLOP in 100 ns are 20 TFLOP/s: of 494.7 and of 67.
    tiny.assert_rows(
        trace.flops(),
        """
        name       precision  utilization
        aten::bmm  fp32       0.298507
        aten::mm   tf32       0.040429
        """,
    )


@pytest.mark.parametrize(
    ("devices", "source"),
    [
        ("device kind name\n0 gpu Wonderchip", "unknown chip: Wonderchip"),
        ("device kind name\n0 gpu T4\n", "T4: no peak for bf16"),
        ("device kind name\n- cpu EPYC\n", "the trace does not name the chip"),
        ("device kind name\n0 gpu T4\n1 gpu A10\n", "T4: no peak for bf16"),
    ],
)
def test_without_a_known_peak_there_is_no_utilization_and_peak_source_has_the_reason(devices: str, source: str) -> None:
    trace = tiny.trace(
        spans="""
            span  track  kind    name      op  start_ns  dur_ns  shapes         dtypes
            0     0      op      aten::mm  -   0         9       [[2,3],[3,4]]  ["c10::BFloat16","c10::BFloat16"]
            1     1      kernel  k         0   10        100     -              -
        """,
        tracks=STREAM,
        devices=devices,
    )
    assert trace.flops().select("flops", "utilization", "peak_source").row(0) == (48, None, source)


def test_a_peak_that_the_source_names_serves_where_the_table_does_not() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name    start_ns  dur_ns  flops
            1      kernel  fusion  0         100     5000
        """,
        tracks=STREAM,
        devices="device kind name peak_flops\n0 gpu Wonderchip 100000000000",
    )
    tiny.assert_rows(
        trace.flops(),
        """
        device  name    flops  flops_per_s    utilization  how       peak_source
        gpu     fusion  5000   50000000000.0  0.5          recorded  "Wonderchip:_as_recorded"
        """,
    )


def test_calls_of_unknown_flops_are_counted_and_change_no_rate() -> None:
    trace = tiny.trace(
        spans="""
            kind  name               start_ns  dur_ns  shapes
            op    aten::mm           0         10      [[2,3],[3,4]]
            op    aten::mm           10        90      -
            op    aten::mm           100       90      [[2,3],[5,4]]
            op    aten::convolution  200       90      [[1,1,4,4],[1,1,2,2]]
            op    aten::relu         300       90      [[2,3]]
        """
    )
    tiny.assert_rows(
        trace.flops(),
        """
        name               calls  unknown_calls  flops  time_ns  flops_per_s   how
        aten::mm           3      2              48     10       4800000000.0  "from_shapes;_no_shapes;_unknown"
        aten::convolution  1      1              -      0        -             unknown
        """,
    )


@pytest.mark.parametrize(
    "shapes",
    ["[[2,3],[3]]x", "[]", "[[],[]]", "[[2,3],[3.5,4]]", "[[2000000,2000000],[2000000,2000000]]", '{"a":1}', "7", '[["a","b"],["b","c"]]'],
)
def test_shapes_that_make_no_sense_give_no_flops(shapes: str) -> None:
    spans = f"kind name start_ns dur_ns shapes\nop aten::mm 0 9 {shapes}\nop aten::mm 9 9 [[2,3],[3,4]]"
    assert tiny.trace(spans=spans).flops().select("calls", "unknown_calls", "flops").rows() == [(2, 1, 48)]


def test_a_trace_without_operators_has_no_rows() -> None:
    assert tiny.trace().flops().height == 0
    assert tiny.trace(spans="kind name start_ns dur_ns\nop aten::relu 0 1").flops().height == 0


def test_flops_from_shapes_are_those_that_torch_counts(tmp_path: Path) -> None:
    needs("torch")
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    def step() -> None:
        class Net(torch.nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.strided = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
                self.dilated = torch.nn.Conv2d(4, 6, (3, 2), padding=(2, 0), dilation=(2, 1), bias=False)
                self.transposed = torch.nn.ConvTranspose2d(6, 2, 3, stride=2, output_padding=1)
                self.sequence = torch.nn.Conv1d(2, 8, 5)
                self.linear = torch.nn.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                x = self.transposed(self.dilated(self.strided(x))).flatten(2)
                x = self.linear(self.sequence(x).transpose(1, 2).contiguous())
                scores = torch.baddbmm(torch.zeros(1), x, x.transpose(1, 2))
                return torch.bmm(scores.softmax(-1), x) @ torch.ones(8, 3)

        Net()(torch.ones(2, 3, 10, 12)).square().mean().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    expected = {f"aten::{operator.__name__}": flops for operator, flops in counter.get_flop_counts()["Global"].items()}
    got = _profiled(torch, tmp_path, step)
    assert dict(got.select("name", "flops").iter_rows()) == expected
    assert set(got["name"]) == {
        "aten::convolution", "aten::convolution_backward", "aten::mm", "aten::bmm", "aten::baddbmm", "aten::addmm",
    }  # fmt: skip
    assert set(got["how"]) == {"from shapes"}


def test_attention_counts_its_two_products_and_their_gradients(tmp_path: Path) -> None:
    needs("torch")
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def step() -> None:
        query, key, value = (torch.ones(2, 4, size, 16, requires_grad=True) for size in (32, 48, 48))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()

    got = dict(_profiled(torch, tmp_path, step).select("name", "flops").iter_rows())
    pair = 2 * 2 * 4 * 32 * 48 * 16  # one product of queries and keys: 2 x batch x heads x 32 x 48 x 16
    assert got == {
        "aten::_scaled_dot_product_flash_attention_for_cpu": 2 * pair,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 5 * pair,
    }


def test_a_grouped_convolution_counts_only_within_its_groups(tmp_path: Path) -> None:
    needs("torch")
    torch = pytest.importorskip("torch")

    def step() -> None:
        weight = torch.ones(6, 1, 3, 3, requires_grad=True)
        torch.nn.functional.conv2d(torch.ones(2, 6, 10, 10), weight, groups=6).sum().backward()

    got = dict(_profiled(torch, tmp_path, step).select("name", "flops").iter_rows())
    once = 2 * 2 * (8 * 8) * 6 * (3 * 3)  # 2 x batch x points x channels x filter; of the gradients only that of the weight is asked for
    assert got == {"aten::convolution": once, "aten::convolution_backward": once}


def _profiled(torch: Any, folder: Path, step: Any) -> pl.DataFrame:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        step()
    profile.export_chrome_trace(str(folder / "trace.json"))
    return stepscope.open(folder / "trace.json", cache=False).flops()


def test_resnet_50_has_the_flops_of_the_literature(shared: Path) -> None:
    rows = stepscope.open(shared / "torch_h200" / "resnet50_full.json.gz", cache=False).flops()
    forward = rows.filter(pl.col("name").is_in(["aten::convolution", "aten::addmm"]))["flops"].sum()
    images = 2 * 64  # steps and batch
    assert forward / images == pytest.approx(2 * 4.09e9, rel=0.005)  # torchvision: 4.09 G multiply-adds for an image of 224 x 224
    assert rows["utilization"].is_between(0.01, 1).all()
    assert rows["unknown_calls"].sum() == 0


MIXED = """
    span  track  kind    name       op_type    op  start_ns  dur_ns  step  shapes                dtypes
    0     0      op      aten::mm   aten::mm   -   0         20      1     [[64,128],[128,256]]  ["half","half"]
    1     1      kernel  gemm       aten::mm   0   30        40      1     -                     -
    2     0      op      aten::bmm  aten::bmm  -   50        10      1     [[8,2,4],[8,4,3]]     ["float","float"]
"""
ONE_STEP = """
    step  start_ns  end_ns
    1     0         100
"""


def test_an_operator_on_the_host_does_not_hide_the_use_of_the_chip() -> None:
    """4,194,304 in 40 ns is 104.9 TFLOP/s of 989.4; the 384 of the host have no peak."""
    trace = tiny.trace(spans=MIXED, tracks=STREAM, devices=H200, steps=ONE_STEP)
    texts = trace.verdict(topic="flops")["text"].to_list()
    assert texts[0].startswith("10.6 % of the fp16 peak of NVIDIA H200")
    assert "384 FLOP more in 1 call of matrix operators on the CPU." in texts
    assert trace.overview()["utilization"][0] == pytest.approx(4_194_304 / 989.4e12 * 1e9 / 100, rel=1e-3)


def test_an_operator_whose_launch_has_no_kernel_did_not_run_on_the_host() -> None:
    """The record of one kernel of thirty is lost: its step still counts as complete."""
    launched = "".join(
        f'\n{n} 0 op aten::mm aten::mm - {n} 9 [[64,128],[128,256]] ["half","half"] - 0'
        f"\n{n + 1} 0 api cudaLaunchKernel - - {n + 1} 2 - - - 0"
        + ("" if n == 150 else f"\n{n + 2} 1 kernel gemm aten::mm {n} {n + 3} 5 - - {n + 1} 0")
        for n in range(0, 300, 10)
    )
    spans = "span track kind name op_type op start_ns dur_ns shapes dtypes flow_in step" + launched
    trace = tiny.trace(spans=spans, tracks=STREAM, devices=H200, steps="step start_ns end_ns\n0 0 300")
    assert trace.overview()["device_data"].item() == "complete"
    tiny.assert_rows(
        trace.flops(),
        """
        device  calls  flops      time_ns
        gpu     29     121634816  145
        -       1      4194304    0
        """,
    )
    assert not [text for text in trace.verdict(topic="flops")["text"] if "CPU" in text]


def test_the_device_of_an_operator_is_unknown_where_no_kernel_is_linked_to_one() -> None:
    trace = tiny.trace(spans=MIXED.replace("aten::mm   0   30", "aten::mm   -   30"), tracks=STREAM, devices=H200, steps=ONE_STEP)
    assert trace.flops().select("device", "time_ns", "flops_per_s").rows() == [(None, 0, None)] * 2
    assert trace.verdict(topic="flops")["text"][0] == "4.19 MFLOP in matrix operators. Their time is not recorded."


def test_rates_leave_out_steps_whose_kernels_are_not_all_recorded() -> None:
    """Step 2 computes as much as step 1 and lost its kernel: at the time of step 1, its rate would seem to be twice as high."""
    spans = (
        MIXED
        + """    3     0      op      aten::mm   aten::mm   -   100       20      2     [[64,128],[128,256]]  ["half","half"]
    4     0      op      aten::mm   aten::mm   -   150       20      2     [[64,128],[128,256]]  ["half","half"]
    5     1      kernel  gemm       aten::mm   3   130       10      2     -                     -
"""
    )
    steps = ONE_STEP + "    2     100       200\n"
    trace = tiny.trace(spans=spans, tracks=STREAM, devices=H200, steps=steps)
    assert trace.overlap()["complete"].to_list() == [True, False]
    row = trace.flops().filter(pl.col("name") == "aten::mm", pl.col("device") == "gpu").row(0, named=True)
    assert (row["time_ns"], row["flops_per_s"]) == (40, pytest.approx(4_194_304 / 40e-9))
