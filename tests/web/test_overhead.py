"""Pages tell profiling overhead apart from idle time, and say where it is not known."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import tiny
from stepscope.io import store
from stepscope.model.trace import Meta, Trace, UnprofiledSteps

playwright = pytest.importorskip("playwright.sync_api")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from web.conftest import Serve

MS = 1_000_000


def steps_of(busy_ms: int, step_ms: int, **meta: object) -> Trace:
    """Four steps; in each the host launches one kernel as late as possible."""
    starts = [at * step_ms * MS for at in range(4)]
    late = (step_ms - busy_ms) * MS
    trace = tiny.trace(
        tracks="""
            track  kind    device
            0      thread  -
            1      stream  0
        """,
        devices="""
            device  name  kind
            0       X1    gpu
        """,
        spans="span track kind name start_ns dur_ns flow_in\n"
        + "\n".join(
            f"{at * 3} 0 step s{at} {start} {step_ms * MS} -\n"
            f"{at * 3 + 1} 0 api launch {start + late - 1000} 1000 -\n"
            f"{at * 3 + 2} 1 kernel k {start + late} {busy_ms * MS} {at * 3 + 1}"
            for at, start in enumerate(starts)
        ),
        steps="step start_ns end_ns how\n" + "\n".join(f"{at} {start} {start + step_ms * MS} marker" for at, start in enumerate(starts)),
    )
    return Trace(trace.tables, msgspec.structs.replace(trace.meta, framework="pytorch", **meta))


def unprofiled(median_ms: float) -> list[UnprofiledSteps]:
    median = int(median_ms * MS)
    return [UnprofiledSteps(rank=0, count=30, median_ns=median, p10_ns=median - MS, p90_ns=median + MS)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overhead")
    store.write(steps_of(20, 32, unprofiled_steps=unprofiled(20)), folder / "distorted")
    store.write(steps_of(20, 32, unprofiled_steps=unprofiled(25)), folder / "partly")
    store.write(steps_of(20, 32, unprofiled_steps=unprofiled(31.5)), folder / "small")
    store.write(steps_of(20, 32, options={"with_stack": True, "record_shapes": True}), folder / "stacks")
    store.write(steps_of(20, 32), folder / "unknown")
    return folder


def opened(page: "Page", served: object, run: str, rest: str) -> str:
    """The headline and the sentences below it, once everything has been loaded."""
    page.goto(served.url(f"#/{served.run(run)}/{rest}"))  # type: ignore[attr-defined]
    page.wait_for_selector("h1")
    for one in (".loading", ".stale"):
        playwright.expect(page.locator(one)).to_have_count(0, timeout=20_000)
    playwright.expect(page.locator("h1")).not_to_have_text("…", timeout=20_000)
    return plain(" ".join(page.locator("h1, .verdict-more").all_inner_texts()))


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\u2009", " ").replace("\u202f", " ").replace("\xa0", " "))


def test_the_headline_gives_the_unprofiled_step_and_its_idle_time(server: "Serve", page: "Page", runs: Path) -> None:
    served = server(runs)
    sentence = opened(page, served, "distorted", "overview")
    assert sentence.startswith("20.0 ms per step unprofiled, 32.0 ms while recorded (+60 %): idle time here is mostly profiling overhead.")
    assert "GPU is idle 37.5 % of each step while recorded, about 0.0 % unprofiled (0.0 % to 4.8 %, as unprofiled steps vary)." in sentence
    assert "launch" not in sentence
    sentence = opened(page, served, "partly", "overview")
    assert "25.0 ms per step unprofiled, 32.0 ms while recorded (+28 %): part of the idle time is profiling overhead." in sentence
    assert "about 20.0 % unprofiled (16.7 % to 23.1 %, as unprofiled steps vary)." in sentence
    assert "Main cause, about 20.0 % of each step unprofiled: the host launches work too late." in sentence


def test_every_page_that_calls_a_device_host_bound_says_so_too(server: "Serve", page: "Page", runs: Path) -> None:
    served = server(runs)
    for rest in ("advice", "kernels?tab=launches"):
        opened(page, served, "partly", rest)
        note = plain(page.locator("p.overhead").inner_text())
        assert note.startswith("25.0 ms per step unprofiled, 32.0 ms while recorded (+28 %): part of the idle time is profiling overhead.")
        opened(page, served, "stacks", rest)
        note = plain(page.locator("p.overhead").inner_text())
        assert note.startswith("Recording stacks and shapes slows the host: without it, the device may be idle for less time. To measure")
    opened(page, served, "partly", "advice")
    assert "about 20.0 % unprofiled" in plain(page.locator(".advpage").inner_text())


def test_where_little_or_nothing_is_known_the_headline_warns_of_nothing_else(server: "Serve", page: "Page", runs: Path) -> None:
    served = server(runs)
    headline = "GPU is idle 37.5 % of each step, waiting for the host to launch work."
    sentence = opened(page, served, "small", "overview")
    assert sentence.startswith(headline)
    assert sentence.endswith("31.5 ms per step unprofiled, 32.0 ms while recorded (+2 %): recording adds little.")
    sentence = opened(page, served, "unknown", "overview")
    assert sentence.startswith(headline) and sentence.endswith("Recording overhead is unknown.")
    sentence = opened(page, served, "stacks", "overview")
    assert sentence.startswith(headline) and "Recording stacks and shapes slows the host" in sentence


def test_the_list_judges_a_run_by_its_unprofiled_steps(server: "Serve", page: "Page", runs: Path) -> None:
    page.goto(server(runs).url("#/"))
    for run, verdict in (("distorted", "profiling overhead"), ("partly", "host-bound 20.0"), ("small", "host-bound 37.5")):
        row = page.locator("[role=row]", has=page.get_by_text(run, exact=True))
        playwright.expect(row.locator(".why")).to_contain_text(re.compile(verdict.replace(" ", r"\s")), timeout=20_000)


def test_the_words_are_there_in_chinese(server: "Serve", browser: "Browser", runs: Path) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="zh-CN", color_scheme="dark")
    served = server(runs)
    page = context.new_page()
    assert opened(page, served, "partly", "overview").startswith(
        "未记录时每个迭代 25.0 ms，记录时 32.0 ms（+28 %）：一部分空闲是记录开销。"  # noqa: RUF001
    )
    assert "记录调用栈和形状会拖慢主机" in opened(page, served, "stacks", "overview")
    context.close()


def test_exposed_communication_of_a_host_shows_where_nothing_is_known_of_its_input(server: "Serve", page: "Page", tmp_path: Path) -> None:
    trace = tiny.trace(
        tracks="""
            track  kind
            0      thread
            1      thread
        """,
        spans="""
            track  kind           name       start_ns    dur_ns
            0      step           s0         0           100000000
            0      op             mm         0           40000000
            1      communication  allreduce  50000000    30000000
            0      step           s1         100000000   100000000
            0      op             mm         100000000   40000000
            1      communication  allreduce  150000000   30000000
        """,
        steps="""
            step  start_ns   end_ns     how
            0     0          100000000  marker
            1     100000000  200000000  marker
        """,
    )
    store.write(Trace(trace.tables, Meta(source="tiny", framework="pytorch", ranks=[0])), tmp_path / "communicates")
    output = opened(page, server(tmp_path), "communicates", "overview")
    assert output.startswith("30.0 % of each step is exposed communication: no operator hides it; operators run for 40.0 %.")
