"""The ranks as one job: who is slow and why, which ranks are missing, how far the clocks can be trusted, and the bubble of the pipeline."""

from collections.abc import Iterator

import polars as pl

from stepscope.analyses.cluster.cluster_ranks import cluster_ranks
from stepscope.analyses.cluster.cluster_stages import cluster_stages
from stepscope.analyses.cluster.ranks import incomplete_ranks, ranks
from stepscope.analyses.shared.parallelism.parallel_dimensions import DIMENSIONS, parallel_groups_of
from stepscope.analyses.shared.ranks.rank_clocks import rank_clocks
from stepscope.analyses.verdict.topics.message import MATTERS, Message, Options, known, severity
from stepscope.analyses.verdict.topics.stragglers import straggler_messages
from stepscope.model.trace import Trace

_CODES = {"broken": "cluster-broken", "missing": "cluster-missing", "shorter": "cluster-shorter"}
_SPREAD = 0.02  # of the median: less is an even job


def cluster_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of the whole run."""
    whole = trace.whole
    table = ranks(whole)
    if len(whole.meta.ranks) < 2:
        world = whole.meta.world_size or 1
        yield Message("cluster", "cluster-one-rank", known(rank=next(iter(whole.meta.ranks), 0), world=world if world > 1 else None))
        return
    slow = [message._replace(topic="cluster") for message in straggler_messages(trace)]
    yield from slow or _evenness(trace, options)
    for state, text in incomplete_ranks(table).items():
        count = table.filter(pl.col("state") == state).height
        yield Message("cluster", _CODES[state], {"count": count, "all": table.height, "ranks": text}, severity="medium")
    yield from _clocks(whole)
    yield from _pipeline(trace, options)
    yield from _dimensions(whole)


def _evenness(trace: Trace, options: Options) -> Iterator[Message]:
    """No rank is slow: how much the slowest needs more than the usual one."""
    rows = cluster_ranks(trace, warmup=options.warmup)
    excess = rows.drop_nulls("excess_share").sort("excess_share", descending=True)
    if excess.is_empty():
        yield Message("cluster", "cluster-unknown", {"ranks": rows.height})
        return
    first = excess.row(0, named=True)
    parameters = {"ranks": excess.height, "rank": first["rank"], "share": first["excess_share"]}
    yield Message("cluster", "cluster-even" if first["excess_share"] <= _SPREAD else "cluster-spread", parameters, severity="info")


def _clocks(trace: Trace) -> Iterator[Message]:
    clocks = rank_clocks(trace)
    apart = clocks.filter(pl.col("offset_ns") != 0)
    if apart.height:
        offset, unsure = apart.select(pl.col("offset_ns").abs().max()).item(), apart["uncertainty_ns"].max()
        parameters = {"clocks": apart["clock"].n_unique(), "offset": offset, "uncertainty": unsure}
        yield Message("cluster", "cluster-clocks-differ", parameters)
    if (count := clocks.filter(pl.col("state") == "inconsistent").height) > 0:
        yield Message("cluster", "cluster-clocks-inconsistent", {"count": count}, severity="medium")


def _pipeline(trace: Trace, options: Options) -> Iterator[Message]:
    rows = cluster_stages(trace, per_step=False, warmup=options.warmup).drop_nulls(["stage", "bubble_share"])
    if rows["stage"].n_unique() < 2:
        return
    stages = rows.group_by("stage").agg(pl.col("bubble_share").mean()).sort("bubble_share", "stage", descending=[True, False])
    mean, worst = stages.select(pl.col("bubble_share").mean()).item(), stages.row(0, named=True)
    parameters = {"share": mean, "stages": stages.height, "stage": worst["stage"], "worst": worst["bubble_share"]}
    yield Message("cluster", "cluster-bubble", parameters, severity=severity(mean) if mean >= MATTERS else None)


def _dimensions(trace: Trace) -> Iterator[Message]:
    sizes: dict[str, int] = {}
    for group in parallel_groups_of(trace):
        sizes[group.dimension] = max(sizes.get(group.dimension, 0), len(group.members))
    if sizes:
        text = " x ".join(f"{name.upper()} {sizes[name]}" for name in DIMENSIONS if name in sizes)
        yield Message("cluster", "cluster-dimensions", {"dimensions": text})
