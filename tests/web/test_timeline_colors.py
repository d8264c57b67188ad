"""Colours of the timeline: by family, kind, scope and duration; what is chosen stands out from the rest."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.io import store
from timeline_page import PATIENCE, RESNET, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

Color = tuple[int, int, int]


@pytest.fixture(scope="module")
def spans() -> pl.DataFrame:
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    return trace.spans.with_columns(start=pl.col("start_ns") - origin).filter(kind="kernel", depth=0).sort("start").collect()


def pair(spans: pl.DataFrame, alike: str, other: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two kernels near each other, both long, equal in one column and not in another."""
    rows = spans.filter(pl.col("dur_ns") > 40_000, pl.col(alike).is_not_null()).to_dicts()
    for at, one in enumerate(rows):
        for two in rows[at + 1 : at + 40]:
            if one[alike] == two[alike] and one[other] != two[other] and one["track"] == two["track"]:
                return one, two
    raise AssertionError(f"no two kernels with the same {alike} and another {other}")


def color(shown: Shown, event: dict[str, Any]) -> Color:
    start, dur = event["start"], event["dur_ns"]
    x, y = shown.place(event["track"], start + dur * 0.6)
    return shown.pixel(x, y - 4)  # above the labels


def token(page: "Page", name: str) -> Color:
    text: str = page.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def window(*events: dict[str, Any]) -> str:
    starts = [event["start"] for event in events]
    ends = [event["start"] + event["dur_ns"] for event in events]
    return f"t0={min(starts) - 20_000}&t1={max(ends) + 20_000}"


def test_by_kind_all_kernels_have_the_colour_of_computing(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    events = pair(spans, "kind", "name")
    shown = Shown(page, server(SAMPLES), RESNET.name, window(*events))
    page.get_by_role("button", name="Kind", exact=True).click()
    page.mouse.move(5, 5)
    computing = [token(page, "--kind-compute")] * 2
    assert until(lambda: [color(shown, event) for event in events], lambda seen: seen == computing) == computing
    assert shown.address["color"] == "kind"


def test_by_scope_the_same_scope_has_the_same_colour(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    same = pair(spans, "scope", "name")
    shown = Shown(page, server(SAMPLES), RESNET.name, window(*same) + "&color=scope")
    page.mouse.move(5, 5)
    assert until(lambda: [color(shown, event) for event in same], lambda seen: seen[0] == seen[1])[0] != token(page, "--surface")
    assert color(shown, same[0]) == color(shown, same[1])


def test_a_name_that_says_nothing_has_the_colour_of_its_type(server: "Serve", page: "Page", tmp_path: Path) -> None:
    spans = """
    track  kind    name          op_type   start_ns  dur_ns
    0      kernel  layer0/cube   MatMulV2  0         1000
    0      kernel  layer0/thing  -         1000      1000
    0      kernel  layer0/two    MatMulV2  2000      500
    0      kernel  layer0/two    Cast      2500      500
    """
    store.write(tiny.trace(spans=spans, tracks="track  kind  label  device\n0  stream  s  0"), tmp_path / "typed")
    shown = Shown(page, server(tmp_path), "typed")
    page.mouse.move(5, 5)
    other = token(page, "--op-other")
    cube, thing, two = ({"track": 0, "start": start, "dur_ns": 400} for start in (300, 1300, 2050))
    assert until(lambda: color(shown, thing), lambda seen: seen == other) == other
    assert color(shown, two) == other  # of two types, it is neither's
    blue = token(page, "--op-matmul")
    seen = color(shown, cube)
    assert max(abs(seen[at] - blue[at]) for at in range(3)) <= 32  # a shade of it
    assert seen != other


def test_a_stretch_of_time_is_framed_unless_it_is_named_after_what_runs_in_it(server: "Serve", page: "Page", tmp_path: Path) -> None:
    spans = """
    track  kind        name             start_ns  dur_ns
    0      annotation  Reduce_1_0       0         1000
    0      annotation  WithLossCell     1000      1000
    0      annotation  Optimizer.step   2000      1000
    0      annotation  whatever         3000      1000
    """
    store.write(tiny.trace(spans=spans, tracks="track  kind  label\n0  annotation  a"), tmp_path / "framed")
    shown = Shown(page, server(tmp_path), "framed")
    page.mouse.move(5, 5)
    reduce, loss, optimizer, other = ({"track": 0, "start": start, "dur_ns": 600} for start in (300, 1300, 2300, 3300))
    assert until(lambda: color(shown, other), lambda seen: seen != token(page, "--surface")) == color(shown, reduce) == color(shown, loss)
    assert color(shown, optimizer) != color(shown, other)


def test_by_duration_the_longer_is_further_from_the_ground(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    rows = spans.filter(pl.col("dur_ns") > 10_000)
    at = int(rows["dur_ns"].arg_max() or 0)
    long = rows.row(at, named=True)
    short = min(rows[max(0, at - 8) : at + 8].to_dicts(), key=lambda row: row["dur_ns"])
    assert long["dur_ns"] > 4 * short["dur_ns"]
    shown = Shown(page, server(SAMPLES), RESNET.name, window(long, short) + "&color=duration")
    page.mouse.move(5, 5)
    assert until(lambda: sum(color(shown, long)) < sum(color(shown, short)), bool)


def test_kinds_that_are_not_meant_are_pale(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    event = spans.filter(pl.col("dur_ns") > 40_000).row(0, named=True)
    shown = Shown(page, server(SAMPLES), RESNET.name, window(event) + "&color=kind")
    page.mouse.move(5, 5)
    full = token(page, "--kind-compute")
    assert until(lambda: color(shown, event), lambda seen: seen == full) == full
    page.get_by_role("button", name=re.compile("^Filter by kind")).click()
    page.get_by_role("checkbox", name=re.compile("^copy")).check()
    page.keyboard.press("Escape")
    page.mouse.move(5, 5)
    pale = until(lambda: color(shown, event), lambda seen: seen != full)
    assert all(full[at] < pale[at] for at in range(3))
    assert shown.address["kinds"] == "copy"
    address = page.evaluate("location.hash")
    page.goto("about:blank")
    page.goto(server(SAMPLES).url(address))
    assert until(lambda: color(shown, event), lambda seen: seen == pale) == pale


def test_all_of_the_same_name_are_underlined_with_the_selected(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    one, two = pair(spans, "name", "span")
    shown = Shown(page, server(SAMPLES), RESNET.name, window(one, two) + "&color=kind")

    def underlined(event: dict[str, Any]) -> bool:
        start, dur = event["start"], event["dur_ns"]
        name = shown.lane(event["track"])[1].bounding_box()
        assert name is not None
        x = shown.at(start + dur * 0.6)
        rows = json_rows(shown, event["track"])
        high = (name["height"] - 6) / rows
        return shown.pixel(x, name["y"] + 4 + high - 3) == token(page, "--text")

    page.mouse.move(5, 5)
    assert until(lambda: not underlined(two), bool)
    x, y = shown.place(one["track"], one["start"] + one["dur_ns"] / 2)
    page.mouse.click(x, y)
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", one["name"], timeout=PATIENCE)
    page.mouse.move(5, 5)
    assert until(lambda: underlined(two), bool)


def json_rows(shown: Shown, track: int) -> int:
    lanes = json.loads(shown.served.ask(shown.base).body)["lanes"]
    return int(next(lane["rows"] for lane in lanes if lane["track"] == track and lane["kind"] == "spans"))
