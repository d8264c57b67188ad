"""How short could a step be if only its device, its host, its input or its communication took time?"""

import polars as pl

from stepscope.analyses.shared.changes import remove, unchanged
from stepscope.analyses.shared.graph import KINDS, build
from stepscope.analyses.shared.replay import replay
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "floor": pl.String,  # device, host, input, communication; measured: the step as it is
    "step_ns": pl.Int64,  # median over the steps
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
            changed.duration[graph.kind == KINDS.index("kernel")] = 0
        rows = rows.with_columns(pl.Series(name, graph.step_times(replay(graph, *changed))))
    needed = {"device": "kernel", "input": "input", "communication": "communication"}
    names = [name for name in _REMOVED if name not in needed or needed[name] in kinds]
    medians = rows.group_by("rank", maintain_order=True).agg(pl.col(names).median().round().cast(pl.Int64))
    return (
        medians.unpivot(names, index="rank", variable_name="floor", value_name="step_ns")
        .with_columns(whole=pl.col("step_ns").first().over("rank"))
        .with_columns(ratio=pl.when(pl.col("whole") > 0).then(pl.col("step_ns") / pl.col("whole")))
        .sort("rank", maintain_order=True)
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )
