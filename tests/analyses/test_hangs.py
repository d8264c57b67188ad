from pathlib import Path

import polars as pl
import pytest

import stepscope
from flight_dumps import entry, write
from stepscope.analyses.shared.ranks.cycles import sink_groups


def causes(folder: Path) -> list[tuple[int, str]]:
    rows = stepscope.open(folder, cache=False).hangs().filter(role="cause")
    return list(rows.select("rank", "why").iter_rows())


def done(record: int, group: str, number: int, name: str = "all_reduce") -> dict[str, object]:
    return entry(record, group, number, name, state="completed")


def test_a_rank_that_did_not_call_a_collective_is_the_cause(tmp_path: Path) -> None:
    calls = {rank: [done(1, "0", 1), entry(2, "0", 2)] for rank in range(4)} | {2: [done(1, "0", 1)]}
    rows = stepscope.open(write(tmp_path / "d", calls), cache=False).hangs()
    assert rows["role"].to_list() == ["waiting", "waiting", "cause", "waiting"]
    assert rows.row(2, named=True) == {
        "rank": 2,
        "role": "cause",
        "why": "not called",
        "group": "0",
        "description": "default_pg",
        "operation": "all_reduce",
        "number": 2,
        "line": "/job/train.py:12 train",
        "waiting": 3,
        "waits_for": None,
        "pending": 0,
        "last_operation": "all_reduce",
        "last_ns": 0,
        "last_line": "/job/train.py:11 train",
    }
    assert rows["waits_for"].to_list() == ["2", "2", None, "2"]


def test_a_rank_that_waits_for_another_one_is_no_cause(tmp_path: Path) -> None:
    # Ranks 2 and 3 wait for rank 1 in the whole job; rank 1 waits for rank 0 in its own group.
    calls = {0: [], 1: [entry(1, "1", 1)], 2: [entry(1, "0", 1)], 3: [entry(1, "0", 1)]}
    counts = {0: {"0": (0, 0), "1": (0, 0)}, 1: {"0": (0, 0), "1": (1, 0)}}
    assert causes(write(tmp_path / "d", calls, counts)) == [(0, "not called")]


def test_what_a_rank_called_is_unknown_without_a_record_or_a_count(tmp_path: Path) -> None:
    calls = {0: [entry(1, "1", 1)], 1: []}
    trace = stepscope.open(write(tmp_path / "d", calls), cache=False)
    assert trace.pending_collectives().select("called", "not_called", "unknown").row(0) == ("0", None, "1")
    assert causes(tmp_path / "d") == []
    assert trace.verdict(topic="hangs")["code"].to_list() == ["hang-unknown", "hang-dumps-missing"]


def test_a_device_that_stopped_is_the_cause_where_others_completed_the_collective(tmp_path: Path) -> None:
    calls = {0: [entry(1, "1", 1), entry(2, "0", 1)], 1: [done(1, "1", 1), entry(2, "0", 1)]}
    calls |= {rank: [entry(2, "0", 1)] for rank in (2, 3)}
    assert causes(write(tmp_path / "d", calls)) == [(0, "device stopped")]


def test_a_rank_that_a_stopped_device_holds_up_is_no_cause(tmp_path: Path) -> None:
    # Device 0 stopped. Rank 2 receives from rank 0, both called it; the host of rank 2 waits for it and has not called the next one.
    calls = {
        0: [entry(1, "1", 1), entry(2, "0", 1, "send 0->2")],
        1: [done(1, "1", 1)],
        2: [entry(1, "0", 1, "recv 2<-0")],
        3: [entry(1, "2", 1)],
    }
    counts = {2: {"0": (1, 0), "2": (0, 0)}, 3: {"0": (0, 0), "2": (1, 0)}}
    assert causes(write(tmp_path / "d", calls, counts)) == [(0, "device stopped")]


