"""What is the memory used for over time: activations, gradients, states, temporaries?"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.analyses.shared.memory.live_blocks import blocks
from stepscope.analyses.shared.memory.memory_samples import memory_samples
from stepscope.analyses.steps.step_stages import stage_sets
from stepscope.model import intervals
from stepscope.model.intervals import Set
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "at_ns": pl.Int64,
    "category": pl.String,
    "bytes": pl.Int64,
}

# In the order in which they are stacked: the most permanent first.
CATEGORIES = ("static", "before", "optimizer state", "gradient", "activation", "temporary")
_FOREVER = np.iinfo(np.int64).max


def memory_by_category(
    trace: Trace, *, device: str | None = None, start_ns: int | None = None, end_ns: int | None = None, pixels: int | None = None
) -> pl.DataFrame:
    """Per rank, device and timestamp of an allocation or release: live bytes by category, which add up to the allocated bytes.

    The category of a block is the recorded one. Otherwise it follows from its lifetime and the stages of the host (see step_stages):
    activation: allocated before the backward pass of its step and alive at its start, so also the batch; gradient: allocated in a backward
    pass and alive at its end; optimizer state: allocated in the optimizer and alive at the end of the step; temporary: other blocks
    allocated during the recording; before: allocated before the recording and freed during it. Static is the rest: parameters and states
    that are alive before and after the recording.

    `start_ns` and `end_ns` select timestamps. With `pixels`, for each of that number of equal intervals the timestamps with the minimum and
    the maximum total remain, so that no peak is hidden.
    """
    rows = _with_categories(trace, device)
    if rows.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    fixed = memory_samples(trace, device).group_by("rank", "device").agg(pl.col("static_bytes").first())
    tables = []
    for (rank, name), part in rows.sort("rank", "device").group_by("rank", "device", maintain_order=True):
        static = fixed.filter(pl.col("rank") == rank, pl.col("device") == name)["static_bytes"]
        tables.append(_curves(part, static.item() if static.len() else None, start_ns, end_ns, pixels))
    return pl.concat(tables).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _with_categories(trace: Trace, device: str | None) -> pl.DataFrame:
    """Every block with its category."""
    rows = blocks(trace, device).select("rank", "device", "category", "bytes", "alloc_ns", "free_ns")
    by_rank = [_with_lifetimes(rows.filter(pl.col("rank") == steps["rank"][0]), steps, stages) for steps, stages in stage_sets(trace)]
    done = [part["rank"][0] for part in by_rank if part.height]
    others = rows.filter(~pl.col("rank").is_in(done)).with_columns(life=_PLAIN)
    return pl.concat([*by_rank, others]).with_columns(category=pl.coalesce("category", "life"))


_PLAIN = (
    pl.when(pl.col("alloc_ns").is_not_null())
    .then(pl.lit("temporary"))
    .when(pl.col("free_ns").is_not_null())
    .then(pl.lit("before"))
    .otherwise(pl.lit("static"))
)


def _with_lifetimes(blocks: pl.DataFrame, steps: pl.DataFrame, stages: dict[str, Set]) -> pl.DataFrame:
    """The blocks of one rank with `life`, the category by their lifetime."""
    allocated = blocks["alloc_ns"].fill_null(-1).to_numpy()
    freed = blocks["free_ns"].fill_null(_FOREVER).to_numpy()
    step = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), allocated)
    step_end = np.append(steps["end_ns"].to_numpy(), -1)[step]
    backward, optimizer = stages["backward"], stages["optimizer"]
    within = intervals.enclosing(backward.starts, backward.ends, allocated)
    next_backward = np.append(backward.starts, _FOREVER)[np.searchsorted(backward.starts, allocated, "right")]
    updating = intervals.enclosing(optimizer.starts, optimizer.ends, allocated) >= 0
    life = np.full(blocks.height, "temporary", object)
    life[(step >= 0) & (within < 0) & ~updating & (next_backward < step_end) & (freed > next_backward)] = "activation"
    life[(within >= 0) & (freed >= np.append(backward.ends, _FOREVER)[within])] = "gradient"
    life[(step >= 0) & updating & (freed >= step_end)] = "optimizer state"
    lives = blocks.with_columns(pl.Series("life", life, pl.String))
    return lives.with_columns(life=pl.when(pl.col("alloc_ns").is_not_null()).then("life").otherwise(_PLAIN))


def _curves(blocks: pl.DataFrame, static: int | None, low: int | None, high: int | None, pixels: int | None) -> pl.DataFrame:
    """Live bytes by category of one device at its timestamps."""
    passing = pl.any_horizontal(pl.col("alloc_ns", "free_ns").is_not_null())
    times = pl.concat([blocks["alloc_ns"], blocks["free_ns"]]).drop_nulls().unique().sort()
    at = times.filter(times.is_between(-_FOREVER if low is None else low, _FOREVER if high is None else high)).to_numpy()
    curves: dict[str, NDArray[np.int64]] = {}
    for (category,), rows in blocks.group_by("category"):
        curves[str(category)] = _alive(rows, at)
    # Blocks with a recorded category, but neither an allocation nor a release, are part of the static bytes.
    lasting = blocks.filter(~passing, pl.col("category") != "static")["bytes"].sum()
    if static is not None:
        curves["static"] = np.full(len(at), max(0, static - lasting), np.int64)
    rest = sorted(curves.keys() - set(CATEGORIES))
    names = [*(name for name in CATEGORIES if name in curves), *rest]
    rows_at = np.arange(len(at))
    if pixels is not None and len(rows_at) > 2 * pixels:
        rows_at = _extremes(at, np.sum(list(curves.values()), axis=0), pixels)
    return pl.concat(
        pl.select(
            rank=pl.lit(blocks["rank"][0]),
            device=pl.lit(blocks["device"][0]),
            at_ns=pl.Series(at[rows_at]),
            category=pl.lit(name),
            order=pl.lit(place),
            bytes=pl.Series(curves[name][rows_at]),
        )
        for place, name in enumerate(names)
    ).sort("at_ns", "order")


def _alive(blocks: pl.DataFrame, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Live bytes of these blocks at each timestamp: from the allocation to the release, not included."""
    older = int(blocks.filter(pl.col("alloc_ns").is_null())["bytes"].sum())
    alive = np.full(len(at), older, np.int64)
    for column, sign in (("alloc_ns", 1), ("free_ns", -1)):
        rows = blocks.filter(pl.col(column).is_not_null() & pl.col("bytes").is_not_null()).sort(column)
        sums = np.append(0, np.cumsum(rows["bytes"].to_numpy()))
        alive += sign * sums[np.searchsorted(rows[column].to_numpy(), at, "right")]
    return alive


def _extremes(at: NDArray[np.int64], total: NDArray[np.int64], pixels: int) -> NDArray[np.int64]:
    """The rows with the minimum and the maximum of each pixel."""
    width = (at[-1] - at[0]) // pixels + 1
    rows = pl.DataFrame({"pixel": (at - at[0]) // width, "row": np.arange(len(at)), "total": total})
    ends = rows.group_by("pixel").agg(
        pl.col("row").get(pl.col("total").arg_min()).alias("least"), pl.col("row").get(pl.col("total").arg_max()).alias("most")
    )
    rows_of_ends: NDArray[np.int64] = np.unique(np.concatenate((ends["least"].to_numpy(), ends["most"].to_numpy())))
    return rows_of_ends
