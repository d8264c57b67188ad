"""The page Step trace: its figures are those of the analyses, and any step can be chosen, with what starts and ends its passes."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tiny
from stepscope.io import store
from stepscope.model.trace import Meta, Trace

SAMPLES = Path(__file__).parent.parent / "samples"
MS = 1_000_000
# The first step is slow; the others take 100, 110, 120 and 130 ms, of which 10 ms pass before `embed`, and 30 ms more before `mm`.
LENGTHS = [900, 100, 110, 120, 130]


@pytest.fixture(scope="module")
def trace() -> Trace:
    steps, spans, at = ["step start_ns end_ns how"], ["kind name step track start_ns dur_ns"], 0
    for step, length in enumerate(LENGTHS, 1):
        end = at + length * MS
        steps.append(f"{step} {at} {end} marker")
        spans.append(f"op embed {step} 0 {at + 10 * MS} {20 * MS}")
        spans.append(f"op mm {step} 0 {at + 40 * MS} {30 * MS}")
        spans.append(f"communication all_reduce {step} 1 {at + 50 * MS} {40 * MS}")
        at = end
    tracks = "track label kind\n0 main thread\n1 comm thread"
    return tiny.trace(steps="\n".join(steps), spans="\n".join(spans), tracks=tracks)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any, trace: Trace) -> Path:
    folder = Path(tmp_path_factory.mktemp("steps"))
    store.write(trace, folder / "five")
    count = 10_000
    start = pl.int_range(count, eager=True) * 100 * MS
    slow = pl.when(pl.int_range(count) == 7_000).then(50 * MS).otherwise(0)
    many = pl.DataFrame({"rank": 0, "step": pl.int_range(1, count + 1, eager=True), "start_ns": start}).with_columns(
        end_ns=pl.col("start_ns") + 90 * MS + slow, how=pl.lit("marker")
    )
    store.write(Trace({"steps": many}, Meta(source="many", ranks=[0])), folder / "many")
    return folder


@pytest.fixture
def opened(server: Any, page: Any, runs: Path) -> Any:
    def go(query: str = "", run: str = "five", root: Path = runs) -> Any:
        served = server(root)
        page.goto(served.url(f"#/{served.run(run)}/steps{query}"))
        page.locator("h1.verdict", has_not_text=re.compile("^…$")).wait_for()
        return page

    return go


def cells(page: Any, stage: str) -> list[str]:
    """The exact figures of a stage: starts, ends, takes, share, fastest, p50, p90, p99, slowest."""
    row = page.locator(".stagetable tr", has=page.locator("td:first-child", has_text=re.compile(f"^{stage}$")))
    return [str(row.locator("td .q").nth(at).get_attribute("title")) for at in range(row.locator("td .q").count())]


def exact(ns: float) -> str:
    return f"{int(ns):,} ns"


def headline(page: Any) -> str:
    """The sentence; units stand apart by their style, not by a blank."""
    return str(page.locator("h1").inner_text())


def test_the_average_leaves_the_slow_first_step_out_and_says_so(opened: Any, trace: Trace) -> None:
    page = opened()
    assert "the median step takes 115\u202fms" in headline(page)
    assert "4 steps" in page.locator(".facts").inner_text()
    assert "step 1 (900 ms) excluded as warm-up" in page.locator(".facts").inner_text().replace("\u202f", " ")
    assert cells(page, "Step")[2] == exact(115 * MS)
    assert cells(page, "Step")[4:] == [exact(100 * MS), exact(115 * MS), exact(130 * MS), exact(130 * MS), exact(130 * MS)]
    interval = trace.step_times().filter(stage="interval").row(0, named=True)
    assert cells(page, "Interval")[:3] == ["0 ns", exact(interval["mean_ns"]), exact(10 * MS)]
    page.get_by_role("button", name="include it").click()
    page.wait_for_url(re.compile("warmup=keep"))
    page.wait_for_selector("h1:has-text('120')")
    assert cells(page, "Step")[8] == exact(900 * MS)


def test_a_link_shows_the_step_it_names_with_its_transfers(opened: Any, trace: Trace) -> None:
    page = opened("?sel=3")
    assert headline(page).startswith("Step 3 takes 110\u202fms, 5.00\u202fms under the median")
    page.locator(".gantt .who", has_text="comm").wait_for()
    row = trace.overlap().filter(step=3).row(0, named=True)
    assert row["exposed_ns"] == 20 * MS
    page.wait_for_selector(".chip:has-text('exposed 20.0')")
    assert page.get_by_role("row", name=re.compile("^3 ")).get_attribute("aria-selected") == "true"
    start = 900 * MS + 100 * MS
    assert f"t0={start}&t1={start + 110 * MS}" in page.get_by_role("link", name="Open in timeline").get_attribute("href")


def test_steps_are_chosen_by_click_key_and_number(opened: Any) -> None:
    page = opened()
    chart = page.get_by_role("slider", name="Step times")
    box = chart.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.92, box["y"] + 60)
    page.wait_for_url(re.compile("sel=5"))
    page.wait_for_selector("h1:has-text('130')")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile("sel=4"))
    page.wait_for_selector("[role=slider][aria-valuenow='4']")
    page.get_by_role("spinbutton", name="Step").fill("2")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("sel=2"))
    chart.focus()
    page.keyboard.press("Escape")
    page.wait_for_selector("h1:has-text('the median step takes')")
    assert "sel=" not in page.url


def test_dragging_keeps_a_range_of_steps(opened: Any) -> None:
    page = opened()
    box = page.get_by_role("slider", name="Step times").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.35, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile("steps=2:4"))
    page.wait_for_selector(".facts:has-text('3 steps')")


def test_another_operator_can_start_the_forward_pass(opened: Any, trace: Trace) -> None:
    page = opened()
    page.get_by_role("button", name=re.compile("^Forward starts at embed")).click()
    page.get_by_role("searchbox", name="Operator, range or kernel").fill("mm")
    page.locator(".opmenu .list .item", has_text="mm").click()
    page.wait_for_url(re.compile("fp_start=mm"))
    page.get_by_role("button", name="Forward starts at mm").wait_for()
    assert trace.step_times(fp_start="mm").filter(stage="interval")["p50_ns"].item() == 40 * MS
    page.wait_for_selector(f".stagetable .q[title='{exact(40 * MS)}']")
    assert cells(page, "Interval")[5] == exact(40 * MS)


def test_ten_thousand_steps_are_drawn_as_a_band_that_loses_no_peak(opened: Any) -> None:
    page = opened(run="many")
    assert "10,000 steps" in page.locator(".facts").inner_text()
    assert "each column is several steps" in page.locator("main").inner_text()
    assert page.locator("main *").count() < 3_000
    chart = page.get_by_role("slider", name="Step times")
    box = chart.bounding_box()
    inner = box["width"] - 58 - 14
    columns = inner // 2  # two pixels each
    page.mouse.click(box["x"] + 58 + (columns * 7_000 // 10_000 + 0.5) * inner / columns, box["y"] + 60)
    page.wait_for_url(re.compile("sel=7001"))
    page.wait_for_selector("h1:has-text('140')")


def test_a_recording_without_steps_says_how_to_mark_them(opened: Any) -> None:
    page = opened(run="jax-0.10.2-cpu-no-steps", root=SAMPLES)
    assert "No steps are marked" in headline(page)
    assert "profiler.step()" in page.locator(".facts").inner_text()


def test_what_marks_a_step_can_be_chosen_and_holds_on_every_page_of_the_run(opened: Any) -> None:
    page = opened()
    page.get_by_role("button", name="Step marker as recorded").click()
    # `embed` and `mm` start once in each step; the first step is the longest, and one interval that differs does not count.
    page.locator(".opmenu .list .item").nth(1).wait_for()
    assert "5 times" in page.locator(".opmenu .list .item", has_text="mm").inner_text()
    page.locator(".opmenu .list .item", has_text="mm").click()
    page.get_by_role("button", name="Step marker operator:mm").wait_for()
    assert "step_name=operator:mm" in page.url
    # From one start of `mm` to the next, 40 ms into each step: as long as the steps were. The last ends with the last span, 50 ms later.
    page.get_by_text("5 steps", exact=False).first.wait_for()
    assert page.locator("h1.verdict").inner_text().startswith("105\u202fms per step")
    page.get_by_role("link", name="Overview").first.click()
    page.get_by_text("selected marker").wait_for()
    assert "step_name=operator:mm" in page.url
    page.go_back()
    page.get_by_role("button", name="Step marker operator:mm").click()
    page.get_by_role("button", name="As recorded").click()
    page.get_by_role("button", name="Step marker as recorded").wait_for()
    assert "step_name" not in page.url


def test_a_marker_that_nothing_has_is_said_with_the_way_back(
    opened: Any, complaints: list[str], server: Any, page: Any, runs: Path
) -> None:
    served = server(runs)
    page.goto(served.url(f"#/{served.run('five')}/steps?step_name=kernel:nothing"))
    page.get_by_text("no kernel in the trace is named 'nothing'").wait_for()
    complaints.clear()  # the browser logs the refusal
    page.get_by_role("link", name="Show the recorded steps").click()
    page.get_by_role("button", name="Step marker as recorded").wait_for()
