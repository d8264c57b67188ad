"""Steps of MindInsight's folders: the step trace, its collectives, cluster times and the operators at its points."""

import re

import polars as pl

from stepscope.model import schema, units
from stepscope.model.steps.step_assignment import steps_by_time
from stepscope.readers.ascend.common.tables import column, drop_invalid, number, read_json, read_table
from stepscope.readers.common.documents import as_dict, files
from stepscope.readers.common.problems import Problem
from stepscope.readers.mindinsight.files import COUNT_NS, SPANS, Folder

_CLUSTER_TIMES = {
    "computation_ns": ("computation_time", "computation"),
    "exposed_ns": ("communication_alone_time", "communication_alone"),
    "stage_ns": ("stage_time",),
    "receive_ns": ("receive_alone_time",),
    "collective_ns": ("collective_communication_alone_time", "collective_communication_time"),
}
COLUMN_PREFIX = r"^stream_\d+_\d+_"  # before the name of an operator in the step trace


def load_steps(folder: Folder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the collectives in them."""
    steps, collectives = _step_trace(folder)
    return _add_points(folder, _add_cluster_times(folder, steps)), collectives


def _step_trace(folder: Folder) -> tuple[pl.DataFrame, pl.DataFrame]:
    columns = ("step", "phase", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns", "how")
    rows = folder.table("step_trace_raw_{}_detail_time.csv")
    if not {"step_num", "start_point", "end_point"} <= set(rows.columns):
        return pl.DataFrame(schema={name: schema.TABLES["steps"][name] for name in columns}), pl.DataFrame(schema=SPANS)
    # The last row is the average, with the number `-`, or 0 in older files.
    rows = rows.with_columns(step=pl.col("step_num").cast(pl.Int32, strict=False)).filter(pl.col("step") > 0)
    steps = rows.select(
        step="step",
        phase=pl.lit("train" if "bp_point" in rows.columns else "infer"),
        start_ns=_nanoseconds(pl.col("start_point")),
        end_ns=_nanoseconds(pl.col("end_point")),
        fp_start_ns=_nanoseconds(column(rows, "fp_point")),
        bp_end_ns=_nanoseconds(column(rows, "bp_point")),
        how=pl.lit("marker"),
    )
    is_valid = pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns"))
    valid = drop_invalid(steps, is_valid, folder.problems, "step_trace_raw", "step", "without start or end")
    return valid, _collectives(folder, rows)


def _collectives(folder: Folder, rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs of columns `stream_1_2_AllReduce-op5_start_point` and `..._end_point`. `stream_1_parallel_0` keeps its stream, as every
    stream has one."""
    parts = [pl.DataFrame(schema=SPANS)]
    for name in rows.columns:
        pair = re.match(r"^(stream_(\d+)_.*)_start_point$", name)
        if pair and f"{pair[1]}_end_point" in rows.columns:
            start = _nanoseconds(pl.col(name))
            calls = rows.select(
                step="step",
                kind=pl.lit("communication"),
                name=pl.lit(re.sub(COLUMN_PREFIX, "", pair[1])),
                column=pl.lit(pair[1]),
                start_ns=start,
                dur_ns=_nanoseconds(pl.col(f"{pair[1]}_end_point")) - start,
                category=pl.lit("step trace"),
                **folder.track("stream", f"Stream {pair[2]}", pair[2]),
            )
            parts.append(calls.filter(pl.col("dur_ns") > 0))
    return pl.concat(parts, how="diagonal_relaxed")


def _nanoseconds(text: pl.Expr) -> pl.Expr:
    """From counts of the system clock; some versions write them as floats."""
    rounded = text.cast(pl.Float64, strict=False).round().cast(pl.Int64, strict=False)
    return pl.coalesce(text.cast(pl.Int64, strict=False), rounded) * COUNT_NS


def _add_cluster_times(folder: Folder, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with the times of *_cluster_analyse_*: one row per step in ms, then the average, unless there is a single step."""
    tables = [read_table(file, folder.problems) for file in files(folder.path, f"*_cluster_analyse_*_{folder.rank}.csv")]
    if not tables or tables[0].is_empty():
        return steps
    times = {name: number(column(tables[0], *names), 1e6).round().cast(pl.Int64) for name, names in _CLUSTER_TIMES.items()}
    rows = tables[0].select(**times)
    rows = rows if rows.height == max(steps.height, 1) else rows.head(-1)
    if len(tables) > 1:
        folder.problems.append(Problem("cluster_analyse", f"{len(tables)} files of this rank: only the first is read", 0))
    count = units.count(rows.height, "row")
    if steps.is_empty():
        folder.problems.append(Problem("cluster_analyse", f"{count} not read: no step trace has the times of their steps", rows.height))
        return steps
    if rows.height != steps.height:
        text = f"{count} for {units.count(steps.height, 'step')}: not read, as the step of a row is unknown"
        folder.problems.append(Problem("cluster_analyse", text, rows.height))
        return steps
    return pl.concat([steps, rows], how="horizontal")


def _add_points(folder: Folder, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with the operators in step_trace_point_info: one entry for all steps, or one for each."""
    candidates = (folder.file(name) for name in ("step_trace_point_info_{}.json", "step_trace_point_info.json"))
    document = next((content for file in candidates if file is not None and (content := read_json(file, folder.problems))), None)
    entries = [as_dict(entry) for entry in document] if isinstance(document, list) else [as_dict(document)] * steps.height
    if not any(entries) or steps.is_empty():
        return steps
    if len(entries) != steps.height:
        text = f"points of {units.count(len(entries), 'step')}, for {steps.height:,}: not read"
        folder.problems.append(Problem("step_trace_point_info", text, len(entries)))
        return steps
    names = {f"{point}_op": [str(entry[point]) if entry.get(point) else None for entry in entries] for point in ("fp_start", "bp_end")}
    return steps.with_columns(pl.Series(name, values, pl.String) for name, values in names.items())


def assign_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The spans with their steps by time. Spans without start times have none."""
    if steps.is_empty() or spans.is_empty():
        return spans
    by_time = steps_by_time(spans, steps.sort("start_ns"))
    return spans.with_columns(step=pl.coalesce("step", pl.when(pl.col("track_kind") != "other").then(by_time)))