def test_a_rank_without_a_dump_is_the_cause_where_others_wait_in_its_group(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", {rank: [entry(1, "0", 1)] for rank in (0, 1, 3)})
    assert causes(folder) == [(2, "no dump")]
    assert "1 rank (2) left no dump" in stepscope.open(folder, cache=False).verdict(topic="hangs")["text"][0]


def test_a_receive_without_a_send_names_the_sender(tmp_path: Path) -> None:
    calls = {0: [entry(1, "1", 1, "recv 0<-1")], 1: [done(1, "0", 1)]}
    assert causes(write(tmp_path / "d", calls)) == [(1, "no partner")]


def test_an_early_receive_does_not_excuse_the_rank_that_called_no_collective(tmp_path: Path) -> None:
    # Rank 0 has called a receive in advance, and nothing since; rank 1 waits for it in a collective and has not sent yet.
    calls = {0: [entry(1, "0", 1, "recv 0<-2")], 1: [entry(1, "1", 1)], 2: [entry(1, "0", 1, "recv 2<-1")]}
    counts = {0: {"0": (1, 0), "1": (0, 0)}, 1: {"0": (0, 0), "1": (1, 0)}}
    assert causes(write(tmp_path / "d", calls, counts)) == [(0, "not called")]


def test_ranks_that_wait_for_each_other_are_a_deadlock(tmp_path: Path) -> None:
    calls = {0: [done(1, "0", 1), done(2, "1", 1), entry(3, "0", 2)], 1: [done(1, "0", 1), done(2, "1", 1), entry(3, "1", 2)]}
    folder = write(tmp_path / "d", calls | {rank: [done(1, "0", 1), entry(2, "0", 2)] for rank in (2, 3)})
    assert causes(folder) == [(0, "deadlock"), (1, "deadlock")]
    assert "2 ranks (0, 1) wait for each other" in stepscope.open(folder, cache=False).verdict(topic="hangs")["text"][0]


@pytest.mark.parametrize("other", [{"profiling_name": "nccl:broadcast"}, {"input_sizes": [[9]]}, {"input_dtypes": ["Half"]}])
def test_a_rank_that_calls_another_operation_or_size_is_the_cause(tmp_path: Path, other: dict[str, object]) -> None:
    calls = {rank: [entry(1, "0", 1)] for rank in range(4)} | {3: [entry(1, "0", 1) | other]}
    folder = write(tmp_path / "d", calls)
    assert causes(folder) == [(3, "mismatch")]
    assert stepscope.open(folder, cache=False).pending_collectives()["different"].to_list() == ["3"]


def test_sizes_of_an_all_to_all_may_differ(tmp_path: Path) -> None:
    calls = {rank: [entry(1, "1", 1, "all_to_all", input_sizes=[[rank + 1]])] for rank in range(2)}
    assert causes(write(tmp_path / "d", calls)) == [(0, "transfer stopped"), (1, "transfer stopped")]


def test_no_rank_is_the_cause_where_all_is_completed(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", {rank: [done(1, "0", 1)] for rank in range(4)})
    trace = stepscope.open(folder, cache=False)
    assert trace.hangs()["role"].to_list() == ["clear"] * 4
    assert trace.verdict(topic="hangs")["code"].to_list() == ["hang-none"]
    assert trace.pending_collectives().is_empty()


def test_sends_and_receives_do_not_make_the_counts_of_a_group_comparable(tmp_path: Path) -> None:
    # Rank 1 has fewer operations in the group than rank 0, which also sent: that is no missing collective.
    calls = {0: [done(1, "1", 5, "send 0->1"), entry(2, "1", 3, op_id=8)], 1: [entry(2, "1", 3, op_id=3)]}
    counts = {0: {"0": (0, 0), "1": (8, 7)}, 1: {"0": (0, 0), "1": (3, 2)}}
    assert causes(write(tmp_path / "d", calls, counts)) == [(0, "transfer stopped"), (1, "transfer stopped")]


def test_one_dump_alone_accuses_no_rank(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", {rank: [entry(1, "0", 1)] for rank in range(4)})
    trace = stepscope.open(folder / "nccl_trace_rank_2", cache=False)
    assert trace.hangs()["role"].to_list() == ["no dump", "no dump", "waiting", "no dump"]
    (sentence,) = trace.verdict(topic="hangs")["text"]
    assert sentence.startswith("1 dump of 4 ranks: rank 2 waits in all_reduce number 1 of default_pg 0")


def test_one_rank_of_a_job_has_the_conclusion_of_the_whole_job(tmp_path: Path) -> None:
    calls = {rank: [done(1, "0", 1), entry(2, "0", 2)] for rank in range(4)} | {2: [done(1, "0", 1)]}
    trace = stepscope.open(write(tmp_path / "d", calls), cache=False)
    for rank in range(4):
        assert trace.hangs().filter(rank=rank).equals(trace.analyse("hangs", rank=rank))
        assert trace.analyse("verdict", rank=rank, topic="overview").equals(trace.verdict(topic="overview"))


def test_other_recordings_have_no_rows_and_no_sentence() -> None:
    trace = stepscope.Trace({"spans": pl.DataFrame({"name": ["a"]})})
    assert trace.hangs().is_empty()
    assert trace.pending_collectives().is_empty()
    assert trace.recorded_collectives().is_empty()
    assert trace.verdict(topic="hangs").is_empty()


@pytest.mark.parametrize(
    ("edges", "groups"),
    [
        ({1: {2}, 2: {3}}, [[3]]),
        ({1: {2}, 2: {1}, 3: {1}}, [[1, 2]]),
        ({1: {2}, 2: {1, 3}, 4: {5}}, [[3], [5]]),
        ({}, []),
    ],
)
def test_the_groups_at_the_end_of_all_waiting(edges: dict[int, set[int]], groups: list[list[int]]) -> None:
    assert sink_groups(edges) == groups
