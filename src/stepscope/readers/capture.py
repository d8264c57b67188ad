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

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
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


class _Notice(msgspec.Struct):
    what: str
    lost: int = 0


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Moment = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
# Entries of the header that are used as what they should be; others only pass through.
_ENTRIES: dict[str, Any] = {
    "rank": _Number,
    "world_size": _Number,
    "pid": int,
    "start_ns": _Moment,
    "end_ns": _Moment | None,
    "recorded_until_ns": _Moment | None,
    "open_step": _Number,
    "cut_steps": list[_Number],
    "in_part": list[tuple[str, _Moment, _Moment]],
    "base": str | None,
    "framework": str | None,
    "program": str | None,
    "versions": dict[str, Any],
    "options": dict[str, Any],
    "torch": dict[str, Any],
    "notices": list[_Notice],
}


def read(path: Path, options: Options) -> Trace:
    try:
        said = captures.header(path)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path / captures.HEADER, f"not a capture's header ({error})") from error
    if not isinstance(said, dict):
        raise DataError(path / captures.HEADER, "not a capture's header (expected an object)")
    version = said.get("capture_version")
    if not isinstance(version, int) or version > captures.VERSION:
        raise DataError(path / captures.HEADER, f"a capture of version {version}; this stepscope reads {captures.VERSION}: upgrade it")
    header, odd = _checked(said)
    # A job that was killed may not have come to write who collected, but always what it was to record.
    name = header.get("base") or (None if header.get("whole") else header.get("framework"))
    base = _BASES[name](path, header, options) if name in _BASES else Trace({})
    return _with_extras(base, path, header, odd)


def _checked(said: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The header without the entries that cannot be used, and what is said of these."""
    header, odd = dict(said), []
    for name, kind in _ENTRIES.items():
        if name in said:
            try:
                header[name] = msgspec.convert(said[name], kind)
            except msgspec.ValidationError:
                del header[name]
                odd.append(f"'{name}' is unusable, and ignored: {str(said[name])[:60]}")
    return header, odd


def _with_extras(base: Trace, path: Path, header: dict[str, Any], odd: list[str]) -> Trace:
    """The framework's trace with what the other collectors saw."""
    rank = int(header.get("rank", 0))
    tables: dict[str, pl.LazyFrame] = dict(base.tables)
    damaged: dict[str, str] = {}
    spans, tracks = _more_spans(base, path, header, damaged)
    steps = _with_words(frame(path, "steps"), how="marker")
    counters, pipeline = frame(path, "counters", damaged), frame(path, "pipeline", damaged)
    unprofiled = _unprofiled_steps(path, rank, damaged)
    known = base.steps.filter(pl.col("how").cast(pl.String) != "whole").collect()
    if steps.height and known.is_empty():
        tables["steps"] = schema.conform(steps.with_columns(rank=rank).lazy(), "steps")
    elif (missing := _lost_steps(known["step"], steps, header)).height:
        added = schema.conform(missing.with_columns(rank=rank).lazy(), "steps")
        tables["steps"] = pl.concat([base.steps, added]).sort("start_ns")
    notices = [{"rank": rank, "file": path.name, "what": said.what, "lost": said.lost} for said in header.get("notices", [])]
    about = {"rank": rank, "file": path.name}
    notices += [about | {"where": captures.HEADER, "what": what, "lost": 0} for what in odd]
    notices += [
        about | {"where": name, "what": f"the column file is damaged ({why}): its rows are lost", "lost": 1}
        for name, why in damaged.items()
    ]
    notices += [
        about | {"where": name, "what": "the column file is missing: its rows are lost", "lost": 1}
        for name in captures.missing_pieces(path, header)
    ]
    if not header.get("whole"):
        notices.append({"rank": rank, "file": path.name, "what": "the job ended while recording: what had been written is here", "lost": 0})
    if (header.get("base") or header.get("framework")) in _BASES and (why := _why_not_written(path, header)):
        notices += [{"rank": rank, "file": path.name, **said} for said in _steps_without_operators(base, steps, why)]
    more = {
        "spans": spans,
        "tracks": tracks,
        "counters": counters,
        "pipeline": pipeline,
        "problems": pl.DataFrame(notices, {name: schema.TABLES["problems"][name] for name in ("rank", "file", "where", "what", "lost")}),
    }
    for name, rows in more.items():
        if rows.height:
            added = schema.conform(rows.with_columns(rank=pl.lit(rank, pl.Int32)).lazy(), name)
            tables[name] = pl.concat([tables[name], added])
    return Trace(tables, _meta(base.meta, header, rank, unprofiled))


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


def _more_spans(base: Trace, path: Path, header: dict[str, Any], damaged: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans that no framework recorded, on tracks of their own: the user's ranges, steps, whatever collectors added."""
    process = f"{header.get('program') or 'python'} {header.get('pid', '')}".strip()
    ranges = _with_words(frame(path, "ranges", damaged), kind="annotation", group=process, track_kind="annotation")
    steps = frame(path, "steps", damaged)
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
    stacks = _with_words(_frames_of_python(path, damaged), kind="python", group=process, track_kind="thread")
    found = [part for part in (ranges, marked, frame(path, "spans", damaged), stacks) if part.height]
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


def frame(path: Path, table: str, damaged: dict[str, str] | None = None) -> pl.DataFrame:
    """A table of the capture, all pieces that can be read; `damaged` says why others cannot, by the file's name."""
    parts = []
    for file in captures.files(path, table):
        try:
            parts.append(_frame(captures.piece(file)))
        except (*captures.DAMAGE, pl.exceptions.PolarsError) as error:
            if damaged is not None:
                damaged[file.name] = captures.damage(error)
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


def _frame(piece: captures.Piece) -> pl.DataFrame:
    columns = {}
    for name, values in piece.items():
        if isinstance(values, tuple):
            codes, words = values
            text = pl.Series([*words, None], dtype=pl.String).cast(pl.Categorical)
            columns[name] = text.gather(pl.Series(codes).replace(-1, len(words)).cast(pl.UInt32))
        else:
            columns[name] = pl.Series(values)
    return pl.DataFrame(columns)


def _frames_of_python(path: Path, damaged: dict[str, str]) -> pl.DataFrame:
    """Frames point at one another across files: where one file is damaged, there are none."""
    try:
        return _stacks.spans(path, damaged)
    except (*captures.DAMAGE, pl.exceptions.PolarsError) as error:
        damaged.setdefault("stack_*.npz", captures.damage(error))
        return pl.DataFrame()


_FIRST, _ENOUGH = 3, 2  # steps of a process that compile, tune and allocate; how many others there must be to do without them


def _unprofiled_steps(path: Path, rank: int, damaged: dict[str, str]) -> list[UnprofiledSteps]:
    rows = frame(path, "unprofiled_steps", damaged)
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
