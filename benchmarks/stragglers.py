"""Slowdown by stragglers: our replay against the published results of StragglerAnalysis (ByteDance).

    python benchmarks/stragglers.py [FOLDER]

FOLDER has trace-NAME.parquet, meta-NAME.yaml, result-NAME.json, mw-NAME.json and ms-NAME.json; default: ../shared/data/straggler. Prints
for each trace the published figure and ours: S = original / ideal step time, M_W, M_S, and S by operation type and stage. Exits with 1 if
S is off by more than 2 %, or M_W or M_S by more than 0.05.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import stepscope

SLOWDOWN_ERROR, SHARE_ERROR = 0.02, 0.05
TYPES = {"forward-pp-comm": "forward-transfer", "backward-pp-comm": "backward-transfer"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[2] / "shared" / "data" / "straggler"
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    missed = 0
    print(f"{'trace':8} {'figure':44} {'published':>11} {'ours':>11} {'off':>9}")
    for path in sorted(parser.parse_args().folder.glob("trace-*.parquet")):
        name = path.stem.removeprefix("trace-")
        begun = time.process_time()
        trace = stepscope.open(path, cache=False)
        loss = trace.job_loss()
        spent = time.process_time() - begun
        for figure, published, ours, limit in figures(name, path.parent, loss):
            off = abs(ours / published - 1) if limit == SLOWDOWN_ERROR else abs(ours - published)
            missed += off > limit
            print(f"{name:8} {figure:44} {published:11.4f} {ours:11.4f} {off:9.5f}{'  MISSED' if off > limit else ''}")
        print(f"{name:8} {trace.spans.select(pl.len()).collect().item():,} operations, {spent:.2f} s of CPU time; {named(trace)}")
    return 1 if missed else 0


def figures(name: str, folder: Path, loss: pl.DataFrame) -> Iterator[tuple[str, float, float, float]]:
    """Name of the figure, the published value, ours, and how far it may be off: a share of a slowdown, an amount of M_W and M_S."""
    result, workers, stages = (read(folder / f"{kind}-{name}.json") for kind in ("result", "mw", "ms"))
    whole = rows(loss, "all")
    yield "original step, s", workers["tori"], whole["all"]["step_ns"] / 1e9, SLOWDOWN_ERROR
    yield "ideal step, s", workers["tideal"], (whole["all"]["step_ns"] - whole["all"]["loss_ns"]) / 1e9, SLOWDOWN_ERROR
    yield "S", result["blocking_slowdown"], whole["all"]["slowdown"], SLOWDOWN_ERROR
    yield "M_W", workers["Mw"], next(iter(rows(loss, "slowest workers").values()))["explained"], SHARE_ERROR
    yield "M_S", stages["Ms"], list(rows(loss, "stage").values())[-1]["explained"], SHARE_ERROR
    types, of_stage = rows(loss, "operator_type"), rows(loss, "stage")
    for operation, slowdown in (result["blocking_decompose_by_optype"] or {}).items():
        yield f"S of {operation}", slowdown, types[TYPES.get(operation, operation)]["slowdown"], SLOWDOWN_ERROR
    for stage, slowdown in sorted((result["blocking_decompose_by_stage"] or {}).items()):
        yield f"S of stage {stage}", slowdown, of_stage[f"stage {stage}"]["slowdown"], SLOWDOWN_ERROR


def rows(loss: pl.DataFrame, dimension: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in loss.filter(dimension=dimension).iter_rows(named=True)}


def named(trace: stepscope.Trace) -> str:
    """The slow ranks and stages."""
    found = trace.stragglers().select("kind", "rank", "stage", "cause").iter_rows()
    return "; ".join(f"{kind} {stage if kind == 'stage' else rank} ({cause})" for kind, rank, stage, cause in found) or "no straggler"


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


if __name__ == "__main__":
    sys.exit(main())
