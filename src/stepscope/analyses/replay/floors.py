"""How short could a step be if only its device, its host, its input or its communication took time?"""

import numpy as np
import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls
from stepscope.analyses.shared.replays.changes import remove, unchanged
from stepscope.analyses.shared.replays.graph import build
from stepscope.analyses.shared.replays.nodes import KINDS
from stepscope.analyses.shared.replays.replay import replay
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "floor": pl.String,  # device, host, input, communication, arithmetic; measured: the step as it is
    "step_ns": pl.Int64,  # median over the steps
    "limits": pl.Boolean,  # the highest floor: what limits the step once everything else is hidden behind it
    "ratio": pl.Float64,  # to the measured step; above 1 where the replay of a part takes longer than the whole did
}
# What is removed to reach each floor.
_REMOVED = {
    "measured": (),
    "device": ("host", "sync", "communication"),
    "host": ("device", "input_wait", "communication", "sync"),
    "input": ("device", "communication", "sync"),
    "communication": ("host", "sync", "copy"),
}


def floors(trace: Trace) -> pl.DataFrame:
    """Per rank the measured step and its floors, each by a replay in which everything else takes no time.

    device: kernels and copies one after the other on their streams; host: the program without waits for input, device and transfers;
    input: the time that the program waits for input; communication: transfers, waits for other ranks included. The highest floor is what
    limits the step once the rest is hidden behind it. An input floor is absent if no input was recorded, a device floor without a device.
    arithmetic: the counted FLOPs at the dense peak of the chip; absent if they or the peak are unknown. It limits no step by itself.
    """
    graph = build(trace)
    kinds = {KINDS[kind] for kind in set(graph.kind.tolist())}
    rows = graph.steps.select("rank")
    for name, words in _REMOVED.items():
        changed = unchanged(graph)
        for word in words:
            remove(graph, changed, word)
        if name == "input":
            changed.duration[graph.kind == KINDS.index("host")] = 0
        if name == "communication":
            kernels = graph.kind == KINDS.index("kernel")
            changed.duration[kernels] = 0
            changed.lag[np.repeat(kernels, np.diff(graph.offset))] = 0
        rows = rows.with_columns(pl.Series(name, graph.step_times(replay(graph, *changed).ends)))
    needed = {"device": "kernel", "input": "input", "communication": "communication"}
    names = [name for name in _REMOVED if name not in needed or needed[name] in kinds]
    medians = rows.group_by("rank", maintain_order=True).agg(pl.col(names).median().round().cast(pl.Int64))
    ideal = _arithmetic(trace, graph.steps)
    floor = pl.col("step_ns").filter(~pl.col("floor").is_in(["measured", "arithmetic"])).max().over("rank")
    return (
        pl.concat([medians.unpivot(names, index="rank", variable_name="floor", value_name="step_ns"), ideal])
        .with_columns(limits=(pl.col("step_ns") == floor) & ~pl.col("floor").is_in(["measured", "arithmetic"]))
        .with_columns(whole=pl.col("step_ns").first().over("rank"))
        .with_columns(ratio=pl.when(pl.col("whole") > 0).then(pl.col("step_ns") / pl.col("whole")))
        .sort("rank", maintain_order=True)
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )


def _arithmetic(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Per rank the median time that the chip needs for the FLOPs of a step at its dense peaks."""
    calls = flop_calls(trace).filter(pl.col("flops") > 0).join(steps, on=["rank", "step"], how="semi")
    known = calls.group_by("rank", "step").agg(ideal=pl.when(pl.col("ideal_ns").is_not_null().all()).then(pl.col("ideal_ns").sum()))
    medians = known.drop_nulls("ideal").group_by("rank", maintain_order=True).agg(step_ns=pl.col("ideal").median().round().cast(pl.Int64))
    return medians.select(pl.col("rank").cast(pl.Int32), floor=pl.lit("arithmetic"), step_ns="step_ns")
