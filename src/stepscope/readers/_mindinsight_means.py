"""What MindInsight's folders have of operators without their times: means over calls, and the calls of each step with their shapes."""

import json
from collections.abc import Iterator

import polars as pl

from stepscope import units
from stepscope.readers._ascend_tables import column, number
from stepscope.readers._documents import exact, index, listed, mapped
from stepscope.readers._kineto import Problem
from stepscope.readers._mindinsight_files import Folder, scope_of, type_of

_MOST_CALLS = 10**7  # of one operator: more are damage, and would be as many spans


def means(folder: Folder, kinds: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = folder.table("aicore_intermediate_{}_detail.csv")
    if rows.width:
        # Mean of a call in ms; older files have no frequency: there each operator counts once, as in their sums by type.
        name, calls = pl.col(rows.columns[0]), number(column(rows, "execution_frequency"))
        known = rows.select(name=name, mean_ns=_exact_ms(rows, "execution_time"), calls=calls.fill_null(1)).join(
            kinds, on="name", how="left", maintain_order="left"
        )
        yield _mean_spans(folder, known, "kernel", "AI_CORE", "NPU", "aicore_intermediate")
    rows = folder.table("pynative_op_intermediate_{}_detail.csv")
    if rows.width:
        known = rows.select(
            name=pl.col(rows.columns[0]),
            mean_ns=_exact_ms(rows, "execution_time"),
            calls=number(column(rows, "execution_frequency")).fill_null(1),
        )
        yield _mean_spans(
            folder, known.join(kinds, on="name", how="left", maintain_order="left"), "kernel", "AI_CORE", "NPU", "pynative_op_intermediate"
        )
    rows = folder.table("gpu_activity_data_{}.csv")
    if rows.width and "name" in rows.columns:
        known = rows.select(
            name="name", calls=number(column(rows, "occurrences")).fill_null(1),
            mean_ns=number(column(rows, "avg_duration(us)", "avg_duration"), 1000.0),
            total_ns=number(column(rows, "total_duration(us)", "total_duration"), 1000.0),
            op_type=column(rows, "op_full_name").str.extract(r"([^/]*?)(?:-op\d+)?$"),
            scope=column(rows, "op_full_name").str.extract(r"^(.*)/[^/]*$"),
            args=pl.struct(pl.all()).struct.json_encode(),
        )  # fmt: skip
        yield _mean_spans(folder, known, "kernel", "gpu kernel", "GPU", "gpu_activity_data")
    rows = folder.table("gpu_op_detail_info_{}.csv")
    if "op_side" in rows.columns and folder.file("cpu_op_detail_info_{}.csv"):
        rows = rows.filter(pl.col("op_side") != "Host")  # that file has them as well
    if rows.width and "op_full_name" in rows.columns:
        known = rows.select(
            name="op_full_name", op_type=column(rows, "op_type"), calls=number(column(rows, "op_occurrences")).fill_null(1),
            mean_ns=number(column(rows, "op_avg_time(us)"), 1000.0), total_ns=number(column(rows, "op_total_time(us)"), 1000.0),
            args=pl.struct(pl.all()).struct.json_encode(),
        )  # fmt: skip
        yield _mean_spans(folder, known, "op", "Device", "", "gpu_op_detail_info")


def of_host(folder: Folder, each: bool) -> Iterator[pl.DataFrame]:
    rows = folder.table("cpu_op_detail_info_{}.csv")
    if not each and rows.width and "full_op_name" in rows.columns:
        known = rows.select(
            name="full_op_name", op_type=column(rows, "op_type"), calls=number(column(rows, "op_occurrences")).fill_null(1),
            mean_ns=_exact_ms(rows, "op_avg_time(ms)"), total_ns=_exact_ms(rows, "op_total_time(ms)"),
            args=pl.struct(pl.all()).struct.json_encode(),
        )  # fmt: skip
        yield _mean_spans(folder, known, "op", "HostCpuOps", "", "cpu_op_detail_info")


def _mean_spans(folder: Folder, rows: pl.DataFrame, kind: str, category: str, device: str, file: str) -> pl.DataFrame:
    """As many spans as there were calls, which add up to the total."""
    have = set(rows.columns)
    total = pl.coalesce("total_ns", pl.col("mean_ns") * pl.col("calls")) if "total_ns" in have else pl.col("mean_ns") * pl.col("calls")
    timed = (pl.col("mean_ns") >= 0) & total.is_between(0, 2**62)
    whole = rows.filter(pl.col("name").is_not_null() & timed & pl.col("calls").is_between(1, _MOST_CALLS))
    if lost := rows.height - whole.height:
        folder.problems.append(Problem(file, f"{units.count(lost, 'row')} without a name, a time or a number of calls that can be", lost))
    if whole.height:
        folder.problems.append(
            Problem(file, "only means over calls were recorded: each call is shown with the mean, and with no place in time", 0)
        )
    each = whole.with_columns(calls=pl.col("calls").cast(pl.Int64), total=total.round().cast(pl.Int64)).select(
        pl.all(), nth=pl.int_ranges(0, "calls")
    ).explode("nth")  # fmt: skip
    # A remainder of nanoseconds goes to the first calls, so that the sum is the source's.
    share = pl.col("total") // pl.col("calls") + (pl.col("nth") < pl.col("total") % pl.col("calls")).cast(pl.Int64)
    return each.select(
        kind=pl.lit(kind),
        name="name",
        start_ns=pl.lit(None, pl.Int64),
        dur_ns=share,
        op_type=pl.coalesce(pl.col("op_type") if "op_type" in have else None, type_of("name")),
        scope=pl.coalesce(pl.col("scope") if "scope" in have else None, scope_of("name")),
        category=pl.lit(category),
        shapes=pl.col("shapes") if "shapes" in have else pl.lit(None, pl.String),
        dtypes=pl.col("dtypes") if "dtypes" in have else pl.lit(None, pl.String),
        flops=pl.col("flops") if "flops" in have else pl.lit(None, pl.Int64),
        args=pl.col("args") if "args" in have else pl.lit(None, pl.String),
        group=pl.lit(f"{device} {folder.rank}" if device else "operators"),
        label=pl.lit("means of calls, without a place in time"),
        track_kind=pl.lit("other"),
        device=pl.lit(folder.rank if device else None, pl.Int32),
        tid=pl.lit(file),
    )


def dynamic(folder: Folder) -> Iterator[pl.DataFrame]:
    """Operators and kernels of each step with their shapes: us, no start."""
    found = folder.object("dynamic_shape_info_{}.json")
    for key, on_device in (("operator", False), ("kernel", True)):
        steps = found.get(key)
        rows, odd = [], 0
        for step, calls in steps.items() if isinstance(steps, dict) else []:
            for call in map(mapped, listed(calls)):
                try:
                    shapes = "[" + ",".join(str(one) for one in call.get("shape_info") or []) + "]"
                    name = str(call.get("op_full_name") or call.get("op_name") or call.get("kernel_name") or call["op_type"])
                    name = str(call.get("kernel_name") or call.get("name") or name) if on_device else name
                    length, kind = exact(call.get("dur", call.get("duration")), 1000), call.get("op_type")
                    said = json.dumps(call)
                    rows.append((name, str(kind) if kind else None, length, index(call.get("step", step)), shapes, said))
                except (KeyError, TypeError, ValueError):
                    odd += 1
        if odd:
            folder.problems.append(Problem("dynamic_shape_info", f"{units.count(odd, 'call')} without a name or a duration", odd))
        if rows:
            columns = {
                "name": pl.String,
                "op_type": pl.String,
                "dur_ns": pl.Int64,
                "step": pl.Int32,
                "shapes": pl.String,
                "args": pl.String,
            }
            yield pl.DataFrame(rows, columns, orient="row").select(
                pl.all(),
                kind=pl.lit("kernel" if on_device else "op"),
                scope=scope_of("name"),
                start_ns=pl.lit(None, pl.Int64),
                category=pl.lit("dynamic shape"),
                group=pl.lit(f"GPU {folder.rank}" if on_device else "operators"),
                label=pl.lit(f"{key}s of each step, without a place in time"),
                track_kind=pl.lit("other"),
                device=pl.lit(folder.rank if on_device else None, pl.Int32),
                tid=pl.lit(f"dynamic {key}"),
            )


def _exact_ms(rows: pl.DataFrame, name: str) -> pl.Expr:
    return number(column(rows, name), 1e6)
