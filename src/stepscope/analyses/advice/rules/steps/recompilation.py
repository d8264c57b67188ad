"""Code is compiled again in steps after the first ones.

Fires for compilations in at least two steps, or in one that is not the first: TorchDynamo and Inductor, XLA, MindSpore graphs. Shapes or
values that change from step to step cause them. The gain per step is the time of the calls that compile, over all steps.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run
from stepscope.model import intervals

NEEDS = ("steps", "host")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"
FIX = {
    "pytorch": "torch._dynamo.mark_dynamic(x, 0)  # or pad to a few fixed shapes; TORCH_LOGS=recompiles names the guard that failed",
    "jax": "x = jnp.pad(x, ...)  # to a few fixed shapes; JAX_LOG_COMPILES=1 names the function and the shapes",
    "mindspore": "net.set_inputs(mindspore.Tensor(shape=[None, 224], dtype=mindspore.float32))  # one graph for all shapes",
    "tensorflow": "@tf.function(reduce_retracing=True)",
}
_COMPILES = (
    r"^(_compile\.compile_inner|compile_attempt_\d+|entire_frame_compile|backend_compile)( \(dynamo_timed\))?$|^dynamo$|"
    r"^(backend_compile_and_load|backend_compile|lower_sharding_computation|PjRt\w*Client::Compile|Tfrt\w+::Compile|XlaCompile)$|"
    r"^compile \w+$|(?i)CompileGraph|GraphCompile|compile_graph|^graph compile|torch/_dynamo/convert_frame\.py"
)
_CALL = r"^PjitFunction\((.*)\)$"  # the call of JAX that traces, lowers and compiles a function


def recompilation(run: Run) -> Iterator[Finding]:
    steps = run.all_steps
    names = run.trace.spans.select(pl.col("name").unique()).collect()["name"].cast(pl.String).drop_nulls()
    compiling = names.filter(names.str.contains(_COMPILES))
    if steps.is_empty() or compiling.is_empty():
        return
    rows = (
        run.trace.spans.filter(pl.col("name").cast(pl.String).is_in(compiling.implode()))
        .select("rank", "step", "span", pl.col("name").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    rows = run.in_all_steps(_outer_calls(run, rows), "start_ns")
    steps_with = rows["step"].unique().to_list()
    if rows.is_empty() or steps_with == [run.first_step]:
        return
    whole = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    gain = round(int(np.sum(whole.ends - whole.starts)) / steps.height)
    rare = 2 * len(steps_with) <= steps.height  # the median step does not compile
    culprit = str(rows.with_columns(dur=pl.col("end_ns") - pl.col("start_ns")).sort("dur", "name", descending=[True, False])["name"][0])
    yield Finding(
        parameters={"compiles": len(whole.starts), "affected": len(steps_with), "steps": steps.height, "time": gain, "name": culprit},
        evidence=Evidence("totals", {}, {"name": rows["name"][0]}, {"compile_ns": gain, "compiles": len(whole.starts)}),
        culprit=culprit,
        source=run.source_of(rows),
        changes=() if rare else (scale_host(rows),),
        gain_ns=gain if rare else None,
        spans=rows.select("rank", "step", "span"),
        confidence="medium",
    )


def _outer_calls(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """The calls of functions that compile, with the function's name, where they are recorded; else the compilations."""
    calls = (
        run.trace.spans.filter(pl.col("name").cast(pl.String).str.contains(_CALL))
        .select(
            "rank",
            "span",
            "track",
            name=pl.col("name").cast(pl.String).str.extract(_CALL),
            start_ns="start_ns",
            end_ns=pl.col("start_ns") + pl.col("dur_ns"),
        )
        .collect()
        .sort("start_ns", "end_ns", descending=[False, True])
    )
    if calls.is_empty():
        return rows
    reach = pl.col("end_ns").cum_max().shift(1).over("rank", "track")
    outer = calls.filter(reach.is_null() | (pl.col("start_ns") >= reach))
    at = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    compiles = intervals.covered(at, outer["start_ns"].to_numpy(), outer["end_ns"].to_numpy()) > 0
    return outer.filter(pl.Series(compiles)).select("rank", "span", "name", "start_ns", "end_ns") if compiles.any() else rows
