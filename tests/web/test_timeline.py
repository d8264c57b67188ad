"""What links to the timeline finds its span and its window there."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import stepscope

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Serve

SAMPLES = Path(__file__).parents[1] / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
PATIENCE = 20_000


def test_a_span_is_shown_with_what_launched_it_and_its_neighbours(server: "Serve", page: "Page") -> None:
    spans = stepscope.open(RESNET).spans.collect()
    kernel = spans.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).row(100, named=True)
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/timeline?span={kernel['span']}"))
    sentence = page.get_by_role("heading", level=1)
    playwright.expect(sentence).to_contain_text(kernel["name"], timeout=PATIENCE)
    assert sentence.locator(".q").first.get_attribute("title") == f"{kernel['dur_ns']:,} ns"
    playwright.expect(page.locator(".gridrow.on")).to_contain_text(kernel["name"][:20], timeout=PATIENCE)
    page.get_by_role("link", name=str(kernel["flow_in"]), exact=True).click()
    launch = spans.filter(span=kernel["flow_in"])["name"].item()
    playwright.expect(sentence).to_contain_text(launch, timeout=PATIENCE)


def test_a_window_has_all_that_ran_in_it(server: "Serve", page: "Page") -> None:
    trace = stepscope.open(RESNET)
    origin = int(server(SAMPLES).ask(f"api/runs/{server(SAMPLES).run('resnet50_h200')}").json()["origin_ns"])
    start, end = pl.col("start_ns") - origin, pl.col("start_ns") + pl.col("dur_ns") - origin
    inside = trace.spans.filter(start < 5_100_000, end >= 5_000_000, pl.col("kind") != "instant").select(pl.len()).collect().item()
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/timeline?t0=5000000&t1=5100000"))
    sentence = page.get_by_role("heading", level=1)
    playwright.expect(sentence).to_contain_text(f"{inside} spans ran", timeout=PATIENCE)
    assert page.locator(".tl-lane rect").count() == inside
