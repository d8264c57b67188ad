"""Moving in the timeline: keys, wheel, trackpad and fingers go where they should, and what is under them stays under them."""

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import stepscope
from timeline_page import PATIENCE, RESNET, SAMPLES, Shown, until

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

RUN = "resnet50_h200"
LOW, HIGH = 60_000_000, 100_000_000


@pytest.fixture
def shown(server: "Serve", page: "Page") -> Shown:
    """Forty milliseconds of the run."""
    return Shown(page, server(SAMPLES), RUN, f"t0={LOW}&t1={HIGH}")


@pytest.fixture(scope="module")
def kernels() -> pl.DataFrame:
    """With times since the start of the trace, by start."""
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    return trace.spans.filter(kind="kernel").with_columns(start=pl.col("start_ns") - origin).sort("start").collect()


def near(got: float, expected: float, slack: float = 0.004 * (HIGH - LOW)) -> bool:
    return abs(got - expected) <= slack


class Touch:
    """Fingers, as the browser's protocol has them."""

    def __init__(self, shown: Shown) -> None:
        self.shown, self.session = shown, shown.page.context.new_cdp_session(shown.page)
        self.session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def put(self, *points: tuple[float, float]) -> None:
        self._send("touchStart", points)

    def move(self, *paths: tuple[tuple[float, float], tuple[float, float]]) -> None:
        for part in range(1, 9):
            self._send("touchMove", [(x0 + (x1 - x0) * part / 8, y0 + (y1 - y0) * part / 8) for (x0, y0), (x1, y1) in paths])

    def lift(self, *one: tuple[int, tuple[float, float]]) -> None:
        """All fingers, or one by its number."""
        self._send("touchEnd", one, numbered=True)
        self.shown.rest()

    def _send(self, what: str, points: Any, *, numbered: bool = False) -> None:
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in (points if numbered else enumerate(points))]
        self.session.send("Input.dispatchTouchEvent", {"type": what, "touchPoints": touches})


def test_the_wheel_zooms_at_the_pointer(shown: Shown) -> None:
    x, y = shown.box["x"] + shown.box["width"] * 0.7, shown.box["y"] + 400
    at = shown.moment(x)
    shown.page.mouse.move(x, y)
    for way in (-240, 120):
        low, high = shown.window
        shown.page.mouse.wheel(0, way)
        shown.rest()
        now = shown.window
        assert (now[1] - now[0] < high - low) == (way < 0)
        assert near(shown.moment(x), at)


def test_a_pinch_of_a_trackpad_zooms_at_the_pointer(shown: Shown) -> None:
    x, y = shown.box["x"] + shown.box["width"] * 0.2, shown.box["y"] + 400
    at = shown.moment(x)
    shown.page.mouse.move(x, y)
    shown.page.keyboard.down("Control")  # so a browser says it
    shown.page.mouse.wheel(0, -60)
    shown.page.keyboard.up("Control")
    shown.rest()
    low, high = shown.window
    assert near((high - low) / (HIGH - LOW), 0.549, 0.01)  # e to the power of -0.6
    assert near(shown.moment(x), at)


def test_a_trackpad_moves_through_time_and_shift_through_lanes(shown: Shown) -> None:
    shown.page.mouse.move(shown.box["x"] + 300, shown.box["y"] + 400)
    shown.page.mouse.wheel(200, 0)
    shown.rest()
    low, high = shown.window
    assert near(high - low, HIGH - LOW, 2)
    assert near(low, LOW + 200 / shown.box["width"] * (HIGH - LOW))
    before = lane_y(shown)
    shown.page.keyboard.down("Shift")
    shown.page.mouse.wheel(0, 60)
    shown.page.keyboard.up("Shift")
    assert until(lambda: near(before - lane_y(shown), 60, 1), bool)
    assert shown.window == (low, high)


def test_two_fingers_hold_their_moments(shown: Shown) -> None:
    touch = Touch(shown)
    y = shown.box["y"] + 300
    one, two = shown.box["x"] + 500, shown.box["x"] + 700
    moments = shown.moment(one), shown.moment(two)
    touch.put((one, y), (two, y))
    touch.move(((one, y), (one - 100, y)), ((two, y), (two + 100, y)))
    touch.lift()
    assert until(lambda: near(length(shown) / (HIGH - LOW), 0.5, 0.01), bool)  # twice as far apart: half of the time
    assert near(shown.moment(one - 100), moments[0])
    assert near(shown.moment(two + 100), moments[1])


def test_a_finger_moves_time_and_lanes(shown: Shown) -> None:
    touch = Touch(shown)
    at, y = shown.box["x"] + 600, shown.box["y"] + 500
    moment, before = shown.moment(at), lane_y(shown)
    touch.put((at, y))
    touch.move(((at, y), (at - 150, y - 80)))
    touch.lift()
    assert until(lambda: near(shown.moment(at - 150), moment), bool)
    assert until(lambda: near(before - lane_y(shown), 80, 1), bool)
    assert near(length(shown), HIGH - LOW, 2)
    assert "span" not in shown.address  # it was no tap


