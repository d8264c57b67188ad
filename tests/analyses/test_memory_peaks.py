import gzip
import json
from pathlib import Path

import stepscope
import tiny


def test_the_peak_of_a_step_is_its_highest_sample_or_its_value_at_the_start() -> None:
    trace = tiny.trace(
        counters="""
            name             at_ns  value  unit
            "allocated_cpu"  5      10     bytes
            "allocated_cpu"  20     60     bytes
            "reserved_cpu"   20     64     bytes
            "allocated_cpu"  30     40     bytes
            "reserved_cpu"   30     80     bytes
            "allocated_cpu"  210    30     bytes
            "allocated_cpu"  300    90     bytes
        """,
        allocations="""
            device  address  bytes  alloc_ns  free_ns  op
            cpu     1        50     20        30       mm
            cpu     2        7      20        -        view
        """,
        steps="""
            step  start_ns  end_ns
            1     10        100
            2     100       200
            3     200       300
        """,
    )
    # Before step 1: 10. Nothing happens in step 2: it keeps the 40 of step 1. Step 3 only frees. At 300 every step is over.
    tiny.assert_rows(
        trace.memory_peaks(),
        """
        rank  device  step  peak_bytes  peak_ns  op    reserved_bytes  growth_bytes
        0     cpu     -     90          300      -     -               -
        0     cpu     1     60          20       mm    80              30
        0     cpu     2     40          100      -     80              0
        0     cpu     3     40          200      -     80              -10
        """,
    )


def test_bytes_before_the_first_sample_are_those_of_its_blocks() -> None:
    # 100 static, and a block of 50 from before that goes at 20: the step starts with 150, its peak, and ends with 100.
    trace = tiny.trace(
        counters="""
            name             at_ns  value  unit
            "allocated_cpu"  20     100    bytes
        """,
        allocations="device address bytes alloc_ns free_ns\n cpu 1 50 - 20",
        steps="step start_ns end_ns\n 1 10 100",
    )
    tiny.assert_rows(
        trace.memory_peaks(),
        """
        step  peak_bytes  peak_ns  static_bytes  growth_bytes
        1     150         10       100           -50
        """,
    )


def test_ranks_and_devices_have_peaks_of_their_own() -> None:
    trace = tiny.trace(
        counters="""
            rank  name               at_ns  value  unit
            0     "allocated_gpu_0"  10     5      bytes
            0     "allocated_gpu_1"  11     6      bytes
            1     "allocated_gpu_0"  12     7      bytes
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         100
            1     0     0         100
        """,
    )
    expected = """
        rank  device   step  peak_bytes  peak_ns
        0     "gpu_0"  0     5           10
        0     "gpu_1"  0     6           11
        1     "gpu_0"  0     7           12
    """
    tiny.assert_rows(trace.memory_peaks(), expected)
    assert trace.memory_peaks(device="gpu 1")["peak_bytes"].to_list() == [6]


def test_a_trace_without_memory_events_has_no_peaks() -> None:
    assert tiny.trace().memory_peaks().height == 0


def test_the_highest_peak_is_the_largest_total_of_the_file_and_its_operator_the_innermost_around_it(shared: Path) -> None:
    file = shared / "torch_h200" / "resnet50_full.json.gz"
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    samples = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Id"] == 0]
    samples.sort(key=lambda e: e["ts"])
    highest = max(samples, key=lambda e: e["args"]["Total Allocated"])
    around = [
        e for e in events if e.get("cat") == "cpu_op" and e["tid"] == highest["tid"] and e["ts"] <= highest["ts"] <= e["ts"] + e["dur"]
    ]
    peaks = stepscope.open(file).memory_peaks(device="gpu 0")
    assert peaks["peak_bytes"].max() == highest["args"]["Total Allocated"]
    assert peaks["op"][0] == max(around, key=lambda e: e["ts"])["name"]
    before = samples[0]["args"]["Total Allocated"] - samples[0]["args"]["Bytes"]
    assert peaks["growth_bytes"].sum() == samples[-1]["args"]["Total Allocated"] - before
