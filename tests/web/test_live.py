"""A recording is seen while it is made."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from programs import only
from stepscope.model import captures
from stepscope.recording.conversion import convert
from stepscope.server import traces
from stepscope.server.routes import live
from stepscope.server.runs import Run, RunList

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

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
print(profiler.step_num)
"""
PATIENCE = 40_000


def test_steps_come_as_they_are_recorded_until_the_job_ends(server: "Serve", page: "Page", tmp_path: Path) -> None:
    data, end = tmp_path / "data", tmp_path / "end"
    data.mkdir()
    served = server(data)
    page.goto(served.url("#//live"))
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("No run is being recorded.")
    job = subprocess.Popen([sys.executable, "-c", JOB, str(data), str(end)], stdout=subprocess.PIPE, text=True)
    try:
        page.locator(".live-list a").click(timeout=PATIENCE)
        sentence = page.get_by_role("heading", level=1)
        playwright.expect(sentence).to_contain_text("the median of the last", timeout=PATIENCE)
        page.get_by_role("button", name="Pause").click()
        still = sentence.inner_text()
        playwright.expect(page.get_by_text("paused ·")).not_to_contain_text("paused · 0", timeout=PATIENCE)
        assert sentence.inner_text() == still
        page.get_by_role("button", name="Continue").click()
        playwright.expect(sentence).not_to_have_text(still, timeout=PATIENCE)
        end.touch()
        made, _ = job.communicate(timeout=60)
        playwright.expect(sentence).to_contain_text(f"The recording has ended after {int(made)} steps.", timeout=PATIENCE)
        assert job.returncode == 0
    finally:
        job.kill()
        job.wait()
    page.get_by_role("link", name="Open the finished run").click()
    playwright.expect(page.locator(".verdict-more")).to_contain_text("A step takes 2", timeout=PATIENCE)  # of 20 ms or more
    assert page.locator(".top .chip").filter(has_text="live").count() == 0


@pytest.mark.parametrize("ending", ["whole", "converted", "killed"])
def test_the_last_steps_come_whatever_becomes_of_the_capture(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_GROWTH_S", 0)
    capture = captures.Capture(tmp_path / "rank0_a.capture", {"rank": 0, "pid": os.getpid(), "host": "elsewhere", "program": "train.py"})
    one = only(RunList([tmp_path]).scan())
    assert one.state == "live"

    def steps(first: int, end: int) -> None:
        number = np.arange(first, end)
        begin = capture.header["start_ns"] + number * 100
        capture.append("steps", {"step": number, "start_ns": begin, "end_ns": begin + 90})

    async def again() -> Run | None:
        """Between two looks the job makes its last steps, and ends."""
        steps(3, 10)
        if ending != "killed":
            capture.finish()
        if ending == "converted":
            convert.convert(capture.folder)
        return None

    async def live_events() -> list[Any]:
        async def at_once(call: Callable[[], Any]) -> Any:
            return call()

        return [event async for event in live.states(one, again, at_once, asyncio.Event())]

    steps(0, 3)
    with ThreadPoolExecutor(1) as thread:  # this one's loop is Playwright's
        events = thread.submit(lambda: asyncio.run(live_events())).result()
    assert [name for name, _ in events] == ["state", "state", "finished"]
    ranks = [only(output["ranks"]) for name, output in events if name == "state"]
    assert [rank["steps"]["step"] for rank in ranks] == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]]
    assert ranks[1]["steps"]["start_ns"] == [300, 400, 500, 600, 700, 800, 900] and ranks[1]["steps"]["dur_ns"] == [90] * 7
    assert [rank["origin_ns"] for rank in ranks] == [str(capture.header["start_ns"])] * 2


def test_a_run_that_is_over_says_so(server: "Serve", page: "Page") -> None:
    served = server(Path(__file__).parents[1] / "samples")
    page.goto(served.url(f"#/{served.run('python')}/live"))
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("python is not being recorded.", timeout=PATIENCE)


def in_a_thread(work: Callable[[], Any]) -> Any:
    """The event loop of this thread is Playwright's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


def capture_with_steps(folder: Path, first: int, end: int, capture: captures.Capture | None = None) -> captures.Capture:
    capture = capture or captures.Capture(folder / "rank0_a.capture", {"rank": 0, "pid": os.getpid(), "host": "elsewhere"})
    number = np.arange(first, end)
    begin = capture.header["start_ns"] + number * 100
    capture.append("steps", {"step": number, "start_ns": begin, "end_ns": begin + 90})
    return capture


def test_a_run_that_was_opened_during_its_recording_is_read_again_at_once_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_CHECK_S", 1000.0)
    runs, data, room = RunList([tmp_path / "data"]), tmp_path / "data", tmp_path / "room"
    data.mkdir()
    room.mkdir()
    capture = capture_with_steps(data, 0, 3)

    async def opened() -> list[tuple[str, int]]:
        opening = traces.Traces(room, cache=False)
        found = []
        try:
            for _ in range(2):
                trace, about, _ = await opening.trace(only(runs.scan()))
                found.append((about["state"], trace.steps.collect().height))
                capture_with_steps(data, 3, 5, capture)
                capture.finish()
        finally:
            opening.close()
        return found

    assert in_a_thread(opened) == [("live", 3), ("finished", 5)]


def test_an_answer_from_during_the_recording_that_comes_last_does_not_stay_on_the_page(
    server: "Serve", page: "Page", tmp_path: Path
) -> None:
    capture = capture_with_steps(tmp_path, 0, 3)
    served = server(tmp_path)
    (run,) = served.ask("api/runs").json()["runs"]
    late: list[Any] = []

    def hold(route: Any) -> None:
        """Keep the first answer back."""
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    about = f"**/api/runs/{run['id']}"
    page.route(about, hold)
    page.goto(served.url())
    page.evaluate("hash => { location.hash = hash; }", f"#/{run['id']}/live")  # `goto` would wait for the answer
    playwright.expect(page.get_by_role("heading", level=1)).to_contain_text("the last 3 is", timeout=PATIENCE)
    while not late:
        page.wait_for_timeout(20)
    with page.expect_response(about, timeout=PATIENCE):
        capture_with_steps(tmp_path, 3, 8, capture)
        capture.finish()
        convert.convert(capture.folder)
    route, answer = late[0]
    assert sum(answer.json()["steps"]) == 3
    route.fulfill(response=answer)
    page.get_by_role("link", name="Open the finished run").click()
    playwright.expect(page.locator(".facts")).to_contain_text("8 steps", timeout=PATIENCE)
    assert page.locator(".top .chip").filter(has_text="live").count() == 0
