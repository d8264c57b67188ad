"""Exporting a raw Ascend directory: time and memory, beside what Ascend's own Python exporter was measured to take for the same one.

python benchmarks/msprof.py PROF_DIRECTORY...
"""

import argparse
import sys
import tempfile
from pathlib import Path

from measure import cost, keep

HERE = Path(__file__).parent
# Ascend's exporter, its two commands one after the other, on two cores: tasks -> wall s, CPU s, peak bytes of its largest process.
_REFERENCE = {200_000: (124.4 + 47.4, 157.4 + 47.8, 2263e6)}
_FASTER, _AGAIN_S = 50, 0.5
_CODE = """
import sys
from pathlib import Path
from stepscope.exporters.msprof import exporter as msprof
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof
msprof.export(prof.read(Path(sys.argv[1]), Options(scratch=Path(sys.argv[2]))), Path(sys.argv[2]) / "out")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path, metavar="PROF")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md")
    args = parser.parse_args()
    rows = [
        "| directory | raw MB | tasks | wall s | CPU s | peak MB | wall, reference | CPU | memory | target | summary again, s | target |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for path in args.directories:
        rows.append(_row(path, args.repeats))
    report = "\n".join(
        [
            "# Export of raw Ascend data",
            "",
            "Reading and all files; the best of the repeats. Reference: Ascend's exporter, as it was measured.",
            "",
            *rows,
            "",
        ]
    )
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


def _row(path: Path, repeats: int) -> str:
    raw = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    best, tasks = None, 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            found = cost([sys.executable, "-c", _CODE, str(path), folder])
            if found.code:
                sys.exit(found.error)
            tables = Path(folder, "out").glob("task_time_*.csv")
            tasks = sum(sum(1 for _ in table.open("rb")) - 1 for table in tables)
        best = found if best is None or found.wall_s < best.wall_s else best
    assert best is not None
    wall, cpu, memory = _REFERENCE.get(tasks, (None, None, None))
    beside = [
        f"{wall / best.wall_s:.0f} x" if wall else "",
        f"{cpu / best.cpu_s:.0f} x" if cpu else "",
        f"{memory / best.rss_bytes:.1f} x" if memory else "",
    ]
    target = f"{_FASTER} x: {_verdict(wall / best.wall_s >= _FASTER)}" if wall else ""
    again = _summary_again(path)
    beside += [target, f"{again:.2f}", f"{_AGAIN_S} s: {_verdict(again < _AGAIN_S)}"]
    cells = [path.name, f"{raw / 1e6:.0f}", f"{tasks:,}", f"{best.wall_s:.1f}", f"{best.cpu_s:.1f}", f"{best.rss_bytes / 1e6:.0f}", *beside]
    return "| " + " | ".join(cells) + " |"


def _summary_again(path: Path) -> float:
    """Seconds of the second `stepscope summary` of a directory."""
    command = [str(Path(sys.executable).with_name("stepscope")), "summary", str(path)]
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        costs = [cost(command, STEPSCOPE_CACHE=cache) for _ in range(2)]
    if costs[1].code:
        sys.exit(costs[1].error)
    return costs[1].wall_s


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


if __name__ == "__main__":
    main()
