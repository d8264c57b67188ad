"""CPU time from the end of torch.profiler's own stop to a readable run folder, per million events: stop_to_run.py [MILLIONS]"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_OPTIONS = {
    "plain": {},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "shapes, memory, FLOPs and stacks": {"record_shapes": True, "profile_memory": True, "with_flops": True, "with_stack": True},
}
_EVENTS = {"plain": 2200, "shapes and memory": 3500}  # of a step of the model below, about
_TARGETS = {"plain": 6, "shapes and memory": 10}  # CPU seconds


def main() -> None:
    millions = sys.argv[1] if len(sys.argv) > 1 else "1"
    print("recorded                           events   torch's stop   to columns   to run folder   together, of target")
    for name in _OPTIONS:
        subprocess.run([sys.executable, __file__, millions, name], check=True, stderr=subprocess.DEVNULL)


def _measure(millions: float, name: str) -> None:
    """One recording in a process of its own; the imports that only conversion needs count as conversion."""
    import torch

    from stepscope.captures import Capture
    from stepscope.collect.options import Options
    from stepscope.collect.torch import Collector

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
        from stepscope import conversion, opening

        run = conversion.convert(capture.folder)
        moments.append(time.process_time())
        assert opening.open(run).steps.collect().height == steps
    events = collector.events
    before, stopped, written, done = moments
    each = 1e6 / events
    total, target = (done - stopped) * each, _TARGETS.get(name)
    shown = f"{total:.1f} s" + (f" of {target} s, {'met' if total <= target else 'missed'}" if target else "")
    parts = [(stopped - before) * each, (written - stopped) * each, (done - written) * each]
    print(f"{name:32} {events:9,} {parts[0]:12.1f} s {parts[1]:10.1f} s {parts[2]:13.1f} s   {shown}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _measure(float(sys.argv[1]), sys.argv[2])
    else:
        main()
