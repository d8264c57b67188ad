from pathlib import Path

import numpy as np
import polars as pl
import pytest

import stepscope
import tiny
from stepscope.comparison import names
from stepscope.comparison.compare import Comparison, expand_paths
from stepscope.comparison.parts import step_parts
from stepscope.errors import UsageError
from stepscope.model import schema
from stepscope.model.devices import families
from stepscope.model.trace import Meta, Trace

TRACKS = """
    rank  track  kind    label  device
    0     0      thread  main   -
    0     7      stream  s7     0
    0     8      stream  s8     0
"""
# A step of 100 ns: 30 ns of mm; communication of 30 ns, of which mm hides 10; a copy of 10 ns; the device is idle for the other 40 ns.
A_STEP = """
    {step}  0  0  op             aten::mm         {mm}  8   {s}0  -     -         -
    {step}  0  7  kernel         mm_kernel        {k}   30  {s}1  {s}0  aten::mm  layer/linear
    {step}  0  8  communication  nccl:all_reduce  {c}   30  {s}2  -     -         -
    {step}  0  7  copy           "Memcpy_HtoD"    {h}   10  {s}3  -     -         -
"""
# A step of 120 ns: 40 ns of mm, 10 ns of relu, communication hidden except for 10 ns, no copy; idle for 60 ns.
B_STEP = """
    {step}  0  0  op             aten::mm         {mm}  8   {s}0  -     -           -
    {step}  0  7  kernel         mm_kernel        {k}   40  {s}1  {s}0  aten::mm    layer/linear
    {step}  0  0  op             aten::relu       {r}   2   {s}4  -     -           -
    {step}  0  7  kernel         relu_kernel      {q}   10  {s}5  {s}4  aten::relu  layer/act
    {step}  0  8  communication  nccl:all_reduce  {c}   30  {s}2  -     -           -
"""


def gpu_trace(count: int, length: int, template: str, offsets: dict[str, int]) -> Trace:
    rows = "\n".join(
        template.strip().format(step=step, s=step + 1, **{name: step * length + at for name, at in offsets.items()})
        for step in range(count)
    )
    steps = "rank step start_ns end_ns\n" + "\n".join(f"0 {step} {step * length} {(step + 1) * length}" for step in range(count))
    spans = f"step rank track kind name start_ns dur_ns span op op_type scope\n{rows}"
    return tiny.trace(spans=spans, tracks=TRACKS, steps=steps)


def trace_a(count: int = 2) -> Trace:
    return gpu_trace(count, 100, A_STEP, {"mm": 0, "k": 10, "c": 30, "h": 60})


def trace_b(count: int = 3) -> Trace:
    return gpu_trace(count, 120, B_STEP, {"mm": 0, "k": 10, "r": 20, "q": 50, "c": 40})


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return stepscope.compare(trace_a(), trace_b(), run_noise=0)


def test_every_nanosecond_of_a_step_belongs_to_one_part() -> None:
    parts = step_parts(trace_a()).with_columns(part=pl.col("part").str.replace("idle: .*", "idle"))
    times = dict(parts.filter(pl.col("step") == 0).group_by("part").agg(pl.col("step_ns").sum()).iter_rows())
    assert times == {"compute": 30, "exposed communication": 20, "copy": 10, "idle": 40}


def test_the_waterfall_adds_up_to_the_difference_to_the_nanosecond(comparison: Comparison) -> None:
    table = comparison.waterfall.with_columns(part=pl.col("part").str.replace("idle: .*", "idle"))
    sums = ["a_ns", "b_ns", "change_ns"]
    rows = table.group_by("part", "operator", maintain_order=True).agg(pl.col(sums).sum())
    tiny.assert_rows(
        rows.sort("part", "operator"),
        """
        part                     operator    a_ns  b_ns  change_ns
        compute                  aten::mm    30    40    10
        compute                  aten::relu  0     10    10
        copy                     -           10    0     -10
        "exposed_communication"  -           20    10    -10
        idle                     -           40    60    20
        """,
    )
    assert [table[name].sum() for name in sums] == [100, 120, 20]
    assert comparison.summary.select("a_ns", "b_ns", "change_ns").row(0) == (100, 120, 20)
    assert table["share"].sum() == pytest.approx(1)


