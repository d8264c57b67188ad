"""The groups of each parallel dimension (data, tensor, pipeline, context, expert), and the place of each rank in them.

A dimension is taken from the first source that has it: the names that the framework gave to its groups, the stages that the recording
contains, the sizes of the job (in the order of Megatron: tensor, context, data, pipeline), and the ranks and calls of the groups.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from stepscope.analyses.shared.parallelism.communicators import Members, communicators, group_members, ranks_in
from stepscope.analyses.shared.ranks.rank_collectives import rank_collectives
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

DIMENSIONS = ("dp", "tp", "pp", "cp", "ep")
NAMED, RECORDED, SIZES, STRUCTURE = "group names", "recorded stages", "sizes of the job", "ranks and calls of the groups"
_WORDS = {
    "dp": "dp ddp fsdp data",
    "tp": "tp tensor",
    "pp": "pp pipeline pipe",
    "cp": "cp context",
    "ep": "ep exp expert moe",
}
_DIMENSION = {word: name for name, words in _WORDS.items() for word in words.split()}
# Words of names such as TENSOR_MODEL_PARALLEL_GROUP and mesh_dp_shard that do not change the dimension.
_FILLERS = {"group", "parallel", "model", "mesh", "pg", "process", "default", "world", "size", "comm"}
_PARTS = {"shard": "shard", "sharded": "shard", "replicate": "replica", "replicated": "replica"}  # two groups divide data parallelism
_ONE_SIDED = ("send", "recv", "send_recv")
_MAX_WORLD = 1 << 17


class ParallelGroup(NamedTuple):
    dimension: str
    group: str | None
    members: Members
    how: str


@memoized
def parallel_groups_of(trace: Trace) -> list[ParallelGroup]:
    """The groups of several ranks, by dimension and first rank. Of the whole job, also for a part of it."""
    whole = trace.whole
    groups: list[ParallelGroup] = []
    sources: tuple[Callable[[Trace], Iterable[ParallelGroup]], ...] = (_named_groups, _recorded_groups, _by_sizes, _by_structure)
    for source in sources:
        known = {group.dimension for group in groups}
        groups += [group for group in source(whole) if group.dimension not in known and len(group.members) > 1]
    unique = {(group.dimension, group.members): group for group in reversed(groups)}
    return sorted(unique.values(), key=lambda group: (DIMENSIONS.index(group.dimension), group.members))


@memoized
def parallel_indices(trace: Trace) -> pl.DataFrame:
    """rank, and its index in each dimension; null where the dimension, or the rank's group in it, is not known."""
    indices: dict[int, dict[str, int]] = {rank: {} for rank in trace.whole.meta.ranks}
    for group in parallel_groups_of(trace):
        for index, rank in enumerate(group.members):
            indices.setdefault(rank, {})[group.dimension] = index
    rows = [(rank, *(places.get(name) for name in DIMENSIONS)) for rank, places in sorted(indices.items())]
    return pl.DataFrame(rows, {"rank": pl.Int32, **dict.fromkeys(DIMENSIONS, pl.Int32)}, orient="row")


def dimension_of(description: str | None) -> str | None:
    """`tp` of TENSOR_MODEL_PARALLEL_GROUP, mesh_tp and tp; None for groups of several dimensions, such as dp_cp, and for other names."""
    words = re.findall(r"[a-z]+", (description or "").lower().replace("p2p", "pipeline"))
    rest = [word for word in words if word not in _FILLERS]
    dimensions = {_DIMENSION.get(word) for word in rest if word not in _PARTS}
    return dimensions.pop() if len(dimensions) == 1 else None


def _named_groups(trace: Trace) -> Iterator[ParallelGroup]:
    """From descriptions. A dimension that is divided into shards and replicas has the groups of both together, the shards first."""
    names = trace.table("process_groups").select(pl.col("group", "description").cast(pl.String), "members").unique().drop_nulls().collect()
    parts: dict[str, dict[str, list[ParallelGroup]]] = {}
    for group, description, members in names.sort("group", "members").iter_rows():
        if (dimension := dimension_of(description)) is not None:
            part = next((_PARTS[word] for word in re.findall(r"[a-z]+", description.lower()) if word in _PARTS), "")
            entry = ParallelGroup(dimension, group, ranks_in(members), NAMED)
            parts.setdefault(dimension, {}).setdefault(part, []).append(entry)
    for by_part in parts.values():
        if {"shard", "replica"} <= set(by_part):
            yield from _joined(by_part["shard"], by_part["replica"])
        else:
            yield from next(iter(by_part.values()))


