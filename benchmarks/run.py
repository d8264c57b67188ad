"""Measure stepscope against its peers on the same real traces, in one run, and keep the figures in RESULTS.md."""

import argparse
import importlib.metadata
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from measure import Cost, cost, keep, table

import stepscope
from stepscope.model.trace import analysis, analysis_names

HERE = Path(__file__).parent
DATA = HERE / "data"
STEPSCOPE = str(Path(sys.executable).with_name("stepscope"))
SIZES_MB = 200, 1000
GPU_MB = 220
# A GPU trace, repeated to the size above: of a GPT where the data is next to the project, else of a small model with modules and stacks.
GPU_TRACES = (
    HERE.parents[1] / "shared" / "data" / "torch_h200" / "gpt2_full.json.gz",
    HERE.parent / "tests" / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz",
)
# From the issue that set them: seconds, bytes, and how many times faster than HolisticTraceAnalysis' load.
FASTER_THAN_HTA = {"cpu200": 12, "gpu220": 12}
PEAK_BYTES = {"cpu200": 0.5e9, "cpu1000": 1.2e9, "gpu220": 0.5e9}
AGAIN_S, SHOW_S = 0.5, 1.5
STARTUP_S = {"import stepscope": 0.02, "stepscope --version": 0.06, "stepscope summary of the demo, again": 0.35}


class Row(NamedTuple):
    """One contender, or one question asked of stepscope, on one file."""

    what: str
    costs: list[Cost]
    peer: str = ""
    from_run: bool = False  # starts from a run folder, so that a ratio to a peer's load of the trace would mean nothing

    @property
    def failed(self) -> bool:
        return any(one.code for one in self.costs)

    @property
    def wall_s(self) -> float:
        return statistics.median(one.wall_s for one in self.costs)

    @property
    def rss_bytes(self) -> int:
        return max(one.rss_bytes for one in self.costs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES_MB, metavar="MB", help="sizes of the CPU traces (default: 200 1000)")
    parser.add_argument("--no-gpu", action="store_true", help="leave out the GPU trace")
    parser.add_argument("--repeat", type=int, default=3, help="how often each stepscope command runs (default: 3)")
    parser.add_argument("--repeat-peers", type=int, default=1, help="how often each peer runs (default: 1)")
    parser.add_argument(
        "--all", action="store_true", help="HolisticTraceAnalysis on traces over 500 MB too: minutes, and many GB of memory"
    )
    parser.add_argument("--output", type=Path, default=HERE / "RESULTS.md", help="where the figures are kept")
    args = parser.parse_args()
    peers = environment("peers")
    traces = {f"cpu{size}": trace(size) for size in args.sizes} | ({} if args.no_gpu else {f"gpu{GPU_MB}": gpu_trace()})
    if os.getloadavg()[0] > 0.5:
        print("bench: the machine is busy; times, and ratios of times, will be off", file=sys.stderr)
    report = [_heading(args), _startup(args.repeat)]
    print("\n".join(report))
    failed = False
    for name, file in traces.items():
        into_page_cache(file)
        with_hta = args.all or file.stat().st_size < 500e6
        rows = _peer_rows(peers, file, args.repeat_peers, with_hta=with_hta) + _our_rows(file, args.repeat)
        report.append(_section(name, file, rows))
        print(report[-1])
        for row in rows:
            for one in filter(lambda one: one.code, row.costs):
                print(f"{row.what}: exit code {one.code}\n{one.error}", file=sys.stderr)
                failed = True
    keep(args.output, "\n".join(report))
    return int(failed)  # a command that fails is a fault; a slow one is a figure


def trace(megabytes: int) -> Path:
    """The recording of this size, made where it is missing."""
    path = DATA / f"cpu{megabytes}.json"
    if not path.exists():
        print(f"recording {path.name}", flush=True)
        subprocess.run([environment("recorder"), HERE / "record.py", str(megabytes), path], check=True)
    return path


