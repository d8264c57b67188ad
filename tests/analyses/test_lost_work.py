"""Signs that device work is missing where no launch call shows it: operators without kernels, and sums that the source has."""

from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.model.trace import Trace

TRACKS = """
    track  kind    label  device
    0      thread  main   -
    7      stream  s      0
"""
STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
    3     200       300
"""
# The products of steps 1 and 3 have their kernels; in step 2 the second has none.
PRODUCTS = """
    span  track  kind    name          start_ns  dur_ns  step  op
    0     0      op      aten::linear  1         10      1     -
    1     0      op      aten::mm      2         8       1     -
    2     0      op      aten::relu    20        5       1     -
    3     0      op      aten::mm      101       8       2     -
    4     0      op      aten::mm      121       8       2     -
    5     0      op      aten::mm      201       8       3     -
    6     7      kernel  gemm          10        80      1     1
    7     7      kernel  gemm          110       10      2     3
    8     7      kernel  gemm          210       80      3     5
"""
LAUNCH = """    9     0      api     cudaLaunchKernel  3  1  1  -
"""
SUMS = """
    step  start_ns  end_ns  device_computing_ns  device_communication_ns
    1     0         100     80                   0
    2     100       200     90                   0
    3     200       300     80                   0
"""


def complete(trace: Trace) -> list[bool]:
    return trace.overlap()["complete"].to_list()


def headline(trace: Trace) -> str:
    return str(trace.verdict(topic="overview")["text"][0])


def test_a_step_is_incomplete_where_products_have_no_kernel_and_launches_are_not_recorded() -> None:
    trace = tiny.trace(spans=PRODUCTS, tracks=TRACKS, steps=STEPS)
    assert complete(trace) == [True, False, True]
    assert trace.overview(warmup=0).select("device_steps", "idle_share").row(0) == (2, 0.2)
    # With launch calls, these decide: an operator without one ran on the host.
    assert complete(tiny.trace(spans=PRODUCTS + LAUNCH, tracks=TRACKS, steps=STEPS)) == [True, True, True]


def test_products_of_which_none_has_a_kernel_are_those_of_the_host() -> None:
    on_host = PRODUCTS.replace("aten::mm      1", "aten::bmm     1")  # both products of step 2
    trace = tiny.trace(spans=on_host.replace("2     3\n", "2     -\n"), tracks=TRACKS, steps=STEPS)
    assert complete(trace) == [True, True, True]


def test_copies_alone_do_not_show_that_a_device_was_idle_where_operators_multiplied() -> None:
    trace = tiny.trace(spans=PRODUCTS.replace("kernel  gemm", "copy    gemm"), tracks=TRACKS, steps=STEPS)
    assert complete(trace) == [False, False, False]
    assert headline(trace).startswith("Device: kernels are not recorded, so busy and idle time are unknown.")


def test_a_step_with_less_work_than_the_sums_of_its_source_is_incomplete() -> None:
    work = """
        track  kind    name  start_ns  dur_ns  step
        7      kernel  k     10        80      1
        7      kernel  k     110       30      2
        7      kernel  k     210       80      3
    """
    trace = tiny.trace(spans=work, tracks=TRACKS, steps=SUMS)
    assert complete(trace) == [True, False, True]
    assert complete(tiny.trace(spans=work.replace("30  ", "87  "), tracks=TRACKS, steps=SUMS)) == [True, True, True]  # 3 % less
    # A source may count work at the edge of a step in the next one: over all steps, nothing is missing.
    shifted = SUMS.replace("90  ", "80  ").replace("1     0         100     80", "1     0         100     30")
    assert complete(tiny.trace(spans=work.replace("30  ", "80  "), tracks=TRACKS, steps=shifted)) == [True, True, True]
    edge = SUMS.replace("90  ", "40  ").replace("1     0         100     80", "1     0         100     70")
    assert complete(tiny.trace(spans=work, tracks=TRACKS, steps=edge)) == [True, True, True]


def test_the_headline_gives_the_sums_where_kernels_are_missing() -> None:
    work = """
        track  kind    name  start_ns  dur_ns  step
        7      kernel  k     110       10      2
    """
    sums = "step  start_ns  end_ns  device_computing_ns  device_communication_ns\n2  100  200  90  60"
    assert headline(tiny.trace(spans=work, tracks=TRACKS, steps=sums)) == (
        "Device: some kernels are not recorded, so busy and idle time are unknown. "
        "By the sums of the source, the device computes for 90 ns and communicates for 60 ns per step."
    )


def test_missing_communication_is_not_idle() -> None:
    work = """
        track  kind    name  start_ns  dur_ns  step
        7      kernel  k     110       10      2
    """
    sums = "step  start_ns  end_ns  device_computing_ns  device_communication_ns\n2  100  200  10  60"
    trace = tiny.trace(spans=work, tracks=TRACKS, steps=sums)
    assert complete(trace) == [False]
    assert trace.verdict(topic="communication")["text"].to_list() == [
        "By the sums of the source, the device communicates for 60 ns per step; no call is recorded."
    ]


def test_a_step_is_incomplete_where_the_source_says_so() -> None:
    whole = tiny.trace(spans=PRODUCTS.replace("2     3\n", "2     4\n") + LAUNCH, tracks=TRACKS, steps=STEPS)
    marked = whole.steps.collect().with_columns(device_work_lost=pl.Series([None, True, None]))
    assert complete(whole) == [True, True, True]
    assert complete(Trace(whole.tables | {"steps": marked}, whole.meta)) == [True, False, True]


@pytest.mark.parametrize("lost", ["a third, at random", "those of a fifth of the time"])
def test_a_gpu_recording_without_launch_calls_that_lost_kernels_is_not_idle(shared: Path, lost: str) -> None:
    """ResNet-50: 77.7 % idle with all kernels. Without launch calls, its convolutions show which steps are whole."""
    path = shared / "torch_h200" / "resnet50_full.json.gz"
    if not path.exists():
        pytest.skip("no H200 trace")
    whole = stepscope.open(path, cache=False)
    kind = pl.col("kind").cast(pl.String)
    spans = whole.spans.filter(~kind.is_in(["api", "sync"])).collect().with_row_index("row")
    quiet = Trace(whole.tables | {"spans": spans.drop("row")}, whole.meta)
    assert quiet.overview()["idle_share"][0] == pytest.approx(whole.overview()["idle_share"][0])
    device = spans.filter(kind == "kernel")
    low, high = device["start_ns"].quantile(0.4), device["start_ns"].quantile(0.6)
    gone = (pl.col("row").hash(7) % 3 == 0) if lost.startswith("a third") else pl.col("start_ns").is_between(low, high)
    left = spans.filter(~((kind == "kernel") & gone))
    trace = Trace(whole.tables | {"spans": left.drop("row")}, whole.meta)
    shown = trace.overview().row(0, named=True)
    assert shown["device_steps"] < 2
    assert shown["idle_share"] is None or shown["idle_share"] == pytest.approx(quiet.overview()["idle_share"][0], abs=0.05)


def test_operators_did_not_run_on_the_host_where_the_rank_allocated_device_memory(shared: Path) -> None:
    path = shared / "torch_h200" / "resnet50_full.json.gz"
    if not path.exists():
        pytest.skip("no H200 trace")
    whole = stepscope.open(path, cache=False)
    host = whole.spans.filter(pl.col("kind").cast(pl.String).is_in(["op", "step", "annotation", "python"])).collect()
    trace = Trace(whole.tables | {"spans": host}, whole.meta)
    assert trace.overview()["device_data"].to_list() == ["none"]
    assert headline(trace).startswith("GPU: kernels are not recorded, so busy and idle time are unknown.")
    texts = trace.verdict(topic="flops")["text"].to_list()
    assert texts[0] == "3.11 TFLOP in matrix operators. Their time is not recorded." and not any("CPU" in text for text in texts)


def test_a_launch_whose_kernel_another_call_of_it_started_lost_nothing() -> None:
    """CANN nests its calls: of KernelLaunch and the launch inside it, one has the kernel. The last launch is alone and lost its kernel."""
    spans = """
        span  track  kind    name          start_ns  dur_ns  step  flow_in
        0     0      api     KernelLaunch  1         10      1     -
        1     0      api     launch        2         5       1     -
        2     0      api     KernelLaunch  21        10      1     -
        3     0      api     launch        22        5       1     -
        4     7      kernel  k             15        5       1     0
        5     7      kernel  k             35        50      1     3
    """
    one = "step  start_ns  end_ns\n1  0  100"
    assert complete(tiny.trace(spans=spans, tracks=TRACKS, steps=one).with_meta(format="prof")) == [True]
    alone = spans + "        6     0      api     launch        60        5       1     -\n"
    assert complete(tiny.trace(spans=alone, tracks=TRACKS, steps=one).with_meta(format="prof")) == [False]


# Step 1: a copy waits 40 ms for work before its step that is not recorded. Step 2: the host waits for a kernel of 40 ms.
WAITS = """
    span  track  kind    name                   start_ns   dur_ns    step  flow_in  bytes
    0     7      kernel  a                      100000     1000      1     -        -
    1     0      api     hipMemcpyWithStream    200000     40000000  1     -        -
    2     7      copy    Memcpy                 40190000   5000      1     1        60
    3     7      kernel  b                      41000000   59000000  1     -        -
    4     7      kernel  c                      100000000  40000000  2     -        -
    5     0      sync    hipDeviceSynchronize   100000000  50000000  2     -        -
    6     7      kernel  d                      150000000  50000000  2     -        -