def test_operators_are_new_gone_or_changed_per_step_whatever_the_number_of_steps(comparison: Comparison) -> None:
    tiny.assert_rows(
        comparison.operators().sort("part", "name"),
        """
        part                     name                     state           a_ns  b_ns  change_ns  share  a_calls  b_calls
        compute                  aten::mm                 changed         30    40    10         0.5    1.0      1.0
        compute                  aten::relu               new             0     10    10         0.5    0.0      1.0
        copy                     "memcpy_host_to_device"  gone            10    0     -10        -0.5   1.0      0.0
        "exposed_communication"  allreduce                changed         20    10    -10        -0.5   1.0      1.0
        """,
    )


def test_modules_contain_the_modules_inside_them(comparison: Comparison) -> None:
    tiny.assert_rows(
        comparison.operators("module").drop_nulls("name"),
        """
        name          depth  a_ns  b_ns  change_ns
        layer         1      30    50    20
        layer/act     2      0     10    10
        layer/linear  2      30    40    10
        """,
    )


def test_more_calls_explain_the_part_of_a_change_that_they_cost_before() -> None:
    one, two = gpu_trace(2, 100, A_STEP, {"mm": 0, "k": 10, "c": 30, "h": 60}), trace_a()
    more = pl.DataFrame(
        {"rank": [0] * 4, "track": [0, 7] * 2, "kind": ["op", "kernel"] * 2, "name": ["aten::mm", "mm_kernel"] * 2}
        | {"start_ns": [70, 72, 170, 172], "dur_ns": [2, 20, 2, 20], "span": [90, 91, 92, 93], "op": [None, 90, None, 92]}
        | {"op_type": [None, "aten::mm"] * 2, "step": [0, 0, 1, 1], "depth": [0] * 4, "self_ns": [2, 20] * 2}
    )
    spans = pl.concat([two.spans, schema.conform(more.lazy(), "spans")])
    row = stepscope.compare(one, two.with_tables(spans=spans), run_noise=0).operators().filter(name="aten::mm").row(0, named=True)
    # One call of 30 ns becomes two of 50 ns together: the second call would cost 30 ns as before, the rest is 10 ns less.
    assert (row["a_calls"], row["b_calls"], row["change_ns"], row["calls_ns"]) == (1.0, 2.0, 20, 30)


def test_the_headline_has_the_change_its_interval_and_its_causes(comparison: Comparison) -> None:
    rows = comparison.verdict.filter(kind="verdict")
    assert rows["code"].to_list()[0] == "compare-slower"
    assert rows["text"][0] == "B is 20.0 % slower per step: 120 ns against 100 ns (95 % interval 20.0 %)."
    assert "of the difference is aten::" in rows["text"][2]


def test_two_recordings_of_the_same_steps_do_not_differ() -> None:
    found = stepscope.compare(trace_a(), trace_a())
    assert found.verdict["text"][0] == "No difference: 100 ns and 100 ns per step; changes below 2.8 % cannot be seen with these runs."
    assert found.waterfall["change_ns"].to_list() == [0] * found.waterfall.height
    assert found.operators()["state"].unique().to_list() == ["within noise"]


def noisy_trace(seed: int, mm: float, steps: int = 60) -> Trace:
    """Steps of 10 ms with 2 % noise: `mm` and three other operators one after the other on a device."""
    random = np.random.default_rng(seed)
    times = np.stack([random.normal(mean, 0.02 * mean, steps) for mean in (mm, 4e6, 3e6, 2e6)]).round().astype(np.int64)
    flat = times.T.reshape(-1)
    starts = np.cumsum(flat) - flat
    operators = ["aten::mm", "aten::conv2d", "aten::add", "aten::sum"] * steps
    span = np.arange(len(flat))
    spans = pl.DataFrame({"span": span, "rank": 0, "track": 7, "kind": "kernel", "name": operators, "start_ns": starts, "dur_ns": flat})
    bounds = np.append(starts[::4], flat.sum())
    numbers = np.arange(steps)
    table = pl.DataFrame({"rank": 0, "step": numbers, "start_ns": bounds[:-1], "end_ns": bounds[1:]})
    tracks = pl.DataFrame({"rank": [0], "track": [7], "kind": ["stream"], "device": [0]})
    spans = spans.with_columns(step=pl.Series(np.repeat(numbers, 4)), self_ns="dur_ns", depth=0)
    typed = spans.with_columns(pl.col("kind").cast(pl.Enum(schema.KINDS)))
    tracks = tracks.with_columns(pl.col("kind").cast(pl.Enum(schema.TRACK_KINDS)))
    return Trace({"spans": typed, "steps": table, "tracks": tracks}, Meta(source=f"noisy {seed}", ranks=[0]))


