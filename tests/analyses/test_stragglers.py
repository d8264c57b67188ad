"""Slow ranks, links, stages and hosts, with their causes."""

from pathlib import Path
from typing import Any

import pytest

import pipeline_file
import stepscope
import tiny
from stepscope.model.trace import Trace

STEP = 100  # ms
MS = 1_000_000


class Rank:
    """Times of a rank in a step, in ms: input, garbage collection, other host time, computation; then it waits until the step ends."""

    def __init__(self, load: int = 5, collect: int = 0, host: int = 5, compute: int = 40, skew: int = 0, kernels: int = 2) -> None:
        self.load, self.collect, self.host, self.compute, self.skew, self.kernels = load, collect, host, compute, skew, kernels


def job(ranks: dict[int, Rank], steps: int = 10, slow: set[int] | None = None, **tables: str) -> Trace:
    """A job whose ranks meet at the end of each step; they have their times in the steps `slow` (else all), else the usual."""
    spans, marks = ["rank track kind name category step start_ns dur_ns"], ["rank step start_ns end_ns"]
    for number, rank in ranks.items():
        for step in range(steps):
            times = rank if slow is None or step in slow else Rank()
            begin = now = (step * STEP + rank.skew) * MS
            marks.append(f"{number} {step} {begin} {begin + STEP * MS}")
            for kind, name, category, length in (("data", "next", "-", times.load), ("other", "GC", "gc", times.collect)):
                if length:
                    spans.append(f"{number} 0 {kind} {name} {category} {step} {now} {length * MS}")
                now += length * MS
            now += times.host * MS
            for _ in range(times.kernels):
                spans.append(f"{number} 7 kernel gemm - {step} {now} {times.compute * MS // times.kernels}")
                now += times.compute * MS // times.kernels
            spans.append(f"{number} 8 communication ncclDevKernel_AllReduce - {step} {now} {begin + STEP * MS - now}")
    rows = "\n".join(f"{rank} 0 thread main -\n{rank} 7 stream a 0\n{rank} 8 stream b 0" for rank in ranks)
    texts = {"spans": "\n".join(spans), "tracks": f"rank track kind label device\n{rows}", "steps": "\n".join(marks), **tables}
    return tiny.trace(**texts)


def named(trace: Trace) -> list[tuple[Any, ...]]:
    return trace.stragglers().select("kind", "rank", "cause").rows()


@pytest.mark.parametrize(
    ("rank", "cause"),
    [
        (Rank(compute=60), "compute"),
        (Rank(load=25), "input"),
        (Rank(collect=20), "garbage_collection"),
        (Rank(host=25), "host"),
    ],
)
def test_the_cause_is_the_part_that_is_longer_than_that_of_the_peers(rank: Rank, cause: str) -> None:
    (row,) = job({0: Rank(), 1: Rank(), 2: rank, 3: Rank()}).stragglers().to_dicts()
    assert (row["kind"], row["rank"], row["cause"], row["persistent"]) == ("rank", 2, cause, True)
    # 70 ms without communication, the others 50 ms; the step is 100 ms.
    assert (row["excess_ns"], row["loss_ns"], row["loss_share"], row["gain_ns"]) == (20 * MS, 20 * MS, 0.2, 20 * MS)
    assert (row["steps"], row["slow_steps"], row["all_steps"], row["confidence"]) == ("0-9", 10, 10, 1.0)


def test_of_two_ranks_the_slower_one_is_named() -> None:
    assert named(job({0: Rank(), 1: Rank(compute=60)})) == [("rank", 1, "compute")]


def test_equal_ranks_have_no_straggler() -> None:
    assert named(job({rank: Rank() for rank in range(4)})) == []


def test_several_slow_ranks_do_not_hide_each_other() -> None:
    ranks = {rank: Rank() for rank in range(9)} | {1: Rank(compute=60), 4: Rank(compute=80), 6: Rank(load=20), 7: Rank(host=30)}
    table = job(ranks).stragglers()
    assert named(job(ranks)) == [("rank", 4, "compute"), ("rank", 7, "host"), ("rank", 1, "compute"), ("rank", 6, "input")]
    # If only one of them were repaired, the others would still be waited for: only rank 4 is slower than the next, by 15 ms.
    assert table["gain_ns"].to_list() == [15 * MS, 0, 0, 0]
    assert table["loss_ns"].to_list() == [40 * MS, 25 * MS, 20 * MS, 15 * MS]


def test_a_rank_that_is_slow_in_some_steps_is_transient() -> None:
    ranks = {rank: Rank() for rank in range(8)} | {5: Rank(load=30)}
    (row,) = job(ranks, steps=20, slow={3, 4, 5, 9, 10, 11, 12, 13}).stragglers().to_dicts()
    assert (row["rank"], row["persistent"], row["cause"], row["steps"]) == (5, False, "input", "3-5, 9-13")
    # 25 ms in 8 of 20 steps.
    assert (row["excess_ns"], row["loss_ns"], row["slow_steps"]) == (25 * MS, 10 * MS, 8)


def test_single_slow_steps_are_noise() -> None:
    ranks = {rank: Rank() for rank in range(8)} | {5: Rank(load=30)}
    assert named(job(ranks, steps=20, slow={7})) == []


