"""The page Query: the answer is the one of `stepscope query`, examples work, mistakes are explained where they are made."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import stepscope
from stepscope.model.trace import Trace
from stepscope.query import queries

SAMPLES = Path(__file__).parent.parent / "samples"
RECORDING = SAMPLES / "run/stepscope-0.1.0/resnet50_h200"
EXAMPLES = json.loads((Path(__file__).parent.parent.parent / "frontend/src/examples.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return stepscope.open(RECORDING)


@pytest.fixture
def opened(server: Any, page: Any) -> Any:
    served = server(SAMPLES)
    run = served.run("resnet50_h200")

    def go(query: str = "") -> Any:
        page.goto(served.url(f"#/{run}/query{query}"))
        page.wait_for_selector("textarea.sql")
        return page

    return go


def run(page: Any) -> None:
    page.get_by_role("button", name="Run", exact=True).click()


def test_the_query_of_a_link_is_shown_and_runs_when_the_user_says_so(opened: Any, page: Any) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or "") if request.url.endswith("/query") else None)
    first, second = "select count(*) as n from steps", "select step from steps"
    opened("?sql=" + quote(first))
    page.wait_for_selector("h1:has-text('has not run')")
    assert page.locator("textarea.sql").input_value() == first
    # Whoever has a handle of the window can change what follows the # without loading the page again.
    page.evaluate("sql => { location.hash = location.hash.replace(/sql=.*/, 'sql=' + encodeURIComponent(sql)); }", second)
    page.wait_for_function("sql => document.querySelector('textarea.sql').value === sql", arg=second)
    # Nor does a link of the page that keeps the query ask for it.
    page.evaluate("() => document.querySelector('main').insertAdjacentHTML('afterbegin', `<a href='${location.hash}'>again</a>`)")
    page.get_by_role("link", name="again").click()
    page.wait_for_selector("h1:has-text('has not run')")
    assert sent == []
    run(page)
    page.wait_for_selector("h1:has-text('4 rows')")
    assert [json.loads(body)["sql"] for body in sent] == [second]
    page.get_by_role("button", name="History").click()
    assert page.locator(".menu .item").all_inner_texts() == [second]
    page.reload()
    page.wait_for_selector("h1:has-text('has not run')")
    page.get_by_role("button", name="History").click()
    page.locator(".menu .item").first.click()
    page.wait_for_selector("h1:has-text('4 rows')")
    assert len(sent) == 2


@pytest.mark.parametrize("example", EXAMPLES, ids=[one["title"] for one in EXAMPLES])
def test_every_example_has_an_answer_with_the_columns_it_draws(trace: Trace, example: dict[str, str]) -> None:
    answer = queries.answer(trace, example["sql"])
    assert answer.height > 0
    assert {example.get("x"), example.get("y")} - {None} <= set(answer.columns)


def test_ctrl_enter_asks_and_the_address_keeps_question_and_chart(opened: Any, trace: Trace) -> None:
    sql = "select kind, count(*) as spans from spans group by kind order by spans desc"
    page = opened()
    page.locator("textarea.sql").fill(sql)
    page.keyboard.press("Control+Enter")
    expected = queries.answer(trace, sql)
    page.wait_for_selector(f"h1:has-text('{expected.height} rows')")
    names = page.locator("[aria-label='Result'] [role=gridcell] .name").evaluate_all("all => all.map(e => e.title)")
    assert names == expected["kind"].cast(str).to_list()
    page.get_by_role("button", name="Bars").click()
    page.wait_for_selector(".bars")
    counts = page.locator(".bars .q").evaluate_all("all => all.map(e => Number(e.title.replaceAll(',', '')))")
    assert counts == expected["spans"].to_list()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("textarea.sql")
    assert page.locator("textarea.sql").input_value() == sql
    run(page)
    page.wait_for_selector(".bars")
    assert page.url == address


def test_a_mistake_is_explained_below_the_question(opened: Any, complaints: list[str]) -> None:
    page = opened("?sql=" + quote("select nothing from spans"))
    run(page)
    page.wait_for_selector(".trouble")
    assert "nothing" in page.locator(".trouble").inner_text()
    assert page.locator("h1").inner_text() == "The query is not valid."
    # The browser itself notes that the server refused.
    assert all("400" in output for output in complaints)
    complaints.clear()


def test_questions_are_remembered_and_saved_ones_can_be_taken_up_again(opened: Any) -> None:
    page = opened()
    page.locator("textarea.sql").fill("select count(*) as n from steps")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector("h1:has-text('1 row and 1 column.')")
    page.get_by_role("button", name="Saved").click()
    page.get_by_label("Name of the query").fill("how many steps")
    page.get_by_role("button", name="Save", exact=True).click()
    page.reload()
    page.get_by_role("button", name="History").click()
    assert page.locator(".menu .item").first.inner_text() == "select count(*) as n from steps"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("button", name="how many steps", exact=True).click()
    page.wait_for_selector("h1:has-text('1 row and 1 column.')")


def test_tables_unfold_to_columns_and_a_click_writes_their_names(opened: Any) -> None:
    page = opened()
    page.locator("textarea.sql").fill("")
    page.get_by_role("button", name="steps", exact=True).first.click()
    page.get_by_role("button", name="fp_start_ns").click()
    assert page.locator("textarea.sql").input_value() == "fp_start_ns"


def test_the_answer_is_downloaded_as_csv_with_exact_values(opened: Any, trace: Trace) -> None:
    sql = "select step, start_ns from steps order by step"
    page = opened("?sql=" + quote(sql))
    run(page)
    page.wait_for_selector("[aria-label='Result']")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    assert lines == ["step,start_ns", *(f"{step},{start}" for step, start in queries.answer(trace, sql).iter_rows())]


def test_rows_with_a_start_lead_to_the_timeline(opened: Any) -> None:
    page = opened("?sql=" + quote("select span, name, start_ns, dur_ns from spans where kind = 'kernel' order by start_ns limit 1"))
    run(page)
    link = page.get_by_role("link", name="show", exact=True)
    link.wait_for()
    assert re.search(r"/timeline\?span=\d+&t0=\d+&t1=\d+$", link.get_attribute("href"))
