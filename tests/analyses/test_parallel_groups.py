"""Parallel dimensions of jobs whose places are known."""

import json
from collections.abc import Iterable

import polars as pl
import pytest

import tiny
from stepscope.analyses.shared.parallelism.parallel_dimensions import dimension_of
from stepscope.model.trace import Meta, Trace, complete


def groups_table(groups: dict[str, Iterable[tuple[int, ...]]]) -> str:
    """The groups that each rank lists, by their description."""
    rows = ["rank group description members"]
    for description, every in groups.items():
        for number, members in enumerate(every):
            for rank in members:
                rows.append(f"{rank} {description}{number} {description} {','.join(map(str, members))}")
    return "\n".join(rows)


def calls(groups: dict[str, Iterable[tuple[int, ...]]], often: dict[str, int], world: int) -> Trace:
    """Calls by collective, without names of groups: each rank lists the ranks of its group."""
    rows = []
    for collective, every in groups.items():
        for members in every:
            args = json.dumps({"Process Group Name": f"{collective}{members[0]}", "Process Group Ranks": list(members)})
            for rank in members:
                for call in range(often.get(collective, 1)):
                    rows.append((rank, collective.partition(":")[0], 100 * call, args))
    spans = pl.DataFrame(rows, ["rank", "name", "start_ns", "args"], orient="row").sort("rank", maintain_order=True)
    spans = spans.with_columns(kind=pl.lit("communication"), track=pl.lit(0), dur_ns=pl.lit(10), step=pl.lit(0))
    parts = [complete(part) for part in spans.partition_by("rank", maintain_order=True)]
    return Trace({"spans": pl.concat(parts)}, Meta(ranks=list(range(world)), world_size=world))


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("mesh_dp_shard", "dp"),
        ("mesh_tp", "tp"),
        ("dp", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", None),
        ("dp_cp", None),
        ("MODEL_PARALLEL_GROUP", None),
        ("EMBEDDING_GROUP", None),
        ("default_pg", None),
        ("undefined", None),
        (None, None),
    ],
)
def test_names_of_groups_tell_their_dimension(description: str | None, dimension: str | None) -> None:
    assert dimension_of(description) == dimension


# Eight ranks: tensor parallel in pairs, two stages, and two data-parallel copies in each.
PAIRS, STAGES, COPIES = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)], [(0, 2), (1, 3), (4, 6), (5, 7)]
PLACES = """
    rank  dp  tp  pp
    0     0   0   0
    1     0   1   0
    2     1   0   0
    3     1   1   0
    4     0   0   1
    5     0   1   1
    6     1   0   1
    7     1   1   1
"""


def test_named_groups_give_the_place_of_each_rank() -> None:
    table = groups_table({"tp": PAIRS, "pp": STAGES, "DATA_PARALLEL_GROUP": COPIES, "default_pg": [tuple(range(8))]})
    trace = tiny.trace(process_groups=table)
    tiny.assert_rows(trace.parallel_map(), PLACES)
    assert trace.parallel_map()["how"].unique().to_list() == ["dp: group names; tp: group names; pp: group names"]


def test_the_groups_of_ranks_that_are_not_recorded_are_shown_too() -> None:
    trace = tiny.trace(process_groups=groups_table({"tp": PAIRS})).of_rank(0).whole.with_meta(ranks=[0])
    assert trace.parallel_map().select("rank", "tp", "recorded").rows()[:2] == [(0, 0, True), (1, 1, False)]
    assert trace.parallel_groups().select("dimension", "size", "recorded", "ranks").row(0) == ("tp", 2, 1, "0-1")


def test_shards_and_replicas_are_one_dimension() -> None:
    table = groups_table({"mesh_dp_shard": [(0, 1), (2, 3)], "mesh_dp_replicate": [(0, 2), (1, 3)]})
    assert tiny.trace(process_groups=table).parallel_map()["dp"].to_list() == [0, 1, 2, 3]


def test_without_names_the_calls_tell_the_dimensions() -> None:
    transfers = calls({"send": STAGES, "ncclAllReduce": PAIRS, "ncclAllReduce:dp": COPIES}, {"ncclAllReduce": 20}, 8)
    tiny.assert_rows(transfers.parallel_map(), PLACES)
    assert transfers.parallel_map()["how"][0].count("ranks and calls of the groups") == 3
    experts = calls({"ncclAllToAll": [(0, 1, 2, 3)], "ncclAllReduce": [(0, 1, 2, 3)]}, {}, 4)
    assert experts.parallel_map().select("dp", "ep").rows() == [(None, rank) for rank in range(4)]
    alone = calls({"ncclAllReduce": [(0, 1, 2, 3)]}, {}, 4)
    assert alone.parallel_map().select("dp", "tp").rows() == [(rank, None) for rank in range(4)]


def test_of_a_part_of_the_ranks_no_group_is_guessed() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name           start_ns  dur_ns
            0     communication  ncclAllReduce  0         10
            1     communication  ncclAllReduce  0         10
        """
    ).with_meta(world_size=128)
    assert trace.parallel_map().select("dp", "tp").rows() == [(None, None)] * 2


def test_sizes_fill_the_job_in_the_order_of_megatron() -> None:
    trace = Trace({}, Meta(ranks=list(range(8)), world_size=8, extra={"parallel": {"tp": 2, "pp": 2, "dp": 2}}))
    tiny.assert_rows(trace.parallel_map(), PLACES)
    wrong = trace.with_meta(extra={"parallel": {"tp": 3, "pp": 2}})
    assert wrong.parallel_map()["tp"].null_count() == 8


def test_groups_have_their_calls_and_waits() -> None:
    trace = calls({"ncclAllReduce": PAIRS}, {"ncclAllReduce": 3}, 8)
    first = trace.parallel_groups().row(0, named=True)
    assert (first["ranks"], first["calls"], first["total_ns"]) == ("0-1", 6, 60)


@pytest.mark.parametrize(("steps", "stages"), [((1,), [None] * 4), ((1, -1), [0, 1, 2, 3])])
def test_a_circle_of_transfers_is_a_pipeline_only_in_both_directions(steps: tuple[int, ...], stages: list[int | None]) -> None:
    sides = [(rank, step, name, key) for rank in range(4) for step in steps for name, key in (("Send", "Dst Rank"), ("Recv", "Src Rank"))]
    peers = [(rank + step if name == "Send" else rank - step) % 4 for rank, step, name, _ in sides]
    spans = pl.DataFrame(
        {
            "rank": [rank for rank, *_ in sides],
            "name": [f"ncclDevKernel_{name}" for *_, name, _ in sides],
            "args": [json.dumps({key: peer}) for (*_, key), peer in zip(sides, peers, strict=True)],
            "start_ns": [100 * at for at in range(len(sides))],
        }
    ).with_columns(kind=pl.lit("communication"), track=pl.lit(0), dur_ns=pl.lit(10), step=pl.lit(0))
    parts = [complete(part) for part in spans.partition_by("rank", maintain_order=True)]
    ring = Trace({"spans": pl.concat(parts)}, Meta(ranks=list(range(4)), world_size=4))
    assert ring.parallel_map()["pp"].to_list() == stages
