"""How long would a step take if some of its work took more or less time?"""

import polars as pl

from stepscope.analyses.shared.changes import infinite_bandwidth as without_transfer_time
from stepscope.analyses.shared.changes import parse_scales, unchanged
from stepscope.analyses.shared.changes import remove as remove_time
from stepscope.analyses.shared.changes import scale as scale_time
from stepscope.analyses.shared.graph import build
from stepscope.analyses.shared.replay import path_shares, replay
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "steps": pl.Int64,  # complete ones, that were replayed
    "step_ns": pl.Int64,  # median as recorded, from the end of the step before, device work included
    "replayed_ns": pl.Int64,  # the same of a replay without changes
    "predicted_ns": pl.Int64,  # the same with the changes
    "gain_ns": pl.Int64,  # replayed less predicted; negative: slower
    "gain_share": pl.Float64,  # of the replayed step
    "bottleneck": pl.String,  # with the changes, most of the critical path is: host, input, launch, kernel, copy or communication
    "bottleneck_share": pl.Float64,  # of the critical path
}


def whatif(trace: Trace, *, scale: str | None = None, remove: str | None = None, infinite_bandwidth: bool = False) -> pl.DataFrame:
    """One row per rank: the step as recorded and as a replay of its dependencies predicts it.

    `scale` multiplies times: `aten::mm=0.5,layer1/conv1=0` (a kernel, the operator that launched it, a module, or host functions).
    `remove` sets times to zero: any of input_wait, sync, launch_latency, copy, communication, host, device, separated by commas.
    `infinite_bandwidth`: transfers between ranks take no time, waits for slow ranks remain. Without a change the replay repeats the
    recording. Not modeled: contention for memory bandwidth, caches and clocks; work that starts only because other work got faster.
    """
    graph = build(trace)
    changed = unchanged(graph)
    for name, factor in parse_scales(scale or ""):
        scale_time(trace, graph, changed, name, factor)
    for word in filter(None, (part.strip() for part in (remove or "").split(","))):
        remove_time(graph, changed, word)
    if infinite_bandwidth:
        without_transfer_time(graph, changed)
    times = {"step_ns": graph.end, "replayed_ns": replay(graph), "predicted_ns": replay(graph, *changed)}
    rows = graph.steps.select("rank").with_columns(pl.Series(name, graph.step_times(end)) for name, end in times.items())
    medians = rows.group_by("rank", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("steps"), pl.all().median().round().cast(pl.Int64)
    )
    shares = path_shares(graph, *changed)
    return (
        medians.with_columns(gain_ns=pl.col("replayed_ns") - pl.col("predicted_ns"))
        .with_columns(gain_share=pl.when(pl.col("replayed_ns") > 0).then(pl.col("gain_ns") / pl.col("replayed_ns")))
        .join(shares, on="rank", how="left", maintain_order="left")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
