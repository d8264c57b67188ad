"""How many samples and tokens per second does the training process, and what part of the peak of the chip is that?"""

import json
from math import prod
from typing import Any

import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls
from stepscope.analyses.shared.operator_calls import host_operators
from stepscope.analyses.steps.overview import overview
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "steps": pl.Int64,  # with FLOPs or a known batch
    "step_ns": pl.Int64,  # mean of these steps
    "samples": pl.Float64,  # per step of this rank; null if the batch is not known from shapes
    "tokens": pl.Float64,  # per step of this rank: elements of the indices of the largest embedding
    "samples_per_s": pl.Float64,
    "tokens_per_s": pl.Float64,
    "batch_from": pl.String,  # the operator and the shapes that show the batch
    "flops": pl.Float64,  # per step
    "flops_per_s": pl.Float64,
    "precision": pl.String,  # with most FLOPs
    "peak_flops": pl.Float64,  # dense peak of the chip for this precision, per second
    "mfu": pl.Float64,  # flops / (step x peak_flops)
    "mfu_formula": pl.String,  # with these figures
    "utilization": pl.Float64,  # as in overview: each operator against the peak of its own precision
}
_EMBEDDING, _CONVOLUTION = ("aten::embedding", "GatherV2", "Gather"), ("aten::conv2d", "aten::conv1d", "aten::conv3d", "Conv2D")


def throughput(trace: Trace, *, warmup: int | None = None) -> pl.DataFrame:
    """One row per rank, over the steps of `overview`.

    MFU (model FLOPs utilization) is the FLOPs of a step over what the chip could do in its time at the dense peak of the precision with
    most FLOPs; operations that are computed twice (activation checkpointing) count twice. The batch is known from shapes: samples and
    tokens from the indices of the embedding with the largest table, else samples from the first dimension of the input of the convolution
    with fewest channels; several forward passes in a step add up. Values are per rank: those of data-parallel ranks add up.
    """
    rows = overview(trace, warmup=warmup).select("rank", "utilization")
    batches, work = _batches(trace), _flops(trace)
    steps = trace.steps.select("rank", "step", total_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
    parts = []
    for rank, utilization in rows.iter_rows():
        calls = work.filter(pl.col("rank") == rank)
        batch = batches.filter(pl.col("rank") == rank)
        known = steps.filter(pl.col("rank") == rank).join(pl.concat([calls.select("step"), batch.select("step")]), on="step", how="semi")
        parts.append({"rank": rank, "utilization": utilization, **_figures(known, calls, batch)})
    return pl.DataFrame(parts, COLUMNS)


def _figures(steps: pl.DataFrame, calls: pl.DataFrame, batch: pl.DataFrame) -> dict[str, Any]:
    names = [name for name in COLUMNS if name not in ("rank", "utilization")]
    figures: dict[str, Any] = dict.fromkeys(names) | {"steps": steps.height}
    if steps.is_empty():
        return figures
    mean = steps["total_ns"].to_numpy().mean()
    figures["step_ns"] = round(mean)
    for name in ("samples", "tokens"):
        per_step = batch.group_by("step").agg(pl.col(name).sum(), known=pl.col(name).count())
        if per_step.height and per_step["known"].min():
            figures[name] = float(per_step[name].to_numpy().mean())
            figures[f"{name}_per_s"] = figures[name] / mean * 1e9
    if batch.height:
        figures["batch_from"] = batch["how"][0]
    if calls.is_empty():
        return figures
    figures["flops"] = calls["flops"].sum() / calls["step"].n_unique()
    figures["flops_per_s"] = figures["flops"] / mean * 1e9
    largest = calls.group_by("precision", "peak").agg(pl.col("flops").sum()).sort("flops", "precision", descending=[True, False])
    figures["precision"], figures["peak_flops"] = largest["precision"][0], largest["peak"][0]
    if peak := figures["peak_flops"]:
        figures["mfu"] = figures["flops_per_s"] / peak
        figures["mfu_formula"] = (
            f"{figures['flops'] / 1e12:.3g} TFLOP / ({mean / 1e6:.4g} ms x {peak / 1e12:,.4g} TFLOP/s dense {figures['precision']})"
        )
    return figures


def _flops(trace: Trace) -> pl.DataFrame:
    """rank, step, flops, precision, peak of the counted calls."""
    calls = flop_calls(trace).filter(pl.col("flops") > 0, pl.col("step").is_not_null())
    return calls.select("rank", "step", "flops", "precision", "peak")


def _batches(trace: Trace) -> pl.DataFrame:
    """rank, step, samples, tokens, how: one row per forward pass."""
    schema = {"rank": pl.Int32, "step": pl.Int32, "samples": pl.Int64, "tokens": pl.Int64, "size": pl.Int64, "how": pl.String}
    ops = host_operators(trace, "step", "name", "shapes").with_columns(pl.col("name", "shapes").cast(pl.String))
    if ops.is_empty():
        return pl.DataFrame(schema=schema)
    # Autocast calls an operator again with other types, inside itself.
    again = (ops["outer"] >= 0) & (ops["name"].gather(ops["outer"].clip(0)) == ops["name"])
    ops = ops.filter(~again, pl.col("step").is_not_null(), pl.col("shapes").is_not_null())
    for names, read in ((_EMBEDDING, _tokens), (_CONVOLUTION, _samples)):
        calls = ops.filter(pl.col("name").is_in(names)).select("rank", "step", "name", "shapes")
        batches = [
            (rank, step, *value, f"{name} {shapes}")
            for rank, step, name, shapes in calls.iter_rows()
            if (value := read(shapes)) is not None
        ]
        rows = pl.DataFrame(batches, schema, orient="row")
        if rows.height:
            # The table of tokens is the largest; the input of the first convolution is the call with fewest channels.
            size = pl.col("size").max() if read is _tokens else pl.col("size").min()
            return rows.filter(pl.col("size") == size.over("rank", "step"))
    return pl.DataFrame(schema=schema)


def _tokens(shapes: str) -> tuple[int | None, int, int] | None:
    """Samples, tokens and rows of the table, of an embedding: `[[V, D], [N, S], ...]`."""
    table, indices = _dims(shapes, 2)
    if len(table) != 2 or not indices:
        return None
    return (indices[0] if len(indices) > 1 else None), prod(indices), table[0]


def _samples(shapes: str) -> tuple[int, None, int] | None:
    """Samples and channels of the input of a convolution: `[[N, C, H, W], [weights], ...]`."""
    image, weights = _dims(shapes, 2)
    if len(image) < 3 or len(image) != len(weights):
        return None
    return image[0], None, image[1]


def _dims(shapes: str, count: int) -> list[list[int]]:
    """The shapes of the first inputs; empty for inputs that are no tensors."""
    decoded = json.loads(shapes) if shapes.startswith("[") else []
    dims = [shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else [] for shape in decoded]
    return (dims + [[]] * count)[:count]
