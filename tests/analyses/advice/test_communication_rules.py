"""Rules for communication between ranks."""

from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from advice_rows import finding, missing, rows
from device_steps import Call, step_of
from stepscope.model.trace import Trace


def ranks(own: list[int], transfer: int = 100_000) -> Trace:
    """A step of ranks on CPUs: each computes for its own time, then all meet in an all-reduce that ends `transfer` later."""
    last = max(own)
    spans, steps = ["rank kind name start_ns dur_ns span"], ["rank step start_ns end_ns"]
    for rank, time in enumerate(own):
        spans.append(f"{rank} op aten::mm 0 {time} 1")
        spans.append(f"{rank} communication gloo:all_reduce {time} {last - time + transfer} 2")
        steps.append(f"{rank} 0 0 {last + transfer}")
    tracks = "\n".join(["rank track kind label", *(f"{rank} 0 thread main" for rank in range(len(own)))])
    return tiny.trace(spans="\n".join(spans), tracks=tracks, steps="\n".join(steps)).with_meta(framework="pytorch", world_size=len(own))


def test_a_rank_that_the_others_wait_for_gains_what_it_takes_longer() -> None:
    row = finding(ranks([800_000, 1_000_000, 800_000]), "slow_rank")
    assert (row["culprit"], row["gain_ns"], row["step_ns"]) == ("rank 1", 200_000, 1_100_000)
    assert (row["parameters"]["own"], row["parameters"]["median"]) == (1_000_000, 800_000)
    assert rows(ranks([800_000, 820_000, 800_000]), "slow_rank") == []


def test_one_rank_cannot_be_compared() -> None:
    one = ranks([800_000]).with_meta(world_size=2)
    assert "several ranks" in missing(one, "slow_rank")


def test_exposed_transfers_gain_the_transfer_and_not_the_wait_for_a_slow_rank() -> None:
    row = finding(ranks([800_000, 1_000_000]), "exposed_communication")
    assert (row["gain_ns"], row["culprit"]) == (100_000, "gloo:all_reduce")


@pytest.mark.parametrize("place", ["cluster_output", "legacy/expected/run_1", "prof_2023"])
def test_hidden_transfers_gain_no_more_than_the_exposed_communication_beside_it(shared: Path, place: str) -> None:
    row = finding(stepscope.open(shared / "ascend" / place, cache=False), "exposed_communication")
    assert 0.9 * row["parameters"]["exposed"] < row["gain_ns"] <= row["parameters"]["exposed"]
    if place == "cluster_output":  # the row of rank 11, which gains most, in cluster_step_trace_time.csv: not overlapped 231698.2 us
        assert row["gain_ns"] == 231_698_200


def test_time_that_is_no_transfer_is_divided_as_the_recording_divides_it(shared: Path) -> None:
    """communication.json of rank 0: 106 ms elapsed = 3.68 ms transit + 5.94 ms wait + 96.4 ms idle."""
    folder = shared / "ascend/torch_npu/text/level1/rank0_ascend_pt"
    if not folder.is_dir():
        pytest.skip("no result of torch_npu")
    found = rows(stepscope.open(folder, cache=False), "exposed_communication")
    (row,) = [row for row in found if row["code"].endswith("-arrival")]
    parts = [row["parameters"][name] / 1e6 for name in ("transit", "wait", "idle")]
    assert parts == pytest.approx([3.68, 5.94, 96.4], rel=0.002)


def test_a_job_of_one_rank_has_no_rule_for_communication() -> None:
    trace = step_of([Call("aten::mm", "gemm", 50_000)])
    assert [rows(trace, rule) for rule in ("exposed_communication", "small_transfers", "slow_rank", "slow_link")] == [[], [], [], []]


def test_links_far_below_the_mean_of_their_kind_are_stated() -> None:
    links = """
        rank  src  dst  transport  bytes       dur_ns
        0     0    1    RDMA       1000000000  100000000
        0     1    2    RDMA       1000000000  100000000
        0     2    3    RDMA       1000000000  200000000
    """
    trace = ranks([800_000, 800_000]).with_tables(links=tiny.trace(links=links).table("links"))
    (row,) = rows(trace, "slow_link")
    # 10, 10 and 5 GB/s: 5 is 40 % below the mean of 8.33.
    assert (row["status"], row["culprit"]) == ("statement", "2 → 3")
    assert row["parameters"]["below"] == pytest.approx(0.4)


def small(count: int, size: int) -> Trace:
    """A step of two ranks with transfers of `size` bytes, each of which takes 50 us after an operator of 10 us."""
    spans, steps = ["rank kind name start_ns dur_ns span bytes"], ["rank step start_ns end_ns"]
    for rank in range(2):
        for at in range(count):
            spans.append(f"{rank} op aten::div_ {at * 60_000} 10000 {2 * at} -")
            spans.append(f"{rank} communication gloo:all_reduce {at * 60_000 + 10_000} 50000 {2 * at + 1} {size}")
        steps.append(f"{rank} 0 0 {count * 60_000}")
    tracks = "rank track kind label\n0 0 thread main\n1 0 thread main"
    return tiny.trace(spans="\n".join(spans), tracks=tracks, steps="\n".join(steps)).with_meta(framework="pytorch", world_size=2)


def test_many_small_transfers_gain_the_latency_of_all_but_one() -> None:
    row = finding(small(20, 1_000), "small_transfers")
    assert (row["parameters"]["calls"], row["parameters"]["merged"]) == (20, 1)
    # 20 x 50 us, less one latency of 50 us; the last transfer ends with the step, which may not wait for it.
    assert row["gain_ns"] == pytest.approx(20 * 50_000 * (1 - 1 / 20), abs=10_000)
    assert rows(small(5, 1_000), "small_transfers") == []
    assert rows(small(20, 2 << 20), "small_transfers") == []


