"""Are slow ranks found, with the right cause? Simulated jobs of 64 to 4,096 ranks, and real ones with an injected slow rank.

    python benchmarks/straggler_bench.py                     # simulated: prints precision and recall per size, and of all
    python benchmarks/straggler_bench.py --real 10           # also 10 recordings per cause of 2 and of 4 processes of PyTorch over gloo
    python benchmarks/straggler_bench.py --sizes 64 --seeds 20

A simulated job has 0 to 5 % slow ranks and slow links: compute, frequency, input, host, garbage collection and network, 8 to 60 % of a
step, in all steps or in some. Ranks differ by 0.5 %, steps by 2 % with sudden delays of up to half a step, hosts by 50 us in their
clocks. A rank counts as found if `stragglers` names it with the right cause. Exits with 1 below 0.99, or with fewer than 9 of 10
real jobs right.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import stepscope
from stepscope.model.trace import Meta, Trace, complete

CAUSES = ("compute", "frequency", "input", "host", "garbage_collection", "network")
REAL_CAUSES = ("compute", "input", "host", "garbage_collection")
STEPS, HOST_RANKS = 24, 8
COMPUTE, INPUT, HOST, TRANSIT, LINK = 80e6, 4e6, 6e6, 8e6, 2e6  # ns per step
LINK_BYTES = 64 << 20
LIMIT = 0.99
JOB = Path(__file__).parent / "slow_rank_job.py"


class Injected(NamedTuple):
    kind: str  # rank, link
    rank: int
    cause: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 256, 1024, 4096], metavar="N")
    parser.add_argument("--seeds", type=int, default=0, help="jobs per size and share. Default: 2,048 divided by the size, 1 to 8")
    parser.add_argument("--real", type=int, default=0, help="recordings per cause and size. Default: none")
    options = parser.parse_args()
    return max(simulated(options.sizes, options.seeds), real(options.real) if options.real else 0)


def simulated(sizes: list[int], seeds: int) -> int:
    every: Counter[str] = Counter()
    print(
        f"{'ranks':>6} {'slow':>5} {'jobs':>5} {'injected':>9} {'found':>6} {'false':>6} {'precision':>10} {'recall':>8} {'s per job':>10}"
    )
    for size in sizes:
        for share in (0.0, 0.01, 0.02, 0.05):
            counts: Counter[str] = Counter()
            jobs, begun = seeds or max(1, min(8, 2048 // size)), time.process_time()
            for seed in range(jobs):
                trace, injected = simulate(size, share, seed)
                counts += score(trace, injected)
            print_counts(size, share, jobs, counts, (time.process_time() - begun) / jobs)
            every += counts
    precision, recall = rates(every)
    print(f"all: {every['injected']:,} injected, precision {precision:.4f}, recall {recall:.4f}, wrong cause {every['wrong cause']:,}")
    for cause in CAUSES:
        print(f"    {cause:20} {every[f'found {cause}']:5,} of {every[f'injected {cause}']:5,}")
    return 0 if min(precision, recall) >= LIMIT else 1


def score(trace: Trace, injected: set[Injected]) -> Counter[str]:
    found = {Injected(*row) for row in trace.stragglers().select("kind", "rank", "cause").iter_rows()}
    named = {(one.kind, one.rank) for one in injected}
    counts = Counter({"injected": len(injected), "found": len(found & injected), "false": len(found - injected)})
    counts["wrong cause"] = sum((one.kind, one.rank) in named for one in found - injected)
    for cause in CAUSES:
        counts[f"injected {cause}"] = sum(one.cause == cause for one in injected)
        counts[f"found {cause}"] = sum(one.cause == cause for one in found & injected)
    return counts


def rates(counts: Counter[str]) -> tuple[float, float]:
    reported = counts["found"] + counts["false"]
    return (counts["found"] / reported if reported else 1.0), (counts["found"] / counts["injected"] if counts["injected"] else 1.0)


def print_counts(size: int, share: float, jobs: int, counts: Counter[str], seconds: float) -> None:
    precision, recall = rates(counts)
    figures = f"{counts['injected']:9,} {counts['found']:6,} {counts['false']:6,} {precision:10.4f} {recall:8.4f} {seconds:10.2f}"
    print(f"{size:6,} {share:5.0%} {jobs:5} {figures}")


Floats = NDArray[np.float64]


def simulate(size: int, share: float, seed: int) -> tuple[Trace, set[Injected]]:
    """A job whose ranks wait for the slowest in each step, and then pass data to the next rank; with what is slow in it."""
    random = np.random.default_rng([size, round(share * 1000), seed])
    shape = (size, STEPS)
    common = 1 + np.abs(random.normal(0, 0.03, STEPS)) + (random.random(STEPS) < 0.05)  # also steps that are slow on all ranks
    times = {
        name: usual * common * random.normal(1, 0.005, (size, 1)) * random.lognormal(0, 0.02, shape)
        for name, usual in (("compute", COMPUTE), ("input", INPUT), ("host", HOST))
    }
    times["garbage_collection"] = np.where(random.random(shape) < 0.1, random.exponential(1e6, shape), 0.0)
    sudden = random.random(shape) < 0.004
    times["host"] += np.where(sudden, random.uniform(0.05, 0.5, shape) * COMPUTE, 0.0)
    link = LINK * random.normal(1, 0.01, (size, 1)) * random.lognormal(0, 0.03, shape)
    clock = np.full(size, 1.8e9) * random.normal(1, 0.003, size)
    injected = set()
    for rank in random.choice(size, round(share * size), replace=False).tolist():
        cause = CAUSES[int(random.integers(len(CAUSES)))]
        often = 1.0 if random.random() < 0.7 else random.uniform(0.3, 0.6)
        when = random.random(STEPS) < often
        excess = random.uniform(0.08, 0.6)
        if cause == "network":
            link[rank] *= 1.5 + 4 * excess
        else:
            part = "compute" if cause == "frequency" else cause
            times[part][rank] += np.where(when, excess * (COMPUTE + INPUT + HOST + TRANSIT) * random.lognormal(0, 0.05, STEPS), 0.0)
            clock[rank] *= 1 / (1 + excess) if cause == "frequency" else 1.0
        injected.add(Injected("link" if cause == "network" else "rank", rank, cause))
    return build(times, link, clock, random.normal(0, 50e3, -(-size // HOST_RANKS))), injected


def build(times: dict[str, Floats], link: Floats, clock: Floats, skew: Floats) -> Trace:
    """The trace of the job: input, garbage collection and step markers on the host, kernels and transfers on streams."""
    size = len(clock)
    own = times["input"] + times["garbage_collection"] + times["host"] + times["compute"]
    meet = own.max(axis=0) + TRANSIT
    length = meet + link.max(axis=0) + 1e6
    offset = np.repeat(skew, HOST_RANKS)[:size, None]
    begin = 1e9 + (np.cumsum(length) - length)[None, :] + offset
    loaded, collected = begin + times["input"], begin + times["input"] + times["garbage_collection"]
    launched = collected + times["host"]
    arrived, after = launched + times["compute"], begin + meet + 1e5
    ahead = np.roll(link, 1, axis=0)  # of the link from the rank before
    spans = [
        rows("Step", "step", 0, begin, np.broadcast_to(length, begin.shape)),
        rows("DataLoader", "data", 1, begin, times["input"]),
        rows("GC", "other", 1, loaded, times["garbage_collection"], category="gc"),
        rows("matmul", "kernel", 2, launched, times["compute"]),
        rows("ncclDevKernel_AllReduce_Sum_f32", "communication", 2, arrived, begin + meet - arrived, args='{"Process Group Name": "0"}'),
        rows("ncclDevKernel_Send", "communication", 3, after, link, args=peers(size, "Dst Rank", 1)),
        rows(
            "ncclDevKernel_Recv", "communication", 4, np.roll(after - offset, 1, axis=0) + offset, ahead, args=peers(size, "Src Rank", -1)
        ),
    ]
    frame = pl.concat(spans, how="diagonal").filter(pl.col("dur_ns") > 0).sort("rank", "start_ns")
    frame = complete(frame.with_columns(track=pl.col("rank") * 8 + pl.col("track"))).with_columns(span=pl.int_range(pl.len()).over("rank"))
    frame = frame.with_columns(track=pl.col("track") - pl.col("rank") * 8, parent=pl.lit(None, pl.Int64))
    ranks = list(range(size))
    kinds = ("annotation", "thread", "stream", "stream", "stream")
    tracks = pl.concat(
        pl.DataFrame({"rank": ranks}).with_columns(
            track=pl.lit(track, pl.Int32), kind=pl.lit(kind), pid=pl.lit("1"), tid=pl.lit(str(max(track, 1))), group=pl.lit("job")
        )
        for track, kind in enumerate(kinds)
    ).with_columns(device=pl.when(pl.col("kind") == "stream").then(0))
    steps = frame.filter(kind="step").select("rank", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), how=pl.lit("marker"))
    counters = pl.DataFrame({"rank": ranks, "value": clock, "at_ns": (begin[:, 0] + 5e6).round().astype(np.int64)})
    counters = counters.with_columns(name=pl.lit("gpu 0 clock"), series=pl.lit("clock"), owner=pl.lit("gpu"), number=pl.lit(0))
    cast = {"rank": pl.Int32, "step": pl.Int32, "track": pl.Int32}
    tables = {"spans": frame.cast(cast), "tracks": tracks.cast({"rank": pl.Int32}), "steps": steps, "counters": counters}
    return Trace(tables, Meta(source="simulated", ranks=ranks, world_size=size))


def rows(name: str, kind: str, track: int, start: Floats, length: Floats, **columns: object) -> pl.DataFrame:
    size, count = start.shape
    frame = pl.DataFrame(
        {
            "rank": np.repeat(np.arange(size), count),
            "step": np.tile(np.arange(count), size),
            "start_ns": start.round().astype(np.int64).ravel(),
            "dur_ns": length.round().astype(np.int64).ravel(),
        }
    )
    texts = {key: pl.Series(key, np.repeat(value, count)) if isinstance(value, list) else pl.lit(value) for key, value in columns.items()}
    sized = {"bytes": pl.lit(LINK_BYTES)} if kind == "communication" else {}
    return frame.with_columns(name=pl.lit(name), kind=pl.lit(kind), track=pl.lit(track), **texts, **sized)


def peers(size: int, key: str, ahead: int) -> list[str]:
    return [f'{{"{key}": {(rank + ahead) % size}, "Process Group Name": "1"}}' for rank in range(size)]


def real(count: int) -> int:
    """Recordings of `stepscope run` with one slow rank: prints how many name exactly this rank with the right cause."""
    failed = 0
    for size in (2, 4):
        for cause in REAL_CAUSES:
            right = 0
            for number in range(count):
                slow = number % size
                with tempfile.TemporaryDirectory() as folder:
                    found = record(Path(folder), cause, slow, size)
                if found == [(slow, cause)]:
                    right += 1
                else:
                    print(f"    {size} processes, rank {slow} slow by {cause}: found {found}")
            print(f"{size} processes, {cause}: {right} of {count}")
            failed += right < 0.9 * count
    return 1 if failed else 0


def record(folder: Path, cause: str, slow: int, size: int) -> list[tuple[int, str | None]]:
    """The slow ranks in the recording of such a job, with their causes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), "--standalone"]
    job = [str(JOB), "--cause", cause, "--slow-rank", str(slow)]
    command = [sys.executable, "-m", "stepscope", "run", "--steps", "4:23", "--out", str(folder), *launch, *job]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    trace = stepscope.open(next(folder.iterdir()), cache=False)
    return [(rank, cause) for rank, cause in trace.stragglers().select("rank", "cause").iter_rows()]


if __name__ == "__main__":
    sys.exit(main())
