"""Recording overhead of a step, and the idle time of a device without it."""

import polars as pl

from stepscope.model.trace import Trace

_SLOWER = 1.05  # times the unprofiled step: less is the usual variation of steps
_OTHER_STEPS = 0.5  # times the unprofiled step: shorter recorded steps are of another kind
_TRACED_STACKS = ("pytorch", "jax")  # frameworks that trace every Python call; others are sampled, unless stack_hz is 0
_SLOW = {"with_stack": "stacks", "record_shapes": "shapes", "profile_memory": "memory"}


def with_overhead(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """One row per rank with the columns unprofiled_step_ns, idle_unprofiled_share and its range, overhead and slowed_by.

    `rows` has rank, steps, steps_how, step_ns, total_ns (of the steps) and busy_share.
    """
    rows = rows.join(unprofiled(trace, rows), on="rank", how="left", maintain_order="left")
    bare, step, mean = pl.col("unprofiled_step_ns"), pl.col("step_ns"), pl.col("total_ns") / pl.col("steps")
    # Recording slows the host, not the device: the device is busy as long as before, and idle for the rest of the shorter step.
    busy, idle = pl.col("busy_share") * mean, 1 - pl.col("busy_share")
    idle_bare, idle_low, idle_high = (_idle_share(busy, pl.col(f"unprofiled_{name}_ns")) for name in ("step", "p10", "p90"))
    known = pl.col("rank").is_in(device_ranks(trace)) & pl.col("busy_share").is_not_null()
    slower = (step > _SLOWER * bare) & (step > pl.col("unprofiled_p90_ns"))
    overhead = (
        pl.when(slower & known & (2 * idle_bare < idle))
        .then(pl.lit("most of the idle time"))
        .when(slower & known)
        .then(pl.lit("part of the idle time"))
        .when(slower)
        .then(pl.lit("steps"))
        .when(bare.is_not_null())
        .then(pl.lit("small"))
        .when(pl.lit(bool(slowed_by(trace))))
        .then(pl.lit("likely"))
    )
    return rows.with_columns(
        idle_unprofiled_share=pl.when(known).then(idle_bare),
        idle_unprofiled_low_share=pl.when(known).then(idle_low),
        idle_unprofiled_high_share=pl.when(known).then(idle_high),
        overhead=overhead,
        slowed_by=pl.lit(", ".join(slowed_by(trace)) or None, pl.String),
    )


def _idle_share(busy_ns: pl.Expr, step_ns: pl.Expr) -> pl.Expr:
    return pl.when(step_ns > 0).then((1 - busy_ns / step_ns).clip(0))


def unprofiled(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Per rank of `rows` (rank, steps_how, step_ns) the durations of unprofiled steps, if known."""
    schema = {
        "rank": pl.Int32,
        "unprofiled_steps": pl.Int64,
        "unprofiled_step_ns": pl.Int64,
        "unprofiled_p10_ns": pl.Int64,
        "unprofiled_p90_ns": pl.Int64,
    }
    values = [
        (steps.rank, steps.count, steps.median_ns, steps.p10_ns, steps.p90_ns)
        for steps in trace.meta.unprofiled_steps
        if steps.median_ns > 0
    ]
    unprofiled_steps = pl.DataFrame(values, schema, orient="row").unique("rank", keep="first", maintain_order=True)
    # Chosen and inferred steps have other boundaries than the steps that the recording timed.
    same = (pl.col("steps_how") == "marker") & (pl.col("step_ns") >= _OTHER_STEPS * pl.col("unprofiled_step_ns"))
    return unprofiled_steps.join(rows.select("rank", "steps_how", "step_ns"), on="rank").filter(same).select(*schema)


def device_ranks(trace: Trace) -> list[int]:
    """The ranks with device streams."""
    ranks: list[int] = trace.tracks.filter(pl.col("kind") == "stream").select(pl.col("rank").unique()).collect()["rank"].to_list()
    return ranks


def slowed_by(trace: Trace) -> list[str]:
    """Recorded data that slows the host: stacks, shapes, memory."""
    options = trace.meta.options
    sampled = trace.meta.framework not in _TRACED_STACKS and bool(options.get("stack_hz"))
    return [word for option, word in _SLOW.items() if options.get(option) and not (option == "with_stack" and sampled)]
