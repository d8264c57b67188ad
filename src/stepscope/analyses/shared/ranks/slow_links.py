"""Links between two ranks that are slower than the others of their kind."""

import numpy as np
import polars as pl

from stepscope.analyses.communication.communication import waits
from stepscope.analyses.shared.ranks.link_sums import link_sums
from stepscope.analyses.shared.ranks.rank_collectives import rank_collectives
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_BELOW = 0.2  # of the median of the links of the same transport
_SPREADS, _TO_DEVIATION, _MANY, _LEAST_LINKS = 5.0, 1.4826, 8, 3
_TRANSFERRED = "transfers between ranks"
COLUMNS = {
    "src": pl.Int32,
    "dst": pl.Int32,
    "transport": pl.String,
    "step": pl.Int32,
    "bytes": pl.Int64,
    "dur_ns": pl.Int64,
}


@memoized
def slow_links(trace: Trace) -> pl.DataFrame:
    """Per slow link: src, dst, transport, bytes_per_s, median of its transport, steps, slow_steps (a list), all_steps, excess_ns per step.

    A link is compared with those of the same transport by bytes and time in transit; a link is slow if it is below the median by a fifth,
    and beyond the spread of the others.
    """
    rows = pl.concat([_recorded(trace), _transfers(trace)])
    kind = "transport"
    links = rows.group_by("src", "dst", kind).agg(pl.col("bytes", "dur_ns").sum())
    links = links.filter(pl.col("dur_ns") > 0).with_columns(speed=pl.col("bytes") / pl.col("dur_ns") * 1e9)
    speed, median = pl.col("speed"), pl.col("speed").median().over(kind)
    links = links.with_columns(median=median, count=pl.len().over(kind), off=(speed / median - 1).abs())
    spread = pl.when(pl.col("count") >= _MANY).then(_SPREADS * _TO_DEVIATION * pl.col("off").median().over(kind)).otherwise(0.0)
    below = 1 - speed / pl.col("median")
    links = links.with_columns(below=below, spread=spread).filter(
        pl.col("count") >= _LEAST_LINKS, pl.col("below") > pl.max_horizontal(_BELOW, "spread")
    )
    steps = rows.join(links.select("src", "dst", kind, "median"), on=["src", "dst", kind])
    steps = steps.group_by("src", "dst", kind, "step").agg(pl.col("bytes", "dur_ns").sum(), pl.col("median").first())
    slow = pl.col("bytes") / pl.col("dur_ns") * 1e9 < (1 - _BELOW) * pl.col("median")
    excess = pl.col("dur_ns") - pl.col("bytes") / pl.col("median") * 1e9
    by_step = steps.group_by("src", "dst", kind).agg(
        slow_steps=pl.col("step").filter(slow).drop_nulls(), all_steps=pl.len(), excess_ns=excess.mean().clip(0)
    )
    return links.join(by_step, on=["src", "dst", kind]).sort("below", "src", "dst", descending=[True, False, False])


def _recorded(trace: Trace) -> pl.DataFrame:
    """Transfers of `links`, where the source has bytes and time."""
    rows = link_sums(trace).filter(pl.col("src") != pl.col("dst"), pl.col("moved_bytes") > 0)
    rows = rows.with_columns(bytes="moved_bytes", dur_ns="moved_ns")
    return rows.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _transfers(trace: Trace) -> pl.DataFrame:
    """Receives with a known sender, from when both sides have begun."""
    if len(trace.meta.ranks) < _LEAST_LINKS or not _has_transfers(trace):
        return pl.DataFrame(schema=COLUMNS)
    calls = waits(trace)
    if not {"last_start", "comparable", "bytes", "role", "src", "call"} <= set(calls.columns):
        return pl.DataFrame(schema=COLUMNS)
    sends = calls.filter(pl.col("role") == "send").select("call", sender="rank")
    received = calls.filter(pl.col("role") == "recv", pl.col("comparable"), pl.col("bytes") > 0).join(sends, on="call")
    transit = pl.coalesce("recorded_transit_ns", pl.col("end_ns") - pl.col("last_start"))
    rows = received.select("step", "bytes", src="sender", dst="rank", transport=pl.lit(_TRANSFERRED), dur_ns=transit)
    return rows.filter(pl.col("dur_ns") > 0).select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _has_transfers(trace: Trace) -> bool:
    """Whether there are sends and receives; matching all collectives for none takes long."""
    return bool(rank_collectives(trace)["collective"].is_in(["send", "recv", "send_recv"]).any())


def step_list(steps: pl.Series) -> list[int]:
    return sorted(int(step) for step in np.unique(steps.to_numpy()))
