"""What is the memory used for, moment by moment: activations, gradients, states, temporaries?"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analyses._memory import check_device, memory_samples
from stepscope.analyses.step_stages import stage_sets
from stepscope.intervals import Set
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "category": pl.String,
    "bytes": pl.Int64,
}

# In the order in which they are stacked: what stays longest first.
OWN = ("static", "before", "optimizer state", "gradient", "activation", "temporary")
_FOREVER = np.iinfo(np.int64).max


def memory_by_category(
    trace: Trace, *, device: str | None = None, start_ns: int | None = None, end_ns: int | None = None, pixels: int | None = None
) -> pl.DataFrame:
    """Per rank, device and moment at which a block came or went: the bytes of each category, which add up to what is allocated.

    A block's category is the one that the source gives. Where it gives none, its life decides, beside the stages of the host
    (see step_stages): activation: came before the backward pass of its step and is there when that begins, so also the batch itself;
    gradient: came in a backward pass and outlives it; optimizer state: came in the optimizer and outlives the step; temporary: any other
    that came during the recording; before: was there before the recording and went during it. Static is what no block of the recording
    explains: parameters and states that were there before and after.

    `start_ns` and `end_ns` keep the moments between them. With `pixels`, of each of so many equal parts of the time the moments of the
    least and the most in all stay, so that no peak is hidden.
    """
    blocks = _named(trace, device)
    if blocks.is_empty():
        if device is not None:
            check_device(trace, device)
        return pl.DataFrame(schema=COLUMNS)
    fixed = memory_samples(trace, device).group_by("rank", "device").agg(pl.col("static_bytes").first())
    tables = []
    for (rank, name), rows in blocks.sort("rank", "device").group_by("rank", "device", maintain_order=True):
        known = fixed.filter(pl.col("rank") == rank, pl.col("device") == name)["static_bytes"]
        tables.append(_moments(rows, known.item() if known.len() else None, start_ns, end_ns, pixels))
    return pl.concat(tables).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _named(trace: Trace, device: str | None) -> pl.DataFrame:
    """Every block with its category."""
    blocks = (
        trace.table("allocations")
        .filter(pl.lit(True) if device is None else pl.col("device").cast(pl.String) == device)
        .select("rank", pl.col("device", "category").cast(pl.String), "bytes", "alloc_ns", "free_ns")
        .collect()
    )
    by_life = [_by_life(blocks.filter(pl.col("rank") == steps["rank"][0]), steps, stages) for steps, stages in stage_sets(trace)]
    done = [part["rank"][0] for part in by_life if part.height]
    others = blocks.filter(~pl.col("rank").is_in(done)).with_columns(life=_PLAIN)
    return pl.concat([*by_life, others]).with_columns(category=pl.coalesce("category", "life"))


_PLAIN = (
    pl.when(pl.col("alloc_ns").is_not_null())
    .then(pl.lit("temporary"))
    .when(pl.col("free_ns").is_not_null())
    .then(pl.lit("before"))
    .otherwise(pl.lit("static"))
)


def _by_life(blocks: pl.DataFrame, steps: pl.DataFrame, stages: dict[str, Set]) -> pl.DataFrame:
    """What the life of each block of one rank says of it."""
    came = blocks["alloc_ns"].fill_null(-1).to_numpy()
    went = blocks["free_ns"].fill_null(_FOREVER).to_numpy()
    step = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), came)
    step_end = np.append(steps["end_ns"].to_numpy(), -1)[step]
    backward, optimizer = stages["backward"], stages["optimizer"]
    within = intervals.enclosing(backward.starts, backward.ends, came)
    next_backward = np.append(backward.starts, _FOREVER)[np.searchsorted(backward.starts, came, "right")]
    updating = intervals.enclosing(optimizer.starts, optimizer.ends, came) >= 0
    life = np.full(blocks.height, "temporary", object)
    life[(step >= 0) & (within < 0) & ~updating & (next_backward < step_end) & (went > next_backward)] = "activation"
    life[(within >= 0) & (went >= np.append(backward.ends, _FOREVER)[within])] = "gradient"
    life[(step >= 0) & updating & (went >= step_end)] = "optimizer state"
    named = blocks.with_columns(pl.Series("life", life, pl.String))
    return named.with_columns(life=pl.when(pl.col("alloc_ns").is_not_null()).then("life").otherwise(_PLAIN))


def _moments(blocks: pl.DataFrame, static: int | None, low: int | None, high: int | None, pixels: int | None) -> pl.DataFrame:
    """The bytes of each category of one device at its moments."""
    passing = pl.any_horizontal(pl.col("alloc_ns", "free_ns").is_not_null())
    at = pl.concat([blocks["alloc_ns"], blocks["free_ns"]]).drop_nulls().unique().sort().to_numpy()
    curves: dict[str, NDArray[np.int64]] = {}
    for (category,), rows in blocks.group_by("category"):
        curves[str(category)] = _alive(rows, at)
    # Blocks that neither came nor went, and have a name, are part of what is static.
    lasting = blocks.filter(~passing, pl.col("category") != "static")["bytes"].sum()
    if static is not None:
        curves["static"] = np.full(len(at), max(0, static - lasting), np.int64)
    rest = sorted(curves.keys() - set(OWN))
    names = [*(name for name in OWN if name in curves), *rest]
    keep = np.ones(len(at), np.bool_)
    if low is not None:
        keep &= at >= low
    if high is not None:
        keep &= at <= high
    kept = np.flatnonzero(keep)
    if pixels is not None and len(kept) > 2 * pixels:
        kept = kept[_extremes(at[kept], np.sum(list(curves.values()), axis=0)[kept], pixels)]
    return pl.concat(
        pl.select(
            rank=pl.lit(blocks["rank"][0]),
            device=pl.lit(blocks["device"][0]),
            at_ns=pl.Series(at[kept]),
            category=pl.lit(name),
            order=pl.lit(place),
            bytes=pl.Series(curves[name][kept]),
        )
        for place, name in enumerate(names)
    ).sort("at_ns", "order")


def _alive(blocks: pl.DataFrame, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes of these blocks are there at each moment: from when a block came up to, not with, when it went."""
    older = int(blocks.filter(pl.col("alloc_ns").is_null())["bytes"].sum())
    alive = np.full(len(at), older, np.int64)
    for column, sign in (("alloc_ns", 1), ("free_ns", -1)):
        rows = blocks.filter(pl.col(column).is_not_null() & pl.col("bytes").is_not_null()).sort(column)
        sums = np.append(0, np.cumsum(rows["bytes"].to_numpy()))
        alive += sign * sums[np.searchsorted(rows[column].to_numpy(), at, "right")]
    return alive


def _extremes(at: NDArray[np.int64], total: NDArray[np.int64], pixels: int) -> NDArray[np.int64]:
    """The places of the least and the most of each pixel."""
    width = (at[-1] - at[0]) // pixels + 1
    rows = pl.DataFrame({"pixel": (at - at[0]) // width, "row": np.arange(len(at)), "total": total})
    ends = rows.group_by("pixel").agg(
        pl.col("row").get(pl.col("total").arg_min()).alias("least"), pl.col("row").get(pl.col("total").arg_max()).alias("most")
    )
    found: NDArray[np.int64] = np.unique(np.concatenate((ends["least"].to_numpy(), ends["most"].to_numpy())))
    return found
