"""The page of a job that hangs: the conclusion, who called what, and the calls of a rank."""

from pathlib import Path
from typing import Any

from flight_dumps import entry, write

READY = "() => document.querySelector('main h1') && !document.querySelector('main .loading, main .stale, main [aria-busy=true]')"


def _folder(room: Path) -> Path:
    calls = {rank: [entry(1, "0", 1, state="completed"), entry(2, "0", 2)] for rank in range(4)}
    return write(room / "job", calls | {2: [entry(1, "0", 1, state="completed")]})


def test_the_page_names_the_awaited_rank_and_shows_who_called_the_collective(server: Any, page: Any, tmp_path: Path) -> None:
    served = server(_folder(tmp_path))
    page.goto(served.url(f"#/{served.run('job')}/hangs"))
    page.wait_for_function(READY)
    sentence = "1 rank (2) did not call all_reduce number 2 of default_pg 0 (/job/train.py:12 train). Waiting ranks: 3 of 4."
    assert page.locator("h1").inner_text() == sentence
    assert page.get_by_role("row", name="all_reduce 2 default_pg 0: 2: not called").count() == 1
    assert page.locator(".hang-rows rect.hang-called").count() == 3
    assert page.locator(".hang-rows rect.hang-not_called").count() == 1
    page.goto(served.url(f"#/{served.run('job')}/overview?rank=3"))
    page.wait_for_function(READY)
    assert page.locator("h1").inner_text() == sentence


def test_the_calls_of_the_selected_rank_are_listed(server: Any, page: Any, tmp_path: Path) -> None:
    served = server(_folder(tmp_path))
    page.goto(served.url(f"#/{served.run('job')}/hangs?rank=2"))
    page.wait_for_function(READY)
    page.get_by_text("Calls of rank 2").wait_for()
    rows = page.locator("section, .card").filter(has_text="Calls of rank 2").last.locator("[role=row]")
    assert [text for text in rows.all_inner_texts() if "all_reduce" in text and "completed" in text] != []
    assert "scheduled" not in " ".join(rows.all_inner_texts())


def test_a_run_without_dumps_shows_how_to_make_them(server: Any, page: Any) -> None:
    served = server(Path(__file__).parents[1] / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200")
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/hangs"))
    page.get_by_text("TORCH_FR_BUFFER_SIZE=2000").wait_for()
