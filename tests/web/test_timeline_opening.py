"""Where the timeline opens: on the steps, where most of the time lies outside of them. Moments are reached there, too."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from timeline_page import PATIENCE, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve


def x(name: str, ts: float, dur: float, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def instant(name: str, ts: float) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "cat": "cpu_instant", "name": name, "pid": 1, "tid": 2, "ts": ts, "args": {}}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 ms, of which two steps are the last: from 8 ms to 9 ms, from 9 ms to 9.8 ms. Before them something is prepared."""
    events = [
        x("prepare", 0, 100),
        *(x(f"ProfilerStep#{number}", start, dur, "user_annotation") for number, start, dur in ((4, 8000, 1000), (5, 9000, 800))),
        *(x("aten::mm", start, 300) for start in (8100, 9100)),
        *(instant(name, at) for name, at in (("first", 2000), ("second", 8500), ("third", 8500.5))),
        x("store", 9990, 10),
    ]
    file = tmp_path_factory.mktemp("late") / "late.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return file


def seen(page: "Page", words: str) -> None:
    """What is said to be in view."""
    playwright.expect(page.locator(".tl-view")).to_have_attribute("title", re.compile(words.replace(" ", r"\s")), timeout=PATIENCE)


def test_it_opens_on_the_steps_and_zero_shows_all(server: "Serve", page: "Page", late: Path) -> None:
    shown = Shown(page, server(late.parent), "late")
    # 1.8 ms of steps, and 3 % of it on either side.
    seen(page, "1.91 ms in view, from 7.95 ms")
    assert not {"t0", "t1"} & shown.address.keys()
    page.locator(".tl-picture").focus()
    page.keyboard.press("0")
    seen(page, "All 10.0 ms in view")
    # The address says so, since without it this would be the steps again.
    assert until(lambda: (shown.address.get("t0"), shown.address.get("t1")), lambda output: None not in output) == ("0", "10000000")
    page.reload()
    seen(page, "All 10.0 ms in view")
    page.evaluate("location.hash = location.hash.split('?')[0]")
    seen(page, "1.91 ms in view, from 7.95 ms")


def test_it_opens_on_all_where_the_steps_are_most_of_it(server: "Serve", page: "Page") -> None:
    Shown(page, server(SAMPLES), "resnet50_h200")
    seen(page, "All 229 ms in view")


def test_what_happens_at_a_moment_is_reached_by_clicking_and_by_keys(server: "Serve", page: "Page", late: Path) -> None:
    served = server(late.parent)
    shown = Shown(page, served, "late")
    found = {
        name: json.loads(served.ask(f"{shown.base}/search?text={name}&rank=0&after=-1").body)["found"]
        for name in ("first", "second", "third")
    }
    lane = found["first"]["lane"]
    assert [(one["dur"], one["start"]) for one in found.values()] == [(0, 2_000_000), (0, 8_500_000), (0, 8_500_500)]
    # The group of a thread that only says that something happened is folded at first.
    for name, event in found.items():
        page.goto(served.url(f"#/{shown.run}/timeline?lanes=all&t0={event['start'] - 400}&t1={event['start'] + 400}"))
        shown.rest()
        box = page.locator(f'[data-lane="{lane}"]').bounding_box()
        assert box is not None
        page.mouse.click(shown.at(event["start"]), box["y"] + box["height"] / 2)
        playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", name, timeout=PATIENCE)
        page.keyboard.press("Escape")
    page.goto(served.url(f"#/{shown.run}/timeline?lanes=all&span={found['first']['span']}"))
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", "first", timeout=PATIENCE)
    shown.rest()
    page.locator(".tl-picture").focus()
    for key, name in (("Right", "second"), ("Right", "third"), ("Left", "second"), ("Left", "first")):
        page.keyboard.press(f"Shift+Arrow{key}")
        playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", name, timeout=PATIENCE)
        shown.rest()
