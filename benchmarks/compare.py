"""How often `stepscope compare` is right: the same training recorded again, and one with a planted slowdown.

    compare.py [--runs N] [--steps N] [--slowdown SHARE] [--folder FOLDER] [--keep]

Records N runs of compare_train.py as it is and N with more numbers to sort, in turns, compares pairs of single runs, and pairs of sets of
three runs. Needs PyTorch. `--folder` keeps the recordings, or uses those that are there. README.md says what is measured.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import keep, table

import stepscope
from stepscope.comparison.compare import Comparison, side_of
from stepscope.comparison.gate import PASS, SLOWER, check, slowdown_limit
from stepscope.model.trace import Trace

HERE = Path(__file__).parent
_PAIRS, _SET = 20, 3
_LIMIT = "2%"  # of the gate
_TRACELENS = HERE.parent.parent / "shared" / "data" / "tracelens"


class Outcome(NamedTuple):
    """What one comparison says."""

    verdict: str  # slower, faster, same, noisy
    gate: int
    change: float
    visible: float
    right_operator: bool  # the operator with the largest certain change is the planted one
    any_operator: bool  # an operator changed for certain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        traces = {kind: _traces(folder, kind, args.runs, args.steps) for kind in ("base", "slow")}
        report = "\n\n".join(["# Comparison", _report(traces), _devices()])
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


def _traces(folder: Path, kind: str, runs: int, steps: int) -> list[Trace]:
    if not (folder / "more.json").exists():
        _record(folder, runs, steps)
    return [stepscope.open(path) for path in sorted(folder.glob(f"{kind}*"))]


def _record(folder: Path, runs: int, steps: int) -> None:
    """Both variants in turns: what else the machine does meets both."""
    script = [sys.executable, str(HERE / "compare_train.py")]
    if not list(folder.glob("slow*")):
        more = subprocess.run([*script, "--calibrate"], check=True, capture_output=True, text=True).stdout.strip()
        for number, (kind, count) in itertools.product(range(1, runs + 1), (("base", "0"), ("slow", more))):
            command = [*script, str(folder / f"{kind}{number:02}"), str(steps), count]
            subprocess.run(command, check=True, capture_output=True)
            print(f"recorded {kind}{number:02}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        (folder / "more.json").write_text(json.dumps({"more": int(more)}))


def _report(traces: dict[str, list[Trace]]) -> str:
    base, slow = traces["base"], traces["slow"]
    shuffle = random.Random(1)
    every = [_compared([a], [b]) for a, b in itertools.combinations(base, 2)]
    wrong = sum(one.verdict not in ("same", "noisy") for one in every)
    same_pairs = shuffle.sample(list(itertools.combinations(base, 2)) + list(itertools.combinations(slow, 2)), _PAIRS)
    slow_pairs = shuffle.sample(list(itertools.product(base, slow)), _PAIRS)
    rows = [
        _row("same, one run each", [_compared([a], [b]) for a, b in same_pairs], planted=False),
        _row("planted, one run each", [_compared([a], [b]) for a, b in slow_pairs], planted=True),
    ]
    sets = [shuffle.sample(shuffle.choice([base, slow]), 2 * _SET) for _ in range(_PAIRS)]
    rows.append(_row(f"same, {_SET} runs each", [_compared(one[:_SET], one[_SET:]) for one in sets], planted=False))
    pairs = [(shuffle.sample(base, _SET), shuffle.sample(slow, _SET)) for _ in range(_PAIRS)]
    rows.append(_row(f"planted, {_SET} runs each", [_compared(a, b) for a, b in pairs], planted=True))
    everything = _compared(base, slow)
    head = ["pairs", "verdict right", "operator right", "gate right", "cannot tell", "change, median", "visible, median"]
    medians = sorted(_median_step(trace) for trace in base)
    text = table(head, rows)
    first = "yes" if everything.right_operator else "no"
    return (
        f"{text}\n\nOf all {len(every)} pairs of single runs without a slowdown, {wrong} are said to differ. "
        f"All {len(base)} runs against all {len(slow)}: {everything.verdict}, {everything.change * 100:+.1f} %, "
        f"changes below {everything.visible * 100:.1f} % not visible, planted operator first: {first}. "
        f"Median steps of the runs without a slowdown: {medians[0] / 1e6:.3f} to {medians[-1] / 1e6:.3f} ms."
    )


def _compared(a: list[Trace], b: list[Trace]) -> Outcome:
    comparison = Comparison(side_of("A", a), side_of("B", b))
    change = comparison.change
    assert change is not None and change.visible is not None
    code = str(comparison.verdict["code"][0]).removeprefix("compare-").removesuffix("-paced")
    changed = comparison.operators().filter(state="changed")
    right = changed.height > 0 and changed["name"][0] == "aten::sort" and changed["change_ns"][0] > 0
    gate = check(comparison, slowdown_limit(_LIMIT)).code
    return Outcome(code, gate, change.share, change.visible, right, changed.height > 0)


def _row(name: str, outcomes: list[Outcome], *, planted: bool) -> list[str]:
    count = len(outcomes)
    verdicts = sum(one.verdict == "slower" if planted else one.verdict in ("same", "noisy") for one in outcomes)
    operators = sum(one.right_operator if planted else not one.any_operator for one in outcomes)
    gates = sum(one.gate == (SLOWER if planted else PASS) for one in outcomes)
    unknown = sum(one.verdict == "noisy" for one in outcomes)

    def middle(values: list[float]) -> str:
        return f"{sorted(values)[len(values) // 2] * 100:.1f} %"

    texts = [f"{number} of {count}" for number in (verdicts, operators, gates, unknown)]
    return [name, *texts, middle([one.change for one in outcomes]), middle([one.visible for one in outcomes])]


def _median_step(trace: Trace) -> float:
    value: Any = trace.overview()["step_ns"].item()
    return float(value)


def _devices() -> str:
    """The share of the time of the same model on two chips that is matched by operator."""
    rows = []
    for path in sorted((_TRACELENS / "h100").glob("*.json.gz")):
        summary = stepscope.compare(path, _TRACELENS / "mi300" / path.name).summary
        rows.append([path.name.split("__")[0], f"{summary['matched_share'].item() * 100:.1f} %"])
    return (
        table(["H100 against MI300", "time matched by operator"], rows) if rows else "(no recordings of H100 and MI300 next to the project)"
    )


if __name__ == "__main__":
    main()
