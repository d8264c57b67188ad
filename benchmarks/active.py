"""An active window of stepscope against torch.profiler with the same options, in about a minute.

    active.py [--seconds N] [--device cuda|cpu] [--steps N] [--options JSON] [--models NAME ...]

One process trains each model in blocks of steps, in the order torch, stepscope, stepscope, torch, so that a drift counts for both alike.
The steps of a round are compared with those of the same round. One line per model and figure. README.md says what the figures mean.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import bounds_of_median

_ORDER = ("torch", "stepscope", "stepscope", "torch")
_SETTLE = 2  # steps of a block that do not count: the first after a profiler has started
_RESERVE_S = 3.0  # to print, and to end the process
_MODELS = ("GPT", "small operators")


class Block(NamedTuple):
    steps_s: list[float]
    cpu_s: list[float]  # of the thread that trains
    stop_s: float  # to end the recording; for stepscope, with everything written to disk
    stop_cpu_s: float  # of all threads


def main() -> int:
    args = _arguments()
    end = time.monotonic() - _running_s() + args.seconds - _RESERVE_S
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        print("active: PyTorch finds no CUDA device; --device cpu measures without one")
        return 1
    import stepscope

    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{where}, PyTorch {torch.__version__}, stepscope {stepscope.__version__}, options {json.dumps(args.options)}", flush=True)
    for number, model in enumerate(args.models):
        began = time.monotonic()
        rounds = list(_rounds(model, args, began + (end - began) / (len(args.models) - number)))
        for line in _lines(model, rounds):
            print(line, flush=True)
    print(f"{_running_s():.0f} s in all.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=75, help="of the whole process, with its imports (default: 75)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="where the models train (default: cuda)")
    parser.add_argument("--steps", type=int, default=8, help="steps of a block (default: 8)")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of both profilers, as JSON (default: none)")
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help=f"names of training.py (default: {', '.join(_MODELS)})")
    return parser.parse_args()


def _running_s() -> float:
    """Age of this process, which began before Python could read a clock."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def _rounds(model: str, args: argparse.Namespace, end: float) -> Iterator[list[Block]]:
    """Rounds of four blocks, until another one might last longer than there is time."""
    import torch
    from training import torch_training

    _, step = torch_training(model)
    for _ in range(10):
        step()
    with tempfile.TemporaryDirectory() as folder:

        def block(kind: str) -> Block:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return _block(step, _STARTS[kind](folder, args.options), args.steps)

        for kind in ("torch", "stepscope"):  # the first recording of a process loads libraries, and leaves a GPU slower
            block(kind)
        longest = 0.0
        while (began := time.monotonic()) + 1.5 * longest < end:
            yield [block(kind) for kind in _ORDER]
            longest = max(longest, time.monotonic() - began)


State = tuple[Callable[[], None], Callable[[], None]]  # what follows each step, and what follows the block


def _block(step: Callable[[], None], state: State, count: int) -> Block:
    after, stop = state
    for _ in range(_SETTLE):
        step()
        after()
    times, cpu_times = [time.perf_counter()], [time.thread_time()]
    for _ in range(count):
        step()
        after()
        times.append(time.perf_counter())
        cpu_times.append(time.thread_time())
    began, began_cpu = time.perf_counter(), time.process_time()
    stop()
    return Block(_differences(times), _differences(cpu_times), time.perf_counter() - began, time.process_time() - began_cpu)


def _differences(times: list[float]) -> list[float]:
    return [end - start for start, end in pairwise(times)]


def _by_torch(folder: str, options: dict[str, Any]) -> State:
    """With a schedule, without which it would not mark steps."""
    from torch import profiler

    warnings.simplefilter("ignore")  # that it has no warmup
    recording = profiler.profile(schedule=profiler.schedule(wait=0, warmup=0, active=1 << 30), **options)
    recording.start()
    return recording.step, recording.stop


def _by_stepscope(folder: str, options: dict[str, Any]) -> State:
    from stepscope import Profiler

    profiler = Profiler(output_path=folder, **options)
    return profiler.step, profiler.stop


_STARTS = {"torch": _by_torch, "stepscope": _by_stepscope}


def _lines(model: str, rounds: list[list[Block]]) -> Iterator[str]:
    """The ratio of the medians of each round, and how much two blocks of the same profiler differ."""
    if not rounds:
        yield f"{model}: no time for a round"
        return
    figures: dict[str, Callable[[Block], list[float]]] = {
        "step": lambda block: block.steps_s,
        "CPU time of the training thread": lambda block: block.cpu_s,
        "stop()": lambda block: [block.stop_s],
        "CPU time of stop()": lambda block: [block.stop_cpu_s],
    }
    for what, values in figures.items():
        torch = [_median(values(first) + values(last)) for first, _, _, last in rounds]
        ours = [_median(values(second) + values(third)) for _, second, third, _ in rounds]
        ratios = sorted(own / its for own, its in zip(ours, torch, strict=True))
        pairs = [pair for first, second, third, last in rounds for pair in ((first, last), (second, third))]
        again = [_median(values(late)) / _median(values(early)) for early, late in pairs]
        low, _, high = statistics.quantiles(again, n=4)
        spread = f"95 % {_range(bounds_of_median(ratios))}; rounds {_range((ratios[0], ratios[-1]))}"
        times = f"{_median(ours) * 1e3:.3f} and {_median(torch) * 1e3:.3f} ms"
        noise = f"the same profiler again: quartiles {_range((low, high))}"
        yield f"{model}, {what}: {_median(ratios):.3f} of torch.profiler ({spread}); {times}; {noise}; {len(rounds)} rounds"


_median = statistics.median


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    with tempfile.TemporaryFile() as messages:  # a line of either profiler for each block
        error_output = os.dup(2)
        os.dup2(messages.fileno(), 2)
        try:
            code = main()
        except BaseException:
            messages.seek(max(messages.seek(0, os.SEEK_END) - 8192, 0))
            os.write(error_output, messages.read())
            raise
        finally:
            os.dup2(error_output, 2)
    sys.exit(code)
