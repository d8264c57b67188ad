"""One definition per figure: whatever two pages, or a page and the terminal, say of one run is the same number, to the last digit."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import stepscope
import volume
from stepscope.cli.analysis import summary
from stepscope.model import units
from web.test_everywhere import COUNT, GO, OF_A_RUN, SAMPLES

playwright = pytest.importorskip("playwright.sync_api")
if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from web.conftest import Serve, Served

PATIENCE = 60_000
PARTS = ("compute", "communication", "copy", "idle")
# A device that lags behind its host, one that waits for gloo, one that mostly communicates (two ranks of Ascend).
RUNS = ["torch_h200/gpt2_full.json.gz", "torch_h200/ddp_gloo_rank0.json.gz", "ascend/torch_npu/text/level1"]


class Opened:
    """One run in the browser, with what the analyses say of the rank that its pages show."""

    def __init__(self, page: "Page", served: "Served", path: Path) -> None:
        self.page, self.served, self.trace = page, served, stepscope.open(path)
        runs = served.ask("api/runs").json()["runs"]
        (self.run,) = [run for run in runs if run["state"] == "finished"]
        self.row: dict[str, Any] = self.trace.overview(rank=self.trace.meta.ranks[0]).row(0, named=True)

    def go(self, place: str) -> "Locator":
        self.page.goto(self.served.url(f"#/{self.run['id']}/{place}" if place else "#/"))
        self.page.wait_for_function(
            "() => window.requestsUnderWay === 0 && !document.querySelector('main .loading, main .stale')", timeout=PATIENCE
        )
        return self.page.locator("main")

    def exact(self, place: "Locator") -> float:
        """The exact number behind a figure, which it has on hover."""
        title = place.locator(".q").first.get_attribute("title", timeout=PATIENCE) or ""
        return float(title.replace(",", "").split()[0])

    def tile(self, label: str) -> "Locator":
        return self.page.locator("a.tile").filter(has=self.page.get_by_text(label, exact=True))


@pytest.fixture(params=RUNS, ids=lambda file: file.split("/")[1].removesuffix(".json.gz"))
def opened(shared: Path, server: "Serve", page: "Page", request: pytest.FixtureRequest) -> Iterator[Opened]:
    path = shared / request.param
    yield Opened(page, server(path), path)


def test_every_page_and_the_terminal_give_the_same_figures_of_a_run(opened: Opened) -> None:
    row, page = opened.row, opened.page
    written = {part: units.share(share) if (share := row[f"{part}_share"]) else "0 %" for part in PARTS}

    opened.go("overview")
    page.locator(".verdict-more").get_by_text("compute").wait_for(timeout=PATIENCE)
    compute = opened.tile("Device compute")
    assert opened.exact(compute) == row["compute_share"] and opened.exact(opened.tile("Step time")) == row["step_ns"]
    output = plain(compute.inner_text())
    assert all(f"{written[part]} {part}" in output for part in PARTS[1:]), output
    assert written["compute"] in plain(page.locator(".verdict-more").inner_text())
    if "device ranges" in row["steps_how"]:
        assert "device steps from device ranges" in page.locator("main").inner_text()
    if len(opened.trace.meta.ranks) > 1:
        assert f"rank {row['rank']} of {len(opened.trace.meta.ranks)}" in page.locator("main").inner_text()
    waits = plain(page.locator("section.card", has=page.get_by_role("heading", name="Data preparation", exact=True)).inner_text())
    wait = units.duration(row["input_wait_ns"]).replace("µ", "μ")
    assert wait in waits.replace("µ", "μ"), (wait, waits)

    # In the list of runs: the rank that its overview opens with.
    opened.go("")
    of_run = page.locator(".gridrow").filter(has=page.locator(".name"))
    playwright.expect(of_run.first).to_contain_text("%", timeout=PATIENCE)
    titles = [one.get_attribute("title") for one in of_run.locator(".q").all()]
    assert f"{row['step_ns']:,} ns" in titles
    shares = {float(title) for title in titles if title and re.fullmatch(r"[\d.e-]+", title)}
    assert all(row[f"{part}_share"] in shares for part in ("compute", "communication", "idle"))

    # Where data is prepared: one wait per step.
    opened.go("data")
    facts = plain(page.locator("main").inner_text()).replace("µ", "μ")
    assert f"{wait} wait per step" in facts, facts
    assert opened.exact(page.locator("h1")) == row["input_wait_share"]

    # Beside itself: no figure differs, and every one is that of the overview.
    opened.go(f"compare?with={opened.run['id']}")
    for part in PARTS:
        cells = page.get_by_role("row").filter(has=page.get_by_role("cell", name=f"Device: {part}", exact=True))
        assert opened.exact(cells) == row[f"{part}_share"]

    # Step trace and communication: the same steps, the same exposed share.
    opened.go("steps")
    assert units.duration(row["step_ns"]).replace("µ", "μ") in plain(page.locator("main").inner_text()).replace("µ", "μ")

    # The terminal, which has no rank to choose, says the range over all ranks.
    found = summary.figures(opened.trace)
    text = plain(" ".join("".join(piece for piece, _ in line).strip() for line in summary.page(found, Path("run"), 200)))
    for part in PARTS:
        by_rank = [one[f"{part}_share"] for one in opened.trace.overview().iter_rows(named=True)]
        low, high = units.share(min(by_rank)), units.share(max(by_rank))
        assert (f"{low} {part}" if low == high else f"{low} to {high} {part}") in text or max(by_rank) < 0.0005


def test_the_parts_of_a_step_are_those_of_the_device_and_the_idle_time_is_told_by_cause(opened: Opened) -> None:
    overlap = opened.trace.overlap(rank=opened.trace.meta.ranks[0])
    step = overlap.row(overlap.height - 1, named=True)
    opened.go(f"overview?sel={step['step']}&view=table")
    card = opened.page.locator("section.card", has=opened.page.get_by_role("heading", name="Step breakdown", exact=True))
    card.locator("tbody tr").first.wait_for(timeout=PATIENCE)
    shown = [opened.exact(row) for row in card.locator("tbody tr").all() if row.locator("td").nth(1).inner_text() != "Host"]
    assert sum(shown) == step["device_ns"]
    causes = opened.trace.gap_causes(per_step=True, rank=step["rank"]).filter(pl.col("step") == step["step"])
    assert causes["total_ns"].sum() == step["free_ns"]
    assert set(causes["total_ns"].to_list()) <= {int(one) for one in shown}


def test_a_change_of_a_share_is_in_percentage_points(shared: Path, server: "Serve", page: "Page") -> None:
    served = server(shared / "torch_h200" / "gpt2_full.json.gz", shared / "torch_h200" / "resnet50_full.json.gz")
    page.goto(served.url(f"#/{served.run('gpt2_full')}/compare?with={served.run('resnet50_full')}"))
    cells = page.get_by_role("row").filter(has=page.get_by_role("cell", name="Device: idle", exact=True)).get_by_role("cell")
    before, after = (
        stepscope.open(shared / "torch_h200" / f"{name}.json.gz").overview()["idle_share"].item() for name in ("gpt2_full", "resnet50_full")
    )
    playwright.expect(cells.last).to_contain_text(f"▲ {(after - before) * 100:.1f} percentage points", timeout=PATIENCE)
    assert "%" not in cells.last.inner_text()


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\u202f", " ").replace("\xa0", " "))


# Sentences that state a figure of `overview`, or of the tiles of communication, by their code and parameter.
STATED = {
    r"device-time\.(compute|communication|copy|idle)": r"\1_share",
    r"step-time(-one|-recording)?\.step": "step_ns",
    r"steps-[a-z-]+\.median": "step_ns",
    r"input-(ready|wait)[a-z-]*\.share": "input_wait_share",
    r"memory-peak(-only)?\.peak": "peak_memory_bytes",
    r"communication-parts\.(transit|wait)": r"\1_ns@all",
    r"communication-exposed(-time)?\.(exposed|time)": "exposed_ns@all",
}
SHOWN = """
    () => [...document.querySelectorAll('[data-figure]')].filter(e => e.getClientRects().length)
      .map(e => [e.dataset.figure, Number(e.dataset.value)])