def _joined(shards: list[ParallelGroup], replicas: list[ParallelGroup]) -> Iterator[ParallelGroup]:
    """Groups that contain all shards of all replicas."""
    shard_of = {rank: shard.members for shard in shards for rank in shard.members}
    for replica in replicas:
        members = [rank for first in replica.members for rank in shard_of.get(first, (first,))]
        if replica.members and replica.members[0] == members[0]:
            yield ParallelGroup(replica.dimension, None, tuple(dict.fromkeys(members)), NAMED)


def _recorded_groups(trace: Trace) -> Iterator[ParallelGroup]:
    """From operations of stages, or from the stages in MindSpore's strategy and profiler_info."""
    rows = trace.table("stage_operations").select("rank", "stage", "replica").unique().drop_nulls().sort("stage", "replica").collect()
    for dimension, across in (("pp", "replica"), ("dp", "stage")):
        for _, part in rows.group_by(across, maintain_order=True):
            yield ParallelGroup(dimension, None, tuple(part["rank"]), RECORDED)
    world, stages = trace.meta.world_size or 0, trace.meta.extra.get("stage_num")
    if rows.is_empty() and isinstance(stages, int) and stages > 1 and 0 < world <= _MAX_WORLD and world % stages == 0:
        in_stage = world // stages
        for first in range(in_stage):
            yield ParallelGroup("pp", None, tuple(range(first, world, in_stage)), RECORDED)


