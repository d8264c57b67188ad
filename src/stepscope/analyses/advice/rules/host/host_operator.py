"""The host runs an operator that should not be there, and the device waits for it.

Fires for operators that launch nothing and run in idle gaps of the device. The fix moves the operator to the device, to a worker of the
input pipeline or out of the loop: then the host takes no time for it. In a run without a device it fires for operators that sort, count,
draw random numbers, concatenate, copy, scatter, check for NaN, decompose or invert matrices, or call Python from compiled code: a training
rarely has to compute them. So their gain is an upper bound.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.calls import BACKWARD
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run
from stepscope.model import intervals

NEEDS = ("steps", "work", "operators")
APPLIES = ()
HOST_BOUND = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {
    "pytorch": 'x = torch.randn(shape, device="cuda")  # create and compute tensors on the device, not on the CPU',
    "mindspore": "x = mindspore.ops.standard_normal(shape)  # inside the network, so that it runs on the device",
    "jax": "x = jax.random.normal(key, shape)  # inside the jitted step",
    "tensorflow": "with tf.device('/GPU:0'):\n    x = tf.random.normal(shape)",
}
_LEAST_NS = 100_000  # a call; shorter ones are the cost of launching


_AVOIDABLE = (
    r"^aten::(sort|argsort|msort|quantile|nanquantile|median|histc|histogram|bincount|unique\w*|_unique2|cat|clone|copy_|normal_?|randn?|uniform_|"
    r"randperm|randint|multinomial|scatter_?|scatter_add_?|one_hot|isnan|isinf|isfinite|nonzero|masked_select|index_put_?|"
    r"embedding_dense_backward|inverse|pinverse|svd|symeig|lstsq|logdet|slogdet|det|cholesky\\w*|"
    r"linalg_(svd|svdvals|eig|eigh|eigvals|eigvalsh|inv|inv_ex|pinv|solve|solve_ex|lstsq|qr|cholesky|cholesky_ex|det|slogdet|cond|"
    r"matrix_rank|matrix_exp|lu|lu_factor|lu_solve))$|"
    r"^(pure_|io_|debug_)?callback(\.\d+)?$"  # of JAX: a compiled function that calls Python
)
_DECOMPOSITION = r"^aten::_?linalg_(svd|eigh|eig|solve_ex|inv_ex|qr|cholesky_ex|lu_factor_ex)$"  # within others, such as matrix_norm
_OF_BACKWARD = ["aten::embedding_dense_backward", "aten::isnan"]


def host_operator(run: Run) -> Iterator[Finding]:
    yield from _before_device(run) if run.work.height else _on_cpu(run)


def _on_cpu(run: Run) -> Iterator[Finding]:
    mine = pl.col("outermost") | pl.col("name").is_in(_OF_BACKWARD)  # others are part of an operator that the program calls
    around = run.top_level.filter(~pl.col("name").str.contains(BACKWARD))
    around = around.join(_enclosing(run, _DECOMPOSITION), on=["rank", "span"], how="semi")
    named = run.operators.filter((pl.col("name").str.contains(_AVOIDABLE) & mine) | pl.col("span").is_in(around["span"].implode()))
    named = run.outside_input(named)
    # Of calls inside each other, the outermost.
    named = named.sort("start_ns", "end_ns", descending=[False, True])
    reach = pl.col("end_ns").cum_max().shift(1).over("rank", "thread")
    for (name,), calls in named.filter(reach.is_null() | (pl.col("start_ns") >= reach)).group_by("name", maintain_order=True):
        total = run.per_step(calls["dur_ns"])
        yield Finding(
            parameters={"operator": str(name), "time": total, "share": run.share(total)},
            evidence=Evidence("operators", {}, {"name": str(name)}, {"total_ns": total}),
            changes=(scale_host(calls),),
            culprit=str(name),
            source=run.source_of(calls),
            spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
            confidence="medium",
            code="advice-host_operator-cpu",
            fix="advice-host_operator-cpu-fix",
            fix_code={"": ""},
        )


def _enclosing(run: Run, pattern: str) -> pl.DataFrame:
    """rank and span of the outermost operators around operators of this name, or of these themselves."""
    inner = run.operators.filter(pl.col("name").str.contains(pattern)).select("rank", "thread", at="start_ns").sort("at")
    outer = run.top_level.select("rank", "thread", "span", "start_ns", "end_ns").sort("start_ns")
    rows = inner.join_asof(outer, left_on="at", right_on="start_ns", by=["rank", "thread"], check_sortedness=False)
    return rows.filter(pl.col("at") < pl.col("end_ns")).select("rank", "span").unique()


def _before_device(run: Run) -> Iterator[Finding]:
    idle = run.gaps.filter(pl.col("cause") == "host-bound")
    busy_host = run.operators.filter((pl.col("launches") == 0) & (pl.col("dur_ns") >= _LEAST_NS))
    if idle.is_empty() or busy_host.is_empty():
        return
    gaps = intervals.merge(idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy())
    inside = intervals.covered(gaps, busy_host["start_ns"].to_numpy(), busy_host["end_ns"].to_numpy())
    busy_host = busy_host.with_columns(pl.Series("idle_ns", inside))
    # Of calls inside each other, the innermost with most of the time is the culprit.
    innermost = busy_host.filter(2 * pl.col("self_ns") >= pl.col("dur_ns"), pl.col("idle_ns") > 0)
    for (name,), calls in innermost.group_by("name", maintain_order=True):
        total, waited = run.per_step(calls["dur_ns"]), run.per_step(calls["idle_ns"])
        share = run.share_of_steps(calls["idle_ns"])  # while the calls run
        figures = {"waited_share": share, "total_ns": total}
        yield Finding(
            parameters={"idle": share, "operator": str(name), "time": total, "waited": waited},
            evidence=Evidence("operators", {}, {"name": str(name)}, figures),
            changes=(scale_host(calls),),
            culprit=str(name),
            source=run.source_of(calls),
            spans=calls.sort("dur_ns", descending=True).select("rank", "step", "span"),
        )
