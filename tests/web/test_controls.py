"""What every page has around its data: buttons, menus, pickers, axes, the palette, and links that lead somewhere."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import stepscope
import tiny
from stepscope.io import store
from stepscope.model.trace import Trace
from volume import every, mostly_deep

SAMPLES = Path(__file__).parent.parent / "samples"
MS = 1_000_000
US = 1_000
# The contrast of a button's text with its ground, as WCAG defines it. A canvas turns any CSS color into red, green and blue.
CONTRAST = """
button => {
  const ink = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = color => {
    ink.clearRect(0, 0, 1, 1);
    ink.fillStyle = color;
    ink.fillRect(0, 0, 1, 1);
    const parts = [...ink.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255);
    const [r, g, b] = parts.map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(button);
  const [high, low] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}
"""


def five_steps() -> Trace:
    """Steps 3 to 7 of 30 ms, of which forward and backward take 23.00 to 23.04 ms; operators of several times and names."""
    steps, spans = ["step start_ns end_ns how"], ["kind name step track start_ns dur_ns"]
    for place, step in enumerate(range(3, 8)):
        at = step * 100 * MS
        steps.append(f"{step} {at} {at + 30 * MS} marker")
        spans.append(f"op aten::embedding {step} 0 {at + 2 * MS} {1 * MS}")
        spans.append(f"op aten::mm {step} 0 {at + 4 * MS} {15 * MS + place * 10 * US}")
        spans.append(f"op MmBackward0 {step} 0 {at + 24 * MS + 800 * US} {200 * US + place * 10 * US}")
    return tiny.trace(steps="\n".join(steps), spans="\n".join(spans), tracks="track label kind\n0 main thread")


def two_ranks() -> Trace:
    steps, spans = ["rank step start_ns end_ns how"], ["rank kind name step track start_ns dur_ns bytes"]
    for rank in (0, 1):
        for step in (1, 2, 3):
            at = step * 100 * MS
            steps.append(f"{rank} {step} {at} {at + 100 * MS} marker")
            spans.append(f"{rank} kernel mm {step} 1 {at} {(40 + 30 * rank) * MS} -")
            spans.append(f"{rank} communication ncclAllReduce {step} 2 {at + 70 * MS} {20 * MS} 1000000")
    tracks = "rank track label kind\n" + "\n".join(f"{rank} {track} s{track} stream" for rank in (0, 1) for track in (1, 2))
    made = tiny.trace(steps="\n".join(steps), spans="\n".join(spans), tracks=tracks)
    return Trace(made.tables, msgspec.structs.replace(made.meta, world_size=2))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    folder = Path(tmp_path_factory.mktemp("controls"))
    store.write(five_steps(), folder / "five")
    store.write(two_ranks(), folder / "two")
    store.write(tiny.trace(steps="step start_ns end_ns how\n5 0 23700000 marker"), folder / "alone")
    store.write(five_steps(), folder / "a_run_whose_name_is_far_longer_than_the_bar_above_the_page_has_room_for_on_any_screen")
    return folder


@pytest.fixture
def opened(server: Any, page: Any, runs: Path) -> Any:
    def go(place: str, run: str = "five", root: Path = runs) -> Any:
        served = server(root)
        page.goto(served.url(f"#/{served.run(run)}/{place}"))
        page.wait_for_selector("main h1, main .empty, main .trouble")
        page.wait_for_selector("main .loading, main .stale", state="detached")
        return page

    return go


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_primary_button_is_readable_under_the_pointer(opened: Any, theme: str) -> None:
    page = opened("operators")
    page.emulate_media(color_scheme=theme)
    page.get_by_role("button", name="Filter", exact=True).click()
    button = page.locator(".btn.pri")
    button.hover()
    assert button.evaluate(CONTRAST) >= 4.5


def test_dragging_over_a_chart_of_steps_selects_no_text(opened: Any) -> None:
    page = opened("steps")
    for chart in page.locator(".steppick").all():
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 6)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] - 4, steps=6)
        assert page.evaluate("getSelection().toString()") == ""
        page.mouse.up()
        page.evaluate("getSelection().removeAllRanges()")


def test_the_filter_and_the_columns_of_the_runs_have_names(server: Any, page: Any, runs: Path) -> None:
    page.goto(server(runs).url())
    page.get_by_role("button", name="Filter", exact=True).click()
    assert page.locator(".steprange select").first.locator("option").all_inner_texts() == [
        "Ranks",
        "Steps",
        "Step time",
        "Compute",
        "Comm.",
        "Copy",
        "Idle",
        "Size",
    ]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Columns", exact=True).click()
    names = [name.strip() for name in page.locator(".menu label").all_inner_texts()]
    assert names[:2] == ["Compare", "Name"]
    assert "at" not in names


def test_a_recording_of_one_step_names_that_step(opened: Any) -> None:
    page = opened("overview", "alone")
    assert page.locator(".verdict-more").inner_text().startswith("Step 5 takes 23.7\u202fms.")


ABSENT = [
    ("steps=900:950", "This run has no steps 900\u2013950. Steps: 3\u20137.", "Show all steps"),
    ("steps=abc", "“abc” is not a range of steps. Write 2:5 for steps 2 to 5.", "Show all steps"),
    ("steps=7:3", "“7:3” is not a range of steps. Write 2:5 for steps 2 to 5.", "Show all steps"),
    ("rank=9", "This run has no rank 9. Ranks: 0.", "Show rank 0"),
    ("rank=x", "This run has no rank x. Ranks: 0.", "Show rank 0"),
]
PAGES = ["overview", "steps", "operators", "flops", "data", "cpu", "memory", "communication", "advice"]


# Each address on a page or two, and most of the pages.
@pytest.mark.parametrize(("page_name", "query", "text", "way"), every([(name, *absent) for name in PAGES for absent in ABSENT], 7))
def test_a_rank_or_steps_that_are_not_there_lead_to_those_that_are(opened: Any, page_name: str, query: str, text: str, way: str) -> None:
    page = opened(f"{page_name}?{query}")
    assert page.locator("main .empty b").first.inner_text() == text
    page.get_by_role("link", name=way).click()
    page.wait_for_selector("main h1")
    assert query not in page.url
    assert page.locator("main .trouble").count() == 0


def test_the_first_arrow_key_in_a_picker_reaches_the_first_match(opened: Any) -> None:
    page = opened("steps")
    page.get_by_role("button", name="Forward starts at").click()
    page.get_by_role("searchbox", name="Operator, range or kernel").fill("mm")
    page.wait_for_selector(".opmenu .list .item >> nth=1")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.querySelector('.mono')?.textContent") == "aten::mm"
    page.keyboard.press("Enter")
    page.wait_for_url("**fp_start=aten*mm*")


def test_enter_in_a_picker_takes_the_first_match(opened: Any) -> None:
    page = opened("steps")
    page.get_by_role("button", name="Backward ends at").click()
    page.get_by_role("searchbox", name="Operator, range or kernel").fill("mm")
    page.wait_for_selector(".opmenu .list .item >> nth=1")
    page.keyboard.press("Enter")
    page.wait_for_url("**bp_end=MmBackward0*")  # what ends last stands first


def test_the_palette_puts_the_operator_of_that_name_before_one_that_only_starts_with_it(opened: Any) -> None:
    page = opened("files")
    page.keyboard.press("/")
    page.wait_for_selector(".palette")
    page.keyboard.type("mm")
    page.wait_for_selector(".found:has-text('MmBackward0')")
    assert page.locator(".found .cut").all_inner_texts()[:2] == ["aten::mm", "MmBackward0"]


def test_labels_of_an_axis_differ_where_its_values_do(opened: Any) -> None:
    page = opened("steps")
    for chart in page.locator(".steppick").all():
        heights = chart.locator("g > text.axis[text-anchor=end]").all_text_contents()
        assert len(set(heights)) == len(heights) > 1, heights
    line = page.get_by_role("slider", name="Forward and backward")
    assert line.locator("g > text.axis").all_text_contents() == ["23", "23.02", "23.04 ms"]


def test_a_run_name_that_is_cut_is_whole_under_the_pointer(opened: Any) -> None:
    name = "a_run_whose_name_is_far_longer_than_the_bar_above_the_page_has_room_for_on_any_screen"
    shown = opened("files", name).locator(".top .cut", has_text=name)
    assert shown.evaluate("one => one.scrollWidth > one.clientWidth")
    assert str(shown.get_attribute("title")).startswith(name)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_switch_of_the_heat_map_fits_a_telephone(opened: Any, language: str) -> None:
    page = opened("communication", "two")
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate(f"localStorage.setItem('stepscope.language', '{language}')")
    page.reload()
    page.wait_for_selector(".heat canvas")
    for switch in page.locator("main .seg").all():
        box = switch.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    switch = page.locator(".card:has(.heat) .seg")
    switch.get_by_role("button").last.click()  # it scrolls into sight
    assert page.locator("main .trouble").count() == 0


@pytest.mark.parametrize("run", mostly_deep(["cpu_training", "h200_modules", "jax-0.10.2-cpu"], keep=["cpu_training"]))
def test_no_link_leads_to_a_page_without_data(opened: Any, run: str) -> None:
    page = opened("overview", run, SAMPLES)
    names = "all => all.map(one => one.getAttribute('href').split('?')[0].split('/')[2])"
    empty = set(page.locator("nav a.off").evaluate_all(names))
    assert empty
    for place in ("overview", "steps", "operators", "advice"):
        opened(place, run, SAMPLES)
        assert not empty & set(page.locator("main a[href^='#/']").evaluate_all(names)), place


def test_data_preparation_without_a_loader_is_said_to_have_no_data(opened: Any) -> None:
    page = opened("overview", "h200_modules", SAMPLES)
    assert page.locator("nav a.off", has_text="Data preparation").count() == 1


def test_the_export_menu_has_the_report_and_speedscope(opened: Any, tmp_path: Path) -> None:
    page = opened("files")
    page.get_by_role("button", name="Export", exact=True).click()
    assert page.locator(".menu a.item").all_inner_texts()[:4] == [
        "Report (HTML)",
        "Chrome trace (JSON)",
        "Perfetto trace",
        "speedscope (flame graphs)",
    ]
    for name, ending in (("Report (HTML)", "report.html"), ("speedscope (flame graphs)", "trace.speedscope.json.gz")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        assert download.value.suggested_filename == f"five-{ending}"
        download.value.save_as(tmp_path / ending)
    assert "<title>five · stepscope</title>" in (tmp_path / "report.html").read_text()
    document = json.loads(gzip.decompress((tmp_path / "trace.speedscope.json.gz").read_bytes()))
    assert {frame["name"] for frame in document["shared"]["frames"]} == {"aten::embedding", "aten::mm", "MmBackward0"}


def test_functions_call_paths_and_annotations_are_on_a_page(opened: Any) -> None:
    recording = SAMPLES / "chrome/torch-2.13.0/cpu_training.json.gz"
    page = opened("functions", "cpu_training", SAMPLES)
    trace = stepscope.open(recording)
    functions = trace.hot_functions()
    assert page.locator("h1 .mono").inner_text() == functions["name"][0]
    first = page.locator("[aria-label=Functions] .gridrow:not(.head)").first
    assert f"{functions['self_ns'][0]:,} ns" in [one.get_attribute("title") for one in first.locator(".q").all()]
    page.get_by_role("tab", name="Call paths").click()
    outermost = trace.hot_paths().filter(pl.col("parent").is_null()).sort("total_ns", descending=True)
    top = page.locator("[aria-label='Call paths'] .gridrow:not(.head)").first
    assert top.locator(".name.mono").inner_text() == outermost["name"][0]
    top.locator(".fold").click()
    page.wait_for_selector("[aria-label='Call paths'] .gridrow.sub")
    page.get_by_role("tab", name="Annotations").click()
    rows = trace.annotations()
    shown = page.locator("[aria-label=Annotations] .gridrow:not(.head) .name.mono")
    assert set(shown.all_inner_texts()) == set(rows["name"])


def test_calls_from_one_line_are_told_apart_by_their_innermost_line_and_listed_once(server: Any, page: Any, tmp_path: Path) -> None:
    spans = ["kind name op_type start_ns dur_ns", 'python "train.py(3):_main" - 0 1000']
    for at, leaf in enumerate(("linear.py(9)", "linear.py(9)", "conv.py(4)")):
        spans += [
            f'python "torch/nn/module.py({at}):_call" - {100 * at + 10} 90',
            f'python "torch/nn/{leaf}:_forward" - {100 * at + 20} 70',
        ]
        spans += [f"op mm mm {100 * at + 30} {10 * (at + 1)}"]
    made = tiny.trace(spans="\n".join(spans), steps="step start_ns end_ns how\n1 0 1000 marker", tracks="track label kind\n0 main thread")
    store.write(made, tmp_path / "stacks")
    served = server(tmp_path)
    page.goto(served.url(f"#/{served.run('stacks')}/operators?sel=%5B%22mm%22%5D"))
    page.wait_for_selector(".caller")
    lines = [one.locator(".mono").all_inner_texts() for one in page.locator(".caller summary").all()]
    assert sorted(lines) == [["train.py(3): main", "torch/nn/conv.py(4): forward"], ["train.py(3): main", "torch/nn/linear.py(9): forward"]]


def test_csv_of_a_page_has_neither_formulas_nor_control_characters(server: Any, page: Any, tmp_path: Path) -> None:
    names = {"=1+1": "'=1+1", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)", "\x1b[31mred": r"\u001b[31mred", "-5": "-5", "mm": "mm"}
    rows = "\n".join(f"kernel 1 x {at * 10} {9 - at}" for at in range(len(names)))
    trace = tiny.trace(spans=f"kind track name start_ns dur_ns\n{rows}", tracks="track label kind device\n1 s7 stream 0")
    spans = trace.spans.collect().with_columns(name=pl.Series(list(names)).cast(pl.Categorical))
    store.write(Trace({"spans": spans, "tracks": trace.tracks}), tmp_path / "hostile")
    served = server(tmp_path)
    page.goto(served.url(f"#/{served.run('hostile')}/kernels"))
    page.get_by_role("button", name="Copy", exact=True).first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    header, *lines = Path(download.value.path()).read_text("utf-8").splitlines()
    at = header.split(",").index("name")
    assert [line.split(",")[at] for line in lines] == list(names.values())
