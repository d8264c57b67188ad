"""The page Memory: its figures are those of the analyses, a click shows what was alive then, and no peak is thinned out of the curve."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import settling
import stepscope
from stepscope.model.trace import Trace

playwright = pytest.importorskip("playwright.sync_api")
SAMPLES = Path(__file__).parent.parent / "samples"
RECORDING = SAMPLES / "run/stepscope-0.1.0/resnet50_h200"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return stepscope.open(RECORDING)


@pytest.fixture
def opened(server: Any, page: Any) -> Any:
    served = server(SAMPLES)
    run = served.run("resnet50_h200")

    def go(query: str = "") -> Any:
        page.goto(served.url(f"#/{run}/memory{query}"))
        page.wait_for_selector(".u-over")
        return page

    return go


def tile(page: Any, label: str) -> int:
    """The exact bytes of a figure."""
    found = page.locator(".tile", has=page.locator(".l", has_text=re.compile(f"^{re.escape(label)}$")))
    return int(str(found.locator(".f .q").get_attribute("title")).removesuffix(" bytes").replace(",", "").replace("\u2212", "-"))


def origin(trace: Trace) -> int:
    return min(trace.spans.select("start_ns").collect().to_series().min(), trace.counters.select("at_ns").collect().to_series().min())  # type: ignore


def test_the_figures_are_those_of_the_analyses(opened: Any, trace: Trace) -> None:
    page = opened()
    curve = trace.memory(device="gpu 0")
    highest = curve.sort("allocated_bytes", descending=True, maintain_order=True).row(0, named=True)
    assert tile(page, "Peak allocated") == highest["allocated_bytes"]
    assert tile(page, "Static memory") == highest["static_bytes"]
    assert tile(page, "Peak reserved") == curve["reserved_bytes"].max()
    assert tile(page, "Fragmentation") == highest["reserved_bytes"] - highest["allocated_bytes"]
    assert tile(page, "Capacity") == 150109880320
    assert tile(page, "Growth") == trace.memory_peaks(device="gpu 0")["growth_bytes"].sum()
    peak = trace.memory_peaks(device="gpu 0").sort("peak_bytes", descending=True).row(0, named=True)
    page.locator(".verdict-more").wait_for()
    sentences = " ".join(page.locator("h1.verdict, .verdict-more").all_inner_texts()).replace("\u202f", " ")
    assert sentences == " ".join(trace.verdict(topic="memory").filter(pl.col("device") == "gpu 0")["text"])
    assert peak["op"] in sentences and f"step {peak['step']}" in sentences


def test_the_blocks_below_are_those_alive_at_the_peak_and_after_a_click_those_alive_then(opened: Any, trace: Trace) -> None:
    page = opened()
    at_peak = trace.live_tensors(device="gpu 0")
    page.wait_for_selector(f"[role=status]:has-text('{at_peak.height} blocks')")
    box = page.locator(".u-over").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + 100)
    page.wait_for_url(re.compile(r"at=\d+"))
    at = int(re.findall(r"at=(\d+)", page.url)[0]) + origin(trace)
    assert at in trace.memory(device="gpu 0")["at_ns"].to_list()
    alive = trace.live_tensors(device="gpu 0", at_ns=at)
    page.wait_for_selector(f"[role=status]:has-text('{alive.height} blocks')")
    page.get_by_role("button", name="Go to the peak").click()
    page.wait_for_selector(f"[role=status]:has-text('{at_peak.height} blocks')")


def test_hovering_names_the_operator_and_the_change(opened: Any, trace: Trace) -> None:
    page = opened("?t0=2000000&t1=6000000")
    settling.settle(page)
    box = page.locator(".u-over").bounding_box()
    operators = set(trace.memory(device="gpu 0")["op"].drop_nulls())
    for part in range(1, 20):
        page.mouse.move(box["x"] + box["width"] * part / 20, box["y"] + 60)
        said = page.locator(".tip").inner_text()
        if "Change" in said and said.splitlines()[0].strip() in operators:
            break
    else:
        raise AssertionError(said)


def test_the_curve_by_order_and_its_range_come_back_from_a_link(opened: Any) -> None:
    page = opened("?axis=order&t0=20000000&t1=90000000&device=cpu&tab=ops")
    assert page.get_by_role("heading", name="Memory in order of execution").is_visible()
    assert page.get_by_role("button", name="cpu", exact=True).get_attribute("aria-pressed") == "true"
    assert page.get_by_role("tab", name="By operator").get_attribute("aria-selected") == "true"
    assert page.locator(".zoombar .brush:not(.all)").count() == 1
    assert re.findall(r"[\d.]+", page.locator(".chip.acc").inner_text()) == ["20.0", "90.0"]


def test_the_zoom_bar_works_with_the_keyboard(opened: Any) -> None:
    page = opened()
    page.get_by_role("slider", name="End of the range").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile(r"t0=\d+&t1=\d+"))
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile(r"/memory$"))


def test_blocks_never_freed_and_peaks_of_steps_are_listed_in_full(opened: Any, trace: Trace) -> None:
    page = opened("?tab=kept")
    kept = trace.allocations.filter(
        pl.col("free_ns").is_null() & pl.col("alloc_ns").is_not_null() & (pl.col("device").cast(pl.String) == "gpu 0")
    )
    page.wait_for_selector(f"[role=status]:has-text('{kept.collect().height} blocks')")
    page.get_by_role("tab", name="Peak by step").click()
    grid = page.locator("[aria-label='Peak by step'][role=grid]")
    assert grid.get_attribute("aria-rowcount") == str(trace.memory_peaks(device="gpu 0").height + 1)


def test_a_trace_without_memory_says_how_to_get_it(server: Any, page: Any) -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('python')}/memory"))
    page.wait_for_selector(".empty")
    assert "stepscope run --memory train.py" in page.locator(".empty").inner_text()


def test_the_curve_by_category_has_the_layers_of_the_analysis(opened: Any, trace: Trace) -> None:
    page = opened("?axis=category")
    layers = page.locator(".curve-tools .legend > span")
    playwright.expect(layers).to_have_text(["static", "allocated before", "gradients", "activations", "temporary"])
    found = trace.memory_by_category(device="gpu 0", pixels=1500)
    first = dict(found.filter(at_ns=found["at_ns"].min()).select("category", "bytes").iter_rows())
    page.get_by_role("img", name=re.compile("^Memory by category")).press("Home")
    exact = page.locator(".tip .q[title$=bytes]")
    playwright.expect(exact.last).to_be_visible()
    titles = [one.get_attribute("title") for one in exact.all()]
    shown = [held for held in first.values() if held]
    assert titles == [f"{held:,} bytes" for held in (*shown, sum(shown))]
    curve = trace.memory(device="gpu 0")
    assert sum(shown) == curve.filter(at_ns=found["at_ns"].min())["allocated_bytes"][-1]
