"""After each thing that a test does in the browser, wait until the page has answered: no request under way, nothing loading, all drawn.

A click returns as soon as it is delivered; the address changes at once and the page draws later. A test that looks in between is right on
a fast machine only, so no test has to remember to wait. What happens outside the page, such as a process that ends, is polled with `until`.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 60
Answer = TypeVar("Answer")

ACTIONS = {
    "Page": "goto reload go_back go_forward set_viewport_size emulate_media",
    "Locator": "click dblclick press fill check uncheck select_option set_input_files hover focus dispatch_event type",
    "Keyboard": "press type up",
    "Mouse": "click dblclick move up wheel",
}
COUNT_REQUESTS = """
    window.requestsUnderWay = 0;
    const ask = window.fetch;
    window.fetch = (...words) => {
        window.requestsUnderWay++;
        return ask(...words).finally(() => window.requestsUnderWay--);
    };
"""
# Several frames in a row, because the data of one may request more in the next. A page that never finishes loading or never stops moving
# is not waited for longer than `patience`; the test fails at its next assertion. Requests take longer on a busy machine: `patience` counts
# from the last one.
_SETTLED = """([patience, patienceOfRequests]) => new Promise((done) => {
    const start = performance.now();
    let last = start, calm = 0;
    const look = () => {
        const now = performance.now();
        if (window.requestsUnderWay > 0 && now < start + patienceOfRequests) last = now;
        const headline = document.querySelector("main h1")?.textContent;
        const busy = window.requestsUnderWay > 0 || headline === "…" || document.querySelector(".loading, .stale, [aria-busy=true]");
        calm = busy ? 0 : calm + 1;
        if (calm > 3 || now > last + patience) done();
        else requestAnimationFrame(() => setTimeout(look));
    };
    look();
})"""


def until(look: Callable[[], Answer], right: Callable[[Answer], bool] = bool, patience_s: float = PATIENCE_S) -> Answer:
    """The first answer that is right; the last one where none is within the patience, so that the assertion shows it."""
    end = time.monotonic() + patience_s
    while not right(seen := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return seen


def settle(page: Any, patience_ms: int = 10_000) -> None:
    from playwright.sync_api import Error

    for _ in range(3):  # an action may have led to another document, which ends the evaluation
        if page.is_closed():
            return
        try:
            page.evaluate(_SETTLED, [patience_ms, 1000 * PATIENCE_S])
        except Error as error:
            if "context was destroyed" not in str(error) and "navigat" not in str(error):
                raise
        else:
            return


def settling(pages: Callable[[], list[Any]]) -> Callable[[], None]:
    """From now on every action waits for these pages; what is returned ends that."""
    import playwright.sync_api

    kept: list[tuple[type, str, Any]] = []
    for kind, names in ACTIONS.items():
        owner = getattr(playwright.sync_api, kind)
        for name in names.split():
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, _then_settle(getattr(owner, name), pages))

    def end() -> None:
        for owner, name, method in kept:
            setattr(owner, name, method)

    return end


def _then_settle(method: Any, pages: Callable[[], list[Any]]) -> Any:
    @functools.wraps(method)
    def acted(*words: Any, **named: Any) -> Any:
        answer = method(*words, **named)
        for page in pages():
            settle(page)
        return answer

    return acted
