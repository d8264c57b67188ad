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
from stepscope.cluster import partial, remote
from stepscope.cluster.tasks import Batch, Merge, Part, Status
from stepscope.errors import DataError
from stepscope.io import cache, store
from stepscope.io.discover import Recording, Source
from stepscope.io.open_run import open_recording
from stepscope.io.open_source import SourceOpener
from stepscope.model import rank_tables, schema
from stepscope.model.trace import Trace, combine, unread_problem

# Up to this number, the spans of several ranks are read once; of a larger rank, each analysis reads the columns that it needs.
_IN_MEMORY = 1 << 19
_OF_PROCESS = ("pid", "parent", "process")  # entries of a header that belong to one process


def summary(trace: Trace, sources: dict[int, str] | None = None) -> Trace:
    """The trace with the figures of its ranks and without their spans. `sources` are the recordings of the ranks."""
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = {
        "rank_figures": _figures(trace, sources or {}),
        "rank_kinds": _kinds(trace),
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
        parts = [summary(part, sources) for part in _in_memory(traces)]
        result = combine(parts)
        partial.write(result, out)
        spans = int(result.table("rank_figures").select(pl.col("spans").sum()).collect().item())
    return Status(tuple(result.meta.ranks), spans, tuple(problems))


def _in_memory(traces: list[Trace]) -> Iterator[Trace]:
    """The traces, as many at a time as one reading of all columns has room for; a larger one is read column by column."""
    group, total = list[Trace](), 0
    for trace in traces:
        count = trace.spans.select(pl.len()).collect().item()
        if group and total + count > _IN_MEMORY:
            yield _read(group)
            group, total = [], 0
        if count > _IN_MEMORY:
            yield trace
            continue
        group.append(trace)
        total += count
    if group:
        yield _read(group)


def _read(traces: list[Trace]) -> Trace:
    whole = combine(traces)
    return whole.with_tables(spans=whole.spans.collect())


def write_merged(task: Merge, folders: list[Path], out: Path) -> Status:
    """Join partial summaries into one, in their order; the last one becomes the run folder."""
    if not task.source:
        return Status(tuple(partial.merge(folders, out).ranks))
    trace = partial.read(folders).with_meta(source=task.source).with_problems(task.problems)
    store.write(trace, out)
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


def _kinds(trace: Trace) -> pl.DataFrame:
    counts = trace.spans.group_by("rank", "kind").agg(spans=pl.len()).collect()
    return counts.with_columns(pl.col("kind").cast(pl.String)).sort("rank", "kind")


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
    operations = trace.table("stage_operations").select("rank", "span").collect()
    # Few recordings have any: the spans are not read for them.
    spans = trace.spans.filter(pl.col("span").is_in(operations["span"].unique().implode())) if operations.height else schema.empty("spans")
    times = spans.select("rank", "span", "step", "start_ns", "dur_ns")
    return operations.lazy().join(times, on=["rank", "span"], maintain_order="left")
