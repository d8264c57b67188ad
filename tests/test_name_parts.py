"""Typed columns of counters and tracks in files that have only names."""

from pathlib import Path

import polars as pl
import pytest

from stepscope.io import store
from stepscope.model.columns.counters import OWNER, of_device
from stepscope.model.trace import Trace
from stepscope.readers.common.name_parts import add_track_columns, complete_table


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
    trace = Trace({"counters": complete_table(counters.lazy(), "counters")})
    assert trace.counters.select(pl.col("series").cast(pl.String), OWNER.alias("owner")).collect().rows() == [(series, owner)]


def test_columns_of_the_source_are_kept() -> None:
    counters = pl.DataFrame({"rank": [0], "name": ["allocated npu 0"], "at_ns": [1], "series": ["other"], "owner": ["npu"], "number": [5]})
    assert complete_table(counters.lazy(), "counters").select("series", "number").collect().rows() == [("other", 5)]


def test_a_trace_parses_no_names() -> None:
    counters = pl.DataFrame({"rank": [0], "name": ["allocated npu 0"], "at_ns": [1], "value": [2.0]})
    assert Trace({"counters": counters}).counters.select("series", "owner", "number").collect().rows() == [(None, None, None)]


def test_a_run_folder_of_an_earlier_release_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    trace = Trace(
        {
            "spans": pl.DataFrame({"rank": [0], "span": [0], "track": [0], "kind": ["op"], "start_ns": [0], "dur_ns": [1]}),
            "counters": pl.DataFrame({"rank": [0], "name": ["allocated npu 0"], "at_ns": [1], "value": [2.0]}),
            "tracks": pl.DataFrame(
                {"rank": [0], "track": [0], "label": ["Group g1 Plane 2"], "tid": ["2"], "kind": ["stream"], "device": [0]}
            ),
        }
    )
    store.write(trace, tmp_path / "run")
    for table, added in (("counters", ["series", "owner", "number"]), ("tracks", ["stream", "communication_group", "plane"])):
        file = tmp_path / "run" / f"{table}.parquet"
        pl.read_parquet(file).drop(added).write_parquet(file)
    earlier = store.read(tmp_path / "run")
    parts = earlier.counters.select(pl.col("series", "owner").cast(pl.String), "number").collect()
    assert parts.rows() == [("allocated", "npu", 0)]
    assert earlier.tracks.select("stream", "communication_group", "plane").collect().rows() == [(None, "g1", 2)]


@pytest.mark.parametrize(
    ("series", "owner", "number", "name"),
    [("allocated", "npu", 0, "allocated npu 0"), ("reserved", "cpu", None, "reserved cpu"), ("HBM 0 Read", "npu", 1, "HBM 0 Read npu 1")],
)
def test_the_name_of_a_counter_consists_of_its_parts(series: str, owner: str, number: int | None, name: str) -> None:
    assert pl.DataFrame({"x": [0]}).select(**of_device(series, owner, number)).rows() == [(name, series, owner, number)]


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
    assert add_track_columns(tracks.lazy()).select("stream", "communication_group", "plane").collect().rows() == [expected]
