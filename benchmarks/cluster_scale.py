"""How fast are the ranks of a job summarized, with how much memory, and does the time grow linearly?

    python benchmarks/cluster_scale.py                              # 1,024 ranks x 100,000 spans, Ray beside the pool, 64 to 4,096 ranks
    python benchmarks/cluster_scale.py --ranks 64 --sizes 64 128 256     # a short run
    python benchmarks/cluster_scale.py --no-ray --folder /data/ranks     # keep the run folders, and use them again

The ranks are run folders from one template with shifted times, jitter and slow ranks (`rank_folders.py`). CPU time is that of the command
with all processes that it starts; memory is the largest sum of their resident memory. For the slope, ranks have fewer spans (--small).
The table of all ranks is `stragglers`, `overview` and `cluster_steps` of the summary, in a fresh process, from the command to the end.
Exits with 1 if a limit is missed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import Cost, cost

from rank_folders import SLOW_EVERY, write_ranks

LEAST_SPANS, MOST_BYTES, MOST_RAY, MOST_TABLE_S = 8e6, 1.5e9, 1.25, 2.0
WORKERS = 2
_TABLES = """
import sys, time
start = time.perf_counter()
import stepscope
summary = stepscope.open(sys.argv[1])
slow = summary.stragglers()
summary.overview()
summary.cluster_steps()
print(slow.filter(slow["kind"] == "rank").height, time.perf_counter() - start)
"""
_PERIOD_S = 0.2


class Row(NamedTuple):
    what: str
    measured: str
    limit: str
    met: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 256, 1024, 4096], help="numbers of ranks for the slope")
    parser.add_argument("--small", type=int, default=2_000, help="spans of a rank for the slope")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--folder", type=Path, help="run folders that exist are used again. Default: a temporary folder")
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="cluster_scale.") as temporary:
        folder = options.folder or Path(temporary)
        rows = [*full_size(folder, options.ranks, options.spans, with_ray=not options.no_ray), *sizes(folder, options.sizes, options.small)]
    print("\n| what | measured | limit |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {row.what} | {row.measured} | {row.limit}{'' if not row.limit else ': met' if row.met else ': **missed**'} |")
    return 0 if all(row.met for row in rows) else 1


def full_size(folder: Path, ranks: int, spans: int, *, with_ray: bool) -> list[Row]:
    job = ranks_at(folder, ranks, spans)
    pool = summarized(job, folder / "summary", "pool")
    rate = ranks * spans / pool.cpu_s
    name = f"{ranks:,} ranks x {spans:,} spans"
    rows = [
        Row(f"{name}: wall time", f"{pool.wall_s:.1f} s", "", True),
        Row(f"{name}: CPU time", f"{pool.cpu_s:.1f} s", "", True),
        Row("spans per CPU second", f"{rate / 1e6:.2f} million", f"{LEAST_SPANS / 1e6:.0f} million", rate >= LEAST_SPANS),
        Row("resident memory of all processes, at most", f"{pool.rss_bytes / 1e9:.2f} GB", "1.5 GB", pool.rss_bytes <= MOST_BYTES),
        Row("proportional memory of all processes, at most", f"{pool.pss_bytes / 1e9:.2f} GB", "", True),
        Row("size of the summary", f"{size(folder / 'summary') / 1e6:.1f} MB of {size(job) / 1e6:.0f} MB", "", True),
        table_row(folder / "summary", ranks),
    ]
    if with_ray:
        ray = summarized(job, folder / "ray", "ray")
        same = all((folder / "ray" / file.name).read_bytes() == file.read_bytes() for file in (folder / "summary").iterdir())
        ratio = ray.cpu_s / pool.cpu_s
        rows.append(Row("Ray: CPU time, of that of the pool", f"{ratio:.2f} x ({ray.cpu_s:.1f} s)", f"{MOST_RAY} x", ratio <= MOST_RAY))
        rows.append(Row("Ray: the same files", "yes" if same else "no", "yes", same))
    return rows


def sizes(folder: Path, numbers: list[int], spans: int) -> list[Row]:
    """CPU time by number of ranks: the slope of its logarithm is 1 if it is linear."""
    rows, times = [], []
    for ranks in numbers:
        summary = folder / f"summary-{ranks}"
        measured = summarized(ranks_at(folder, ranks, spans), summary, "pool")
        times.append(measured.cpu_s)
        rows.append(
            Row(f"{ranks:,} ranks x {spans:,} spans: CPU time", f"{measured.cpu_s:.1f} s, {measured.rss_bytes / 1e9:.2f} GB", "", True)
        )
    if len(numbers) > 1:
        slope = float(np.polyfit(np.log(numbers), np.log(times), 1)[0])
        rows.append(Row(f"slope from {numbers[0]:,} to {numbers[-1]:,} ranks", f"{slope:.2f}", "at most 1.1", slope <= 1.1))
        rows.append(table_row(folder / f"summary-{numbers[-1]}", numbers[-1]))
    return rows


def table_row(summary: Path, ranks: int) -> Row:
    runs = [cost([sys.executable, "-c", _TABLES, str(summary)]) for _ in range(3)]
    found = runs[0].output.split()[0]
    wall, cpu = min(float(run.output.split()[1]) for run in runs), min(run.cpu_s for run in runs)
    right = int(found) == ranks // SLOW_EVERY
    text = f"{wall:.2f} s, {cpu:.2f} s of CPU; {found} slow ranks of {ranks // SLOW_EVERY}"
    return Row(f"tables of all {ranks:,} ranks", text, f"{MOST_TABLE_S:.0f} s", wall <= MOST_TABLE_S and right)


def ranks_at(folder: Path, ranks: int, spans: int) -> Path:
    job = folder / f"{ranks}x{spans}"
    if not (job / f"rank{ranks - 1}" / "run.json").exists():
        start = time.perf_counter()
        write_ranks(job, ranks, spans)
        print(f"wrote {job.name} in {time.perf_counter() - start:.0f} s", flush=True)
    return job


def summarized(job: Path, out: Path, engine: str) -> Cost:
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "stepscope", "cluster", "summarize", str(job), "-o", str(out), "--workers", str(WORKERS)]
    done, times = threading.Event(), dict[int, float]()
    sampler = threading.Thread(target=sample_cpu, args=(done, times))
    sampler.start()
    measured = cost([*command, "--engine", engine])
    done.set()
    sampler.join()
    # Nobody waits for the workers of Ray, so the system does not count them: their times are sampled.
    measured = measured._replace(cpu_s=max(measured.cpu_s, sum(times.values())))
    assert measured.code == 0, measured.error
    print(f"{job.name} {engine}: {measured.wall_s:.1f} s, {measured.cpu_s:.1f} s of CPU, {measured.rss_bytes / 1e9:.2f} GB", flush=True)
    return measured


def sample_cpu(done: threading.Event, times: dict[int, float]) -> None:
    """The CPU time of every process that this one starts from now on, also through others, by its id."""
    tick, known = os.sysconf("SC_CLK_TCK"), {os.getpid()}
    while not done.wait(_PERIOD_S):
        for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            number = int(stat.parent.name)
            if int(fields[1]) in known or number in times:
                known.add(number)
                times[number] = (int(fields[11]) + int(fields[12])) / tick


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    sys.exit(main())
