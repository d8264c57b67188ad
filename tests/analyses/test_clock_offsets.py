"""Clocks of ranks that differ by a known offset."""

import json
import random

import polars as pl
import pytest

import tiny
from stepscope.model.trace import Meta, Trace, complete

MS = 1_000_000


def job(offsets: dict[int, int], hosts: dict[int, str] | None = None, calls: int = 40, transit: int = 2 * MS, seed: int = 1) -> Trace:
    """Ranks that meet in all-reduces. Each computes for 5 to 30 ms before; after the last one came, a rank takes 1 to 2 transits.

    The times of a rank are recorded on a clock that is `offsets[rank]` behind: adding it makes them comparable.
    """
    chance, now = random.Random(seed), 0
    spans = ["rank kind name step start_ns dur_ns bytes"]
    for call in range(calls):
        starts = {rank: now + chance.randint(5, 30) * MS for rank in offsets}
        last = max(starts.values())
        ends = {rank: last + round(transit * chance.uniform(1, 2)) for rank in offsets}
        for rank, offset in offsets.items():
            spans.append(f"{rank} communication ncclAllReduce {call} {starts[rank] - offset} {ends[rank] - starts[rank]} 8")
        now = max(ends.values())
    tables = {"spans": "\n".join(spans)}
    if hosts:
        tables["hosts"] = "rank host\n" + "\n".join(f"{rank} {host}" for rank, host in hosts.items())
    return tiny.trace(**tables)


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_offset_is_within_the_uncertainty(seed: int) -> None:
    planted = {0: 0, 1: 70 * MS, 2: -3 * MS, 3: 4_000_000 * MS}
    rows = job(planted, seed=seed).clock_offsets().to_dicts()
    for row in rows:
        assert abs(row["offset_ns"] - planted[row["rank"]]) <= row["uncertainty_ns"]
        assert row["least_ns"] <= planted[row["rank"]] <= row["most_ns"]
    # No more uncertain than the shortest quarter of the calls, of which the fastest rank takes less than 4 ms.
    assert max(row["uncertainty_ns"] for row in rows) <= 4 * MS
    assert [row["state"] for row in rows] == ["reference", "differs", "agrees" if rows[2]["offset_ns"] == 0 else "differs", "differs"]


def test_ranks_that_end_every_call_together_are_aligned_exactly() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name           step  start_ns  dur_ns  bytes
            0     communication  ncclAllReduce  1     100       90      8
            1     communication  ncclAllReduce  1     1180      10      8
            0     communication  ncclAllReduce  2     380       20      8
            1     communication  ncclAllReduce  2     1300      100     8
        """
    )
    # Rank 1's clock is 1000 ahead. Rank 1 comes 80 late in step 1, rank 0 80 late in step 2. In transit: 10 and 20.
    # Rank 1 starts step 1 at 1180, rank 0 ends it at 190: at most -990. Rank 0 starts step 2 at 380, rank 1 ends at 1400: at least -1020.
    tiny.assert_rows(
        trace.clock_offsets(),
        """
        rank  offset_ns  uncertainty_ns  least_ns  most_ns  calls  state
        0     0          0               0         0        -      reference
        1     -1000      20              -1020     -990     2      differs
        """,
    )
    assert trace.communication().select("rank", "wait_ns", "uncertain_wait_ns").rows() == [(0, 80, 0), (1, 80, 0)]


def test_waits_smaller_than_the_uncertainty_are_marked() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name           step  start_ns  dur_ns  bytes
            0     communication  ncclAllReduce  1     100       90      8
            1     communication  ncclAllReduce  1     110       80      8
            0     communication  ncclAllReduce  2     390       20      8
            1     communication  ncclAllReduce  2     340       70      8
        """
    )
    # The clocks agree within the 20 that the second call is in transit at least, and the 80 of the first.
    rows = trace.clock_offsets().to_dicts()
    assert (rows[1]["state"], rows[1]["offset_ns"], rows[1]["uncertainty_ns"]) == ("agrees", 0, 70)
    assert trace.communication().select("wait_ns", "uncertain_wait_ns").rows() == [(10, 10), (50, 50)]


def test_ranks_of_one_host_share_a_clock_and_their_waits_are_certain() -> None:
    trace = job({0: 0, 1: 0, 2: 50 * MS, 3: 50 * MS}, {0: "a", 1: "a", 2: "b", 3: "b"})
    rows = trace.clock_offsets().to_dicts()
    assert [(row["clock"], row["state"]) for row in rows] == [("a", "reference"), ("a", "same host"), ("b", "differs"), ("b", "differs")]
    assert rows[1]["uncertainty_ns"] == 0 and rows[2]["offset_ns"] == rows[3]["offset_ns"]
    alone = job({0: 0, 1: 0}, {0: "a", 1: "a"})
    assert alone.communication()["uncertain_wait_ns"].sum() == 0 < alone.communication()["wait_ns"].sum()


def test_ranks_without_a_common_call_have_a_reference_of_their_own() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name           step  start_ns  dur_ns
            0     communication  ncclAllReduce  1     100       90
            1     kernel         gemm           1     110       80
        """
    )
    assert trace.clock_offsets().select("reference", "offset_ns", "state").rows() == [(0, 0, "reference"), (1, 0, "reference")]


def test_transfers_in_both_directions_bound_the_offset() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name      step  start_ns  dur_ns  bytes
            0     communication  ncclSend  1     100       20      8
            1     communication  ncclRecv  1     1000      130     8
            1     communication  ncclSend  1     1300      30      16
            0     communication  ncclRecv  1     250       90      16
        """
    )
    # Rank 1 receives until 1130 what rank 0 sends from 100 on: at least -1030. Rank 0 receives until 340 what rank 1 sends from
    # 1300 on: at most -960.
    row = trace.clock_offsets().row(1, named=True)
    assert (row["least_ns"], row["most_ns"], row["offset_ns"], row["uncertainty_ns"], row["state"]) == (-1030, -960, -995, 35, "differs")


def test_groups_that_share_a_rank_with_others_are_aligned_through_it() -> None:
    behind = {0: 0, 1: -500, 2: 700}
    rows = [
        (rank, step, 1000 * step + start - behind[rank], json.dumps({"Process Group Name": group}))
        for step in range(4)
        for group, start, ranks in (("a", 0, (0, 1)), ("b", 100, (1, 2)))
        for rank in ranks
    ]
    spans = pl.DataFrame(rows, ["rank", "step", "start_ns", "args"], orient="row").with_columns(
        kind=pl.lit("communication"), name=pl.lit("ncclAllReduce"), track=pl.lit(0), dur_ns=pl.lit(10)
    )
    parts = [complete(part) for part in spans.sort("rank", maintain_order=True).partition_by("rank", maintain_order=True)]
    table = Trace({"spans": pl.concat(parts)}, Meta(ranks=[0, 1, 2])).clock_offsets()
    assert table["offset_ns"].to_list() == [0, -500, 700]
    # The second step of the way adds its own transit.
    assert table["uncertainty_ns"].to_list() == [0, 10, 20]
