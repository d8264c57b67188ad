"""What the server says of a run's timeline: lanes, and tiles that hold what was recorded."""

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import stepscope
import tiny
from stepscope.io import store
from tiles import decoded

if TYPE_CHECKING:
    from web.conftest import Serve

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


def test_a_span_is_told_with_its_flows(server: "Serve", address: str) -> None:
    kernel = stepscope.open(RESNET).spans.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).collect().row(7, named=True)
    output = server(SAMPLES).ask(f"{address}/span?rank=0&span={kernel['span']}").json()
    assert (output["name"], output["dur"], output["start_ns"]) == (kernel["name"], kernel["dur_ns"], str(kernel["start_ns"]))
    assert [one["span"] for one in output["flows"]["in"]] == [kernel["flow_in"]]


def test_a_search_leads_from_one_to_the_next(server: "Serve", address: str) -> None:
    spans = stepscope.open(RESNET).spans.filter(pl.col("name") == "aten::conv2d").sort("start_ns").collect()
    ask = f"{address}/search?text=aten::conv2d&kinds=op&args=0"
    output = server(SAMPLES).ask(ask).json()
    assert (output["count"], output["total_ns"]) == (spans.height, spans["dur_ns"].sum())
    assert output["first"]["span"] == output["found"]["span"] == spans["span"][0]
    one = output["first"]
    for at in range(1, 4):
        one = server(SAMPLES).ask(f"{ask}&after={one['start']}").json()["found"]
        assert (one["span"], one["ordinal"]) == (spans["span"][at], at)
    back = server(SAMPLES).ask(f"{ask}&before={one['start']}").json()["found"]
    assert (back["span"], back["ordinal"]) == (spans["span"][2], 2)
    assert server(SAMPLES).ask(f"{ask}&number={spans.height - 1}").json()["found"]["span"] == spans["span"][-1]
    assert server(SAMPLES).ask(f"{ask}&after={1 << 60}").json()["found"] is None


def test_an_area_is_a_table_and_says_how_busy_the_device_was(server: "Serve", overview: dict[str, Any], address: str) -> None:
    lane = next(lane for lane in overview["lanes"] if lane["label"] == "stream 7")
    answer = server(SAMPLES).ask(f"{address}/area?t0=0&t1={overview['end_ns']}&lanes={lane['id']}&by=kind")
    table = pl.read_ipc_stream(answer.body)
    kernels = stepscope.open(RESNET).spans.filter(pl.col("kind") == "kernel").collect()
    row = table.row(by_predicate=pl.col("key") == "kernel", named=True)
    assert (row["count"], row["total_ns"], row["max_ns"]) == (kernels.height, kernels["dur_ns"].sum(), kernels["dur_ns"].max())
    (group,) = json.loads(answer.headers["x-stepscope-area"])
    assert group["group"] == lane["group"]
    assert group["busy_ns"] + group["idle_ns"] == overview["end_ns"]


def test_the_longest_gaps_come_first_with_their_causes(server: "Serve", overview: dict[str, Any], address: str) -> None:
    device = next(group for group in overview["groups"] if group["kind"] == "device")
    gaps = server(SAMPLES).ask(f"{address}/gaps?group={device['id']}").json()["gaps"]
    truth = stepscope.open(RESNET).gaps().sort("dur_ns", descending=True)
    assert [gap["dur"] for gap in gaps] == truth["dur_ns"].head(200).to_list()
    assert gaps[0]["cause"] == truth["cause"][0]


def test_what_is_near_is_found_by_row_and_moment(server: "Serve", overview: dict[str, Any], address: str) -> None:
    lane = next(lane for lane in overview["lanes"] if lane["kind"] == "steps")
    first = server(SAMPLES).ask(f"{address}/near?lane={lane['id']}&row=0&at=-1&direction=next").json()["event"]
    assert first["name"] == "step 8"
    there = server(SAMPLES).ask(f"{address}/near?lane={lane['id']}&row=0&at={first['start'] + 5}").json()["event"]
    assert there == first
    assert server(SAMPLES).ask(f"{address}/near?lane={lane['id']}&row=0&at={first['start']}&direction=prev").json()["event"] is None


