"""The pages Operators, Kernels and FLOPs in a real browser: figures are those of the analyses, links lead back, keys work."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

import polars as pl
import pytest

import stepscope
from stepscope.model.strings.messages import LANGUAGES, render

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = Path(__file__).parents[1] / "samples"
H200 = SAMPLES / "chrome" / "torch-2.11" / "h200_modules.json.gz"
Serve = Callable[..., Any]
Go = Callable[..., None]


@pytest.fixture
def go(server: Serve, page: "Page") -> Go:
    """Open a page of a sample: `go("operators", view="all")`."""
    served = server(SAMPLES)

    def goto(name: str, run: str = "h200_modules", **params: str) -> None:
        query = "&".join(f"{key}={quote(value)}" for key, value in params.items())
        page.goto(served.url(f"#/{served.run(run)}/{name}?{query}"))
        page.locator("h1.verdict b, .empty").first.wait_for()

    return goto


@pytest.fixture(scope="module")
def trace() -> stepscope.Trace:
    return stepscope.open(H200)


def params(page: "Page") -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(page.url.split("?")[-1] if "#" in page.url else "").items()}


def exact(page: "Page", row: int, column: int, grid: str = ".grid-scroll") -> str:
    """The exact value that a cell shows on hover."""
    cell = page.locator(f"{grid} .gridrow[aria-rowindex='{row + 2}'] > div").nth(column)
    return cell.locator(".q").get_attribute("title") or ""


def test_types_and_families_show_the_figures_of_the_analysis(go: Go, page: "Page", trace: stepscope.Trace) -> None:
    go("operators")
    types = trace.operator_types(device="gpu").sort("total_ns", descending=True, maintain_order=True)
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == f"GPU{types.height}"
    for row, (name, calls, total) in enumerate(types.select("type", "calls", "total_ns").head(5).iter_rows()):
        assert page.locator(f".gridrow[aria-rowindex='{row + 2}'] .name").inner_text() == name
        assert (exact(page, row, 1), exact(page, row, 2)) == (f"{calls:,}", f"{total:,} ns")
    # mm and addmm are all that multiplies matrices here.
    product = types.filter(pl.col("type").is_in(["aten::mm", "aten::addmm"]))["self_ns"].sum()
    shown = page.locator(".oplist .one", has_text="Matrix multiply").locator(".q").first.get_attribute("title")
    assert shown == f"{product:,} ns"
    parts = [int(text.split()[0].replace(",", "")) for text in page.locator(".oplist .one .q:first-of-type").evaluate_all(
        "cells => cells.map(cell => cell.title).filter(title => title.endsWith(' ns'))")]  # fmt: skip
    assert sum(parts) == types["self_ns"].sum(), "something was dropped from the picture"
    expected = trace.verdict(topic="operators").filter(pl.col("device") == "gpu")["text"].to_list()
    assert sentences(page) == " ".join(expected)


def sentences(page: "Page") -> str:
    """The headline and the sentences below it."""
    return " ".join(page.locator("h1.verdict, .verdict-more").all_inner_texts()).replace("\u202f", " ")


@pytest.mark.parametrize("name", ["operators", "kernels", "flops"])
def test_page_and_terminal_show_the_same_sentences_in_both_languages(go: Go, page: "Page", trace: stepscope.Trace, name: str) -> None:
    rows = trace.verdict(topic=name).filter(pl.col("device").is_null() | (pl.col("device") == "gpu")).to_dicts()
    for language in LANGUAGES:
        go(name)
        page.evaluate(f"localStorage.setItem('stepscope.language', '{language}')")
        page.reload()
        page.locator(".verdict-more").wait_for()
        headline, *others = (render(row["code"], json.loads(row["parameters"]), language) for row in rows)
        assert sentences(page) == f"{headline} {('' if language == 'zh' else ' ').join(others)}"


def test_a_type_opens_to_its_shapes_and_a_row_to_every_call_of_it(go: Go, page: "Page", trace: stepscope.Trace) -> None:
    go("operators")
    page.locator(".gridrow[aria-rowindex='2'] .fold").click()
    (kind,) = trace.operator_types(device="gpu").sort("total_ns", descending=True)["type"][:1]
    below = trace.operators(device="gpu").filter(pl.col("type") == kind)
    opened = page.locator(".gridrow.sub")
    opened.first.wait_for()
    expected = below.height if below.height > 1 else trace.operators(device="gpu", by_shape=True).filter(pl.col("type") == kind).height
    assert opened.count() == expected
    page.locator(".gridrow[aria-rowindex='2'] .name").click()
    drawer = page.locator(".drawer")
    drawer.locator("tbody tr").first.wait_for()
    calls = trace.instances(device="gpu", type=kind)
    assert drawer.locator(".figures .q").nth(0).get_attribute("title") == f"{calls['dur_ns'].sum():,} ns"
    assert drawer.locator(".figures .q").nth(1).get_attribute("title") == f"{below['calls'].sum():,}"  # of operators
    slowest = calls.sort("dur_ns", descending=True, maintain_order=True).row(0, named=True)
    assert drawer.locator("tbody tr").first.locator(".q").nth(1).get_attribute("title") == f"{slowest['dur_ns']:,} ns"
    target = drawer.locator("tbody tr").first.locator("a").get_attribute("href") or ""
    request = parse_qs(target.split("?")[1])
    first = trace.spans.select(pl.col("start_ns").min()).collect().item()
    assert int(request["span"][0]) in calls.filter(pl.col("dur_ns") == slowest["dur_ns"])["span"].to_list()
    assert int(request["t0"][0]) <= slowest["start_ns"] - first <= int(request["t1"][0])
    # The stack was recorded: the line that called it is named.
    drawer.locator("summary", has_text="r.py(9): forward").first.wait_for()


def test_a_copied_link_reproduces_selection_sort_search_and_filter(go: Go, page: "Page") -> None:
    go("operators", view="all")
    page.locator(".find input").fill("/^aten::(mm|addmm)$/")
    assert (
        page.locator(".gridtools [role=status]").inner_text().startswith("2")
        or "of" in page.locator(".gridtools [role=status]").inner_text()
    )
    page.locator("[role=columnheader]", has_text="Calls").click()
    page.locator(".gridrow[aria-rowindex='2'] .name").first.click()
    page.locator(".drawer tbody tr").first.wait_for()
    parameters = params(page)
    assert parameters["all.find"] == "/^aten::(mm|addmm)$/"
    assert parameters["all.sort"] == "-calls"
    before = page.locator(".gridrow.on").inner_text()
    page.reload()
    page.locator(".drawer tbody tr").first.wait_for()
    assert page.locator(".gridrow.on").inner_text() == before
    assert page.locator(".find input").input_value() == "/^aten::(mm|addmm)$/"
    page.keyboard.press("Escape")
    page.locator(".drawer").wait_for(state="detached")
    assert "sel" not in params(page)


def test_a_filter_is_a_chip_that_can_be_taken_away(go: Go, page: "Page", trace: stepscope.Trace) -> None:
    go("operators")
    types = trace.operator_types(device="gpu")
    page.get_by_role("button", name="Filter", exact=True).click()
    page.locator(".steprange select[name=key]").select_option("total_ns")
    page.locator(".steprange input").fill("50 µs")
    page.locator(".steprange button").click()
    chip = page.locator(".gridtools .chip.acc")
    chip.wait_for()
    assert chip.inner_text().replace("\u202f", " ") == "total ≥ 50.0 µs"
    some = types.filter(pl.col("total_ns") >= 50_000).height
    assert page.locator(".gridtools [role=status]").inner_text() == f"{some} of {types.height} types"
    chip.locator("button").click()
    page.locator(".gridtools [role=status]", has_text=f"{types.height} types").wait_for()
    assert page.locator(".gridtools .chip.acc").count() == 0


def test_the_table_works_by_keyboard_alone(go: Go, page: "Page") -> None:
    go("operators")
    page.locator(".grid-scroll").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.locator(".gridrow.sub").first.wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator(".gridrow.sub").first.wait_for(state="detached")
    page.keyboard.press("Enter")
    page.locator(".drawer").wait_for()
    assert json.loads(params(page)["sel"]) == [page.locator(".gridrow[aria-rowindex='3'] .name").inner_text()]


def test_words_are_found_in_any_order_and_with_gaps_where_they_stand_nowhere(go: Go, page: "Page", trace: stepscope.Trace) -> None:
    go("operators", view="all", tab="cpu")
    rows = trace.operators(device="cpu")
    texts = rows.select(pl.concat_str("name", "scope", "shapes", separator=" ", ignore_nulls=True).str.to_lowercase()).to_series()
    expected = (texts.str.contains("mm") & texts.str.contains("autograd")).sum()
    assert 0 < expected < rows.height
    page.locator(".find input").fill("MM autograd")
    page.locator(".gridtools [role=status]", has_text=f"{expected} of {rows.height} operators").wait_for()
    page.locator(".find input").fill("admm")
    page.locator(".gridrow .name", has_text="aten::addmm").first.wait_for()
    page.locator(".find input").fill("/(/")
    page.get_by_text("not a regular expression").wait_for()


@pytest.mark.parametrize("chart", ["bar", "treemap"])
def test_the_picture_has_other_forms(go: Go, page: "Page", chart: str) -> None:
    go("operators", chart=chart, by="type", run="resnet50_h200")
    if chart == "treemap":
        page.locator(".chart canvas").wait_for()
    else:
        # Twenty types and all others as one bar.
        assert page.locator(".opbar").count() == 21
        assert re.search(r"\d+ other types", page.locator(".opbar").last.inner_text())


def test_scopes_are_a_tree_whose_parts_add_up(go: Go, page: "Page") -> None:
    go("operators", view="scope", run="resnet50_h200")
    rows = stepscope.open(SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200").operators(device="gpu")
    inside = rows.filter(pl.col("scope").str.starts_with("ResNet50"))
    assert page.locator(".gridrow[aria-rowindex='2'] .name").inner_text() == "ResNet50"
    assert exact(page, 0, 2) == f"{inside['total_ns'].sum():,} ns"
    page.locator(".gridrow[aria-rowindex='2']").click()
    page.locator(".gridrow.sub .name", has_text="layer1").first.wait_for()


def test_a_run_without_operators_shows_what_it_has_by_name_and_a_row_leads_to_its_spans(go: Go, page: "Page") -> None:
    go("operators", run="python")
    totals = stepscope.open(SAMPLES / "capture" / "stepscope-0.1.0" / "python.capture").totals()
    for row, (name, calls, total) in enumerate(totals.select("name", "calls", "total_ns").iter_rows()):
        cells = page.locator(f".gridrow[aria-rowindex='{row + 2}'] > div")
        assert (cells.nth(0).inner_text(), cells.nth(2).inner_text()) == (name, str(calls))
        assert cells.nth(3).locator(".q").get_attribute("title") == f"{total:,} ns"
    page.locator(".gridrow[aria-rowindex='2']").click()
    page.wait_for_url(re.compile("/query"))
    page.locator("[role=grid] .gridrow[aria-rowindex='5']").wait_for()  # `load` ran four times
    assert page.locator("[role=grid]").get_attribute("aria-rowcount") == "5"


def test_percentiles_close_together_are_not_written_over_each_other(server: Serve, page: "Page", shared: Path) -> None:
    served = server(shared / "torch_h200")
    page.goto(served.url(f"#/{served.run('gpt2_full')}/operators?sel={quote(json.dumps(['aten::mm']))}"))
    page.locator(".drawer h3", has_text="Launch to start").wait_for()
    page.locator(".drawer .plot text", has_text=re.compile("^p50")).nth(1).wait_for()
    written = """all => all.map(svg => [...svg.querySelectorAll('text')].filter(e => /^p\\d\\d/.test(e.textContent))
        .map(e => e.getBoundingClientRect()).map(one => [one.left, one.right]).sort((a, b) => a[0] - b[0]))"""
    for labels in page.locator(".drawer .plot svg").evaluate_all(written):
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(labels)), labels


def test_thousands_of_types_of_one_family_are_a_whole_ring_and_are_counted(server: Serve, page: "Page", tmp_path: Path) -> None:
    common = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 1}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 30_000}
    events = [{**common, "name": f"mine::op_{number}", "ts": 2 * number} for number in range(12_000)]
    (tmp_path / "many.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step, *events]}))
    served = server(tmp_path)
    page.goto(served.url(f"#/{served.run('many')}/operators"))
    page.get_by_text("all 12,000 types").wait_for()
    slice_ = page.locator(".oppie path")
    assert slice_.count() == 1
    assert slice_.evaluate("e => [e.getBBox().width, e.getBBox().height].map(Math.round)") == [116, 116]
    page.goto(served.url(f"#/{served.run('many')}/overview"))
    rest = page.locator(".ov-rank").last
    rest.wait_for()
    assert rest.inner_text().replace("\u202f", " ").split("\n") == ["11,990 more types", "12.0 ms", "99.9 %"]


def test_a_run_without_operators_says_how_to_record_them(go: Go, page: "Page") -> None:
    for name in ("kernels", "flops"):
        go(name, run="python")
        assert page.locator(".empty b").inner_text()
        assert re.search(r"stepscope run|--flops", page.locator(".empty").inner_text())


def test_kernels_copies_and_launches_show_the_figures_of_the_analyses(go: Go, page: "Page", trace: stepscope.Trace) -> None:
    go("kernels")
    kernels = trace.kernels()
    for row, (name, op, calls, total) in enumerate(kernels.select("name", "op", "calls", "total_ns").head(4).iter_rows()):
        cells = page.locator(f".gridrow[aria-rowindex='{row + 2}'] > div")
        assert cells.nth(0).locator(".name").get_attribute("title") == name
        assert cells.nth(1).inner_text() == (op or "\N{EN DASH}")
        assert (exact(page, row, 2), exact(page, row, 3)) == (f"{calls:,}", f"{total:,} ns")
    longest = kernels.row(0, named=True)
    page.locator(".gridrow[aria-rowindex='2'] .name").first.click()
    page.locator(".drawer .figures").wait_for()
    assert page.locator(".drawer .figures .q").first.get_attribute("title") == f"{longest['total_ns']:,} ns"
    page.locator(".drawer tbody tr").first.wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Copies and fills").click()
    copies = trace.kernels(copies=True).height - kernels.height
    page.locator(".gridtools [role=status]", has_text=f"{copies} copies and fills").wait_for()
    page.get_by_role("tab", name="Launch delay").click()
    launches = trace.launches()
    page.locator(".tile", has_text="Launches").locator(f".q[title='{launches['calls'].sum():,}']").wait_for()


def test_flops_are_those_of_the_analysis_and_a_part_can_become_the_root(go: Go, page: "Page") -> None:
    trace = stepscope.open(SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200")
    go("flops", run="resnet50_h200", view="icicle")
    whole = trace.flops_by_scope(depth=0).row(0, named=True)
    assert page.locator(".tile .q").first.get_attribute("title") == f"{whole['flops']:,} FLOP"
    assert whole["peak_source"] in page.locator(".facts").inner_text()
    page.locator(".icicle button", has_text="layer2").click()
    page.locator(".crumbs b", has_text="layer2").wait_for()
    assert params(page)["root"] == "ResNet50/layer2"
    page.locator(".crumbs a", has_text="ResNet50").click()
    page.locator(".crumbs b", has_text="ResNet50").wait_for()
    page.get_by_role("button", name="Sankey").click()
    page.locator(".chart canvas").first.wait_for()
    page.get_by_role("button", name="Rows").click()
    roof = trace.roofline()
    page.locator("[role=status]", has_text=f"{roof.height} rows").wait_for()


def test_the_server_finds_words_and_expressions_in_all_texts_of_a_table(server: Serve, trace: stepscope.Trace) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/analyses/operators?format=json&limit=1&find="
    operators = trace.operators()
    texts = operators.select(
        pl.concat_str("device", "name", "type", "scope", "shapes", "dtypes", separator=" ", ignore_nulls=True)
    ).to_series()
    words = texts.str.contains("(?i)addmm") & texts.str.contains("gpu")
    assert served.ask(at + "GPU%20AddMM").json()["rows_in_all"] == words.sum() > 0
    assert served.ask(at + quote("/^aten::mm$/")).json()["rows_in_all"] == operators.filter(pl.col("name") == "aten::mm").height > 0
    refused = served.ask(at + quote("/(/"))
    assert (refused.status, refused.json()["kind"]) == (400, "usage")
