"""A MindSpore training that is the same to the last bit each time: PyNative mode, a compiled training step, an evaluation every fifth.

`mindspore_job.py --way WAY --steps N`. The last line on stdout is one JSON object: steps, loss_hash, param_hash, rss_start, rss_max,
rss_end, rss_slope, step_ms_median, step_ms_p90.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

WAYS = ("bare", "run", "profiler", "schedule", "monitor", "attach")
BATCH, WIDTH, EVERY = 32, 64, 5


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()
        # No Dropout: on the CPU MindSpore draws other numbers each time, whatever the seed.
        self.hidden, self.head = nn.Dense(4 * 8 * 8, WIDTH), nn.Dense(WIDTH, 10)

    def construct(self, x):  # type: ignore[no-untyped-def]
        x = self.relu(self.norm(self.conv(x)))
        return self.head(self.relu(self.hidden(self.flatten(x))))


class Training:
    """What is measured at the end of a step, and the mark for whoever records."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.steps, self._most, self._pause = 0, args.steps, args.pause
        self._end = time.monotonic() + args.seconds
        self._losses = hashlib.sha256()
        self._rss: list[int] = []
        self._ms: list[float] = []
        self._began = time.perf_counter()
        self.mark: Callable[[], None] = lambda: None

    def stepped(self, *losses: ms.Tensor) -> bool:
        """A step is over. False when it was the last."""
        for loss in losses:
            self._losses.update(loss.asnumpy().tobytes())
        self.steps += 1
        time.sleep(self._pause)
        now = time.perf_counter()
        self._ms.append((now - self._began) * 1e3)
        self._began = now
        self._rss.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
        self.mark()
        return self.steps < self._most and time.monotonic() < self._end

    def finish(self, net: nn.Cell) -> dict[str, Any]:
        values = hashlib.sha256()
        for parameter in net.get_parameters():
            values.update(parameter.asnumpy().tobytes())
        ordered, late = sorted(self._ms[1:] or self._ms), self._rss[-max(len(self._rss) // 4, 1) :]
        return {
            "steps": self.steps,
            "loss_hash": self._losses.hexdigest(),
            "param_hash": values.hexdigest(),
            "rss_start": self._rss[0],
            "rss_max": max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, *self._rss),
            "rss_end": self._rss[-1],
            "rss_slope": round((late[-1] - late[0]) / len(late)),  # bytes for each of the last quarter of the steps
            "step_ms_median": round(ordered[len(ordered) // 2], 2),
            "step_ms_p90": round(ordered[len(ordered) * 9 // 10], 2),
        }


def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(5)
    for _ in range(BATCH * 50):
        yield generator.random((1, 8, 8), np.float32), np.array(generator.integers(10), np.int32)


def train(training: Training) -> nn.Cell:
    net, loss_of = Net(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Adam(net.trainable_params(), 1e-3)

    def forward(x, y):  # type: ignore[no-untyped-def]
        return loss_of(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def train_step(x, y):  # type: ignore[no-untyped-def]
        loss, grads = gradient(x, y)
        optimizer(grads)
        return loss

    @ms.jit
    def evaluate(x, y):  # type: ignore[no-untyped-def]
        return forward(x, y)

    data = ds.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(BATCH)
    net.set_train()
    while True:
        for x, y in data.create_tuple_iterator(num_epochs=1):
            losses = [train_step(ops.tanh(x) * 2, y)]
            if training.steps % EVERY == EVERY - 1:
                losses.append(evaluate(x, y))
            if not training.stepped(*losses):
                return net


@contextlib.contextmanager
def recorded(training: Training, args: argparse.Namespace) -> Iterator[None]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", default="mindspore", help="as the other jobs take it; there is one")
    parser.add_argument("--way", choices=WAYS, default="bare")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="an upper bound: what is to be compared needs --steps")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep in each step")
    parser.add_argument("--out", default="data", help="where the program's own profiler writes")
    parser.add_argument("--config", default="config", help="the monitor's folder")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the program's own profiler, as JSON")
    args = parser.parse_args()
    if args.way == "run" and "STEPSCOPE_RUN" not in os.environ:
        os.execv(sys.executable, [sys.executable, "-m", "stepscope", "run", "--out", args.out, *sys.argv])
    ms.set_seed(11)
    ms.set_context(mode=ms.PYNATIVE_MODE, deterministic="ON")
    training = Training(args)
    with recorded(training, args):
        net = train(training)
    print(json.dumps(training.finish(net)))


if __name__ == "__main__":
    main()
