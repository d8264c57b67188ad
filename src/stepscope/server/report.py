"""One HTML file with the pages and their tables, which opens without a server or network."""

import base64
import gzip
import hashlib
import html
import io
from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace
from stepscope.server import RUN_PAGES
from stepscope.server.http.pages import DIST
from stepscope.server.runs import describe
from stepscope.timeline import report as timeline_report

MAX_BYTES = 10_000_000
_TIMELINE = 0.3  # largest share of the file
_STEPS = 20  # steps with a picture


class Report(msgspec.Struct, frozen=True):
    """The content of the file, and the tables that did not fit."""

    page: str
    left_out: list[str]


def report(trace: Trace, *, name: str, page: str = "overview", max_bytes: int = MAX_BYTES) -> Report:
    """The pages of a trace in one file of at most about `max_bytes`. The largest tables are left out first; the pages name them."""
    check_word("page", page, RUN_PAGES)
    script, style = ((DIST / "report" / file).read_text("utf-8") for file in ("report.js", "report.css"))
    room = max_bytes - len(script) - len(style)
    if room < 0:
        least = units.decimal_size(len(script) + len(style))
        raise UsageError(f"--max-size is {units.decimal_size(max_bytes)}; expected more than {least}, the size of the pages without data")
    parts: dict[str, dict[str, int]] = {}
    packed: list[str] = []
    left_out: list[str] = []
    for key, rows, data in sorted(_tables(trace), key=lambda answer: len(answer[2])):
        parts[key] = {"rows": rows, "bytes": len(data)}
        if len(data) > room:
            left_out.append(key)
            continue
        room -= len(data)
        parts[key]["at"] = len(packed)
        packed.append(data)
    left = min(room, int(max_bytes * _TIMELINE))
    for address, content in timeline_report.parts(trace):
        data = _compress(content)
        left -= len(data)
        if left < 0:
            break
        parts[address] = {"rows": 0, "bytes": len(data), "at": len(packed)}
        packed.append(data)
    contents = {"info": describe(trace, name, name) | {"part": None}, "page": page, "parts": parts, "limit": max_bytes}
    return Report(_page(name, script, style, contents, packed), left_out)


def table_key(name: str, parameters: dict[str, Any]) -> str:
    """The key of a table in the report; frontend/src/report_source.ts builds the same text."""
    words = sorted(
        f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in parameters.items() if value not in (None, "")
    )
    return f"{name}?{'&'.join(words)}" if words else name


def _tables(trace: Trace) -> Iterator[tuple[str, int, str]]:
    """Every table that the pages query (frontend/src/queries.json): its key, its number of rows and its compressed bytes."""
    queries: dict[str, list[dict[str, Any]]] = msgspec.json.decode((DIST / "report" / "queries.json").read_bytes())
    for name, variants in queries.items():
        for parameters in [expanded for variant in variants for expanded in _expand(trace, variant)]:
            raw = name.startswith("tables/")
            frame = trace.table(name.removeprefix("tables/")).collect() if raw else trace.analyse(name, **parameters)
            yield table_key(name, parameters), frame.height, _pack(frame)


def _expand(trace: Trace, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters as they are; or for each of the first steps, or for each peak of memory."""
    if parameters.get("step") == "each":
        steps = trace.steps.select("step").unique().sort("step").head(_STEPS).collect()["step"]
        return [{**parameters, "step": step} for step in steps]
    if parameters.get("at_ns") == "peak":
        return [{**parameters, "at_ns": at} for at in trace.analyse("memory_peaks")["peak_ns"].drop_nulls().unique()]
    return [parameters]


def _pack(frame: pl.DataFrame) -> str:
    stream = io.BytesIO()
    frame.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    return _compress(stream.getvalue())


def _compress(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _page(title: str, script: str, style: str, contents: dict[str, Any], packed: list[str]) -> str:
    # Inside a script element only this could end it; JSON may write it so, and JavaScript too, within its strings.
    code = script.replace("</script", "<\\/script")
    about = msgspec.json.encode(contents).decode().replace("<", "\\u003c")
    allowed = (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    tables = "\n".join(f'<script type="text/plain" id="part-{at}">{data}</script>' for at, data in enumerate(packed))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{allowed}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)} · stepscope</title>
<style>{style}</style>
<div id="app"></div>
<script type="application/json" id="contents">{about}</script>
{tables}
<script>{code}</script>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
