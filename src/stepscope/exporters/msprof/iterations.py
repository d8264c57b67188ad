"""Iterations of msprof's timelines: passes, collectives and waits for input, by model."""

from collections.abc import Iterator

import polars as pl

from stepscope.exporters.common.json_lines import fill_template
from stepscope.exporters.msprof.summaries import reduces, us, with_input_waits
from stepscope.exporters.msprof.tasks import Work
from stepscope.exporters.msprof.trace_lines import HARDWARE, metadata_lines, number_text, process_number, span_line, timestamp

_STEPS = 70_000


def step_events(work: Work) -> Iterator[pl.Series]:
    iterations = with_input_waits(work)
    models = {
        (device, model): place
        for place, (device, model) in enumerate(iterations.select("device", "model").unique(maintain_order=True).rows())
    }
    for device in work.devices:
        mine = {model: _STEPS + work.pid + place for (of, model), place in models.items() if of == device}
        if not mine:
            continue
        pid = process_number(work, HARDWARE, device)
        threads = {tid: f"Step Trace(Model ID:{model})" for model, tid in mine.items()}
        yield metadata_lines(
            pid, HARDWARE, "Ascend Hardware", f"NPU {device}", threads, {tid: _STEPS + model for model, tid in mine.items()}
        )
        tid = pl.col("model").replace_strict(mine, return_dtype=pl.Int64)
        rows = iterations.filter(pl.col("device") == device).with_columns(tid=tid)
        yield from _iterations(rows, pid, work.pid)
        numbers = rows.select("step", "tid", "iteration")
        on_device = pl.col("device") == device
        yield _reduces(reduces(work).filter(on_device).join(numbers, on="step", maintain_order="left"), pid)
        yield _get_next(
            work.ranges.filter(on_device, pl.col("category") == "GetNext Time").join(numbers, on="step", maintain_order="left"), pid
        )


def _iterations(rows: pl.DataFrame, pid: int, process: int) -> Iterator[pl.Series]:
    forward, backward = timestamp("fp_start_ns").fill_null('"N/A"'), timestamp("bp_end_ns").fill_null('"N/A"')
    whole = rows.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    args = fill_template(
        '{"Iteration ID":{},"FP Start":{},"BP End":{},"Iteration End":{},"Iteration Time(us)":{}}',
        "iteration", forward, backward, timestamp("end_ns"), number_text(us("dur_ns")),
    )  # fmt: skip
    yield whole.select(span_line(pid, fill_template('"Iteration {}"', "iteration"), "tid", args, ',"cat":"Iteration Time"')).to_series()
    both = rows.filter(pl.col("fp_start_ns").is_not_null(), pl.col("bp_end_ns").is_not_null())
    passes = both.with_columns(start_ns="fp_start_ns", dur_ns=pl.col("bp_end_ns") - pl.col("fp_start_ns"))
    args = fill_template(
        '{"Iteration ID":{},"FP Start":{},"BP End":{},"FP_BP Time(us)":{}}', "iteration", forward, backward, number_text(us("dur_ns"))
    )
    yield passes.select(span_line(pid, fill_template('"FP_BP Time {}"', "iteration"), "tid", args, ',"cat":"FP_BP Time"')).to_series()
    refresh = both.with_columns(start_ns="bp_end_ns", dur_ns=pl.col("end_ns") - pl.col("bp_end_ns"))
    args = fill_template(
        '{"Iteration ID":{},"BP End":{},"Iteration End":{},"Iteration Refresh(us)":{}}',
        "iteration", backward, timestamp("end_ns"), number_text(us("dur_ns")),
    )  # fmt: skip
    yield refresh.select(
        span_line(pid, fill_template('"Iteration Refresh {}"', "iteration"), "tid", args, ',"cat":"Iteration Refresh"')
    ).to_series()
    # From the middle of the rest after the backward pass to the next forward pass: the input between them.
    name = fill_template('{"name":"Data_aug Bound {}","cat":"Data_aug Bound"', pl.col("iteration") - pl.col("other"))
    place = fill_template(',"pid":' + str(pid) + ',"tid":{},"id":"Data_aug Bound ' + str(process) + '_{}"', "tid", "tid")
    to = fill_template(',"ph":"t","ts":{}', timestamp("fp_start_ns"))
    middle = pl.col("bp_end_ns") + (pl.col("end_ns") - pl.col("bp_end_ns")) // 2
    of = fill_template(',"ph":"s","ts":{}', timestamp(middle))
    bound = pl.coalesce(us("bound_ns"), pl.lit(0.0))
    yield (
        both.with_columns(other=1)
        .select(pl.concat_str(name, to, place, fill_template(',"args":{"Iteration ID":{}}}', "iteration")))
        .to_series()
    )
    yield (
        both.with_columns(other=0)
        .select(pl.concat_str(name, of, place, fill_template(',"args":{"Data_aug Bound(us)":{}}}', number_text(bound))))
        .to_series()
    )


def _reduces(rows: pl.DataFrame, pid: int) -> pl.Series:
    args = fill_template(
        '{"Iteration ID":{},"Reduce Start {}":{},"Reduce End {}":{}}',
        "iteration", "nth", timestamp("start_ns"), "nth", timestamp(pl.col("start_ns") + pl.col("dur_ns")),
    )  # fmt: skip
    return rows.select(span_line(pid, fill_template('"Reduce_{}_{}"', "iteration", "nth"), "tid", args, ',"cat":"Reduce"')).to_series()


def _get_next(rows: pl.DataFrame, pid: int) -> pl.Series:
    args = fill_template(
        '{"GetNext Start":{},"GetNext End":{},"GetNext Time(us)":{}}',
        timestamp("start_ns"), timestamp(pl.col("start_ns") + pl.col("dur_ns")), number_text(us("dur_ns")),
    )  # fmt: skip
    return rows.select(span_line(pid, pl.lit('"GetNext"'), "tid", args, ',"cat":"GetNext Time"')).to_series()
