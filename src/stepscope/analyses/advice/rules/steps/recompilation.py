"""Code is compiled again in steps after the first ones.

Fires for compilations inside steps other than the first: TorchDynamo and Inductor, XLA, MindSpore graphs. Shapes or values that change
from step to step cause them. The gain per step is their time over all steps.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
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
    r"(?i)^(backend_compile|xla_?compile|TfrtCpuClient::Compile|PjRt\w*Client::Compile|.*::CompileAndLoad|compile_fx|dynamo_timed|"
    r"_compile\.compile_inner|CompileGraph|GraphCompile|GraphExecutor::Compile|MindSpore graph compile|TorchDynamo.*compil.*|"
    r"convert_frame.*|PjitFunction.*compile.*|cache_miss)$|\bRecompil|torch/_dynamo/convert_frame\.py"
)


def recompilation(run: Run) -> Iterator[Finding]:
    steps = run.all_steps
    names = run.trace.spans.select(pl.col("name").cast(pl.String).unique()).collect()["name"].drop_nulls()
    compiling = names.filter(names.str.contains(_COMPILES))
    if steps.is_empty() or compiling.is_empty():
        return
    rows = (
        run.trace.spans.filter(pl.col("name").cast(pl.String).is_in(compiling.implode()))
        .select("rank", "step", "span", pl.col("name").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    rows = run.in_all_steps(rows, "start_ns").filter(pl.col("step") != run.first_step)
    if rows.is_empty():
        return
    whole = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    gain = round(int(np.sum(whole.ends - whole.starts)) / steps.height)
    affected = rows["step"].n_unique()
    yield Finding(
        parameters={"compiles": len(whole.starts), "affected": affected, "steps": steps.height, "time": gain},
        evidence=Evidence("totals", {}, {"name": rows["name"][0]}, {"compile_ns": gain, "compiles": len(whole.starts)}),
        culprit=str(rows["name"][0]),
        source=run.source_of(rows),
        gain_ns=gain,
        spans=rows.select("rank", "step", "span"),
        confidence="medium",
    )
