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
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import keep, table

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
            least, most = _bounds_of_median(ratios)
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


def _bounds_of_median(ordered: list[float]) -> tuple[float, float]:
    """Between which the true median lies, 19 times out of 20: as many values are below it as heads fall in so many throws."""
    count = len(ordered)
    beside = int(0.98 * count**0.5 + 0.5)
    return ordered[max(count // 2 - beside, 0)], ordered[min((count - 1) // 2 + beside, count - 1)]


def _work(framework: str, model: str, folder: str) -> None:
    """In a process of its own: train as the lines of standard input say, and answer with what a step took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print
    where, step = {"torch": _torch, "mindspore": _mindspore}[framework](model)
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


def _torch(name: str) -> tuple[str, Callable[[], None]]:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)  # what is measured is small: threads that wait for one another would hide it
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if name == "small operators":
        return _where(), _small_operators(device)
    if name.startswith("GPT"):
        layers, width, heads, length, batch = (12, 768, 12, 512, 8) if on_gpu else (4, 128, 4, 64, 4)
        inputs = torch.randint(1000, (batch * 64, length + 1))
        data, model = TensorDataset(inputs[:, :-1], inputs[:, 1:]), _gpt(layers, width, heads, length)
    else:
        size, batch = (224, 64) if on_gpu else (32, 4)
        data = TensorDataset(torch.randn(batch * 4, 3, size, size), torch.randint(10, (batch * 4,)))
        model = _resnet([3, 4, 6, 3], 64) if on_gpu else _resnet([1, 1, 1, 1], 8)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    if name == "GPT compiled":
        model = torch.compile(model)
    loss_of = nn.CrossEntropyLoss()

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=batch, shuffle=True)

    batches = endless()

    def step() -> None:
        inputs, labels = (one.to(device) for one in next(batches))
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            outputs = model(inputs)
            loss = loss_of(outputs.flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        loss.item()  # as loops that print it: on a GPU the step is over when its kernels are

    return _where(), step


def _where() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"


def _small_operators(device: Any) -> Callable[[], None]:
    """Nothing but launches: what recording adds to each shows at its worst."""
    import torch

    weight = torch.ones(64, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    inputs = torch.randn(64, device=device)

    def step() -> None:
        x = inputs
        for _ in range(100):
            x = torch.relu(x * weight + 0.01)
        optimizer.zero_grad()
        x.sum().backward()
        optimizer.step()
        x.sum().item()

    return step


def _gpt(layers: int, width: int, heads: int, length: int) -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention, self.between = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.before(x))
            return x + self.mlp(self.between(x))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(length, width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.layers(x)))

    return Gpt()


def _resnet(blocks: list[int], channels: int) -> Any:
    import torch
    from torch import nn

    def layer(before: int, after: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))

    class Bottleneck(nn.Module):
        def __init__(self, before: int, inner: int, stride: int) -> None:
            super().__init__()
            self.one, self.two, self.three = layer(before, inner, 1), layer(inner, inner, 3, stride), layer(inner, 4 * inner, 1)
            self.past = layer(before, 4 * inner, 1, stride) if stride > 1 or before != 4 * inner else nn.Identity()
            self.relu = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.past(x) + self.three(self.relu(self.two(self.relu(self.one(x))))))

    parts = [layer(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = channels
    for number, count in enumerate(blocks):
        inner = channels << number
        for index in range(count):
            parts.append(Bottleneck(before, inner, 2 if number and not index else 1))
            before = 4 * inner
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def _mindspore(mode: str) -> tuple[str, Callable[[], None]]:
    import mindspore
    import numpy as np
    from mindspore import nn

    mindspore.set_context(mode=mindspore.GRAPH_MODE if mode == "graph" else mindspore.PYNATIVE_MODE)
    if mode.endswith("launch_blocking"):
        mindspore.runtime.launch_blocking()  # else threads wait for one another by spinning, and on few cores no two steps are alike
    mindspore.set_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Dense(512, 512), nn.ReLU(), nn.LayerNorm((512,)))]
    net = nn.SequentialCell(*layers, nn.Dense(512, 10))
    optimizer = nn.Momentum(net.trainable_params(), 1e-4, 0.9)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer).set_train()
    generator = np.random.default_rng(0)
    inputs = mindspore.Tensor(generator.standard_normal((64, 512), np.float32))
    labels = mindspore.Tensor(generator.integers(10, size=64).astype(np.int32))

    def step() -> None:
        cell(inputs, labels).asnumpy()

    return "CPU", step


if __name__ == "__main__":
    main()
