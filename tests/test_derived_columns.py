"""Typed columns of counters and tracks whose source has only names."""

import polars as pl
import pytest

from stepscope.model.derived_columns import OWNER
from stepscope.model.trace import Trace


@pytest.mark.parametrize(
    ("name", "series", "owner"),
    [
        ("allocated npu 0", "allocated", "npu 0"),
        ("reserved cpu", "reserved", "cpu"),
        ("allocated", "allocated", ""),
        ("HBM 0 Read npu 1", "HBM 0 Read", "npu 1"),
        ("cpu 3 user npu 1", "cpu 3 user", "npu 1"),
        ("utilization gpu 2", "utilization", "gpu 2"),
        ("queue 3 depth", "depth", "loader 3"),
        ("queue 3 Batch", "depth", "operator 3"),
        ("queue device queue", "depth", "device queue"),
        ("batch time iterator", "batch time", "iterator"),
        ("cpu user 4 Map", "cpu user", "operator 4"),
        ("process 12 cpu user", "cpu user", "process 12"),
        ("cpu user", "cpu user", None),
        ("loss", "loss", None),
    ],
)
def test_a_counter_name_has_a_series_and_an_owner(name: str, series: str, owner: str | None) -> None:
    counters = pl.DataFrame({"rank": [0], "name": [name], "at_ns": [1], "value": [2.0], "unit": ["bytes"]})
    trace = Trace({"counters": counters})
    assert trace.counters.select(pl.col("series").cast(pl.String), OWNER.alias("owner")).collect().rows() == [(series, owner)]


def test_columns_of_the_source_are_kept() -> None:
    counters = pl.DataFrame({"rank": [0], "name": ["allocated npu 0"], "at_ns": [1], "series": ["other"], "owner": ["npu"], "number": [5]})
    assert Trace({"counters": counters}).counters.select("series", "number").collect().rows() == [("other", 5)]


@pytest.mark.parametrize(
    ("label", "tid", "kind", "expected"),
    [
        ("Stream 7", "7", "stream", (7, None, None)),
        ("Group g1 Communication", "g1", "stream", (None, "g1", None)),
        ("Group g1 Plane 2", "g1 plane 2", "communication", (None, "g1", 2)),
        ("Plane 4", "1004", "communication", (None, None, 4)),
        ("Reduce on stream 3", "reduce 3", "stream", (None, None, None)),
    ],
)
def test_a_track_label_has_a_stream_a_group_and_a_plane(label: str, tid: str, kind: str, expected: tuple[object, ...]) -> None:
    tracks = pl.DataFrame({"rank": [0], "track": [0], "label": [label], "tid": [tid], "kind": [kind], "device": [0]})
    assert Trace({"tracks": tracks}).tracks.select("stream", "communication_group", "plane").collect().rows() == [expected]
