"""The single-file report: every page of it is drawn from what the file carries, and it asks nothing of any machine."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stepscope
from stepscope.cli import main
from stepscope.server.report import report, table_key

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = Path(__file__).parents[1] / "samples"
RUNS = [
    next((SAMPLES / "run").glob("*/resnet50_h200")),
    next((SAMPLES / "capture").glob("*/torch.capture")),
    next((SAMPLES / "capture").glob("*/python.capture")),
    next((SAMPLES / "xplane").glob("jax-0.11.2-gpu")),
]


@pytest.fixture(scope="module", params=RUNS, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(request.param), "-o", str(out)]) == 0
    return out


def test_every_page_of_a_report_is_drawn_from_what_it_carries(written: Path, page: "Page") -> None:
    page.goto(written.as_uri())
    page.wait_for_selector(".verdict")
    pages = [link.get_attribute("href") for link in page.query_selector_all(".nav a")]
    assert len(pages) > 8
    for address in pages:
        page.goto(f"{written.as_uri()}{address}")
        page.wait_for_selector("main :is(.verdict, .empty, .card, .timeline)")
        page.wait_for_selector("main .loading", state="detached")
        assert page.locator(".trouble").all_inner_texts() == [], address


def test_a_report_asks_nothing_of_any_machine(written: Path) -> None:
    text = written.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy[1]
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)', text) == []


def test_a_report_is_no_larger_than_it_may_be_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: "Page"
) -> None:
    out = tmp_path / "small.html"
    assert main(["report", str(RUNS[0]), "-o", str(out), "--max-size", "1.7MB"]) == 0
    output = capsys.readouterr()
    assert "left out because of --max-size:" in output.err
    assert out.stat().st_size < 1.85e6  # the page around the tables is not counted
    assert "instances" in output.err
    page.goto(f"{out.as_uri()}#/{RUNS[0].name}/operators?sel=type")
    page.wait_for_selector(".verdict")


def test_a_size_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["report", str(RUNS[0]), "-o", str(tmp_path / "x.html"), "--max-size", "big"]) == 2
    assert "expected a size such as" in capsys.readouterr().err
    assert main(["report", str(RUNS[0]), "-o", str(tmp_path / "x.html"), "--max-size", "10kB"]) == 2
    assert "--max-size is 10.0 kB; expected more than " in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_a_hostile_name_stays_text_in_the_report(tmp_path: Path, page: "Page") -> None:
    name = "</script><script>document.title='owned'</script>"
    trace = stepscope.open(RUNS[2])
    out = tmp_path / "hostile.html"
    out.write_text(report(trace, name=name).page, "utf-8")
    page.goto(out.as_uri())
    page.wait_for_selector(".verdict")
    assert page.title() != "owned"
    assert name in page.locator("header.top").inner_text()


def test_the_question_of_a_table_is_written_as_the_pages_write_it() -> None:
    assert table_key("memory", {"pixels": 1500, "by_event": False, "device": None}) == "memory?by_event=0&pixels=1500"
    assert table_key("overview", {}) == "overview"


def test_a_notebook_embeds_a_page_that_runs_by_itself(tmp_path: Path, page: "Page") -> None:
    cell = stepscope.open(RUNS[0]).view("operators", height=500)._repr_html_()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><h1>cell</h1>{cell}", "utf-8")
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".nav a.on", has_text="Operators").wait_for()
    frame.locator(".gridrow:not(.head)").first.wait_for()
    # The page inside cannot reach the notebook around it.
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
