"""Arrows, the ruler, the critical path and questions in SQL, from the timeline."""

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import polars as pl
import pytest

import stepscope

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve, Served

SAMPLES = Path(__file__).parents[1] / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
PATIENCE = 20_000


@pytest.fixture(scope="module")
def spans() -> pl.DataFrame:
    """All spans, with times since the start of the trace."""
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    return trace.spans.with_columns(pl.col("name").cast(pl.String), start=pl.col("start_ns") - origin).collect()


def _open(page: "Page", served: "Served", query: str) -> str:
    run = served.run("resnet50_h200")
    page.goto(served.url(f"#/{run}/timeline?{query}"))
    _rest(page)
    return run


def _rest(page: "Page") -> None:
    playwright.expect(page.locator(".tl-picture")).to_have_attribute("aria-busy", "false", timeout=PATIENCE)


def _said(page: "Page") -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.hash").partition("?")[2]).items()}


def _shows(page: "Page", name: str) -> None:
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", name, timeout=PATIENCE)


def test_keys_follow_the_arrows_from_kernel_to_launch_and_from_forward_to_backward(
    server: "Serve", page: "Page", spans: pl.DataFrame
) -> None:
    kernel = spans.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).row(100, named=True)
    launch = spans.row(by_predicate=pl.col("span") == kernel["flow_in"], named=True)
    _open(page, server(SAMPLES), f"span={kernel['span']}")
    _shows(page, kernel["name"])
    line = page.locator(".tl-arrows .tl-line", has_text=launch["name"])
    playwright.expect(line).to_contain_text("Launched by")
    exact = f"{kernel['start'] - launch['start']:,} ns"
    playwright.expect(line.locator(f'[title$="{exact}"]')).to_contain_text("before")
    page.locator(".tl-picture").focus()
    page.keyboard.press("c")
    _shows(page, launch["name"])
    page.keyboard.press("e")
    _shows(page, kernel["name"])
    backward = spans.filter(pl.col("kind") == "op", pl.col("flow_in").is_not_null()).row(10, named=True)
    forward = spans.row(by_predicate=pl.col("span") == backward["flow_in"], named=True)
    _open(page, server(SAMPLES), f"span={backward['span']}")
    _shows(page, backward["name"])
    playwright.expect(page.locator(".tl-arrows .tl-line").first).to_contain_text("Forward pass")
    page.locator(".tl-picture").focus()
    page.keyboard.press("c")
    _shows(page, forward["name"])
    playwright.expect(page.locator(".tl-arrows", has_text="Backward pass")).to_be_visible()


def test_a_ruler_between_two_edges_says_how_long_and_how_much_of_a_step_and_stays_in_the_link(
    server: "Serve", page: "Page", spans: pl.DataFrame
) -> None:
    kernel = spans.filter(kind="kernel").sort("dur_ns").row(-3, named=True)
    _open(page, server(SAMPLES), f"span={kernel['span']}")
    _shows(page, kernel["name"])
    page.locator(".tl-picture").focus()
    page.keyboard.press("t")
    page.keyboard.press("t")
    low, high = kernel["start"], kernel["start"] + kernel["dur_ns"]
    steps = stepscope.open(RESNET).steps.select(dur=pl.col("end_ns") - pl.col("start_ns")).collect()["dur"].sort()
    part = float(f"{kernel['dur_ns'] / steps[len(steps) // 2]:.3g}")
    ruler = page.locator(".tl-measure b")
    playwright.expect(ruler).to_contain_text(f"{part:g} of a step")
    playwright.expect(page).to_have_url(re.compile(f"measure={low}(:|%3A){high}"))
    address = page.evaluate("location.hash")
    page.goto("about:blank")
    page.goto(server(SAMPLES).url(address))
    playwright.expect(ruler).to_contain_text(f"{part:g} of a step", timeout=PATIENCE)
    page.locator(".tl-picture").focus()
    page.keyboard.press("Escape")
    playwright.expect(ruler).to_have_count(0)
    assert "measure" not in _said(page)


