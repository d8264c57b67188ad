"""Captures: the files of stepscope's own recording, where it could not write a run folder itself.

A capture has the framework's part, which a module per framework converts to a trace (`_BASES`), and tables that any collector adds:

    ranges     name, start_ns, dur_ns, tid, thread, args          ranges that users name
    steps      step, start_ns, end_ns                             calls of Profiler.step()
    counters   name, at_ns, value, unit                           samples
    pipeline   op_id, op_type, workers, parent, queue_capacity    the input pipeline
    spans      any columns of the table `spans`, with tid, thread and group in place of track
    unprofiled_steps  order (since the process began), step, dur_ns, after (the window)    steps that were not recorded
    stack_*    Python stacks, see recording/collectors/stacks.py
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from stepscope.errors import DataError, first_line
from stepscope.model import captures, schema
from stepscope.model.trace import Meta, StepDurations, Trace, UnprofiledSteps, complete
from stepscope.readers import Options
from stepscope.readers.capture import mindspore, torch, xplane
from stepscope.readers.capture.stacks import load_frames
from stepscope.readers.capture.tables import load_table
from stepscope.readers.common import wall_clock
from stepscope.readers.common.name_parts import add_counter_columns

# The framework's part: "base" in capture.json -> the function that reads it.
_BASES: dict[str, Callable[[Path, dict[str, Any], Options], Trace]] = {
    "mindspore": mindspore.read,
    "torch": torch.read,
    "jax": xplane.read,
    "tensorflow": xplane.read,
}
FORMAT = "stepscope capture"


def sniff(path: Path) -> bool:
    return path.is_dir() and (path / captures.HEADER).is_file()


class _Notice(msgspec.Struct):
    what: str
    lost: int = 0


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Time = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
# The types of header entries that are used; other entries only pass through.
_ENTRIES: dict[str, Any] = {
    "rank": _Number,
    "world_size": _Number,
    "pid": int,
    "start_ns": _Time,
    "end_ns": _Time | None,
    "recorded_until_ns": _Time | None,
    "open_step": _Number,
    "cut_steps": list[_Number],
    "in_part": list[tuple[str, _Time, _Time]],
    "base": str | None,
    "framework": str | None,
    "program": str | None,
    "versions": dict[str, Any],
    "options": dict[str, Any],
    "torch": dict[str, Any],
    "notices": list[_Notice],
}


def read(path: Path, options: Options) -> Trace:
    header, unusable = _load_header(path)
    # A job that was killed may not have written its collectors, but it wrote the framework that it was to record.
    name = header.get("base") or (None if header.get("whole") else header.get("framework"))
    base = _BASES[name](path, header, options) if name in _BASES else Trace({})
    return _add_tables(base, path, header, unusable)


def _load_header(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The header without unusable entries, and a text for each of these."""
    file = path / captures.HEADER
    try:
        entries = captures.header(path)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(file, f"not a capture's header ({error})") from error
    if not isinstance(entries, dict):
        raise DataError(file, "not a capture's header (expected an object)")
    version = entries.get("capture_version")
    if not isinstance(version, int) or version > captures.VERSION:
        raise DataError(file, f"a capture of version {version}; this stepscope reads {captures.VERSION}: upgrade it")
    header, unusable = dict(entries), []
    for name, kind in _ENTRIES.items():
        if name in entries:
            try:
                header[name] = msgspec.convert(entries[name], kind)
            except msgspec.ValidationError:
                del header[name]
                unusable.append(f"'{name}' is unusable, and ignored: {str(entries[name])[:60]}")
    return header, unusable


