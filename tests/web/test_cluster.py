"""The page of all ranks, on a real two-rank recording and on a made-up job of 256 ranks."""

from pathlib import Path
from typing import Any

import pytest

import cluster_job
import pipeline_file

READY = "() => document.querySelector('main h1') && !document.querySelector('main .loading, main .stale, main [aria-busy=true]')"


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cluster_job.write(tmp_path_factory.mktemp("cluster") / "job256", 256, summary=False)


def _open(served: Any, page: Any, run: str, rest: str = "") -> None:
    page.goto(served.url(f"#/{served.run(run)}/cluster{rest}"))
    page.wait_for_function(READY)


def _card(page: Any, title: str) -> Any:
    return page.locator("section.card").filter(has=page.get_by_role("heading", name=title, exact=True))


def test_the_headline_names_the_slow_rank_and_the_next_sentences_the_rest(server: Any, page: Any, job_folder: Path) -> None:
    served = server(job_folder)
    _open(served, page, "job256")
    assert page.locator("h1").inner_text().startswith("Rank 13 needs 12.4")
    assert "a lower device clock" in page.locator("h1").inner_text()
    more = page.locator(".verdict-more").inner_text()
    assert "All ranks of host node-002 are slow" in more and "The link from rank 8 to rank 16 is slower" in more
    assert "2 of 258 ranks are not recorded: 256-257." in more and "DP 8 x TP 8 x PP 4" in more
    assert "256 of 258 ranks recorded" in page.locator(".facts").inner_text() and "32 hosts" in page.locator(".facts").inner_text()


def test_a_cell_selects_its_rank_and_step_and_leads_to_the_timeline(server: Any, page: Any, job_folder: Path) -> None:
    served = server(job_folder)
    _open(served, page, "job256", "?order=value")
    heat = _card(page, "Ranks and steps")
    # With the highest mean first, the first row has the slow rank.
    heat.locator("canvas").click(position={"x": 5, "y": 2})
    row = heat.locator(".heatrow")
    row.wait_for()
    assert row.locator("b").inner_text() == "Rank 13, step 0"
    page.wait_for_function("() => [...document.querySelectorAll('.heatrow a')].some((link) => link.href.includes('t0='))")
    timeline = row.get_by_role("link", name="Timeline").get_attribute("href")
    assert "rank=13" in timeline and "t0=" in timeline


def test_figures_are_grouped_by_host_and_stage(server: Any, page: Any, job_folder: Path) -> None:
    served = server(job_folder)
    _open(served, page, "job256", "?by=host")
    table = _card(page, "Every group")
    assert "node-002" in table.locator("[role=row]").nth(1).inner_text()
    _card(page, "Ranks and steps").get_by_role("button", name="PP", exact=True).click()
    page.wait_for_function(READY)
    page.wait_for_function("() => document.querySelector('.heat').querySelectorAll('.hl').length === 4")
    page.wait_for_function(READY)
    assert table.locator("[role=row]").count() == 5


def test_links_pipeline_waits_and_missing_ranks_are_shown(server: Any, page: Any, job_folder: Path) -> None:
    served = server(job_folder)
    _open(served, page, "job256", "?transport=RDMA")
    assert "4 stages" in _card(page, "Pipeline").inner_text() and "bubble" in _card(page, "Pipeline").inner_text()
    assert _card(page, "Links").locator("canvas").count() == 1
    assert _card(page, "Who waits for whom").locator("[role=row]").count() > 3
    assert "no recording of this rank" in _card(page, "Incomplete ranks").inner_text()
    assert _card(page, "Parallelism").locator("canvas").count() == 1


def test_recorded_stages_have_their_operations_and_bubble(server: Any, page: Any, tmp_path: Path) -> None:
    pipeline_file.write(tmp_path)
    served = server(tmp_path / "trace-BY.parquet")
    _open(served, page, "trace-BY.parquet")
    chart = _card(page, "Pipeline")
    assert "forward" in chart.inner_text() and "Only transfers" not in chart.inner_text()


def test_a_real_job_of_two_ranks_has_its_waits_and_links(server: Any, page: Any, shared: Path) -> None:
    folder = shared / "ascend/torch_npu/text/level1"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    served = server(folder)
    _open(served, page, "level1")
    assert "6 of 8 ranks are not recorded: 2-7." in page.locator(".verdict-more").inner_text()
    waits = _card(page, "Who waits for whom").locator("[role=row]").nth(1).inner_text().split()
    assert waits[:3] == ["0", "1", "1"]  # 5.65 ms for rank 1 in the first all-reduce, as communication.json has it
    assert "5.65" in " ".join(waits)
    assert "HCCS" in _card(page, "Links").inner_text() or _card(page, "Links").locator("canvas").count() == 1


def test_one_rank_shows_how_to_record_more(server: Any, page: Any) -> None:
    served = server(Path(__file__).parents[1] / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200")
    _open(served, page, "resnet50_h200")
    assert "Record every rank" in page.locator("main").inner_text()
    assert page.locator("h1").inner_text().startswith("Only rank 0")


def test_the_page_is_in_chinese(server: Any, page: Any, job_folder: Path) -> None:
    served = server(job_folder)
    _open(served, page, "job256")
    page.evaluate("() => localStorage.setItem('stepscope.language', 'zh')")
    page.reload()
    page.wait_for_function(READY)
    assert "个迭代" in page.locator("h1").inner_text()
    assert _card(page, "流水线").count() == 1


def test_a_summary_shows_what_it_has_and_names_what_it_lacks(server: Any, page: Any, complaints: list[str], tmp_path: Path) -> None:
    served = server(cluster_job.write(tmp_path / "job64", 64))
    run = served.run("job64")
    page.goto(served.url(f"#/{run}/overview"))
    page.wait_for_function(READY)
    assert "A summary of ranks does not have these figures." in _card(page, "Idle causes of the device").inner_text()
    assert page.locator(".trouble").count() == 0
    menu = page.get_by_role("navigation").first
    for name, lacks in (("Operators", True), ("Timeline", True), ("Advice", True), ("All ranks", False), ("Step trace", False)):
        assert ("none" in menu.get_by_role("link", name=name).inner_text()) == lacks, name
    answer = served.ask(f"api/runs/{run}/analyses/kernels")
    assert (answer.status, answer.json()["kind"]) == (400, "summary")
    assert all("400 (Bad Request)" in complaint for complaint in complaints)
    complaints.clear()
