"""Conclusions are codes with parameters, and one catalog per language has their sentences."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import UsageError
from stepscope.model.devices.kernel_names import short_name
from stepscope.model.strings.messages import LANGUAGES, catalog, render
from stepscope.model.trace import Trace, UnprofiledSteps

SAMPLES = Path(__file__).parent.parent / "samples"
MODULES = Path(stepscope.__file__).parent / "analyses" / "verdict"
TRACKS = """
    track  kind    label  device
    0      thread  main   -
    7      stream  s      0
"""
GPU = """
    device  kind  name
    0       gpu   H200
"""
# Two steps of 100 ns. The device computes 93 ns, waits 55 ns for launches and 40 ns while the host waits for data.
SPANS = """
    track  kind    name                   start_ns  dur_ns  span  flow_in
    0      step    ProfilerStep#0         0         100     0     -
    0      data    enumerate(DataLoader)  0         30      1     -
    0      api     launch                 35        2       2     -
    0      api     launch                 36        2       3     -
    0      api     launch                 80        2       4     -
    7      kernel  a                      40        10      5     2
    7      kernel  b                      52        8       6     3
    7      kernel  c                      85        15      7     4
    7      kernel  d                      110       60      8     -
"""
STEPS = """
    step  start_ns  end_ns  how
    0     0         100     marker
    1     100       200     marker
