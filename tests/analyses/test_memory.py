import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import UsageError
from stepscope.model.trace import Trace
from stepscope.readers.common.name_parts import complete_table


def test_each_sample_of_each_device_is_a_row_and_static_memory_is_the_rest_without_blocks() -> None:
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


def test_two_samples_at_one_timestamp_are_two_rows_in_their_order() -> None:
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


def test_each_sample_has_its_number_its_change_and_the_operator_of_the_block_that_was_allocated_or_freed() -> None:
    trace = tiny.trace(
        counters="""
            name               at_ns  value  unit
            "allocated_gpu_0"  10     150    bytes
            "allocated_gpu_0"  20     170    bytes
            "allocated_gpu_0"  30     120    bytes
            "allocated_gpu_0"  40     120    bytes
            "allocated_cpu"    20     8      bytes
        """,
        allocations="""
            device   address  bytes  alloc_ns  free_ns  op
            "gpu_0"  1        50     10        30       mm
            "gpu_0"  2        5      20        -        add
            "gpu_0"  3        15     20        -        mul
            cpu      4        8      20        -        item
        """,
    )
    tiny.assert_rows(
        trace.memory(),
        """
        device   at_ns  event  change_bytes  op
        cpu      20     0      -             -
        "gpu_0"  10     0      -             -
        "gpu_0"  20     1      20            mul
        "gpu_0"  30     2      -50           mm
        "gpu_0"  40     3      0             -
        """,
    )


CURVE = """
    name             at_ns  value  unit
    "allocated_cpu"  10     10     bytes
    "allocated_cpu"  20     20     bytes
    "allocated_cpu"  30     90     bytes
    "allocated_cpu"  40     40     bytes
    "allocated_cpu"  50     5      bytes
    "allocated_cpu"  60     60     bytes
"""


def test_a_range_of_time_includes_the_samples_just_before_and_after_it() -> None:
    trace = tiny.trace(counters=CURVE)
    assert trace.memory(start_ns=25, end_ns=45)["at_ns"].to_list() == [20, 30, 40, 50]
    assert trace.memory(start_ns=30, end_ns=40)["at_ns"].to_list() == [20, 30, 40, 50]
    assert trace.memory(start_ns=55)["at_ns"].to_list() == [50, 60]
    assert trace.memory(end_ns=5)["at_ns"].to_list() == []
    assert trace.memory(start_ns=25)["event"].to_list() == [1, 2, 3, 4, 5]


def test_a_curve_for_few_pixels_keeps_the_ends_and_the_extremes_of_each() -> None:
    # One pixel: 10 is first, 60 last, 90 highest and 5 lowest. Two: 10, 20, 30 and 40, 50, 60.
    trace = tiny.trace(counters=CURVE)
    assert trace.memory(pixels=1)["allocated_bytes"].to_list() == [10, 90, 5, 60]
    assert trace.memory(pixels=2)["allocated_bytes"].to_list() == [10, 90, 40, 5, 60]
    with pytest.raises(UsageError, match="pixels is 0; expected a whole number from 1 to 1000000"):
        trace.memory(pixels=0)


@pytest.mark.parametrize("seed", range(20))
def test_no_pixel_loses_its_peak_however_the_samples_lie(seed: int) -> None:
    chance = random.Random(seed)
    count, pixels, by_event = chance.randrange(1, 4000), chance.choice([1, 2, 7, 100, 2000]), chance.random() < 0.5
    # Bursts and pauses, two devices, the same moment more than once.
    at = [0]
    for _ in range(count):
        at.append(at[-1] + chance.choice([0, 1, 1, 2, 5, 10**6]))
    names = [f"{what} {device}" for device in ("gpu 0", "cpu") for what in ("allocated", "reserved")]
    samples = [(name, moment, float(chance.randrange(10**9))) for moment in at for name in names]
    counters = pl.DataFrame(samples, schema=["name", "at_ns", "value"], orient="row").with_columns(rank=pl.lit(0), unit=pl.lit("bytes"))
    trace = Trace({"counters": complete_table(counters.lazy(), "counters")})
    whole, thin = trace.memory(), trace.memory(pixels=pixels, by_event=by_event)
    assert thin.height <= 2 * pixels * 6
    assert thin.join(whole, on=whole.columns, nulls_equal=True, how="semi").height == thin.height
    along = "event" if by_event else "at_ns"
    for device in ("gpu 0", "cpu"):
        full, some = (frame.filter(pl.col("device") == device) for frame in (whole, thin))
        assert some["event"].is_sorted() and some["event"].n_unique() == some.height
        places = full[along].to_list()
        width = (max(places) - min(places)) // pixels + 1
        for column in ("allocated_bytes", "reserved_bytes"):
            assert _reach(some, along, width, column) == _reach(full, along, width, column)


def _reach(rows: pl.DataFrame, along: str, width: int, column: str) -> dict[int, tuple[int, int, int, int]]:
    """By pixel: first, last, lowest and highest value, one row after the other."""
    found: dict[int, list[int]] = {}
    for x, value in rows.select(along, column).iter_rows():
        found.setdefault(x // width, []).append(value)
    return {pixel: (values[0], values[-1], min(values), max(values)) for pixel, values in found.items()}


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
