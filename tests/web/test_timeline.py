"""The timeline in a browser: links, keys and the pointer find the events that the tables have."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import settling
import stepscope
from stepscope.cli import main
from timeline_page import PATIENCE, RESNET, SAMPLES, Shown

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

RULER = 106  # px above the first lane


@pytest.fixture(scope="module")
def spans() -> pl.DataFrame:
    """All spans, with times since the start of the trace."""
    trace = stepscope.open(RESNET)
    origin, _ = trace.ends()
    return trace.spans.with_columns(start=pl.col("start_ns") - origin).filter(pl.col("kind") != "instant").collect()


@pytest.fixture(scope="module")
def stream(spans: pl.DataFrame) -> pl.DataFrame:
    """What ran on the stream that has the most kernels, by start."""
    kernels = spans.filter(kind="kernel")
    return spans.filter(track=kernels["track"].mode()[0]).sort("start")


def test_a_link_to_a_span_shows_it_with_what_launched_it(server: "Serve", page: "Page", spans: pl.DataFrame, stream: pl.DataFrame) -> None:
    kernel = stream.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).row(100, named=True)
    shown = Shown(page, server(SAMPLES), "resnet50_h200", f"span={kernel['span']}")
    details = page.locator(".tl-details")
    playwright.expect(details.locator(".tl-title b")).to_have_attribute("title", kernel["name"], timeout=PATIENCE)
    assert details.locator(".q").first.get_attribute("title") == f"{kernel['dur_ns']:,} ns"
    low, high = shown.window
    assert low < kernel["start"] < kernel["start"] + kernel["dur_ns"] < high
    launch = spans.filter(span=kernel["flow_in"]).row(0, named=True)
    details.locator(".tl-line", has_text=launch["name"]).first.click()
    playwright.expect(details.locator(".tl-title b")).to_have_attribute("title", launch["name"], timeout=PATIENCE)
    assert shown.address["span"] == str(launch["span"])


def test_a_click_selects_what_is_drawn_there_and_the_link_shows_it_again(server: "Serve", page: "Page", stream: pl.DataFrame) -> None:
    event = stream.sort("dur_ns")[-5].row(0, named=True)
    low, high = event["start"] - 3 * event["dur_ns"], event["start"] + 4 * event["dur_ns"]
    shown = Shown(page, server(SAMPLES), "resnet50_h200", f"t0={low}&t1={high}")
    x, y = shown.place(event["track"], event["start"] + event["dur_ns"] / 2)
    page.mouse.move(x, y)
    playwright.expect(page.get_by_role("tooltip")).to_contain_text("Duration")
    page.mouse.click(x, y)
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    assert shown.address["span"] == str(event["span"])
    address = page.evaluate("location.hash")
    page.goto("about:blank")
    page.goto(server(SAMPLES).url(address))
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    assert shown.window == (low, high)


def test_keys_move_through_time_and_between_events(server: "Serve", page: "Page", stream: pl.DataFrame) -> None:
    shown = Shown(page, server(SAMPLES), "resnet50_h200")
    before = shown.window
    page.locator(".tl-picture").focus()
    page.keyboard.press("w")
    shown.rest()
    inner = shown.window
    assert before[0] <= inner[0] < inner[1] <= before[1]
    assert inner[1] - inner[0] < before[1] - before[0]
    page.keyboard.press("d")
    shown.rest()
    assert shown.window[0] > inner[0]
    page.keyboard.press("0")
    shown.rest()
    assert shown.window == before
    page.keyboard.press("Backspace")
    shown.rest()
    assert shown.window != before
    # From event to event of a row
    rows = stream.filter(pl.col("depth") == 0)
    event = rows.row(50, named=True)
    page.goto(server(SAMPLES).url(f"#/{shown.run}/timeline?span={event['span']}"))
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    shown.rest()
    page.locator(".tl-picture").focus()
    for expected in (51, 52, 51):
        page.keyboard.press("Shift+ArrowRight" if expected != 51 or shown.address["span"] == str(event["span"]) else "Shift+ArrowLeft")
        shown.rest()
        assert shown.address["span"] == str(rows["span"][expected])
    same = stream.filter(name=rows["name"][51]).sort("start")
    at = same["span"].to_list().index(rows["span"][51])
    if at + 1 < same.height:
        page.keyboard.press("]")
        shown.rest()
        assert shown.address["span"] == str(same["span"][at + 1])


def test_a_search_counts_all_events_and_goes_to_each(server: "Serve", page: "Page", spans: pl.DataFrame) -> None:
    shown = Shown(page, server(SAMPLES), "resnet50_h200")
    page.keyboard.press("/")
    playwright.expect(page.locator("#tl-find")).to_be_focused()
    assert page.locator(".palette").count() == 0
    page.keyboard.type("batch_norm")
    known = json.loads(server(SAMPLES).ask(f"{shown.base}/search?text=batch_norm&rank=0").body)
    named = spans.filter(pl.any_horizontal(pl.col("name", "op_type", "scope", "args").cast(pl.String).str.contains("batch_norm")))
    assert known["count"] == named.height
    status = page.locator(".tl-find [role=status]")
    playwright.expect(status).to_have_text(f"{named.height:,}", timeout=PATIENCE)
    page.keyboard.press("Enter")
    playwright.expect(status).to_have_text(f"1 of {named.height:,}", timeout=PATIENCE)
    page.keyboard.press("Enter")
    playwright.expect(status).to_have_text(f"2 of {named.height:,}", timeout=PATIENCE)
    page.keyboard.press("Shift+Enter")
    playwright.expect(status).to_have_text(f"1 of {named.height:,}", timeout=PATIENCE)
    shown.rest()
    assert shown.address["find"] == "batch_norm"
    assert int(shown.address["span"]) in named["span"].to_list()


def test_an_area_sums_up_what_lies_in_it(server: "Serve", page: "Page", stream: pl.DataFrame) -> None:
    middle = stream.row(stream.height // 2, named=True)["start"]
    low, high = middle - 1_000_000, middle + 1_000_000
    shown = Shown(page, server(SAMPLES), "resnet50_h200", f"t0={low}&t1={high}")
    (x0, y), (x1, _) = (shown.place(middle_track(stream), moment) for moment in (low + 500_000, high - 500_000))
    page.mouse.move(x0, y)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, y)
    page.mouse.move(x1, y)
    page.mouse.up()
    shown.rest()
    t0, t1 = (int(word) for word in shown.address["area"].split(":")[:2])
    assert abs(t0 - low - 500_000) < 15_000  # it clings to edges near it
    inside = stream.with_columns(
        part=pl.min_horizontal(pl.col("start") + pl.col("dur_ns"), pl.lit(t1)) - pl.max_horizontal("start", pl.lit(t0))
    ).filter(pl.col("part") > 0, pl.col("kind") == "kernel")
    sums = inside.group_by(pl.col("name").cast(pl.String)).agg(pl.col("part").sum(), pl.len()).sort("part", descending=True)
    row = page.locator(".tl-drawer .gridrow", has=page.locator(f'[title="{sums["name"][0]}"]')).first
    playwright.expect(row).to_be_visible(timeout=PATIENCE)
    assert row.locator(f'[title="{sums["part"][0]:,} ns"]').count() >= 1
    playwright.expect(page.locator(".tl-summary")).to_contain_text("is idle for")


def middle_track(stream: pl.DataFrame) -> int:
    return int(stream["track"][0])


def test_what_is_arranged_is_remembered_and_part_of_the_link(server: "Serve", page: "Page", stream: pl.DataFrame) -> None:
    shown = Shown(page, server(SAMPLES), "resnet50_h200")
    track = middle_track(stream)
    number, name = shown.lane(track)
    label = name.get_attribute("aria-label")
    assert label is not None
    name.hover()
    name.get_by_role("button", name=re.compile("^Pin")).click()
    shown.rest()
    assert f"p{number}" in shown.address["lanes"]
    box = name.bounding_box()
    stage = page.locator(".tl-stage").bounding_box()
    assert box is not None
    assert stage is not None
    assert abs(box["y"] - stage["y"] - RULER) < 1
    other = page.locator(".tl-clip .tl-lane").first
    hidden = other.get_attribute("data-lane")
    other.hover()
    other.get_by_role("button", name=re.compile("^Hide")).click()
    shown.rest()
    assert page.locator(f'[data-lane="{hidden}"]').count() == 0
    page.goto("about:blank")
    again = Shown(page, server(SAMPLES), "resnet50_h200")  # without saying so in the address
    assert page.locator(f'[data-lane="{hidden}"]').count() == 0
    assert again.address["lanes"] == shown.address["lanes"]


def test_a_report_has_a_timeline_that_is_drawn_from_what_it_carries(tmp_path: Path, page: "Page", stream: pl.DataFrame) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(RESNET), "-o", str(out)]) == 0
    event = stream.filter(kind="kernel").sort("dur_ns").row(-3, named=True)
    low, high = event["start"] - 2 * event["dur_ns"], event["start"] + 3 * event["dur_ns"]
    page.goto(out.as_uri())
    page.wait_for_selector(".nav a")
    page.evaluate(f"location.hash = location.hash.split('/').slice(0, 2).join('/') + '/timeline?t0={low}&t1={high}'")
    picture = page.locator(".tl-picture")
    playwright.expect(picture.locator("canvas")).to_be_visible(timeout=PATIENCE)
    playwright.expect(picture).to_have_attribute("aria-busy", "false", timeout=PATIENCE)
    settling.settle(page)
    box, name = picture.bounding_box(), page.locator(".tl-lane", has_text="kernels").first.bounding_box()
    assert box is not None
    assert name is not None
    page.mouse.click(box["x"] + box["width"] / 2, name["y"] + 10)
    playwright.expect(page.locator(".tl-title b")).to_have_attribute("title", event["name"], timeout=PATIENCE)
    assert page.locator(".tl-details .q").first.get_attribute("title") == f"{event['dur_ns']:,} ns"