"""


def rows(trace: Trace, topic: str, **options: Any) -> list[tuple[str, str]]:
    found = trace.verdict(topic=topic, **options)
    assert found["topic"].unique().to_list() in ([topic], [])
    return list(found.select("code", "text").iter_rows())


def test_the_headline_is_the_largest_part_of_the_step_that_is_lost() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS, devices=GPU)
    found = trace.verdict(topic="overview")
    assert found.columns == ["topic", "rank", "step", "device", "position", "severity", "code", "parameters", "coverage", "text"]
    assert found.row(0) == (
        "overview", 0, None, None, 0, "high", "device-idle-host-bound", '{"device": "GPU", "period": "each step", "idle": 0.275}', None,
        "GPU is idle 27.5 % of each step, waiting for the host to launch work.",
    )  # fmt: skip
    assert found.select("position", "code", "text").rows()[1:] == [
        (1, "step-time", "A step takes 100 ns."),
        (2, "device-time", "GPU: 46.5 % compute, 53.5 % idle."),
        (3, "recording-overhead-unknown", "Recording overhead is unknown."),
    ]


def test_a_run_of_several_ranks_has_ranges_and_then_each_rank() -> None:
    both = "\n".join(f"{line}  {rank}" for line, rank in zip(SPANS.strip().splitlines(), ["rank", *"0" * 9], strict=True))
    second = "7  kernel  e  0  150  9  -  1"
    steps = "rank  step  start_ns  end_ns  how\n" + "".join(
        f"{rank}  {step}  {step * 100}  {step * 100 + 100}  marker\n" for rank in (0, 1) for step in (0, 1)
    )
    tracks = "rank  track  kind  device\n0  0  thread  -\n0  7  stream  0\n1  7  stream  0"
    found = tiny.trace(spans=f"{both}\n{second}", tracks=tracks, steps=steps).verdict(topic="overview")
    # Rank 1 computes 150 of 200 ns and is idle for an unknown cause: the mean over both ranks is 13.75 % host-bound, 15 % unknown.
    assert found.filter(pl.col("rank").is_null())["text"].to_list() == [
        "Device is idle 25.0 % to 53.5 % of each step, for several or unknown reasons.",
        "A step takes 100 ns.",
        "Device: 46.5 % to 75.0 % compute, 25.0 % to 53.5 % idle, over 2 ranks.",
        "Recording overhead is unknown.",
    ]
    assert found.filter(position=0)["rank"].to_list() == [None, 0, 1]


def test_a_device_that_computes_nearly_always_loses_little() -> None:
    spans = "track  kind  name  start_ns  dur_ns\n7  kernel  k  0  95\n7  kernel  k  100  95"
    assert rows(tiny.trace(spans=spans, tracks=TRACKS, steps=STEPS, devices=GPU), "overview")[0] == (
        "device-busy", "GPU computes for 95.0 % of each step: little time is lost.",
    )  # fmt: skip


def test_exposed_communication_and_copies_are_headlines_of_their_own() -> None:
    exposed = "track  kind  name  start_ns  dur_ns\n7  kernel  k  0  40\n7  communication  all  40  60"
    copies = "track  kind  name  start_ns  dur_ns\n7  kernel  k  0  40\n7  copy  h2d  40  50\n7  kernel  k  90  10"
    one = "step  start_ns  end_ns\n5  0  100"
    assert rows(tiny.trace(spans=exposed, tracks=TRACKS, steps=one), "overview")[:2] == [
        ("device-exposed-communication", "60.0 % of the step is exposed communication: no computation hides it."),
        ("step-time-one", "Step 5 takes 100 ns."),
    ]
    assert rows(tiny.trace(spans=copies, tracks=TRACKS, steps=one), "overview")[0] == (
        "device-copy", "Device only copies for 50.0 % of the step: no computation hides these copies.",
    )  # fmt: skip


def test_recording_overhead_is_the_headline_where_it_is_most_of_the_idle_time() -> None:
    # The device works 186 of 400 ns; unprofiled, four steps of 60 ns leave 54 ns idle: 22.5 %.
    trace = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS, devices=GPU)
    steps = UnprofiledSteps(rank=0, count=10, median_ns=60, p10_ns=58, p90_ns=62)
    found = Trace(trace.tables, msgspec.structs.replace(trace.meta, unprofiled_steps=[steps])).verdict(topic="overview")
    assert found["code"].to_list() == ["recording-overhead-most", "recording-idle", "idle-cause-input", "step-time", "device-time"]
    assert found["text"].to_list()[:3] == [
        "60 ns per step unprofiled, 100 ns while recorded (+67 %): idle time here is mostly profiling overhead.",
        "GPU is idle 53.5 % of each step while recorded, about 22.5 % unprofiled (19.8 % to 25.0 %, as unprofiled steps vary).",
        "Main cause, about 22.5 % of each step unprofiled: the host waits for input data.",
    ]


def test_recorded_steps_may_be_shorter_than_the_others() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS, devices=GPU)
    steps = UnprofiledSteps(rank=0, count=10, median_ns=160, p10_ns=158, p90_ns=162)
    slow = Trace(trace.tables, msgspec.structs.replace(trace.meta, unprofiled_steps=[steps]))
    assert (
        "recording-overhead-small",
        "160 ns per step unprofiled, 100 ns while recorded (-38 %): recording adds little.",
    ) in rows(slow, "overview")


def test_options_that_slow_the_host_are_listed_where_their_cost_is_unknown() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS, steps=STEPS)
    slow = Trace(trace.tables, msgspec.structs.replace(trace.meta, options={"record_shapes": True, "profile_memory": True}))
    found = dict(rows(slow, "overview"))
    assert found["recording-slows-host"].startswith("Recording shapes and memory slows the host")
    assert "recording-measure" in found and "recording-overhead-unknown" not in found


def test_shares_name_the_steps_that_they_cover() -> None:
    # Launches without work after step 1: the device is not recorded any more.
    spans = """
        track  kind    name              start_ns  dur_ns  span  step  flow_in
        0      api     cudaLaunchKernel  10        1       0     0     -
        0      api     cudaLaunchKernel  110       1       1     1     -
        0      api     cudaLaunchKernel  210       1       2     2     -
        7      kernel  k                 20        80      3     0     0
        7      kernel  k                 120       80      4     1     1
    """
    steps = "step  start_ns  end_ns  how\n0  0  100  marker\n1  100  200  marker\n2  200  300  marker"
    found = tiny.trace(spans=spans, tracks=TRACKS, steps=steps).verdict(topic="overview")
    assert found["coverage"].to_list()[0] == "steps 0-1 (2 of 3)"
    assert "These shares cover 2 of 3 steps (0-1): the device work of the others is not completely recorded." in found["text"].to_list()


def test_unknown_work_is_unknown_and_not_idle() -> None:
    steps = "step  start_ns  end_ns\n0  0  100"
    assert rows(tiny.trace(steps=steps), "overview")[0][0] == "work-unknown"
    assert rows(tiny.trace(steps=steps, tracks="track  kind  device\n7  stream  0", devices="device  kind\n0  aicore"), "overview")[0] == (
        "device-not-recorded", "NPU: kernels are not recorded, so busy and idle time are unknown.",
    )  # fmt: skip
    assert rows(tiny.trace(), "overview") == [("no-steps", "This recording has no steps.")]


def test_the_host_without_a_device_computes_communicates_or_waits() -> None:
    steps = "step  start_ns  end_ns\n0  0  100\n1  100  200"
    work = "kind  name  start_ns  dur_ns\nop  mm  0  80\nop  mm  100  80"
    assert rows(tiny.trace(spans=work, steps=steps), "overview")[0] == (
        "host-compute", "Operators run for 80.0 % of each step on the CPU; no device work is recorded.",
    )  # fmt: skip
    waits = work + "\ndata  next  80  20\ndata  next  180  20"
    assert rows(tiny.trace(spans=waits, steps=steps, tracks="track  kind\n0  thread"), "overview")[0] == (
        "host-input-wait", "20.0 % of each step is spent waiting for input data; operators run for 80.0 %.",
    )  # fmt: skip


def divided(*times: tuple[int, int, int], start: int = 0) -> str:
    """Steps of these intervals, forward and backward passes, and tails."""
    text = "step  start_ns  end_ns  fp_start_ns  bp_end_ns  how\n"
    for number, (interval, passes, tail) in enumerate(times):
        text += f"{number}  {start}  {start + interval + passes + tail}  {start + interval}  {start + interval + passes}  marker\n"
        start += interval + passes + tail
    return text


def test_steps_are_described_by_their_largest_stage() -> None:
    cases = {
        "steps-stages": ([(10, 80, 10)] * 3, "100 ns per step (median), 100 ns to 100 ns. Largest stage, 80.0 % of the step: forward and backward."),  # noqa: E501
        "steps-interval": ([(40, 50, 10)] * 3, "40.0 % of each step passes before the forward pass starts; the median step takes 100 ns."),
        "steps-skewed": ([(10, 80, 10)] * 4 + [(10, 900, 10)], "100 ns per step (median), but 264 ns on average: a few steps are far slower, up to 920 ns."),  # noqa: E501
        "steps-one": ([(10, 80, 10)], "The only recorded step takes 100 ns."),
    }  # fmt: skip
    for code, (times, text) in cases.items():
        assert rows(tiny.trace(steps=divided(*times)), "steps") == [(code, text)]
    assert rows(tiny.trace(steps=divided(*[(10, 80, 10)] * 30)), "steps")[0][1].startswith(
        "100 ns per step (median); the slowest 1 % take 100 ns or more."
    )
    assert rows(tiny.trace(steps=STEPS), "steps")[0][0] == "steps-undivided"
    assert rows(tiny.trace(steps=STEPS), "steps", warmup=1)[0][0] == "steps-one-left"
    some = divided(*[(40, 50, 10)] * 3).replace("200  300  240  290", "200  300  -  -")  # the stages of the third step are unknown
    assert tiny.trace(steps=some).verdict(topic="steps").select("code", "coverage").rows() == [("steps-interval", "2 of 3 steps")]
    assert rows(tiny.trace(), "steps") == [("steps-none", "No steps are recorded.")]


def test_each_step_is_compared_with_the_median() -> None:
    found = tiny.trace(steps=divided((10, 80, 10), (10, 80, 10), (10, 80, 40), (10, 70, 10))).verdict(topic="steps", per_step=True)
    assert found.filter(pl.col("step").is_not_null()).select("step", "code", "text").rows() == [
        (0, "step-median", "Step 0 takes 100 ns, like the median step. Largest stage, 80.0 % of it: forward and backward."),
        (1, "step-median", "Step 1 takes 100 ns, like the median step. Largest stage, 80.0 % of it: forward and backward."),
        (2, "step-slower", "Step 2 takes 130 ns, 30 ns over the median. Largest difference, 30 ns more: tail."),
        (3, "step-faster", "Step 3 takes 90 ns, 10 ns under the median."),
    ]
    assert json.loads(found.filter(step=2)["parameters"].item())["slower"] == "tail"


def test_a_rank_that_the_others_wait_for_is_a_straggler() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           track  name           step  start_ns  dur_ns
            0     kernel         1      mm             1     0         40
            0     communication  2      ncclAllReduce  1     40        50
            1     kernel         1      mm             1     0         70
            1     communication  2      ncclAllReduce  1     70        20
        """,
        steps="rank  step  start_ns  end_ns\n0  1  0  100\n1  1  0  100",
    )
    found = trace.verdict(topic="communication")
    assert found.row(0, named=True)["text"] == (
        "Rank 1 slows the others: it computes 70 ns per step, the others 40 ns on average, and they wait 30 ns for it."
    )
    assert (found["rank"].null_count(), found["severity"][0]) == (found.height, "high")
    # Exposed: 50 of 100 ns and 20 of 100 ns.
    assert found["text"].to_list()[1:] == [
        "35 ns of exposed communication per step, 35.0 % of the step.", "Waits are known for 2 of 2 calls.",
    ]  # fmt: skip