def test_a_difference_of_clocks_makes_no_straggler() -> None:
    ranks = {0: Rank(), 1: Rank(skew=30), 2: Rank(skew=-3), 3: Rank(compute=60, skew=-20)}
    assert named(job(ranks)) == [("rank", 3, "compute")]


def test_more_operations_are_told_apart_from_slower_ones() -> None:
    more = job({0: Rank(), 1: Rank(), 2: Rank(compute=60, kernels=3)}).stragglers()["cause_detail"].item()
    same = job({0: Rank(), 1: Rank(), 2: Rank(compute=60)}).stragglers()["cause_detail"].item()
    assert more.endswith("50% more operations than the other ranks") and same.endswith("as many operations as the other ranks")


def test_a_lower_device_clock_explains_longer_kernels() -> None:
    clocks = "\n".join(f'{rank} 50000000 "gpu_0_clock" {900 if rank == 2 else 1800} clock gpu 0' for rank in range(4))
    counters = f"rank at_ns name value series owner number\n{clocks}"
    ranks = {0: Rank(), 1: Rank(), 2: Rank(compute=60), 3: Rank()}
    assert named(job(ranks, counters=counters)) == [("rank", 2, "frequency")]
    # A lower clock does not explain input that is late.
    assert named(job(ranks | {2: Rank(load=25)}, counters=counters)) == [("rank", 2, "input")]


def test_a_rank_without_device_work_is_unknown_and_not_slow() -> None:
    trace = job({0: Rank(), 1: Rank(compute=60), 2: Rank()})
    kernels = trace.spans.collect()
    lost = kernels.filter(~((kernels["rank"] == 2) & kernels["kind"].cast(str).is_in(["kernel", "communication"])))
    assert named(trace.with_tables(spans=lost)) == [("rank", 1, "compute")]


def test_a_slow_link_is_the_networks() -> None:
    links = "rank step src dst transport bytes dur_ns\n" + "\n".join(
        f"{rank} {step} {rank} {(rank + 1) % 4} RDMA 1000000 {300_000 if rank == 2 else 100_000}" for rank in range(4) for step in range(5)
    )
    (row,) = job({rank: Rank() for rank in range(4)}, links=links).stragglers().to_dicts()
    assert (row["kind"], row["rank"], row["peer_rank"], row["cause"]) == ("link", 2, 3, "network")
    # 1 MB in 300 us instead of 100 us, in each of 5 steps.
    assert (row["excess_ns"], row["slow_steps"], row["evidence"]) == (200_000, 5, "3.33 GB/s, the median link 10.00 GB/s")


def test_the_slow_stage_of_a_pipeline_is_named_and_its_ranks_are_compared_with_each_other(tmp_path: Path) -> None:
    table = stepscope.open(pipeline_file.write(tmp_path, steps=(1, 2, 3, 4, 5)), cache=False).stragglers()
    # Rank 3 computes 92 ms of a step, rank 2 on the same stage 60 ms. Stage 1 computes 76 ms in the middle, stage 0 60 ms.
    # By replay each of them alone makes the ideal step of 107 ms one of 131 ms (see test_job_loss).
    columns = table.select("kind", "rank", "stage", "cause", "excess_ns", "loss_ns").rows()
    assert columns == [("rank", 3, 1, "compute", 32 * MS, 24 * MS), ("stage", None, 1, "compute", 16 * MS, 24 * MS)]


@pytest.mark.parametrize(("name", "stage"), [("SE", 1), ("ST", 3)])
def test_the_slow_stages_of_bytedances_traces_are_named(shared: Path, name: str, stage: int) -> None:
    table = stepscope.open(shared / "straggler" / f"trace-{name}.parquet", cache=False).stragglers()
    assert table.select("kind", "stage", "cause").rows() == [("stage", stage, "compute")]


def test_a_rank_that_all_others_wait_for_is_the_first_sentence_of_the_run_and_of_each_rank() -> None:
    # Three ranks wait 20 ms of each step of 100 ms in their transfers, which is exposed communication of theirs, caused by rank 2.
    trace = job({0: Rank(), 1: Rank(), 2: Rank(compute=60), 3: Rank()})
    sentence = "Rank 2 needs 20.0 ms more than its peers in 10 of 10 steps: more computation. The job loses 20.0 ms per step, 20.0 %."
    first = trace.verdict(topic="overview").group_by("rank", maintain_order=True).first()
    assert first.select("rank", "code", "text").rows() == [(rank, "straggler-rank", sentence) for rank in (None, 0, 1, 2, 3)]
    assert trace.analyse("verdict", topic="overview", rank=0)["text"][0] == sentence  # as the page of rank 0 asks
    assert "in 5 of 5 steps" in trace.analyse("verdict", topic="overview", rank=0, steps=(0, 4))["text"][0]


@pytest.mark.parametrize("slow", [Rank(), Rank(compute=44)], ids=["even", "4 %"])
def test_ranks_that_lose_little_are_not_the_first_sentence(slow: Rank) -> None:
    assert "straggler-rank" not in job({0: Rank(), 1: Rank(), 2: slow, 3: Rank()}).verdict(topic="overview")["code"]
