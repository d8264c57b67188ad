"""What a comparison needs of one run: its step times with their noise, and the parts of its typical step."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps.coverage import complete_steps, coverage, ranks_without_copies
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.shared.steps.warmup import counting_steps, host_steps
from stepscope.analyses.steps.overview import overview
from stepscope.comparison import statistics
from stepscope.comparison.parts import LABELS, step_parts
from stepscope.comparison.statistics import Series
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

OFFSET = "host step beyond the device step"  # the device runs behind the host, and its steps begin and end later
SPREAD = "median against typical step"
UNRECORDED = "not recorded"
_TYPICAL = 4  # of the steps by time, the middle half is typical: a part less than this of them is cut at each end


class Profile(NamedTuple):
    """One run. Times of parts are per typical step, as means over the ranks; the parts add up to `step.median`."""

    name: str
    step: Series | None  # None without steps
    mean_ns: float | None
    steps: pl.DataFrame  # rank, step, start_ns, total_ns, counted, typical
    parts: pl.DataFrame  # part, LABELS, step_ns, total_ns, calls; empty if no step is completely recorded
    errors: pl.DataFrame  # part, operator, error_ns: standard errors within the run
    figures: dict[str, float | None]  # of `overview`
    facts: dict[str, Any]  # what must be equal for figures to be comparable


@memoized
def profile(trace: Trace, warmup: int | None = None) -> Profile:
    """The profile of a trace of one or several ranks; the first step of a rank is left out as in `overview`."""
    steps = _steps(trace, warmup)
    counted = steps.filter("counted")
    each = [statistics.series(rows["total_ns"].to_numpy().astype(np.float64)) for _, rows in counted.group_by("rank", maintain_order=True)]
    step = statistics.of_run(each) if each else None
    rows = overview(trace, warmup=warmup)
    empty = pl.DataFrame(
        schema={"part": pl.String, **dict.fromkeys(LABELS, pl.String), "step_ns": pl.Float64, "total_ns": pl.Float64, "calls": pl.Float64}
    )
    parts, errors = empty, pl.DataFrame(schema={"part": pl.String, "operator": pl.String, "error_ns": pl.Float64})
    typical = counted.filter("typical")
    if step is not None and typical.height:
        parts, errors = _parts(trace, typical, step.median)
    means = counted.group_by("rank", maintain_order=True).agg(pl.col("total_ns").mean())["total_ns"]
    mean = float(means.mean()) if counted.height else None  # type: ignore[arg-type]
    return Profile(trace.meta.source, step, mean, steps, parts, errors, _figures(rows), _facts(trace, rows, parts))


def _steps(trace: Trace, warmup: int | None) -> pl.DataFrame:
    """Every step; `typical` is the middle half of the counted steps of a rank whose device work is completely recorded."""
    key = ["rank", "step"]
    counted = counting_steps(trace, warmup).select(*key, counted=True)
    complete = complete_steps(trace).select(*key, complete=True)
    known = [rank for rank, data in coverage(trace).data.items() if data is not None]
    steps = host_steps(trace).select(*key, "start_ns", "total_ns")
    steps = steps.join(counted, on=key, how="left", maintain_order="left").join(complete, on=key, how="left", maintain_order="left")
    steps = steps.with_columns(pl.col("counted", "complete").fill_null(False))
    usable = pl.col("counted") & pl.col("complete") & pl.col("rank").is_in(known)
    place = pl.col("total_ns").rank("ordinal").over("rank", usable) - 1
    count = pl.len().over("rank", usable)
    cut = count // _TYPICAL
    return steps.with_columns(typical=usable & (place >= cut) & (place < count - cut)).drop("complete")


def _parts(trace: Trace, typical: pl.DataFrame, median: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The parts of a typical step, with the rest up to the median step, and their standard errors."""
    key = ["rank", "step"]
    rows = step_parts(trace).join(typical.select(key), on=key, how="semi", maintain_order="left")
    ranks = typical["rank"].n_unique()
    counts = typical.group_by("rank", maintain_order=True).agg(count=pl.len())
    weighted = rows.join(counts, on="rank", maintain_order="left").with_columns(
        pl.col("step_ns", "total_ns", "calls") / pl.col("count") / ranks
    )
    parts = weighted.group_by("part", *LABELS, maintain_order=True).agg(pl.col("step_ns", "total_ns", "calls").sum())
    times = device_steps(trace).join(typical.select(*key, host_ns="total_ns"), on=key, maintain_order="left")
    means = times.group_by("rank", maintain_order=True).agg(
        pl.col("host_ns").mean(), device_ns=(pl.col("end_ns") - pl.col("start_ns")).mean()
    )
    host, device = (float(means[name].mean()) for name in ("host_ns", "device_ns"))  # type: ignore[arg-type]
    known = float(parts["step_ns"].sum())
    rest = {OFFSET: host - device, SPREAD: median - host, UNRECORDED: device - known}
    added = pl.DataFrame({"part": list(rest), "step_ns": list(rest.values())}).filter(pl.col("step_ns").abs() >= 0.5)
    parts = pl.concat([parts, added.with_columns(total_ns=0.0, calls=0.0)], how="diagonal")
    return parts, _errors(rows, typical)