def _add_tables(base: Trace, path: Path, header: dict[str, Any], unusable: list[str]) -> Trace:
    """The framework's trace with the tables of the other collectors."""
    rank = int(header.get("rank", 0))
    tables: dict[str, pl.LazyFrame] = dict(base.tables)
    damaged: dict[str, str] = {}
    spans, tracks = _collector_spans(base, path, header, damaged)
    steps = _add_constants(load_table(path, "steps"), how="marker")
    counters, pipeline = load_table(path, "counters", damaged), load_table(path, "pipeline", damaged)
    unprofiled = _unprofiled_steps(path, rank, damaged)
    marked = base.steps.filter(pl.col("how").cast(pl.String) != "whole").collect()
    if steps.height and marked.is_empty():
        tables["steps"] = schema.conform(steps.with_columns(rank=rank).lazy(), "steps")
    elif (missing := _missing_steps(marked["step"], steps, header)).height:
        tables["steps"] = pl.concat([base.steps, schema.conform(missing.with_columns(rank=rank).lazy(), "steps")]).sort("start_ns")
    problems = [("", notice.what, notice.lost) for notice in header.get("notices", [])]
    problems += [(captures.HEADER, message, 0) for message in unusable]
    problems += [(name, f"the column file is damaged ({why}): its rows are lost", 1) for name, why in damaged.items()]
    problems += [(name, "the column file is missing: its rows are lost", 1) for name in captures.missing_pieces(path, header)]
    if not header.get("whole"):
        problems.append(("", "the job ended while recording: the trace contains what had been written", 0))
    if (header.get("base") or header.get("framework")) in _BASES and (why := _missing_operators(path, header)):
        problems += _steps_without_operators(base, steps, why)
    columns = {"where": pl.String, "what": pl.String, "lost": pl.Int64}
    rows = pl.DataFrame(problems, columns, orient="row").with_columns(pl.when(pl.col("where") != "").then("where"), file=pl.lit(path.name))
    counters = add_counter_columns(counters.lazy()).collect() if counters.height else counters
    more = {"spans": spans, "tracks": tracks, "counters": counters, "pipeline": pipeline, "problems": rows}
    for name, frame in more.items():
        if frame.height:
            added = schema.conform(frame.with_columns(rank=pl.lit(rank, pl.Int32)).lazy(), name)
            tables[name] = pl.concat([tables[name], added])
    return Trace(tables, _meta(base.meta, header, rank, unprofiled))


_NOT_YET = "operators are not written yet"


def _missing_operators(path: Path, header: dict[str, Any]) -> str | None:
    """Why operators are missing; None where they are not."""
    if reason := header.get("incomplete"):
        return f"operators were not written: {reason}"
    if header.get("whole"):
        return None
    return _NOT_YET if captures.recorder(path) else "operators were not written when the job was killed"


def _steps_without_operators(base: Trace, steps: pl.DataFrame, why: str) -> Iterator[tuple[str, str, int]]:
    """A problem for the steps after the last operator: steps are written at once, but frameworks hand over operators now and then."""
    host, device = ["op", "api"], ["kernel", "copy", "set", "communication"]  # device work may begin a step later
    kind = pl.col("kind").cast(pl.String)
    last_host, last_device = (
        base.spans.filter(kind.is_in(kinds)).select(pl.col("start_ns").max()).collect().item() for kinds in (host, device)
    )
    last = last_device if last_host is None else last_host
    lost = steps if last is None or steps.is_empty() else steps.filter(pl.col("start_ns") > last)
    if lost.height:
        first, end = lost["step"][0], lost["step"][-1]
        numbers = f"steps {first} to {end}" if first != end else f"step {first}"
        yield "", f"{numbers}: {why}", 0 if why is _NOT_YET else lost.height
    elif last is None:
        yield "", why, 0


def _collector_spans(base: Trace, path: Path, header: dict[str, Any], damaged: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans that the framework did not record, and their tracks: the user's ranges, steps, spans of other collectors, Python frames."""
    process = f"{header.get('program') or 'python'} {header.get('pid', '')}".strip()
    ranges = _add_constants(load_table(path, "ranges", damaged), kind="annotation", group=process, track_kind="annotation")
    steps = load_table(path, "steps", damaged)
    frames = _add_constants(_load_frames(path, damaged), kind="python", group=process, track_kind="thread")
    parts = [ranges, _step_spans(base, steps, header, process), load_table(path, "spans", damaged), frames]
    parts = [part for part in parts if part.height]
    if not parts:
        return pl.DataFrame(), pl.DataFrame()
    spans = pl.concat(parts, how="diagonal_relaxed")
    key = ["group", "track_kind", "tid", "thread"]
    last_track = base.tracks.select(pl.col("track").max()).collect().item() or 0
    last_span = base.spans.select(pl.col("span").max()).collect().item() or 0
    tracks = spans.select(key).unique(maintain_order=True)
    tracks = tracks.with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32) + last_track + 1)
    spans = spans.join(tracks, on=key, how="left", nulls_equal=True, maintain_order="left")
    spans = complete(spans.with_columns(span=pl.int_range(pl.len(), dtype=pl.Int64) + last_span + 1))
    if steps.height and "step" not in spans.columns:
        spans = (
            spans.sort("start_ns")
            .join_asof(steps.select("step", start_ns="start_ns", step_end="end_ns").sort("start_ns"), on="start_ns")
            .with_columns(step=pl.when(pl.col("start_ns") < pl.col("step_end")).then("step"))
        )
    return spans, tracks.select(
        "track",
        "group",
        label=pl.col("thread"),
        kind="track_kind",
        sort="track",
        pid=pl.lit(str(header.get("pid", ""))),
        tid=pl.col("tid").cast(pl.String),
    )