"""
WAIT_STEPS = "step start_ns end_ns\n1 0 100000000\n2 100000000 200000000"


def test_a_step_in_which_the_host_waits_for_a_device_without_work_is_incomplete() -> None:
    trace = tiny.trace(spans=WAITS, tracks=TRACKS, steps=WAIT_STEPS)
    assert complete(trace) == [False, False]
    # A call may return a few milliseconds after the work.
    returned = tiny.trace(spans=WAITS.replace("100000000  50000000", "100000000  49000000"), tracks=TRACKS, steps=WAIT_STEPS)
    assert complete(returned) == [False, True]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1        60", "1        40000000"),  # a host that stages 40 MB does not wait
        ("40000000  1     -", "20000000  1     -"),  # a call that returns before its copy does not wait for it
        ("hipMemcpyWithStream    200000     ", "hipMemcpyWithStream    39000000   "),  # too short
    ],
)
def test_a_host_that_does_not_wait_for_the_device_shows_no_missing_work(before: str, after: str) -> None:
    changed = WAITS.replace(before, after, 1).replace("100000000  50000000", "100000000  49000000")
    assert changed.count(after)
    assert complete(tiny.trace(spans=changed, tracks=TRACKS, steps=WAIT_STEPS)) == [True, True]


QUEUED = """
    span  track  kind    name              start_ns  dur_ns  step  flow_in
    0     0      api     cudaLaunchKernel  100000    5000    1     -
    1     0      api     cudaLaunchKernel  110000    5000    1     -
    2     7      kernel  a                 4000000   200000  1     0
    3     7      kernel  b                 4200000   600000  1     1
