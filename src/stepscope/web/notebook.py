"""A page inside a notebook: the single-file report in a frame of its own, which stays in the notebook when it is saved."""

import html
from pathlib import Path

from stepscope.trace import Trace
from stepscope.web.report import MAX_BYTES, report


class View:
    """What `trace.view()` gives a notebook to draw."""

    def __init__(self, page: str, height: int) -> None:
        self._page, self._height = page, height

    def _repr_html_(self) -> str:
        # Without allow-same-origin the page inside cannot reach the notebook around it.
        return (
            f'<iframe srcdoc="{html.escape(self._page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self._height}px; border: 0" title="stepscope"></iframe>'
        )


def view(trace: Trace, *, page: str = "overview", height: int = 720, max_bytes: int = MAX_BYTES) -> View:
    return View(report(trace, name=Path(trace.meta.source).name or "trace", page=page, max_bytes=max_bytes).page, height)
