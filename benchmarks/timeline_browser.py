"""A timeline of many events in a browser: the first picture, how long pictures take while one moves, and the memory of the tab."""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from measure import keep, table
from playwright.sync_api import Browser, Page, expect, sync_playwright
from timeline import MANY, SOURCE, made

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import chromium  # noqa: E402 - the browser of the tests

# From the issue that set them: of ten million events, on a machine that does nothing else.
_FIRST_S, _MEDIAN_MS, _P95_MS, _TAB_BYTES, _TILE_BYTES = 1.5, 17.0, 34.0, 600e6, 1e6
_ASKED_S, _SERVER_BYTES = {"search": 1.0, "sum": 0.5}, 1.5e9
_DRAW_MS = 5.0  # what is aimed at: the rest of a frame is the browser's
_SIZE = {"width": 1600, "height": 1000}
_WATCH = """
  window.pictures = [];
  document.addEventListener('drawn', ({ detail }) => {
    window.pictures.push([performance.now(), detail.took]);
    if (detail.whole) window.first ??= performance.now();
  }, true);
"""


class Measured(NamedTuple):
    new: float  # s until the first picture, when the server had just begun
    firsts: list[float]
    motions: "list[Motion]"
    tile: int  # bytes of the largest
    memory: dict[str, float]
    cpu: dict[str, float]
    asked: dict[str, float]  # ms, by question
    overview: float  # s until everything on it is there
    server: tuple[int, int]  # the most bytes of memory that it had: for the timeline, and then for the overview


class Motion(NamedTuple):
    """Pictures while one thing was done: ms between them, and ms that each took to draw."""

    what: str
    between: list[float]
    drawn: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=10, help="events, about (default: 10 million)")
    parser.add_argument("--seconds", type=float, default=2.5, help="how long each way of moving lasts (default: 2.5 s)")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    args = parser.parse_args()
    run = made(args.millions)
    # STEPSCOPE_CACHE may hold what was built before: of a hundred million events that takes a minute.
    kept = os.environ.get("STEPSCOPE_CACHE")
    with nullcontext(kept) if kept else tempfile.TemporaryDirectory() as cache:
        with server(run, cache) as address:
            known = _known(address)
        # A new one finds what was built. The browser draws by the processor alone, as on a server or over a remote desktop.
        with server(run, cache) as address, sync_playwright() as playing:
            browser = playing.chromium.launch(executable_path=chromium.system(), args=[*chromium.OPTIONS, "--disable-gpu"])
            report = _report(args, known, _measured(browser, address, known, args.seconds))
            browser.close()
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


@contextmanager
def server(run: Path, cache: str) -> Iterator[str]:
    command = [sys.executable, "-m", "stepscope", "view", str(run), "--no-browser", "--no-token", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"STEPSCOPE_CACHE": cache})
    try:
        assert process.stdout is not None
        yield next(match[0] for line in process.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+/", line)))
    finally:
        process.terminate()
        process.wait(30)


def _known(address: str) -> dict[str, Any]:
    """The lanes. The timeline is built when it is first asked for: here, before anything is measured (timeline.py measures that)."""
    number = _asked(f"{address}api/runs")["runs"][0]["id"]
    while True:
        found = _asked(f"{address}api/runs/{number}/timeline")
        if "lanes" in found:
            return found | {"run": number}
        time.sleep(0.2)  # still building


def _asked(path: str) -> Any:
    with urllib.request.urlopen(path, timeout=300) as answer:
        return json.load(answer)


def _measured(browser: Browser, address: str, known: dict[str, Any], seconds: float) -> Measured:
    firsts = []
    for _ in range(4):
        context = browser.new_context(viewport=_SIZE)  # type: ignore[arg-type] # a plain dict is one
        firsts.append(_first(context.new_page(), f"{address}#/{known['run']}/timeline"))
        context.close()
    context = browser.new_context(viewport=_SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))) if "/tiles/" in answer.url else None)
    _first(page, f"{address}#/{known['run']}/timeline?{_selected(address, known)}")
    before = _threads(browser)
    motions = list(_moved(page, known, seconds))
    cpu = {name: spent - before.get(name, 0) for name, spent in _threads(browser).items()}
    held = memory(browser, page)
    asked = {what: _took(page, f"{address}api/runs/{known['run']}/timeline/{path}") for what, path in _questions(known).items()}
    context.close()
    alone = _peak_of_server()
    page = browser.new_page(viewport=_SIZE)  # type: ignore[arg-type]
    overview = _overview(page, f"{address}#/{known['run']}/overview")
    page.close()
    return Measured(firsts[0], firsts[1:], motions, max(sizes, default=0), held, cpu, asked, overview, (alone, _peak_of_server()))