def test_a_pipeline_without_waits_is_not_said_to_be_missing() -> None:
    trace = tiny.trace(pipeline="op_id op_type parent\n0 Batch -\n1 Map 0")
    assert rows(trace, "input") == [("input-no-waits", "The input pipeline is recorded, but not how long the training waits for it.")]


def test_communication_is_exposed_hidden_or_absent() -> None:
    steps, kinds = "step  start_ns  end_ns\n1  0  100", "kind  track  name  step  start_ns  dur_ns\n"
    exposed = tiny.trace(spans=kinds + "kernel  1  mm  1  0  60\ncommunication  2  ncclAllReduce  1  50  30", steps=steps)
    assert rows(exposed, "communication")[0] == ("communication-exposed", "20.0 % of each step is exposed communication: 20 ns per step.")
    hidden = tiny.trace(spans=kinds + "kernel  1  mm  1  0  96\ncommunication  2  ncclAllReduce  1  50  50", steps=steps)
    assert rows(hidden, "communication")[0] == (
        "communication-hidden",
        "50 ns of communication per step, 92.0 % of it hidden by computation.",
    )
    assert rows(tiny.trace(steps=steps), "communication") == [("communication-one-rank", "One rank is recorded, and no communication.")]


def test_the_share_of_exposed_communication_is_of_the_steps_whose_kernels_are_recorded() -> None:
    trace = tiny.trace(
        spans="""
            kind           track  name           step  start_ns  dur_ns
            kernel         1      mm             1     0         50
            communication  2      ncclAllReduce  1     50        40
            kernel         1      mm             1     90        10
        """,
        steps="step start_ns end_ns fp_start_ns bp_end_ns\n1 0 100 10 80\n2 100 400 110 380\n3 400 700 410 680",
        tracks="track kind label device\n1 stream a 0\n2 stream b 0",
    )
    assert rows(trace, "communication")[0] == ("communication-exposed", "40.0 % of each step is exposed communication: 40 ns per step.")