def test_in_twenty_pairs_with_noise_the_same_program_does_not_differ_and_a_planted_slowdown_is_found() -> None:
    same = [stepscope.compare(noisy_trace(seed, 1e6), noisy_trace(seed + 100, 1e6)) for seed in range(20)]
    assert sum(found.verdict["code"][0] == "compare-same" for found in same) >= 19
    slower = [stepscope.compare(noisy_trace(seed, 1e6), noisy_trace(seed + 200, 1.5e6)) for seed in range(20)]  # 5 % of 10 ms
    assert sum(found.verdict["code"][0] == "compare-slower" for found in slower) >= 19
    largest = [found.operators().filter(state="changed").head(1)["name"].to_list() for found in slower]
    assert sum(found in (["mm"], ["aten::mm"], ["gemm"]) for found in largest) >= 19


def test_a_side_without_steps_gives_one_sentence_and_empty_tables() -> None:
    found = stepscope.compare(trace_a(), tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 5"))
    assert found.verdict["text"][0] == "Step times cannot be compared: no steps in B."
    assert (found.waterfall.height, found.operators().height, found.change) == (0, 0, None)


def test_what_one_side_does_not_record_is_neither_zero_nor_gone() -> None:
    with_modules, without = trace_a(), trace_a()
    spans = without.spans.with_columns(scope=pl.lit(None, schema.Text))
    found = stepscope.compare(with_modules, without.with_tables(spans=spans)).operators("module")
    rows = found.filter(name="layer/linear").row(0, named=True)
    assert (rows["state"], rows["a_ns"], rows["b_ns"], rows["change_ns"]) == ("not recorded", 30, None, None)
    memory = stepscope.compare(trace_a(), trace_b()).figures
    assert memory.filter(figure="peak_memory_bytes").height == 0  # neither side has it


def test_kernels_missing_on_one_side_leave_the_difference_unexplained() -> None:
    missing = trace_b()
    launches = pl.col("name").cast(pl.String).replace("aten::mm", "cudaLaunchKernel").cast(schema.Text)
    calls = missing.spans.with_columns(
        name=launches, kind=pl.when(pl.col("dur_ns") == 8).then(pl.lit("api", schema.Kind)).otherwise("kind")
    )
    spans = calls.filter(~pl.col("kind").is_in(["kernel", "copy", "communication"]))
    found = stepscope.compare(trace_a(), missing.with_tables(spans=spans), run_noise=0)
    assert found.verdict["code"][0] == "compare-slower"
    assert "compare-not-recorded" in found.verdict["code"].to_list()
    assert found.waterfall.height == 0


def test_a_run_without_a_device_is_not_compared_in_silence_with_one_on_a_device() -> None:
    on_host = trace_b().spans.filter(pl.col("kind") == "op")
    found = stepscope.compare(trace_a(), trace_b().with_tables(spans=on_host))
    assert "compare-device-work" in found.verdict["code"].to_list()


def test_notices_say_what_makes_the_sides_incomparable() -> None:
    a = trace_a().with_meta(framework="pytorch", world_size=2, options={"with_stack": True})
    b = trace_b().with_meta(framework="jax", world_size=4, options={})
    codes = stepscope.compare(a, b).verdict.filter(kind="notice")["code"].to_list()
    assert {"compare-frameworks", "compare-world-size", "compare-stacks", "compare-one-run"} <= set(codes)
    assert "compare-one-run" not in stepscope.compare([a, a], [b, b]).verdict["code"].to_list()


def test_several_runs_are_one_side() -> None:
    found = stepscope.compare([trace_a(), trace_a(), trace_a()], [trace_b(), trace_b()])
    assert found.summary.select("a_runs", "b_runs", "a_steps", "b_steps", "change_ns").row(0) == (3, 2, 6, 6, 20)
    assert found.waterfall["change_ns"].sum() == 20


def test_the_warm_up_step_is_left_out_as_on_the_other_pages() -> None:
    trace = trace_a(4)
    steps = trace.steps.with_columns(start_ns=pl.when(pl.col("step") == 0).then(-500).otherwise("start_ns"))
    slow = trace.with_tables(steps=steps)
    assert stepscope.compare(slow, trace_a()).summary["a_ns"].item() == 100
    assert stepscope.compare(slow, trace_a()).summary["a_steps"].item() == 3
    assert stepscope.compare(slow, trace_a(), warmup=0).summary["a_steps"].item() == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::AddFunctor<float> > >(int)",
            "void at::native::elementwise_kernel<512, 1, at::native::gpu_kernel_impl<at::native::AddFunctor<float> > >(int)",
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_MT16x16x512",
        ),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)", "attn_fwd"),
        ("triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_17"),
        ("fusion.12", "fusion.7"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "hcom_allReduce__123_0"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    ],
)
def test_kernel_names_are_equal_without_template_arguments_tile_sizes_and_numbers(one: str, other: str) -> None:
    assert names.kernel(one) == names.kernel(other) != ""