def _questions(known: dict[str, Any]) -> dict[str, str]:
    end = known["end_ns"]
    return {
        "search for one name": "search?text=cudaLaunchKernel&args=0",
        "search for a letter, which nearly all have": "search?text=a&args=0",
        "sum up everything by name": f"area?t0=0&t1={end}",
        "sum up a tenth by name": f"area?t0={end // 2}&t1={end * 6 // 10}",
        "a span with its flows and its part of the critical path": f"span?rank=0&span={known['events'] // 3}",
    }


def _took(page: Page, address: str) -> float:
    """Milliseconds from the page's question to the whole answer."""
    ask = "async (at) => { const from = performance.now(); await (await fetch(at)).arrayBuffer(); return performance.now() - from; }"
    return float(page.evaluate(ask, address))


def _overview(page: Page, address: str) -> float:
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("a.tile", timeout=120_000)
    expect(page.locator(".loading, .stale")).to_have_count(0, timeout=120_000)
    return time.perf_counter() - begun


def _peak_of_server() -> int:
    """Of all that this process has started, `stepscope view` is what is no browser."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    views = [pid for pid in own if "stepscope" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]
    (status,) = (Path(f"/proc/{pid}/status").read_text() for pid in views)
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _first(page: Page, address: str) -> float:
    """Seconds from the address to the first picture that has all its tiles; then wait for those beside it, too."""
    page.add_init_script(_WATCH)
    page.goto(address)
    page.wait_for_selector(".tl-picture[aria-busy=false]", timeout=120_000)
    return float(page.evaluate("window.first")) / 1e3


def _selected(address: str, known: dict[str, Any]) -> str:
    """In the middle of the run: a kernel, so that its arrow is drawn, and around it what is too much to be drawn one by one."""
    lane = max((lane for lane in known["lanes"] if "kernels" in lane["note"]), key=lambda lane: lane["events"])
    at = f"{address}api/runs/{known['run']}/timeline/near?lane={lane['id']}&row=0&at={known['end_ns'] // 2}&direction=next"
    event = _asked(at)["event"]
    return f"span={event['span']}&t0={event['start'] - 40_000_000}&t1={event['start'] + 60_000_000}"


def _moved(page: Page, known: dict[str, Any], seconds: float) -> Iterator[Motion]:
    picture = page.locator(".tl-picture")
    box = picture.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.7
    picture.focus()
    page.mouse.move(x, y)

    def held(key: str, what: str) -> Motion:
        _rest(page)
        page.keyboard.down(key)
        page.wait_for_timeout(seconds * 1e3)
        seen = pictures(page, what)  # before it comes to rest
        page.keyboard.up(key)
        return seen

    yield held("d", "pan, 100 ms in sight (D held)")
    yield held("a", "and back (A held)")
    yield held("s", "zoom out to all (S held)")
    yield held("d", "pan, all in sight")
    yield held("w", "zoom in (W held)")
    yield held("d", "pan, zoomed in")
    page.keyboard.press("0")
    _rest(page)
    for sign, what in ((-1, "zoom in with the wheel"), (1, "zoom out with the wheel")):
        _rest(page)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            page.mouse.wheel(0, sign * 90)
            page.wait_for_timeout(12)
        yield pictures(page, what)
    page.evaluate(
        f"location.hash = location.hash.replace(/t0=\\d+&t1=\\d+/, 't0={known['end_ns'] // 3}&t1={known['end_ns'] // 3 + 20_000_000}')"
    )
    page.keyboard.press("p")
    _rest(page)
    page.mouse.down(button="middle")
    until, there = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < until:
        there += 12
        page.mouse.move(x + 300 * (there / 400 % 2 - 1), y)
        page.wait_for_timeout(8)
    dragged = pictures(page, "drag, 20 ms in sight")
    page.mouse.up(button="middle")
    yield dragged
    yield held("ArrowDown", "scroll through the lanes")


def _rest(page: Page) -> None:
    page.wait_for_timeout(250)
    page.wait_for_selector(".tl-picture[aria-busy=false]", timeout=60_000)
    page.evaluate("window.pictures.length = 0")


def pictures(page: Page, what: str) -> Motion:
    found: list[list[float]] = page.evaluate("window.pictures.slice()")
    times = [at for at, _ in found]
    between = [later - earlier for earlier, later in itertools.pairwise(times)]
    return Motion(what, between, [took for _, took in found])


def _renderers(browser: Browser) -> list[int]:
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return [one["id"] for one in processes if one["type"] == "renderer"]


def _threads(browser: Browser) -> dict[str, float]:
    """Seconds of CPU time of what draws: the worker, and the page's own thread."""
    spent: dict[str, float] = {"worker": 0, "page": 0}
    for pid in _renderers(browser):
        for task in Path(f"/proc/{pid}/task").iterdir():
            worker = (task / "comm").read_text().startswith("DedicatedWorker")
            if worker or task.name == str(pid):
                spent["worker" if worker else "page"] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return spent