def test_a_finger_goes_on_when_another_is_lifted(shown: Shown) -> None:
    touch = Touch(shown)
    at, y = shown.box["x"] + 300, shown.box["y"] + 500
    moment = shown.moment(at)
    touch.put((at, y), (at + 200, y))
    touch.move(((at, y), (at, y)), ((at + 200, y), (at + 400, y)))
    touch.lift((1, (at + 400, y)))
    assert until(lambda: near(length(shown) / (HIGH - LOW), 0.5, 0.01), bool)
    touch.move(((at, y), (at + 90, y)))
    touch.lift()
    assert until(lambda: near(shown.moment(at + 90), moment), bool)
    assert near(length(shown) / (HIGH - LOW), 0.5, 0.01)


def length(shown: Shown) -> float:
    low, high = shown.window
    return high - low


def lane_y(shown: Shown) -> float:
    box = shown.page.locator(".tl-clip .tl-lane").first.bounding_box()
    assert box is not None
    return box["y"]


def test_a_tap_selects(shown: Shown, kernels: pl.DataFrame) -> None:
    inside = kernels.filter(pl.col("start") > LOW, pl.col("start") + pl.col("dur_ns") < HIGH)
    event = inside.sort("dur_ns").row(-1, named=True)
    touch = Touch(shown)
    touch.put(shown.place(event["track"], event["start"] + event["dur_ns"] / 2))
    touch.lift()
    playwright.expect(shown.page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)


def test_keys_focus_select_mark_and_show_all(shown: Shown, kernels: pl.DataFrame) -> None:
    page = shown.page
    event = kernels.filter(pl.col("start") > LOW, pl.col("dur_ns") > 50_000).row(0, named=True)
    start, end = event["start"], event["start"] + event["dur_ns"]
    page.mouse.click(*shown.place(event["track"], (start + end) / 2))
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    page.mouse.move(5, 5)
    page.locator(".tl-picture").focus()
    page.keyboard.press("f")
    shown.rest()
    low, high = shown.window
    assert LOW < low < start < end < high < HIGH
    assert high - low < 5 * event["dur_ns"]
    page.keyboard.press("r")
    shown.rest()
    assert shown.address["area"] == f"{start}:{end}"
    page.keyboard.press("m")
    shown.rest()
    assert shown.address["notes"] == f"{start}:{end}:"
    page.keyboard.press("0")
    shown.rest()
    assert "t0" not in shown.address
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    shown.rest()
    assert "area" not in shown.address
    assert "span" not in shown.address
    assert shown.address["notes"] == f"{start}:{end}:"  # kept until it is removed
    # Without a selection the area is what is in sight.
    page.keyboard.press("r")
    shown.rest()
    assert shown.address["area"].startswith("0:")


def test_brackets_go_to_the_previous_and_next_of_the_same_name(shown: Shown, kernels: pl.DataFrame) -> None:
    page = shown.page
    same = kernels.filter(pl.col("name") == kernels.filter(pl.col("dur_ns") > 50_000, pl.col("start") > LOW)["name"][0])
    at = int(same["start"].search_sorted(LOW))
    event = same.row(at, named=True)
    page.goto(shown.served.url(f"#/{shown.run}/timeline?span={event['span']}"))
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    page.locator(".tl-picture").focus()
    for key, expected in (("]", at + 1), ("]", at + 2), ("[", at + 1)):
        page.keyboard.press(key)
        playwright.expect(page.locator(".tl-details")).to_be_visible()
        page.wait_for_function(
            "span => new URLSearchParams(location.hash.split('?')[1]).get('span') === span", arg=str(same["span"][expected])
        )
        shown.rest()
        low, high = shown.window
        assert low <= same["start"][expected] <= high


def test_views_can_be_gone_back_to_and_forward(shown: Shown) -> None:
    page = shown.page
    page.locator(".tl-picture").focus()
    page.keyboard.press("0")
    shown.rest()
    back, forward = page.locator(".tl-views button").all()
    back.click()
    shown.rest()
    assert shown.window == (LOW, HIGH)
    forward.click()
    shown.rest()
    assert "t0" not in shown.address
    page.locator(".tl-picture").focus()
    page.keyboard.press("Backspace")
    shown.rest()
    assert shown.window == (LOW, HIGH)
    page.keyboard.press("Shift+Backspace")
    shown.rest()
    assert "t0" not in shown.address


def test_a_step_of_the_ruler_and_the_minimap_are_gone_to_by_a_click(shown: Shown) -> None:
    steps = stepscope.open(RESNET).steps.collect().sort("start_ns")
    origin, end = stepscope.open(RESNET).ends()
    page = shown.page
    page.keyboard.press("0")
    shown.rest()
    step = steps.row(1, named=True)
    middle = (step["start_ns"] + step["end_ns"]) / 2 - origin
    page.mouse.click(shown.box["x"] + middle / (end - origin) * shown.box["width"], shown.box["y"] + 74)
    shown.rest()
    assert shown.window == (step["start_ns"] - origin, step["end_ns"] - origin)
    # The brush is drawn over the minimap.
    page.mouse.move(shown.box["x"] + 100, shown.box["y"] + 30)
    page.mouse.down()
    page.mouse.move(shown.box["x"] + 150, shown.box["y"] + 30)
    page.mouse.move(shown.box["x"] + 200, shown.box["y"] + 30)
    page.mouse.up()
    shown.rest()
    low, high = shown.window
    per_pixel = (end - origin) / shown.box["width"]
    assert near(low, 100 * per_pixel, 2 * per_pixel)
    assert near(high, 200 * per_pixel, 2 * per_pixel)
