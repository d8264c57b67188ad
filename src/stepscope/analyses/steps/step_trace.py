"""How long is each step, and how is it divided into interval, forward and backward, and tail?"""

import difflib
import fnmatch

import polars as pl

from stepscope.analyses.shared.device_work import device_work
from stepscope.analyses.shared.steps.host_phases import first_or_last, passes
from stepscope.errors import UsageError
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import refuse_summary, stored_rows
from stepscope.model.steps.windows import with_windows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "total_ns": pl.Int64,
    "interval_ns": pl.Int64,
    "fp_bp_ns": pl.Int64,
    "tail_ns": pl.Int64,
    "gap_ns": pl.Int64,
    "fp_start_ns": pl.Int64,
    "bp_end_ns": pl.Int64,
    "fp_start_op": pl.String,
    "bp_end_op": pl.String,
    "clock": pl.String,
    "how": pl.String,
    "found": pl.String,
}
_SOURCE = {"ns": "source", "op": "source_op"}  # columns of recorded points
_NAMED = ["op", "scope", "annotation", "kernel", "communication"]


@memoized
def step_trace(trace: Trace, *, fp_start: str | None = None, bp_end: str | None = None, clock: str = "host") -> pl.DataFrame:
    """Per rank and step: the interval before the forward pass, forward and backward, and the tail after it (aggregation and update).

    The three add up to the step; if one of their bounds is unknown, all three are null. `gap_ns` is the time between the end of the
    previous step and the start of this one, null if it was not recorded. `how` is the kind of step marker. `found` is the evidence for
    forward start and backward end: source (recorded), given or given kernel (`fp_start`, `bp_end`), range (an annotation named forward or
    backward), module, first op, autograd, last op (no backward pass: `bp_end_ns` is null and the second stage ends with the last
    operator), none.

    `fp_start` and `bp_end` name the operator, range or kernel that starts the forward and ends the backward pass: a whole name, a
    pattern with * and ?, or an unambiguous part of a name. By default, the names in the options of the recording count
    (PROFILING_FP_START, PROFILING_BP_END), if they occur.

    `clock` is host or device. Step markers are host ranges, so by default all bounds are host times: a device runs later than its host, by
    more than a step if kernels queue up, and its times do not fit between the markers. With device, as on Ascend, a step ends with its
    last device work and starts at the end of the previous step; its forward pass starts with the first kernel launched after the forward
    start on the host, and its backward pass ends with the last kernel launched before the backward end on the host. A step without device
    work has no times on the device; a rank without device work keeps host times. If the source also has steps on the device, they are used
    as in `overlap`, and `how` adds device ranges. If the recording contains forward start or backward end, all times are the recorded
    ones, and `clock` is source.
    """
    if clock not in ("host", "device"):
        raise UsageError(f"clock is '{clock}'; expected host or device")
    if fp_start is not None or bp_end is not None or clock != "host":
        refuse_summary(trace, "operators, and no bounds on the device")
    if (stored := stored_rows(trace, "rank_step_trace")) is not None:
        return stored
    fp_start = _recorded_name(trace, "fp_start") if fp_start is None else fp_start
    bp_end = _recorded_name(trace, "bp_end") if bp_end is None else bp_end
    rows: pl.DataFrame = (
        trace.steps.rename({f"{point}_{suffix}": f"{point}_{new}" for point in ("fp_start", "bp_end") for suffix, new in _SOURCE.items()})
        .sort("rank", "start_ns")
        .collect()
        .join(passes(trace), on=["rank", "step"], how="left", maintain_order="left")
        .pipe(with_windows, trace.meta, "start_ns")
    )
    for point, text in (("fp_start", fp_start), ("bp_end", bp_end)):
        rows = _from_source(rows, point) if text is None else _from_name(rows, point, _named_points(trace, text, point))
    no_backward = (pl.col("bp_end_found") == "none") & pl.col("last_ns").is_not_null() & pl.lit(bp_end is None)
    rows = rows.with_columns(
        bp_end_found=pl.when(no_backward).then(pl.lit("last op")).otherwise("bp_end_found"),
        stop_ns=pl.when(no_backward).then("last_ns").otherwise("bp_end_ns"),
        clock=pl.when(pl.any_horizontal(pl.col("fp_start_source", "bp_end_source").is_not_null()))
        .then(pl.lit("source"))
        .otherwise(pl.lit("host")),
    )
    if clock == "device":
        rows = _on_device(rows, device_work(trace))
    start, end = pl.col("start_ns"), pl.col("end_ns")
    whole = pl.col("fp_start_ns").is_not_null() & pl.col("stop_ns").is_not_null()
    return (
        rows.with_columns(fp_start_ns=pl.col("fp_start_ns").clip(start, end))
        .with_columns(stop_ns=pl.col("stop_ns").clip(pl.col("fp_start_ns").fill_null(start), end))
        .with_columns(
            bp_end_ns=pl.when(pl.col("bp_end_ns").is_not_null()).then("stop_ns"),
            total_ns=end - start,
            interval_ns=pl.when(whole).then(pl.col("fp_start_ns") - start),
            fp_bp_ns=pl.when(whole).then(pl.col("stop_ns") - pl.col("fp_start_ns")),
            tail_ns=pl.when(whole).then(end - pl.col("stop_ns")),
            gap_ns=start - end.shift(1).over("rank", "window"),
            found=pl.col("fp_start_found") + ", " + pl.col("bp_end_found"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _from_source(rows: pl.DataFrame, point: str) -> pl.DataFrame:
    """The recorded point, else the inferred one."""
    recorded = pl.col(f"{point}_source").is_not_null()
    return rows.with_columns(
        pl.coalesce(f"{point}_source", f"{point}_ns").alias(f"{point}_ns"),
        pl.when(recorded).then(pl.col(f"{point}_source_op").cast(pl.String)).otherwise(f"{point}_op").alias(f"{point}_op"),
        pl.when(recorded).then(pl.lit("source")).otherwise(f"{point}_found").fill_null("none").alias(f"{point}_found"),
    )


def _from_name(rows: pl.DataFrame, point: str, named: pl.DataFrame) -> pl.DataFrame:
    """The point that the user named; unknown in steps without that name."""
    columns = [f"{point}_ns", f"{point}_op", f"{point}_found"]
    return (
        rows.drop(columns)
        .join(named, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(pl.col(f"{point}_found").fill_null("none"))
    )


def _recorded_name(trace: Trace, point: str) -> str | None:
    text = trace.meta.options.get(point)
    try:
        return text if isinstance(text, str) and text and _matching(text, _names(trace), point) else None
    except UsageError:
        return None


def _named_points(trace: Trace, text: str, point: str) -> pl.DataFrame:
    selected = pl.col("kind").is_in(_NAMED) & pl.col("name").cast(pl.String).is_in(_matching(text, _names(trace), point))
    rows = trace.spans.filter(selected & pl.col("step").is_not_null()).select(
        "rank", "step", "kind", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    on_device = pl.col("kind").is_in(["kernel", "communication"])
    return first_or_last(rows.collect(), point, pl.when(on_device).then(pl.lit("given kernel")).otherwise(pl.lit("given")))


def _names(trace: Trace) -> list[str]:
    names = trace.spans.filter(pl.col("kind").is_in(_NAMED)).select(pl.col("name").unique().drop_nulls().cast(pl.String))
    return sorted(names.collect().to_series())


def _matching(text: str, names: list[str], point: str) -> list[str]:
    """The names that match a whole name, a pattern or an unambiguous part."""
    if text in names:
        return [text]
    if fits := fnmatch.filter(names, text):
        return fits
    parts = [name for name in names if text in name]
    if len(parts) == 1:
        return parts
    option = point.replace("_", "-")
    if parts:
        raise UsageError(f"--{option} '{text}' is part of {len(parts)} names, such as {', '.join(parts[:3])}; give one, or a pattern")
    near = difflib.get_close_matches(text, names, 3, 0.4)
    raise UsageError(f"--{option}: nothing in the trace is named '{text}'" + (f"; near it: {', '.join(near)}" if near else ""))


def _on_device(rows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Steps and points on the clock of the device; a rank without device work, or with recorded points, is unchanged."""
    sourced = rows.filter(pl.col("clock") == "source").select("rank").unique()
    work = (
        work.filter(pl.col("step").is_not_null())
        .join(sourced, on="rank", how="anti")
        .join(rows.select("rank", "step", host_start="fp_start_ns", host_stop="stop_ns"), on=["rank", "step"])
    )
    computing, launch = pl.col("kind") == "kernel", pl.col("launch_ns")
    # Communication may start the forward pass, but communication after the last gradient is part of the tail.
    forward = (computing | (pl.col("kind") == "communication")) & (launch >= pl.col("host_start"))
    backward = computing & (launch <= pl.col("host_stop"))
    of_step = work.group_by("rank", "step").agg(
        first_ns=pl.col("start_ns").min(),
        finish_ns=pl.col("end_ns").max(),
        fp_ns=pl.col("start_ns").filter(forward).min(),
        bp_ns=pl.col("end_ns").filter(backward).max(),
    )
    has_device_step = pl.col("device_start_ns").is_not_null()
    rows = rows.with_columns(pl.col("how").cast(pl.String))
    device = (
        rows.join(work, on="rank", how="semi")
        .join(of_step, on=["rank", "step"], how="left", maintain_order="left")
        .with_columns(end_ns=pl.col("finish_ns").cum_max().over("rank", "window"), clock=pl.lit("device"))
        .with_columns(
            start_ns=pl.when(has_device_step)
            .then("device_start_ns")
            .when(pl.col("end_ns").is_not_null())
            .then(pl.col("end_ns").forward_fill().shift(1).over("rank", "window").fill_null(pl.col("first_ns"))),
            end_ns=pl.when(has_device_step).then("device_end_ns").otherwise("end_ns"),
            how=pl.concat_str("how", pl.when(has_device_step).then(pl.lit("device ranges")), separator=", ", ignore_nulls=True),
            # A kernel that the user named is already on this clock.
            fp_start_ns=pl.when(pl.col("fp_start_found") == "given kernel").then("fp_start_ns").otherwise("fp_ns"),
            stop_ns=pl.when(pl.col("bp_end_found") == "given kernel").then("stop_ns").otherwise("bp_ns"),
        )
        .with_columns(bp_end_ns=pl.when(pl.col("bp_end_ns").is_not_null()).then("stop_ns"))
    )
    return pl.concat([rows.join(work, on="rank", how="anti"), device.select(rows.columns)]).sort("rank", maintain_order=True)
