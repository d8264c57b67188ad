"""The timeline of a report, where no server is: what it finds and sums up is what the server would have said."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import stepscope
from stepscope.cli import main
from stepscope.model.trace import Trace
from stepscope.timeline import aggregate, arrows, details, search
from stepscope.timeline.layout import Timeline, build

expect = pytest.importorskip("playwright.sync_api").expect
if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = Path(__file__).parents[1] / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
PATIENCE = 20_000


@pytest.fixture(scope="module")
def trace() -> Trace:
    return stepscope.open(RESNET)


@pytest.fixture(scope="module")
def timeline(trace: Trace) -> Timeline:
    return build(trace)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(RESNET), "-o", str(out)]) == 0
    return out


def _open(page: "Page", written: Path, query: str) -> None:
    page.goto(f"{written.as_uri()}#/resnet50_h200/timeline?{query}")
    expect(page.locator(".tl-picture")).to_have_attribute("aria-busy", "false", timeout=PATIENCE)


def test_a_search_finds_as_many_and_goes_to_each(page: "Page", written: Path, trace: Trace, timeline: Timeline) -> None:
    _open(page, written, "")
    page.keyboard.press("/")
    page.keyboard.type("batch_norm")
    found = search.search(trace, timeline, "batch_norm", rank=0, args=False)
    status = page.locator(".tl-find [role=status]")
    expect(status).to_have_text(f"{found.count:,}", timeout=PATIENCE)
    for number in (1, 2):
        page.keyboard.press("Enter")
        expect(status).to_have_text(f"{number} of {found.count:,}", timeout=PATIENCE)
        at = found.at(number - 1)
        assert at is not None
        name = details.span_at(timeline, at)["name"]
        expect(page.locator(".tl-title b")).to_have_attribute("title", name)


@pytest.mark.parametrize("by", ["name", "kind", "lane"])
def test_sums_over_a_range_are_those_of_the_server(page: "Page", written: Path, timeline: Timeline, by: str) -> None:
    low, high = 50_000_123, 61_000_456
    _open(page, written, "")
    lanes = [lane for lane in timeline.tracks if lane.kind == "spans"]
    truth = aggregate.area(timeline, lanes, low, high, by)
    script = "async (path) => (await window.reportSource.raw('', path)).json()"
    output: dict[str, Any] = page.evaluate(script, f"timeline/area?t0={low}&t1={high}&by={by}")
    columns = ["key", "kind", "lane", "count", "total_ns", "self_ns", "max_ns"]
    got = pl.DataFrame({name: output["columns"][name] for name in columns}, schema=truth.select(columns).schema, strict=False)
    order = ["key", "kind", "lane"]
    assert got.sort(order, nulls_last=True).rows() == truth.select(columns).sort(order, nulls_last=True).rows()
    groups = [group for group in timeline.groups if any(lane.group == group.id for lane in lanes)]
    wanted = aggregate.summary(timeline, groups, low, high)
    assert [{key: value for key, value in one.items() if value} for one in output["groups"]] == [
        {key: value for key, value in one.items() if value} for one in wanted
    ]


def test_a_range_shows_idle_time_and_its_events(page: "Page", written: Path) -> None:
    _open(page, written, "area=50000000:60000000&tab=area")
    expect(page.locator(".tl-summary p")).to_contain_text("is idle for")
    expect(page.locator(".tl-grid .gridrow:not(.head)").first).to_be_visible()
    page.get_by_role("tab", name="Spans").click()
    expect(page.locator(".tl-grid .gridrow:not(.head)").first).to_be_visible()


def test_a_span_is_told_with_its_arrows_parents_and_path(page: "Page", written: Path, trace: Trace, timeline: Timeline) -> None:
    spans = trace.spans.collect()
    kernel = spans.filter(pl.col("kind") == "kernel", pl.col("flow_in").is_not_null()).row(50, named=True)
    backward = spans.filter(pl.col("name").cast(pl.String).str.contains("evaluate_function: Conv")).row(3, named=True)
    _open(page, written, f"span={kernel['span']}")
    expect(page.locator(".tl-title b")).to_have_attribute("title", kernel["name"], timeout=PATIENCE)
    for row in (kernel, backward):
        script = "async (path) => (await window.reportSource.raw('', path)).json()"
        answer = page.evaluate(script, f"timeline/span?rank=0&span={row['span']}")
        truth = details.details(trace, timeline, 0, row["span"])
        links = arrows.arrows(trace, timeline, 0, row["span"], lambda _, ask: ask())
        keys = ("how", "way", "rank", "span", "delay", "lane", "row")
        both = [sorted(json.dumps({key: one[key] for key in keys}) for one in some["arrows"]) for some in (answer, links)]
        assert both[0] == both[1]
        assert both[0]
        same = ("span", "lane", "row", "start", "dur", "self", "step", "op_type", "scope", "shapes", "dtypes", "correlation")
        assert {key: answer[key] for key in same} == {key: truth[key] for key in same}
        assert [one["span"] for one in answer["parents"]] == [one["span"] for one in truth["parents"]]
        assert (answer["same_name"], answer["same_name_before"]) == (truth["same_name"], truth["same_name_before"])
    page.locator(".tl-picture").focus()
    page.keyboard.press("c")
    launch = spans.row(by_predicate=pl.col("span") == kernel["flow_in"], named=True)
    expect(page.locator(".tl-title b")).to_have_attribute("title", launch["name"])


def test_a_small_report_says_how_many_events_it_can_search(page: "Page", tmp_path: Path) -> None:
    out = tmp_path / "small.html"
    assert main(["report", str(RESNET), "-o", str(out), "--max-size", "3MB"]) == 0
    assert out.stat().st_size < 3.1e6
    _open(page, out, "")
    expect(page.locator(".tl-tools-bar")).to_contain_text("of 23,860 spans can be searched")
