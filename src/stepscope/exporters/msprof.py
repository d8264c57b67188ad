"""The folder that Ascend's msprof writes (mindstudio_profiler_output), of any trace: timelines, tables and a README.txt.

A column that the trace knows nothing of says N/A. Tables are cut after a million rows. A trace of several ranks becomes a folder of
such folders.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from stepscope.errors import UsageError
from stepscope.exporters import _msprof_readme, _msprof_summaries, _msprof_timeline, whole
from stepscope.exporters._msprof_work import work
from stepscope.trace import Trace

_ROWS = 1_000_000
_OURS = re.compile(r"README\.txt|[a-z_0-9]+_\d{14}\.(csv|json)")


def export(
    trace: Trace,
    out: Path,
    *,
    overwrite: bool = False,
    model_id: int | None = None,
    iteration_id: int | None = None,
    summary_format: str = "csv",
) -> None:
    """`model_id` and `iteration_id` restrict what is written to a model and one of its iterations; `summary_format` is csv or json."""
    if summary_format not in ("csv", "json"):
        raise UsageError(f"no such format of tables: '{summary_format}'; there are csv and json")
    if overwrite and out.is_dir() and not all(map(_is_ours, out.iterdir())):
        raise UsageError(f"{out} holds more than what msprof writes, so it is not replaced; choose another name")
    ranks = trace.meta.ranks or [0]
    with whole(out, overwrite=overwrite) as draft:
        draft.mkdir()
        for rank in ranks:
            folder = draft if len(ranks) == 1 else draft / f"rank_{rank}"
            folder.mkdir(exist_ok=True)
            _write(trace if len(ranks) == 1 else trace.of_rank(rank), folder, summary_format)


def _is_ours(path: Path) -> bool:
    if path.is_dir():
        return re.fullmatch(r"rank_\d+", path.name) is not None and all(map(_is_ours, path.iterdir()))
    return _OURS.fullmatch(path.name) is not None


def _write(trace: Trace, folder: Path, summary_format: str) -> None:
    found = work(trace)
    at = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
    _timeline(_msprof_timeline.step_events(found), folder / f"step_trace_{at}.json")
    _timeline(_msprof_timeline.events(found), folder / f"msprof_{at}.json")
    for name, portions in _msprof_summaries.tables(found).items():
        taken = summary_format == "json" and name == "step_trace"  # by the timeline
        _table(portions, folder, f"{name}_summary" if taken else name, at, summary_format)
    (folder / "README.txt").write_text(_msprof_readme.text({_kind(file) for file in folder.iterdir()}), encoding="utf-8")


def _kind(file: Path) -> str:
    """`op_summary.csv` of op_summary_slice_0_20261115021201.csv."""
    return re.sub(r"(_slice_\d+)?_\d{14}", "", file.name)


def _timeline(portions: Iterator[pl.Series], path: Path) -> None:
    with path.open("wb") as file:
        for lines in portions:
            if lines.len():
                file.write(b"[\n" if file.tell() == 0 else b",\n")
                file.write(lines.str.join(",\n").item().encode())
        if file.tell():
            file.write(b"\n]\n")
    if path.stat().st_size == 0:
        path.unlink()


def _table(portions: Iterator[pl.DataFrame], folder: Path, name: str, at: str, summary_format: str) -> None:
    """A file, or, of more than a million rows, several."""
    files: list[Path] = []
    rows = 0
    for portion in portions:
        here = 0
        while here < portion.height:
            if rows % _ROWS == 0:
                files.append(folder / f"{name}_slice_{len(files)}_{at}.{summary_format}")
            part = portion[here : here + _ROWS - rows % _ROWS]
            with files[-1].open("ab") as file:
                _append(part, file, summary_format)
            rows, here = rows + part.height, here + part.height
    for path in files if summary_format == "json" else []:
        with path.open("ab") as file:
            file.write(b"]\n")
    if len(files) == 1:
        files[0].rename(folder / f"{name}_{at}.{summary_format}")


def _append(rows: pl.DataFrame, file: BinaryIO, summary_format: str) -> None:
    first = file.tell() == 0
    if summary_format == "json":
        file.write((b"[" if first else b",\n") + rows.write_json().encode()[1:-1])
        return
    if first:  # columns of one name are numbered, which the file does not show
        file.write((",".join(name.partition("#")[0] for name in rows.columns) + "\n").encode())
    rows.write_csv(file, include_header=False, null_value="N/A")
