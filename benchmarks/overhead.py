"""What recording costs the training step: blocks of steps with and without it, taken in turns within one run.

    overhead.py [--only torch|mindspore] [--models NAME ...] [--contenders NAME ...] [--sets N] [--rounds N] [--steps N] [--minutes N]
                [--cpu] [--keep]

Needs PyTorch or MindSpore, and numpy; stepscope itself need not be installed. README.md says what is measured, and how.
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import bounds_of_median, keep, table
from training import mindspore_training, torch_training

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
_SETTLE = 2  # steps of a block that do not count: the first after a profiler has started

_SHAPES = {"record_shapes": True, "profile_memory": True}
_ALL = _SHAPES | {"with_flops": True, "with_stack": True}
# From the issue that set them.
_ACTIVE_TORCH, _IDLE, _ACTIVE_MINDSPORE = 1.02, 1.01, 1.10
_STOP_TORCH = 1.5  # of torch's own stop()


class Contender(NamedTuple):
    what: str
    process: str  # one of _PROCESSES
    state: str
    against: str = ""  # another contender's `what`; empty: nothing
    limit: float | None = None


_PROCESSES: dict[str, list[str]] = {"own": [], "other": [], "idle": ["-m", "stepscope", "run", "--idle"]}
_QUIET = [
    Contender("bare", "own", "bare"),
    Contender("bare, again", "own", "bare", "bare"),
    Contender("schedule waits", "own", "waiting", "bare", _IDLE),
    Contender("monitor", "own", "monitor", "bare", _IDLE),
    Contender("bare, another process", "other", "bare", "bare"),
    Contender("run --idle", "idle", "bare", "bare, another process", _IDLE),
]
_CONTENDERS = {
    "torch": [
        *_QUIET,
        Contender("torch.profiler", "own", "torch", "bare"),
        Contender("stepscope", "own", "stepscope", "torch.profiler", _ACTIVE_TORCH),
        Contender("stepscope, no modules", "own", "stepscope plain", "torch.profiler"),
        Contender("stepscope, no host samples", "own", "stepscope unsampled", "torch.profiler"),
        Contender("torch.profiler, shapes and memory", "own", "torch shapes", "bare"),
        Contender("stepscope, shapes and memory", "own", "stepscope shapes", "torch.profiler, shapes and memory", _ACTIVE_TORCH),
        Contender("torch.profiler, stacks and FLOPs, too", "own", "torch all", "bare"),
        Contender("stepscope, stacks and FLOPs, too", "own", "stepscope all", "torch.profiler, stacks and FLOPs, too", _ACTIVE_TORCH),
    ],
    "mindspore": [
        *_QUIET,
        Contender("stepscope", "own", "stepscope", "bare", _ACTIVE_MINDSPORE),
        Contender("stepscope, shapes and memory", "own", "stepscope shapes", "bare", _ACTIVE_MINDSPORE),
        Contender("stepscope, stacks and FLOPs, too", "own", "stepscope all", "bare"),
    ],
}
_MODELS = {
    "torch": ["GPT", "GPT compiled", "ResNet-50", "small operators"],
    "mindspore": ["graph", "PyNative", "PyNative, launch_blocking"],
}


class Block(NamedTuple):
    median_s: float
    sum_s: float
    cpu_s: float  # of all threads of the process, over all steps
    stop_s: float  # to end the recording


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(_CONTENDERS), help="one framework (default: those that are installed)")
    parser.add_argument("--models", nargs="+", help="some of the models (default: all)")
    parser.add_argument("--contenders", nargs="+", help="some of the rows of the report, and those they are compared with (default: all)")
    parser.add_argument("--sets", type=int, default=12, help="how often new processes are started (default: 12)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each set; even, so that both orders count alike (default: 4)")
    parser.add_argument("--steps", type=int, default=6, help="steps of a block (default: 6)")
    parser.add_argument("--minutes", type=float, default=60, help="start no set of a model later than this (default: 60)")
    parser.add_argument("--cpu", action="store_true", help="PyTorch on the CPU also where there is a GPU")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what the report calls this machine (default: its cores)")
    parser.add_argument("--keep", action="store_true", help="put the report into RESULTS.md, in the place of the last one of this machine")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _work(*args.worker)
        return
    for name, contenders in _CONTENDERS.items():
        _CONTENDERS[name] = _chosen(contenders, args.contenders)
    frameworks = [name for name in _CONTENDERS if (args.only or name) == name and importlib.util.find_spec(name)]
    if os.getloadavg()[0] > 0.5:
        print("overhead: the machine is busy; the spread will be wide", file=sys.stderr)
    report = [_introduction(frameworks, args)]
    print(report[0])
    for framework in frameworks:
        for model in _MODELS[framework]:
            if not args.models or model in args.models:
                began, busy, ours = time.monotonic(), _busy_s(), _ours_s()
                blocks, where = _measured(framework, model, args)
                others = (_busy_s() - busy - (_ours_s() - ours)) / (time.monotonic() - began)
                report.append(_table(framework, model, where, blocks) + f"\nOther programs kept {others:.2f} cores busy meanwhile.\n")
                print(report[-1], flush=True)
    if args.keep:
        keep(HERE / "RESULTS.md", "\n".join(report))


def _chosen(contenders: list[Contender], names: list[str] | None) -> list[Contender]:
    """Those of these names, and what they are compared with."""
    if names is None:
        return contenders
    by_name = {contender.what: contender for contender in contenders}
    wanted = {name for name in names if name in by_name} | {"bare"}
    while more := {by_name[name].against for name in wanted if by_name[name].against} - wanted:
        wanted |= more
    return [contender for contender in contenders if contender.what in wanted]


def _busy_s() -> float:
    """CPU seconds that this machine has worked."""
    user, nice, system, _, _, interrupt, soft, steal = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def _ours_s() -> float:
    """Of these, ours and those of processes of ours that have ended."""
    return sum(os.times()[:4])


def _introduction(frameworks: list[str], args: argparse.Namespace) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*frameworks, "numpy"))
    load = f"load average before: {os.getloadavg()[0]:.1f}"
    return f"""# Recording: what a step costs ({args.machine})

