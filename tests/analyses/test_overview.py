import statistics
from pathlib import Path

import polars as pl
import pytest

import kineto
import stepscope
import tiny


def test_a_rank_is_summed_up_in_one_row() -> None:
    trace = tiny.trace(
        spans="""
            track  kind           name                   start_ns  dur_ns  step  span  op  flops  dtypes
            0      step           ProfilerStep#0         0         100     0     0     -   -      -
            0      data           enumerate(DataLoader)  0         30      0     1     -   -      -
            1      data           worker                 0         90      0     2     -   -      -
            0      op             aten::mm               40        10      0     3     -   4000   ["float"]
            0      op             aten::mm               350       10      -     4     -   9000   ["float"]
            7      kernel         gemm                   50        40      0     5     3   -      -
            8      communication  all_reduce             80        30      0     6     -   -      -
            7      kernel         gemm                   290       20      2     7     -   -      -
        """,
        tracks="""
            track  kind    label  device
            0      thread  main   -
            1      thread  other  -
            7      stream  s      0
            8      stream  s      0
        """,
        steps="""
            step  start_ns  end_ns  how
            0     0         100     marker
            1     110       190     marker
            2     190       300     marker
            3     300       410     marker
        """,
        devices="""
            device  name            kind
            0       "NVIDIA_H200"   gpu
            1       "NVIDIA_H100"   gpu
        """,
        counters="""
            name               at_ns  value   unit
            "allocated_gpu_0"  10     1000    bytes
            "allocated_gpu_0"  20     3000    bytes
            "allocated_cpu"    30     9000    bytes
            "reserved_gpu_0"   30     8000    bytes
        """,
    )
    # Busy: 50 to 100 in step 0, 290 to 300 in step 2, 300 to 310 in step 3, of 400. Exposed: 90 to 100. Waited: 0 to 30.
    tiny.assert_rows(
        trace.overview(),
        """
        device         steps  steps_how  step_ns  p90_ns  min_ns  max_ns  first_step_ns  busy_share  input_wait_share  peak_memory_bytes
        "NVIDIA_H200"  4      marker     105      110     80      110     100            0.175       0.075             3000
        """,
    )
    assert trace.overview()["exposed_communication_share"].item() == pytest.approx(10 / 400)
    assert trace.overview()["flops_per_s"].item() == pytest.approx(4000 / 400e-9)
    assert trace.overview()["utilization"].item() == pytest.approx(4000 / 400e-9 / 67e12)  # an H200's data sheet: 67 TFLOP/s in fp32


def test_a_slow_first_step_is_in_none_of_the_figures_and_the_idle_causes_are_of_the_same_steps() -> None:
    trace = tiny.trace(
        spans="""
            track  kind           name                   start_ns  dur_ns  step  span  op  flops  dtypes
            0      data           enumerate(DataLoader)  0         800     0     0     -   -      -
            0      op             aten::mm               850       10      0     1     -   7000   ["float"]
            0      op             aten::mm               1010      10      1     2     -   4000   ["float"]
            7      kernel         gemm                   900       50      0     3     1   -      -
            8      communication  all_reduce             950       50      0     4     -   -      -
            7      kernel         gemm                   1020      40      1     5     2   -      -
            7      kernel         gemm                   1150      60      2     6     -   -      -
        """,
        tracks="""
            track  kind    label  device
            0      thread  main   -
            7      stream  s      0
            8      stream  s      0
        """,
        steps="""
            step  start_ns  end_ns  how
            0     0         1000    marker
            1     1000      1100    marker
            2     1100      1220    marker
        """,
    )
    # Steps 1 and 2 take 100 and 120: busy 40 and 60 of 220. Step 0 takes 1000, busy 100, waits 800, all its communication is exposed.
    columns = ["steps", "left_out", "step_ns", "min_ns", "max_ns", "first_step_ns"]
    assert trace.overview().select(columns).row(0) == (2, 1, 110, 100, 120, 1000)
    assert trace.overview(warmup=0).select(columns).row(0) == (3, 0, 120, 100, 1000, 1000)
    assert trace.overview(warmup=2).select(columns).row(0) == (1, 2, 120, 120, 120, 1000)
    shares = ["busy_share", "input_wait_share", "exposed_communication_share"]
    assert trace.overview().select(shares).row(0) == pytest.approx((100 / 220, 0, 0))
    assert trace.overview(warmup=0).select(shares).row(0) == pytest.approx((200 / 1220, 800 / 1220, 50 / 1220))
    assert trace.overview()["flops_per_s"].item() == pytest.approx(4000 / 220e-9)
    for warmup in (None, 0, 2):
        busy = trace.overview(warmup=warmup)["busy_share"].item()
        assert trace.gap_causes(warmup=warmup)["share"].sum() + busy == pytest.approx(1)
    assert trace.gap_causes()["total_ns"].sum() == 60 + 60
    step, *_ = trace.step_times().filter(stage="step").select("p50_ns", "steps", "left_out").rows()
    assert step == (110, 2, 1)


