"""The step trace that MindInsight shows: phases and collectives of each step."""

from pathlib import Path

import polars as pl

from stepscope.exporters.common.json_lines import write_json
from stepscope.model.trace import Trace

_COUNT_NS = 10  # nanoseconds per count of the system clock


def write_steps(trace: Trace, rank: int, folder: Path, origin: int) -> None:
    """Interval, forward and backward, tail; the last row is the average. A step with unknown phases is all forward and backward."""
    rows = trace.analyse("step_trace")
    if rows.is_empty():
        return
    start, end = pl.col("start_ns"), pl.col("end_ns")
    forward = pl.when(pl.col("interval_ns").is_not_null()).then(start + pl.col("interval_ns")).otherwise(start)
    backward = pl.when(pl.col("tail_ns").is_not_null()).then(end - pl.col("tail_ns")).otherwise(end)
    points = rows.select("step", start_point=start, end_point=end, fp_point=forward, bp_point=backward)
    points = points.with_columns(_counts(pl.exclude("step"), origin))
    is_training = rows["bp_end_ns"].count() > 0 or rows["interval_ns"].count() == 0
    phases = {"total": ("start_point", "end_point"), "iteration_interval": ("start_point", "fp_point")}
    phases |= (
        {"fp_and_bp": ("fp_point", "bp_point"), "tail": ("bp_point", "end_point")} if is_training else {"fp": ("fp_point", "bp_point")}
    )
    table = points.with_columns((pl.col(last) - pl.col(first)).alias(name) for name, (first, last) in phases.items())
    last_columns = ["bp_point", "iteration_interval", "fp_and_bp", "tail"] if is_training else ["fp", "iteration_interval"]
    table = table.select("step", "start_point", "end_point", "total", "fp_point", *last_columns)
    table = table.join(_collectives(trace, origin), on="step", how="left", maintain_order="left")
    # MindInsight reads the nth row as step n.
    numbered = table.with_columns(step=pl.int_range(1, pl.len() + 1).cast(pl.String)).rename({"step": "step_num"})
    average = numbered.select(pl.lit("-").alias("step_num"), pl.exclude("step_num").mean().round().cast(pl.Int64))
    # A collective that a step lacks is 0, which MindInsight leaves out.
    pl.concat([numbered, average]).fill_null(0).write_csv(folder / f"step_trace_raw_{rank}_detail_time.csv")
    # MindInsight shows a training without an operator at the end of its backward pass as inference.
    names = {"fp_start": _operator_at(trace, rows, "fp_start", "start_ns")}
    names["bp_end"] = _operator_at(trace, rows, "bp_end", "end_ns") if is_training else ""
    write_json(folder / f"step_trace_point_info_{rank}.json", names)


def _counts(ns: pl.Expr, origin: int) -> pl.Expr:
    return (ns - origin + _COUNT_NS // 2) // _COUNT_NS


def _operator_at(trace: Trace, steps: pl.DataFrame, point: str, edge: str) -> str:
    """The operator at a point in most steps; `-` if there is none."""
    names = steps[f"{point}_op"].drop_nulls()
    if names.is_empty():
        work = trace.spans.filter(pl.col("kind").is_in(["op", "kernel"])).select(
            "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), name=pl.col("name").cast(pl.String)
        )
        times = steps.lazy().select(pl.col(f"{point}_ns").alias(edge)).drop_nulls()
        names = work.join(times, on=edge, how="semi").select("name").collect().to_series()
    return str(names.mode().sort()[0]) if names.len() else "-"


def _collectives(trace: Trace, origin: int) -> pl.DataFrame:
    """Per step, three columns for each collective: `stream_7_1_AllReduce-op3`, its start and its end."""
    rows = trace.analyse("reduces").filter(pl.col("dur_ns") > 0)
    numbers = dict(trace.tracks.select("label", "stream").drop_nulls().collect().iter_rows())
    labels = rows["stream"].unique(maintain_order=True)
    streams = {label: numbers.get(label, 1_000_000 + index) for index, label in enumerate(labels)}
    number = pl.col("stream").replace_strict(streams, return_dtype=pl.Int64) if streams else pl.lit(0)
    nth = pl.int_range(1, pl.len() + 1).over("step", "stream", "name")
    column = pl.format("stream_{}_{}_{}", number, nth, "name")
    rows = rows.with_columns(column=column, start=_counts(pl.col("start_ns"), origin), end=_counts(pl.col("end_ns"), origin))
    table = rows.select("step").unique(maintain_order=True)
    for (name,), calls in rows.group_by("column", maintain_order=True):
        points = {f"{name}_start_point": pl.col("start"), f"{name}_end_point": pl.col("end"), str(name): pl.col("end") - pl.col("start")}
        columns = calls.select("step", *(point.alias(key) for key, point in points.items()))
        table = table.join(columns, on="step", how="left", maintain_order="left")
    return table