"""


def test_a_device_that_leaves_the_first_work_in_its_queue_was_busy_with_work_from_before_the_recording() -> None:
    """Only idle time is unknown: both kernels of the step are recorded."""
    steps = "step start_ns end_ns\n1 0 5000000"
    trace = tiny.trace(spans=QUEUED, tracks=TRACKS, steps=steps)
    assert trace.overview().select("device_data", "idle_share").row(0) == ("none", None)
    assert headline(trace) == "Device: some kernels are not recorded, so busy and idle time are unknown."
    assert trace.kernels().select("name", "share", "device_steps").rows() == [("b", 0.75, 1), ("a", 0.25, 1)]
    assert trace.verdict(topic="kernels")["text"][0] == "75.0 % of the kernel time goes to one kernel, b: 600 ns of 800 ns.".replace(
        "ns", "µs"
    )
    # Started at once.
    prompt = tiny.trace(spans=QUEUED.replace("4000000", " 120000").replace("4200000", " 320000"), tracks=TRACKS, steps=steps)
    assert prompt.overview().select("device_data", "idle_share").row(0) == ("complete", 0.84)


def test_stages_of_the_host_are_no_step_trace() -> None:
    """The tail of a recording of the device is known only from the source, not from operators of the host."""
    spans = """
        span  track  kind  name              start_ns  dur_ns  step
        0     0      op    aten::mm          10        20      1
        1     0      op    autograd::engine::evaluate_function:_MmBackward0  40  20  1
        2     0      api   cudaLaunchKernel  12        2       1
    """
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps="step start_ns end_ns\n1 0 100")
    assert headline(trace) == "Device: kernels are not recorded, so busy and idle time are unknown."


def test_a_serving_trace_without_the_kernels_of_the_batch_before_is_not_idle(shared: Path) -> None:
    """A blocking copy of 60 bytes waits 493 ms for kernels of another batch, which the file does not have."""
    file = shared / "tracelens" / "inference" / "sglang_prefilldecode"
    if not file.exists():
        pytest.skip("no SGLang trace")
    assert headline(stepscope.open(file, cache=False)) == "GPU: some kernels are not recorded, so busy and idle time are unknown."


def test_a_few_launches_without_work_are_said_beside_the_idle_time() -> None:
    """40 launches in a step, of which one has no kernel: 2.5 %. The step counts as complete, and the idle time may be work."""
    rows = ["span track kind name start_ns dur_ns step flow_in"]
    for number in range(40):
        rows.append(f"{number} 0 api cudaLaunchKernel {number * 100} 10 1 -")
        if number != 20:
            rows.append(f"{number + 100} 7 kernel k {number * 100 + 20} 50 1 {number}")
    trace = tiny.trace(spans="\n".join(rows), tracks=TRACKS, steps="step start_ns end_ns\n1 0 4000")
    assert trace.overview().select("device_steps", "lost_launches", "launches").row(0) == (1, 1, 40)
    texts = trace.verdict(topic="overview")["text"].to_list()
    assert "For 1 of 40 launches, no work is recorded: part of the idle time may be work." in texts
    whole = tiny.trace(spans="\n".join([*rows, "120 7 kernel k 2020 50 1 20"]), tracks=TRACKS, steps="step start_ns end_ns\n1 0 4000")
    assert whole.overview().select("lost_launches", "launches").row(0) == (0, None)
    assert not whole.verdict(topic="overview")["text"].str.contains("no work is recorded").any()
