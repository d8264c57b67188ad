"""The device waits for copies from the host in every step.

Fires for copies from the host to the device. The fix keeps data that does not change on the device, and fetches batches ahead on another
stream: copies then take no time of the stream that computes.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_work
from stepscope.analyses.advice.engine.run import FROM_HOST, Run
from stepscope.analyses.advice.rules.copies.pageable_copies import asynchronous, pageable

NEEDS = ("steps", "device")
APPLIES = ("with device",)
LINK = "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"
FIX = {
    "pytorch": "with torch.cuda.stream(copy_stream):  # fetch the next batch while this one computes\n"
    '    batch = batch.to("cuda", non_blocking=True)',
    "jax": "batches = flax.jax_utils.prefetch_to_device(batches, 2)",
    "tensorflow": "dataset = dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))",
    "mindspore": "model.train(epochs, dataset, dataset_sink_mode=True)",
}


def host_copies(run: Run) -> Iterator[Finding]:
    copies = run.work.filter((pl.col("kind") == "copy") & pl.col("name").str.contains(FROM_HOST))
    if copies.is_empty():
        return
    total = run.per_step(copies["dur_ns"])
    calls = pageable(run).select("rank", start_ns="launch_ns", end_ns="launched_ns")  # to copy ahead, memory must be pinned
    name = str(copies.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])["name"][0])
    yield Finding(
        parameters={
            "count": round(copies.height / max(run.steps.height, 1), 1),
            "time": total,
            "share": run.share_of_steps(copies["dur_ns"]),
        },
        evidence=Evidence("kernels", {}, {"name": name}, {"total_ns": total}),
        changes=(scale_work(copies), *(asynchronous(calls) if calls.height else ())),
        culprit=name,
        source=run.source_of(copies.select("rank", span="op").drop_nulls()),
        spans=copies.sort("dur_ns", descending=True).select("rank", "step", "span"),
    )
