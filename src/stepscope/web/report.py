"""One HTML file with the pages and their tables: opens by double click, asks nothing of any machine."""

import base64
import gzip
import hashlib
import html
import io
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from stepscope import units
from stepscope.errors import UsageError
from stepscope.parameters import check_word
from stepscope.timelines import carrying
from stepscope.trace import Trace, analysis, analysis_names
from stepscope.web import RUN_PAGES
from stepscope.web.pages import DIST
from stepscope.web.runs import describe

MAX_BYTES = 10_000_000
# What the pages ask beyond every analysis as it is; what only keeps some rows they take from the whole.
_VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("allocations_by_op", {"by_scope": True}),
    ("cluster_steps", {"per_step": False}),
    ("cluster_steps", {"per_step": False, "warmup": 0}),
    ("data_queues", {"per_step": False}),
    ("durations", {"by": "operator"}),
    ("durations", {"by": "type"}),
    ("gap_causes", {"per_step": True}),
    ("gap_causes", {"warmup": 0}),
    ("hot_paths", {"min_share": 0.001}),
    ("kernels", {"by_scope": True}),
    ("kernels", {"copies": True}),
    ("kernels", {"by_scope": True, "copies": True}),
    ("memory", {"by_event": False, "pixels": 1500}),
    ("memory", {"by_event": True, "pixels": 1500}),
    ("overview", {"warmup": 0}),
    ("reduces_per_step", {"warmup": 0}),
    ("step_times", {"warmup": 0}),
]
_TIMELINE = 0.3  # of the file, at most
_STEPS = 20  # steps whose pictures are carried
_TABLES = ("steps", "tracks", "devices", "pipeline", "problems")


class Report(msgspec.Struct, frozen=True):
    """The file's content, and what did not fit into it."""

    page: str
    left_out: list[str]


def report(trace: Trace, *, name: str, page: str = "overview", max_bytes: int = MAX_BYTES) -> Report:
    """The pages of a trace in one file of about `max_bytes` at most; the largest tables are left out first, and the pages say so."""
    check_word("page", page, RUN_PAGES)
    script, style = ((DIST / "report" / file).read_text("utf-8") for file in ("report.js", "report.css"))
    room = max_bytes - len(script) - len(style)
    if room < 0:
        least = units.decimal_size(len(script) + len(style))
        raise UsageError(f"--max-size is {units.decimal_size(max_bytes)}; expected more than {least}, the size of the pages without data")
    parts: dict[str, dict[str, int]] = {}
    packed: list[str] = []
    left_out: list[str] = []
    for question, rows, data in sorted(_answers(trace), key=lambda answer: len(answer[2])):
        parts[question] = {"rows": rows, "bytes": len(data)}
        if len(data) > room:
            left_out.append(question)
            continue
        room -= len(data)
        parts[question]["at"] = len(packed)
        packed.append(data)
    left = min(room, int(max_bytes * _TIMELINE))
    for address, content in carrying.parts(trace):
        data = _packed(content)
        left -= len(data)
        if left < 0:
            break
        parts[address] = {"rows": 0, "bytes": len(data), "at": len(packed)}
        packed.append(data)
    contents = {"info": describe(trace, name, name) | {"part": None}, "page": page, "parts": parts, "limit": max_bytes}
    return Report(_page(name, script, style, contents, packed), left_out)


def question(name: str, parameters: dict[str, Any]) -> str:
    """A table's name in the report: the same text as frontend/src/still.ts makes."""
    given = sorted(
        f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in parameters.items() if value not in (None, "")
    )
    return f"{name}?{'&'.join(given)}" if given else name


def _answers(trace: Trace) -> "itertools.chain[tuple[str, int, str]]":
    """Every table of the report: its question, its rows and its packed bytes."""
    plain: list[tuple[str, dict[str, Any]]] = [
        (name, {}) for name in analysis_names() if all(one.default is not one.empty for one in analysis(name).parameters.values())
    ]
    wanted = [*plain, *_VARIANTS, *_moments(trace)]
    asked = ((question(name, parameters), trace.analyse(name, **parameters)) for name, parameters in wanted)
    tables = ((f"tables/{name}", trace.table(name).collect()) for name in _TABLES)
    return itertools.chain(((key, frame.height, _pack(frame)) for key, frame in itertools.chain(asked, tables)))


def _moments(trace: Trace) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the pages ask of particular steps and moments: the picture of a step, and the tensors alive when the most memory was in use."""
    for step in trace.steps.select("step").unique().sort("step").head(_STEPS).collect()["step"]:
        yield "activity", {"buckets": 400, "step": step}
    for at in trace.analyse("memory_peaks")["peak_ns"].drop_nulls().unique():
        yield "live_tensors", {"at_ns": at}


def _pack(frame: pl.DataFrame) -> str:
    stream = io.BytesIO()
    frame.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    return _packed(stream.getvalue())


def _packed(content: bytes) -> str:
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
