"""Kernels: which of them take the time, how short they are, and whether their launches come in time."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.operators.kernels import kernel_totals
from stepscope.analyses.operators.launches import launches
from stepscope.analyses.shared.operator_calls import in_recorded_steps, on_devices
from stepscope.analyses.verdict.topics.message import Message, Options, covered_steps, known_shares, steps_left_out, steps_text
from stepscope.model.devices.kernel_names import short_name
from stepscope.model.trace import Trace

_SHORT_NS = 10_000  # about the time that the host needs to launch a kernel
_MANY = 0.5  # of the calls

_Text = tuple[str, dict[str, Any], str | None]  # code, parameters, severity


def kernel_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together where there are several, then of each rank."""
    rows, launched, work = kernel_totals(trace), launches(trace), _device_work(trace)
    ranks = trace.meta.ranks
    for number in [*([None] if len(ranks) > 1 else []), *ranks] or [None]:
        chosen = ranks if number is None else [number]
        of_ranks = pl.col("rank").is_in(chosen)
        covered = covered_steps(trace, chosen)
        known, left_out = known_shares(rows.filter(of_ranks))
        if left_out:
            of_ranks &= pl.col("rank").is_in(known["rank"].unique().to_list())
        for code, parameters, level in _texts(known, launched.filter(of_ranks), work.filter(of_ranks)):
            yield Message("kernels", code, parameters, number, level, steps_text(covered) if parameters else None)
        if left_out:
            yield Message("kernels", "coverage-ranks", left_out, number)
        if known.height:
            yield from steps_left_out("kernels", covered, number)


def _device_work(trace: Trace) -> pl.DataFrame:
    """Per rank: the number and time of all kernels, of short ones, and of copies and fills."""
    kernel, short = ~pl.col("kind").is_in(["copy", "set"]), pl.col("dur_ns") < _SHORT_NS
    time = pl.col("dur_ns")
    sums: pl.DataFrame = (
        in_recorded_steps(trace, on_devices(trace))
        .group_by("rank")
        .agg(
            calls=kernel.sum(),
            time_ns=time.filter(kernel).sum(),
            short_calls=(kernel & short).sum(),
            short_ns=time.filter(kernel & short).sum(),
            copies_ns=time.filter(~kernel).sum(),
        )
        .collect()
    )
    return sums


def _texts(rows: pl.DataFrame, launched: pl.DataFrame, work: pl.DataFrame) -> Iterator[_Text]:
    if rows.is_empty():
        copies = int(work["copies_ns"].sum())
        yield ("kernels-copies", {"time": copies}, None) if copies else ("kernels-none", {}, None)
        return
    total, count = int(rows["total_ns"].sum()), int(rows["calls"].sum())
    if not total or rows["share"].null_count() == rows.height:  # unknown: no step is completely recorded
        yield "kernels-incomplete", {"time": total, "calls": count}, None
        return
    yield _largest(rows, total)
    short, short_ns = int(work["short_calls"].sum()), int(work["short_ns"].sum())
    if short > _MANY * count:
        parameters = {"share": short / count, "calls": count, "limit": _SHORT_NS, "time": short_ns, "time_share": short_ns / total}
        yield "kernels-short", parameters, "low"
    yield from _launches(launched)


def _largest(rows: pl.DataFrame, total: int) -> _Text:
    """The longest kernel, and how many kernels take half of the time."""
    names = (
        rows.with_columns(pl.col("name").fill_null("unnamed"))
        .group_by("name")
        .agg(pl.col("total_ns", "calls").sum())
        .sort(-pl.col("total_ns"), "name")
    )
    half = int((names["total_ns"].cum_sum() * 2 < total).sum()) + 1
    name, time, calls = names.row(0)
    parameters = {"share": time / total, "kernel": short_name(name), "kernel_full": name, "total": total}
    ranks = rows["rank"].n_unique()
    parameters |= {"ranks": ranks} if ranks > 1 else {}
    if half == 1:
        return "kernels-one", parameters | {"time": time, "calls": calls}, None
    return "kernels-largest", parameters | {"half": half, "kernels": names.height}, None


def _launches(launched: pl.DataFrame) -> Iterator[_Text]:
    calls, late, short = (int(launched[name].sum()) for name in ("calls", "host_bound_calls", "short_calls"))
    if calls:
        yield "launches-host-bound", {"share": late / calls, "late": late, "calls": calls}, "high" if late > _MANY * calls else None
    if calls and short > _MANY * calls:
        yield "launches-short", {"share": short / calls, "short": short, "calls": calls}, "medium"
