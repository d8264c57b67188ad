"""Search and help: everything that has a name is found with the keyboard alone, and help does not stand in the way."""

import re
from pathlib import Path
from typing import Any

import pytest

import stepscope

SAMPLES = Path(__file__).parent.parent / "samples"
RECORDING = SAMPLES / "run/stepscope-0.1.0/resnet50_h200"


@pytest.fixture
def opened(server: Any, page: Any) -> Any:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/files"))
    page.wait_for_selector(".filesgrid")
    return page


def test_slash_opens_it_and_escape_returns_the_focus(opened: Any) -> None:
    opened.get_by_role("button", name="Help", exact=True).focus()
    opened.keyboard.press("/")
    opened.wait_for_selector(".palette")
    assert opened.evaluate("document.activeElement.placeholder").startswith("Find page")
    opened.keyboard.press("Escape")
    opened.wait_for_selector(".palette", state="detached")
    assert opened.evaluate("document.activeElement.getAttribute('aria-label')") == "Help"


def test_a_page_is_found_by_letters_of_its_name(opened: Any) -> None:
    opened.keyboard.press("Control+k")
    opened.wait_for_selector(".palette")
    opened.keyboard.type("stp trc")
    opened.wait_for_selector(".found.on:has-text('Step trace')")
    opened.keyboard.press("Enter")
    opened.wait_for_url(re.compile(r"/steps$"))


def test_a_step_is_found_with_its_time_and_opened_on_the_timeline(opened: Any) -> None:
    steps = stepscope.open(RECORDING).step_trace()
    opened.keyboard.press("/")
    opened.wait_for_selector(".palette")
    opened.keyboard.type("step 10")
    opened.wait_for_selector(".found.on:has-text('Step 10')")
    total = steps.filter(step=10)["total_ns"].item()
    assert " ".join(opened.locator(".found.on").inner_text().split()).endswith(f"{total / 1e6:.1f} ms")
    opened.keyboard.press("Control+Enter")
    opened.wait_for_url(re.compile(r"/timeline\?"))
    first, last = (int(value) for value in re.findall(r"t[01]=(\d+)", opened.url))
    assert last - first == total


def test_an_operator_is_chosen_with_arrow_keys_and_selected_on_its_page(opened: Any) -> None:
    opened.keyboard.press("/")
    opened.wait_for_selector(".palette")
    opened.keyboard.type("native_batch_norm")
    opened.wait_for_selector(".found:has-text('native_batch_norm_backward')")
    names = opened.locator(".found .cut").all_inner_texts()
    place = names.index("aten::native_batch_norm_backward")
    for _ in range(place):
        opened.keyboard.press("ArrowDown")
    opened.wait_for_selector(".found.on:has-text('native_batch_norm_backward')")
    opened.keyboard.press("Enter")
    opened.wait_for_url(re.compile(r"/operators\?.*sel=.*native_batch_norm_backward"))


def test_commands_change_theme_and_language(opened: Any) -> None:
    for word, reached in (
        ("dark theme", "document.documentElement.dataset.theme === 'dark'"),
        ("中文", "document.documentElement.lang === 'zh-CN'"),
    ):
        opened.keyboard.press("/")
        opened.wait_for_selector(".palette")
        opened.keyboard.type(word)
        opened.wait_for_selector(".found.on")
        opened.keyboard.press("Enter")
        opened.wait_for_function(f"() => {reached}")


def test_help_opens_beside_the_page_and_the_page_goes_on_working(opened: Any) -> None:
    opened.keyboard.press("?")
    opened.wait_for_selector(".manual")
    output = opened.locator(".manual").inner_text()
    for word in ("Interval", "Exposed communication", "Busy", "Self time", "docs/recording.md", "Ctrl Enter"):
        assert word in output
    opened.get_by_role("link", name="Memory", exact=True).click()
    opened.wait_for_url(re.compile(r"/memory$"))
    assert opened.locator(".manual").is_visible()
    opened.keyboard.press("Escape")
    opened.wait_for_selector(".manual", state="detached")


def test_both_say_everything_in_both_languages(opened: Any) -> None:
    opened.get_by_role("button", name="Language").click()
    opened.keyboard.press("?")
    opened.wait_for_selector(".manual")
    assert "未隐藏的通信" in opened.locator(".manual").inner_text()
