"""New, gone and changed operators, modules, kernels, shapes and phases, per typical step."""

import math

import polars as pl

from stepscope.comparison import statistics
from stepscope.comparison.pace import Pace, pace_of
from stepscope.comparison.side import Side, naming
from stepscope.comparison.statistics import RUN_NOISE
from stepscope.comparison.waterfall import both_sides
from stepscope.model.parameters import check_word

COLUMNS = {
    "part": pl.String,  # compute, exposed communication, copy; null where the key is in several
    "name": pl.String,
    "operator": pl.String,  # of a kernel or shape
    "family": pl.String,
    "depth": pl.Int32,  # of a module, from 1
    "state": pl.String,  # new, gone, changed, within noise; not recorded: one side lacks the data; null: the noise is unknown
    "a_ns": pl.Int64,  # of the time of a typical step: nothing is counted twice
    "b_ns": pl.Int64,
    "change_ns": pl.Int64,
    "share": pl.Float64,  # of the difference of the step
    "a_calls": pl.Float64,  # per step
    "b_calls": pl.Float64,
    "calls_ns": pl.Int64,  # part of the change that more or fewer calls explain, at the time per call of A
    "a_total_ns": pl.Int64,  # sum of the durations, also of overlapping ones
    "b_total_ns": pl.Int64,
    "error_ns": pl.Int64,  # standard error of the change; at equal pace, where `summary` has one
}
KEYS = {
    "operator": ["part", "operator"],
    "family": ["part", "family"],
    "kernel": ["part", "operator", "kernel"],
    "shape": ["part", "operator", "shapes"],
    "phase": ["phase"],
    "module": ["scope"],
}
_WORK = ["compute", "exposed communication", "copy"]
_CHANCE = 0.05  # of calling any operator changed if none did
_LEAST = 0.0005  # of the step: smaller changes are not called changes
_LEAST_PACED = 0.002  # the same at equal pace


def operators(a: Side, b: Side, *, by: str = "operator", run_noise: float = RUN_NOISE) -> pl.DataFrame:
    """The largest change first, or modules in the order of their paths with all modules inside them."""
    check_word("key", by, KEYS)
    step_a, step_b = a.step(), b.step()
    if step_a is None or step_b is None or not (a.has_parts and b.has_parts):
        return pl.DataFrame(schema=COLUMNS)
    rule, keys = naming(a, b), KEYS[by]
    more = {} if "family" in keys else {"family": pl.col("family").drop_nulls().first()}
    rows = _rows(a, b, rule, keys, more)
    if by == "module":
        rows = _with_parents(rows)
    pace = pace_of(a, b)
    rows = _with_states(rows, a, b, rule, by, step_a.value, run_noise if pace is None else 0.0, pace)
    difference = step_b.value - step_a.value
    known = pl.col("state").ne_missing(pl.lit("not recorded"))
    per_call = pl.when((pl.col("a_calls") > 0) & (pl.col("b_calls") > 0)).then(
        (pl.col("b_calls") - pl.col("a_calls")) * pl.col("a_ns") / pl.col("a_calls")
    )
    rows = rows.with_columns(change_ns=pl.when(known).then(pl.col("b_ns") - pl.col("a_ns")), calls_ns=per_call)
    rows = rows.with_columns(share=pl.col("change_ns") / difference if round(difference) else pl.lit(None, pl.Float64))
    whole = [name for name, dtype in COLUMNS.items() if dtype == pl.Int64]
    rows = rows.with_columns(pl.col(name).round() for name in whole if name in rows.columns)
    rows = rows.with_columns(pl.col("a_calls", "b_calls").round(6))  # they are sums of fractions
    order = [pl.col("name")] if by == "module" else [-pl.col("change_ns").abs(), -pl.max_horizontal("a_ns", "b_ns"), pl.col("name")]
    rows = rows.sort(order, nulls_last=True).with_columns(pl.lit(None).alias(name) for name in COLUMNS if name not in rows.columns)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def matched_share(a: Side, b: Side, by: str = "operator") -> float | None:
    """Of the time of the work of both sides, the share whose key is on both."""
    if not (a.has_parts and b.has_parts):
        return None
    rows = _rows(a, b, naming(a, b), KEYS[by], {})
    both = (pl.col("a_calls") > 0) & (pl.col("b_calls") > 0)
    times = pl.col("a_total_ns") + pl.col("b_total_ns")
    total = math.fsum(rows.select(times).to_series())  # exact, so that the order of rows does not matter
    return math.fsum(rows.filter(both).select(times).to_series()) / total if total else None