def test_a_window_is_exported_with_what_reaches_into_it(server: "Serve", address: str, tmp_path: Path) -> None:
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    low, high = 50_000_000, 60_000_000
    answer = server(SAMPLES).ask(address.replace("/timeline", f"/export/chrome?t0={low}&t1={high}"))
    (tmp_path / "part.json.gz").write_bytes(answer.body)
    back = stepscope.open(tmp_path / "part.json.gz", cache=False)
    start, end = pl.col("start_ns") - origin, pl.col("start_ns") + pl.col("dur_ns") - origin
    wanted = trace.spans.filter(start < high, (end > low) | (start >= low))
    rows = [frame.select(pl.col("name").cast(pl.String), "start_ns", "dur_ns").collect().rows() for frame in (wanted, back.spans)]
    assert sorted(rows[0]) == sorted(rows[1])
    assert server(SAMPLES).ask(address.replace("/timeline", "/export/chrome?t0=5")).status == 400


@pytest.mark.parametrize(
    "rest",
    [
        "/tiles/60/0",
        "/tiles/0/99999999999999999",
        "/tiles/3/0?lanes=999",
        "/tiles/3/0?lanes=a",
        "/tiles/3/0?by=colour",
        "?what=1",
        "/span?span=99999999",
        "/span",
        "/search?text=",
        "/search?text=/(/",
        "/search?text=a&after=1&before=2",
        "/area?t0=5&t1=5",
        "/area?t0=5&t1=9&by=colour",
        "/near?lane=0&row=9&at=0",
        "/near?lane=0&row=0&at=0&direction=up",
        "/gaps?group=99",
    ],
)
def test_what_is_not_there_is_refused_in_a_line(server: "Serve", address: str, rest: str) -> None:
    answer = server(SAMPLES).ask(address + rest)
    assert answer.status == 400
    assert "\n" not in answer.json()["error"]


def test_how_far_the_building_is_is_told_until_it_is_done(server: "Serve", address: str) -> None:
    body = server(SAMPLES).ask(f"{address}/progress").body.decode()
    entries = [block.splitlines() for block in body.strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in entries]
    assert names == ["progress"] * (len(entries) - 1) + ["finished"]
    shares = [json.loads(lines[1].removeprefix("data: "))["share"] for lines in entries]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_several_ranks_are_exported_as_an_archive_of_a_file_each_and_one_as_a_file(server: "Serve", tmp_path: Path) -> None:
    spans = "rank  kind  name  start_ns  dur_ns  scope\n0  op  a  1000  500  net/a\n1  op  b  1200  500  net/b"
    store.write(tiny.trace(spans=spans, tracks="rank  track  kind  label\n0  0  thread  main\n1  0  thread  main"), tmp_path / "two")
    served = server(tmp_path)
    (run,) = [one["id"] for one in served.ask("api/runs").json()["runs"]]
    both = served.ask(f"api/runs/{run}/export/chrome?scopes=1")
    assert both.status == 200
    with zipfile.ZipFile(io.BytesIO(both.body)) as archive:
        assert sorted(archive.namelist()) == ["rank0.json.gz", "rank1.json.gz"]
    one = served.ask(f"api/runs/{run}/export/chrome?rank=1&scopes=1")
    events = json.loads(gzip.decompress(one.body))["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["b", "net"]


def test_a_trace_of_fifty_years_has_a_top_tile(server: "Serve", tmp_path: Path) -> None:
    """A counter that began with the machine's clock, beside spans in the time of day: not wise, but it can be seen."""
    trace = tiny.trace(
        spans="""
            track  kind  name  start_ns             dur_ns
            0      op    a     0                    5
            0      op    b     1700000000000000000  5
        """,
        tracks="""
            track  kind    label  group  sort
            0      thread  main   p      0
        """,
    )
    store.write(trace, tmp_path / "long")
    served = server(tmp_path)
    address = f"api/runs/{served.run('long')}/timeline"
    overview = served.ask(address).json()
    lane = next(lane for lane in overview["lanes"] if lane["label"] == "main")
    tile = decoded(served.ask(f"{address}/tiles/{overview['top_level']}/0?lanes={lane['id']}&v={overview['version']}").body)
    assert tile["bucket_count"].sum() + len(tile["long_start"]) == 2
