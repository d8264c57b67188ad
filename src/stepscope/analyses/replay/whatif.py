"""How long would a step take if some of its work took more or less time?"""

import functools
from collections.abc import Callable

import polars as pl

from stepscope.analyses.shared.replays.changes import Durations, parse_scales, unchanged
from stepscope.analyses.shared.replays.changes import infinite_bandwidth as without_transfer_time
from stepscope.analyses.shared.replays.changes import remove as remove_time
from stepscope.analyses.shared.replays.changes import scale as scale_time
from stepscope.analyses.shared.replays.graph import build
from stepscope.analyses.shared.replays.nodes import Graph
from stepscope.analyses.shared.replays.replay import path_shares, replay
from stepscope.analyses.shared.steps.coverage import step_ranges
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "change": pl.String,  # with `each`, the change alone, such as aten::mm=0.5; null: all changes together
    "steps": pl.Int64,  # complete ones, that were replayed
    "step_ns": pl.Int64,  # median as recorded, from the end of the step before, device work included
    "replayed_ns": pl.Int64,  # the same of a replay without changes
    "predicted_ns": pl.Int64,  # the same with the changes
    "gain_ns": pl.Int64,  # replayed less predicted; negative: slower
    "gain_share": pl.Float64,  # of the replayed step
    "bottleneck": pl.String,  # with the changes, most of the critical path is: host, input, launch, kernel, copy or communication
    "bottleneck_share": pl.Float64,  # of the critical path
    "coverage": pl.String,  # the numbers of the replayed steps
}


def whatif(
    trace: Trace, *, scale: str | None = None, remove: str | None = None, infinite_bandwidth: bool = False, each: bool = False
) -> pl.DataFrame:
    """One row per rank: the step as recorded and as a replay of its dependencies predicts it.

    `scale` multiplies times: `aten::mm=0.5,layer1/conv1=0` (a kernel, the operator that launched it, a module, or host functions).
    `remove` sets times to zero: any of input_wait, sync, launch_latency, copy, communication, host, device, separated by commas.
    `infinite_bandwidth`: transfers between ranks take no time, waits for slow ranks remain. `each` adds a row per change alone: gains
    that overlap do not add up. Without a change the replay repeats the recording. Not modeled: contention for memory bandwidth, caches
    and clocks; work that starts only because other work got faster.
    """
    graph = build(trace)
    changes = _changes(scale, remove, infinite_bandwidth)
    before = {"step_ns": graph.step_times(graph.end), "replayed_ns": graph.step_times(replay(graph).ends)}
    parts = [_predicted(trace, graph, before, changes).with_columns(change=pl.lit(None, pl.String))]
    if each:
        parts += [_predicted(trace, graph, before, {name: apply}).with_columns(change=pl.lit(name)) for name, apply in changes.items()]
    rows = pl.concat(parts).with_columns(gain_ns=pl.col("replayed_ns") - pl.col("predicted_ns"))
    return (
        rows.with_columns(gain_share=pl.when(pl.col("replayed_ns") > 0).then(pl.col("gain_ns") / pl.col("replayed_ns")))
        .sort("rank", maintain_order=True)
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _without(_: Trace, graph: Graph, durations: Durations, *, word: str) -> None:
    remove_time(graph, durations, word)


Change = Callable[[Trace, Graph, Durations], object]  # in place


def _changes(scale: str | None, remove: str | None, infinite_bandwidth: bool) -> dict[str, Change]:
    """The changes by their names, in the order given."""
    changes: dict[str, Change] = {}
    for name, factor in parse_scales(scale or ""):
        changes[f"{name}={factor:g}"] = functools.partial(_scale, name, factor)
    for word in filter(None, (part.strip() for part in (remove or "").split(","))):
        changes[f"remove {word}"] = functools.partial(_remove, word)
    if infinite_bandwidth:
        changes["infinite bandwidth"] = lambda _, graph, durations: without_transfer_time(graph, durations)
    return changes


def _scale(name: str, factor: float, trace: Trace, graph: Graph, durations: Durations) -> None:
    scale_time(trace, graph, durations, name, factor)


def _remove(word: str, _: Trace, graph: Graph, durations: Durations) -> None:
    remove_time(graph, durations, word)


def _predicted(trace: Trace, graph: Graph, before: dict[str, Ints], changes: dict[str, Change]) -> pl.DataFrame:
    """Per rank the medians of the steps before and after these changes, and what limits them then."""
    changed = unchanged(graph)
    for apply in changes.values():
        apply(trace, graph, changed)
    replayed = replay(graph, *changed)
    times = before | {"predicted_ns": graph.step_times(replayed.ends)}
    rows = graph.steps.select("rank", "step").with_columns(pl.Series(name, time) for name, time in times.items())
    medians = rows.group_by("rank", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col(*times).median().round().cast(pl.Int64),
        coverage=pl.col("step").map_batches(_numbers, return_dtype=pl.String, returns_scalar=True),
    )
    return medians.join(path_shares(graph, replayed, changed.duration), on="rank", how="left", maintain_order="left")


def _numbers(steps: pl.Series) -> str:
    return step_ranges(steps.to_list())
