"""msprof's tables: times of operators, operator types, tasks, calls and iterations."""

from collections.abc import Iterator

import polars as pl

from stepscope.exporters.msprof.tasks import CACHE_COUNTERS, NO_CONTEXT, TENSORS, Work, filter_rows, with_texts

_PORTION = 20_000
_COMMUNICATION = "COMMUNICATION"


def tables(work: Work) -> dict[str, Iterator[pl.DataFrame]]:
    """The tables by the names of their files, in portions; cells have the format of the file, null for unknown values."""
    return {
        "op_summary": op_summary(work),
        "op_statistic": _as_portion(op_statistic(work)),
        "step_trace": _as_portion(step_trace(work)),
        "task_time": task_time(work),
        "fusion_op": _as_portion(fusion_op(work)),
        "api_statistic": _as_portion(api_statistic(work)),
        "communication_statistic": _as_portion(communication_statistic(work)),
        "aicpu": _as_portion(aicpu(work)),
        "l2_cache": _as_portion(l2_cache(work)),
    }


def _as_portion(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    if rows.height:
        yield rows


def time(column: str | pl.Expr) -> pl.Expr:
    """Microseconds with three digits, exactly. The tab at the end prevents rounding in spreadsheets."""
    return pl.concat_str(microseconds(column), pl.lit("\t"))


def microseconds(column: str | pl.Expr) -> pl.Expr:
    ns = pl.col(column) if isinstance(column, str) else column
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, ns.abs() // 1000, pl.lit("."), (ns.abs() % 1000).cast(pl.String).str.zfill(3))


def us(column: str | pl.Expr) -> pl.Expr:
    return ((pl.col(column) if isinstance(column, str) else column) / 1000).round(3)


# Operators


def kernels(work: Work) -> pl.DataFrame:
    """Executed operators: row in `tasks`, device, start_ns, dur_ns, serves."""
    rows = work.tasks.select("kind", "serves", "device", "start_ns", "dur_ns", "whole_start_ns", "whole_dur_ns").with_row_index("row")
    rows = rows.filter(pl.col("kind") == "kernel")
    return _with_whole_tasks(rows, work).select("row", "device", "start_ns", "dur_ns", "serves")


def _with_whole_tasks(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Without details of operators, earlier CANN takes the time of the whole task for a kernel on both kinds of core."""
    if not work.brief or work.current:
        return rows
    return rows.with_columns(start_ns=pl.coalesce("whole_start_ns", "start_ns"), dur_ns=pl.coalesce("whole_dur_ns", "dur_ns"))


def op_summary(work: Work) -> Iterator[pl.DataFrame]:
    communicating = work.operators.with_row_index("row").select("row", "device", "start_ns", "dur_ns")
    both = [frame.with_columns(other=pl.lit(other)) for frame, other in ((kernels(work).drop("serves"), 0), (communicating, 1))]
    order = pl.concat(both).with_columns(_order(work)).sort("device", "start_ns", "place", maintain_order=True).drop("place")
    # Only the previous operator counts, even if an earlier one still runs.
    free = pl.col("start_ns") - (pl.col("start_ns") + pl.col("dur_ns")).shift(1).over("device")
    order = order.with_columns(wait_ns=free.clip(0).fill_null(0))
    none = _task_details(work, pl.Series(dtype=pl.UInt32)).with_columns(wait_ns=pl.lit(0, pl.Int64))
    columns = _kernel_rows(work, none).schema
    for part in order.iter_slices(_PORTION):
        of_kernels, of_operators = (part.filter(pl.col("other") == other) for other in (0, 1))
        rows = pl.concat(
            [
                _kernel_rows(work, _task_details(work, of_kernels["row"]).hstack(of_kernels.select("wait_ns"))),
                _operator_rows(work, work.operators[of_operators["row"]].hstack(of_operators.select("wait_ns")), columns),
            ]
        )
        yield _in_time_order(rows, part)


def _order(work: Work) -> pl.Expr:
    """The order of a kernel and a communication operator with the same start: the second one has a wait time.

    msprof has floats as timestamps and truncates those of communication, which comes first if its float is not whole.
    """
    first = pl.lit(False)
    clocks = work.chips.select("device", "counter_hz", "counter_start", "monotonic_ns", "wall_ns").drop_nulls()
    for device, hertz, counter, monotonic_ns, wall_ns in clocks.filter(pl.col("counter_hz") > 0).iter_rows():
        ticks = ((pl.col("start_ns") - wall_ns) * hertz / 1e9).round()
        past = (ticks + counter - counter / 1e9 * 1e9) / hertz * 1e9
        time_ns = past + monotonic_ns / 1e9 * 1e9
        first = first | ((pl.col("device") == device) & (time_ns != time_ns.floor()))
    return pl.when((pl.col("other") == 1) & first).then(-1).otherwise("other").alias("place")


def _task_details(work: Work, rows: pl.Series) -> pl.DataFrame:
    details = _of_known_blocks(with_texts(work.tasks[rows]), work.counters)
    if work.brief:
        details = _with_whole_tasks(details, work).with_columns(category=pl.lit(None, pl.String), span_type=pl.lit(None, pl.String))
    return details


def _in_time_order(rows: pl.DataFrame, part: pl.DataFrame) -> pl.DataFrame:
    """Rows that are sorted by kind, in the order of time."""
    place = part.with_row_index("place").sort("other", "place", maintain_order=True)["place"]
    return rows.with_columns(place).sort("place").drop("place")


def _kernel_rows(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(_round_core_times(rows[name]).alias(f"printed {name}") for name in _CORE_TIMES if name in work.counters)
    known = pl.col("blocks").is_not_null()
    blocks: dict[str, pl.Expr] = {"Block Num": pl.col("blocks").fill_null(0) if _is_ascend(work) else pl.col("blocks")}
    if work.stars:
        blocks["Mix Block Num"] = pl.col("mix_blocks").fill_null(0)
    context: dict[str, pl.Expr] = {"Context ID": pl.when(pl.col("context") != NO_CONTEXT).then("context")} if work.stars else {}
    if work.brief:
        blocks = {name: pl.lit(0, pl.Int64) for name in blocks}
        context = context if work.current else {name: pl.lit(None, pl.Int64) for name in context}
    op_type = pl.coalesce("op_type", "span_type", pl.when(_is_ascend(work)).then(pl.coalesce("op_name", "name")))
    return rows.select(
        **{
            "Device_id": pl.col("device"),
            "Model ID": pl.col("model"),
            "Task ID": pl.col("task"),
            "Stream ID": pl.col("stream"),
            "Op Name": pl.coalesce("op_name", "name"),
            "OP Type": pl.lit(None, pl.String) if work.brief else op_type,
            "OP State": pl.when(known).then("op_state"),
            "Task Type": pl.col("category"),
            "Task Start Time(us)": time("start_ns"),
            "Task Duration(us)": us("dur_ns"),
            "Task Wait Time(us)": us("wait_ns"),
            **blocks,
            "HF32 Eligible": pl.col("hf32"),
            **{name: pl.format('"{}"', column) if name.endswith("Shapes") else pl.col(column) for name, column in TENSORS.items()},
            **context,
            **{name: _counter(name, rows) for name in work.counters},
        }
    )


_OTHER_CORES = {"MIX_AIC": ("aiv_",), "MIX_AIV": ("aic_", "aicore_", "cube_")}  # counters of the cores that do not start the kernel


def _of_known_blocks(rows: pl.DataFrame, counters: list[str]) -> pl.DataFrame:
    """Counters with msprof's zeros: those of the other kind of core (MIX) if its number of blocks is unknown, and mean times if the
    number of all blocks is unknown."""
    unknown = pl.col("mix_blocks").fill_null(0) == 0
    present = set(rows["category"].unique())
    other = {kind: prefixes for kind, prefixes in _OTHER_CORES.items() if kind in present}
    cycles = next((name for name in counters if name.endswith("total_cycles")), None)
    if cycles is not None:
        no_mean = (pl.col("blocks").fill_null(0) == 0) & pl.col(cycles).is_not_null()
        times = [name for name in counters if name.endswith("_time(us)")]
        rows = rows.with_columns(pl.when(no_mean).then(pl.col(name).fill_null(0)).otherwise(name).alias(name) for name in times)
    return rows.with_columns(
        pl.when(pl.col(name).is_not_null(), pl.col("category") == category, unknown)
        .then(0)
        .otherwise(name)
        .cast(rows.schema[name])
        .alias(name)
        for category, prefixes in other.items()
        for name in counters
        if name.startswith(prefixes)
    )


def _round_core_times(times: pl.Series) -> pl.Series:
    """Times with two digits. A middle is rounded by its exact binary value, as in msprof."""
    cents = times * 100
    middle = ((cents - cents.floor() - 0.5).abs() < 1e-6).arg_true()
    return times.round(2).scatter(middle, [round(time, 2) for time in times.gather(middle)]) if middle.len() else times.round(2)


def _counter(name: str, rows: pl.DataFrame) -> pl.Expr:
    """A counter with the digits of msprof: times of cores have two, and times of pipes are computed from these."""
    if rows.schema[name] != pl.Float64:
        return pl.col(name)
    if name in _CORE_TIMES:
        return pl.col(f"printed {name}")
    whole = "aiv_time(us)" if name.startswith("aiv_") else "aicore_time(us)"
    if not name.endswith("_time(us)") or whole not in rows.columns:
        return pl.col(name).round(3)
    part = pl.col(name) * pl.col(f"printed {whole}") / pl.col(whole)
    return pl.when(pl.col(whole) > 0).then(part).otherwise(pl.col(name)).round(3)


_CORE_TIMES = ("aicore_time(us)", "aiv_time(us)")


def _is_ascend(work: Work) -> bool:
    return work.tasks["task"].count() > 0


def _operator_rows(work: Work, rows: pl.DataFrame, columns: pl.Schema) -> pl.DataFrame:
    """Communication operators with the columns of kernels."""
    known: dict[str, pl.Expr] = {
        "Device_id": pl.col("device"),
        "Model ID": pl.col("model"),
        "Op Name": pl.col("name"),
        "OP Type": pl.col("span_type"),
        "Task Type": pl.lit(_COMMUNICATION),
        "Task Start Time(us)": time("start_ns"),
        "Task Duration(us)": us("dur_ns"),
        "Task Wait Time(us)": us("wait_ns"),
        "Block Num": pl.lit(0, pl.Int64) if _is_ascend(work) else pl.lit(None, pl.Int64),
    }
    return rows.select(known.get(name, pl.lit(None, dtype)).cast(dtype).alias(name) for name, dtype in columns.items())


_TIMES = {
    "Count": pl.len(),
    "Total Time(us)": us(pl.col("dur_ns").sum()),
    "Min Time(us)": us(pl.col("dur_ns").min()),
    "Avg Time(us)": us(pl.col("dur_ns").mean()),
    "Max Time(us)": us(pl.col("dur_ns").max()),
}


def op_statistic(work: Work) -> pl.DataFrame:
    if work.brief:
        return pl.DataFrame()
    needed = ("device", "kind", "category", "span_type", "op_type", "op_name", "name", "dur_ns")
    rows = work.tasks.select(needed).filter(pl.col("kind") == "kernel", pl.col("category") != _COMMUNICATION)
    key = {
        "Device_id": pl.col("device"),
        "OP Type": pl.coalesce("op_type", "span_type", "op_name", "name"),
        "Core Type": pl.col("category"),
    }
    return _by_total(with_texts(rows.group_by(**key, maintain_order=True).agg(**_TIMES)))


def communication_statistic(work: Work) -> pl.DataFrame:
    if work.brief:
        return pl.DataFrame()
    key = {"Device_id": pl.col("device"), "OP Type": pl.coalesce("span_type", "name")}
    return _by_total(work.operators.group_by(**key, maintain_order=True).agg(**_TIMES))


def _by_total(rows: pl.DataFrame) -> pl.DataFrame:
    total = pl.col("Total Time(us)")
    share = pl.when(total.sum() > 0).then(total / total.sum() * 100).otherwise(0.0).over("Device_id")
    return rows.with_columns(share.round(3).alias("Ratio(%)")).sort("Device_id", total, descending=[False, True], maintain_order=True)


# Tasks


def task_time(work: Work) -> Iterator[pl.DataFrame]:
    """All tasks; after those of a device its copies again, as recorded by its scheduler."""
    # Without the parts of communication tasks: they are tasks of planes.
    whole = (pl.col("kind") == "kernel") | (pl.col("context").fill_null(NO_CONTEXT) == NO_CONTEXT)
    for device in work.devices:
        tasks = filter_rows(work.tasks, pl.col("device") == device, whole)
        for rows in tasks.iter_slices(_PORTION):
            yield _task_rows(work, with_texts(rows))
        copies = tasks.filter(pl.col("received_ns").is_not_null())
        if copies.height:
            yield _task_rows(work, with_texts(copies).with_columns(kernel_name=pl.lit("MemcopyAsync"), category=pl.lit("other")))


def _task_rows(work: Work, rows: pl.DataFrame) -> pl.DataFrame:
    kernel = pl.col("kind").is_in(["kernel", "communication"])
    kind = pl.coalesce(pl.when(kernel & pl.lit(work.brief)).then("runtime_type"), "category", "kind")
    named = kernel & pl.lit(not (work.brief and work.current))
    return rows.select(
        **{
            "Device_id": pl.col("device"),
            "kernel_name": pl.coalesce("kernel_name", pl.when(named).then(pl.coalesce("op_name", "name"))),
            "kernel_type": kind,
            "stream_id": pl.col("stream"),
            "task_id": pl.col("task"),
            "task_time(us)": us("dur_ns"),
            "task_start(us)": time("start_ns"),
            "task_stop(us)": time(pl.col("start_ns") + pl.col("dur_ns")),
        }
    )


def aicpu(work: Work) -> pl.DataFrame:
    """Times reported by operators on AI CPUs."""
    node = pl.when(pl.col("kind") == "kernel").then(pl.coalesce("op_name", "name"))
    rows = with_texts(work.tasks.filter(pl.col("run_ns").is_not_null())).with_columns(node=node)
    rows = pl.concat([rows, with_texts(work.aicpu)], how="diagonal").with_columns(start_ns=pl.coalesce("aicpu_start_ns", "start_ns"))
    return rows.sort("device", "start_ns", maintain_order=True).select(
        **{
            "Device_id": pl.col("device"),
            "Timestamp(us)": time("start_ns"),
            "Node": pl.col("node"),
            "Compute_time(us)": pl.col("compute_us").cast(pl.Float64),
            "Memcpy_time(us)": pl.col("memcpy_us").cast(pl.Float64),
            "Task_time(us)": us("run_ns"),
            "Dispatch_time(us)": pl.col("dispatch_us").cast(pl.Float64),
            "Total_time(us)": us("total_ns"),
            "Stream ID": pl.col("stream"),
            "Task ID": pl.col("task"),
        }
    )


def l2_cache(work: Work) -> pl.DataFrame:
    if not set(CACHE_COUNTERS) <= set(work.tasks.columns):
        return pl.DataFrame()
    rows = work.tasks.select("device", "stream", "task", "op_name", "name", *CACHE_COUNTERS).filter(pl.col("l2_victim_rate").is_not_null())
    return with_texts(rows).select(
        **{
            "Device_id": pl.col("device"),
            "Stream Id": pl.col("stream"),
            "Task Id": pl.col("task"),
            "Hit Rate": pl.col("l2_hit_rate"),
            "Victim Rate": pl.col("l2_victim_rate"),
            "Op Name": pl.coalesce("op_name", "name"),
        }
    )


# The host


def api_statistic(work: Work) -> pl.DataFrame:
    """Calls of the host, without a device."""
    rows = work.calls.filter(pl.col("kind") != "annotation", ~pl.col("event").fill_null(False))
    if rows.is_empty():
        return pl.DataFrame()
    calls = rows.group_by(pl.col("level").alias("Level"), pl.col("name").alias("API Name")).agg(
        **{
            "Time(us)": us(pl.col("dur_ns").sum()),
            "Count": pl.len(),
            "Avg(us)": us(pl.col("dur_ns").mean()),
            "Min(us)": us(pl.col("dur_ns").min()),
            "Max(us)": us(pl.col("dur_ns").max()),
            "Variance": (pl.col("dur_ns") / 1000).var(ddof=0).round(3),
        }
    )
    calls = with_texts(calls).sort("API Name", "Level")
    return calls.select(pl.lit("host").alias("Device_id"), pl.all())


def fusion_op(work: Work) -> pl.DataFrame:
    devices = pl.DataFrame({"device": work.devices}, schema={"device": pl.Int64})
    name = pl.col("model").fill_null(0).replace_strict(work.models, default="N/A", return_dtype=pl.String)
    return devices.join(work.fusions, how="cross").select(
        **{
            "Device_id": pl.col("device"),
            "Model Name": name,
            "Model ID": pl.col("model"),
            "Fusion Op": pl.col("name"),
            "Original Ops": pl.col("originals"),
            **{f"Memory {kind.title()}(KB)": pl.col(f"{kind}_bytes").fill_null(0) / 1024 for kind in _MEMORY},
        }
    )


_MEMORY = ("input", "output", "weight", "workspace", "total")


# Iterations


def step_trace(work: Work) -> pl.DataFrame:
    """Iterations of each model with their collectives, sorted by stream and time."""
    if work.iterations.is_empty():
        return pl.DataFrame()
    rows = with_input_waits(work).select(
        **{
            "Device_id": pl.col("device"),
            "Iteration ID": pl.col("iteration"),
            "FP Start(us)": time("fp_start_ns"),
            "BP End(us)": time("bp_end_ns"),
            "Iteration End(us)": time("end_ns"),
            "Iteration Time(us)": us(pl.col("end_ns") - pl.col("start_ns")),
            "FP to BP Time(us)": us(pl.col("bp_end_ns") - pl.col("fp_start_ns")),
            "Iteration Refresh(us)": us(pl.col("end_ns") - pl.col("bp_end_ns")),
            "Data Aug Bound(us)": us("bound_ns"),
            "Model ID": pl.col("model"),
            "step": pl.col("step"),
        }
    )
    collectives = reduces(work)
    most = collectives["nth"].max()
    for nth in range(most + 1 if isinstance(most, int) else 0):
        nth_rows = collectives.filter(pl.col("nth") == nth)
        cells = nth_rows.select("step", **{f"Reduce Start(us)#{nth}": time("start_ns"), f"Reduce Duration(us)#{nth}": us("dur_ns")})
        rows = rows.join(cells, on="step", how="left", maintain_order="left")
    return rows.drop("step")


def reduces(work: Work) -> pl.DataFrame:
    """Collectives of iterations; `nth` is the number within the iteration."""
    rows = work.ranges.filter(pl.col("category") == "Reduce", pl.col("step").is_not_null())
    first = pl.col("start_ns").min().over("step", "stream")
    rows = rows.with_columns(first=first).sort("step", "first", "stream", "start_ns", maintain_order=True)
    return rows.with_columns(nth=pl.int_range(pl.len()).over("step"))


def with_input_waits(work: Work) -> pl.DataFrame:
    """Iterations with `bound_ns`: from the end of the previous iteration of the device to the forward pass."""
    rows = work.iterations.with_row_index("place").sort("fp_start_ns")
    ends = work.iterations.select("device", "end_ns").sort("end_ns").with_columns(before="end_ns")
    starts = rows.filter(pl.col("fp_start_ns").is_not_null()).join_asof(
        ends, left_on="fp_start_ns", right_on="end_ns", by="device", allow_exact_matches=False, check_sortedness=False, coalesce=False
    )
    bound = starts.select("place", bound_ns=pl.col("fp_start_ns") - pl.col("before"))
    return work.iterations.with_row_index("place").join(bound, on="place", how="left", maintain_order="left").drop("place")
