"""Does the advice name the fault that was planted, and does it predict what the repair gains?

Each script in `cases/` has one planted fault, and is its own repaired twin with FIXED=1. Record the faulty one, ask for its advice, and
compare with the gain that the twin measures, unprofiled. Scripts in `cases/healthy/` have no fault: a high finding there is an error.

    python benchmarks/diagnosis/run.py                        # everything; the table is written to RESULTS.md
    python benchmarks/diagnosis/run.py --only 'jax/*'         # some cases
    python benchmarks/diagnosis/run.py --again                # judge the kept recordings and measurements with the rules of today
"""

import argparse
import ast
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
CASES, RESULTS = HERE / "cases", HERE / "RESULTS.md"
DATA = HERE.parent / "data" / "diagnosis"
STEPS, RECORDED = 20, "8:15"
_PATIENCE_S = 240
_SHARE_TOLERANCE = 0.2


class Case(NamedTuple):
    """A script, and what is expected of the advice about it."""

    name: str  # folder/file
    path: Path
    about: str
    rules: tuple[str, ...]  # any of these names the fault
    culprit: tuple[str, ...]  # any of these in the culprit, the source or the title
    flags: tuple[str, ...]  # of the recording
    has_gain: bool  # else the fault costs memory, not time
    clock: str  # cpu: time of the processor, which other programs hardly disturb; wall: the script waits for something

    @property
    def folder(self) -> Path:
        return DATA / self.name.replace("/", "-")

    @property
    def is_healthy(self) -> bool:
        return self.name.startswith("healthy/")

    @property
    def world(self) -> int:
        return 2 if "ddp" in self.name else 1

    @property
    def forks(self) -> bool:
        return not any(word in self.name for word in ("jax", "mindspore", "cuda"))


def load_cases(pattern: str = "*") -> list[Case]:
    """The cases by name. A script is parsed, not run."""
    files = sorted(CASES.glob("*/*.py"))
    return [case for file in files if fnmatch.fnmatch((case := _case(file)).name, pattern)]


def _case(file: Path) -> Case:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in _CONSTANTS
    }
    name = f"{file.parent.name}/{file.stem}"
    about = (ast.get_docstring(tree) or "").replace("\n", " ")
    return Case(name, file, about, *(constants.get(key, default) for key, default in _CONSTANTS.items()))


_CONSTANTS: dict[str, Any] = {"RULES": (), "CULPRIT": (), "RECORD": (), "GAIN": True, "CLOCK": "cpu"}


def record(case: Case) -> str | None:
    """Record the faulty script in its folder. Returns why that failed."""
    target = case.folder / "recording"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [sys.executable, "-m", "stepscope", "run", "--steps", RECORDED, *case.flags, "--out", str(target)]
    if case.world > 1:
        command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.world)]
    variables = {"PYTHONPATH": str(HERE), "STEPS": str(STEPS), "FIXED": "0", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, str(case.path)],
            cwd=target,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not recorded within {_PATIENCE_S} s"
    (case.folder / "log.txt").write_text(done.stdout + done.stderr)
    lines = done.stderr.strip().splitlines() or [""]
    return None if done.returncode == 0 else f"exit code {done.returncode}: {lines[-1][:200]}"