def _rows(a: Side, b: Side, rule: str, keys: list[str], more: dict[str, pl.Expr]) -> pl.DataFrame:
    rows = both_sides(_of_work(a), _of_work(b), rule, keys, more)
    name = pl.col(keys[-1])
    return rows.filter(pl.any_horizontal(pl.col("a_ns", "b_ns", "a_calls", "b_calls") != 0)).with_columns(name=name)


def _of_work(side: Side) -> Side:
    """The side with the parts in which operators run."""
    return side._replace(runs=[run._replace(parts=run.parts.filter(pl.col("part").is_in(_WORK))) for run in side.runs])


def _with_states(
    rows: pl.DataFrame, a: Side, b: Side, rule: str, by: str, step: float, run_noise: float, pace: Pace | None
) -> pl.DataFrame:
    column = KEYS[by][-1]
    recorded = [any(run.parts[column].null_count() < run.parts.height for run in side.with_steps) for side in (a, b)]
    if not any(recorded):
        return rows.clear().with_columns(state=pl.lit(None, pl.String))
    if not all(recorded):
        missing = [
            f"{prefix}_{name}" for prefix, known in zip("ab", recorded, strict=True) if not known for name in ("ns", "calls", "total_ns")
        ]
        return rows.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing).with_columns(state=pl.lit("not recorded"))
    if by == "operator":
        errors = [side.errors(rule, run_noise).rename({"error_ns": f"{prefix}_error"}) for prefix, side in (("a", a), ("b", b))]
        for table in errors:
            rows = rows.join(table, on=["part", "operator"], how="left", nulls_equal=True, maintain_order="left")
        present = [
            pl.when(pl.col(f"{prefix}_ns") == 0).then(pl.col(f"{prefix}_error").fill_null(0.0)).otherwise(f"{prefix}_error")
            for prefix in "ab"
        ]
        error = (present[0] ** 2 + present[1] ** 2).sqrt()
        rows = rows.with_columns(error_ns=error)
    else:  # the noise of smaller groups is not measured: only the noise between runs is assumed
        rows = rows.with_columns(error_ns=pl.lit(None, pl.Float64))
    change = (pl.col("b_ns") - pl.col("a_ns")).abs()
    runs = sum(len(side.with_steps) for side in (a, b))
    limit = statistics.t_quantile(1 - _CHANCE / 2 / max(rows.height, 1), runs - 2 if runs > 2 else math.inf)
    changed = (change > limit * pl.col("error_ns")) & (change >= _LEAST * step)
    if pace is not None and by == "operator":
        change = (pl.col("b_ns") / pace.factor - pl.col("a_ns")).abs()
        scatter = pl.when(pl.min_horizontal("a_ns", "b_ns") > 0).then(
            pace.scatter * pl.max_horizontal("a_ns", pl.col("b_ns") / pace.factor)
        )
        rows = rows.with_columns(error_ns=(pl.col("error_ns") ** 2 + scatter.fill_null(0.0) ** 2).sqrt())
        changed = (change > pace.limit(rows.height, _CHANCE) * pl.col("error_ns")) & (change >= _LEAST_PACED * step)
    in_a, in_b = (pl.max_horizontal(f"{prefix}_ns", f"{prefix}_calls") > 0 for prefix in "ab")
    state = pl.when(~in_a).then(pl.lit("new")).when(~in_b).then(pl.lit("gone")).when(changed).then(pl.lit("changed"))
    return rows.with_columns(state=state.when(~changed).then(pl.lit("within noise")))


def _with_parents(rows: pl.DataFrame) -> pl.DataFrame:
    """Every module on the path with the sums of the modules inside it."""
    parts = [(scope, scope.split("/")) for scope in rows["scope"].drop_nulls()]
    around = [("/".join(names[:level]), level, inner) for inner, names in parts for level in range(1, len(names) + 1)]
    nested = pl.DataFrame(around, {"name": pl.String, "depth": pl.Int32, "scope": pl.String}, orient="row")
    numbers = pl.col([f"{prefix}_{name}" for prefix in "ab" for name in ("ns", "calls", "total_ns")]).sum()
    inside = rows.drop("name").join(nested, on="scope", maintain_order="left").group_by("name", "depth", maintain_order=True).agg(numbers)
    without = rows.filter(pl.col("scope").is_null()).with_columns(name=pl.lit(None, pl.String), depth=pl.lit(1, pl.Int32))
    return pl.concat([inside, without.select(inside.columns)])