def gpu_trace() -> Path:
    """A real GPU trace, repeated to GPU_MB, made where it is missing."""
    source = next(path for path in GPU_TRACES if path.exists())
    path = DATA / f"gpu{GPU_MB} of {source.name.partition('.')[0]}.json"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        print(f"making {path.name}", flush=True)
        subprocess.run([sys.executable, HERE / "gpu_trace.py", source, str(GPU_MB), path], check=True)
    return path


def into_page_cache(path: Path) -> None:
    """So that the first contender does not pay for the disk."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def environment(name: str) -> str:
    """The Python of a virtual environment with the pins of `name`.txt, made where it is missing."""
    folder = HERE / f".venv-{name}"
    done = folder / "done"
    if not done.exists():
        print(f"installing {name}.txt", flush=True)
        subprocess.run([_pinned_python(), "-m", "venv", "--clear", folder], check=True)
        # Few retries: where an index of the pins cannot be reached, every package would wait for it.
        pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", "-r", f"{HERE / name}.txt"]
        subprocess.run(pip, check=True)
        done.touch()
    return str(folder / "bin" / "python")


def _pinned_python() -> str:
    if sys.version_info[:2] in {(3, 11), (3, 12)}:
        return sys.executable
    found = shutil.which("python3.12") or shutil.which("python3.11")
    if not found:
        raise SystemExit("bench: the peers' pins are for Python 3.11 and 3.12; found neither on the PATH")
    return found


def _startup(repeat: int) -> str:
    """The time of commands that read no trace, interpreter included; the import is measured inside the process."""
    script = "import time; start = time.perf_counter(); import stepscope; print(time.perf_counter() - start)"
    demo = [STEPSCOPE, "summary", str(Path(stepscope.__path__[0]) / "cli" / "setup" / "demo_run" / "gpt2_h200")]
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        first = cost(demo, STEPSCOPE_CACHE=cache).wall_s
        seconds = {
            "import stepscope": [float(cost([sys.executable, "-c", script]).output) for _ in range(repeat)],
            "stepscope --version": [cost([STEPSCOPE, "--version"]).wall_s for _ in range(repeat)],
            "stepscope summary of the demo, first": [first],
            "stepscope summary of the demo, again": [cost(demo, STEPSCOPE_CACHE=cache).wall_s for _ in range(repeat)],
        }
    rows = []
    for what, measured in seconds.items():
        median, limit = statistics.median(measured), STARTUP_S.get(what)
        target = f"{limit * 1000:.0f} ms: {_verdict(median < limit)}" if limit else ""
        rows.append([what, f"{min(measured) * 1000:.1f}", f"{median * 1000:.1f}", target])
    return "## Startup\n\n" + table(["what", "ms, best", "median", "target"], rows)


def _peer_rows(python: str, trace: Path, repeat: int, *, with_hta: bool) -> list[Row]:
    def row(what: str, peer: str) -> Row:
        return Row(what, [cost([python, str(HERE / "peers.py"), peer, str(trace)]) for _ in range(repeat)], peer)

    hta = [row("HolisticTraceAnalysis, load alone", "HTA")] if with_hta else []
    return [*hta, row("orjson to a Polars table", "orjson")]


def _our_rows(trace: Path, repeat: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="run-", dir=DATA) as folder:
        fresh = [str(Path(folder) / f"cache{turn}") for turn in range(repeat)]
        run = str(Path(folder) / "run")
        summary = [STEPSCOPE, "summary", str(trace)]
        rows = [
            Row("stepscope summary, cold", [cost(summary, STEPSCOPE_CACHE=cache) for cache in fresh]),
            Row(
                "stepscope summary, cold, without the scanner",
                [cost(summary, STEPSCOPE_CACHE=f"{folder}/python", STEPSCOPE_SCANNER="python")],
            ),
            Row("stepscope summary, again", [cost(summary, STEPSCOPE_CACHE=fresh[-1]) for _ in range(repeat)]),
            Row(
                "stepscope export, again",
                [cost([STEPSCOPE, "export", str(trace), "--to", "parquet", "-o", run], STEPSCOPE_CACHE=fresh[-1])],
            ),
        ]
        for name in analysis_names():
            if any(parameter.default is parameter.empty for parameter in analysis(name).parameters.values()):
                continue  # needs an answer from the user
            rows.append(
                Row(f"stepscope show {name}, run folder", [cost([STEPSCOPE, "show", name, run]) for _ in range(repeat)], from_run=True)
            )
        return rows


def _section(name: str, trace: Path, rows: list[Row]) -> str:
    peers = {row.peer: row for row in rows if row.peer and not row.failed}
    events = int(peers["orjson"].costs[0].output.removeprefix("rows ")) if "orjson" in peers else 0
    head = ["what", "wall s, best", "median", "CPU s", "peak RSS MB", "peak PSS MB"]
    head += [text for peer in peers for text in (f"{peer} / this: time", "memory")]
    lines = [[*_cells(row, peers), _target(row, name, peers)] for row in rows]
    shown = table([*head, "target"], lines)
    return f"## {trace.name}: {trace.stat().st_size / 1e6:.0f} MB, {events:,} events\n\n{shown}"


def _cells(row: Row, peers: dict[str, Row]) -> list[str]:
    if row.failed:
        return [row.what, *[""] * (5 + 2 * len(peers))]
    cells = [
        row.what,
        f"{min(one.wall_s for one in row.costs):.2f}",
        f"{row.wall_s:.2f}",
        f"{statistics.median(one.cpu_s for one in row.costs):.2f}",
        f"{row.rss_bytes / 1e6:.0f}",
        f"{max(one.pss_bytes for one in row.costs) / 1e6:.0f}",
    ]
    for peer in peers.values():
        comparable = not row.from_run and row is not peer
        cells += [f"{peer.wall_s / row.wall_s:.1f}", f"{peer.rss_bytes / row.rss_bytes:.1f}"] if comparable else ["", ""]
    return cells


def _target(row: Row, name: str, peers: dict[str, Row]) -> str:
    """The median time and the largest memory of the repeats decide."""
    if row.failed:
        return "**failed**"
    if row.what == "stepscope summary, again" or row.from_run:
        limit = SHOW_S if row.from_run else AGAIN_S
        return f"{limit} s: {_verdict(row.wall_s < limit)}"
    if row.what != "stepscope summary, cold":
        return ""
    verdicts = []
    if name in FASTER_THAN_HTA and "HTA" in peers:
        limit = peers["HTA"].wall_s / FASTER_THAN_HTA[name]
        verdicts.append(f"1/{FASTER_THAN_HTA[name]} of HTA, {limit:.2f} s: {_verdict(row.wall_s <= limit)}")
    if name in PEAK_BYTES:
        verdicts.append(f"{PEAK_BYTES[name] / 1e6:.0f} MB: {_verdict(row.rss_bytes <= PEAK_BYTES[name])}")
    return "; ".join(verdicts)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _heading(args: argparse.Namespace) -> str:
    processor = next((line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    revision = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    ours = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("stepscope", "polars", "numpy", "msgspec"))
    pins = dict(line.split("==") for name in ("peers", "recorder") for line in _lines(HERE / f"{name}.txt") if "==" in line)
    theirs = ", ".join(f"{name} {pins[name]}" for name in ("HolisticTraceAnalysis", "pandas", "orjson", "polars", "torch"))
    return f"""# Benchmark results

Written by `make bench`; README.md beside this file says what each row means.

- {time.strftime("%Y-%m-%d")}, {processor}, {os.cpu_count()} cores, {memory / 1e6:.0f} GB; load average before: {os.getloadavg()[0]:.1f}
- Python {platform.python_version()}, {ours} (revision {revision or "unknown"})
- peers: {theirs} (recorder)
- {args.repeat} runs of each stepscope command, {args.repeat_peers} of each peer; every run is a new process, imports included
"""


def _lines(path: str | Path) -> list[str]:
    return Path(path).read_text().splitlines()


if __name__ == "__main__":
    sys.exit(main())
