"""The step waits for its input.

Fires for waits of the program for data, and names the cause, the first that holds: this run keeps the CPU full (more workers would slow it
further); the loader runs in the training thread; the transfer to the device is late; an operator of the pipeline is the bottleneck; one of
many batches is late; the queue of ready batches is empty; unknown. The gain is the step without these waits. The confidence is low where a
third of the waiting time is in single steps of a short recording: other steps may have none.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, remove_time
from stepscope.analyses.advice.engine.machine import full_machine
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "input")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading"
FIX = {
    "pytorch": "DataLoader(dataset, num_workers=8, pin_memory=True, persistent_workers=True, prefetch_factor=4)",
    "mindspore": "dataset = dataset.map(op, num_parallel_workers=8); mindspore.dataset.config.set_prefetch_size(16)",
    "tensorflow": "dataset = dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    "jax": "grain.DataLoader(..., worker_count=8)  # and fetch the next batch while this step runs",
}
_CPU_FIX = {
    "pytorch": "# fewer transforms per batch: prepare the data once, offline; decode and augment on the device (kornia, DALI)",
    "": "# fewer transforms per batch: prepare the data once, offline; or more CPU cores per device",
}
_SLOW_BATCH, _MOST = 10, 0.5  # times the median wait; of all waiting time
_EMPTY = 0.2  # of the batches
_MANY_STEPS = 20  # show how often a step waits
_USUAL = 2 / 3  # of the mean wait


def input_wait(run: Run) -> Iterator[Finding]:
    waits = run.host.filter((pl.col("kind") == "data") & pl.col("main"))
    waits = waits.filter(pl.col("depth") == pl.col("depth").min().over("rank", "track"))
    if waits.is_empty() or run.rank is None:
        return
    cause, culprit, more = _cause(run, waits)
    total = run.per_step(waits["dur_ns"])
    share = total * run.steps.height / max(int((run.steps["end_ns"] - run.steps["start_ns"]).sum()), 1)
    yield Finding(
        parameters={"time": total, "share": share, **more},
        evidence=Evidence("data_pipeline" if cause == "operator" else "data_queues", {}, {}, {"wait_ns": total, "wait_share": share}),
        changes=(remove_time("input_wait", [run.rank]),),
        culprit=culprit,
        source=run.source_of(waits),
        spans=waits.sort("dur_ns", descending=True).select("rank", "step", "span"),
        confidence="low" if _in_single_steps(run, waits, total) else "high",
        code=f"advice-input_wait-{cause}",
        fix=f"advice-input_wait-{cause}-fix",
        fix_code=_CPU_FIX if cause == "cpu" else None,
    )


def _cause(run: Run, waits: pl.DataFrame) -> tuple[str, str, dict[str, Any]]:
    """The cause, the culprit, and more parameters of the message."""
    name = str(waits["name"][0])
    machine = full_machine(run.trace)
    if machine and machine.is_own:
        return "cpu", "CPU", {"busy": machine.busy_share} | ({"cores": machine.cores} if machine.cores else {})
    if _is_synchronous(run, name):
        return "synchronous", name, {}
    queues = run.table("data_queues", per_step=False)
    if (queues["verdict"] == "waits for transfer").any():
        return "transfer", "device queue", {}
    bottleneck = run.table("data_pipeline").filter(pl.col("verdict") == "bottleneck")
    if bottleneck.height:
        row = bottleneck.row(0, named=True)
        return (
            "operator",
            row["op_type"],
            {"operator": row["op_type"]} | ({"workers": row["workers"]} if row["workers"] is not None else {}),
        )
    median, total = float(waits["dur_ns"].to_numpy().mean()), int(waits["dur_ns"].sum())
    middle = waits.select(pl.col("dur_ns").median()).item()
    slow = waits.filter(pl.col("dur_ns") > _SLOW_BATCH * middle)
    if slow.height and slow.height < waits.height / 2 and int(slow["dur_ns"].sum()) > _MOST * total and median:
        return "slow-batch", name, {"late": slow.height, "batches": waits.height, "longest": int(slow["dur_ns"].to_numpy().max())}
    sampled = queues.filter(pl.col("empty").is_not_null() & (pl.col("batches") > 0))
    if sampled.height and (sampled["empty"] > _EMPTY * sampled["batches"]).any():
        row = sampled.sort("empty", descending=True).row(0, named=True)
        return "empty", row["queue"], {"empty": row["empty"], "batches": row["batches"]}
    return "unknown", name, {}


def _in_single_steps(run: Run, waits: pl.DataFrame, mean_ns: float) -> bool:
    """Whether a few steps of a short recording wait much longer than the others."""
    per_step = run.steps.select("step").join(waits.group_by("step").agg(pl.col("dur_ns").sum()), on="step", how="left")
    usual: float = per_step.select(pl.col("dur_ns").fill_null(0).median()).item() or 0
    return run.steps.height < _MANY_STEPS and usual < _USUAL * mean_ns


def _is_synchronous(run: Run, name: str) -> bool:
    """Whether the loader works in the training thread: by its name in PyTorch, or because it has no workers."""
    if "SingleProcess" in name:
        return True
    loaders = run.trace.table("pipeline").filter(pl.col("op_type").cast(pl.String) == "DataLoader").select("workers").collect()["workers"]
    return bool(loaders.len() and (loaders == 0).all())
