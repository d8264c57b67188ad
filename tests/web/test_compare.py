"""The page Compare, and the route behind it: the same rows as in Python."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope

SAMPLES = Path(__file__).parents[2] / "tests" / "samples"
H200 = SAMPLES / "chrome" / "torch-2.11" / "h200_modules.json.gz"
CPU = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
Serve = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for name, source in (("before", H200), ("after", H200), ("processor", CPU)):
        shutil.copy(source, folder / f"{name}.json.gz")
    return folder


def address(served: Any, table: str, more: str = "", candidate: str = "processor") -> str:
    return f"api/compare/{table}?baseline={served.run('before')}&candidate={served.run(candidate)}{more}"


@pytest.mark.parametrize("name", ["summary", "verdict", "waterfall", "operators", "figures"])
def test_a_table_of_the_route_is_that_of_python(server: Serve, folder: Path, name: str) -> None:
    served = server(folder)
    answer = served.ask(address(served, name))
    assert answer.status == 200, answer.body
    expected = stepscope.compare(H200, CPU).table(name)
    assert pl.read_ipc_stream(io.BytesIO(answer.body)).equals(expected)
    assert answer.headers["x-stepscope-rows"] == str(expected.height)
    repeated = served.ask(address(served, name), headers={"If-None-Match": answer.headers["etag"]})
    assert repeated.status == 304


def test_sets_of_runs_are_ids_with_commas(server: Serve, folder: Path) -> None:
    served = server(folder)
    both = f"{served.run('before')},{served.run('after')}"
    row = served.ask(f"api/compare/summary?baseline={both}&candidate={served.run('processor')}&format=json").json()["rows"][0]
    assert (row["a_runs"], row["b_runs"]) == (2, 1)


@pytest.mark.parametrize(
    ("table", "more", "status", "said"),
    [
        ("nothing", "", 400, "no table of a comparison 'nothing'"),
        ("operators", "&by=nothing", 400, "no key 'nothing'"),
        ("waterfall", "&by=kernel", 400, "by is for the table operators"),
        ("summary", "&rank=900000000000", 400, "rank is 900000000000"),
        ("summary", "&run_noise=7", 400, "run_noise is 7"),
        ("summary", "&steps=x", 400, "steps is 'x'"),
        ("summary", "&other=1", 400, "no parameter 'other'"),
        ("summary", "&rank=77", 400, "no rank 77"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(server: Serve, folder: Path, table: str, more: str, status: int, said: str) -> None:
    served = server(folder)
    answer = served.ask(address(served, table, more))
    assert answer.status == status
    assert said in answer.json()["error"]


def test_unknown_and_too_many_runs_are_refused(server: Serve, folder: Path) -> None:
    served = server(folder)
    assert served.ask(f"api/compare/summary?baseline=nothing&candidate={served.run('after')}").status == 404
    many = ",".join([served.run("after")] * 17)
    answer = served.ask(f"api/compare/summary?baseline={served.run('before')}&candidate={many}")
    assert (answer.status, "candidate has 17 runs" in answer.json()["error"]) == (400, True)
    assert served.ask(f"api/compare/summary?baseline={served.run('before')}").status == 400


def test_the_page_shows_the_sentence_the_waterfall_and_the_operators(server: Serve, folder: Path, page: Any) -> None:
    served = server(folder)
    page.goto(served.url(f"#/{served.run('before')}/compare?with={served.run('processor')}"))
    sentence = stepscope.compare(H200, CPU).verdict["text"][0]
    page.wait_for_selector(".cmp-waterfall svg text")
    assert page.locator("h1.verdict").inner_text().replace("\u202f", " ") == sentence
    labels = page.locator(".cmp-waterfall svg .cmp-name").all_text_contents()
    assert any("Step of A" in label for label in labels)
    assert any("Step of B" in label for label in labels)
    page.get_by_role("button", name="Module").click()
    page.wait_for_function("location.hash.includes('by=module')")
    page.get_by_role("button", name="Cumulative").click()
    page.wait_for_function("location.hash.includes('view=cumulative')")


def test_runs_are_chosen_added_swapped_and_removed_in_the_address(server: Serve, folder: Path, page: Any) -> None:
    served = server(folder)
    before, after, processor = (served.run(name) for name in ("before", "after", "processor"))
    page.goto(served.url(f"#/{before}/compare"))
    page.get_by_role("link", name="after", exact=True).click()
    page.wait_for_selector(".cmp-sides")
    page.get_by_label("Add a run to B").select_option(processor)
    page.wait_for_function(f"location.hash.includes('with={after},{processor}')")
    page.get_by_role("link", name="Swap A and B").click()
    page.wait_for_function(f"location.hash.includes('base={processor}') && location.hash.includes('with={before}')")


def test_a_run_without_others_says_how_to_get_one(server: Serve, tmp_path: Path, page: Any) -> None:
    shutil.copy(CPU, tmp_path / "alone.json.gz")
    served = server(tmp_path)
    page.goto(served.url(f"#/{served.run('alone')}/compare"))
    page.wait_for_selector(".empty")
    assert "No other run" in page.locator(".empty").inner_text()
