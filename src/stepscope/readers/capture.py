"""Captures: what stepscope's own recording leaves where it could not write a run folder itself.

A capture has the framework's part, which a module of its own turns into a trace (`_BASES`), and tables that any collector adds:

    ranges     name, start_ns, dur_ns, tid, thread, args          ranges that users name
    steps      step, start_ns, end_ns                             calls of Profiler.step()
    counters   name, at_ns, value, unit                           samples
    pipeline   op_id, op_type, workers, parent, queue_capacity    the input pipeline
    spans      any columns of the table `spans`, with tid, thread and group in place of track
    stack_*    Python's stacks, see collect/stacks.py
"""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import captures, schema
from stepscope.errors import DataError
from stepscope.readers import Options, _mindspore_capture, _stacks, _torch_capture, _xplane_capture
from stepscope.trace import Meta, Trace, complete

# The framework's part: capture.json's "base" -> the function that reads it.
_BASES: dict[str, Callable[[Path, dict[str, Any], Options], Trace]] = {
    "mindspore": _mindspore_capture.read,
    "torch": _torch_capture.read,
    "jax": _xplane_capture.read,
    "tensorflow": _xplane_capture.read,
}


def sniff(path: Path) -> bool:
    return path.is_dir() and (path / captures.HEADER).is_file()


def read(path: Path, options: Options) -> Trace:
    try:
        header = captures.header(path)
    except (OSError, ValueError) as error:
        raise DataError(path / captures.HEADER, f"not a capture's header ({error})") from error
    version = header.get("capture_version")
    if not isinstance(version, int) or version > captures.VERSION:
        raise DataError(path / captures.HEADER, f"a capture of version {version}; this stepscope reads {captures.VERSION}: upgrade it")
    base = _BASES[header["base"]](path, header, options) if header.get("base") in _BASES else Trace({})
    return _with_extras(base, path, header)


def _with_extras(base: Trace, path: Path, header: dict[str, Any]) -> Trace:
    """The framework's trace with what the other collectors saw."""
    rank = int(header.get("rank", 0))
    tables: dict[str, pl.LazyFrame] = dict(base.tables)
    spans, tracks = _more_spans(base, path, header)
    steps = _with_words(frame(path, "steps"), how="marker")
    if base.steps.filter(pl.col("how").cast(pl.String) != "whole").collect().height == 0 and steps.height:
        tables["steps"] = schema.conform(steps.with_columns(rank=rank).lazy(), "steps")
    notices = [{"rank": rank, "file": path.name, **said} for said in header.get("notices", [])]
    if not header.get("whole"):
        notices.append({"rank": rank, "file": path.name, "what": "the job ended while recording: what had been written is here", "lost": 0})
    more = {
        "spans": spans,
        "tracks": tracks,
        "counters": frame(path, "counters"),
        "pipeline": frame(path, "pipeline"),
        "problems": pl.DataFrame(notices, schema_overrides={"what": pl.String}),
    }
    for name, rows in more.items():
        if rows.height:
            added = schema.conform(rows.with_columns(rank=pl.lit(rank, pl.Int32)).lazy(), name)
            tables[name] = pl.concat([tables[name], added])
    return Trace(tables, _meta(base.meta, header, rank))


def _more_spans(base: Trace, path: Path, header: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans that no framework recorded, on tracks of their own: the user's ranges, steps, whatever collectors added."""
    process = f"{header.get('program') or 'python'} {header.get('pid', '')}".strip()
    ranges = _with_words(frame(path, "ranges"), kind="annotation", group=process, track_kind="annotation")
    steps = frame(path, "steps")
    marked = pl.DataFrame()
    if steps.height:
        marked = steps.select(
            name=pl.format("ProfilerStep#{}", "step"),
            start_ns="start_ns",
            dur_ns=pl.col("end_ns") - pl.col("start_ns"),
            kind=pl.lit("step"),
            tid=pl.lit(0, pl.Int64),
            thread=pl.lit("steps"),
            group=pl.lit(process),
            track_kind=pl.lit("annotation"),
        )
    has_markers = base.spans.filter(pl.col("kind") == "step").head(1).collect().height > 0
    stacks = _with_words(_frames_of_python(path), kind="python", group=process, track_kind="thread")
    found = [part for part in (ranges, marked.clear() if has_markers else marked, frame(path, "spans"), stacks) if part.height]
    if not found:
        return pl.DataFrame(), pl.DataFrame()
    spans = pl.concat(found, how="diagonal_relaxed")
    lanes = spans.select("group", "track_kind", "tid", "thread").unique(maintain_order=True)
    first_track, first_span = (
        base.tracks.select(pl.col("track").max()).collect().item() or 0,
        base.spans.select(pl.col("span").max()).collect().item() or 0,
    )
    lanes = lanes.with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32) + first_track + 1)
    placed = spans.join(lanes, on=["group", "track_kind", "tid", "thread"], how="left", nulls_equal=True, maintain_order="left")
    placed = placed.with_columns(span=pl.int_range(pl.len(), dtype=pl.Int64) + first_span + 1)
    filled = complete(placed)
    if steps.height and "step" not in filled.columns:
        filled = (
            filled.sort("start_ns")
            .join_asof(steps.select("step", start_ns="start_ns", step_end="end_ns").sort("start_ns"), on="start_ns")
            .with_columns(step=pl.when(pl.col("start_ns") < pl.col("step_end")).then("step"))
        )
    tracks = lanes.select(
        "track",
        "group",
        label=pl.col("thread"),
        kind="track_kind",
        sort="track",
        pid=pl.lit(str(header.get("pid", ""))),
        tid=pl.col("tid").cast(pl.String),
    )
    return filled, tracks


def _with_words(rows: pl.DataFrame, **words: str) -> pl.DataFrame:
    """The rows with the same words in each. Polars 1 makes a row of words where there is none."""
    return rows.with_columns(pl.lit(word).alias(name) for name, word in words.items()) if rows.height else rows


def frame(path: Path, table: str) -> pl.DataFrame:
    """A table of the capture, all pieces."""
    parts = []
    try:
        for piece in captures.pieces(path, table):
            columns = {}
            for name, values in piece.items():
                if isinstance(values, tuple):
                    codes, words = values
                    text = pl.Series([*words, None], dtype=pl.String).cast(pl.Categorical)
                    columns[name] = text.gather(pl.Series(codes).replace(-1, len(words)).cast(pl.UInt32))
                else:
                    columns[name] = pl.Series(values)
            parts.append(pl.DataFrame(columns))
    except _DAMAGE as error:
        raise DataError(path, f"the column file of '{table}' is damaged ({error})") from error
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


_DAMAGE = (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile, zlib.error)


def _frames_of_python(path: Path) -> pl.DataFrame:
    try:
        return _stacks.spans(path)
    except _DAMAGE as error:
        raise DataError(path, f"a column file of Python's stacks is damaged ({error})") from error


def _meta(base: Meta, header: dict[str, Any], rank: int) -> Meta:
    known = {key: header[key] for key in ("program", "host", "pid", "parent", "process", "metadata", "start_ns", "end_ns") if key in header}
    return Meta(
        format="capture",
        framework=base.framework or str(header.get("framework") or "python"),
        versions=base.versions | {str(key): str(value) for key, value in header.get("versions", {}).items()},
        world_size=header.get("world_size"),
        ranks=[rank],
        options=header.get("options", {}),
        extra=base.extra | known,
    )
