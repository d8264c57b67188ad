"""What a report carries of a timeline is enough to draw it."""

import json
from pathlib import Path

import numpy as np
import polars as pl

import stepscope
import tiles
from stepscope.timeline import report

RESNET = next((Path(__file__).parent / "samples" / "run").glob("*/resnet50_h200"))


def test_everything_is_carried_in_outline_and_the_longest_step_to_the_last_event() -> None:
    trace = stepscope.open(RESNET)
    carried = dict(report.parts(trace))
    assert next(iter(carried)) == "timeline"
    header = json.loads(carried.pop("timeline"))
    assert sorted(track for some in header["bundles"] for track in some) == [track["id"] for track in header["lanes"]]
    first = list(carried)[: len(header["bundles"])]
    assert first == [f"timeline/tiles/{header['top_level']}/0?lanes={','.join(map(str, some))}" for some in header["bundles"]]
    drawn = [tiles.decoded(content) for path, content in carried.items() if path.startswith("timeline/tiles/")]
    spans = np.unique(np.concatenate([tile["long_span"] for tile in drawn]))
    longest = trace.steps.sort(pl.col("end_ns") - pl.col("start_ns")).tail(1)
    start, end = longest.select("start_ns", "end_ns").collect().row(0)
    inside = trace.spans.filter(pl.col("start_ns") >= start, pl.col("start_ns") < end, pl.col("dur_ns") >= 64)
    assert np.isin(inside.select("span").collect()["span"].to_numpy(), spans).all()


def test_no_tile_is_carried_below_one_that_has_every_event_by_itself() -> None:
    places = [path for path, _ in report.parts(stepscope.open(RESNET)) if path.startswith("timeline/tiles/")]
    assert len(places) == len(set(places))
    whole = set()
    for path, content in report.parts(stepscope.open(RESNET)):
        if not path.startswith("timeline/tiles/"):
            continue
        level, index = (int(word) for word in path.split("?")[0].split("/")[2:])
        tracks = path.split("=")[1]
        assert not any((level + up, index >> up, tracks) in whole for up in range(1, 30))
        tile = tiles.decoded(content)
        if len(tile["bucket_x"]) == 0 and max((track.get("points", 0) for track in tile["header"]["lanes"]), default=0) <= 512:
            whole.add((level, index, tracks))


def test_the_spans_are_carried_with_what_is_known_of_them_the_chosen_steps_first() -> None:
    trace = stepscope.open(RESNET)
    parts = [pl.read_ipc_stream(content) for path, content in report.parts(trace) if path.startswith("timeline/spans/")]
    carried = pl.concat(parts)
    spans = trace.spans.collect()
    assert sorted(carried["span"].to_list()) == sorted(spans["span"].to_list())
    origin, _ = trace.ends()
    both = carried.join(spans, on=["rank", "span"], suffix="_known")
    assert (both["start"] == both["start_ns"] - origin).all()
    assert (both["dur"] == both["dur_ns"]).all()
    assert (both["name"] == both["name_known"].cast(pl.String)).all()
    # Steps 11, 8 and 10 are the longest and those next to the usual length (59.7, 44.6, 54.4 of 49.5 ms); 9 is none of them.
    steps = {row["step"]: (row["start_ns"] - origin, row["end_ns"] - origin) for row in trace.steps.collect().iter_rows(named=True)}
    place = carried.with_row_index().with_columns(end=pl.col("start") + pl.col("dur"))
    of = {step: place.filter(pl.col("start") > low, pl.col("end") < high)["index"] for step, (low, high) in steps.items()}
    assert max(of[11].max(), of[8].max(), of[10].max()) < of[9].min()  # type: ignore[type-var]
