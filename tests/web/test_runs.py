"""The list of runs: read as it is looked at, searched, compared, added to."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stepscope

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from web.conftest import Serve

SAMPLES = Path(__file__).parents[1] / "samples"
CHROME = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
PATIENCE = 30_000


def row(page: "Page", name: str) -> "Locator":
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def expected(complaints: list[str]) -> None:
    """The browser noted nothing but the refusal."""
    assert complaints and all("409" in output for output in complaints), complaints
    complaints.clear()


def test_each_run_shows_its_step_time_and_what_it_loses(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url())
    for path, name in ((SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200", "resnet50_h200"), (CHROME, "cpu_training")):
        overview = stepscope.open(path).overview().row(0, named=True)
        playwright.expect(row(page, name)).to_contain_text("%", timeout=PATIENCE)
        titles = [one.get_attribute("title") for one in row(page, name).locator(".q").all()]
        assert f"{overview['step_ns']:,} ns" in titles
        assert all(str(overview[f"{part}_share"]).removesuffix(".0") in titles for part in ("compute", "communication", "idle"))
    assert "host-bound 67.6" in row(page, "resnet50_h200").inner_text()
    assert "input wait 16.2" in row(page, "cpu_training").inner_text()
    assert page.locator("h1").inner_text().startswith(f"{len(served.ask('api/runs').json()['runs'])} runs.")


def test_the_list_is_searched_and_sorted_and_the_address_says_so(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url())
    page.get_by_role("searchbox").fill("no-steps")
    playwright.expect(page.get_by_role("status").filter(has_text="2 of")).to_be_visible()
    page.get_by_role("columnheader", name="Name").click()
    page.reload()
    playwright.expect(page.locator(".gridrow .name a")).to_have_text(["jax-0.10.2-cpu-no-steps", "jax-0.11.2-gpu-no-steps"])


def test_two_ticked_runs_are_compared(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url())
    for name in ("torch", "cpu_training"):
        row(page, name).get_by_role("checkbox").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    sentence = page.get_by_role("heading", level=1)
    found = stepscope.compare(SAMPLES / "capture/stepscope-0.1.0/torch.capture", CHROME)
    playwright.expect(sentence).to_contain_text("986", timeout=PATIENCE)
    assert sentence.inner_text().replace("\u202f", " ") == found.verdict["text"][0]


def test_a_file_is_opened_and_what_is_no_trace_is_refused(server: "Serve", page: "Page", complaints: list[str], tmp_path: Path) -> None:
    served = server(SAMPLES, token="uploads")
    page.goto(served.url())
    notes = tmp_path / "notes.txt"
    notes.write_text("no trace")
    page.locator("input[type=file]").set_input_files(notes)
    playwright.expect(page.get_by_role("alert")).to_contain_text("notes.txt", timeout=PATIENCE)
    expected(complaints)
    mine = tmp_path / "mine.json.gz"
    shutil.copy(CHROME, mine)
    page.locator("input[type=file]").set_input_files(mine)
    playwright.expect(page.get_by_role("heading", level=1)).to_contain_text("spent waiting for input data", timeout=PATIENCE)
    assert "mine" in page.url


def test_ranks_that_are_chosen_at_once_become_one_run(server: "Serve", page: "Page", tmp_path: Path) -> None:
    served = server(SAMPLES, token="uploads")
    page.goto(served.url())
    files = [tmp_path / f"job_rank{rank}.json.gz" for rank in (0, 1)]
    for file in files:
        shutil.copy(CHROME, file)
    page.locator("input[type=file]").set_input_files(files)
    playwright.expect(page.get_by_role("heading", level=1)).to_contain_text("spent waiting for input data", timeout=PATIENCE)
    assert served.ask(f"api/runs/{served.run('job')}").json()["ranks"] == [0, 1]


def test_a_file_is_dropped_anywhere_on_the_page(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES, token="uploads")
    page.goto(served.url())
    page.get_by_role("searchbox").wait_for()
    held = page.evaluate_handle(
        "bytes => { const held = new DataTransfer(); held.items.add(new File([new Uint8Array(bytes)], 'dropped.json.gz')); return held; }",
        list(CHROME.read_bytes()),
    )
    page.dispatch_event("h1", "dragenter", {"dataTransfer": held})
    playwright.expect(page.get_by_text("Drop to open")).to_be_visible()
    page.dispatch_event("h1", "drop", {"dataTransfer": held})
    playwright.expect(page.get_by_role("heading", level=1)).to_contain_text("spent waiting for input data", timeout=PATIENCE)
    assert "dropped" in page.url


def test_a_run_that_appears_is_listed_and_an_unreadable_one_says_why(
    server: "Serve", page: "Page", complaints: list[str], tmp_path: Path
) -> None:
    served = server(tmp_path)
    page.goto(served.url())
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("No runs yet.")
    playwright.expect(page.get_by_text("stepscope run train.py", exact=True)).to_be_visible()
    shutil.copy(CHROME, tmp_path / "first.json.gz")
    (tmp_path / "broken.json.gz").write_bytes(CHROME.read_bytes()[:20_000])
    playwright.expect(row(page, "first")).to_contain_text("input wait", timeout=PATIENCE)
    broken = page.get_by_role("row").filter(has_text="broken")
    playwright.expect(broken).to_contain_text("unreadable", timeout=PATIENCE)
    assert "broken.json.gz" in (broken.locator(".why").get_attribute("title") or "")
    expected(complaints)


def test_a_job_with_a_broken_rank_is_named_after_its_folder_and_says_what_is_missing(server: "Serve", page: "Page", tmp_path: Path) -> None:
    """Chips whose name nobody knows are not called null."""
    job = tmp_path / "four_ranks"
    for rank in range(4):
        result = job / f"node_{rank + 1}_2025010915481{rank}123_ascend_pt"
        (result / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        (result / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank, "config": {}}))
        text = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n7,50.0,20.0,5.0,25.0,30.0\n"
        (result / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").write_text(text if rank < 3 else "")
    (result / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").unlink()
    served = server(tmp_path)
    (run,) = served.ask("api/runs").json()["runs"]
    assert run["name"] == "four_ranks" and [one["rank"] for one in run["problems"]] == [3]
    page.goto(served.url())
    shown = page.get_by_role("row").filter(has_text="four_ranks")
    playwright.expect(shown).to_contain_text("partial", timeout=PATIENCE)
    playwright.expect(shown).to_contain_text("100 µs", timeout=PATIENCE)  # of a step: 50 + 20 + 30
    assert "null" not in (shown.text_content() or "")
    assert "rank 3 is not shown" in (shown.get_by_text("partial").get_attribute("title") or "")
