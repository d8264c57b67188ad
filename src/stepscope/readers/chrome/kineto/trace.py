"""The trace of Chrome events as torch.profiler (Kineto) writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.steps.step_assignment import steps_by_time
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.chrome.kineto.header import Exported, Header
from stepscope.readers.chrome.kineto.memory import allocation_table, memory_counters
from stepscope.readers.chrome.kineto.scopes import assign_scopes
from stepscope.readers.chrome.kineto.spans import classify_spans, link_spans, nest_spans
from stepscope.readers.chrome.kineto.steps import assign_device_steps, assign_steps, find_steps
from stepscope.readers.chrome.kineto.tracks import restore_tracks, track_table
from stepscope.readers.chrome.parts import close_pairs, load_part, number_tracks, part_files
from stepscope.readers.chrome.records import Report
from stepscope.readers.common.name_parts import add_counter_columns
from stepscope.readers.common.problems import Problem, problem_frame

# Columns that only pass through: they are never in memory all at once.
_PASSING = ["correlation", "flops", "bytes", "shapes", "dtypes", "args"]


def assemble(path: Path, entries: Mapping[str, Any], reports: Sequence[Report], problems: Sequence[Problem], options: Options) -> Trace:
    """The trace of decoded events, whose columns are in the scratch folder. `entries` are those of the file's header."""
    scratch = options.scratch
    keys, numbers = number_tracks(reports)
    problems = [*problems, *close_pairs(scratch, numbers)]
    spans, memory = nest_spans(classify_spans(load_part(scratch, "spans", numbers)), load_part(scratch, "memory", numbers))
    spans = assign_scopes(link_spans(spans, load_part(scratch, "flows", numbers)))
    header = Header(entries, problems)
    exported = header.exported
    steps, spans = _assign_steps(spans, exported, problems)
    rank, world = header.rank_and_world()
    rank = next((number for number in (rank, options.rank) if number is not None), 0)
    passing = pl.concat([pl.scan_ipc(file).select(_PASSING) for file in part_files(scratch, "spans")])
    if not exported.tracks:  # stepscope's own files have the layout of their source
        passing = passing.with_columns(_normalize_lists(passing, name) for name in ("shapes", "dtypes"))
    counters = load_part(scratch, "counters", numbers).drop("track").with_columns(pl.col("name").cast(pl.String), unit=_unit(exported))
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": pl.concat([spans.select(pl.exclude(*_PASSING)).lazy(), passing], how="horizontal"),
        "tracks": restore_tracks(track_table(keys, spans, reports, problems), exported.table("tracks")),
        "steps": steps,
        "counters": pl.concat([add_counter_columns(counters.lazy()), memory_counters(memory).lazy()], how="diagonal"),
        **{name: exported.table(name) for name in ("pipeline", "links", "sharded_operators")},
        "allocations": allocation_table(memory, spans),
        "devices": exported.table("devices") if exported.devices else header.devices(),
        "process_groups": header.process_groups(),
    }
    tables["problems"] = problem_frame(problems, path)
    meta = header.meta(rank, world, bool((spans["kind"] == "op").any()), _recorded_options(spans, memory, passing))
    return Trace({name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}, meta)


def _assign_steps(spans: pl.DataFrame, exported: Exported, problems: list[Problem]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the spans with theirs."""
    if exported.steps:
        steps = exported.table("steps").sort("start_ns")
        return steps, spans.with_columns(step=steps_by_time(spans, steps)) if exported.steps_by_time else assign_steps(spans, steps)
    steps, problem = find_steps(spans)
    problems += [problem] if problem else []
    return assign_device_steps(spans, steps)


def _unit(exported: Exported) -> pl.Expr:
    """The unit of a counter, which only stepscope's exporter writes."""
    if not exported.units:
        return pl.lit(None, pl.String)
    return pl.col("name").cast(pl.String).replace_strict(exported.units, default=None, return_dtype=pl.String)


_OTHER_LAYOUT = r"^\[.*([\n\r\t]|,[^ ]|,  |\[ | \])|^\[[\n\r\t]"


def _normalize_lists(rows: pl.LazyFrame, name: str) -> pl.Expr:
    """JSON lists as PyTorch writes them, `[[8, 3], []]`, so that equal shapes are equal texts."""
    distinct = rows.select(pl.col(name).drop_nulls().unique().cast(pl.String)).collect(engine="streaming").to_series()
    others = distinct.filter(distinct.str.contains(_OTHER_LAYOUT))
    if others.is_empty():
        return pl.col(name)
    return pl.col(name).cast(pl.String).replace(others, pl.Series(map(_normalize_list, others), dtype=pl.String)).cast(pl.Categorical)


def _normalize_list(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return text


def _recorded_options(spans: pl.DataFrame, memory: pl.DataFrame, passing: pl.LazyFrame) -> dict[str, bool]:
    """Options that were on, judged by the contents of the trace."""
    shapes = pl.concat([spans.select("kind").lazy(), passing.select("shapes")], how="horizontal").filter(pl.col("kind") == "op")
    recorded = {
        "record_shapes": bool(shapes.select(pl.col("shapes").is_not_null().any()).collect().item()),
        "profile_memory": memory.height > 0,
        "with_stack": bool((spans["kind"] == "python").any()),
    }
    return {name: True for name, is_on in recorded.items() if is_on}
