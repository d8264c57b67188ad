"""How far is a replay of unchanged durations from the measured steps? One line per recording and rank, then the median.

    python benchmarks/replay_error.py                       # the samples of the tests, and ../shared/data where it is present
    python benchmarks/replay_error.py PATH... --limit 0.03  # these; the exit code is 1 if the median is above the limit

Every recording with complete steps counts: GPU, NPU and CPU. The error is that of the median step, the largest one that of a single step.
The steps are those of the replay: from the start on the host, or the end of the step before, to the end of all work launched in the step.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import stepscope
from stepscope.analyses.shared.replays.graph import build
from stepscope.analyses.shared.replays.replay import replay
from stepscope.errors import StepscopeError

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "tests" / "samples"
SHARED = ROOT.parent / "shared" / "data"
# Recordings below the shared data; folders of several ranks are opened as one run.
_SHARED = (
    *("torch_h200/*.json.gz", "torch_public/*.json.gz", "torch_public/two_ranks", "tracelens/*/*.json.gz", "nsys/*.sqlite"),
    *("mindspore_cpu/*", "ascend/torch_npu/*/level*", "ascend/prof_2023/*", "ascend/cluster_output/*", "ascend/real_prof/*"),
    *("ascend/legacy/raw/*", "mindinsight/*"),
)
_SAMPLES = ("*/*/*",)


def recordings(paths: list[Path]) -> Iterator[Path]:
    if paths:
        yield from paths
        return
    for root, patterns in ((SAMPLES, _SAMPLES), (SHARED, _SHARED)):
        for pattern in patterns:
            yield from sorted(root.glob(pattern))


def errors(path: Path) -> Iterator[tuple[int, int, float, float, float]]:
    """rank, steps, measured median in ms, error of the median, largest error of a step."""
    graph = build(stepscope.open(path))
    measured, replayed = graph.step_times(graph.end), graph.step_times(replay(graph).ends)
    ranks = graph.steps["rank"].to_numpy()
    for rank in np.unique(ranks):
        a, b = measured[ranks == rank], replayed[ranks == rank]
        if (a <= 0).all():
            yield int(rank), len(a), 0.0, math.inf, math.inf
            continue
        a, b = a[a > 0], b[a > 0]
        middle = float(np.median(a))
        yield int(rank), len(a), middle / 1e6, float(np.median(b)) / middle - 1, float(np.max(np.abs(b / a - 1)))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("paths", nargs="*", type=Path)
    arguments.add_argument("--limit", type=float, default=0.03)
    given = arguments.parse_args()
    found = []
    print(f"{'recording':<64} {'rank':>4} {'steps':>5} {'step':>11} {'error':>8} {'largest':>8}")
    for path in recordings(given.paths):
        try:
            rows = list(errors(path))
        except StepscopeError:
            continue  # not a recording
        name = next((str(path.relative_to(root)) for root in (ROOT, SHARED.parent) if path.is_relative_to(root)), str(path))
        for rank, steps, step_ms, error, largest in rows:
            found.append(abs(error))
            print(f"{name[-64:]:<64} {rank:>4} {steps:>5} {step_ms:>8.3f} ms {error:>8.2%} {largest:>8.2%}", flush=True)
    if not found:
        print("no recording with complete steps")
        return 1
    middle = statistics.median(found)
    print(f"median error {middle:.2%} over {len(found)} ranks; {sum(error <= given.limit for error in found)} within {given.limit:.0%}")
    return int(middle > given.limit)


if __name__ == "__main__":
    sys.exit(main())
