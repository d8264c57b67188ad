import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny


def test_each_moment_of_each_device_is_a_row_and_static_memory_is_what_no_block_explains() -> None:
    # 100 bytes were there before: 30 of them go at 30, so 70 are static. The block of 50 lives from 10 to 20.
    trace = tiny.trace(
        counters="""
            name               at_ns  value  unit
            "allocated_gpu_0"  10     150    bytes
            "reserved_gpu_0"   10     512    bytes
            "allocated_gpu_0"  20     100    bytes
            "reserved_gpu_0"   20     512    bytes
            "allocated_gpu_0"  30     70     bytes
            "reserved_gpu_0"   30     256    bytes
            "allocated_cpu"    15     8      bytes
            cpu                15     0.5    share
        """,
        allocations="""
            device   address  bytes  alloc_ns  free_ns
            "gpu_0"  1        50     10        20
            "gpu_0"  2        30     -         30
        """,
    )
    tiny.assert_rows(
        trace.memory(),
        """
        rank  device   at_ns  allocated_bytes  reserved_bytes  static_bytes
        0     cpu      15     8                -               -
        0     "gpu_0"  10     150              512             70
        0     "gpu_0"  20     100              512             70
        0     "gpu_0"  30     70               256             70
        """,
    )
    assert trace.memory(device="cpu")["allocated_bytes"].to_list() == [8]


def test_two_samples_at_one_moment_are_two_rows_in_their_order() -> None:
    trace = tiny.trace(
        counters="""
            name             at_ns  value  unit
            "allocated_cpu"  10     90     bytes
            "reserved_cpu"   10     100    bytes
            "allocated_cpu"  10     40     bytes
            "reserved_cpu"   10     101    bytes
        """
    )
    tiny.assert_rows(
        trace.memory(),
        """
        at_ns  allocated_bytes  reserved_bytes
        10     90               100
        10     40               101
        """,
    )


def test_a_trace_without_memory_events_has_no_rows() -> None:
    assert tiny.trace().memory().height == 0


@pytest.mark.parametrize("name", ["resnet50_full", "gpt2_full"])
def test_the_curve_of_a_real_recording_is_every_memory_event_of_the_file(shared: Path, name: str) -> None:
    file = shared / "torch_h200" / f"{name}.json.gz"
    events = [
        e["args"] | {"ts": e["ts"]} for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if e.get("name") == "[memory]"
    ]
    got = stepscope.open(file).memory()
    for device, number in (("gpu 0", 0), ("cpu", -1)):
        curve = got.filter(pl.col("device") == device)
        expected = sorted((e for e in events if e["Device Id"] == number), key=lambda e: e["ts"])
        assert curve["allocated_bytes"].to_list() == [e["Total Allocated"] for e in expected]
        assert curve["reserved_bytes"].to_list() == [e["Total Reserved"] for e in expected]
        assert curve["static_bytes"].unique().to_list() == [_static(expected)]


def _static(events: list[dict[str, int]]) -> int:
    """What was allocated before the first event, less what of it was freed since: one event after the other."""
    static = events[0]["Total Allocated"] - events[0]["Bytes"]
    known: set[int] = set()
    for event in events:
        if event["Bytes"] > 0:
            known.add(event["Addr"])
        elif event["Addr"] in known:
            known.remove(event["Addr"])
        else:
            static += event["Bytes"]
    return static
