"""The advice page and the rail: findings by gain with their evidence and places, what they save together, and dismissals."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
import tiny
from stepscope.io import store

SAMPLES = Path(__file__).parent.parent / "samples"
FOLDERS = (SAMPLES / "chrome" / "torch-2.11", SAMPLES / "run" / "stepscope-0.1.0")
RESNET = FOLDERS[1] / "resnet50_h200"
READY = "() => document.querySelector('main h1') && !document.querySelector('main .loading, main .stale, main [aria-busy=true]')"


@pytest.fixture
def opened(server: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))

    def open_page(run: str, rest: str = "advice") -> Any:
        served = server(*FOLDERS)
        page.goto(served.url(f"#/{served.run(run)}/{rest}"))
        page.wait_for_function(READY)
        return page

    return open_page


def _plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_findings_are_cards_in_the_order_of_the_analysis_with_title_gain_and_fix(opened: Any) -> None:
    page = opened("resnet50_h200")
    rows = stepscope.open(RESNET).advice()
    findings = rows.filter(status="finding")
    assert [_plain(one) for one in page.locator(".advpage > .adv h2").all_inner_texts()] == [
        *findings["title"].to_list(),
        *rows.filter(status="statement")["title"].to_list(),
    ]
    first = page.locator(".advpage > .adv").first
    assert f"{findings['gain_ns'][0]:,} ns" == first.locator(".adv-gain .q").first.get_attribute("title")
    assert findings["snippet"][0] in first.inner_text() and findings["fix"][0] in first.inner_text()


def test_the_headline_and_the_rail_show_what_all_fixes_save_together(opened: Any) -> None:
    steps = stepscope.open(RESNET).waterfall()
    before, after = steps["step_before_ns"][0], steps["step_after_ns"][-1]
    share = f"{(before - after) / before * 100:.1f} %"
    page = opened("resnet50_h200")
    assert _plain(page.locator("h1").inner_text()).startswith(share)
    assert page.locator(".adv-fall").first.locator("li").count() == steps.height + 1
    page = opened("resnet50_h200", "overview")
    assert share in _plain(page.locator(".adv-whole").inner_text())
    assert page.locator(".adv-rail article").count() == min(3, stepscope.open(RESNET).advice().filter(status="finding").height)


def test_evidence_opens_the_rows_of_the_named_analysis(opened: Any) -> None:
    page = opened("resnet50_h200")
    causes = stepscope.open(RESNET).gap_causes().filter(cause="host-bound")
    first = page.locator(".advpage > .adv").first
    first.locator("summary:has-text('Evidence')").click()
    first.locator(".adv-rows tbody tr").first.wait_for()
    assert f"{causes['total_ns'][0]:,} ns" in [one.get_attribute("title") for one in first.locator(".adv-rows .q").all()]


def test_a_finding_leads_to_its_place_on_the_timeline(opened: Any, server: Any) -> None:
    page = opened("resnet50_h200")
    served = server(*FOLDERS)
    origin = int(served.ask(f"api/runs/{served.run('resnet50_h200')}").json()["origin_ns"])
    spot = json.loads(stepscope.open(RESNET).advice()["spans"][0])[0]
    page.get_by_role("link", name="Show on the timeline").first.click()
    page.wait_for_url(re.compile(r"/timeline\?.*area="))
    begin, end = (int(value) for value in re.findall(r"area=(\d+)(?::|%3A)(\d+)", page.url)[0])
    assert (begin, end) == (spot["start_ns"] - origin, spot["end_ns"] - origin)


def test_a_dismissed_finding_stays_dismissed_with_its_reason_until_it_is_restored(opened: Any) -> None:
    page = opened("resnet50_h200")
    count = page.locator(".advpage > .adv").count()
    page.get_by_role("button", name="Dismiss").first.click()
    page.keyboard.type("planned for May")
    page.keyboard.press("Enter")
    page.wait_for_selector("summary:has-text('Dismissed: 1 finding')")
    assert page.locator(".advpage > .adv").count() == count - 1
    page.reload()
    page.locator("summary:has-text('Dismissed: 1 finding')").click()
    assert "planned for May" in page.locator(".adv-fold .adv").inner_text()
    page.get_by_role("button", name="Restore").click()
    page.wait_for_function(f"() => document.querySelectorAll('.advpage > .adv').length === {count}")


def test_the_whatif_card_predicts_what_the_analysis_predicts(opened: Any, complaints: list[str]) -> None:
    page = opened("resnet50_h200", "advice?remove=host")
    predicted = stepscope.open(RESNET).whatif(remove="host")
    page.wait_for_selector(".adv-answer b .q")
    titles = [one.get_attribute("title") for one in page.locator(".adv-answer .q").all()]
    assert f"{predicted['predicted_ns'][0]:,} ns" in titles and f"{predicted['gain_ns'][0]:,} ns" in titles
    page.get_by_role("button", name="Change a time").click()
    page.get_by_label("Operator, kernel, module or function").fill("nothing like this")
    page.get_by_label("Operator, kernel, module or function").press("Enter")
    page.wait_for_selector(".adv-whatif .trouble:has-text('nothing is named')")
    assert len(complaints) == 1 and "400" in complaints.pop()  # the answer that names the error


def test_findings_are_exported_as_markdown_and_json(opened: Any) -> None:
    page = opened("resnet50_h200")
    rows = stepscope.open(RESNET).advice()
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON").click()
    exported = json.loads(Path(download.value.path()).read_text("utf-8"))["advice"]
    assert [(row["rule"], row["gain_ns"]) for row in exported] == list(rows.select("rule", "gain_ns").iter_rows())
    with page.expect_download() as download:
        page.get_by_role("button", name="Markdown", exact=True).click()
    text = Path(download.value.path()).read_text("utf-8")
    assert f"## {rows['title'][0]}" in text.replace("\u202f", " ") and rows["snippet"][0] in text


def test_rules_without_data_name_the_way_to_record_it(opened: Any) -> None:
    page = opened("h200_modules")
    page.locator("summary:has-text('Not checked')").click()
    words = page.locator(".adv-fold").first.inner_text()
    for row in stepscope.open(FOLDERS[0] / "h200_modules.json.gz").advice().filter(status="not checked").iter_rows(named=True):
        assert row["not_checked"] in words and row["rule"] in words


def test_a_healthy_run_is_called_healthy(server: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    # The device works without a gap; the host runs ahead.
    spans = ["kind track name start_ns dur_ns span flow_in"]
    steps = ["step start_ns end_ns"]
    for step in range(4):
        at = step * 1_000_000
        spans.append(f"step 0 step {at} 1000000 {step * 4} -")
        spans.append(f"api 0 launch {at} 1000 {step * 4 + 1} -")
        spans.append(f"kernel 7 k {at + 10_000} 1000000 {step * 4 + 2} {step * 4 + 1}")
        steps.append(f"{step} {at} {at + 1_000_000}")
    tracks = "track kind label device\n0 thread main -\n7 stream s7 0"
    trace = tiny.trace(spans="\n".join(spans), steps="\n".join(steps), tracks=tracks)
    store.write(trace, tmp_path / "runs" / "healthy")
    served = server(tmp_path / "runs")
    rows = stepscope.open(tmp_path / "runs" / "healthy").advice()
    assert rows["status"][0] == "healthy"
    page.goto(served.url(f"#/{served.run('healthy')}/advice"))
    page.wait_for_function(READY)
    assert _plain(page.locator("h1").inner_text()) == rows["title"][0]
