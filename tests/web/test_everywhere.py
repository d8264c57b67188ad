"""What holds on every page of every recording: it opens without complaint, says something, fits, has names, both themes and both languages.

STEPSCOPE_PICTURES=1 keeps pictures in screenshots/ (run_page_theme.png): look at them after a change.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

import stepscope
import tiny
import volume
from stepscope.cli.setup.demo import RECORDING
from stepscope.io import store

pytest.importorskip("playwright.sync_api")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from web.conftest import Serve, Served

SAMPLES = Path(__file__).parents[1] / "samples"
PICTURES = Path(__file__).parent / "screenshots"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
PAGES = sorted(path.stem for path in (Path(__file__).parents[2] / "frontend" / "src" / "pages").glob("*.tsx"))
OF_A_RUN = [page for page in PAGES if page != "runs"]
# A recording by each framework. Other formats are among the telephones and the pages in Chinese, and resnet50_h200 is visited below a path.
ON_EVERY_PAGE = ("cpu_training", "jax-0.11.2-gpu", "all_reduce")

# Which requests are under way: a page is drawn when there are none, and nothing waits for one.
COUNT = """
(() => {
  let under_way = 0;
  const count = promise => { under_way++; return promise.finally(() => setTimeout(() => under_way--, 0)); };
  const fetch = window.fetch;
  window.fetch = (...all) => count(fetch(...all));
  for (const name of ['arrayBuffer', 'json', 'text']) {
    const whole = Response.prototype[name];
    Response.prototype[name] = function () { return count(whole.call(this)); };
  }
  window.drawn = () => !under_way && !!document.querySelector('main h1, main .empty, main .trouble')
    && !document.querySelector('main .loading, main .stale, main [aria-busy=true]');
})();
"""
# Go to another place of the same page, and wait until it is drawn: three frames in a row in which nothing is missing.
GO = """
hash => new Promise((resolve, reject) => {
  const end = performance.now() + 20000;
  if (hash !== null) location.hash = hash;
  let calm = 0;
  const look = () => {
    calm = window.drawn() ? calm + 1 : 0;
    if (calm > 3) resolve();
    else if (performance.now() > end) reject(new Error(`not drawn: ${location.hash}`));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})
"""
# What is wrong with the page as it stands.
LOOK = r"""
() => {
  const wrong = [];
  const main = document.querySelector('main');
  const shown = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
  const said = e => `${e.tagName.toLowerCase()}.${e.getAttribute('class') ?? ''} ${(e.textContent ?? '').trim().slice(0, 60)}`;
  const name = e => (e.getAttribute('aria-label') || e.getAttribute('title') || e.textContent || '').trim()
    || [...(e.labels ?? [])].map(l => l.textContent.trim()).join('') || e.getAttribute('placeholder');
  for (const e of main.querySelectorAll('.trouble')) wrong.push(`trouble: ${e.textContent}`);
  if (!main.querySelector('h1, .empty')) wrong.push('neither a verdict nor an empty state');
  for (const e of main.querySelectorAll('h1')) if (/^[\s…]*$/.test(e.textContent)) wrong.push('an empty verdict');
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the window is ${document.documentElement.scrollWidth} wide`);
  if (main.scrollWidth > main.clientWidth) {
    const edge = main.getBoundingClientRect().right;
    const over = [...main.querySelectorAll('*')].filter(e => shown(e) && e.getBoundingClientRect().right > edge + 1).slice(0, 3);
    wrong.push(`the page is ${main.scrollWidth} wide in ${main.clientWidth}: ${over.map(said)}`);
  }
  for (const e of document.querySelectorAll('a[href], button, input, select, textarea')) {
    if (shown(e) && !name(e)) wrong.push(`no name: ${said(e)}`);
  }
  for (const e of main.querySelectorAll('canvas, svg, [role=img], [role=application], [role=grid], [role=treegrid]')) {
    if (!shown(e) || e.matches('.ic')) continue;
    const named = e.closest('[aria-label]:not(main):not(section), [aria-hidden=true], a[href], button');
    if (!named || named.getAttribute('aria-label') === '') wrong.push(`a picture without a name: ${said(e)} in ${said(e.parentElement)}`);
  }
  for (const e of main.querySelectorAll('*')) {
    if (!shown(e) || getComputedStyle(e).cursor !== 'pointer' || getComputedStyle(e.parentElement).cursor === 'pointer') continue;
    const reached = 'a[href], button, input, select, label, summary, [tabindex="0"]';
    // What is inside a picture is in the list beside it, too; rows are reached by the arrow keys.
    const fine = e.closest(`${reached}, [role=grid], [role=treegrid], [role=img]`) || e.querySelector(reached);
    if (!fine) wrong.push(`for the mouse alone: ${said(e)}`);
  }
  for (const e of main.querySelectorAll('.q')) {
    if (shown(e) && !e.title) wrong.push(`a number without its exact value: ${said(e)} in ${said(e.parentElement)}`);
  }
  const copy = main.cloneNode(true);
  for (const e of copy.querySelectorAll('.mono, code, pre, textarea')) e.remove(); // names may be anything
  const bad = copy.textContent.match(/\{[a-z]\w*\}|\bundefined\b|\bNaN\b|\[object \w+\]|\bInfinity\b/g) ?? [];
  wrong.push(...bad.map(one => `says ${one}`));
  return wrong;
}
"""
# What is shortened without a way to see it whole, and what is cut off.
SHORTENED = r"""
() => {
  const wrong = [];
  const main = document.querySelector('main');
  const shown = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
  const said = e => `${e.tagName.toLowerCase()}.${e.getAttribute('class') ?? ''} ${(e.textContent ?? '').trim().slice(0, 60)}`;
  // The timeline decides itself what it shortens.
  for (const e of location.hash.includes('/timeline') ? [] : main.querySelectorAll('*')) {
    if (!shown(e) || e.closest('.sr, svg, textarea, input') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    if (style.overflowX !== 'hidden' || e.scrollWidth <= e.clientWidth + 1) continue;
    if (style.textOverflow !== 'ellipsis') wrong.push(`cut off: ${said(e)}`);
    else if (!e.closest('[title]') && !e.querySelector('[title]')) wrong.push(`shortened, and nowhere whole: ${said(e)}`);
  }
  for (const e of main.querySelectorAll('svg text')) {
    const [own, all] = [e.getBoundingClientRect(), e.closest('svg').getBoundingClientRect()];
    if (own.width && (own.right > all.right + 2 || own.left < all.left - 2)) wrong.push(`beyond its picture: ${said(e)}`);
  }
  return wrong;
}
"""
# What the page says but names: what stands as code, in columns of names and in pictures of them is left out.
WORDS = r"""
() => {
  const found = new Set();
  const left = '.mono, code, pre, textarea, .kbd, .name, .logo, .cut, [role=img]';
  const walk = document.createTreeWalker(document.querySelector('.app'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    if (!text.parentElement.closest(left) && text.parentElement.getClientRects().length) found.add(text.data.trim());
  }
  for (const e of document.querySelectorAll('[aria-label], [placeholder]')) {
    if (!e.closest(left)) for (const name of ['aria-label', 'placeholder']) found.add((e.getAttribute(name) ?? '').trim());
  }
  return [...found];
}
"""


@pytest.fixture(scope="module")
def window(browser: "Browser") -> Iterator["Page"]:
    """One page for the whole module: another place is another hash, as for someone who clicks."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, locale="en-US", color_scheme="light")
    page = context.new_page()
    page.add_init_script(COUNT)
    yield page
    context.close()


@pytest.fixture
def quiet(window: "Page", watched: Callable[["Page"], None], complaints: list[str]) -> Iterator["Page"]:
    """The page; after the test it has complained of nothing."""
    watched(window)
    yield window
    assert not complaints, "\n".join(complaints)


def runs(served: "Served") -> list[dict[str, Any]]:
    return [run for run in served.ask("api/runs").json()["runs"] if run["state"] == "finished"]


def opened(page: "Page", served: "Served") -> None:
    """Open the list of runs, unless it is there already."""
    if not page.url.startswith(served.base):
        page.goto(served.url())
        page.evaluate(GO, None)


def looked_at(page: "Page", run: str, name: str, place: str, theme: str = "light", looks: tuple[str, ...] = (LOOK, SHORTENED)) -> list[str]:
    page.evaluate(GO, f"#/{run}/{place}" if run else "#/")
    keep_picture(page, f"{re.sub(r'[^A-Za-z0-9.-]', '-', name)}_{place}_{theme}")
    return [f"{name}/{place}: {wrong}" for look in looks for wrong in page.evaluate(look)]


def keep_picture(page: "Page", name: str) -> None:
    if os.environ.get("STEPSCOPE_PICTURES"):
        page.screenshot(path=PICTURES / f"{name}.png")


@contextlib.contextmanager
def wide(page: "Page", width: int, height: int) -> Iterator[None]:
    page.set_viewport_size({"width": width, "height": height})
    yield
    page.set_viewport_size({"width": 1600, "height": 1000})


@pytest.mark.parametrize("every_page", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_every_page_of_every_sample_opens_without_complaint_says_something_and_fits(
    server: "Serve", quiet: "Page", every_page: bool
) -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    wrong = looked_at(quiet, "", "all", "runs")
    for number, run in enumerate(runs(served)):
        for place in OF_A_RUN if every_page or run["name"] in ON_EVERY_PAGE else [("overview", "timeline")[number % 2]]:
            wrong += looked_at(quiet, run["id"], run["name"], place)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", volume.mostly_deep(["torch_h200/ddp_gloo", "torch_h200", "torch_public"], keep=["torch_h200/ddp_gloo"]))
def test_every_page_of_the_shared_recordings_does_too(server: "Serve", quiet: "Page", shared: Path, folder: str) -> None:
    served = server(*shared.glob(f"{folder}*"))
    opened(quiet, served)
    wrong = []
    for run in runs(served):
        for place in OF_A_RUN:
            wrong += looked_at(quiet, run["id"], run["name"], place, looks=(LOOK,))
    assert not wrong, "\n".join(wrong)


def test_every_page_fits_a_window_of_1280_and_can_be_dark(server: "Serve", quiet: "Page") -> None:
    served = server(RECORDING)
    opened(quiet, served)
    (run,) = runs(served)
    wrong = []
    quiet.emulate_media(color_scheme="dark")
    with wide(quiet, 1280, 800):
        for place in OF_A_RUN:
            wrong += looked_at(quiet, run["id"], run["name"], place, "dark")
            assert quiet.evaluate("document.documentElement.dataset.theme") == "dark"
    quiet.emulate_media(color_scheme="light")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["resnet50_h200", "lenet_ascend_ms"])
def test_every_page_fits_a_telephone(server: "Serve", quiet: "Page", name: str) -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    with wide(quiet, 390, 844):
        wrong = looked_at(quiet, "", "all", "runs", "narrow")
        wrong += [one for place in OF_A_RUN for one in looked_at(quiet, served.run(name), name, place, "narrow")]
        quiet.evaluate(GO, f"#/{served.run(name)}/operators")
        quiet.locator("main .gridrow:not(.head)").first.click()
        drawer = quiet.locator(".drawer")
        drawer.wait_for()
        box = drawer.bounding_box()
        assert box and box["width"] == 390
        quiet.keyboard.press("Escape")
        drawer.wait_for(state="detached")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "name",
    volume.mostly_deep(
        ["resnet50_h200", "python", "PROF_000001_20231114221320000_ABCDEFGH", "lenet_ascend_ms"],
        keep=["resnet50_h200", "PROF_000001_20231114221320000_ABCDEFGH"],
    ),
)
def test_pages_in_chinese_fit_a_dark_window_of_1280_too(server: "Serve", quiet: "Page", name: str) -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    quiet.get_by_role("button", name="Language").click()
    quiet.emulate_media(color_scheme="dark")
    with wide(quiet, 1280, 800):
        wrong = [one for place in OF_A_RUN for one in looked_at(quiet, served.run(name), name, place, "dark_zh")]
    quiet.emulate_media(color_scheme="light")
    quiet.get_by_role("button", name="语言").click()
    assert not wrong, "\n".join(wrong)


def test_every_page_works_below_a_path(server: "Serve", quiet: "Page") -> None:
    """As behind a proxy: no address of the page's own may begin at the root."""
    served = server(SAMPLES, prefix="/behind/a/proxy")
    opened(quiet, served)
    requests: list[str] = []
    quiet.on("request", lambda request: requests.append(request.url))
    wrong = [one for place in OF_A_RUN for one in looked_at(quiet, served.run("resnet50_h200"), "below", place)]
    assert not wrong, "\n".join(wrong)
    assert len(requests) > len(OF_A_RUN)
    assert not [url for url in requests if not url.startswith((served.base, "blob:", "data:"))]


def test_control_c_copies_the_number_under_the_pointer_as_it_is(server: "Serve", quiet: "Page") -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    quiet.context.grant_permissions(["clipboard-read", "clipboard-write"])
    row = stepscope.open(RESNET).overview().row(0, named=True)
    quiet.evaluate(GO, f"#/{served.run('resnet50_h200')}/overview")
    for label, column in (("Step time", "step_ns"), ("Peak memory", "peak_memory_bytes"), ("Device compute", "compute_share")):
        quiet.locator(".tile", has_text=label).locator(".f .q").hover()
        quiet.keyboard.press("Control+c")
        quiet.wait_for_function("async wanted => Number(await navigator.clipboard.readText()) === wanted", arg=row[column])


@pytest.mark.parametrize("place", ["overview", "steps", "memory", "cpu", "query", "communication"])
def test_figures_lead_to_their_place_on_the_timeline(server: "Serve", quiet: "Page", place: str) -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    name = "PROF_000001_20231114221320000_ABCDEFGH" if place == "communication" else "resnet50_h200"
    run = served.run(name)
    more = {"cpu": "?view=samples", "query": "?sql=select+*+from+steps"}
    quiet.evaluate(GO, f"#/{run}/{place}{more.get(place, '')}")
    if place == "query":
        quiet.get_by_role("button", name="Run", exact=True).click()
        quiet.evaluate(GO, None)
    if place == "communication":
        quiet.locator("[aria-label=Operators] .gridrow[aria-rowindex='2']").click()
        quiet.locator(".drawer a[href*='/timeline?']").first.wait_for()
    about = served.ask(f"api/runs/{run}").json()
    length = int(about["end_ns"]) - int(about["origin_ns"])
    addresses = quiet.locator(".app a[href*='/timeline?']").evaluate_all("all => all.map(e => e.getAttribute('href'))")
    assert addresses
    for address in addresses:
        given = parse_qs(address.partition("?")[2])
        if "span" in given and "t0" not in given:  # the timeline shows all of the span
            continue
        start, end = int(given["t0"][0]), int(given["t1"][0])
        assert -1_000_000_000 <= start <= end <= length + 1_000_000_000


def test_pages_in_chinese_have_no_english_but_names_and_terms(server: "Serve", quiet: "Page") -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    quiet.get_by_role("button", name="Language").click()
    listed = served.ask("api/runs").body.decode() + served.ask("api/analyses").body.decode()
    left: dict[str, str] = {}
    for run in runs(served):
        if run["name"] not in ("resnet50_h200", "python", "cpu_training", "jax-0.11.2-gpu-no-steps"):
            continue
        known = set(re.findall(r"[a-z]+", (listed + served.ask(f"api/runs/{run['id']}").body.decode()).lower())) | TERMS
        for place in ["", *(page for page in OF_A_RUN if page != "timeline")]:  # whose lanes have names of their own
            quiet.evaluate(GO, f"#/{run['id']}/{place}" if place else "#/")
            if run["name"] == "resnet50_h200":
                keep_picture(quiet, f"{run['name']}_{place or 'runs'}_light_zh")
            for text in quiet.evaluate(WORDS):
                written = re.sub(r"\S*(::|_|=)\S*", "", text)  # names of operators and parameters
                if unknown := [word for word in re.findall(r"[A-Za-z]{3,}", written) if word.lower() not in known]:
                    left[f"{run['name']}/{place}: {text}"] = ", ".join(unknown)
    quiet.get_by_role("button", name="语言").click()
    assert not left, "\n".join(f"{text}: {words}" for text, words in left.items())


# In a Chinese sentence, too: names of products, formats, units and keys, and what has no usual translation.
TERMS = {"autograd", "block", "cpu", "csv", "ctrl", "cuda", "dataloader", "enter", "esc", "grid", "kib", "linux", "mhz", "shift", "utc"}
TERMS |= {
    "minddata",
    "mindspore",
    "jax",
    "module",
    "msrun",
    "npu",
    "nvidia",
    "profiler",
    "pytorch",
    "sql",
    "stepscope",
    "torchrun",
    "trace",
}
TERMS |= {"flop", "flops", "kflop", "mflop", "gflop", "tflop", "gpu", "rank", "run", "step", "shapes", "xla"}
TERMS |= {"sxm", "markdown", "svg"}


@pytest.mark.parametrize("place", [page for page in OF_A_RUN if page != "timeline"])
def test_a_copied_link_gives_the_same_view_again(server: "Serve", quiet: "Page", place: str) -> None:
    """Whatever can be switched, sorted and chosen on the page is: the address says all of it."""
    served = server(SAMPLES)
    opened(quiet, served)
    quiet.evaluate(GO, f"#/{served.run('resnet50_h200')}/{place}")
    before = quiet.url
    tabs = quiet.locator("main [role=tab]").count()
    if tabs > 1:
        quiet.locator("main [role=tab]").nth(1).click()
        quiet.evaluate(GO, None)
    for group in range(quiet.locator("main .seg").count()):
        other = quiet.locator("main .seg").nth(group).locator("button:not(.on):not([disabled])")
        if other.count():
            other.first.click()
            quiet.evaluate(GO, None)
    heads = quiet.locator("main [role=columnheader]")
    if heads.count() > 1:
        heads.nth(1).click()
        quiet.evaluate(GO, None)
    address, output = quiet.url, seen(quiet)
    assert address != before or not (tabs > 1 or heads.count() > 1)
    quiet.goto("about:blank")
    quiet.goto(address)
    quiet.evaluate(GO, None)
    assert seen(quiet) == output
    assert quiet.url == address


def seen(page: "Page") -> tuple[str, list[str]]:
    """What is written, and what is pressed, chosen or sorted by."""
    state = "e => ['aria-pressed', 'aria-selected', 'aria-sort', 'aria-expanded'].map(n => e.getAttribute(n)).join() + e.textContent"
    pressed = page.locator("main :is([aria-pressed=true], [aria-selected=true], [aria-sort=ascending], [aria-sort=descending])")
    return page.locator("main").inner_text(), pressed.evaluate_all(f"all => all.map({state})")


@pytest.mark.parametrize("place", OF_A_RUN)
def test_the_tab_key_reaches_everything_in_reading_order_and_slash_and_question_mark_work(
    server: "Serve", quiet: "Page", place: str
) -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    quiet.evaluate(GO, f"#/{served.run('resnet50_h200')}/{place}")
    wanted = quiet.evaluate(
        """() => {
          const all = 'a[href], button, input, select, textarea, [tabindex]';
          const can = [...document.querySelectorAll(all)].filter(e => e.tabIndex >= 0 && !e.disabled && e.getClientRects().length);
          can.forEach((e, at) => e.dataset.order = at);
          return can.length;
        }"""
    )
    assert wanted > 20
    quiet.locator(".skip").focus()
    reached = [0]
    for at in places_by_tab(quiet, 2 * wanted):
        if at == 0 or len(reached) == wanted:
            break
        reached += [at] if at > 0 else []  # a part that scrolls can be reached, too, and has no place in the order
    assert reached == list(range(wanted))
    # The timeline has a search of its own.
    for key, dialog in (*([("/", ".palette")] if place != "timeline" else []), ("?", ".drawer, [role=dialog]")):
        quiet.evaluate("document.activeElement?.blur?.()")
        quiet.keyboard.press(key)
        quiet.wait_for_selector(dialog)
        quiet.keyboard.press("Escape")
        quiet.wait_for_selector(dialog, state="detached")


def places_by_tab(page: "Page", most: int) -> Iterator[int]:
    """Where each press of Tab leads. Nothing is drawn anew, so the presses do not wait for the page as those of `keyboard` do."""
    tools = page.context.new_cdp_session(page)
    tab = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    for _ in range(most):
        tools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **tab})
        tools.send("Input.dispatchKeyEvent", {"type": "keyUp", **tab})
        yield int(page.evaluate("document.activeElement?.dataset?.order ?? -1"))
    tools.detach()


def test_the_skip_link_leads_to_the_page_and_is_never_taken_for_a_run(server: "Serve", quiet: "Page") -> None:
    served = server(SAMPLES)
    place = f"#/{served.run('resnet50_h200')}/kernels?q=gemm"
    quiet.goto(served.url(place))
    quiet.wait_for_selector("h1 b")
    quiet.locator(".skip").focus()
    quiet.keyboard.press("Enter")
    assert quiet.evaluate("document.activeElement.id") == "main"
    # As a browser without our script, a reader of pages aloud or a bookmark goes there.
    quiet.evaluate("location.hash = '#main'")
    quiet.wait_for_function(f"() => location.hash === {place!r}")
    assert quiet.evaluate("document.activeElement.id") == "main"
    assert quiet.locator("h1 b").count()
    other = quiet.context.new_page()
    other.goto(served.url("#main"))
    other.wait_for_selector("h1")
    assert other.evaluate("document.title").startswith("Runs")
    assert "no such run" not in other.locator("main").inner_text()
    other.close()


def test_one_of_something_is_not_called_by_its_plural(server: "Serve", quiet: "Page", tmp_path: Path) -> None:
    """A run of one step with one kernel on one rank, on every page."""
    trace = tiny.trace(
        spans="""
            track  kind    name         start_ns  dur_ns  step
            0      op      aten::mm     1000      500     0
            1      kernel  gemm_kernel  1200      600     0
        """,
        tracks="track  kind  label  group  device\n0  thread  main  host  -\n1  stream  stream_7  gpu  0",
        steps="step  start_ns  end_ns\n0  1000  2000",
    )
    store.write(trace, tmp_path / "one")
    served = server(tmp_path)
    run = served.run("one")
    opened(quiet, served)
    for place in ("overview", "steps", "operators", "functions", "kernels", "flops", "timeline", "communication", "files", "query"):
        quiet.evaluate(GO, f"#/{run}/{place}")
        output = quiet.locator("main").inner_text()
        plurals = "rows|steps|ranks|kernels|types|operator types|calls|tracks|spans|functions|gaps"
        assert not re.search(rf"(?<![\d.,])1 (more |other )?({plurals})\b", output), output
        assert not re.search(r"\[\w+\|\w+\]", output), output


def test_advice_and_comparison_show_the_figures_of_the_analyses(server: "Serve", quiet: "Page") -> None:
    served = server(SAMPLES)
    opened(quiet, served)
    one, other = served.run("resnet50_h200"), served.run("jax-0.11.2-gpu")
    causes = stepscope.open(RESNET).gap_causes()
    quiet.evaluate(GO, f"#/{one}/advice")
    titles = quiet.locator("main tbody td:not(:first-child) .q").evaluate_all("all => all.map(e => e.title)")
    assert [int(title.replace(",", "").split()[0]) for title in titles[::3]] == causes["total_ns"].to_list()
    assert [float(title) for title in titles[1::3]] == causes["share"].to_list()
    quiet.evaluate(GO, f"#/{one}/compare?with={other}")
    shown = quiet.locator("table.cmp tbody tr", has_text="Step time").first.locator(".q").evaluate_all("all => all.map(e => e.title)")
    steps = [stepscope.open(path).overview()["step_ns"].item() for path in (RESNET, SAMPLES / "xplane" / "jax-0.11.2-gpu")]
    assert [int(title.replace(",", "").split()[0]) for title in shown] == steps
