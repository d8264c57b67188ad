"""A page inside a notebook: the report in a frame, which is saved with the notebook."""

import html
from pathlib import Path

from stepscope.model.trace import Trace
from stepscope.server.report import MAX_BYTES, report


class View:
    """The result of `trace.view()`, which a notebook displays."""

    def __init__(self, page: str, height: int) -> None:
        self._page, self._height = page, height

    def _repr_html_(self) -> str:
        # Without allow-same-origin the page cannot access the notebook.
        return (
            f'<iframe srcdoc="{html.escape(self._page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self._height}px; border: 0" title="stepscope"></iframe>'
        )


def view(trace: Trace, *, page: str = "overview", height: int = 720, max_bytes: int = MAX_BYTES) -> View:
    return View(report(trace, name=Path(trace.meta.source).name or "trace", page=page, max_bytes=max_bytes).page, height)