LOADER = """
    op_id  op_type     workers  queue_capacity
    0      DataLoader  2        4
"""


def batches(*depths: int) -> str:
    return "name  at_ns  value  unit\n" + "".join(
        f'"queue_0_depth"  {index * 10}  {depth}  batches\n' for index, depth in enumerate(depths)
    )


def test_a_step_waits_for_data_or_finds_it_ready() -> None:
    def trace(wait: int, *depths: int) -> Trace:
        spans = f"kind  name  start_ns  dur_ns\ndata  next  0  {wait}\nop  mm  50  50\nop  mm  100  100"
        return tiny.trace(spans=spans, steps=STEPS, tracks="track  kind\n0  thread", counters=batches(*depths), pipeline=LOADER)

    late = trace(40, 0, 0, 3)  # 40 of 200 ns; the mean of its queue is a quarter of its capacity
    assert rows(late, "input")[0] == (
        "input-wait-empty", "20.0 % of each step is spent waiting for data: 2 of 3 times no batch was ready.",
    )  # fmt: skip
    assert late.verdict(topic="input")["severity"].to_list()[:2] == ["high", "high"]
    assert ("queue-empty", "DataLoader 0: empty 2 of 3 times.") in rows(late, "input")
    ready = trace(2, 3, 3, 3)
    assert rows(ready, "input")[0] == ("input-ready", "Batches are ready in time: 1.0 % of each step is spent waiting for data.")
    assert rows(trace(40, 3, 3, 3), "input")[0][0] == "input-wait-order"
    assert dict(rows(trace(40, 3, 3, 3), "input"))["input-rule-ready"].endswith("applies.")
    assert rows(tiny.trace(), "input") == [("input-unknown", "This recording does not show how the training gets its data.")]


def test_the_machine_is_free_or_full() -> None:
    counters = 'name  at_ns  value  unit\n"cpu_cores"  0  4  cores\n"run_queue"  0  3  processes\n'
    for user, code, text in (
        (0.25, "cpu-free", "CPU is 25.0 % busy: 1 of 4 cores on average."),
        (0.9, "cpu-full", "CPU is 90.0 % busy: 3.60 of 4 cores on average. More workers would compete for them."),
        (0.0, "cpu-too-short", "CPU use is unknown: the samples cover 100 ms, and Linux counts CPU time in ticks of 10 ms."),
    ):
        sampled = counters + f'"cpu_user"  100000000  {user}  share\n"cpu_system"  100000000  0.0  share\n'
        assert rows(tiny.trace(counters=sampled), "host") == [(code, text)]
        if user:
            unknown_cores = sampled.replace('"cpu_cores"  0  4  cores\n', "")
            assert rows(tiny.trace(counters=unknown_cores), "host") == [(code, re.sub(": [0-9.]+ of 4 cores on average", "", text))]
    assert rows(tiny.trace(), "host") == [("cpu-none", "This recording has no samples of the CPU.")]


# Two kernels of mm (30 and 20 us) and one of relu (5 us), launched by operators on the host, in two steps of 100 us.
WORK = """
    track  kind    name             op_type   start_ns  dur_ns  span  flow_in  step
    0      op      aten::mm         -         0         40000   0     -        0
    0      api     launch           -         1000      2000    1     -        0
    0      op      aten::mm         -         100000    40000   2     -        1
    0      api     launch           -         101000    2000    3     -        1
    0      op      aten::relu       -         150000    20000   4     -        1
    0      api     launch           -         151000    6000    5     -        1
    7      kernel  gemm             aten::mm  10000     30000   6     1        0
    7      kernel  gemm             aten::mm  110000    20000   7     3        1
    7      kernel  elementwise      aten::relu 160000   5000    8     5        1
"""
WORK_STEPS = "step  start_ns  end_ns  how\n0  0  100000  marker\n1  100000  200000  marker"


