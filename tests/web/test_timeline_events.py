"""Every event of a small trace can be reached in the timeline, by clicking and by keys."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.io import store
from timeline_page import PATIENCE, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

SMALL = next((SAMPLES / "capture").glob("*/python.capture"))


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    return stepscope.open(SMALL).spans.filter(pl.col("kind") != "instant").select("span").collect()["span"].to_list()


@pytest.mark.parametrize("one_of", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_every_event_is_reached_by_clicking(server: "Serve", page: "Page", wanted: list[int], one_of: int) -> None:
    served = server(SAMPLES)
    shown = Shown(page, served, "python")
    lanes = {lane["id"]: lane for lane in json.loads(served.ask(shown.base).body)["lanes"]}
    for span in wanted[::one_of]:
        event = json.loads(served.ask(f"{shown.base}/span?rank=0&span={span}").body)
        around = max(event["dur"], 500)
        low, high = max(0, event["start"] - around), event["start"] + event["dur"] + around
        page.goto(served.url(f"#/{shown.run}/timeline?t0={low}&t1={high}"))
        shown.rest()
        name = page.locator(f'[data-lane="{event["lane"]}"]')
        name.scroll_into_view_if_needed()
        box = name.bounding_box()
        assert box is not None
        row_height = (box["height"] - 6) / lanes[event["lane"]]["rows"]
        page.mouse.click(shown.at(event["start"] + event["dur"] / 2), box["y"] + 4 + (event["row"] + 0.5) * row_height)
        playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
        assert until(lambda: shown.address.get("span"), str(span).__eq__) == str(span), event
        page.keyboard.press("Escape")


def test_every_event_is_reached_by_keys(server: "Serve", page: "Page", wanted: list[int]) -> None:
    shown = Shown(page, server(SAMPLES), "python")
    page.locator(".tl-picture").focus()
    seen: set[int] = set()

    def press(key: str) -> bool:
        """Whether it leads to another event."""
        before = shown.address.get("span")
        page.keyboard.press(key)
        shown.rest()
        if (now := shown.address.get("span")) is None or now == before:
            return False
        seen.add(int(now))
        return True

    assert press("Shift+ArrowRight")
    while True:
        while press("Shift+ArrowLeft"):
            pass
        while press("Shift+ArrowRight"):
            pass
        if not press("Shift+ArrowDown"):
            break
    assert sorted(seen) == sorted(wanted)


def test_the_drawer_covers_no_event_that_it_tells_of(server: "Serve", page: "Page", tmp_path: Path) -> None:
    count = 40
    spans = "track  kind  name  start_ns  dur_ns\n" + "\n".join(f"{track}  kernel  k{track}  0  1000" for track in range(count))
    tracks = "track  kind  label  device  sort\n" + "\n".join(f"{track}  stream  s{track}  0  {track}" for track in range(count))
    store.write(tiny.trace(spans=spans, tracks=tracks), tmp_path / "many")
    shown = Shown(page, server(tmp_path), "many")
    canvas = page.locator(".tl-picture").bounding_box()
    assert canvas is not None
    bottom = canvas["y"] + canvas["height"]
    boxes = {track: shown.lane(track)[1].bounding_box() for track in range(count)}
    lowest = max(track for track, box in boxes.items() if box is not None and box["y"] + box["height"] < bottom)
    x, y = shown.place(lowest, 500)
    page.mouse.click(x, y)
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", f"k{lowest}", timeout=PATIENCE)

    def covered() -> float:
        drawer, lane = page.locator(".tl-title").bounding_box(), shown.lane(lowest)[1].bounding_box()
        assert drawer is not None
        assert lane is not None
        return lane["y"] + lane["height"] - drawer["y"]

    assert until(covered, lambda over: over < 0) < 0
