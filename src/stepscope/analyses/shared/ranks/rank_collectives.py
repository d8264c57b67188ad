"""Communication calls of each rank, as its own recording has them. Waits that only the other ranks explain are in `waits`."""

import polars as pl

from stepscope.analyses.shared.messages import messages
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "span": pl.Int64,
    "step": pl.Int32,
    "name": pl.String,
    "collective": pl.String,  # all_reduce, send, ...; null if not known
    "group": pl.String,
    "members": pl.String,  # ranks of the group, as the source lists them
    "group_size": pl.Int64,
    "sequence": pl.Int64,  # counts the calls of the group; null if not recorded
    "src": pl.Int32,  # of a receive
    "dst": pl.Int32,  # of a send
    "partner": pl.Int32,  # the only other rank in the links of the call
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "bytes": pl.Int64,
    "transit_ns": pl.Int64,  # as recorded; with wait_ns and idle_ns, the parts of the call
    "wait_ns": pl.Int64,
    "idle_ns": pl.Int64,
    "has_times": pl.Boolean,  # false: the call has a duration, but no timestamps
}


@memoized
def rank_collectives(trace: Trace) -> pl.DataFrame:
    """One row per rank and communication call, by rank and start; null where the source has no such figure."""
    tracks = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track")
    untimed = trace.spans.filter(pl.col("kind") == "communication").join(tracks, on=["rank", "track"], how="semi")
    calls = messages(trace).join(
        untimed.select("rank", "span", untimed=True).collect(), on=["rank", "span"], how="left", maintain_order="left"
    )
    named = {"sequence": "seq", **{f"{part}_ns": f"recorded_{part}_ns" for part in ("transit", "wait", "idle")}}
    calls = calls.with_columns(**{name: pl.col(source) for name, source in named.items()}, has_times=pl.col("untimed").is_null())
    return calls.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
