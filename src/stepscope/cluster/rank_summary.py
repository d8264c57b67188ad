"""The summary of recordings: the tables of `model/rank_tables.py`, from one reading of the spans."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.analyses.memory.memory_peaks import memory_peaks
from stepscope.analyses.operators.operator_types import operator_types
from stepscope.analyses.shared.memory.peak_memory import peak_memory
from stepscope.analyses.shared.ranks.device_clocks import device_clocks
from stepscope.analyses.shared.ranks.link_sums import link_sums
from stepscope.analyses.shared.ranks.longest_spans import longest_spans
from stepscope.analyses.shared.ranks.rank_collectives import rank_collectives
from stepscope.analyses.shared.ranks.rank_steps import rank_steps
from stepscope.analyses.shared.steps.coverage import coverage, ranks_without_copies
from stepscope.analyses.shared.steps.step_usage import step_usage
from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.steps.step_trace import step_trace
from stepscope.cluster import remote
from stepscope.cluster.tasks import Batch, Merge, Part, Status
from stepscope.errors import DataError
from stepscope.io import cache, store
from stepscope.io.discover import Recording, Source
from stepscope.io.open_run import open_recording
from stepscope.io.open_source import SourceOpener
from stepscope.model import rank_tables
from stepscope.model.trace import Trace, combine, unread_problem

# Spans of a batch up to this number are read once, with all columns; of more, each analysis reads the columns that it needs.
_IN_MEMORY = 1 << 20
_OF_PROCESS = ("pid", "parent", "process")  # entries of a header that belong to one process


def summary(trace: Trace, sources: dict[int, str] | None = None) -> Trace:
    """The trace with the figures of its ranks and without their spans. `sources` are the recordings of the ranks."""
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = {
        "rank_figures": _figures(trace, sources or {}),
        "rank_kinds": trace.spans.group_by("rank", pl.col("kind").cast(pl.String)).agg(spans=pl.len()).sort("rank", "kind").collect(),
        "rank_coverage": coverage(trace).steps,
        "rank_steps": rank_steps(trace),
        "rank_overlap": overlap(trace),
        "rank_step_trace": step_trace(trace),
        "rank_usage": step_usage(trace),
        "rank_collectives": rank_collectives(trace),
        "rank_links": link_sums(trace),
        "rank_longest_spans": longest_spans(trace),
        "rank_operations": _operation_times(trace),
        "rank_operator_types": operator_types(trace),
        "rank_memory_peaks": memory_peaks(trace),
    }
    kept = {name: trace.table(name) for name in rank_tables.KEPT}
    extra = {key: value for key, value in trace.meta.extra.items() if key not in _OF_PROCESS}
    return Trace(kept | tables, trace.meta).with_meta(summary=True, extra=extra)


def write_batch(batch: Batch, out: Path, room: Path) -> Status:
    """Summarize the recordings of a batch into the run folder `out`. A recording that cannot be read is a problem of the status."""
    traces, sources, problems = list[Trace](), dict[int, str](), list[dict[str, Any]]()
    with contextlib.ExitStack() as stack:
        for part in batch.parts:
            try:
                opened, rows = stack.enter_context(_opened(part, room))
            except DataError as error:
                problems.append(unread_problem(error, part.expected_rank))
                continue
            problems += rows
            for trace in opened:
                traces.append(trace)
                sources |= dict.fromkeys(trace.meta.ranks, part.name)
        if not traces:
            return Status(problems=tuple(problems))
        if double := {
            rank for at, trace in enumerate(traces) for rank in trace.meta.ranks if any(rank in t.meta.ranks for t in traces[:at])
        }:
            raise DataError(batch.parts[0].name, f"two recordings of rank {min(double)} in this run")
        whole = combine(traces)
        if whole.spans.select(pl.len()).collect().item() <= _IN_MEMORY:
            whole = whole.with_tables(spans=whole.spans.collect())
        result = summary(whole, sources)
        store.write(result, out)
        spans = int(result.table("rank_figures").select(pl.col("spans").sum()).collect().item())
    return Status(tuple(whole.meta.ranks), spans, tuple(problems))


def write_merged(task: Merge, folders: list[Path], out: Path) -> Status:
    """Join summaries into one, in their order."""
    trace = combine([store.read(folder) for folder in folders])
    if task.source:
        trace = trace.with_meta(source=task.source)
    store.write(trace.with_problems(task.problems), out)
    return Status(tuple(trace.meta.ranks))


@contextlib.contextmanager
def _opened(part: Part, room: Path) -> Iterator[tuple[list[Trace], list[dict[str, Any]]]]:
    """The traces of a recording, and rows of `problems` for the windows of it that cannot be read."""
    if part.url:
        with remote.fetched(part.url, room) as folder:
            yield remote.traces(folder, part.url), []
        return
    recording = Recording(tuple(Source(Path(path), format) for path, format in part.sources), part.rank)
    scratch = room / "uncached"
    scratch.mkdir(exist_ok=True)
    pins = cache.Pins()
    opener = SourceOpener(room=scratch, pins=pins)
    try:
        trace, errors = open_recording(recording, opener)
        yield [trace], [unread_problem(error, trace.meta.ranks[0]) for error in errors]
    finally:
        pins.release()
        if opener.built:
            cache.trim()
        shutil.rmtree(scratch, ignore_errors=True)


def _figures(trace: Trace, sources: dict[int, str]) -> pl.DataFrame:
    ranks = pl.DataFrame({"rank": trace.meta.ranks}, {"rank": pl.Int32})
    end = pl.col("start_ns") + pl.col("dur_ns")
    spans = trace.spans.group_by("rank").agg(spans=pl.len(), first_ns=pl.col("start_ns").min(), last_ns=end.max()).collect()
    clocks, data = device_clocks(trace), coverage(trace).data
    rows = ranks.join(spans, on="rank", how="left", maintain_order="left").join(
        peak_memory(trace), on="rank", how="left", maintain_order="left"
    )
    return rows.with_columns(
        pl.Series("source", [sources.get(rank, trace.meta.source) for rank in trace.meta.ranks], pl.String),
        pl.Series("device_data", [data.get(rank) for rank in trace.meta.ranks], pl.String),
        pl.Series("device_clock", [clocks.get(rank) for rank in trace.meta.ranks], pl.Float64),
        pl.col("spans").fill_null(0),
        copies_unknown=pl.col("rank").is_in(ranks_without_copies(trace)),
    )


def _operation_times(trace: Trace) -> pl.LazyFrame:
    operations = trace.table("stage_operations").select("rank", "span")
    return operations.join(trace.spans.select("rank", "span", "step", "start_ns", "dur_ns"), on=["rank", "span"], maintain_order="left")
