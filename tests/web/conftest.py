"""A real server on a free port, and a real browser that fails the test on whatever it complains of.

    def test_something(server, page):
        served = server(SAMPLES)                    # kept for the whole session: the same paths and settings are served once
        page.goto(served.url("#/run/overview"))     # with the token; `served.base` and `served.token` by themselves

`page` fails the test on an error in the console, an exception, a violation of the content security policy, a request that fails and a
request to another origin. A test that provokes one looks at `complaints` and empties it.
"""

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import chromium
import settling
from stepscope.server.app import Settings
from stepscope.server.http import http_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server that runs: where, and what opens it."""

    port: int
    token: str | None
    prefix: str = ""
    host: str = "127.0.0.1"
    stop: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def base(self) -> str:
        return f"http://{self.host}:{self.port}{self.prefix}/"

    def url(self, rest: str = "") -> str:
        """The address with the token, and then a fragment such as #/run/overview."""
        return f"{self.base}{f'?token={self.token}' if self.token else ''}{rest}"

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None, *, bearer: bool = True
    ) -> Answer:
        """The answer to exactly this path: nothing is resolved or escaped on the way."""
        given = {"Authorization": f"Bearer {self.token}"} if bearer and self.token else {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, f"{self.prefix}/{path}", body, given | (headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def run(self, name: str) -> str:
        """The id of the run of this name."""
        found = [run["id"] for run in self.ask("api/runs").json()["runs"] if run["name"] == name]
        assert len(found) == 1, (name, found)
        return str(found[0])


Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def server() -> Iterator[Serve]:
    """Serve paths: `server(path, ..., token="t", prefix="/x")`. Settings are those of web/app.py; `address` is what to listen on."""
    running: dict[str, Served] = {}

    def serve(*paths: Path, token: str | None = "a-token-for-tests", address: str = "127.0.0.1", **settings: Any) -> Served:
        output = Settings(roots=[Path(path) for path in paths], token=token, **settings)
        if (key := f"{address} {output!r}") not in running:
            running[key] = _started(output, address)
        return running[key]

    yield serve
    for one in running.values():
        one.stop()


def _started(settings: Settings, address: str) -> Served:
    listener = http_server.listen(address, 0)
    up = threading.Event()
    made = http_server.make(settings, up.set)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert up.wait(30), "the server did not start"

    def stop() -> None:
        made.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the server did not end"

    return Served(listener.getsockname()[1], settings.token, settings.prefix, stop=stop)


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, headless: the system's, or else the one that `make test` has installed with Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as playing:
        found = playing.chromium.launch(executable_path=chromium.system(), args=chromium.OPTIONS)
        end = settling.settling(lambda: [page for context in found.contexts for page in context.pages])
        yield found
        end()
        found.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained of during this test."""
    return []


@pytest.fixture
def page(browser: "Browser", complaints: list[str]) -> Iterator["Page"]:
    """A fresh page of 1440 x 900, in English and light."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", color_scheme="light")
    made = context.new_page()
    if slowness := os.environ.get("STEPSCOPE_SLOW_BROWSER"):  # how many times slower: what a test forgot to wait for shows
        tools = context.new_cdp_session(made)
        tools.send("Emulation.setCPUThrottlingRate", {"rate": float(slowness)})
        tools.send("Network.enable")
        slow = {"offline": False, "latency": 20 * float(slowness), "downloadThroughput": -1, "uploadThroughput": -1}
        tools.send("Network.emulateNetworkConditions", slow)
    watch(made, complaints)
    yield made
    context.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def watched(complaints: list[str]) -> Callable[["Page"], None]:
    """Watch another page than `page`: what it complains of is in `complaints`."""
    return lambda page: watch(page, complaints)


def watch(page: "Page", complaints: list[str]) -> None:
    """Note everything that a page complains of."""
    origins: set[str] = set()

    def requested(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("data", "blob", "about", "file"):  # a file: the report; a served page cannot reach one
            return
        origins.add(f"{parts.scheme}://{parts.netloc}")
        if len(origins) > 1 or parts.hostname not in ("127.0.0.1", "localhost"):
            complaints.append(f"a request to another origin: {request.url}")

    def failed(request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # what the page itself gave up, or left behind
            complaints.append(f"a request failed: {request.url}: {request.failure}")

    page.on("console", lambda output: complaints.append(f"console: {output.text}") if output.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("request", requested)
    page.on("requestfailed", failed)
    page.add_init_script(settling.COUNT_REQUESTS)
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`))"
    )