def _by_sizes(trace: Trace) -> Iterator[ParallelGroup]:
    """From the sizes, if they fill the job."""
    sizes, world = trace.meta.extra.get("parallel"), trace.meta.world_size or 0
    if not isinstance(sizes, dict) or not 0 < world <= _MAX_WORLD:
        return
    inner = [size if isinstance(size := sizes.get(name, 1), int) and size > 0 else 1 for name in ("tp", "cp", "pp")]
    rest = world // (inner[0] * inner[1] * inner[2])
    order = (("tp", inner[0]), ("cp", inner[1]), ("dp", rest), ("pp", inner[2]))
    if rest * inner[0] * inner[1] * inner[2] != world or sizes.get("dp", rest) != rest:
        return
    stride = 1
    for dimension, size in order:
        for first in (rank for rank in range(world) if rank // stride % size == 0):
            yield ParallelGroup(dimension, None, tuple(first + stride * place for place in range(size)), SIZES)
        stride *= size


class _Family(NamedTuple):
    """Groups of one size and one distance between their ranks that no rank is in twice."""

    groups: list[tuple[str | None, Members]]
    stride: int
    calls: float  # per rank
    kinds: set[str]


def _by_structure(trace: Trace) -> Iterator[ParallelGroup]:
    """Pipelines are chains of transfers, experts exchange with all-to-all; of reductions the closest ranks are tensor parallel."""
    chains = _chains(trace)
    yield from (ParallelGroup("pp", None, chain, STRUCTURE) for chain in chains)
    transfers = {*chains, *(group.members for group in _named_groups(trace))}
    families = [family for family in _families(trace) if not transfers.intersection(members for _, members in family.groups)]
    world = max(trace.meta.world_size or 0, len(trace.meta.ranks))
    exchanges = [family for family in families if "all_to_all" in family.kinds]
    reductions = [family for family in families if family not in exchanges]
    parts = [family for family in reductions if len(family.groups[0][1]) < world]
    chosen: dict[str, _Family] = {}
    if exchanges:
        chosen["ep"] = max(exchanges, key=lambda family: family.calls)
    parts.sort(key=lambda family: (family.stride, -family.calls))
    if len(parts) > 1 and parts[0].stride == 1:
        chosen["tp"] = parts[0]
        chosen["dp"] = max(parts[1:], key=lambda family: family.calls)
    elif parts and parts[0].stride > 1:
        chosen["dp"] = max(parts, key=lambda family: family.calls)
    elif reductions and not parts and not exchanges:
        chosen["dp"] = reductions[0]  # one group of all ranks
    for dimension, family in chosen.items():
        yield from (ParallelGroup(dimension, name, members, STRUCTURE) for name, members in family.groups)


def _families(trace: Trace) -> list[_Family]:
    calls = rank_collectives(trace).filter(~pl.col("collective").is_in(_ONE_SIDED), pl.col("collective").is_not_null())
    counts = calls.group_by("rank", "group", "members", "collective").agg(calls=pl.len()).sort("rank", "group", nulls_last=True)
    ranks_of = {(used.rank, used.group, used.text): used for used in communicators(trace)}
    # Where no source lists the ranks, its users are its members if all ranks are recorded.
    complete = len(trace.meta.ranks) >= (trace.meta.world_size or 1)
    entries = [(ranks, group, "", 0) for (_, group), ranks in group_members(trace).items()]
    for rank, group, text, collective, count in counts.iter_rows():
        used = ranks_of[rank, group, text]
        entries += [(used.ranks, group, collective, count)] if used.listed or complete else []
    # A large group has an entry for each of its ranks, all with the same tuple.
    strides = {id(ranks): _stride(ranks) for ranks in {id(entry[0]): entry[0] for entry in entries}.values()}
    by_shape: dict[tuple[int, int], list[tuple[Members, str | None, str, int]]] = {}
    for entry in entries:
        if (stride := strides[id(entry[0])]) is not None:
            by_shape.setdefault((len(entry[0]), stride), []).append(entry)
    families = []
    for (_, stride), same in by_shape.items():
        last = {id(ranks): (ranks, group) for ranks, group, *_ in same}
        groups = dict(last.values())
        covered = [rank for ranks in groups for rank in ranks]
        if len(covered) == len(set(covered)):
            kinds = {collective for _, _, collective, _ in same if collective}
            per_rank = sum(count for *_, count in same) / len(covered)
            families.append(_Family([(name, ranks) for ranks, name in groups.items()], stride, per_rank, kinds))
    return families


def _stride(ranks: Members) -> int | None:
    """The distance between the ranks; None where it is not the same between all."""
    gaps = {after - before for before, after in pairwise(ranks)}
    return gaps.pop() if len(gaps) == 1 else None


def _chains(trace: Trace) -> list[Members]:
    """Ranks that send to each other, in order; none where a chain branches, or is a circle in one direction: then they are no pipeline.

    A pipeline sends forward and backward. Ranks that send to the next one only, around a circle, exchange parts of a sequence or sums.
    """
    sent = _transfers(trace)
    near: dict[int, set[int]] = {}
    for source, target in sent:
        near.setdefault(source, set()).add(target)
        near.setdefault(target, set()).add(source)
    chains, seen = list[Members](), set[int]()
    for start in sorted(near):
        if start not in seen:
            part, front = {start}, [start]
            while front:
                front = [peer for rank in front for peer in near[rank] if peer not in part and not part.add(peer)]  # type: ignore[func-returns-value]
            seen |= part
            if max(len(near[rank] & part) for rank in part) > 2:
                return []
            closed = all(len(near[rank] & part) == 2 for rank in part)
            if not (closed and all((peer, rank) not in sent for rank in part for peer in near[rank] if (rank, peer) in sent)):
                chains.append(tuple(sorted(part)))
    return chains


def _transfers(trace: Trace) -> set[tuple[int, int]]:
    """Sender and receiver of all transfers between two ranks; in both directions where the direction is not known."""
    calls = rank_collectives(trace).filter(pl.col("collective").is_in(_ONE_SIDED))
    other = pl.coalesce(pl.when(pl.col("collective") == "send").then("dst").otherwise("src"), "partner").cast(pl.Int32)
    pair = pl.col("members").str.extract_all(r"\d+").cast(pl.List(pl.Int32))
    in_pair = pl.when(pair.list.len() == 2).then(pair.list.sum() - pl.col("rank"))
    edges = calls.select("rank", "collective", other=pl.coalesce(other, in_pair)).drop_nulls().unique()
    edges = edges.filter(pl.col("rank") != pl.col("other"))
    sends = edges.filter(pl.col("collective") != "recv").select("rank", "other")
    receives = edges.filter(pl.col("collective") != "send").select("other", "rank")
    return {*sends.iter_rows(), *receives.iter_rows()}
