"""A timeline of many events: building it, opening it again, and what the server takes to answer what a page asks while one moves."""

import argparse
import http.client
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from measure import Cost, cost, keep, table

import stepscope
from stepscope.io import store
from stepscope.model.trace import Trace

HERE = Path(__file__).parent
SOURCE = HERE.parent / "tests" / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200"
MANY = 10  # millions
_TOGETHER = 25  # repetitions of the recording that are made in memory: about a million spans
_ROWS = 16  # that a page asks for at once
_TICK = os.sysconf("SC_CLK_TCK")
# From the issue that set them: of ten million events.
_LIMITS = {"build": 6.0, "search": 1.0, "area": 0.5}
_LIMIT_BYTES = {"build": 1.5e9, "server": 1.5e9, "tile": 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=10, help="events, about (default: 10 million)")
    parser.add_argument("--repeat", type=int, default=3, help="how often it is built (default: 3)")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        _build(args.build)
        return
    run = made(args.millions)
    with tempfile.TemporaryDirectory() as cache:
        built = []
        for _ in range(args.repeat):
            shutil.rmtree(cache, ignore_errors=True)
            built.append(cost([sys.executable, __file__, "--build", str(run)], STEPSCOPE_CACHE=cache))
        again = cost([sys.executable, __file__, "--build", str(run)], STEPSCOPE_CACHE=cache)
        kept = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
        with _Server(run, cache) as server:
            rows = _asked(server)
            rows.append(
                ["server, the most memory", "", "", _megabytes(server.peak()), _verdict(server.peak(), _LIMIT_BYTES["server"], 1e6, "MB")]
            )
    report = _report(args, run, built, again, kept, rows)
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