def _errors(rows: pl.DataFrame, typical: pl.DataFrame) -> pl.DataFrame:
    """The standard error of the time of each operator, by the first rank: a step without it counts as zero."""
    rank = typical["rank"][0]
    of_rank = typical.filter(pl.col("rank") == rank)
    count = of_rank.height
    per_step = rows.filter(pl.col("rank") == rank).group_by("part", "operator", "step", maintain_order=True).agg(pl.col("step_ns").sum())
    sums = per_step.group_by("part", "operator", maintain_order=True).agg(
        total=pl.col("step_ns").sum(), squares=(pl.col("step_ns") ** 2).sum()
    )
    if count < 2:
        return sums.select("part", "operator", error_ns=pl.lit(None, pl.Float64))
    time = statistics.correlation_time(of_rank["total_ns"].to_numpy().astype(np.float64))
    variance = (pl.col("squares") - pl.col("total") ** 2 / count).clip(0) / (count - 1)
    return sums.select("part", "operator", error_ns=(variance * time / count).sqrt())


def _figures(rows: pl.DataFrame) -> dict[str, float | None]:
    """The numbers of `overview`: the mean over ranks, and of peaks the largest; None where a rank lacks the figure."""
    figures: dict[str, float | None] = {}
    for name, dtype in rows.schema.items():
        if name == "rank" or not dtype.is_numeric():
            continue
        column = rows[name]
        value = None if column.is_empty() or column.null_count() else column.max() if name.startswith(("peak", "max")) else column.mean()
        figures[name] = None if value is None else float(value)  # type: ignore[arg-type]
    return figures


def _facts(trace: Trace, rows: pl.DataFrame, parts: pl.DataFrame) -> dict[str, Any]:
    meta = trace.meta
    data = sorted({str(value) for value in rows["device_data"]}) if rows.height else []
    options = {name: value for name, value in meta.options.items() if isinstance(value, bool)}
    compute = parts.filter(pl.col("part") == "compute")
    named = float(compute.filter(pl.col("operator").ne_missing(pl.col("kernel")))["step_ns"].sum())
    computed = float(compute["step_ns"].sum())
    return {
        "framework": meta.framework,
        "versions": meta.versions,
        "devices": sorted(set(rows["device"].drop_nulls().to_list())),
        "device_data": data,
        "world_size": meta.world_size or len(meta.ranks),
        "ranks": meta.ranks,
        "steps_how": ", ".join(sorted(set(rows["steps_how"].drop_nulls().to_list()))),
        "options": options | {"with_stack": _has(trace, "python")} if "with_stack" not in options else options,
        "copies": not ranks_without_copies(trace),
        "launchers": named / computed if computed else None,
        "overhead": sorted({str(value) for value in rows["overhead"].drop_nulls()}) if rows.height else [],
        "lost": int(trace.problems.select("lost").sum().collect().item() or 0),
    }


def _has(trace: Trace, kind: str) -> bool:
    return bool(trace.spans.filter(pl.col("kind") == kind).head(1).collect().height)