Written by `overhead.py`; README.md beside this file says what each row means.

- {time.strftime("%Y-%m-%d")}; {load}; Python {platform.python_version()}, {versions}
- new processes every {args.rounds} rounds; a block is {args.steps} steps
"""


def _measured(framework: str, model: str, args: argparse.Namespace) -> tuple[dict[str, list[Block]], str]:
    """The blocks of each contender, one per round, and where the model ran."""
    contenders = _CONTENDERS[framework]
    blocks: dict[str, list[Block]] = {contender.what: [] for contender in contenders}
    where = ""
    began = time.monotonic()
    for _ in range(args.sets):
        if blocks["bare"] and time.monotonic() - began > args.minutes * 60:
            break
        with tempfile.TemporaryDirectory() as folder:
            needed = {contender.process for contender in contenders}
            workers = {name: Worker(name, framework, model, folder, args.cpu) for name in _PROCESSES if name in needed}
            for number in range(args.rounds):
                for contender in contenders if number % 2 == 0 else reversed(contenders):
                    blocks[contender.what].append(workers[contender.process].train(contender.state, args.steps))
            where = workers["own"].where
            for worker in workers.values():
                worker.end()
    return blocks, where


class Worker:
    """A process that trains a block when it is told to, and sleeps otherwise."""

    def __init__(self, name: str, framework: str, model: str, folder: str, cpu: bool) -> None:
        search = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, *_PROCESSES[name], __file__, "--worker", framework, model, folder]
        self._said = Path(folder) / f"{name}.txt"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": search, "STEPSCOPE_JOBS": folder} | ({"CUDA_VISIBLE_DEVICES": ""} if cpu else {}),
            )
        self.where: str = self._answer()

    def train(self, state: str, steps: int) -> Block:
        assert self._process.stdin
        self._process.stdin.write(f"{steps} {state}\n")
        self._process.stdin.flush()
        return Block(*self._answer())

    def end(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"overhead: a process ended with {self._process.wait()}:\n{self._said.read_text()}")
        return json.loads(line)


def _table(framework: str, model: str, where: str, blocks: dict[str, list[Block]]) -> str:
    head = ["what", "step ms", "against", "ratio", "its 95 %", "quartiles", "least to most", "of sums", "of CPU time", "blocks"]
    head += ["limit", "", "stop ms", "ratio of stops"]
    rows = []
    for contender in _CONTENDERS[framework]:
        own = blocks[contender.what]
        row = [contender.what, f"{statistics.median(block.median_s for block in own) * 1000:.2f}", contender.against]
        if contender.against:
            pairs = list(zip(own, blocks[contender.against], strict=True))
            ratios = sorted(block.median_s / its.median_s for block, its in pairs)
            sums = statistics.median(block.sum_s / its.sum_s for block, its in pairs)
            cpu = statistics.median(block.cpu_s / its.cpu_s for block, its in pairs)
            low, ratio, high = statistics.quantiles(ratios, n=4)
            least, most = bounds_of_median(ratios)
            spreads = (least, most), (low, high), (ratios[0], ratios[-1])
            row += [f"{ratio:.3f}", *(f"{low:.3f} to {high:.3f}" for low, high in spreads), f"{sums:.3f}", f"{cpu:.3f}", str(len(pairs))]
            if contender.limit:
                verdict = "met" if ratio <= contender.limit else "**missed**" if least > contender.limit else "open"
                row += [f"{contender.limit:.2f}", verdict]
            else:
                row += ["", ""]
            if contender.state.startswith(("stepscope", "torch")):
                row += [f"{statistics.median(block.stop_s for block in own) * 1000:.1f}"]
                if contender.against.startswith("torch"):
                    stop = statistics.median(block.stop_s / its.stop_s for block, its in pairs)
                    row += [f"{stop:.2f} ({'met' if stop <= _STOP_TORCH else '**missed**'})"]
        rows.append(row + [""] * (len(head) - len(row)))
    return f"## {framework}, {model}, {where}\n\n{table(head, rows)}"


def _work(framework: str, model: str, folder: str) -> None:
    """In a process of its own: train as the lines of standard input say, and answer with what a step took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print
    where, step = {"torch": torch_training, "mindspore": mindspore_training}[framework](model)
    for _ in range(10):
        step()
    print(json.dumps(where), file=answers, flush=True)
    states = {
        "bare": _bare,
        "waiting": _waiting,
        "monitor": _monitored,
        "torch": lambda _: _by_torch({}),
        "torch shapes": lambda _: _by_torch(_SHAPES),
        "torch all": lambda _: _by_torch(_ALL),
        "stepscope": lambda folder: _by_stepscope(folder, {}),
        "stepscope plain": lambda folder: _by_stepscope(folder, {"with_modules": False}),
        "stepscope unsampled": lambda folder: _by_stepscope(folder, {"host_interval_ms": 0}),
        "stepscope shapes": lambda folder: _by_stepscope(folder, _SHAPES),
        "stepscope all": lambda folder: _by_stepscope(folder, _ALL),
    }
    for line in sys.stdin:
        count, _, state = line.strip().partition(" ")
        gc.collect()
        with tempfile.TemporaryDirectory(dir=folder) as place:
            after, stop = states[state](place)
            _times(step, after, _SETTLE)
            cpu = time.process_time()
            times = _times(step, after, int(count))
            cpu = time.process_time() - cpu
            began = time.perf_counter()
            stop()
            took = time.perf_counter() - began
        print(json.dumps([statistics.median(times), sum(times), cpu, took]), file=answers, flush=True)


