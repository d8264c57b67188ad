"""CPU time from the end of torch.profiler's own stop to a readable run folder, per million events."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import keep, table

HERE = Path(__file__).parent
_OPTIONS = {
    "plain": {},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "shapes, memory, FLOPs and stacks": {"record_shapes": True, "profile_memory": True, "with_flops": True, "with_stack": True},
}
_EVENTS = {"plain": 2200, "shapes and memory": 3500}  # of a step of the model below, about
_LIMITS = {"plain": 6, "shapes and memory": 10}  # CPU seconds, from the issue that set them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=1, help="events of a recording, about (default: 1 million)")
    parser.add_argument("--repeat", type=int, default=3, help="recordings of each kind, in turns (default: 3)")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _measure(args.millions, args.one)
        return
    measured: dict[str, list[list[float]]] = {name: [] for name in _OPTIONS}
    for _ in range(args.repeat):
        for name, recordings in measured.items():
            command = [sys.executable, __file__, "--millions", str(args.millions), "--one", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            recordings.append(json.loads(done.stdout.splitlines()[-1]))
    report = _report(measured, args)
    print(report)
    if args.keep:
        keep(HERE / "RESULTS.md", report)


def _report(measured: dict[str, list[list[float]]], args: argparse.Namespace) -> str:
    head = ["recorded", "events", "torch's stop", "to columns", "to run folder", "together", "least to most", "limit", ""]
    rows = []
    for name, recordings in measured.items():
        events, *parts = (statistics.median(values) for values in zip(*recordings, strict=True))
        totals = sorted(columns + folder for _, _, columns, folder in recordings)
        limit = _LIMITS.get(name)
        verdict = [f"{limit} s", "met" if statistics.median(totals) <= limit else "**missed**"] if limit else ["", ""]
        shown = [f"{part:.1f} s" for part in (*parts, statistics.median(totals))]
        rows.append([name, f"{events:,.0f}", *shown, f"{totals[0]:.1f} to {totals[-1]:.1f} s", *verdict])
    return f"""# Recording: from stop to run folder ({args.machine})

Written by `stop_to_run.py`: CPU seconds per million events, {args.repeat} recordings of each kind.

{table(head, rows)}"""


def _measure(millions: float, name: str) -> None:
    """One recording in a process of its own; the imports that only conversion needs count as conversion."""
    import torch

    from stepscope.model.captures import Capture
    from stepscope.recording.collectors.options import Options
    from stepscope.recording.collectors.torch.collector import Collector

    torch.set_num_threads(1)
    blocks = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.GELU()) for _ in range(12)]
    model = torch.nn.Sequential(*blocks)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def train() -> None:
        model(torch.ones(4, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    train()
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(Path(folder) / "job.capture", {"rank": 0, "world_size": 1, "pid": os.getpid()})
        collector = Collector(Options(**_OPTIONS[name], max_events=1 << 40))
        steps = round(millions * 1e6 / _EVENTS.get(name, 6500))
        collector.start(capture)
        for number in range(steps):
            collector.step(number)
            train()
        collector.step(steps)
        moments: list[float] = []
        stop = collector.profiler.stop

        def timed() -> None:
            moments.append(time.process_time())
            stop()
            moments.append(time.process_time())

        collector.profiler.stop = timed
        collector.stop()
        capture.finish()
        moments.append(time.process_time())
        from stepscope.io import open_run
        from stepscope.recording.conversion import convert

        run = convert.convert(capture.folder)
        moments.append(time.process_time())
        assert open_run.open(run).steps.collect().height == steps
    before, stopped, written, done = moments
    each = 1e6 / collector.events
    print(json.dumps([collector.events, (stopped - before) * each, (written - stopped) * each, (done - written) * each]))


if __name__ == "__main__":
    main()
