"""Steps on the device: a device runs behind its host, and its figures are of the steps as the device has them."""

import json
from pathlib import Path

import polars as pl
import pytest

import kineto
import stepscope
import tiny
from stepscope.model.trace import Trace
from volume import mostly_deep

RANGES = [
    *(file for file in kineto.FILES if file.startswith("torch_h200")),
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
]


def lagging(tmp_path: Path, *, drawn: bool) -> Trace:
    """Two steps of 100 us on the host whose kernels end 30 us late, after one that a step before the recording left."""
    work = [
        # name, launched at (us; None: before the recording), start, duration
        ("left", None, 0, 20),
        ("a", 5, 20, 110),
        ("b", 105, 140, 90),
    ]
    events = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": ts, "dur": 100, "args": {}}
        for step, ts in ((3, 0), (4, 100))
    ]
    for number, (name, launched, start, dur) in enumerate(work):
        args = {"correlation": number + 1, "device": 0, "stream": 7}
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur, "args": args})
        if launched is not None:
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": launched, "dur": 1, "args": args}
            )
    if drawn:
        events += [
            {"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step}", "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": {}}
            for step, ts, dur in ((3, 20, 110), (4, 140, 90))
        ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return stepscope.open(file, cache=False)


def test_a_kernel_that_runs_late_counts_for_its_own_step(tmp_path: Path) -> None:
    trace = lagging(tmp_path, drawn=True)
    # Step 3 is from 20, when the device is free, to 130, when its kernel ends; step 4 from there to 230. Idle: 130 to 140.
    tiny.assert_rows(
        trace.overlap(),
        """
        step  total_ns  device_ns  computing_ns  free_ns  clock
        3     100000    110000     110000        0        device
        4     100000    100000     90000         10000    device
        """,
    )
    tiny.assert_rows(trace.gaps(), "step  start_ns  dur_ns  share_of_step\n4  130000  10000  0.1")
    tiny.assert_rows(trace.gap_causes(), "gaps  total_ns  share\n1  10000  0.047619")
    row = trace.overview().row(0, named=True)
    assert (row["compute_share"], row["idle_share"]) == (pytest.approx(200 / 210), pytest.approx(10 / 210))
    assert (row["step_ns"], row["steps_how"]) == (100000, "marker, device ranges")
    one = trace.activity(step=4, buckets=1)
    assert one.select("at_ns", "bucket_ns", "busy_share").row(0) == (130000, 100000, pytest.approx(0.9))
    on_device = trace.step_trace(clock="device").select("start_ns", "end_ns", "how").rows()
    assert on_device == [(20000, 130000, "marker, device ranges"), (130000, 230000, "marker, device ranges")]
    host = trace.step_trace().select("start_ns", "end_ns", "how").rows()
    assert host == [(0, 100000, "marker"), (100000, 200000, "marker")]
    # Of one step alone: the kernels of the others are not taken for idle time.
    assert trace.overlap(steps=(4, 4)).select("device_ns", "free_ns").rows() == [(100000, 10000)]


def test_work_whose_launch_was_not_recorded_is_of_the_step_in_whose_range_it_runs(tmp_path: Path) -> None:
    steps = dict(lagging(tmp_path, drawn=True).spans.filter(pl.col("kind") == "kernel").select("name", "step").collect().iter_rows())
    assert steps == {"left": None, "a": 3, "b": 4}


def test_without_ranges_on_the_device_a_step_is_that_of_the_host(tmp_path: Path) -> None:
    trace = lagging(tmp_path, drawn=False)
    assert trace.steps.select("device_start_ns", "device_end_ns").collect().rows() == [(None, None)] * 2
    tiny.assert_rows(
        trace.overlap(),
        """
        step  total_ns  device_ns  computing_ns  free_ns  clock
        3     100000    100000     100000        0        host
        4     100000    100000     90000         10000    host
        """,
    )
    assert trace.overview()["steps_how"].item() == "marker"


@pytest.mark.parametrize("file", mostly_deep(RANGES, keep=[RANGES[1], RANGES[3], *RANGES[-2:]]))
def test_steps_on_the_device_are_those_of_the_file(shared: Path, file: str) -> None:
    trace, expected = kineto.opened(shared / file), kineto.device_steps(shared / file)
    rows = trace.steps.select("step", "device_start_ns", "device_end_ns").collect().rows()
    assert {step: (start, end) for step, start, end in rows} == expected
    spans = trace.spans.filter(pl.col("kind").is_in(["kernel", "copy", "set"])).select("start_ns", "dur_ns", "step").collect().rows()
    of_file = [(event.start, event.end - event.start, kineto.step_of_work(shared / file, event)) for event in kineto.work(shared / file)]
    assert sorted(spans, key=str) == sorted(of_file, key=str)
    # No range of the device is cut: what Kineto draws of a step lies within the step.
    for event in kineto.device_ranges(shared / file):
        start, end = expected[int(event.name.removeprefix("ProfilerStep#"))]
        assert start <= event.start and event.end <= end


def test_an_inference_step_is_not_credited_with_the_kernels_of_the_request_before(shared: Path) -> None:
    trace = kineto.opened(shared / "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    row = trace.overlap().row(0, named=True)
    # The file: the marker lasts 47.15 ms on the host; its range on the device 34.89 ms, after 501 kernels of the request before.
    (drawn,) = kineto.device_ranges(shared / "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    assert row["total_ns"] == 47_151_395 and 0 <= row["device_ns"] - (drawn.end - drawn.start) < 300_000
    left = trace.spans.filter((pl.col("kind") == "kernel") & pl.col("step").is_null() & (pl.col("start_ns") < drawn.start)).collect()
    assert left.height > 400 and left["flow_in"].null_count() > 400
