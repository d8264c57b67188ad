"""From the step of A to the step of B: parts and operators whose differences add up to the difference, to the nanosecond."""

import math
from collections.abc import Sequence

import polars as pl

from stepscope.comparison.parts import COMMUNICATION, COMPUTE, COPY, HOST_GAPS, IDLE
from stepscope.comparison.profile import OFFSET, SPREAD, UNRECORDED
from stepscope.comparison.side import Side

COLUMNS = {
    "position": pl.Int32,
    "part": pl.String,
    "operator": pl.String,  # null: the whole part, or the other operators of the part
    "family": pl.String,  # of the operator
    "operators": pl.Int64,  # that the row contains
    "a_ns": pl.Int64,  # per typical step; the rows add up to the step
    "b_ns": pl.Int64,
    "change_ns": pl.Int64,
    "share": pl.Float64,  # of the difference
}
PARTS = (COMPUTE, COMMUNICATION, COPY, *IDLE.values(), HOST_GAPS, OFFSET, UNRECORDED, SPREAD)
_SHOWN = 8  # operators with a row of their own


def waterfall(a: Side, b: Side, rule: str, *, shown: int = _SHOWN) -> pl.DataFrame:
    """The computing operators that changed most, the other operators together, then the other parts of the step."""
    step_a, step_b = a.step(), b.step()
    if step_a is None or step_b is None or not (a.has_parts and b.has_parts):
        return pl.DataFrame(schema=COLUMNS)
    rows = both_sides(a, b, rule, ["part", "operator"], {"family": pl.col("family").drop_nulls().first()})
    copies_known = all(fact for side in (a, b) for fact in side.fact("copies"))
    if not copies_known:  # where copies are not recorded, they are part of the idle time
        rows = rows.with_columns(part=pl.when(pl.col("part") == COPY).then(pl.lit(IDLE["unknown"])).otherwise("part"))
    change = (pl.col("b_ns") - pl.col("a_ns")).abs()
    place = pl.when(pl.col("part") == COMPUTE).then(change.rank("ordinal", descending=True).over("part"))
    has_row = (place <= shown).fill_null(False) & pl.col("operator").is_not_null()
    grouped = (
        rows.with_columns(shown=pl.when(has_row).then("operator"))
        .group_by("part", operator="shown", maintain_order=True)
        .agg(
            pl.col("a_ns", "b_ns").sum(),
            family=pl.when(pl.col("operator").len() == 1).then(pl.col("family").first()),
            operators=pl.col("operator").n_unique(),
        )
        .with_columns(family=pl.when(pl.col("operator").is_not_null()).then("family"))
        .filter((pl.col("a_ns") != 0) | (pl.col("b_ns") != 0))
    )
    order = pl.col("part").replace_strict({part: place for place, part in enumerate(PARTS)}, default=len(PARTS), return_dtype=pl.Int32)
    ordered = grouped.sort(order, pl.col("operator").is_null(), -(pl.col("b_ns") - pl.col("a_ns")).abs(), maintain_order=True)
    whole = [round(step_a.value), round(step_b.value)]
    sums = {name: _rounded(ordered[name].to_list(), total) for name, total in zip(("a_ns", "b_ns"), whole, strict=True)}
    table = ordered.with_columns(pl.Series(name, values, pl.Int64) for name, values in sums.items())
    difference = whole[1] - whole[0]
    table = table.with_columns(change_ns=pl.col("b_ns") - pl.col("a_ns"), position=pl.int_range(pl.len()))
    table = table.with_columns(share=pl.col("change_ns") / difference if difference else pl.lit(None, pl.Float64))
    return table.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def both_sides(a: Side, b: Side, rule: str, keys: list[str], more: dict[str, pl.Expr] | None = None) -> pl.DataFrame:
    """Times, totals and calls per typical step of both sides by these keys; a side without a key has zeros."""
    tables = []
    for prefix, side in (("a", a), ("b", b)):
        sums = [pl.col(name).sum().alias(f"{prefix}_{short}") for name, short in _NAMES.items()]
        tables.append(side.parts(rule).group_by(keys, maintain_order=True).agg(*sums, **(more or {})))
    joined = tables[0].join(tables[1], on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    repeated = [pl.coalesce(name, f"{name}_right").alias(name) for name in more or {}]
    numbers = pl.col([f"{prefix}_{short}" for prefix in "ab" for short in _NAMES.values()]).fill_null(0.0)
    return joined.with_columns(numbers, *repeated).drop(f"{name}_right" for name in more or {})


_NAMES = {"step_ns": "ns", "total_ns": "total_ns", "calls": "calls"}


def _rounded(values: Sequence[float], total: int) -> list[int]:
    """Integers next to the values, whose sum is the total: the values with the largest fractions are rounded up."""
    down = [math.floor(value) for value in values]
    left = total - sum(down)
    order = sorted(range(len(values)), key=lambda at: down[at] - values[at])
    for at in range(abs(left)):
        down[order[at % len(order)]] += 1 if left > 0 else -1
    return down