class Twins:
    """The process that measures."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "twins.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, case: Case) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"script": str(case.path), "world": case.world, "forks": case.forks}) + "\n")
        self._process.stdin.flush()
        measured: dict[str, Any] = json.loads(self._process.stdout.readline())
        (case.folder / "measured.json").write_text(json.dumps(measured))
        return measured

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Judgement(NamedTuple):
    """What the advice said about a case, beside what is true."""

    case: Case
    error: str = ""
    findings: tuple[dict[str, Any], ...] = ()
    measured: dict[str, Any] | None = None

    @property
    def position(self) -> int | None:
        """The place of the planted fault among the findings, from 1."""
        return next((place for place, row in enumerate(self.findings, 1) if row["rule"] in self.case.rules and self.names(row)), None)

    @property
    def is_first(self) -> bool:
        """Is the planted fault the first finding? For faults of memory, which have no gain, the first one without a gain."""
        ranked = [row for row in self.findings if self.case.has_gain or row["status"] == "statement"]
        return bool(ranked) and ranked[0]["rule"] in self.case.rules

    @property
    def is_first_and_named(self) -> bool:
        return self.is_first and self.is_named

    @property
    def is_named(self) -> bool:
        return any(self.names(row) for row in self.findings if row["rule"] in self.case.rules)

    @property
    def is_alarmed(self) -> bool:
        return any(row["severity"] == "high" for row in self.findings)

    def names(self, row: dict[str, Any]) -> bool:
        text = " ".join(str(row[key] or "") for key in ("culprit", "source", "title")).lower()
        return any(word.lower() in text for word in self.case.culprit)

    @property
    def predicted(self) -> dict[str, Any] | None:
        """The finding about the planted fault: the first with one of its rules."""
        return next((row for row in self.findings if row["rule"] in self.case.rules), None)

    @property
    def measured_ns(self) -> float | None:
        return None if not self.measured or "error" in self.measured else self.measured["faulty_ns"] - self.measured["fixed_ns"]

    @property
    def measured_share(self) -> float | None:
        return None if self.measured_ns is None or not self.measured else self.measured_ns / self.measured["faulty_ns"]

    @property
    def share_error(self) -> float | None:
        """How far the predicted share of the step is from the measured one, relative to it."""
        row, share = self.predicted, self.measured_share
        return None if row is None or not row["gain_share"] or not share or share <= 0 else row["gain_share"] / share - 1

    @property
    def time_error(self) -> float | None:
        row, gain = self.predicted, self.measured_ns
        return None if row is None or not row["gain_ns"] or not gain or gain <= 0 else row["gain_ns"] / gain - 1


def judge(case: Case, error: str | None = None) -> Judgement:
    """Ask for the advice about the recording of a case."""
    import stepscope
    from stepscope.errors import StepscopeError

    if error:
        return Judgement(case, error)
    file = case.folder / "measured.json"
    measured = json.loads(file.read_text()) if file.exists() else None
    if measured and "error" not in measured:
        measured = measured["wall" if case.world > 1 else case.clock]
    try:
        advice = stepscope.open(case.folder / "recording").analyse("advice")
    except StepscopeError as failure:
        return Judgement(case, str(failure).replace(f"{case.folder}/", ""), measured=measured)
    rows = advice.sort("position").to_dicts()
    (case.folder / "advice.json").write_text(json.dumps(rows, default=str, indent=1))
    return Judgement(case, findings=tuple(row for row in rows if row["status"] in ("finding", "statement")), measured=measured)


def report(judgements: list[Judgement], when: datetime) -> str:
    """The page: totals beside their targets, then a row per case."""
    faults, healthy = [item for item in judgements if not item.case.is_healthy], [item for item in judgements if item.case.is_healthy]
    lines = [
        "# Diagnosis bench",
        "",
        f"{when:%Y-%m-%d %H:%M}, {os.cpu_count()} CPUs, load {os.getloadavg()[1]:.1f}. Written by `python benchmarks/diagnosis/run.py`.",
        "",
        *_totals(faults, healthy),
        "",
        "- **first**: the planted fault is the first finding. **named**: the finding about it names the operator, module, line or rank.",
        "- **predicted**: gain per step in the advice.",
        "- **measured**: difference of the shortest blocks of both twins, unprofiled; in brackets its quartiles over rounds. In CPU time;",
        "  by the clock (marked *) where the script waits for storage, workers or ranks.",
        "- **error**: predicted share of the step relative to the measured one.",
        "",
        "| case | planted | first finding | first | named | predicted | measured | error |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(item) for item in faults),
        "",
        "## Healthy scripts",
        "",
        "| case | script | first finding | high findings |",
        "|---|---|---|---|",
        *(_healthy_row(item) for item in healthy),
    ]
    return "\n".join(lines) + "\n"


def _totals(faults: list[Judgement], healthy: list[Judgement]) -> Iterator[str]:
    judged = [item for item in faults if not item.error]
    errors = [abs(item.share_error) for item in judged if item.share_error is not None]
    times = [abs(item.time_error) for item in judged if item.time_error is not None]
    yield f"- first finding: {_of(sum(item.is_first for item in judged), len(judged))} (target: 90 %)"
    yield f"- first finding, culprit named: {_of(sum(item.is_first_and_named for item in judged), len(judged))}"
    yield f"- culprit named: {_of(sum(item.is_named for item in judged), len(judged))}"
    if errors:
        share, time = _percent(statistics.median(errors)), _percent(statistics.median(times))
        yield f"- gain: median error {share} of the measured share (target: 20 %), over the {len(errors)} cases with both"
        yield f"- gain in ms: median error {time} of the measured time"
    yield f"- healthy scripts with a high finding: {_of(sum(item.is_alarmed for item in healthy), len(healthy))} (target: none)"
    if failed := [item for item in (*faults, *healthy) if item.error]:
        yield f"- not judged: {', '.join(f'{item.case.name} ({item.error})' for item in failed)}"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({_percent(part / whole)})" if whole else "")


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _row(item: Judgement) -> str:
    case, row = item.case, item.predicted
    predicted = "" if row is None or row["gain_ns"] is None else f"{row['gain_ns'] / 1e6:.2f} ms, {_percent(row['gain_share'] or 0)}"
    error = "" if item.share_error is None else f"{item.share_error * 100:+.0f} %"
    place = "yes" if item.is_first else "" if item.position is None else f"{item.position}."
    return _cells(case.name, case.about, _finding(item), place, "yes" if item.is_named else "", predicted, _measured(item), error)


def _measured(item: Judgement) -> str:
    if item.measured_ns is None or item.measured is None:
        return item.measured["error"] if item.measured else ""
    low, high = item.measured["gain_quartiles_ns"]
    mark = "*" if item.case.world > 1 or item.case.clock == "wall" else ""
    return f"{item.measured_ns / 1e6:.2f} ms, {_percent(item.measured_share or 0)} ({low / 1e6:.2f} to {high / 1e6:.2f}){mark}"


def _finding(item: Judgement) -> str:
    if item.error:
        return item.error
    if not item.findings:
        return "none"
    row = item.findings[0]
    return f"`{row['rule']}` {row['title']}"


def _healthy_row(item: Judgement) -> str:
    high = ", ".join(f"`{row['rule']}`" for row in item.findings if row["severity"] == "high")
    return _cells(item.case.name, item.case.about, _finding(item), high)


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="Cases whose folder/name matches. Default: all.")
    parser.add_argument("--again", action="store_true", help="Use the kept recordings and measurements. Default: make new ones.")
    parser.add_argument("--missing", action="store_true", help="Record and measure only what is not kept yet. Default: everything.")
    parser.add_argument("--no-measure", action="store_true", help="Do not measure the twins. Default: measure.")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="Write the table here. Default: RESULTS.md.")
    args = parser.parse_args(list(words) if words is not None else None)
    cases = [case for case in load_cases(args.only) if args.again or case.path.parent.name != "cuda" or _has_cuda()]
    if args.again:
        cases = [case for case in cases if case.folder.exists()]
    twins = None if args.again or args.no_measure else Twins()
    errors: dict[str, str | None] = {}
    for case in cases:
        if not args.again and not (args.missing and list((case.folder / "recording").rglob("run.json"))):
            errors[case.name] = record(case)
        kept = args.missing and (case.folder / "measured.json").exists()
        if twins is not None and not case.is_healthy and case.has_gain and not errors.get(case.name) and not kept:
            twins.measure(case)
        print(case.name, errors.get(case.name) or "", flush=True)
    if twins is not None:
        twins.close()
    judgements = [judge(case, errors.get(case.name)) for case in cases]
    text = report(judgements, datetime.now())
    args.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def _has_cuda() -> bool:
    check = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
