"""The JAX and TensorFlow part of a capture: xplane/<session>/.../*.xplane.pb, one file per session of their profiler."""

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.steps.windows import join_numbers
from stepscope.model.trace import Meta, Trace
from stepscope.readers import Options
from stepscope.readers.common import wall_clock
from stepscope.readers.xplane.reader import read_file


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    rank = int(header.get("rank", 0))
    traces, problems = [], []
    for number, file in enumerate(sorted(file for file in (path / "xplane").glob("*/**/*.xplane.pb") if file.is_file())):
        scratch = options.scratch / str(number)
        scratch.mkdir()
        session_options = Options(scratch=scratch, partial=options.partial, rank=rank)
        try:
            traces.append(read_file(file, session_options, rank, wall_clock.session_clock(header, _session_number(path, file))))
        except DataError as error:  # the other sessions can still be read
            problems.append({"rank": rank, "file": str(file.relative_to(path)), "what": error.what, "lost": 0})
    if not traces and not problems:
        why = "it is missing" if header.get("whole") else "the job ended before"
        message = f"{header.get('framework')}'s profiler left no file (*.xplane.pb): {why}"
        problems.append({"rank": rank, "file": path.name, "what": message, "lost": 0})
    trace = Trace({}) if not traces else traces[0] if len(traces) == 1 else _join_sessions(traces, rank)
    return trace.with_problems(problems)


def _session_number(path: Path, file: Path) -> int:
    """The first folder below xplane."""
    name = file.relative_to(path / "xplane").parts[0]
    return int(name) if name.isdecimal() else 0


def _join_sessions(traces: list[Trace], rank: int) -> Trace:
    """Consecutive sessions as one trace: tracks with the same names are the same, and numbers continue."""
    parts: dict[str, list[pl.LazyFrame]] = {}
    has_markers = [trace.steps.filter(pl.col("how").cast(pl.String) == "marker").collect().height > 0 for trace in traces]
    for trace, has_steps in zip(join_numbers(traces), has_markers, strict=True):
        tables = trace.tables
        if any(has_markers) and not has_steps:  # the last session may contain no complete step
            tables["steps"] = trace.steps.clear()
            tables["problems"] = trace.problems.filter(~pl.col("what").str.starts_with("no step markers"))
        for name, frame in tables.items():
            parts.setdefault(name, []).append(frame)
    joined = {name: pl.concat(frames) for name, frames in parts.items()}
    joined["tracks"] = joined["tracks"].unique("track", keep="first", maintain_order=True)
    if not any(has_markers):
        whole = {"start_ns": pl.col("start_ns").min(), "end_ns": pl.col("end_ns").max()}
        joined["steps"] = joined["steps"].head(1).drop("start_ns", "end_ns").join(joined["steps"].select(**whole), how="cross")
    meta = traces[0].meta
    return Trace(joined, Meta(framework=meta.framework, versions=meta.versions, ranks=[rank], extra=meta.extra))
