"""Operators: which families and which type take the time of each device."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.operators.operators import operators
from stepscope.analyses.operators.totals import totals
from stepscope.analyses.verdict.topics.message import Message, Options, covered_steps, known_shares, steps_left_out, steps_text
from stepscope.model.devices.families import PRODUCTS, operator_family
from stepscope.model.schema import DEVICES
from stepscope.model.trace import Trace


def operator_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together where there are several, then of each rank; per device, those of chips before the host."""
    rows = operators(trace, device=None).select("rank", "device", "name", "type", "calls", "self_ns", "share")
    ranks = trace.meta.ranks
    if len(ranks) > 1:
        yield from _messages(trace, rows, ranks, None)
    for rank in ranks:
        yield from _messages(trace, rows.filter(pl.col("rank") == rank), [rank], rank)
    if not ranks:
        yield Message("operators", "operators-none", {})


def _messages(trace: Trace, rows: pl.DataFrame, ranks: list[int], number: int | None) -> Iterator[Message]:
    if rows.is_empty():
        yield _largest_total(trace, ranks, number)
    present = rows["device"].unique()
    for device in [name for name in DEVICES if name in present]:
        covered = covered_steps(trace, ranks) if device != "cpu" else None
        on_device, left_out = known_shares(rows.filter(pl.col("device") == device))
        for code, parameters in _of_device(on_device, device):
            yield Message("operators", code, parameters, number, coverage=steps_text(covered), device=device)
        if left_out:
            yield Message("operators", "coverage-ranks", left_out, number, device=device)
        yield from steps_left_out("operators", covered, number, device)


def _of_device(rows: pl.DataFrame, device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    total, ranks = int(rows["self_ns"].sum()), rows["rank"].n_unique()
    where = {"where": "host operator time" if device == "cpu" else "device time"} | ({"ranks": ranks} if ranks > 1 else {})
    if not total or rows["share"].null_count() == rows.height:  # unknown: no step is completely recorded
        yield "operators-incomplete", where | {"time": total}
        return
    families = _sums(rows.with_columns(pl.Series("family", map(operator_family, rows["type"], rows["name"]), pl.String)), "family")
    (top, time), *others = ((row["family"], row["self_ns"]) for row in families)
    parameters = where | {"family": top, "share": time / total}
    if others:
        parameters |= {"next": others[0][0], "next_share": others[0][1] / total}
    products = next(((name, time) for name, time in [(top, time), *others] if name in PRODUCTS), None)
    if products and products[0] not in (top, parameters.get("next")):
        parameters |= {"products": products[0], "products_share": products[1] / total}
    yield "operators-families", parameters
    largest, *smaller = _sums(rows, "type")
    if smaller:
        yield (
            "operators-largest",
            {"operator": largest["type"], "share": largest["self_ns"] / total, "time": largest["self_ns"], "calls": largest["calls"]},
        )


def _sums(rows: pl.DataFrame, key: str) -> list[dict[str, Any]]:
    """Time and calls by this column, the longest time first."""
    sums = rows.group_by(pl.col(key).fill_null("?")).agg(pl.col("self_ns", "calls").sum())
    return sums.sort(-pl.col("self_ns"), key).to_dicts()


def _largest_total(trace: Trace, ranks: list[int], number: int | None) -> Message:
    """Where no operators are recorded: the largest total of other spans. Steps contain everything else."""
    spans = totals(trace).filter(pl.col("rank").is_in(ranks), pl.col("kind") != "step")
    if not spans["total_ns"].sum():  # nothing, or instants only
        return Message("operators", "operators-none", {}, number)
    largest = (
        spans.group_by(pl.col("name").fill_null("unnamed"))
        .agg(pl.col("total_ns").sum())
        .sort(-pl.col("total_ns"), "name")
        .row(0, named=True)
    )
    return Message("operators", "operators-totals", {"name": largest["name"], "time": largest["total_ns"]}, number)
