"""Flame graphs: drawn from the recording, zoomed by keys and clicks, searched, and the same after a reload."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope

SAMPLES = Path(__file__).parent.parent / "samples"
FOLDERS = (SAMPLES / "chrome" / "torch-2.11", SAMPLES / "run" / "stepscope-0.1.0")
STACKS = FOLDERS[0] / "h200_modules.json.gz"
RESNET = FOLDERS[1] / "resnet50_h200"
DRAWN = "() => document.querySelector('main .flame canvas')?.width > 0 && !document.querySelector('main .loading, main .stale')"


@pytest.fixture
def opened(server: Any, page: Any) -> Callable[..., Any]:
    def open_page(run: str, rest: str = "") -> Any:
        served = server(*FOLDERS)
        page.goto(served.url(f"#/{served.run(run)}/flame{rest}"))
        page.wait_for_function(DRAWN)
        return page

    return open_page


def _titles(page: Any, locator: str) -> list[str]:
    return [one.get_attribute("title") for one in page.locator(f"{locator} .q").all()]


def test_the_headline_is_the_function_with_the_most_self_time(opened: Any) -> None:
    page = opened("h200_modules")
    functions = stepscope.open(STACKS).hot_functions()
    assert page.locator("h1 b.mono").get_attribute("title") == functions["name"][0]
    assert f"{functions['self_share'][0] * 100:.1f}" in page.locator("h1").inner_text()
    first = page.locator(".gridrow.click").first
    assert f"{functions['self_ns'][0]:,} ns" in [one.get_attribute("title") for one in first.locator(".q").all()]


def test_arrow_keys_follow_the_largest_frames_and_escape_shows_everything(opened: Any) -> None:
    page = opened("h200_modules")
    page.locator(".flame").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".flame-selected")
    tree = stepscope.open(STACKS).flame_graph()
    root = tree.filter(tree["parent"].is_null()).sort("total_ns", descending=True).row(0, named=True)
    child = tree.filter(parent=root["node"]).sort("total_ns", descending=True).row(0, named=True)
    assert page.locator(".flame-stack button").all_inner_texts() == [root["name"], child["name"]]
    assert _titles(page, ".flame-facts > dl")[:3:2] == [f"{child['total_ns']:,} ns", f"{child['self_ns']:,} ns"]
    page.reload()
    page.wait_for_selector(".flame-selected")
    assert page.locator(".flame-stack li.on button").inner_text() == child["name"]
    page.locator(".flame").focus()
    page.keyboard.press("Escape")
    page.wait_for_selector(".flame-selected", state="detached")


def test_a_click_selects_the_frame_under_the_pointer(opened: Any) -> None:
    page = opened("h200_modules")
    box = page.locator(".flame canvas").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 28)
    page.wait_for_selector(".flame-tip:has-text('Self')")
    page.mouse.click(box["x"] + 40, box["y"] + 28)
    page.wait_for_selector(".flame-selected")
    assert page.locator(".flame-stack li").count() == 2


def test_a_search_shows_the_share_of_all_matches(opened: Any) -> None:
    page = opened("h200_modules")
    tree = stepscope.open(STACKS).flame_graph()
    rows = {row["node"]: row for row in tree.iter_rows(named=True)}

    def matches(row: dict[str, Any] | None) -> bool:
        return row is not None and "adam" in (row["name"] or "").lower()

    def inside(row: dict[str, Any]) -> bool:
        above = rows.get(row["parent"])
        return above is not None and (matches(above) or inside(above))

    found = [row for row in rows.values() if matches(row)]
    share = sum(row["share"] for row in found if not inside(row))
    page.locator(".flame").focus()
    page.keyboard.press("f")
    page.keyboard.type("adam")
    page.wait_for_selector(f".flame-find:has-text('{len(found)} frames')")
    assert f"{share * 100:.1f}" in page.locator(".flame-find").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector(".flame-selected")
    assert "adam" in page.locator(".flame-stack li.on").inner_text().lower()
    assert "find=adam" in page.url


def test_the_sandwich_view_has_callers_and_callees_of_the_selected_function(opened: Any) -> None:
    page = opened("h200_modules")
    page.locator(".gridrow.click:has-text('aten::mm')").first.click()
    page.wait_for_url(re.compile(r"fn=aten(::|%3A%3A)mm"))
    page.wait_for_function("() => document.querySelectorAll('main .flame canvas').length === 2")
    callees = stepscope.open(STACKS).flame_graph(function="aten::mm")
    assert f"{callees['total_ns'][0]:,} ns" in _titles(page, "h1")
    page.get_by_role("link", name="Back to the graph").click()
    page.wait_for_function("() => document.querySelectorAll('main .flame canvas').length === 1")


def test_the_order_of_time_is_that_of_one_thread_and_zooming_in_gets_more_calls(opened: Any) -> None:
    page = opened("h200_modules", "?order=time")
    page.wait_for_selector("select[aria-label=Thread] option", state="attached")
    assert page.locator("select[aria-label=Thread] option").count() == 2
    page.locator(".flame").focus()
    for _ in range(12):
        page.keyboard.press("w")
    page.wait_for_url(re.compile(r"range=\d+(:|%3A)\d+"))
    page.wait_for_function(DRAWN)
    page.keyboard.press("Escape")
    page.wait_for_function("() => !location.hash.includes('range')")


def test_a_frame_leads_to_its_call_on_the_timeline(opened: Any) -> None:
    page = opened("resnet50_h200", "?by=modules")
    page.locator(".flame").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".flame-selected")
    span = stepscope.open(RESNET).flame_graph(by="modules").filter(name="ResNet50")["span"][0]
    page.get_by_role("link", name="Longest call on the timeline").click()
    page.wait_for_url(re.compile(rf"/timeline\?.*span={span}"))


def test_a_recording_without_stacks_shows_its_modules_and_how_to_record_stacks(opened: Any) -> None:
    page = opened("resnet50_h200")
    assert "stepscope run --stack" in page.locator(".flame-nostack").inner_text()
    page.get_by_role("button", name="Modules", exact=True).click()
    page.wait_for_url(re.compile("by=modules"))
    page.wait_for_selector("h1:has-text('GPU time')")


def test_two_runs_are_compared_per_step(opened: Any, server: Any) -> None:
    page = opened("resnet50_h200", f"?with={server(*FOLDERS).run('h200_modules')}&by=modules")
    a, b = stepscope.open(RESNET), stepscope.open(STACKS)
    totals = []
    for trace, steps in ((a, (8, 11)), (b, (1, 3))):
        rows = trace.of_steps(*steps).flame_graph(by="modules")
        totals.append(rows["self_ns"].sum() / (steps[1] - steps[0] + 1))
    words = page.locator("h1").inner_text().replace("\u202f", " ")
    assert f"{(totals[0] - totals[1]) / 1e6:.1f} ms more" in words
    assert page.locator(".gridrow").count() > 3


def test_the_picture_is_saved_as_svg(opened: Any) -> None:
    page = opened("h200_modules")
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    text = Path(download.value.path()).read_text("utf-8")
    assert text.startswith("<svg") and "_multi_tensor_adam" in text and "oklch" not in text
