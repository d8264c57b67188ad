"""The page Data preparation: waits, queues and the pipeline are those of the analyses, and a queue that is clicked shows its history."""

import re
from pathlib import Path
from typing import Any

import pytest

import tiny
from stepscope.io import store
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent.parent / "samples"
MS = 1_000_000
# MapOp takes from a full queue and fills none: 8 of 10 times the training finds nothing, and waits 60 of 100 ms.
PIPELINE = """
    op_id  op_type      workers  parent  queue_capacity
    0      EpochCtrlOp  1        -       -
    1      BatchOp      1        0       16
    2      MapOp        2        1       16
    3      GeneratorOp  1        2       16
"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    steps, spans, counters = ["step start_ns end_ns how"], ["kind name step track start_ns dur_ns"], ["name at_ns value unit"]
    for step in range(1, 11):
        at = step * 100 * MS
        steps.append(f"{step} {at} {at + 100 * MS} marker")
        spans.append(f'data "next_batch" {step} 0 {at} {60 * MS}')
        spans.append(f"op MatMul {step} 0 {at + 60 * MS} {40 * MS}")
        counters.append(f'"queue_iterator" {at} {0 if step <= 8 else 3} rows')
        counters.append(f'"queue_3_GeneratorOp" {at} 14 rows')
        counters.append(f'"queue_2_MapOp" {at} 0 rows')
        counters.append(f'"queue_1_BatchOp" {at} 1 rows')
        counters.append(f'"cpu_user_2_MapOp" {at} 30 percent')
        counters.append(f'"cpu_system_2_MapOp" {at} 5 percent')
    tracks = "track label kind\n0 main thread"
    return tiny.trace(steps="\n".join(steps), spans="\n".join(spans), counters="\n".join(counters), tracks=tracks, pipeline=PIPELINE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any, trace: Trace) -> Path:
    folder = Path(tmp_path_factory.mktemp("data"))
    store.write(trace, folder / "starved")
    return folder


@pytest.fixture
def opened(server: Any, page: Any, runs: Path) -> Any:
    def go(query: str = "", run: str = "starved", root: Path = runs) -> Any:
        served = server(root)
        page.goto(served.url(f"#/{served.run(run)}/data{query}"))
        page.wait_for_selector("h1.verdict")
        return page

    return go


def test_the_sentence_names_the_share_the_bottleneck_and_the_rule(opened: Any, trace: Trace) -> None:
    page = opened()
    assert page.locator("h1").inner_text() == (
        "60.0\u202f% of each step is spent waiting for data. "
        "MapOp is the bottleneck: the queue before it is full, the queue after it is empty."
    )
    assert trace.overview()["input_wait_share"].item() == pytest.approx(0.6)
    facts = page.locator(".facts").inner_text()
    assert (
        "10 steps" in facts and "60.0\u202fms wait per step; median step 100\u202fms" in facts and "iterator empty 8 of 10 times" in facts
    )
    assert page.locator(".chip", has_text="empty 8 of 10").count() == 1
    assert page.get_by_text(str(trace.data_pipeline().filter(op_id=2)["hint"].item())).count() == 1


def test_a_queue_that_is_clicked_or_reached_by_key_shows_its_history_and_its_neighbours(opened: Any) -> None:
    page = opened("?view=pipeline")
    # Without a choice: the queue before the bottleneck.
    page.wait_for_selector("h2:has-text('Queue to MapOp')")
    page.get_by_role("button", name=re.compile("^Queue to BatchOp")).click()
    page.wait_for_selector("h2:has-text('Queue to BatchOp')")
    assert re.search("sel=2", page.url)
    card = page.locator(".card.chosen")
    assert "MapOp → BatchOp, 16 slots" in card.inner_text()
    assert "MapOp · 2 workers · CPU 35.0" in card.inner_text()
    assert card.locator("dd .q").first.get_attribute("title") == "0"
    page.get_by_role("button", name=re.compile("^Queue to EpochCtrlOp")).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('Queue to EpochCtrlOp')")
    page.reload()
    page.wait_for_selector("h2:has-text('Queue to EpochCtrlOp')")


def test_the_operators_are_those_of_the_analysis(opened: Any, trace: Trace) -> None:
    page = opened("?view=pipeline")
    grid = page.get_by_role("grid", name="Operators")
    for row in trace.data_pipeline().iter_rows(named=True):
        line = grid.get_by_role("row", name=re.compile(f"{row['op_id']} {row['op_type']} {row['workers']}"))
        assert line.count() == 1
        assert (row["verdict"] or "\u2013").replace("reader", "consumer") in line.inner_text()


def test_a_step_leads_to_its_trace_and_the_rules_say_which_applies(opened: Any) -> None:
    page = opened("?view=gap")
    rules = page.locator(".rules3 li")
    assert [rules.nth(at).locator(".chip").inner_text() for at in range(3)] == ["does not apply", "applies", "unknown"]
    chart = page.get_by_role("slider", name="Input wait per step")
    chart.focus()
    page.keyboard.press("Home")
    page.wait_for_url(re.compile("step=1"))
    page.get_by_role("link", name="Open step 1", exact=True).click()
    page.wait_for_url(re.compile(r"/steps\?sel=1$"))


def test_what_was_not_recorded_is_said_with_the_way_to_record_it(opened: Any) -> None:
    page = opened(run="cpu_training", root=SAMPLES)
    assert "stepscope.Profiler" in page.locator(".empty").first.inner_text()


def test_a_loader_of_pytorch_has_a_picture_too(opened: Any) -> None:
    page = opened(run="resnet50_h200", root=SAMPLES)
    assert page.get_by_role("button", name=re.compile("^Queue to Training step: 92")).count() == 1
    assert "8 workers" in page.locator(".facts").inner_text()
