"""Exports as one file to download: a folder becomes a zip archive."""

import inspect
import secrets
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from stepscope import exporters
from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.trace import Trace
from stepscope.server.answers import Answer
from stepscope.server.report import report

_BINARY = "application/octet-stream"
_TYPES = {".gz": "application/gzip", ".db": "application/vnd.sqlite3"}
NUMBERS = ("rank", "t0", "t1")  # of every export
REPORT = "report"  # the pages, which no module of `exporters` writes


def names() -> list[str]:
    """The formats of exports."""
    return sorted([*exporters.names(), REPORT])


def format_parameters(format_name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a format, without paths: a request must not name a file of this machine."""
    every = {} if format_name == REPORT else exporters.exporter(format_name).parameters
    return {name: parameter for name, parameter in every.items() if parameters.type_of(parameter) is not Path}


def pop_rank_and_steps(words: dict[str, str]) -> tuple[int | None, tuple[int, int] | None]:
    """Rank and steps; they are removed from the words of the URL."""
    rank = parameters.value(int, "rank", words.pop("rank")) if "rank" in words else None
    return rank, parameters.steps(words.pop("steps")) if "steps" in words else None


def pop_window(words: dict[str, str], origin_ns: int) -> tuple[int, int] | None:
    """The time range of `t0` and `t1`, nanoseconds since the first timestamp of the run; they are removed from the words."""
    if not {"t0", "t1"} & set(words):
        return None
    if not {"t0", "t1"} <= set(words):
        raise UsageError("expected both t0 and t1")
    low, high = (parameters.value(int, name, words.pop(name)) for name in ("t0", "t1"))
    if not 0 <= low < high:
        raise UsageError(f"t0 is {low} and t1 is {high}; expected 0 <= t0 < t1")
    last = parameters.BOUNDS["end_ns"][1]
    return min(origin_ns + low, last), min(origin_ns + high, last)


def export(trace: Trace, format_name: str, options: dict[str, Any], scratch: Path, name: str) -> Answer:
    file = scratch / secrets.token_hex(8)
    try:
        return _write_export(trace, format_name, options, file, name)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _write_export(trace: Trace, format_name: str, options: dict[str, Any], file: Path, name: str) -> Answer:
    if format_name == REPORT:
        file.write_text(report(trace, name=name).page, "utf-8")
        return Answer(b"", 0, "text/html; charset=utf-8", "report.html", file)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        exporter = exporters.exporter(format_name)
        one_file = len(trace.meta.ranks) < 2  # otherwise a folder with a file for each rank
        out = Path(folder) / (time.strftime(exporter.file) if exporter.file and one_file else format_name)
        exporter.function(trace, out, **options)
        if out.is_file():
            out.replace(file)
            # Other tools search for a file whose name contains the time.
            return Answer(b"", 0, _TYPES.get(out.suffix, _BINARY), out.name, file, fixed_name="%" in (exporter.file or ""))
        method = zipfile.ZIP_STORED if format_name == "parquet" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(file, "x", method, compresslevel=1) as archive:
            for member in sorted(out.rglob("*")):
                archive.write(member, member.relative_to(out))
    return Answer(b"", 0, "application/zip", f"{format_name}.zip", file)