def test_different_kernels_keep_different_names() -> None:
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >(int)"
    assert (
        len({names.kernel(name) for name in (add, add.replace("Add", "Mul"), "sm80_gemm", "attn_bwd", "attn_fwd", "Memset (Device)")}) == 6
    )


@pytest.mark.parametrize("name", ["aten::mm", "MatMul", "dot_general", "aten::addmm"])
def test_operators_of_all_frameworks_have_common_names(name: str) -> None:
    assert names.operator(name) == "matmul"


def test_operators_and_kernels_of_all_frameworks_have_families() -> None:
    assert families.family("void at::native::vectorized_layer_norm_kernel<float>(int)") == "norm"
    assert [families.family(name) for name in ("aten::mm", "Conv2D", "AllReduce", "aten::_foreach_add_")] == [
        "matmul",
        "conv",
        "communication",
        "elem",
    ]
    transfers = ("backward-recv", "forward-send", "aten::isend", "ncclKernel_SendRecv", "HcclReceive")
    assert {families.family(name) for name in transfers} == {"communication"}
    assert families.family("resend_buffers") == families.family("sender") == "other"


def test_equal_questions_have_equal_answers() -> None:
    samples = Path(__file__).parent / "samples" / "chrome"
    sides = samples / "torch-2.11" / "h200_modules.json.gz", samples / "torch-2.13.0" / "cpu_training.json.gz"
    tables = [
        [comparison.waterfall, comparison.operators("kernel"), comparison.operators("shape"), comparison.operators("module")]
        for comparison in (stepscope.compare(*sides) for _ in range(8))
    ]
    for repeated in tables[1:]:
        assert [table.equals(first) for table, first in zip(repeated, tables[0], strict=True)] == [True] * 4


def test_patterns_are_the_files_that_match(tmp_path: Path) -> None:
    for name in ("b1", "a1", "a2"):
        (tmp_path / name).touch()
    assert expand_paths([str(tmp_path / "a*"), str(tmp_path / "b1")]) == [tmp_path / name for name in ("a1", "a2", "b1")]
    with pytest.raises(UsageError, match="no file matches"):
        expand_paths([str(tmp_path / "c*")])


@pytest.mark.parametrize("name", ["gaunernst_bert-small-uncased__1016001.json.gz", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"])
def test_the_same_model_on_two_vendors_matches_by_operator(shared: Path, name: str) -> None:
    found = stepscope.compare(*(shared / "tracelens" / chip / name for chip in ("h100", "mi300")))
    assert found.summary["matched_share"].item() >= 0.95
    assert found.waterfall["change_ns"].sum() == found.summary["change_ns"].item()
    assert "compare-devices" in found.verdict["code"].to_list()


def test_kernel_time_per_step_is_that_of_the_page_of_operators(shared: Path) -> None:
    trace = stepscope.open(shared / "torch_h200" / "gpt2_full.json.gz")
    found = stepscope.compare(trace, trace).operators()
    # Three steps, all typical: the time per step is a third of the total on the page.
    page = trace.operators(device="gpu").filter(pl.col("name") == "aten::_log_softmax")["total_ns"].sum()
    assert found.filter(name="aten::_log_softmax")["a_total_ns"].sum() == round(page / 3)