def _step_spans(base: Trace, steps: pl.DataFrame, header: dict[str, Any], process: str) -> pl.DataFrame:
    """Spans of the steps that the framework's profiler does not have."""
    markers = base.spans.filter(pl.col("kind") == "step").select("step").collect()["step"]
    if len(markers):
        steps = _missing_steps(markers, steps, header)
    if steps.is_empty():
        return pl.DataFrame()
    return steps.select(
        name=pl.format("ProfilerStep#{}", "step"),
        start_ns="start_ns",
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        kind=pl.lit("step"),
        tid=pl.lit(0, pl.Int64),
        thread=pl.lit("steps"),
        group=pl.lit(process),
        track_kind=pl.lit("annotation"),
    )


def _missing_steps(numbers: pl.Series, steps: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Steps that stepscope marked and the framework's profiler lacks because the machine's clock was set."""
    if steps.is_empty() or not wall_clock.clock_was_set(header) or header.get("base") not in ("torch", "jax", "tensorflow"):
        return steps.clear()
    return steps.filter(~pl.col("step").is_in(numbers.implode()))


def _add_constants(rows: pl.DataFrame, **texts: str) -> pl.DataFrame:
    """The rows with these texts in each; polars 1 makes a row where there is none."""
    return rows.with_columns(pl.lit(text).alias(name) for name, text in texts.items()) if rows.height else rows


def _load_frames(path: Path, damaged: dict[str, str]) -> pl.DataFrame:
    """Python frames. They refer to one another across files: where one file is damaged, there are none."""
    try:
        return load_frames(path, damaged)
    except (*captures.DAMAGE, pl.exceptions.PolarsError) as error:
        damaged.setdefault("stack_*.npz", first_line(error))
        return pl.DataFrame()


_WARM_UP = 3  # steps of a process that compile, tune and allocate
_ENOUGH = 2  # other steps that are needed to leave these out


def _unprofiled_steps(path: Path, rank: int, damaged: dict[str, str]) -> list[UnprofiledSteps]:
    rows = load_table(path, "unprofiled_steps", damaged)
    if rows.is_empty():
        return []
    # Steps before the window, if there are enough: once NVIDIA's tracing has been on, kernels are launched more slowly to the end.
    is_warm, is_after = pl.col("order") >= _WARM_UP, pl.col("after")
    choices = [rows.filter(is_warm & ~is_after)["dur_ns"], rows.filter(is_warm)["dur_ns"]]
    durations = next((choice for choice in choices if choice.len() >= _ENOUGH), rows["dur_ns"])
    p10, median, p90 = (round(durations.quantile(share, "linear") or 0) for share in (0.1, 0.5, 0.9))
    before, after = (
        StepDurations(step=part["step"].to_list(), dur_ns=part["dur_ns"].to_list())
        for part in (rows.filter(~is_after), rows.filter(is_after))
    )
    return [UnprofiledSteps(rank=rank, count=durations.len(), median_ns=median, p10_ns=p10, p90_ns=p90, before=before, after=after)]


def _meta(base: Meta, header: dict[str, Any], rank: int, unprofiled: list[UnprofiledSteps]) -> Meta:
    keys = ("program", "host", "pid", "parent", "process", "metadata", "start_ns", "end_ns")
    return Meta(
        format="capture",
        framework=base.framework or str(header.get("framework") or "python"),
        versions=base.versions | {str(key): str(value) for key, value in header.get("versions", {}).items()},
        world_size=header.get("world_size"),
        ranks=[rank],
        options=header.get("options", {}),
        extra=base.extra | {key: header[key] for key in keys if key in header},
        unprofiled_steps=unprofiled,
    )