def test_two_devices_of_a_rank_are_busy_on_average_and_a_host_is_busy_when_any_thread_computes() -> None:
    trace = tiny.trace(
        spans="""
            rank  track  kind    name  start_ns  dur_ns  step  span
            0     7      kernel  a     0         100     0     0
            0     9      kernel  a     50        10      0     1
            1     0      op      a     0         20      0     0
            1     1      op      a     10        20      0     1
        """,
        tracks="""
            rank  track  kind    label  device
            0     7      stream  s      0
            0     9      stream  s      1
        """,
        steps="""
            rank  step  start_ns  end_ns  how
            0     0     0         100     given
            1     0     0         100     whole
        """,
        counters="""
            rank  name             at_ns  value   unit
            1     "allocated_cpu"  30     9000    bytes
        """,
    )
    tiny.assert_rows(
        trace.overview(),
        """
        rank  device  steps_how  busy_share  input_wait_share  peak_memory_bytes  flops_per_s  utilization
        0     -       given      0.55        -                 -                  -            -
        1     -       whole      0.3         -                 9000               -            -
        """,
    )


def test_memory_before_the_first_sample_may_be_the_peak() -> None:
    trace = tiny.trace(
        steps="""
            step  start_ns  end_ns
            0     0         100
        """,
        counters="""
            name               at_ns  value  unit
            "allocated_gpu_0"  10     1000   bytes
            "allocated_gpu_0"  20     3000   bytes
        """,
        allocations="""
            device   bytes  alloc_ns  free_ns
            "gpu_0"  5000   -         10
            "gpu_0"  500    10        -
            "gpu_0"  2000   20        -
        """,
    )
    assert trace.overview()["peak_memory_bytes"].item() == 1000 + 5000 - 500 == trace.memory_peaks()["peak_bytes"].max()


def test_a_trace_without_steps_has_no_rows() -> None:
    assert tiny.trace().overview().height == 0


def _computes(event: kineto.Event) -> bool:
    return event.category == "kernel" and not event.name.startswith("nccl")


@pytest.mark.parametrize("file", kineto.FILES)
def test_steps_busy_time_and_input_wait_equal_those_of_the_file(shared: Path, file: str) -> None:
    row = kineto.opened(shared / file).overview(warmup=0).row(0, named=True)
    steps, events = list(kineto.steps(shared / file).values()), kineto.events(shared / file)
    totals = [step.end - step.start for step in steps]
    on_device = kineto.device_steps(shared / file).values()
    busy = sum(kineto.covered(kineto.work(shared / file), *step) for step in on_device)
    computing = sum(kineto.covered([e for e in kineto.work(shared / file) if _computes(e)], *step) for step in on_device)
    device_ns = sum(end - start for start, end in on_device)
    loading = [e for e in events if e.name.startswith("enumerate(DataLoader)")]
    waited = sum(kineto.covered(loading, step.start, step.end) for step in steps)
    assert (row["steps"], row["min_ns"], row["max_ns"]) == (len(steps), min(totals), max(totals))
    assert row["step_ns"] == pytest.approx(statistics.median(totals), abs=0.5)
    assert row["busy_share"] == pytest.approx(busy / device_ns) and row["compute_share"] == pytest.approx(computing / device_ns)
    assert ("device ranges" in row["steps_how"]) == bool(kineto.device_ranges(shared / file))
    assert row["input_wait_ns"] == (pytest.approx(waited / len(steps), abs=0.5) if loading else None)
    assert row["input_wait_share"] == (pytest.approx(waited / sum(totals)) if loading else None)
    sampled = [e for e in kineto.instants(shared / file) if e.get("args", {}).get("Device Type") == 1]
    assert row["peak_memory_bytes"] == max((e["args"]["Total Allocated"] for e in sampled), default=None)


@pytest.mark.parametrize(
    "path",
    [
        "ascend/cluster_output",
        "ascend/legacy/expected/run_1/normal_run/profiler",
        "ascend/legacy/raw/JOB3",
    ],
)
def test_the_share_of_copies_is_not_known_where_the_source_has_operators_alone(shared: Path, path: str) -> None:
    if not (shared / path).exists():
        pytest.skip(f"no {path}")
    overview = stepscope.open(shared / path).overview().filter(pl.col("idle_share").is_not_null())
    assert overview.height and overview["copy_share"].null_count() == overview.height
    parts = overview.select(pl.sum_horizontal("compute_share", "communication_share", "idle_share")).to_series().to_list()
    assert parts == pytest.approx([1.0] * overview.height)


def test_the_share_of_copies_is_zero_where_copies_would_have_been_recorded() -> None:
    trace = tiny.trace(spans="track kind name start_ns dur_ns step\n7 kernel k 10 40 1", steps="step start_ns end_ns\n1 0 100",
                       tracks="track kind label device\n7 stream s 0")  # fmt: skip
    assert trace.overview()["copy_share"].to_list() == [0.0]
