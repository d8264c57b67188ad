"""Who draws the timeline: a worker; the page itself where there can be none. It is never blank while finer tiles are on their way."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl
import pytest

import stepscope
from timeline_page import PATIENCE, RESNET, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from web.conftest import Serve

NOT_GIVEN = "delete HTMLCanvasElement.prototype.transferControlToOffscreen"


@pytest.fixture(scope="module")
def event() -> dict[str, object]:
    """The longest kernel, with its start since that of the trace."""
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    return (
        trace.spans.filter(kind="kernel")
        .sort("dur_ns")
        .tail(1)
        .with_columns(start=pl.col("start_ns") - origin)
        .collect()
        .row(0, named=True)
    )


@pytest.fixture
def unwatched(browser: "Browser") -> "Iterator[Page]":
    """A page that may complain: of a script that it does not get."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", color_scheme="light")
    yield context.new_page()
    context.close()


def window(event: dict[str, object]) -> str:
    start, dur = int(str(event["start"])), int(str(event["dur_ns"]))
    return f"t0={start - 2 * dur}&t1={start + 3 * dur}&color=kind"


def is_drawn(shown: Shown, event: dict[str, object]) -> bool:
    """The kernel is there, in its colour, and can be clicked."""
    x, y = shown.place(int(str(event["track"])), int(str(event["start"])) + int(str(event["dur_ns"])) * 0.6)
    text: str = shown.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--kind-compute').trim()")
    wanted = int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
    shown.page.mouse.move(5, 5)
    if until(lambda: shown.pixel(x, y - 4), lambda seen: seen == wanted) != wanted:
        return False
    shown.page.mouse.click(x, y)
    playwright.expect(shown.page.locator(".tl-title b")).to_have_attribute("title", str(event["name"]), timeout=PATIENCE)
    return True


def test_a_worker_draws(server: "Serve", page: "Page", event: dict[str, object]) -> None:
    shown = Shown(page, server(SAMPLES), RESNET.name, window(event))
    assert len(page.workers) == 1
    assert is_drawn(shown, event)
    page.evaluate("location.hash = location.hash.replace('/timeline', '/overview')")
    page.wait_for_selector("main .verdict, main .empty", timeout=PATIENCE)
    # It ends with the page that needs it. Playwright hears of that only while it is asked something.
    assert until(lambda: page.evaluate("1") and page.workers, lambda workers: not workers) == []


def test_the_page_draws_where_a_worker_has_no_canvas(server: "Serve", page: "Page", event: dict[str, object]) -> None:
    page.add_init_script(NOT_GIVEN)
    shown = Shown(page, server(SAMPLES), RESNET.name, window(event))
    assert page.workers == []
    assert is_drawn(shown, event)


def test_the_page_draws_where_the_worker_does_not_start(server: "Serve", unwatched: "Page", event: dict[str, object]) -> None:
    unwatched.route("**/worker-*.js", lambda route: route.abort())
    shown = Shown(unwatched, server(SAMPLES), RESNET.name, window(event))
    assert is_drawn(shown, event)


def test_it_is_not_blank_while_finer_tiles_are_on_their_way(server: "Serve", page: "Page", event: dict[str, object]) -> None:
    page.add_init_script(NOT_GIVEN)  # so that the test can hold back what is asked for
    shown = Shown(page, server(SAMPLES), RESNET.name)
    held: list[Route] = []
    waiting = [True]

    def hold(route: "Route") -> None:
        if waiting:
            held.append(route)
        else:
            route.continue_()

    page.route("**/timeline/tiles/**", hold)
    start, dur = int(str(event["start"])), int(str(event["dur_ns"]))
    with page.expect_request("**/timeline/tiles/**", timeout=PATIENCE):
        page.evaluate(f"location.hash = location.hash.split('?')[0] + '?t0={start - dur}&t1={start + 2 * dur}&color=kind'")
    x = shown.box["x"] + shown.box["width"] / 2
    name = shown.lane(int(str(event["track"])))[1].bounding_box()
    assert name is not None
    ground: str = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--surface').trim()")
    blank = int(ground[1:3], 16), int(ground[3:5], 16), int(ground[5:7], 16)
    assert until(lambda: shown.pixel(x, name["y"] + 6), lambda seen: seen != blank) != blank
    assert held
    waiting.clear()
    for route in held:
        route.continue_()
    shown.rest()
    assert is_drawn(shown, event)