"""
# `make test` visits a device without transfers, one rank on the CPU and two ranks; `make test-deep` all samples and recordings of others.
VISITED = ["run/stepscope-0.1.0/resnet50_h200", "chrome/torch-2.13.0/cpu_training.json.gz", "mindinsight/mindspore-2.10-cpu/all_reduce"]
EVERY_SAMPLE = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.glob("*/*/*"))
OF_OTHERS = [
    *("torch_h200/gpt2_full.json.gz", "torch_h200/ddp_gloo_rank0.json.gz", "torch_public/two_ranks", "ascend/prof_2023"),
    *("ascend/torch_npu/text/level1", "ascend/torch_npu/db/level1", "ascend/legacy/expected/run_1", "ascend/cluster_output"),
    *("mindinsight/profiler", "mindspore_cpu/lenet_graph", "ascend/real_prof/mul_pypto_b1", "ascend/trace_view"),
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
]


def figures_of(page: "Page", served: "Served", **parameters: str) -> dict[str, dict[str, set[float]]]:
    """The values of each figure of the run by the page that shows it, on all pages; parameters are those of some page."""
    (run,) = [run for run in served.ask("api/runs").json()["runs"] if run["state"] == "finished"]
    values: dict[str, dict[str, set[float]]] = {}
    page.add_init_script(COUNT)
    page.goto(served.url())
    for place in ["", *OF_A_RUN, f"compare?with={run['id']}"]:
        more = f"?{parameters[place]}" if place in parameters else ""
        page.evaluate(GO, f"#/{run['id']}/{place}{more}" if place else "#/")
        for figure, value in page.evaluate(SHOWN):
            values.setdefault(meaning(figure), {}).setdefault(place.partition("?")[0] or "runs", set()).add(value)
    return values


def meaning(figure: str) -> str:
    """The name of a figure: that of a sentence has its code, its parameter and what tells it from others of the code."""
    stated = (
        re.sub(pattern, name, figure.partition(" ")[0])
        for pattern, name in STATED.items()
        if re.fullmatch(pattern, figure.partition(" ")[0])
    )
    return next(stated, figure)


def differences(values: dict[str, dict[str, set[float]]]) -> list[str]:
    """The figures with several values; pages that lack one show no number."""
    wrong = []
    for figure, pages in values.items():
        known = sorted(value for shown in pages.values() for value in shown if value is not None)
        if known and known[-1] - known[0] > 1e-9 * max(abs(known[0]), abs(known[-1])):
            wrong.append(f"{figure}: {pages}")
    return wrong


@pytest.mark.parametrize("sample", volume.mostly_deep([*EVERY_SAMPLE, *OF_OTHERS], keep=VISITED))
def test_no_figure_of_a_run_differs_from_page_to_page(server: "Serve", page: "Page", shared: Path, sample: str) -> None:
    place = SAMPLES / sample if sample in EVERY_SAMPLE else shared / sample
    values = figures_of(page, server(place))
    assert not differences(values), "\n".join(differences(values))
    if sample in VISITED:  # the law would hold for pages without figures
        assert len(values["step_ns"]) >= 4 and sum(len(pages) > 1 for pages in values.values()) >= 6, values


def test_a_figure_that_differs_on_one_page_is_seen(server: "Serve", page: "Page", shared: Path) -> None:
    """The overview with the warm-up step that all other pages leave out: another median step, and other shares."""
    values = figures_of(page, server(shared / "ascend" / "prof_2023"), overview="warmup=keep")
    assert {line.partition(":")[0] for line in differences(values)} >= {"step_ns", "compute_share", "idle_share"}