def test_operators_are_summed_by_family_and_type() -> None:
    trace = tiny.trace(spans=WORK, tracks=TRACKS, steps=WORK_STEPS, devices=GPU)
    found = trace.verdict(topic="operators").select("device", "code", "text").rows()
    assert found == [  # 50 of 55 us on the GPU, 80 of 100 us on the host: launches are no operators
        ("gpu", "operators-families", "90.9 % of the device time goes to matrix multiplies, 9.1 % to element-wise operators."),
        ("gpu", "operators-largest", "90.9 % goes to aten::mm, the largest operator type: 50.0 µs in 2 calls."),
        (
            "cpu",
            "operators-families",
            "80.0 % of the operator time on the host goes to matrix multiplies, 20.0 % to element-wise operators.",
        ),
        ("cpu", "operators-largest", "80.0 % goes to aten::mm, the largest operator type: 80.0 µs in 2 calls."),
    ]  # fmt: skip


def test_the_arithmetic_of_a_model_is_named_where_other_operators_take_more_time() -> None:
    spans = "track kind name start_ns dur_ns\n7 kernel aten::add 0 60\n7 kernel aten::copy_ 60 30\n7 kernel aten::mm 90 10"
    assert rows(tiny.trace(spans=spans, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100"), "operators")[0] == (
        "operators-families",
        "60.0 % of the device time goes to element-wise operators, 30.0 % to copies and casts, only 10.0 % to matrix multiplies.",
    )
    alone = "track kind name start_ns dur_ns\n7 kernel aten::mm 0 60"
    assert rows(tiny.trace(spans=alone, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100"), "operators") == [
        ("operators-families", "100.0 % of the device time goes to matrix multiplies."),
    ]  # fmt: skip


def test_other_spans_are_named_where_no_operators_are_recorded() -> None:
    spans = "kind name start_ns dur_ns\npython load 0 300\npython train 300 500\nstep Step 0 900"
    assert rows(tiny.trace(spans=spans), "operators") == [
        ("operators-totals", "500 ns in total: train, the longest name in this recording. No operators are recorded."),
    ]  # fmt: skip
    assert rows(tiny.trace(), "operators") == [("operators-none", "No operators are recorded.")]


def test_kernels_are_short_late_or_dominated_by_one() -> None:
    trace = tiny.trace(spans=WORK, tracks=TRACKS, steps=WORK_STEPS, devices=GPU)
    # Every launch finds an empty stream; one of three takes longer (6 us) than its kernel (5 us).
    assert rows(trace, "kernels") == [
        ("kernels-one", "90.9 % of the kernel time goes to one kernel, gemm: 50.0 µs of 55.0 µs."),
        (
            "launches-host-bound",
            "100.0 % of the 3 recorded launches are host-bound: the stream was empty, so the device waited for the host.",
        ),
    ]
    assert trace.verdict(topic="kernels")["severity"].to_list() == [None, "high"]
    many = "track kind name start_ns dur_ns\n" + "".join(f"7 kernel k{n} {n * 20000} {9000 - n}\n" for n in range(4))
    assert rows(tiny.trace(spans=many, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100000"), "kernels") == [
        ("kernels-largest", "25.0 % of the kernel time goes to k0; 2 of 4 kernels take half of 36.0 µs."),
        ("kernels-short", "100.0 % of the 4 kernel calls run for less than 10.0 µs: 36.0 µs, 100.0 % of the kernel time."),
    ]  # fmt: skip
    copies = "track kind name start_ns dur_ns\n7 copy HtoD 0 70"
    assert rows(tiny.trace(spans=copies, tracks=TRACKS), "kernels")[0][1] == "70 ns of copies and fills; no kernels are recorded."


def test_kernels_of_several_ranks_are_summed() -> None:
    spans = "rank track kind name start_ns dur_ns\n0 7 kernel a 0 30\n1 7 kernel a 0 30\n1 7 kernel b 30 40"
    steps = "rank step start_ns end_ns\n0 0 0 100\n1 0 0 100"
    found = tiny.trace(spans=spans, steps=steps, tracks="rank track kind device\n0 7 stream 0\n1 7 stream 0").verdict(topic="kernels")
    assert found.filter(position=0).select("rank", "text").rows() == [
        (None, "60.0 % of the kernel time, over 2 ranks, goes to one kernel, a: 60 ns of 100 ns."),
        (0, "100.0 % of the kernel time goes to one kernel, a: 30 ns of 30 ns."),
        (1, "57.1 % of the kernel time goes to one kernel, b: 40 ns of 70 ns."),
    ]


def test_shares_of_device_work_are_unknown_without_a_completely_recorded_step() -> None:
    spans = """
        track  kind    name              start_ns  dur_ns  span  step  flow_in
        0      api     cudaLaunchKernel  10        1       0     0     -
        0      api     cudaLaunchKernel  20        1       1     0     -
        0      api     cudaLaunchKernel  30        1       2     0     -
        7      kernel  k                 20        5       3     0     0
    """
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps="step  start_ns  end_ns  how\n0  0  100  marker")
    assert trace.overview()["device_data"].to_list() == ["none"]
    for topic, text in (("kernels", "5 ns in 1 kernel call."), ("operators", "5 ns of device time in total.")):
        found = trace.verdict(topic=topic)
        assert found["text"][0] == f"{text} No step has complete device data, so shares are unknown."
        assert found["coverage"][0] == "0 of 1 steps" and found["severity"][0] is None


def test_steps_without_complete_device_data_are_named_where_they_are_left_out() -> None:
    spans = """
        track  kind    name              start_ns  dur_ns  span  step  flow_in
        0      api     cudaLaunchKernel  10        1       0     0     -
        0      api     cudaLaunchKernel  110       1       1     1     -
        0      api     cudaLaunchKernel  210       1       2     2     -
        7      kernel  k                 20        80      3     0     0
        7      kernel  k                 120       80      4     1     1
    """
    steps = "step  start_ns  end_ns  how\n0  0  100  marker\n1  100  200  marker\n2  200  300  marker"
    trace = tiny.trace(spans=spans, tracks=TRACKS, steps=steps)
    for topic in ("kernels", "operators"):
        found = trace.verdict(topic=topic)
        assert found["coverage"][0] == "2 of 3 steps"
        assert "Device data is complete for 2 of 3 steps; the others are left out." in found["text"].to_list()


def test_ranks_without_complete_device_data_do_not_count_in_shares_of_all_ranks() -> None:
    """Only transfers of rank 1 are recorded: they are no part of the kernel time of the run."""
    spans = """
        rank  track  kind           name              start_ns  dur_ns  span  step  flow_in
        0     7      kernel         MatMul            10        60      0     0     -
        0     7      kernel         Add               70        20      1     0     -
        1     0      api            cudaLaunchKernel  10        1       0     0     -
        1     0      api            cudaLaunchKernel  20        1       1     0     -
        1     7      communication  AllReduce         30        900     2     0     1
    """
    tracks = "rank track kind device\n0 7 stream 0\n1 0 thread -\n1 7 stream 0"
    trace = tiny.trace(spans=spans, tracks=tracks, steps="rank step start_ns end_ns how\n0 0 0 100 marker\n1 0 0 1000 marker")
    assert trace.overview()["device_data"].to_list() == ["complete", "none"]
    left_out = "1 of 2 ranks are left out: their device work is not completely recorded."
    for topic, share in (("operators", "75.0 % of the device time"), ("kernels", "75.0 % of the kernel time")):
        texts = trace.verdict(topic=topic).filter(pl.col("rank").is_null())["text"].to_list()
        assert texts[0].startswith(share) and "over" not in texts[0]
        assert left_out in texts


# A product of 64 x 32 and 32 x 16 matrices has 2 x 64 x 32 x 16 = 65,536 FLOPs.
PRODUCT = """
    track  kind    name      op_type   op  start_ns  dur_ns  span  flow_in  step  shapes             dtypes
    0      op      aten::mm  -         -   0         40      0     -        0     [[64,32],[32,16]]  ["c10::BFloat16","c10::BFloat16"]
    0      api     launch    -         -   1         2       1     -        0     -                  -
    7      kernel  gemm      aten::mm  0   10        30      2     1        0     -                  -
"""


def test_matrix_operators_are_held_against_the_peak_of_their_precision() -> None:
    trace = tiny.trace(spans=PRODUCT, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100", devices=GPU)
    # 65,536 FLOP in 30 ns are 2.18 TFLOP/s, of 989.4 TFLOP/s in bf16; in the step of 100 ns 0.655 TFLOP/s.
    assert rows(trace, "flops") == [
        (
            "flops-utilization",
            "0.2 % of the bf16 peak of H200 (989 TFLOP/s) is reached by matrix operators: 2.18 TFLOP/s while they run.",
        ),
        ("flops-steps", "Over whole steps, 0.1 % of the peak: 655 GFLOP/s."),
    ]
    unknown = tiny.trace(spans=PRODUCT, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100", devices="device kind name\n0 gpu X1")
    assert rows(unknown, "flops") == [
        (
            "flops-no-peak",
            "65.5 kFLOP in matrix operators, at 2.18 TFLOP/s while they run. Utilization is unknown: no bf16 peak of X1 is known.",
        ),
    ]
    bare = tiny.trace(spans=PRODUCT, tracks=TRACKS, steps="step start_ns end_ns\n0 0 100")
    assert rows(bare, "flops")[0][0] == "flops-no-chip"
    assert rows(tiny.trace(), "flops") == [
        ("flops-none", "No FLOPs are known: neither FLOPs nor the input shapes of matrix operators are recorded."),
    ]  # fmt: skip


MEMORY_GPU = "device  kind  name  memory_bytes\n0  gpu  X  1000000000"


def samples(*rows: tuple[int, int, int]) -> str:
    """Samples of a GPU: timestamp, allocated and reserved megabytes."""
    lines = [
        f'"{name}_gpu_0" {at} {size}000000 bytes'
        for at, *sizes in rows
        for name, size in zip(("allocated", "reserved"), sizes, strict=True)
    ]
    return "\n".join(["name at_ns value unit", *lines])


def test_memory_is_full_growing_unused_or_plain() -> None:
    steps = "step  start_ns  end_ns\n" + "".join(f"{n}  {n * 100}  {n * 100 + 100}\n" for n in range(3))

    def texts(*rows: tuple[int, int, int]) -> list[tuple[str, str, str | None]]:
        found = tiny.trace(counters=samples(*rows), steps=steps, devices=MEMORY_GPU).verdict(topic="memory")
        return list(found.select("code", "text", "severity").iter_rows())

    steady = ((-1, 100, 300), (50, 300, 300), (99, 100, 300), (150, 300, 300), (199, 100, 300), (250, 300, 300), (299, 100, 300))
    assert texts(*steady) == [
        (
            "memory-peak",
            "300 MB of 1.00 GB are allocated (300 MB reserved) at the peak on gpu 0, 30.0 %, in step 0: 700 MB are left.",
            None,
        ),
        ("memory-stable", "3 steps end with as many bytes as they start with: memory does not grow.", "info"),
    ]
    growing = ((-1, 100, 400), (99, 150, 400), (199, 200, 400), (299, 250, 400))
    assert texts(*growing)[0] == (
        # 50 MB per step; 600 MB are not reserved: 12 steps
        "memory-grows",
        "150 MB more are allocated on gpu 0 after 3 steps: memory grows in every step. At this rate, gpu 0 is full after 12 more steps.",
        "high",
    )
    assert texts((-1, 100, 950), (50, 200, 950), (299, 100, 950))[0] == (
        "memory-full", "95.0 % of the 1.00 GB of gpu 0 are reserved at the peak: 50.0 MB are left, so it is nearly full.", "high",
    )  # fmt: skip
    assert texts((-1, 100, 500), (50, 200, 500), (299, 100, 500))[0] == (
        "memory-unused", "300 MB of the 500 MB reserved on gpu 0 are unused when most is allocated.", "medium",
    )  # fmt: skip


def test_two_growing_steps_are_no_leak_yet() -> None:
    steps = "step  start_ns  end_ns\n0  0  100\n1  100  200"
    counters = samples((-1, 100, 400), (99, 150, 400), (199, 200, 400))
    found = tiny.trace(counters=counters, steps=steps).verdict(topic="memory")
    assert found["code"].to_list() == ["memory-unused", "memory-peak-only", "memory-growth"]
    assert found["text"][2] == "100 MB more are allocated at the end of 2 steps than at their start."


def test_a_few_bytes_more_in_each_step_are_no_leak() -> None:
    steps = "step  start_ns  end_ns\n" + "".join(f"{n}  {n * 100}  {n * 100 + 100}\n" for n in range(3))
    counters = 'name at_ns value unit\n"allocated_cpu" -1 100 bytes\n' + "".join(
        f'"allocated_cpu" {n * 100 + 99} {200 + n * 100} bytes\n' for n in range(3)
    )
    assert rows(tiny.trace(counters=counters, steps=steps), "memory") == [
        ("memory-peak-only", "400 B are allocated at the peak on cpu, in step 2."),
        ("memory-growth", "300 B more are allocated at the end of 3 steps than at their start."),
    ]


def test_the_peak_of_memory_is_divided_by_category_and_operator() -> None:
    allocations = """
        device     bytes  alloc_ns  free_ns  op        category
        "gpu_0"    700    10        90       aten::mm  activation
        "gpu_0"    100    20        90       aten::mm  activation
        "gpu_0"    200    20        50       aten::add gradient
    """
    counters = 'name at_ns value unit\n"allocated_gpu_0" 10 700 bytes\n"allocated_gpu_0" 20 1000 bytes\n"allocated_gpu_0" 95 0 bytes'
    found = tiny.trace(allocations=allocations, counters=counters, steps="step start_ns end_ns\n4 0 100").verdict(topic="memory")
    assert found["text"].to_list()[:3] == [
        "1.00 kB are allocated at the peak on gpu 0, in step 4, by aten::add.",
        "80.0 % of the peak is used by activations (800 B), 20.0 % by gradients.",
        "80.0 % of the peak was allocated by aten::mm: 800 B in 2 blocks.",
    ]


def test_memory_of_several_ranks_is_a_range_and_names_the_ranks_with_a_conclusion() -> None:
    counters = "rank name at_ns value unit\n" + "".join(f'{rank} "allocated_gpu_0" 5 {rank + 1}000000 bytes\n' for rank in range(2))
    counters += '1 "reserved_gpu_0" 5 200000000 bytes\n'
    found = tiny.trace(counters=counters, steps="rank step start_ns end_ns\n0 0 0 9\n1 0 0 9").verdict(topic="memory")
    assert found.filter(pl.col("rank").is_null())["text"].to_list() == [
        "1 of 2 ranks reserve much more memory than they use at the peak: 1.",
        "1.00 MB to 2.00 MB are allocated at the peak, over 2 ranks; most on gpu 0 of rank 1.",
    ]
    assert rows(tiny.trace(), "memory") == [("memory-none", "No memory data is recorded.")]


def test_problems_are_lost_rows_or_remarks() -> None:
    for lines, text in (
        ("", "No rows were lost while reading, and there are no remarks."),
        ("\nf - note 0", "No rows were lost while reading. 1 remark on how the data was read."),
        ("\nf - note 0\nf - bad 3\nf - worse 4", "7 rows are missing: 2 problems while reading."),
    ):
        trace = tiny.trace(steps=STEPS, **({"problems": f"file where what lost{lines}"} if lines else {}))
        assert [row[1] for row in rows(trace, "problems")] == [text]


def test_an_unknown_topic_is_refused() -> None:
    with pytest.raises(UsageError, match="no topic 'step'"):
        tiny.trace().verdict(topic="step")


# Headlines of recordings, as their pages had them before the rules moved into the analysis.
HEADLINES = {
    "torch_h200/resnet50_full.json.gz": "GPU is idle 76.9 % of each step, waiting for the host to launch work.",
    "torch_h200/ddp_gloo_rank0.json.gz": "55.6 % of each step is exposed communication: no computation hides it.",
    "torch_public/two_ranks": "Device is idle 28.1 % to 30.1 % of each step, waiting for the host to launch work.",
    "ascend/prof_2023": "61.6 % to 62.6 % of each step is exposed communication: no computation hides it.",
    "mindspore_cpu/lenet_graph": "Operators run for 87.8 % of each step on the CPU; no device work is recorded.",
}


@pytest.mark.parametrize("path", HEADLINES)
def test_recordings_have_their_headlines(shared: Path, path: str) -> None:
    assert stepscope.open(shared / path).verdict(topic="overview")["text"][0] == HEADLINES[path]


@pytest.mark.parametrize("path", ["capture/*", "chrome", "mindinsight", "xplane", "ascend_db"])
def test_every_sentence_of_a_sample_renders_in_every_language(path: str) -> None:
    opened = 0
    for sample in sorted(SAMPLES.glob(f"{path}/*"))[:2]:
        for row in stepscope.open(sample).verdict(per_step=True).iter_rows(named=True):
            parameters = json.loads(row["parameters"])
            assert row["text"] == render(row["code"], parameters)
            chinese = render(row["code"], parameters, "zh")
            for name in sorted((value for value in parameters.values() if isinstance(value, str)), key=len, reverse=True):
                chinese = chinese.replace(name, "name")  # names of kernels have brackets of their own
            assert re.search("[\u4e00-\u9fff]", chinese) and not re.search(r"[{}<\[\]|]", chinese.replace("<0.1 %", ""))
            opened += 1
    assert opened


def test_catalogs_have_the_codes_of_the_analysis_with_the_same_placeholders() -> None:
    english, chinese = (catalog(language) for language in LANGUAGES)
    assert list(english) == list(chinese)
    constants = {
        node.value
        for file in MODULES.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[a-z]+(-[a-z]+)+", node.value)
    }
    codes = {code for code in english if not code.startswith(("word:", "advice-", "compare-", "hint-"))}  # which have tests of their own
    assert codes - {"straggler"} == constants - {"host-bound"}
    for code, template in english.items():
        assert sorted(re.findall(r"\{.*?\}", template)) == sorted(re.findall(r"\{.*?\}", chinese[code])), code


def test_templates_render_ranges_plurals_lists_and_optional_parts() -> None:
    values = {"device": "device", "compute": [0.5, 0.75], "idle": 0.25, "ranks": 2}
    assert render("device-time", values) == "Device: 50.0 % to 75.0 % compute, 25.0 % idle, over 2 ranks."
    assert render("device-time", values, "zh") == "设备：计算 50.0 % 至 75.0 %，空闲 25.0 %，共 2 个 rank。"  # noqa: RUF001
    assert render("communication-waits", {"known": 1, "calls": 1}) == "Waits are known for 1 of 1 call."
    assert render("recording-slows-steps", {"options": "stacks, shapes, memory"}) == (
        "Recording stacks, shapes and memory slows the host; by how much is unknown."
    )
    with pytest.raises(UsageError, match="no language 'de'"):
        render("no-steps", {}, "de")


def test_names_of_kernels_are_short_in_a_sentence() -> None:
    for name, short in {
        "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)": "reduce_kernel<512, 1>",
        "void (anonymous namespace)::softmax<float>(float*, int)": "softmax<float>",
        "hcom_allReduce__586_0_1": "hcom_allReduce__586_0_1",
        "x" * 61: "x" * 59 + "…",
    }.items():
        assert short_name(name) == short


def test_flops_that_ascend_counts_for_all_operators_are_not_those_of_matrix_operators(shared: Path) -> None:
    """Ten operators in flops_1.txt of MindInsight, most of them casts and transfers of layouts."""
    texts = stepscope.open(shared / "mindinsight" / "profiler", cache=False).verdict(topic="flops").filter(rank=1)["text"].to_list()
    assert texts[0].startswith("6.66 GFLOP in operators, at 14.6 TFLOP/s")
