"""What the server says of a run's timeline: lanes, and tiles that hold what was recorded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import stepscope
from tiles import decoded

if TYPE_CHECKING:
    from conftest import Serve

SAMPLES = Path(__file__).parents[1] / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"


@pytest.fixture
def address(server: "Serve") -> str:
    return f"api/runs/{server(SAMPLES).run('resnet50_h200')}/timeline"


@pytest.fixture
def overview(server: "Serve", address: str) -> dict[str, Any]:
    found: dict[str, Any] = server(SAMPLES).ask(address).json()
    return found


def test_the_lanes_are_those_of_the_run(overview: dict[str, Any], server: "Serve") -> None:
    trace = stepscope.open(RESNET)
    spans = trace.spans.collect()
    info = server(SAMPLES).ask(f"api/runs/{server(SAMPLES).run('resnet50_h200')}").json()
    assert overview["events"] == spans.height
    assert overview["end_ns"] == int(info["end_ns"]) - int(info["origin_ns"])
    assert {lane["track"]: lane["events"] for lane in overview["lanes"] if lane["kind"] == "spans"} == dict(
        spans.group_by("track").len().iter_rows()
    )
    assert [lane["id"] for lane in overview["lanes"]] == list(range(len(overview["lanes"])))
    assert {lane["group"] for lane in overview["lanes"]} == {group["id"] for group in overview["groups"]}


def test_the_top_tile_of_a_stream_holds_all_of_its_spans(overview: dict[str, Any], server: "Serve", address: str) -> None:
    lane = next(lane for lane in overview["lanes"] if lane["label"] == "stream 7")
    answer = server(SAMPLES).ask(f"{address}/tiles/{overview['top_level']}/0?lanes={lane['id']}&v={overview['version']}")
    assert "immutable" in answer.headers["cache-control"]
    tile = decoded(answer.body)
    assert len(tile["long_start"]) + tile["bucket_count"].sum() == lane["events"]
    kernels = stepscope.open(RESNET).spans.filter(pl.col("track") == lane["track"]).collect()
    longest = kernels.sort("dur_ns")["span"][-1]
    assert longest in np.concatenate((tile["long_span"], tile["bucket_span"]))


@pytest.mark.parametrize("rest", ["/tiles/60/0", "/tiles/0/99999999999999999", "/tiles/3/0?lanes=999", "/tiles/3/0?lanes=a", "?what=1"])
def test_what_is_not_there_is_refused_in_a_line(server: "Serve", address: str, rest: str) -> None:
    answer = server(SAMPLES).ask(address + rest)
    assert answer.status == 400
    assert "\n" not in answer.json()["error"]
