"""Lanes of the timeline are put in order, made higher, pinned and hidden as the reader likes; a run keeps it."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tiny
from stepscope.io import store
from timeline_page import RESNET, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page

    from web.conftest import Serve

RUN = RESNET.name


def box_of(lane: "Locator") -> "FloatRect":
    found = lane.bounding_box()
    assert found is not None
    return found


def order(shown: Shown) -> list[int]:
    """Lanes from top to bottom."""
    look = "all => all.map(lane => [lane.getBoundingClientRect().y, Number(lane.dataset.lane)])"
    return [lane for _, lane in sorted(shown.page.eval_on_selector_all(".tl-clip .tl-lane", look))]


def drag(page: "Page", x: float, y: float, by: float) -> None:
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + by / 2)
    page.mouse.move(x, y + by)
    page.mouse.up()


def test_a_lane_is_dragged_to_another_place_and_stays_there(server: "Serve", page: "Page") -> None:
    shown = Shown(page, server(SAMPLES), RUN)
    before = order(shown)
    lanes = {lane["id"]: lane for lane in json.loads(server(SAMPLES).ask(shown.base).body)["lanes"]}
    groups = [
        [lane for lane in before if lanes[lane]["group"] == group] for group in dict.fromkeys(lanes[lane]["group"] for lane in before)
    ]
    group = next(group for group in groups if len(group) > 3)
    at = before.index(group[0])
    one, below = (page.locator(f'[data-lane="{lane}"]') for lane in (group[0], group[2]))
    start, end = box_of(one), box_of(below)
    drag(page, start["x"] + 60, start["y"] + 8, end["y"] + end["height"] - start["y"] - start["height"] + 2)
    expected = [*before[:at], group[1], group[2], group[0], *before[at + 3 :]]
    assert until(lambda: order(shown), lambda now: now == expected) == expected
    page.goto("about:blank")
    assert order(Shown(page, server(SAMPLES), RUN)) == expected
    # And back, by keys
    lane = page.locator(f'[data-lane="{group[0]}"]')
    for _ in range(2):
        lane.focus()
        page.keyboard.press("Alt+ArrowUp")
    assert until(lambda: order(shown), lambda now: now == before) == before


def test_a_lane_is_made_higher_and_stays_so(server: "Serve", page: "Page") -> None:
    shown = Shown(page, server(SAMPLES), RUN)
    lane = page.locator(".tl-clip .tl-lane").nth(2)
    number, before = lane.get_attribute("data-lane"), box_of(lane)
    drag(page, before["x"] + 60, before["y"] + before["height"] - 3, 40)
    lane = page.locator(f'[data-lane="{number}"]')
    assert until(lambda: box_of(lane)["height"], lambda now: now == before["height"] + 40) == before["height"] + 40
    shown.rest()
    assert f"{number}x{before['height'] + 40:.0f}" in shown.address["lanes"]
    page.goto("about:blank")
    Shown(page, server(SAMPLES), RUN)
    assert box_of(page.locator(f'[data-lane="{number}"]'))["height"] == before["height"] + 40
    page.locator(f'[data-lane="{number}"] .tl-size').dblclick()
    assert until(lambda: box_of(page.locator(f'[data-lane="{number}"]'))["height"], lambda now: now == before["height"]) == before["height"]


def test_a_hidden_lane_comes_back_from_the_list_and_keys_do_the_same(server: "Serve", page: "Page") -> None:
    shown = Shown(page, server(SAMPLES), RUN)
    before = order(shown)
    lane = page.locator(f'[data-lane="{before[1]}"]')
    label = lane.get_attribute("aria-label")
    lane.focus()
    page.keyboard.press("Delete")
    playwright.expect(page.locator(f'[data-lane="{before[1]}"]')).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Tracks")).first.click()
    page.get_by_role("button", name="Show all").click()
    playwright.expect(page.locator(f'[data-lane="{before[1]}"]')).to_have_attribute("aria-label", label or "")
    page.keyboard.press("Escape")
    lane = page.locator(f'[data-lane="{before[3]}"]')
    lane.focus()
    page.keyboard.press("p")
    playwright.expect(page.locator(f'.tl-names > [data-lane="{before[3]}"]')).to_have_count(1)  # above what is scrolled


def test_a_folded_group_shows_no_lanes_and_its_place_is_kept(server: "Serve", page: "Page") -> None:
    shown = Shown(page, server(SAMPLES), RUN)
    group = page.locator(".tl-group").first
    before = len(order(shown))
    group.click()
    playwright.expect(page.locator(".tl-group").first).to_have_attribute("aria-expanded", "false")
    assert len(order(shown)) < before
    page.goto("about:blank")
    Shown(page, server(SAMPLES), RUN)
    playwright.expect(page.locator(".tl-group").first).to_have_attribute("aria-expanded", "false")


def test_steps_are_a_lane_where_nothing_else_is_known(server: "Serve", page: "Page", tmp_path: Path) -> None:
    """The ruler has them, too; but an empty picture would say that there is nothing."""
    store.write(tiny.trace(steps="step  start_ns  end_ns\n1  0  1000\n2  1000  2500"), tmp_path / "steps")
    Shown(page, server(tmp_path), "steps")
    playwright.expect(page.locator(".tl-lane")).to_have_count(1)
    playwright.expect(page.locator(".tl-lane")).to_contain_text("steps")


TWO_RANKS = {
    "spans": """
        rank  track  kind  name            start_ns  dur_ns  depth
        0     0      step  ProfilerStep#1  0         1000    0
        0     1      op    add             100       200     0
        1     0      step  ProfilerStep#1  0         1000    0
        1     1      op    add             100       200     0
    """,
    "tracks": """
        rank  track  kind    label        group     sort
        0     0      other   "steps"      "python"  0
        0     1      thread  "operators"  "python"  1
        1     0      other   "steps"      "python"  0
        1     1      thread  "operators"  "python"  1
    """,
    "steps": "rank  step  start_ns  end_ns\n0  1  0  1000\n1  1  0  1000",
    "counters": """
        rank  name        at_ns  value  unit
        0     "cpu_user"  0      1.0    share
        1     "cpu_user"  0      1.0    share
    """,
}


def test_steps_are_not_shown_twice_and_groups_say_their_rank(server: "Serve", page: "Page", tmp_path: Path) -> None:
    store.write(tiny.trace(**TWO_RANKS), tmp_path / "two")
    Shown(page, server(tmp_path), "two")
    playwright.expect(page.locator(".tl-group b")).to_have_text(
        ["rank 0", "python · rank 0", "host · rank 0", "rank 1", "python · rank 1", "host · rank 1"]
    )
    names = page.locator(".tl-lane .cut:first-child")
    playwright.expect(names).to_have_text([*["critical path", "overlap", "steps", "operators", "cpu user"] * 2])
    # What marks them has its own lane; the other is there for who asks.
    page.get_by_role("button", name=re.compile(r"^Tracks \d+ of \d+")).click()
    page.get_by_role("button", name="Show all").click()
    playwright.expect(names.filter(has_text=re.compile("^steps$"))).to_have_count(4)


def test_what_is_beside_the_picture_stays_where_it_is_while_the_view_changes(server: "Serve", page: "Page") -> None:
    shown = Shown(page, server(SAMPLES), RUN)
    look = "all => all.map(one => one.getBoundingClientRect()).map(box => [box.x, box.width])"
    before = page.eval_on_selector_all(".tl-tools-bar > *", look)
    low, high = shown.window
    for parts in (7, 1e4):
        Shown(page, server(SAMPLES), RUN, f"t0={int(low + (high - low) / 3)}&t1={int(low + (high - low) / 3 + (high - low) / parts)}")
        playwright.expect(page.locator(".tl-view")).to_contain_text("in view, from")
        assert page.eval_on_selector_all(".tl-tools-bar > *", look) == before


def test_names_leave_most_of_a_telephone_to_the_picture(server: "Serve", page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    Shown(page, server(SAMPLES), RUN)
    assert box_of(page.locator(".tl-names"))["width"] <= 130
    assert box_of(page.locator(".tl-picture"))["width"] >= 240


def test_the_lanes_of_the_rank_that_is_chosen_are_in_sight(server: "Serve", page: "Page", tmp_path: Path) -> None:
    store.write(tiny.trace(**TWO_RANKS), tmp_path / "two")
    page.set_viewport_size({"width": 1280, "height": 400})
    shown = Shown(page, server(tmp_path), "two", "rank=1")

    def below(rank: int) -> float:
        """How far the first lanes of a rank are from the top of the lanes."""
        return box_of(page.locator(".tl-group").filter(has_text=re.compile(f"^rank {rank}$")))["y"] - box_of(page.locator(".tl-clip"))["y"]

    assert until(lambda: below(1), lambda far: abs(far) <= 1) == pytest.approx(0, abs=1)
    page.goto(shown.served.url(f"#/{shown.run}/timeline?rank=0"))
    assert until(lambda: below(0), lambda far: abs(far) <= 1) == pytest.approx(0, abs=1)