def made(millions: float) -> Path:
    """A real recording, one after the other, until it is long enough; made once."""
    folder = HERE / "data" / f"timeline{millions:g}m"
    if not store.sniff(folder):
        trace = stepscope.open(SOURCE)
        times = -(-int(millions * 1e6) // trace.spans.select(pl.len()).collect().item())
        store.write(repeated(trace, times), folder)
    return folder


def repeated(trace: Trace, times: int) -> Trace:
    """The trace so many times, each after the one before, with spans and steps counted on. Memory blocks are left out."""
    first, last = trace.ends()
    next_span, next_step = (
        trace.table(name).select(pl.col(name.removesuffix("s")).max() + 1).collect().item() for name in ("spans", "steps")
    )
    shifts = {
        **dict.fromkeys(("start_ns", "end_ns", "at_ns", "fp_start_ns", "bp_end_ns"), last - first + 1),
        **dict.fromkeys(("span", "parent", "op", "flow_in"), next_span),
        "step": next_step,
    }

    def later(frame: pl.LazyFrame, by: int) -> pl.LazyFrame:
        columns = [column for column in frame.collect_schema().names() if column in shifts]
        return frame.with_columns(pl.col(column) + by * shifts[column] for column in columns)

    tables: dict[str, pl.LazyFrame] = {name: trace.table(name) for name in ("tracks", "devices")}
    for name in ("spans", "steps", "counters"):
        # Some in memory, then these many times: a plan of thousands of pieces, or of files, takes longer than what it does.
        one = trace.table(name).collect()
        some = pl.concat([later(one.lazy(), at) for at in range(min(times, _TOGETHER))]).collect().rechunk()
        pieces = [some[: one.height * min(_TOGETHER, times - at)] for at in range(0, times, _TOGETHER)]
        tables[name] = pl.concat([later(piece.lazy(), at * _TOGETHER) for at, piece in enumerate(pieces)])
    return Trace(tables, trace.meta)


def _build(run: Path) -> None:
    """In a process of its own: open the timeline, and say what that took without the imports."""
    from stepscope.timeline import cache as keeping

    trace = stepscope.open(run)
    ends = trace.ends()  # the server knows them since it opened the run
    cpu, wall = time.process_time(), time.perf_counter()
    found = keeping.open_timeline(trace, keeping.entry_key(str(run)), ends)
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    print(json.dumps(took | {"spans": found.spans, "events": len(found.pyramid.spans.start), "samples": len(found.samples.at)}))


class _Server:
    """`stepscope view` of one run."""

    def __init__(self, run: Path, cache: str) -> None:
        command = [str(Path(sys.executable).with_name("stepscope")), "view", str(run), "--no-browser", "--no-token", "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"STEPSCOPE_CACHE": cache})

    def __enter__(self) -> "_Server":
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self._connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=300)
                return self
        raise RuntimeError("the server did not start")

    def __exit__(self, *what: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def ask(self, path: str) -> bytes:
        self._connection.request("GET", f"/{path}")
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {content.decode()}")
        return content

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICK

    def peak(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10


class Asked(NamedTuple):
    wall_s: list[float]
    cpu_s: float  # of each, on average
    most_bytes: int


def _timed(server: _Server, paths: list[str]) -> Asked:
    walls, most, cpu = [], 0, server.cpu_s()
    for path in paths:
        begun = time.perf_counter()
        most = max(most, len(server.ask(path)))
        walls.append(time.perf_counter() - begun)
    return Asked(walls, (server.cpu_s() - cpu) / len(paths), most)


def _asked(server: _Server) -> list[list[str]]:
    run = json.loads(server.ask("api/runs"))["runs"][0]["id"]
    at = f"api/runs/{run}/timeline"
    rows = [_row("the run's lanes, asked for the first time: built", _timed(server, [at]))]
    found = json.loads(server.ask(at))
    lanes = [lane for lane in sorted(found["lanes"], key=lambda lane: -lane["events"]) if lane["kind"] != "counter"]
    chosen: list[dict[str, Any]] = []
    for lane in lanes:
        if sum(one["rows"] for one in chosen) + lane["rows"] <= _ROWS:
            chosen.append(lane)
    words = f"lanes={','.join(str(lane['id']) for lane in chosen)}&v={found['version']}"
    dice = random.Random(0)
    levels = [level for level in range(found["top_level"], 0, -1) for _ in range(8)]
    tiles = [f"{at}/tiles/{level}/{dice.randint(0, found['end_ns'] >> level + 10)}?{words}" for level in levels]
    _timed(server, tiles[:4])
    some = _timed(server, tiles)
    most = f"{some.most_bytes / 1e6:.2f} MB"
    rows.append(
        [
            *_row(f"a tile of {_ROWS} rows, {len(tiles)} of any zoom", some),
            f"at most {most}: " + _met(some.most_bytes, _LIMIT_BYTES["tile"]),
        ]
    )
    counters = ",".join([str(lane["id"]) for lane in found["lanes"] if lane["kind"] == "counter"][:_ROWS])
    ask: list[tuple[str, Callable[[int], str], str]] = [
        ("search for one name", lambda one: f"search?text=cudaLaunchKernel&rank=0&number={one}&args=0", "search"),
        ("search for a letter, which nearly all have", lambda one: f"search?text=a&number={one}&args=0", "search"),
        ("sum up everything by name", lambda one: f"area?t0=0&t1={found['end_ns'] + one}", "area"),
        ("sum up a tenth by name", lambda one: f"area?t0={found['end_ns'] // 2 + one}&t1={found['end_ns'] * 6 // 10}", "area"),
        ("a span with its flows", lambda one: f"span?rank=0&span={found['events'] // 2 + one}", ""),
        ("the next event", lambda one: f"near?lane={chosen[0]['id']}&row=0&at={found['end_ns'] // 2 + one}&direction=next", ""),
        (f"a tile of {_ROWS} counters", lambda one: f"tiles/{found['top_level'] - one}/0?lanes={counters}", ""),
        ("the longest gaps, with their causes", lambda one: f"gaps?group={_device(found)}&t1={found['end_ns'] - one}", ""),
    ]
    for what, path, limit in ask:
        first = _timed(server, [f"{at}/{path(0)}"])
        limits = f"{_LIMITS[limit]:g} s: {_met(first.cpu_s, _LIMITS[limit])}" if limit else ""
        rows.append([*_row(what, first), limits])
    return [row + [""] * (5 - len(row)) for row in rows]


def _device(found: dict[str, Any]) -> int:
    return next(int(group["id"]) for group in found["groups"] if group["kind"] == "device")


def _row(what: str, asked: Asked) -> list[str]:
    walls = sorted(asked.wall_s)
    return [what, f"{asked.cpu_s * 1e3:.0f} ms", f"{statistics.median(walls) * 1e3:.0f} ({walls[-1] * 1e3:.0f}) ms", ""]


def _report(args: argparse.Namespace, run: Path, built: list[Cost], again: Cost, kept: int, rows: list[list[str]]) -> str:
    failed = [one for one in (*built, again) if one.code]
    if failed:
        raise RuntimeError(failed[0].error)
    said = [json.loads(one.output.splitlines()[-1]) for one in built]
    cpu = statistics.median(one["cpu_s"] for one in said)
    memory = max(one.rss_bytes for one in built)
    verdicts = f"{_verdict(cpu, _LIMITS['build'], 1, 's')}; {_verdict(memory, _LIMIT_BYTES['build'], 1e6, 'MB')}"
    last = json.loads(again.output.splitlines()[-1])
    head = ["what", "CPU time", "wall, median (most)", "peak memory", "limit"]
    walls = sorted(one["wall_s"] for one in said)
    top = [
        ["build and keep", f"{cpu:.1f} s", f"{statistics.median(walls):.1f} ({walls[-1]:.1f}) s", _megabytes(memory), verdicts],
        ["open again", f"{last['cpu_s'] * 1e3:.0f} ms", f"{last['wall_s'] * 1e3:.0f} ms", _megabytes(again.rss_bytes), ""],
    ]
    counts = f"{said[0]['spans']:,} spans, {said[0]['events']:,} events with scopes, steps and overlap, {said[0]['samples']:,} samples"
    size = "" if args.millions == MANY else f", {args.millions:g} million events"
    return f"""# Timeline: the server's part ({args.machine}{size})

Written by `timeline.py`: {counts}: `{SOURCE.name}`, a recording of {stepscope.open(SOURCE).steps.collect().height} steps, repeated.
Kept on disk: {kept / 1e6:,.0f} MB. {args.repeat} builds, each in a new process. Load average at the end: {os.getloadavg()[0]:.1f}.

{table(head, top + rows)}"""


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _verdict(value: float, limit: float, unit: float, word: str) -> str:
    return f"{limit / unit:g} {word}: {_met(value, limit)}"


def _met(value: float, limit: float) -> str:
    return "met" if value <= limit else "**missed**"


if __name__ == "__main__":
    main()
