"""What the jobs of the soak have in common: their arguments, the figures of their steps, and the ways in which they record themselves."""

import argparse
import contextlib
import hashlib
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WAYS = ("bare", "run", "profiler", "schedule", "monitor", "attach")


def parse_arguments(description: str | None, forms: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--form", choices=forms, default=forms[0])
    parser.add_argument("--way", choices=WAYS, default="bare")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="an upper bound: what is to be compared needs --steps")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep in each step")
    parser.add_argument("--out", default="data", help="where the program's own profiler writes")
    parser.add_argument("--config", default="config", help="the monitor's folder")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the program's own profiler, as JSON")
    return parser.parse_args()


class Training:
    """Losses, memory and duration of each step, and the mark for whoever records."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.steps, self.most = 0, args.steps
        self._pause, self._seconds = args.pause, args.seconds
        self._end = 0.0  # from the end of the first step on, which may compile for minutes
        self.losses = hashlib.sha256()
        self._rss: list[int] = []
        self._ms: list[float] = []
        self._began = time.perf_counter()
        self.mark: Callable[[], None] = lambda: None

    def end_step(self) -> bool:
        """False when it was the last."""
        self.steps += 1
        self._end = self._end or time.monotonic() + self._seconds
        time.sleep(self._pause)
        now = time.perf_counter()
        self._ms.append((now - self._began) * 1e3)
        self._began = now
        self._rss.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
        self.mark()
        return self.steps < self.most and time.monotonic() < self._end

    def result(self, parameters: Any) -> dict[str, Any]:
        """`parameters`: their hash."""
        ordered, late = sorted(self._ms[1:] or self._ms), self._rss[-max(len(self._rss) // 4, 1) :]
        return {
            "steps": self.steps,
            "loss_hash": self.losses.hexdigest(),
            "param_hash": parameters.hexdigest(),
            "rss_start": self._rss[0],
            "rss_max": max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, *self._rss),
            "rss_end": self._rss[-1],
            "rss_slope": round((late[-1] - late[0]) / len(late)),  # bytes for each of the last quarter of the steps
            "step_ms_median": round(ordered[len(ordered) // 2], 2),
            "step_ms_p90": round(ordered[len(ordered) * 9 // 10], 2),
        }


@contextlib.contextmanager
def recording(training: Training, args: argparse.Namespace) -> Iterator[None]:
    """The ways in which a program records itself; bare, run and attach leave it as it is."""
    if args.way in ("bare", "run", "attach"):
        yield
        return
    import stepscope

    if args.way == "monitor":
        monitor = stepscope.DynamicProfilerMonitor(args.config, args.out, poll_interval=0.02, **args.options)
        training.mark = monitor.step
        yield
        return
    plan = {"schedule": stepscope.schedule(wait=2, warmup=1, active=3, repeat=0)} if args.way == "schedule" else {}
    with stepscope.Profiler(output_path=args.out, **plan, **args.options) as profiler:
        training.mark = profiler.step
        yield
