"""FLOPs: how near matrix operators come to the peak of the chip, and which of them do most of the work."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.flops.flops import flops
from stepscope.analyses.shared.flop_counts import flop_calls, flop_totals
from stepscope.analyses.shared.steps.coverage import steps_with_lost_work
from stepscope.analyses.steps.overview import overview
from stepscope.analyses.verdict.topics.message import (
    Message,
    Options,
    column,
    covered_steps,
    known,
    operator_name,
    steps_left_out,
    steps_text,
    value_range,
)
from stepscope.model.trace import Trace

_LOW = 0.4  # of the peak: a large matrix product in a good shape reaches more
_SLOW = 0.1  # of the time of matrix operators: an operator that takes less is no conclusion

_Row = dict[str, Any]


def flop_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together where there are several, then of each rank."""
    calls = flop_calls(trace).filter(pl.col("flops").is_not_null() | pl.col("how").is_in(["unknown", "no shapes"]))
    # An operator whose kernels are lost would seem to be faster than it is.
    recorded = calls.join(steps_with_lost_work(trace), on=["rank", "step"], how="anti", nulls_equal=False)
    calls = pl.concat([recorded, calls.join(recorded.select("rank").unique(), on="rank", how="anti")])
    steps = {row["rank"]: row for row in overview(trace, warmup=options.warmup).to_dicts()}
    ranks = trace.meta.ranks
    for number in [*([None] if len(ranks) > 1 else []), *ranks] or [None]:
        chosen = ranks if number is None else [number]
        covered = covered_steps(trace, chosen)
        texts = list(_texts(trace, calls.filter(pl.col("rank").is_in(chosen)), [steps[rank] for rank in chosen if rank in steps], chosen))
        for code, parameters, level in texts:
            yield Message("flops", code, parameters, number, level, steps_text(covered) if parameters else None)
        if texts[0][1]:
            yield from steps_left_out("flops", covered, number)


def _texts(trace: Trace, calls: pl.DataFrame, steps: list[_Row], ranks: list[int]) -> Iterator[tuple[str, _Row, str | None]]:
    counted = pl.col("flops").is_not_null()
    # Operators on the CPU of a job that uses a device are no measure of the device.
    at_device = calls.filter((pl.col("device") != "cpu").fill_null(True))
    on_host = calls.clear()
    if at_device.filter(counted).height:
        calls, on_host = at_device, calls.filter(counted, pl.col("device") == "cpu")
    totals = flop_totals(calls, "rank").filter(counted).to_dicts()
    if not totals:
        yield _step_sum(trace, ranks)
        return
    precisions = calls.filter(pl.col("flops").is_not_null())["precision"].drop_nulls().unique().sort().to_list()
    chips = trace.devices.filter(pl.col("rank").is_in(ranks), (pl.col("kind") != "cpu").fill_null(True)).select("name").collect()
    names = {"chip": ", ".join(chips["name"].drop_nulls().unique().sort()), "precision": ", ".join(precisions)}
    # The tools of Ascend count the FLOPs of all operators, others those of matrix operators.
    ascend = calls.filter(counted, pl.col("how") == "recorded", pl.col("device").is_in(["aicore", "aicpu"])).height
    names["what"] = "operators" if ascend else "matrix operators"
    several = {"ranks": len(totals)} if len(ranks) > 1 else {}
    rate = value_range(column(totals, "flops_per_s"))
    used = column(totals, "utilization")
    if used and len(used) == len(totals):
        peaks = calls["peak"].drop_nulls().unique().to_list()
        peak = {"peak": peaks[0]} if len(peaks) == 1 else {}
        level = "medium" if sum(used) / len(used) < _LOW else "info"
        yield "flops-utilization", {"share": value_range(used), "rate": rate} | names | peak | several, level
    else:
        parameters = {"flops": sum(column(totals, "flops"))} | known(rate=rate) | several
        yield _without_peak(calls, rate is not None, names), parameters | names, None
    if on_host.height:
        yield "flops-host-too", {"flops": int(on_host["flops"].sum()), "calls": on_host.height}, None
    yield from _operators(calls)
    if (unknown := sum(row["unknown_calls"] for row in totals)) > 0:
        yield "flops-unknown-calls", {"unknown": unknown, "calls": sum(row["calls"] for row in totals)}, None
    shares = column(steps, "utilization")
    if shares:
        yield "flops-steps", {"share": value_range(shares), "rate": value_range(column(steps, "flops_per_s"))}, None


def _without_peak(calls: pl.DataFrame, timed: bool, names: _Row) -> str:
    if not timed:
        return "flops-no-time"
    if not calls.filter(pl.col("flops").is_not_null(), pl.col("device") != "cpu").height:
        return "flops-host"
    return "flops-no-peak" if names["chip"] else "flops-no-chip"


def _operators(calls: pl.DataFrame) -> Iterator[tuple[str, _Row, str | None]]:
    """The operator with most FLOPs, and the one that loses most time against the peak if it is another."""
    rows = flop_totals(calls, "name").filter(pl.col("flops") > 0).sort(-pl.col("flops"), "name")
    if rows.height < 2:
        return
    total, time = int(rows["flops"].sum()), int(rows["time_ns"].fill_null(0).sum())
    largest = rows.row(0, named=True)
    rates = known(rate=largest["flops_per_s"], utilization=largest["utilization"])
    yield "flops-largest", operator_name(largest["name"]) | {"share": largest["flops"] / total} | rates, None
    lost = rows.with_columns(lost=pl.col("time_ns") - pl.col("ideal_ns")).filter(pl.col("lost") > 0).sort(-pl.col("lost"), "name")
    slow = lost.row(0, named=True) if lost.height else largest
    if slow["name"] != largest["name"] and slow["time_ns"] > _SLOW * time:
        yield "flops-slow", operator_name(slow["name"]) | {"share": slow["utilization"], "time_share": slow["time_ns"] / time}, None


def _step_sum(trace: Trace, ranks: list[int]) -> tuple[str, _Row, str | None]:
    """The sum of a step, where the source has only that."""
    rows = flops(trace).filter(pl.col("rank").is_in(ranks), pl.col("flops").is_not_null(), pl.col("how") == "sum of a step").to_dicts()
    if not rows:
        return "flops-none", {}, None
    several = {"ranks": len(rows)} if len(ranks) > 1 else {}
    rate = value_range(column(rows, "flops_per_s"))
    return "flops-step-sum", {"flops": value_range(column(rows, "flops"))} | known(rate=rate) | several, None
