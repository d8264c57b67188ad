"""How long the web pages take: from the address to the data drawn, in a real browser, the first time and again; and a long table."""

import argparse
import contextlib
import gzip
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from measure import keep, table
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))
import chromium  # noqa: E402 - the browser of the tests

_RUNS = [ROOT / "src/stepscope/cli/setup/demo_run/gpt2_h200", ROOT / "tests/samples/run/stepscope-0.1.0/resnet50_h200"]
_PAGES = sorted(path.stem for path in (ROOT / "frontend/src/pages").glob("*.tsx"))
_ROWS = 100_000
_SQL = f"select+rank,step,kind,name,start_ns,dur_ns,self_ns,depth,span+from+spans+limit+{_ROWS}"
_READY_MS, _PAINT_MS = 1000, 150  # from the issue that set them
# A page is ready with the last change of what it shows, after which for a while no request is under way and nothing waits for one.
_WATCH = """
(() => {
  let pending = 0, changed = 0;
  const large = [];  // when answers of more than a megabyte were there
  const counted = promise => { pending++; return promise.finally(() => setTimeout(() => pending--, 0)); };
  const fetch = window.fetch;
  window.fetch = (...all) => counted(fetch(...all));
  for (const name of ['arrayBuffer', 'json', 'text']) {
    const whole = Response.prototype[name];
    Response.prototype[name] = function () {
      return counted(whole.call(this).then(content => { if (content.byteLength > 1e6) large.push(performance.now()); return content; }));
    };
  }
  let painted = 0;
  const seen = () => {
    changed = performance.now();
    if (!painted && document.querySelector('[aria-rowcount="LONG"] [aria-rowindex]')) painted = changed;
  };
  new MutationObserver(all => {
    if (all.some(one => one.target.closest?.('main, #side') ?? true)) requestAnimationFrame(() => setTimeout(seen, 0));
  }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  window.painted = () => painted - Math.max(...large.filter(at => at < painted));
  window.ready = () => new Promise(resolve => {
    const look = () => {
      const drawn = !pending && document.querySelector('main h1, main .empty') && !document.querySelector('main .loading, main .stale');
      if (drawn && changed && performance.now() - changed > 300) resolve(changed);
      else setTimeout(look, 20);
    };
    look();
  });
})();
""".replace("LONG", str(_ROWS + 1))


class Visit(NamedTuple):
    ready_ms: float
    page_ms: float  # CPU time of the page's main thread
    server_ms: float  # CPU time of the server, which has several


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, default=_RUNS, help="traces and folders; default: the H200 runs that come with stepscope"
    )
    parser.add_argument("--repeat", type=int, default=5, help="servers started, each of which opens every page twice (default: 5)")
    parser.add_argument("--pages", nargs="*", default=_PAGES, help="only these pages")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium.system(), args=chromium.OPTIONS)
        first: dict[tuple[str, str], list[Visit]] = {}
        again: dict[tuple[str, str], list[Visit]] = {}
        for _ in range(args.repeat):
            _visit_all(browser, args.paths, args.pages, first, again)
        paints = _long_table(browser, args.repeat)
        version = browser.version
        browser.close()
    report = _report(first, again, paints, f"{args.machine}; Chromium {version}, headless, no GPU; load average before: {load:.1f}")
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


def _visit_all(browser: Browser, paths: list[Path], pages: list[str], first: dict[Any, list[Visit]], again: dict[Any, list[Visit]]) -> None:
    """Every page of every run from a new server and an empty browser, and once more."""
    with _served(paths) as (base, pid), _window(browser) as page:
        runs = json.load(urllib.request.urlopen(f"{base}api/runs"))["runs"]
        for run in runs:
            urllib.request.urlopen(f"{base}api/runs/{run['id']}").read()  # reading a trace is measured elsewhere: run.py
        for visits in (first, again):
            for run in runs:
                for name in pages:
                    address = f"{base}#/{run['id']}/{name}" if name != "runs" else f"{base}#/"
                    visits.setdefault((run["name"], name), []).append(_visit(page, address, pid))


