import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

import stepscope
import tiny
from stepscope.model.trace import Trace


def test_an_operators_blocks_are_counted_summed_and_their_highest_sum_found() -> None:
    trace = tiny.trace(
        allocations="""
            rank  device  address  bytes  alloc_ns  free_ns  op
            0     cpu     1        100    -         15       -
            0     cpu     2        10     10        20       mm
            0     cpu     3        30     20        40       mm
            0     cpu     4        20     30        -        mm
            0     cpu     5        7      30        30       add
            0     gpu     6        9      30        -        mm
            1     cpu     6        9      30        31       mm
        """
    )
    tiny.assert_rows(
        trace.allocations_by_op(),
        """
        rank  device  op   blocks  allocated_bytes  largest_bytes  peak_bytes  never_freed  never_freed_bytes
        0     cpu     -    1       100              100            100         0            0
        0     cpu     mm   3       60               30             50          1            20
        0     cpu     add  1       7                7              0           0            0
        0     gpu     mm   1       9                9              9           1            9
        1     cpu     mm   1       9                9              9           0            0
        """,
    )
    assert trace.allocations_by_op(device="gpu")["op"].to_list() == ["mm"]


def test_the_peak_is_what_a_count_at_every_nanosecond_finds() -> None:
    random = np.random.default_rng(7)
    alloc = random.integers(0, 50, 300)
    blocks = pl.DataFrame(
        {
            "rank": 0,
            "device": "cpu",
            "bytes": random.integers(1, 1000, 300),
            "alloc_ns": pl.Series(alloc).set(pl.Series(random.random(300) < 0.1), None),
            "free_ns": pl.Series(alloc + random.integers(0, 30, 300)).set(pl.Series(random.random(300) < 0.1), None),
            "op": pl.Series(random.choice(["mm", "add", "relu"], 300)),
        }
    )
    expected: Counter[str] = Counter()
    for now in range(-1, 100):
        alive: Counter[str] = Counter()
        for row in blocks.iter_rows(named=True):
            if (row["alloc_ns"] is None or row["alloc_ns"] <= now) and (row["free_ns"] is None or now < row["free_ns"]):
                alive[row["op"]] += row["bytes"]
        expected |= alive
    got = Trace({"allocations": blocks}).allocations_by_op()
    assert dict(got.select("op", "peak_bytes").iter_rows()) == dict(expected)


def test_a_trace_without_blocks_has_no_rows() -> None:
    assert tiny.trace().allocations_by_op().height == 0


def test_all_that_the_file_allocates_is_some_operators(shared: Path) -> None:
    file = shared / "torch_h200" / "resnet50_full.json.gz"
    events = [e for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if e.get("name") == "[memory]"]
    known: set[tuple[int, int]] = set()
    expected: Counter[str] = Counter()
    for event in (e["args"] for e in sorted(events, key=lambda e: e["ts"])):
        device, block = "cpu" if event["Device Id"] < 0 else f"gpu {event['Device Id']}", (event["Device Id"], event["Addr"])
        if event["Bytes"] > 0:
            known.add(block)
            expected[device] += event["Bytes"]
        elif block in known:
            known.remove(block)
        else:  # it was there before
            expected[device] -= event["Bytes"]
    got = stepscope.open(file).allocations_by_op().group_by("device").agg(pl.col("allocated_bytes").sum())
    assert dict(got.iter_rows()) == dict(expected)
