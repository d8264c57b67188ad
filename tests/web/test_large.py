"""A run of more spans than analyses hold at once: its pages are of some steps and say so, its timeline is of all."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import stepscope
from settling import PATIENCE_S
from stepscope.server import answers, app, runs

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve, Served

RESNET = Path(__file__).parents[1] / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200"  # steps 8 to 11, 23,860 spans


@pytest.fixture
def served(server: "Serve", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Served"]:
    shutil.copytree(RESNET, tmp_path / "large")
    monkeypatch.setattr(runs, "LARGE", 1000)
    monkeypatch.setattr(app, "LARGE", 1000)
    monkeypatch.setattr(runs, "_SHOWN", 13_000)
    found = server(tmp_path)
    yield found


def test_its_pages_are_of_as_many_steps_as_may_be_held_from_the_second_on(served: "Served") -> None:
    info = served.ask(f"api/runs/{served.run('large')}").json()
    assert info["part"] == [9, 10]


def test_a_run_that_is_not_large_or_has_no_steps_to_choose_from_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = stepscope.open(RESNET)
    assert runs.describe(trace, "a", "a")["part"] is None
    monkeypatch.setattr(runs, "LARGE", 1000)
    assert runs.describe(trace.of_steps(8, 9), "a", "a")["part"] is None
    monkeypatch.setattr(runs, "_SHOWN", 1)
    assert runs.describe(trace, "a", "a")["part"] == [9, 9]
    monkeypatch.setattr(runs, "_SHOWN", 1 << 20)
    assert runs.describe(trace, "a", "a")["part"] == [9, 11]


def test_analyses_of_all_of_it_run_one_at_a_time_and_hold_up_neither_the_timeline_nor_those_of_some_steps(
    served: "Served", monkeypatch: pytest.MonkeyPatch
) -> None:
    run = served.run("large")
    inside, go, most = [], threading.Event(), []
    first_in = threading.Event()
    answer = answers.Answers.answer

    def slow(self: Any, trace: Any, request: Any, *more: Any, **named: Any) -> Any:
        if request.kind == "analyses" and request.steps is None:
            inside.append(request.name)
            most.append(len(inside))
            first_in.set()
            assert go.wait(PATIENCE_S)
            inside.remove(request.name)
        return answer(self, trace, request, *more, **named)

    monkeypatch.setattr(answers.Answers, "answer", slow)
    names = ("overview", "kernels", "operators", "overlap", "step_trace", "gaps")
    threads = [threading.Thread(target=served.ask, args=(f"api/runs/{run}/analyses/{name}",)) for name in names]
    for thread in threads:
        thread.start()
    assert first_in.wait(PATIENCE_S)
    try:
        assert served.ask(f"api/runs/{run}/timeline").json()["events"] == 23_860
        assert served.ask(f"api/runs/{run}/tables/steps?format=json").json()["rows_in_all"] == 4
        assert served.ask(f"api/runs/{run}/analyses/overview?steps=9:10&format=json").status == 200
    finally:
        go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(most) == len(names) and max(most) == 1


def test_the_overview_says_which_steps_it_is_of_and_leads_to_all_of_them(served: "Served", page: "Page") -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    run = served.run("large")
    page.goto(served.url(f"#/{run}/overview"))
    note = page.get_by_role("note")
    expect(note).to_contain_text("23,860 spans: this page covers steps 9\u201310; the timeline covers all.")
    some = stepscope.open(RESNET).analyse("overview", steps=(9, 10), warmup=0)["step_ns"].item()
    step = page.locator("a.tile").first.locator(".q").first
    expect(step).to_have_attribute("title", f"{some:,} ns")
    note.get_by_role("button", name="All steps").click()
    whole = stepscope.open(RESNET).overview()["step_ns"].item()
    assert whole != some
    expect(step).to_have_attribute("title", f"{whole:,} ns")
    expect(note).to_contain_text("analyses run one after another")
    assert "steps=all" in page.url
    note.get_by_role("button", name="Steps 9\u201310 only").click()
    expect(step).to_have_attribute("title", f"{some:,} ns")
    note.get_by_role("link", name="Timeline").click()
    expect(page.locator(".tl-picture canvas")).to_be_visible()
    expect(page.get_by_role("note")).to_have_count(0)
