"""Write a screenshot of the web UI to docs/images/overview.png: `.venv/bin/python docs/pages.py`. Needs the browser of `make test`."""

import base64
import importlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from stepscope.cli.setup.demo import RECORDING

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
chromium = importlib.import_module("chromium")  # the browser of the tests

PICTURE = ROOT / "docs" / "images" / "overview.png"
SIZE = {"width": 1440, "height": 860}


def write_screenshot(page: str, path: Path) -> None:
    """Write a screenshot of one page of the sample recording."""
    command = [str(Path(sys.executable).with_name("stepscope")), "view", str(RECORDING), "--no-browser", "--no-token"]
    with tempfile.TemporaryDirectory() as cache, sync_playwright() as playing:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"STEPSCOPE_CACHE": cache})
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None, "the server did not start"
            browser = playing.chromium.launch(executable_path=chromium.system(), args=chromium.OPTIONS)
            window = browser.new_page(viewport=SIZE, locale="en-US", color_scheme="light")  # type: ignore[arg-type]
            window.goto(address[0])
            window.wait_for_selector("h1 b")
            window.goto(window.url.replace("/overview", f"/{page}"))
            window.wait_for_function("() => !document.querySelector('main .loading, main .stale')")
            window.wait_for_timeout(1000)  # the last chart
            path.write_bytes(palette_png(_pixels(browser.new_page(), window.screenshot())))
            browser.close()
        finally:
            server.terminate()
            server.wait()


def palette_png(pixels: np.ndarray) -> bytes:
    """A PNG with the 256 most frequent colors, a third of the size that the browser writes; other colors are rounded to the nearest."""
    height, width, _ = pixels.shape
    colors, index, count = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = colors[np.argsort(-count)[:256]].astype(np.int32)
    nearest = np.array([np.abs(palette - color).sum(1).argmin() for color in colors.astype(np.int32)], dtype=np.uint8)
    rows = np.hstack([np.zeros((height, 1), np.uint8), nearest[index.ravel()].reshape(height, width)])
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    chunks = [struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)) for kind, content in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _pixels(page: Page, png: bytes) -> np.ndarray:
    """The pixels of a PNG, decoded by the browser."""
    script = """async address => {
        const bitmap = await createImageBitmap(await (await fetch(address)).blob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
        canvas.drawImage(bitmap, 0, 0);
        const bytes = canvas.getImageData(0, 0, bitmap.width, bitmap.height).data;
        const reader = new FileReader();
        reader.readAsDataURL(new Blob([bytes]));
        await new Promise(done => (reader.onload = done));
        return [bitmap.height, bitmap.width, reader.result];
    }"""
    height, width, data = page.evaluate(script, f"data:image/png;base64,{base64.b64encode(png).decode()}")
    return np.frombuffer(base64.b64decode(data.partition(",")[2]), np.uint8).reshape(height, width, 4)[:, :, :3]


if __name__ == "__main__":
    write_screenshot("overview", PICTURE)
