"""The shapes of inputs differ from step to step, so that nothing can be compiled or planned once.

Fires where an operator that runs once per step has at least four different shapes, in at least half of the steps. Its cost is in the
compilation and in allocations, which have rules of their own: this is a statement without a gain.
"""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "operators", "shapes")
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html"
FIX = {
    "pytorch": "x = torch.nn.functional.pad(x, (0, -x.shape[-1] % 64))  # a few fixed sizes (buckets)",
    "jax": "x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 64)))  # a few fixed sizes (buckets)",
    "mindspore": "dataset = dataset.padded_batch(32, pad_info={'x': ([512], 0)})",
}
_LEAST_SHAPES = 4


def changing_shapes(run: Run) -> Iterator[Finding]:
    calls = run.operators.filter(pl.col("shapes").str.contains(r"\d")).sort("start_ns")
    nth = calls.with_columns(nth=pl.int_range(pl.len()).over("rank", "step", "name"))
    varied = (
        nth.group_by("name", "nth", maintain_order=True)
        .agg(shapes=pl.col("shapes").n_unique(), steps=pl.col("step").n_unique(), first=pl.col("shapes").first())
        .filter(pl.col("shapes") >= _LEAST_SHAPES, pl.col("shapes") * 2 >= pl.col("steps"), pl.col("steps") * 2 >= run.steps.height)
    )
    if varied.is_empty():
        return
    name, _, shapes, steps, _ = varied.sort("shapes", descending=True, maintain_order=True).row(0)
    rows = nth.filter(pl.col("name") == name)
    yield Finding(
        parameters={"operator": name, "shapes": shapes, "steps": steps, "operators": varied["name"].n_unique()},
        evidence=Evidence("operators", {}, {"name": name}, {"shapes": shapes, "steps": steps}),
        culprit=name,
        source=run.source_of(rows),
        spans=rows.select("rank", "step", "span"),
        statement=True,
    )