def test_many_transfers_of_unknown_size_become_one() -> None:
    spans = ["rank kind name start_ns dur_ns span", "0 op aten::mm 0 100000 1"]
    spans += [f"0 communication gloo:all_reduce {100_000 + i * 40_000} 40000 {2 + i}" for i in range(25)]
    trace = tiny.trace(spans="\n".join(spans), tracks="track kind label\n0 thread main", steps="step start_ns end_ns\n0 0 1100000")
    trace = trace.with_meta(framework="pytorch", world_size=2)
    row = finding(trace, "small_transfers")
    assert (row["gain_ns"], row["confidence"], row["parameters"]["calls"]) == (24 * 40_000, "low", 25)
    assert "size" not in row["parameters"]
    assert finding(trace, "exposed_communication")["gain_ns"] == pytest.approx(40_000, rel=0.1)  # the merged transfer


def test_operators_of_one_rank_only_gain_their_time() -> None:
    spans = ["rank kind name start_ns dur_ns span"]
    for rank in (0, 1):
        spans.append(f"{rank} op aten::mm 0 500000 1")
        spans.append(f"{rank} communication gloo:all_reduce {500_000 + 200_000 * rank} {300_000 - 200_000 * rank} 3")
    spans.append("1 op aten::linalg_svdvals 500000 200000 2")
    tracks = "rank track kind label\n0 0 thread main\n1 0 thread main"
    trace = tiny.trace(spans="\n".join(spans), tracks=tracks, steps="rank step start_ns end_ns\n0 0 0 800000\n1 0 0 800000")
    row = finding(trace.with_meta(framework="pytorch", world_size=2), "uneven_work")
    assert (row["culprit"], row["gain_ns"]) == ("rank 1, aten::linalg_svdvals", 200_000)
    assert rows(ranks([800_000, 1_000_000]), "uneven_work") == []


def test_exposed_communication_of_a_dimension_is_compared_with_computation() -> None:
    (row,) = rows(ranks([800_000, 800_000], transfer=200_000), "parallel_communication")
    # 200 us of 1 ms on both ranks, in a group of all ranks: data parallelism.
    assert (row["culprit"], row["status"], row["parameters"]["exposed"]) == ("dp", "statement", 200_000)
    assert row["parameters"]["share"] == pytest.approx(0.2)
    assert rows(ranks([800_000, 800_000], transfer=80_000), "parallel_communication") == []


def late(intervals: list[int]) -> Trace:
    """Ranks whose forward pass starts after their interval."""
    trace = ranks([800_000] * len(intervals))
    steps = "\n".join(f"{rank} 0 0 900000 {interval} 850000" for rank, interval in enumerate(intervals))
    return trace.with_tables(steps=tiny.trace(steps=f"rank step start_ns end_ns fp_start_ns bp_end_ns\n{steps}").steps)


def test_a_rank_that_starts_late_gains_what_no_other_rank_is_late() -> None:
    (row,) = rows(late([100_000, 100_000, 340_000]), "late_rank")
    # The mean is 180 us; the others are below it.
    assert (row["culprit"], row["gain_ns"], row["parameters"]["excess"]) == ("rank 2", 160_000, 160_000)
    assert rows(late([100_000, 100_000, 120_000]), "late_rank") == []
    # More than a fifth above the mean, but less than a hundredth of the step.
    assert rows(late([1_000, 1_000, 5_000]), "late_rank") == []


def test_a_rank_and_a_stage_with_uneven_flops_are_stated() -> None:
    def job(flops: list[int], stages: str = "") -> Trace:
        trace = ranks([800_000] * len(flops))
        work = trace.spans.collect()
        size = [flops[rank] if kind == "op" else None for rank, kind in work.select("rank", "kind").iter_rows()]
        tables = {"spans": work.with_columns(flops=pl.Series(size, dtype=pl.Int64), step=pl.lit(0, pl.Int32))}
        if stages:
            tables["process_groups"] = tiny.trace(process_groups=stages).table("process_groups").collect()
        return trace.with_tables(**tables)

    (row,) = rows(job([10**9, 10**9, 4 * 10**8]), "uneven_flops")
    # The mean is 0.8 GFLOP: 0.4 is half of it.
    assert (row["culprit"], row["parameters"]["below"]) == ("rank 2", pytest.approx(0.5))
    assert rows(job([10**9, 10**9, 9 * 10**8]), "uneven_flops") == []
    pipeline = "rank group description members\n0 p pp 0,1\n1 p pp 0,1"
    (row,) = rows(job([10**9, 2 * 10**9], pipeline), "uneven_flops")
    assert (row["culprit"], row["code"]) == ("stage 1", "advice-uneven_flops-stage")
    assert row["parameters"]["above"] == pytest.approx(1 / 3)


def test_ranks_that_wait_for_input_at_different_times_run_the_same_operators() -> None:
    spans = ["rank kind name start_ns dur_ns span"]
    for rank, wait in ((0, 0), (1, 300_000)):
        spans += [
            f"{rank} data next {wait} 200000 1",
            f"{rank} op aten::mm {500_000 - wait} 200000 2",
            f"{rank} op aten::add 250000 40000 3",
        ]
        spans.append(f"{rank} communication gloo:all_reduce 700000 100000 4")
    tracks = "rank track kind label\n0 0 thread main\n1 0 thread main"
    trace = tiny.trace(spans="\n".join(spans), tracks=tracks, steps="rank step start_ns end_ns\n0 0 0 800000\n1 0 0 800000")
    assert rows(trace.with_meta(framework="pytorch", world_size=2), "uneven_work") == []