def test_the_pointer_measures_from_edge_to_edge(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    kernel = spans.filter(kind="kernel").sort("dur_ns").row(-3, named=True)
    low, high = kernel["start"] - kernel["dur_ns"], kernel["start"] + 2 * kernel["dur_ns"]
    served = server(SAMPLES)
    run = _open(page, served, f"t0={low}&t1={high}")
    lanes = json.loads(served.ask(f"api/runs/{run}/timeline").body)["lanes"]
    lane = next(lane["id"] for lane in lanes if lane["track"] == kernel["track"] and lane["kind"] == "spans")
    picture, name = page.locator(".tl-picture").bounding_box(), page.locator(f'[data-lane="{lane}"]').bounding_box()
    assert picture is not None
    assert name is not None
    left, right = (picture["x"] + picture["width"] * (1 / 3), picture["x"] + picture["width"] * (2 / 3))
    page.get_by_role("button", name="Measure").or_(page.get_by_role("radio", name="Measure")).first.click()
    page.mouse.move(left + 2, name["y"] + 10)  # within what clings
    page.mouse.down()
    page.mouse.move((left + right) / 2, name["y"] + 10)
    page.mouse.move(right - 2, name["y"] + 10)
    page.mouse.up()
    playwright.expect(page).to_have_url(re.compile(f"measure={kernel['start']}(:|%3A){kernel['start'] + kernel['dur_ns']}(&|$)"))
    assert "area" not in _said(page)
    assert "span" not in _said(page)


def test_a_click_on_the_critical_path_selects_what_it_is_a_piece_of(server: "Serve", page: "Page") -> None:
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    piece = trace.critical_path().filter(pl.col("span").is_not_null()).sort("dur_ns").row(-1, named=True)
    start = piece["start_ns"] - origin
    served = server(SAMPLES)
    run = _open(page, served, f"t0={start - piece['dur_ns']}&t1={start + 2 * piece['dur_ns']}")
    lanes = json.loads(served.ask(f"api/runs/{run}/timeline").body)["lanes"]
    lane = next(lane["id"] for lane in lanes if lane["kind"] == "path")
    picture, name = page.locator(".tl-picture").bounding_box(), page.locator(f'[data-lane="{lane}"]').bounding_box()
    assert picture is not None
    assert name is not None
    page.mouse.click(picture["x"] + picture["width"] / 2, name["y"] + 12)
    _shows(page, piece["name"])
    assert _said(page)["span"] == str(piece["span"])
    facts = page.locator(".tl-facts dl", has_text="On the critical path")
    playwright.expect(facts).to_contain_text("whole span")


def test_what_is_selected_can_be_asked_in_sql(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    kernel = spans.filter(kind="kernel").row(200, named=True)
    _open(page, server(SAMPLES), f"span={kernel['span']}")
    _shows(page, kernel["name"])
    _rest(page)
    output = _said(page)
    low, high = int(output["t0"]), int(output["t1"])
    inside = spans.filter(pl.col("track") == kernel["track"], pl.col("start") < high, pl.col("start") + pl.col("dur_ns") > low)
    page.get_by_role("link", name="Query").last.click()
    playwright.expect(page.locator(".verdict")).to_contain_text(f"{inside.height:,} rows", timeout=PATIENCE)
    assert f"track in ({kernel['track']})" in page.locator("textarea").input_value()


def test_the_picture_is_saved_with_the_names_of_its_lanes_and_the_ruler(server: "Serve", page: "Page") -> None:
    _open(page, server(SAMPLES), "t0=50000000&t1=60000000&measure=52000000:54000000")
    box = page.locator(".tl-picture").bounding_box()
    assert box is not None
    page.get_by_role("button", name="Download").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Picture as PNG").click()
    content = saved.value.path().read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20], "big") == round(box["width"]) + 200
    assert int.from_bytes(content[20:24], "big") == round(box["height"])
    # Dark pixels in the strip of names: letters; and a line of the accent's colour where the ruler begins.
    script = """async ([data, x]) => {
      const image = await createImageBitmap(await (await fetch(data)).blob());
      const page = new OffscreenCanvas(image.width, image.height).getContext("2d");
      page.drawImage(image, 0, 0);
      const names = page.getImageData(20, 106, 170, image.height - 106).data;
      let dark = 0;
      for (let at = 0; at < names.length; at += 4) if (names[at] + names[at + 1] + names[at + 2] < 200) dark += 1;
      const [red, green, blue] = page.getImageData(x, 300, 1, 1).data;
      return [dark, blue > red + 40 && blue > green + 40];
    }"""
    data = "data:image/png;base64," + base64.b64encode(content).decode()
    page.goto("about:blank")
    dark, ruled = page.evaluate(script, [data, 200 + int(box["width"] * 0.2)])
    assert dark > 200
    assert ruled