def memory(browser: Browser, page: Page) -> dict[str, float]:
    """Of the tab: its process, most and now, and what scripts hold on the page itself."""
    peak, now = 0, 0
    for pid in _renderers(browser):
        status = Path(f"/proc/{pid}/status").read_text()
        peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]) << 10)
        now = max(now, int(status.partition("VmRSS:")[2].split()[0]) << 10)
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")
    heap = next(one["value"] for one in metrics.send("Performance.getMetrics")["metrics"] if one["name"] == "JSHeapUsedSize")
    return {"peak": peak, "now": now, "heap": heap}


def _report(args: argparse.Namespace, known: dict[str, Any], measured: Measured) -> str:
    _, firsts, motions, tile, memory, cpu, asked, _, _ = measured
    first = statistics.median(firsts)
    between = [one for motion in motions for one in motion.between]
    drawn = [one for motion in motions for one in motion.drawn]
    rows = [
        [
            motion.what,
            str(len(motion.drawn)),
            *(f"{_part(motion.between, part):.1f}" for part in (0.5, 0.95)),
            *(f"{_part(motion.drawn, part):.1f}" for part in (0.5, 0.95)),
        ]
        for motion in motions
    ]
    rows.append(
        [
            "**all**",
            str(len(drawn)),
            *(f"{_part(between, part):.1f}" for part in (0.5, 0.95)),
            *(f"{_part(drawn, part):.1f}" for part in (0.5, 0.95)),
        ]
    )
    limits = [
        ["first picture, all of it in sight", f"{first:.2f} s ({min(firsts):.2f} to {max(firsts):.2f})", _met(first, _FIRST_S, "s")],
        ["first picture of a server that has just begun; everything was built before", f"{measured.new:.2f} s", ""],
        ["between pictures, median", f"{_part(between, 0.5):.1f} ms", _met(_part(between, 0.5), _MEDIAN_MS, "ms")],
        ["between pictures, 95 of 100", f"{_part(between, 0.95):.1f} ms", _met(_part(between, 0.95), _P95_MS, "ms")],
        ["drawing one, median", f"{_part(drawn, 0.5):.1f} ms", _met(_part(drawn, 0.5), _DRAW_MS, "ms")],
        ["CPU time of the worker per picture, with asking and unpacking", f"{cpu['worker'] / len(drawn) * 1e3:.1f} ms", ""],
        ["CPU time of the page's own thread per picture", f"{cpu['page'] / len(drawn) * 1e3:.1f} ms", ""],
        ["the largest tile", f"{tile / 1e6:.2f} MB", _met(tile / 1e6, _TILE_BYTES / 1e6, "MB")],
        ["the tab's process, the most memory", f"{memory['peak'] / 1e6:.0f} MB", _met(memory["peak"] / 1e6, _TAB_BYTES / 1e6, "MB")],
        ["the tab's process at the end; scripts of the page", f"{memory['now'] / 1e6:.0f} MB; {memory['heap'] / 1e6:.0f} MB", ""],
        *([what, f"{took:.0f} ms", *_limit_of(what, took / 1e3)] for what, took in asked.items()),
        ["the overview, all of it", f"{measured.overview:.1f} s", ""],
        ["the server, the most memory", f"{measured.server[0] / 1e6:,.0f} MB", _met(measured.server[0] / 1e6, _SERVER_BYTES / 1e6, "MB")],
        ["and with the overview", f"{measured.server[1] / 1e6:,.0f} MB", ""],
    ]
    head = ["while moving", "pictures", "between, median ms", "95 of 100", "drawing, median ms", "95 of 100"]
    size = "" if args.millions == MANY else f", {args.millions:g} million events"
    limit = "" if args.millions == MANY else " The limits are those of ten million."
    return f"""# Timeline: the browser's part ({args.machine}{size})

Written by `timeline_browser.py`: {known["events"]:,} events in {len(known["lanes"])} lanes, `{SOURCE.name}` repeated.
{_SIZE["width"]} x {_SIZE["height"]} px, headless Chromium without a GPU, an event selected with its arrow, labels and nested lanes on.
Load average at the end: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores.{limit}

{table(["what", "measured", "limit"], limits)}
{table(head, rows)}"""


def _limit_of(what: str, took_s: float) -> list[str]:
    limit = _ASKED_S.get(what.split(maxsplit=1)[0])
    return [_met(took_s, limit, "s") if limit else ""]


def _part(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


def _met(value: float, limit: float, unit: str) -> str:
    return f"{limit:g} {unit}: {'met' if value <= limit else '**missed**'}"


if __name__ == "__main__":
    main()
