"""The overview says what the analyses say, and leads to the rest."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.io import store

playwright = pytest.importorskip("playwright.sync_api")

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from web.conftest import Serve

SAMPLES = Path(__file__).parents[1] / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"


def drawn(page: "Page") -> None:
    """Everything has come."""
    page.wait_for_selector("h1")
    for one in (".loading", ".stale"):
        playwright.expect(page.locator(one)).to_have_count(0, timeout=20_000)


def exact(place: "Locator") -> int:
    """The exact value on hover, as a number."""
    title = place.locator(".q").first.get_attribute("title") or ""
    return int(title.replace(",", "").split()[0])


def card(page: "Page", title: str) -> "Locator":
    return page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))


def test_the_figures_are_those_of_the_analysis(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/overview"))
    drawn(page)
    row = stepscope.open(RESNET).overview().row(0, named=True)
    tiles = page.locator(".tile")
    assert exact(tiles.nth(0)) == row["step_ns"]
    assert "59.7" in tiles.nth(0).locator(".x").inner_text()
    shares = {2: "compute_share", 3: "utilization", 4: "input_wait_share"}
    for index, name in shares.items():
        assert float(tiles.nth(index).locator(".q").first.get_attribute("title") or "") == row[name]
    assert tiles.nth(5).inner_text().endswith("one rank")
    assert exact(tiles.nth(6)) == row["peak_memory_bytes"]
    causes = stepscope.open(RESNET).gap_causes()
    headline, more = (page.locator(place).inner_text().replace("\u202f", " ") for place in ("h1", ".verdict-more"))
    assert headline == f"GPU is idle {causes['share'][0] * 100:.1f} % of each step, waiting for the host to launch work."
    assert f"{headline} {more}" == " ".join(stepscope.open(RESNET).verdict(topic="overview")["text"])


def test_the_parts_of_the_step_add_up_to_it(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/overview?sel=10&view=table"))
    drawn(page)
    rows = card(page, "Step breakdown").locator("tbody tr")
    device = [exact(row) for row in rows.all() if "GPU" in row.inner_text()]
    host = [exact(row) for row in rows.all() if "Host" in row.inner_text()]
    trace = stepscope.open(RESNET)
    assert sum(device) == sum(host) == trace.overlap().filter(pl.col("step") == 10)["total_ns"].item()
    idle = trace.gap_causes(per_step=True).filter(pl.col("step") == 10, pl.col("cause") == "host-bound")
    assert max(device) == idle["total_ns"].item()


def test_a_step_is_chosen_by_mouse_and_keyboard_and_stays_chosen(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/overview"))
    drawn(page)
    steps = card(page, "Steps")
    steps.get_by_role("button", name=re.compile("Step 11")).click()
    assert page.url.endswith("?sel=11")
    assert card(page, "Step breakdown").locator(".note").inner_text() == "step 11"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("?sel=10")
    page.reload()
    drawn(page)
    assert card(page, "Step breakdown").locator(".note").inner_text() == "step 10"
    assert steps.get_by_role("button", pressed=True).inner_text().startswith("Step 10")


def test_operator_types_are_the_top_ten_and_the_rest_by_name(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/overview"))
    drawn(page)
    types = stepscope.open(RESNET).operator_types(device="gpu")
    rows = card(page, "Operator types").locator(".ov-rank")
    assert rows.count() == 11
    assert [row.locator(".mono").inner_text() for row in rows.all()[:10]] == types["type"][:10].to_list()
    assert [exact(row) for row in rows.all()] == [*types["self_ns"][:10].to_list(), types["self_ns"][10:].sum()]
    assert rows.nth(10).inner_text().startswith(f"{types.height - 10} more types")
    card(page, "Operator types").get_by_role("button", name="Pie").click()
    assert page.url.endswith("types=pie")
    assert card(page, "Operator types").locator("svg path").count() == 11


def test_a_moment_of_the_activity_opens_the_timeline_there(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/overview"))
    drawn(page)
    plot = page.get_by_role("application")
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/timeline"))
    found = re.search(r"t0=(\d+)&t1=(\d+)", page.url)
    assert found is not None
    activity = stepscope.open(RESNET).activity(buckets=500)
    assert int(found[2]) - int(found[1]) == activity["bucket_ns"][0]


def test_every_sample_has_a_sentence_and_no_complaint(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    document = {}
    for run in served.ask("api/runs").json()["runs"]:
        page.goto(served.url(f"#/{run['id']}/overview"))
        page.get_by_role("button", name=f"Run: {run['name']}", exact=True).wait_for()
        drawn(page)
        document[run["name"]] = page.locator("h1").inner_text()
        assert not page.locator(".trouble").count(), run["name"]
    assert "no device work is recorded" in document["torch"]
    assert "no operators and no kernels" in document["python"]
    assert "waiting for input data" in document["cpu_training"]
    assert "of the recording" in document["jax-0.11.2-gpu-no-steps"]


def test_the_rank_of_the_context_bar_is_the_one_shown(server: "Serve", page: "Page", shared: Path) -> None:
    served = server(shared / "torch_h200")
    page.goto(served.url(f"#/{served.run('ddp_gloo')}/overview"))
    drawn(page)
    assert "rank 0 of 2" in page.locator(".facts").inner_text()
    page.get_by_role("button", name="Rank 0 of 2").click()
    page.get_by_role("button", name="1", exact=True).click()
    playwright.expect(page.locator(".facts")).to_contain_text("rank 1 of 2")
    drawn(page)
    step = stepscope.open(shared / "torch_h200" / "ddp_gloo_rank1.json.gz").overview()["step_ns"].item()
    assert exact(page.locator("a.tile").first) == step
    assert page.url.endswith("?rank=1")


def test_a_device_works_and_stands_idle_for_all_of_the_time(server: "Serve", page: "Page", tmp_path: Path) -> None:
    """Of most of the idle time no cause is known, and of some it is: the sentence is about all of it."""
    trace = tiny.trace(
        spans="""
            track  kind    name    start_ns  dur_ns  span  flow_in
            0      op      a       0         1000    1     -
            0      api     launch  690       5       2     -
            7      kernel  k1      500       100     3     -
            7      kernel  k2      700       100     4     2
        """,
        tracks="""
            track  kind    label       device  group    sort
            0      thread  main        -       p        0
            7      stream  "Stream_7"  0       "NPU_0"  1
        """,
        steps="""
            step  start_ns  end_ns
            1     0         1000
        """,
    )
    store.write(trace, tmp_path / "idle")
    served = server(tmp_path)
    page.goto(served.url(f"#/{served.run('idle')}/overview"))
    element = page.locator(".verdict")
    playwright.expect(element).to_contain_text(re.compile(r"is idle 80\.0\s*% of the step"), timeout=20_000)


@pytest.mark.parametrize(
    ("folder", "sentence", "busy"),
    [
        ("ascend/legacy/expected/run_1", "14 of 322 steps (1-14)", "0.7\u202f% idle"),
        ("mindinsight/run_3", "not recorded, so busy and idle time are unknown", "device data incomplete"),
    ],
)
def test_what_was_not_recorded_is_not_called_idle_or_cpu_only(
    server: "Serve", page: "Page", shared: Path, folder: str, sentence: str, busy: str
) -> None:
    if not (shared / folder).exists():
        pytest.skip(f"no {folder}")
    served = server(shared / folder)
    (run,) = served.ask("api/runs").json()["runs"]
    page.goto(served.url(f"#/{run['id']}/overview"))
    drawn(page)
    assert not page.locator(".trouble").count()
    output = " ".join(page.locator("h1, .verdict-more").all_inner_texts())
    assert sentence in output
    assert "CPU" not in output
    assert page.locator(".tile").nth(2).inner_text().endswith(busy)
    if busy == "device data incomplete":  # the rate over whole steps is unknown for the same reason
        assert page.locator(".tile").nth(3).inner_text().endswith(busy)
