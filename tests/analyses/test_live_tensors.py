from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import UsageError

BLOCKS = """
    device  address  bytes  alloc_ns  free_ns  op    shape    dtype
    cpu     1        100    -         -        -     -        -
    cpu     2        40     -         30       -     -        -
    cpu     3        10     10        20       mm    [2,5]    int8
    cpu     4        25     20        50       add   [5,5]    int8
    cpu     5        60     40        -        relu  [60]     int8
"""


def test_a_block_is_alive_from_its_allocation_up_to_its_release() -> None:
    trace = tiny.trace(allocations=BLOCKS)
    tiny.assert_rows(
        trace.live_tensors(at_ns=20),
        """
        rank  device  at_ns  address  bytes  alloc_ns  free_ns  life_ns  op   shape  dtype
        0     cpu     20     1        100    -         -        -        -    -      -
        0     cpu     20     2        40     -         30       -        -    -      -
        0     cpu     20     4        25     20        50       30       add  [5,5]  int8
        """,
    )
    assert trace.live_tensors(at_ns=9)["address"].to_list() == [1, 2]
    assert trace.live_tensors(at_ns=50)["address"].to_list() == [1, 5]


def test_the_peak_is_the_maximum_of_live_blocks_unless_it_is_sampled() -> None:
    # 140 at first, 150 at 10, 165 at 20, 125 at 30, 185 at 40, 160 at 50.
    assert tiny.trace(allocations=BLOCKS).live_tensors()["at_ns"].unique().to_list() == [40]
    counters = """
        name             at_ns  value  unit
        "allocated_cpu"  10     999    bytes
        "allocated_cpu"  40     185    bytes
    """
    trace = tiny.trace(allocations=BLOCKS, counters=counters, steps="step  start_ns  end_ns\n 0 0 30\n 1 30 90")
    assert trace.live_tensors()["address"].to_list() == [1, 2, 3]
    assert trace.live_tensors(step=0)["address"].to_list() == [1, 2, 3]
    assert trace.live_tensors(step=1)["at_ns"].unique().to_list() == [30]  # what step 0 left is more than it ever has


def test_blocks_of_unknown_time_alone_are_always_alive() -> None:
    trace = tiny.trace(allocations="device address bytes alloc_ns free_ns\n cpu 1 5 - -\n npu 2 6 - -")
    assert trace.live_tensors()["address"].to_list() == [1, 2]
    assert trace.live_tensors(at_ns=77, device="npu")["address"].to_list() == [2]


def test_a_timestamp_and_a_step_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="at_ns or step"):
        tiny.trace().live_tensors(at_ns=1, step=1)


def test_a_trace_without_blocks_has_no_rows() -> None:
    assert tiny.trace().live_tensors().height == 0


@pytest.mark.parametrize("name", ["resnet50_full", "gpt2_full"])
def test_live_blocks_and_static_memory_are_the_allocated_bytes_at_every_timestamp(shared: Path, name: str) -> None:
    trace = stepscope.open(shared / "torch_h200" / f"{name}.json.gz")
    curve = trace.memory(device="gpu 0").unique("at_ns", keep="last", maintain_order=True)
    for at_ns, allocated, static in curve.select("at_ns", "allocated_bytes", "static_bytes").gather_every(200).iter_rows():
        assert trace.live_tensors(at_ns=at_ns, device="gpu 0")["bytes"].sum() + static == allocated
    peak = trace.live_tensors(device="gpu 0")
    assert peak["bytes"].sum() + curve["static_bytes"][0] == curve["allocated_bytes"].max()
    assert peak["bytes"].is_sorted(descending=True)
    assert peak.filter(pl.col("alloc_ns").is_not_null()).height > 0