def _times(step: Callable[[], None], after: Callable[[], None], count: int) -> list[float]:
    moments = [time.perf_counter()]
    for _ in range(count):
        step()
        after()
        moments.append(time.perf_counter())
    return [end - start for start, end in pairwise(moments)]


State = tuple[Callable[[], None], Callable[[], None]]  # what follows each step, and what follows the block


def _nothing() -> None:
    pass


def _bare(folder: str) -> State:
    return _nothing, _nothing


def _waiting(folder: str) -> State:
    from stepscope import Profiler, schedule

    profiler = Profiler(output_path=folder, schedule=schedule(wait=1 << 30, active=1))
    return profiler.step, profiler.stop


def _monitored(folder: str) -> State:
    """One for the process: a monitor stays to its end."""
    from stepscope import DynamicProfilerMonitor

    if not _monitors:
        place = Path(folder).with_name(f"monitor{os.getpid()}")
        _monitors.append(DynamicProfilerMonitor(cfg_path=place, output_path=place))
    return _monitors[0].step, _nothing


_monitors: list[Any] = []


def _by_stepscope(folder: str, options: dict[str, Any]) -> State:
    from stepscope import Profiler

    profiler = Profiler(output_path=folder, **options)
    return profiler.step, profiler.stop


def _by_torch(options: dict[str, bool]) -> State:
    """With a schedule, without which it would not mark steps."""
    from torch import profiler

    warnings.simplefilter("ignore")  # that it has no warmup
    recording = profiler.profile(schedule=profiler.schedule(wait=0, warmup=0, active=1 << 30), **options)
    recording.start()
    return recording.step, recording.stop


if __name__ == "__main__":
    main()
