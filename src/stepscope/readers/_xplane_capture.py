"""The JAX and TensorFlow part of a capture: xplane/<session>/.../*.xplane.pb, one file per session of their profiler."""

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.readers import Options, _wall_clock, xplane
from stepscope.trace import Meta, Trace
from stepscope.trace_windows import join_numbers


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    rank = int(header.get("rank", 0))
    traces, problems = [], []
    for number, file in enumerate(sorted(file for file in (path / "xplane").glob("*/**/*.xplane.pb") if file.is_file())):
        scratch = options.scratch / str(number)
        scratch.mkdir()
        try:
            chosen = Options(scratch=scratch, partial=options.partial, rank=rank)
            traces.append(xplane.read_session(file, chosen, rank, _wall_clock.of_session(header, _session(path, file))))
        except DataError as error:  # one session of several: the others can still be read
            problems.append({"rank": rank, "file": str(file.relative_to(path)), "what": error.what, "lost": 0})
    if not traces and not problems:
        why = "it is missing" if header.get("whole") else "the job ended before"
        what = f"{header.get('framework')}'s profiler left no file (*.xplane.pb): {why}"
        problems.append({"rank": rank, "file": path.name, "what": what, "lost": 0})
    trace = Trace({}) if not traces else traces[0] if len(traces) == 1 else _joined(traces, rank)
    return trace.with_problems(problems)


def _session(path: Path, file: Path) -> int:
    """Its number: the first folder below xplane."""
    name = file.relative_to(path / "xplane").parts[0]
    return int(name) if name.isdecimal() else 0


def _joined(traces: list[Trace], rank: int) -> Trace:
    """Sessions one after another, as one: lanes with the same names are the same, numbers go on counting."""
    parts: dict[str, list[pl.LazyFrame]] = {}
    marked = [trace.steps.filter(pl.col("how").cast(pl.String) == "marker").collect().height > 0 for trace in traces]
    for trace, has_steps in zip(join_numbers(traces), marked, strict=True):
        tables = trace.tables
        if any(marked) and not has_steps:  # the last session may hold no step that is over
            tables["steps"] = trace.steps.clear()
            tables["problems"] = trace.problems.filter(~pl.col("what").str.starts_with("no step markers"))
        for name, frame in tables.items():
            parts.setdefault(name, []).append(frame)
    together = {name: pl.concat(frames) for name, frames in parts.items()}
    together["tracks"] = together["tracks"].unique("track", keep="first", maintain_order=True)
    if not any(marked):
        whole = {"start_ns": pl.col("start_ns").min(), "end_ns": pl.col("end_ns").max()}
        together["steps"] = together["steps"].head(1).drop("start_ns", "end_ns").join(together["steps"].select(**whole), how="cross")
    meta = traces[0].meta
    return Trace(together, Meta(framework=meta.framework, versions=meta.versions, ranks=[rank], extra=meta.extra))
