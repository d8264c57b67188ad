"""A timeline that is open in the browser, for tests of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from settling import settle, until

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page

    from web.conftest import Served

SAMPLES = Path(__file__).parent / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
PATIENCE = 20_000
__all__ = ["PATIENCE", "RESNET", "SAMPLES", "Shown", "until"]


class Shown:
    """A timeline that is open."""

    def __init__(self, page: "Page", served: "Served", run: str, query: str = "") -> None:
        self.page, self.served, self.run = page, served, served.run(run)
        self.base = f"api/runs/{self.run}/timeline"
        from playwright.sync_api import expect

        page.goto(served.url(f"#/{self.run}/timeline{f'?{query}' if query else ''}"))
        expect(page.locator(".tl-picture canvas")).to_be_visible(timeout=PATIENCE)
        self.rest()

    def rest(self) -> None:
        """Until nothing is read and nothing moves."""
        from playwright.sync_api import expect

        settle(self.page, PATIENCE)
        expect(self.page.locator(".tl-picture")).to_have_attribute("aria-busy", "false", timeout=PATIENCE)
        settle(self.page, PATIENCE)

    @property
    def address(self) -> dict[str, str]:
        """The parameters of the address."""
        found: dict[str, str] = self.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1] ?? ''))")
        return found

    @property
    def window(self) -> tuple[float, float]:
        header = json.loads(self.served.ask(self.base).body)
        address = self.address
        return float(address.get("t0", 0)), float(address.get("t1", header["end_ns"]))

    def lane(self, track: int) -> "tuple[int, Locator]":
        lanes = json.loads(self.served.ask(self.base).body)["lanes"]
        found = next(lane for lane in lanes if lane["track"] == track and lane["kind"] == "spans")
        return found["id"], self.page.locator(f'[data-lane="{found["id"]}"]')

    @property
    def box(self) -> "FloatRect":
        found = self.page.locator(".tl-picture").bounding_box()
        assert found is not None
        return found

    def moment(self, x: float) -> float:
        """What stands at a place of the window of the browser."""
        low, high = self.window
        return low + (x - self.box["x"]) / self.box["width"] * (high - low)

    def at(self, moment: float) -> float:
        """Where a moment is, in the window of the browser."""
        low, high = self.window
        return self.box["x"] + (moment - low) / (high - low) * self.box["width"]

    def place(self, track: int, moment: float) -> tuple[float, float]:
        """Where the first row of a track's lane is at a moment, in the window of the browser."""
        name = self.lane(track)[1].bounding_box()
        assert name is not None
        return self.at(moment), name["y"] + 10

    def pixel(self, x: float, y: float) -> tuple[int, int, int]:
        """The colour that is drawn at a place of the window of the browser."""
        found: list[int] = self.page.evaluate(
            """([x, y]) => { const c = document.querySelector('.tl-picture canvas'), box = c.getBoundingClientRect();
                const r = c.width / box.width;
                const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');
                copy.drawImage(c, 0, 0);
                return [...copy.getImageData(Math.round((x - box.left) * r), Math.round((y - box.top) * r), 1, 1).data] }""",
            [x, y],
        )
        return found[0], found[1], found[2]
