"""The page Communication: ranks side by side, some of them missing, with the figures of the analyses."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tiny
from stepscope.io import store
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent.parent / "samples"
MS = 1_000_000
# Of four ranks 0, 1 and 3 were recorded. Rank 3 computes 70 ms a step, the others 40, and they wait 30 ms for it; then all reduce for 20.
COMPUTES = {0: 40, 1: 40, 3: 70}


@pytest.fixture(scope="module")
def trace() -> Trace:
    steps, spans = ["rank step start_ns end_ns how"], ["rank kind name step track start_ns dur_ns bytes"]
    for rank, computes in COMPUTES.items():
        for step in (1, 2, 3):
            at = step * 100 * MS
            steps.append(f"{rank} {step} {at} {at + 100 * MS} marker")
            spans.append(f"{rank} kernel mm {step} 1 {at} {computes * MS} -")
            spans.append(f"{rank} communication ncclAllReduce {step} 2 {at + computes * MS} {(90 - computes) * MS} 1000000")
    tracks = "rank track label kind\n" + "\n".join(f"{rank} {track} s{track} stream" for rank in COMPUTES for track in (1, 2))
    made = tiny.trace(steps="\n".join(steps), spans="\n".join(spans), tracks=tracks)
    return Trace(made.tables, msgspec.structs.replace(made.meta, world_size=4))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any, trace: Trace) -> Path:
    folder = Path(tmp_path_factory.mktemp("communication"))
    store.write(trace, folder / "three")
    return folder


@pytest.fixture
def opened(server: Any, page: Any, runs: Path) -> Any:
    def go(query: str = "", run: str = "three", root: Path = runs) -> Any:
        served = server(root)
        page.goto(served.url(f"#/{served.run(run)}/communication{query}"))
        page.wait_for_selector("h1.verdict")
        return page

    return go


def tile(page: Any, label: str) -> str:
    found = page.locator(".tile", has=page.locator(".l", has_text=re.compile(f"^{label}$")))
    return str(found.locator(".f .q").get_attribute("title"))


def test_the_sentence_names_the_rank_that_the_others_wait_for(opened: Any, trace: Trace) -> None:
    page = opened()
    assert page.locator("h1").inner_text() == (
        "Rank 3 slows the others: it computes 70.0\u202fms per step, the others 40.0\u202fms on average, and they wait 30.0\u202fms for it."
    )
    facts = page.locator(".facts").inner_text()
    assert "3 of 4 ranks" in facts and "not recorded: rank 2" in facts and "Waits are known for 9 of 9 calls" in facts
    waits = trace.cluster_steps(per_step=False)["wait_ns"].to_list()
    assert waits == [30 * MS, 30 * MS, 0]
    assert tile(page, "Wait for other ranks") == "20,000,000 ns"
    assert tile(page, "Communication") == "40,000,000 ns"
    assert tile(page, "Data sent or received") == "9,000,000 bytes"
    assert "not recorded" in page.locator(".ranks").inner_text()


def test_missing_ranks_are_told_as_ranges(opened: Any, shared: Path) -> None:
    page = opened(run="sampled", root=shared / "torch_public" / "two_ranks")
    assert "2 of 128 ranks" in page.locator(".facts").inner_text()
    assert page.locator(".facts .warn").inner_text() == "not recorded: rank 2–127"  # noqa: RUF001


def test_a_cell_that_is_clicked_is_named_and_leads_to_its_step(opened: Any) -> None:
    page = opened()
    cells = page.get_by_role("img", name="All ranks and steps: Step time")
    box = cells.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.9)
    page.wait_for_url(re.compile("sel=3:2"))
    page.wait_for_selector(".heatrow:has-text('Rank 3, step 2')")
    page.reload()
    page.wait_for_selector(".heatrow:has-text('Rank 3, step 2')")
    page.get_by_role("link", name="Step trace of rank 3").click()
    page.wait_for_url(re.compile(r"/steps\?rank=3&sel=2$"))
    page.wait_for_selector("h1:has-text('Step 2 takes')")


def test_cells_are_reached_by_keyboard(opened: Any) -> None:
    page = opened("?of=wait_ns")
    page.get_by_role("img", name="All ranks and steps: Wait").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert "Rank 1 · Step 2" in page.get_by_role("tooltip").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("sel=1:2"))


def test_an_operator_opens_with_its_calls_and_escape_closes_it(opened: Any, trace: Trace) -> None:
    page = opened()
    grid = page.get_by_role("grid", name="Operators")
    row = trace.communication().filter(rank=1).row(0, named=True)
    line = grid.get_by_role("row", name=re.compile(r"^1 ncclAllReduce"))
    assert line.locator(f"[title='{row['total_ns']:,} ns']").count() >= 1
    assert line.locator(f"[title='{row['wait_ns']:,} ns']").count() >= 1
    line.click()
    page.wait_for_selector(".drawer [role=row]")
    assert page.locator(".drawer [role=row]").count() == 1 + row["calls"]
    href = page.locator(".drawer a", has_text="Timeline").first.get_attribute("href")
    assert "/timeline?rank=1&t0=" in href
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert "op=" not in page.url


def test_one_rank_that_sends_nothing_is_told_how_to_record_them_all(opened: Any) -> None:
    page = opened(run="resnet50_h200", root=SAMPLES)
    assert page.locator("h1").inner_text() == "One rank is recorded, and no communication."
    assert "torchrun" in page.locator(".empty").inner_text()


def test_the_page_divides_communication_as_torch_npu_does_and_says_how_many_ranks_are_there(server: Any, page: Any, shared: Path) -> None:
    """The means of `Total Op Info` of the two files, in ms: transit 3.683 and 3.860, wait 5.941 and 0.191, idle 96.368 and 96.324."""
    served = server(shared / "ascend" / "torch_npu" / "text" / "level1")
    (run,) = served.ask("api/runs").json()["runs"]
    page.goto(served.url(f"#/{run['id']}/communication"))
    page.wait_for_selector("h1.verdict")
    assert "2 of 8 ranks recorded" in page.locator(".facts").inner_text()
    assert "not recorded: rank 2–7" in page.locator(".facts").inner_text()  # noqa: RUF001
    assert "Waits are known for 8 of 8 calls (as recorded)" in page.locator(".facts").inner_text()
    sentence = page.locator("h1").inner_text()
    assert (
        "Of 103\u202fms of communication per step, 3.77\u202fms is data in transit, 3.07\u202fms waiting for other ranks" in sentence
        and "96.3\u202fms idle" in sentence
    )
    for label, wanted in (("Data in transit", 3_771_515), ("Wait for other ranks", 3_066_002), ("Idle in communication", 96_346_066)):
        assert abs(float(tile(page, label).removesuffix(" ns").replace(",", "")) - wanted) <= 1
    # The one wait of rank 0: of its step in one table, of its four calls in the other.
    of_step = page.get_by_role("grid", name="Step trace by rank").get_by_role("row").nth(1)
    assert of_step.locator("[title='5,940,619 ns']").count() >= 1
    for wait in ("5,646,633", "72,401", "188,424", "33,161"):
        assert page.get_by_role("grid", name="Operators").locator(f"[title='{wait} ns']").count() >= 1