def _visit(page: Page, address: str, pid: int) -> Visit:
    page.goto("about:blank")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before, busy = _cpu_s(pid), _busy_s(session)
    page.goto(address)
    ready = page.evaluate("ready()")
    visit = Visit(ready, (_busy_s(session) - busy) * 1000, (_cpu_s(pid) - before) * 1000)
    session.detach()
    return visit


def _long_table(browser: Browser, repeat: int) -> list[float]:
    """From the moment that all rows are here until they are painted."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "long.json.gz")
        with _served([Path(folder)]) as (base, pid), _window(browser) as page:
            (run,) = json.load(urllib.request.urlopen(f"{base}api/runs"))["runs"]
            found = []
            for _ in range(repeat + 1):
                _visit(page, f"{base}#/{run['id']}/query?sql={_SQL}", pid)
                page.get_by_role("button", name="Run", exact=True).click()
                page.wait_for_selector(f'[aria-rowcount="{_ROWS + 1}"] [aria-rowindex]')
                page.evaluate("ready()")
                found.append(page.evaluate("painted()"))
            return found[1:]


def _write(path: Path) -> None:
    """A trace of that many operators, each of a name of its own."""
    random.seed(1)
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 2e6}
    ]
    at = 0.0
    for number in range(_ROWS):
        length = round(random.expovariate(1 / 8) + 1, 3)
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": f"aten::op_{number % 37}_{number}", "pid": 1, "tid": 1, "ts": round(at, 3), "dur": length}
        )
        at += length + 1
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump({"schemaVersion": 1, "traceEvents": events}, file)


@contextlib.contextmanager
def _served(paths: list[Path]) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as cache:
        words = [str(Path(sys.executable).with_name("stepscope")), "view", *map(str, paths), "--no-browser", "--no-token"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"STEPSCOPE_CACHE": cache})
        assert process.stdout is not None
        try:
            found = re.search(r"http://[^\s#]+", process.stdout.readline())
            if found is None:
                sys.exit("the server did not start")
            yield found[0], process.pid
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def _window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, locale="en-US", color_scheme="light")
    context.add_init_script(_WATCH)
    yield context.new_page()
    context.close()


def _busy_s(session: CDPSession) -> float:
    return float({one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(first: dict[Any, list[Visit]], again: dict[Any, list[Visit]], paints: list[float], about: str) -> str:
    rows = [[run, page, *_written(visits), *_written(again[run, page])] for (run, page), visits in first.items()]
    slowest = max(statistics.median(one.ready_ms for one in visits) for visits in [*first.values(), *again.values()])
    paint = statistics.median(paints)
    head = ["run", "page", "first ms", "least to most", "CPU: page", "server", "again ms", "least to most", "CPU: page", "server"]
    return "\n".join(
        [
            "# Pages",
            "",
            f"`python benchmarks/pages.py`: {time.strftime('%Y-%m-%d')}, {about}. Medians of {len(paints)}.",
            "",
            table(head, rows),
            f"Slowest median: {slowest:.0f} ms; target {_READY_MS} ms: {'met' if slowest < _READY_MS else 'missed'}.",
            f"A table of {_ROWS:,} rows is painted {paint:.0f} ms ({min(paints):.0f} to {max(paints):.0f}) after its data came; "
            f"target {_PAINT_MS} ms: {'met' if paint < _PAINT_MS else 'missed'}.",
        ]
    )


def _written(visits: list[Visit]) -> list[str]:
    times = [one.ready_ms for one in visits]
    cpu = [f"{statistics.median(values):.0f}" for values in ([one.page_ms for one in visits], [one.server_ms for one in visits])]
    return [f"{statistics.median(times):.0f}", f"{min(times):.0f} to {max(times):.0f}", *cpu]


if __name__ == "__main__":
    main()
