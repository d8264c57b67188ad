"""Captures: what stepscope's own recording leaves where it could not write a run folder itself.

A capture has the framework's part, which a module of its own turns into a trace (`_BASES`), and tables that any collector adds:

    ranges     name, start_ns, dur_ns, tid, thread, args          ranges that users name
    steps      step, start_ns, end_ns                             calls of Profiler.step()
    counters   name, at_ns, value, unit                           samples
    pipeline   op_id, op_type, workers, parent, queue_capacity    the input pipeline
    spans      any columns of the table `spans`, with tid, thread and group in place of track
    unprofiled_steps  order (since the process began), step, dur_ns, after (the window)    steps that were not recorded
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
from stepscope.readers import Options, _mindspore_capture, _stacks, _torch_capture, _wall_clock, _xplane_capture
from stepscope.trace import Meta, StepDurations, Trace, UnprofiledSteps, complete

# The framework's part: capture.json's "base" -> the function that reads it.
_BASES: dict[str, Callable[[Path, dict[str, Any], Options], Trace]] = {
    "mindspore": _mindspore_capture.read,
    "torch": _torch_capture.read,
    "jax": _xplane_capture.read,
    "tensorflow": _xplane_capture.read,
}
FORMAT = "stepscope capture"


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
    # A job that was killed may not have come to write who collected, but always what it was to record.
    name = header.get("base") or (None if header.get("whole") else header.get("framework"))
    base = _BASES[name](path, header, options) if name in _BASES else Trace({})
    return _with_extras(base, path, header)


def _with_extras(base: Trace, path: Path, header: dict[str, Any]) -> Trace:
    """The framework's trace with what the other collectors saw."""
    rank = int(header.get("rank", 0))
    tables: dict[str, pl.LazyFrame] = dict(base.tables)
    spans, tracks = _more_spans(base, path, header)
    steps = _with_words(frame(path, "steps"), how="marker")
    known = base.steps.filter(pl.col("how").cast(pl.String) != "whole").collect()
    if steps.height and known.is_empty():
        tables["steps"] = schema.conform(steps.with_columns(rank=rank).lazy(), "steps")
    elif (missing := _lost_steps(known["step"], steps, header)).height:
        added = schema.conform(missing.with_columns(rank=rank).lazy(), "steps")
        tables["steps"] = pl.concat([base.steps, added]).sort("start_ns")
    notices = [{"rank": rank, "file": path.name, **said} for said in header.get("notices", [])]
    if not header.get("whole"):
        notices.append({"rank": rank, "file": path.name, "what": "the job ended while recording: what had been written is here", "lost": 0})
    if (header.get("base") or header.get("framework")) in _BASES and (why := _why_not_written(path, header)):
        notices += [{"rank": rank, "file": path.name, **said} for said in _steps_without_operators(base, steps, why)]
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
    return Trace(tables, _meta(base.meta, header, rank, _unprofiled_steps(path, rank)))


def _why_not_written(path: Path, header: dict[str, Any]) -> str | None:
    if reason := header.get("incomplete"):
        return f"operators were not written: {reason}"
    if header.get("whole"):
        return None
    return _NOT_YET if captures.recorder(path) else "operators were not written when the job was killed"


_NOT_YET = "operators are not written yet"


def _steps_without_operators(base: Trace, steps: pl.DataFrame, why: str) -> list[dict[str, Any]]:
    """Frameworks hand over operators now and then, steps are written at once: those after the last operator are without."""
    kinds = pl.col("kind").cast(pl.String)
    on_host, on_device = (
        base.spans.filter(kinds.is_in(found)).select(pl.col("start_ns").max()).collect().item()
        for found in (["op", "api"], ["kernel", "copy", "set", "communication"])  # what a device runs may begin a step later
    )
    last = on_device if on_host is None else on_host
    lost = steps if last is None or steps.is_empty() else steps.filter(pl.col("start_ns") > last)
    if lost.is_empty():
        return [] if last is not None else [{"what": why, "lost": 0}]
    first, end = lost["step"][0], lost["step"][-1]
    return [
        {"what": f"{f'steps {first} to {end}' if first != end else f'step {first}'}: {why}", "lost": 0 if why is _NOT_YET else lost.height}
    ]


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
    markers = base.spans.filter(pl.col("kind") == "step").select("step").collect()["step"]
    if len(markers) and marked.height:
        marked = marked.filter(pl.Series(steps["step"].is_in(_lost_steps(markers, steps, header)["step"].implode())))
    stacks = _with_words(_frames_of_python(path), kind="python", group=process, track_kind="thread")
    found = [part for part in (ranges, marked, frame(path, "spans"), stacks) if part.height]
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


def _lost_steps(known: pl.Series, steps: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Steps that we marked and the framework's profiler does not have, as where the machine's clock was set and took its spans away."""
    if steps.is_empty() or not _wall_clock.was_set(header) or header.get("base") not in ("torch", "jax", "tensorflow"):
        return steps.clear()
    return steps.filter(~pl.col("step").is_in(known.implode()))


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


_FIRST, _ENOUGH = 3, 2  # steps of a process that compile, tune and allocate; how many others there must be to do without them


def _unprofiled_steps(path: Path, rank: int) -> list[UnprofiledSteps]:
    rows = frame(path, "unprofiled_steps")
    if rows.is_empty():
        return []
    # Those before the window, where there are enough: once NVIDIA's tracing has been on, kernels are launched more slowly to the end.
    settled = pl.col("order") >= _FIRST
    choices = [rows.filter(settled & ~pl.col("after"))["dur_ns"], rows.filter(settled)["dur_ns"]]
    counted = next((choice for choice in choices if choice.len() >= _ENOUGH), rows["dur_ns"])
    p10, median, p90 = (round(counted.quantile(share, "linear") or 0) for share in (0.1, 0.5, 0.9))
    before, after = (
        StepDurations(step=part["step"].to_list(), dur_ns=part["dur_ns"].to_list())
        for part in (rows.filter(~pl.col("after")), rows.filter("after"))
    )
    return [UnprofiledSteps(rank=rank, count=counted.len(), median_ns=median, p10_ns=p10, p90_ns=p90, before=before, after=after)]


def _meta(base: Meta, header: dict[str, Any], rank: int, unprofiled: list[UnprofiledSteps]) -> Meta:
    known = {key: header[key] for key in ("program", "host", "pid", "parent", "process", "metadata", "start_ns", "end_ns") if key in header}
    return Meta(
        format="capture",
        framework=base.framework or str(header.get("framework") or "python"),
        versions=base.versions | {str(key): str(value) for key, value in header.get("versions", {}).items()},
        world_size=header.get("world_size"),
        ranks=[rank],
        options=header.get("options", {}),
        extra=base.extra | known,
        unprofiled_steps=unprofiled,
    )
