"""A recording is seen while it is made."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Serve

JOB = """
import sys, time
from stepscope import Profiler
with Profiler(output_path=sys.argv[1]) as profiler:
    for _ in range(100_000):
        time.sleep(0.02)
        profiler.step()
        if sys.argv[2] == "end":
            break
        try:
            open(sys.argv[2]).close()
        except FileNotFoundError:
            continue
        break
profiler.analyse()
"""
PATIENCE = 40_000


def test_steps_come_as_they_are_recorded_until_the_job_ends(server: "Serve", page: "Page", tmp_path: Path) -> None:
    data, end = tmp_path / "data", tmp_path / "end"
    data.mkdir()
    served = server(data)
    page.goto(served.url("#//live"))
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is being recorded now.")
    job = subprocess.Popen([sys.executable, "-c", JOB, str(data), str(end)])
    try:
        page.locator(".live-list a").click(timeout=PATIENCE)
        sentence = page.get_by_role("heading", level=1)
        playwright.expect(sentence).to_contain_text("the median of the last", timeout=PATIENCE)
        page.get_by_role("button", name="Pause").click()
        still = sentence.inner_text()
        playwright.expect(page.get_by_text("paused ·")).not_to_contain_text("paused · 0", timeout=PATIENCE)
        assert sentence.inner_text() == still
        page.get_by_role("button", name="Go on").click()
        playwright.expect(sentence).not_to_have_text(still, timeout=PATIENCE)
        end.touch()
        playwright.expect(sentence).to_contain_text("The recording has ended after", timeout=PATIENCE)
        assert job.wait(60) == 0
    finally:
        job.kill()
        job.wait()
    page.get_by_role("link", name="Open the finished run").click()
    playwright.expect(sentence).to_contain_text("A step takes 2", timeout=PATIENCE)
    assert page.locator(".top .chip").filter(has_text="live").count() == 0


def test_a_run_that_is_over_says_so(server: "Serve", page: "Page") -> None:
    served = server(Path(__file__).parents[1] / "samples")
    page.goto(served.url(f"#/{served.run('python')}/live"))
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("python is not being recorded now.", timeout=PATIENCE)
