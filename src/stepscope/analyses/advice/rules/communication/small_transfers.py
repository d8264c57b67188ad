"""Many small transfers: each costs a latency.

Fires for collectives of less than 1 MiB in the mean that run at least ten times per step; where their size is not recorded, for at least
20 that take less than 2 ms each. The fix merges them into transfers of up to 25 MB: of all calls that are merged into one, only one pays
what the fastest of them takes; below 64 KiB, or of unknown size, only one takes time at all.
"""

import math
from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.communication.communication import waits
from stepscope.model import intervals

NEEDS = ("steps", "communication")
APPLIES = ("several ranks",)
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
FIX = {
    "pytorch": "model = DDP(model, bucket_cap_mb=25)",
    "mindspore": "mindspore.set_auto_parallel_context(comm_fusion={'allreduce': {'mode': 'size', 'config': 25}})",
    "jax": "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=26214400 python train.py",
}
_SMALL, _MERGED, _LEAST_CALLS, _CHEAPEST = 1 << 20, 25_000_000, 10, 0.1
_LEAST_UNSIZED, _SHORT_NS = 20, 2_000_000  # calls per step, and their median time, where their size is unknown
_LATENCY_ONLY = 1 << 16  # bytes: the time of smaller transfers hardly depends on their size


def small_transfers(run: Run) -> Iterator[Finding]:
    calls = waits(run.trace).filter(pl.col("is_collective"), (pl.col("bytes") > 0).fill_null(True))
    calls = run.in_steps(calls.drop("step").with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")), "start_ns")
    for (name,), rows in calls.group_by("name", maintain_order=True):
        count = rows.height / run.steps.height
        known = rows["bytes"].null_count() == 0
        size = float(rows["bytes"].mean()) if known else 0.0  # type: ignore[arg-type]
        merged_times = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())  # calls in a queue overlap
        is_short = known or float((merged_times.ends - merged_times.starts).sum()) / rows.height < _SHORT_NS
        if size >= _SMALL or count < (_LEAST_CALLS if known else _LEAST_UNSIZED) or not is_short:
            continue
        merged = max(math.ceil(count * size / _MERGED), 1)
        cost = float(rows["dur_ns"].quantile(_CHEAPEST) or 0) * (1 - merged / count)
        factor = pl.lit(merged / count) if size < _LATENCY_ONLY else 1 - cost / pl.col("dur_ns").clip(1)
        total = run.per_step(rows["dur_ns"])
        launches = run.operators.filter(pl.col("name") == name)
        yield Finding(
            parameters={"operator": str(name), "calls": round(count), "time": total, "merged": merged}
            | ({"size": round(size)} if known else {}),
            evidence=Evidence(
                "communication",
                {},
                {"name": str(name)},
                {"total_ns": total, "calls": round(count)} | ({"size_bytes": round(size)} if known else {}),
            ),
            changes=(scale_work(rows, factor), *((scale_host(launches, merged / count),) if launches.height else ())),
            culprit=str(name),
            spans=rows.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="medium" if known else "low",
        )
