"""The counters of input pipelines, taken apart: which queue or operator, what of it, in one unit.

docs/data_model.md says how they are named.
"""

import polars as pl

from stepscope.trace import Trace

# Of a name, what it says. Queues that are read batch by batch have words of their own, those between operators the operator's number.
_NAMES = (
    (r"^queue (?<op>\d+) (?<what>depth|wait)$", "loader"),
    (r"^queue (?<queue>iterator|device queue|device)$", "end"),
    (r"^(?<what>pipeline time|batch time) (?<queue>iterator|device queue)$", "end"),
    (r"^queue (?<op>\d+)(?: .*)?$", "operator"),
    (r"^(?<what>cpu user|cpu system) (?<op>\d+)(?: .*)?$", "operator"),
)
_WHAT = {"pipeline time": "wait", "batch time": "batch"}
_SCALE = {"ms": 1e6, "us": 1e3, "s": 1e9, "percent": 0.01}


def samples(trace: Trace) -> pl.DataFrame:
    """Of each sample: rank, of (loader, end, operator), op_id, queue, what (depth, wait, batch, cpu user, cpu system), at_ns, value.

    Times are in nanoseconds, CPU use is a share of the machine's.
    """
    counters = trace.counters
    # Few names, many samples: the words are taken apart once per name.
    words = counters.select("name").unique().collect()
    parts = [
        words.with_columns(groups=pl.col("name").cast(pl.String).str.extract_groups(pattern), of=pl.lit(of)).unnest("groups")
        for pattern, of in _NAMES
    ]
    known = pl.concat(parts, how="diagonal").filter(pl.any_horizontal(pl.col("op", "what", "queue").is_not_null()))
    known = known.unique("name", keep="first", maintain_order=True)
    scale = pl.col("unit").cast(pl.String).replace_strict(_SCALE, default=1.0, return_dtype=pl.Float64)
    return (
        counters.join(known.lazy(), on="name")
        .select(
            "rank",
            "of",
            "queue",
            "at_ns",
            op_id=pl.col("op").cast(pl.Int32, strict=False),
            what=pl.col("what").replace(_WHAT).fill_null("depth"),
            value=pl.col("value") * scale,
        )
        .sort("rank", "at_ns", maintain_order=True)
        .collect()
    )


def in_steps(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the step in which each was taken; null between steps."""
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("start_ns").collect()
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, pl.Int32))
    placed = rows.sort("at_ns").join_asof(steps, left_on="at_ns", right_on="start_ns", by="rank", check_sortedness=False)
    return placed.with_columns(step=pl.when(pl.col("at_ns") < pl.col("end_ns")).then("step")).drop("start_ns", "end_ns", strict=False)


def ends(pipeline: pl.DataFrame) -> dict[int, int]:
    """By rank the operator whose queue is read by the training or by the sender: the first with a queue, from the root on."""
    found: dict[int, int] = {}
    for (rank,), rows in pipeline.drop_nulls("rank").group_by("rank"):
        parents = dict(rows.select("op_id", "parent").iter_rows())
        queued = set(rows.filter(pl.col("queue_capacity") > 0)["op_id"])
        depth = {op: _depth(op, parents) for op in queued}
        if depth:
            found[int(str(rank))] = min(depth, key=lambda op: (depth[op], op))
    return found


def _depth(op: int, parents: dict[int, int | None]) -> int:
    """How far from the root; a circle, which no pipeline has, ends too."""
    seen = {op}
    while (above := parents.get(op)) is not None and above not in seen:
        op = above
        seen.add(op)
    return len(seen)
