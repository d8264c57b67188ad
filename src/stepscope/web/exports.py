"""A trace in another format, as one file to download: an export that is a folder comes as a zip archive of it."""

import inspect
import secrets
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from stepscope import exporters, parameters
from stepscope.errors import UsageError
from stepscope.trace import Trace
from stepscope.web.answers import Answer
from stepscope.web.report import report

# What an export that is one file is called. A name with the time of the export in it is the one that other tools look for.
_FILES = {
    "chrome": "trace.json.gz",
    "perfetto": "trace.json.gz",
    "speedscope": "trace.speedscope.json.gz",
    "msprof_db": "msprof_%Y%m%d%H%M%S.db",
}
_TYPES = {".gz": "application/gzip", ".db": "application/vnd.sqlite3"}
NUMBERS = ("rank", "t0", "t1")  # of every export
REPORT = "report"  # the pages themselves, which no module of `exporters` writes


def names() -> list[str]:
    """What a run can be exported as."""
    return sorted([*exporters.names(), REPORT])


def own_parameters(form: str) -> dict[str, inspect.Parameter]:
    """What only this format takes. No request names a file of this machine."""
    given = {} if form == REPORT else exporters.exporter(form).parameters
    return {name: one for name, one in given.items() if parameters.type_of(one) is not Path}


def chosen(words: dict[str, str]) -> tuple[int | None, tuple[int, int] | None]:
    """Rank and steps, taken out of the words of a URL."""
    rank = parameters.value(int, "rank", words.pop("rank")) if "rank" in words else None
    return rank, parameters.steps(words.pop("steps")) if "steps" in words else None


def window(words: dict[str, str], origin_ns: int) -> tuple[int, int] | None:
    """From when to when, of `t0` and `t1`: nanoseconds since the run's first moment."""
    if not {"t0", "t1"} & set(words):
        return None
    if not {"t0", "t1"} <= set(words):
        raise UsageError("expected both t0 and t1")
    low, high = (parameters.value(int, name, words.pop(name)) for name in ("t0", "t1"))
    if not 0 <= low < high:
        raise UsageError(f"no time from {low} to {high}")
    last = parameters.BOUNDS["end_ns"][1]
    return min(origin_ns + low, last), min(origin_ns + high, last)


def part(trace: Trace, rank: int | None, steps: tuple[int, int] | None, time: tuple[int, int] | None = None) -> Trace:
    trace = trace if rank is None else trace.of_rank(rank)
    trace = trace if steps is None else trace.of_steps(*steps)
    return trace if time is None else trace.of_time(*time)


def export(trace: Trace, form: str, given: dict[str, Any], scratch: Path, name: str) -> Answer:
    made = scratch / secrets.token_hex(8)
    try:
        return _exported(trace, form, given, scratch, name, made)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _exported(trace: Trace, form: str, given: dict[str, Any], scratch: Path, name: str, made: Path) -> Answer:
    if form == REPORT:
        made.write_text(report(trace, name=name).page, "utf-8")
        return Answer(b"", 0, "text/html; charset=utf-8", "report.html", made)
    with tempfile.TemporaryDirectory(dir=scratch) as room:
        several = len(trace.meta.ranks) > 1  # then it is a folder, with a file for each
        named = _FILES.get(form, form)
        out = Path(room) / (form if several else time.strftime(named))
        exporters.exporter(form).function(trace, out, **given)
        if out.is_file():
            out.replace(made)
            return Answer(b"", 0, _TYPES[out.suffix], out.name, made, known_by_name="%" in named)
        how = zipfile.ZIP_STORED if form == "parquet" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(made, "x", how, compresslevel=1) as archive:
            for one in sorted(out.rglob("*")):
                archive.write(one, one.relative_to(out))
    return Answer(b"", 0, "application/zip", f"{form}.zip", made)
