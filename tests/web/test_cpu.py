"""The page CPU: what it says is what the analyses say, and a range of time holds for everything on it."""

import re
from pathlib import Path
from typing import Any

import pytest

import settling
import stepscope
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent.parent / "samples"
RECORDING = SAMPLES / "run/stepscope-0.1.0/resnet50_h200"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return stepscope.open(RECORDING)


@pytest.fixture
def opened(server: Any, page: Any) -> Any:
    """Open the page with some parameters, and wait until its charts are drawn."""
    served = server(SAMPLES)
    run = served.run("resnet50_h200")

    def go(query: str = "") -> Any:
        page.goto(served.url(f"#/{run}/cpu{query}"))
        page.wait_for_selector(".u-over")
        page.wait_for_selector("[aria-label='Usage by process and operator'] [role=rowgroup] [role=row]")
        return page

    return go


def cells(page: Any, grid: str, first: str) -> list[str]:
    """The exact values of a row, named by its first cell: the hover text where there is one."""
    row = page.locator(f"[aria-label='{grid}'] [role=row]", has=page.locator(f"[role=gridcell] [title='{first}']"))
    return [str(cell.evaluate("e => (e.querySelector('.q') ?? e).title || e.textContent")) for cell in row.locator("[role=gridcell]").all()]


def test_the_sentence_and_the_table_say_what_the_analysis_says(opened: Any, trace: Trace) -> None:
    page = opened()
    machine = trace.cpu_use(of="machine").row(0, named=True)
    busy = machine["user_share"] + machine["system_share"]
    output = page.locator("h1").inner_text()
    assert f"{busy:.1%}"[:-1] in output and f"of {machine['cores']:.0f} cores" in output
    exact = [title for title in page.locator("h1 b .q").evaluate_all("all => all.map(e => e.title)") if title]
    assert float(exact[0]) == pytest.approx(busy)
    assert float(exact[1]) == pytest.approx(machine["busy_cores"])
    shown = cells(page, "Usage by process and operator", "machine")
    assert [float(value.replace(",", "")) for value in shown[2:6]] == pytest.approx(
        [machine[name] for name in ("busy_cores", "max_busy_cores", "user_share", "system_share")]
    )
    assert page.locator("[aria-label='Usage by process and operator']").get_attribute("aria-rowcount") == str(trace.cpu_use().height + 1)


def test_dragging_over_a_chart_chooses_a_range_that_the_address_keeps_and_the_table_obeys(opened: Any, trace: Trace) -> None:
    page = opened()
    box = page.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"t0=\d+&t1=\d+"))
    first, last = (int(value) for value in re.findall(r"t[01]=(\d+)", page.url))
    origin = min(trace.spans.collect()["start_ns"].min(), trace.counters.collect()["at_ns"].min())  # type: ignore[type-var]
    expected = trace.cpu_use(of="machine", start_ns=origin + first, end_ns=origin + last).row(0, named=True)
    page.wait_for_selector(f".facts:has-text('{expected['samples']} samples of the machine')")
    assert float(cells(page, "Usage by process and operator", "machine")[2]) == pytest.approx(expected["busy_cores"])
    chart = page.locator(".u-over").first
    chart.dblclick()
    page.wait_for_url(re.compile(r"/cpu$"))


def test_a_link_with_a_range_shows_that_range_again(opened: Any) -> None:
    page = opened("?t0=50000000&t1=120000000")
    assert " ".join(page.locator(".facts").inner_text().split()).endswith("samples from 50.0 ms to 120 ms")
    assert re.findall(r"[\d.]+", page.locator(".chip.acc").first.inner_text()) == ["50.0", "120"]
    timeline = page.get_by_role("link", name="Show on the timeline").first.get_attribute("href")
    assert timeline.endswith("/timeline?t0=50000000&t1=120000000")


def test_one_crosshair_runs_through_all_charts(opened: Any) -> None:
    page = opened()
    box = page.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.wait_for_selector(".readout")
    charts = page.locator(".series").count()
    assert charts == 4
    assert page.locator(".readout").count() == charts
    places = page.locator(".u-cursor-x").evaluate_all("all => all.map(e => Math.round(e.getBoundingClientRect().x))")
    assert max(places) - min(places) <= 1


def test_arrow_keys_move_the_crosshair(opened: Any) -> None:
    page = opened()
    page.locator(".series [role=img]").first.focus()
    readout = page.locator(".readout").first
    seen: list[str] = []
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(settling.until(readout.inner_text, lambda text: text not in seen))
    assert len(set(seen)) == 3


def test_a_trace_without_samples_says_how_to_get_them(server: Any, page: Any) -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('cpu_training')}/cpu"))
    page.wait_for_selector(".empty")
    assert "stepscope run train.py" in page.locator(".empty").inner_text()
    assert page.locator("nav a.on .n").inner_text() == "none"
