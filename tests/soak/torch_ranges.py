"""Windows that end and begin at one place of a PyTorch training: `torch_ranges.py PLACE --windows N --out DIR`.

Every window is a session of torch.profiler, which must not end, or begin, while a range of PyTorch's is open: PyTorch would go on to write
into a session that it has freed. `boundary()` is called at the place, once for each step: inside ranges, hooks, functions and operators.
"""

import argparse
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

import stepscope

_profilers: list[stepscope.Profiler] = []  # the one that runs: the places are called by PyTorch, which passes nothing on


def boundary() -> None:
    """One window ends, the next begins."""
    for profiler in _profilers:
        profiler.step()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
        self.inner: Callable[[torch.Tensor], torch.Tensor] = lambda x: x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.layers(x))


class Job:
    def __init__(self) -> None:
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-3, foreach=False)
        self.kept: list[list[torch.Tensor]] = []

    def step(self) -> None:
        loss = self.net(torch.randn(4, 16)).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.kept = [*self.kept, [torch.randn(50) for _ in range(20)]][-20:]  # what was freed is used again, and a stray write is noticed


# Each place is a generator: what it sets up before it yields, it takes away after. What it yields makes one step.
Place = Iterator[Callable[[], None]]


def between(job: Job) -> Place:
    """Outside everything: as the documentation of torch.profiler has it."""

    def step() -> None:
        job.step()
        boundary()

    yield step


def one_range(job: Job) -> Place:
    def step() -> None:
        with record_function("outer"):
            job.step()
            boundary()
            torch.ones(3).add(1)

    yield step


def three_ranges(job: Job) -> Place:
    def step() -> None:
        with record_function("outer"), record_function("middle"):
            job.step()
            with record_function("inner"):
                boundary()
                torch.ones(3).add(1)
        torch.ones(3).add(1)

    yield step


def range_of_the_whole_job(job: Job) -> Place:
    """Opened before the profiler starts, closed after it has ended."""

    def step() -> None:
        job.step()
        boundary()

    with record_function("whole job"):
        yield step


def ranges_across(job: Job) -> Place:
    """Each is opened in one window and closed in the next."""
    opened: list[Any] = []

    def step() -> None:
        opened.append(record_function("across"))
        opened[-1].__enter__()
        job.step()
        boundary()
        if len(opened) > 1:
            opened.pop(0).__exit__(None, None, None)

    yield step
    for one in opened:
        one.__exit__(None, None, None)


def forward(job: Job) -> Place:
    def inner(x: torch.Tensor) -> torch.Tensor:
        boundary()
        return x * 2

    job.net.inner = inner
    yield job.step


def forward_hook(job: Job) -> Place:
    handle = job.net.layers[1].register_forward_hook(lambda module, args, output: boundary())
    yield job.step
    handle.remove()


def forward_pre_hook(job: Job) -> Place:
    handle = job.net.layers[2].register_forward_pre_hook(lambda module, args: boundary())
    yield job.step
    handle.remove()


def backward_hook(job: Job) -> Place:
    handle = job.net.layers[1].register_full_backward_hook(lambda module, grad_input, grad_output: boundary())
    yield job.step
    handle.remove()


def gradient_hook(job: Job) -> Place:
    handle = job.net.layers[0].weight.register_post_accumulate_grad_hook(lambda parameter: boundary())
    yield job.step
    handle.remove()


class _Bounded(torch.autograd.Function):
    in_forward = False

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if _Bounded.in_forward:
            boundary()
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        if not _Bounded.in_forward:
            boundary()
        return grads[0] * 2


def function_forward(job: Job) -> Place:
    _Bounded.in_forward = True
    job.net.inner = _Bounded.apply
    yield job.step


def function_backward(job: Job) -> Place:
    _Bounded.in_forward = False
    job.net.inner = _Bounded.apply
    yield job.step


@torch.library.custom_op("soak::bounded", mutates_args=())
def bounded(x: torch.Tensor) -> torch.Tensor:
    boundary()
    return x * 2


bounded.register_autograd(lambda ctx, grad: grad * 2)


def operator(job: Job) -> Place:
    job.net.inner = torch.ops.soak.bounded
    yield job.step


def optimizer_hook(job: Job) -> Place:
    handle = job.optimizer.register_step_post_hook(lambda optimizer, args, kwargs: boundary())
    yield job.step
    handle.remove()


def second_thread(job: Job) -> Place:
    """The training thread works on while another one ends the windows."""
    over = threading.Event()

    def train() -> None:
        while not over.is_set():
            with record_function("outer"):
                job.step()

    thread = threading.Thread(target=train)
    thread.start()

    def step() -> None:
        torch.ones(3).add(1)
        boundary()

    yield step
    over.set()
    thread.join()


def window_by_a_thread(job: Job) -> Place:
    """A second thread ends each window while this one is inside a range."""

    def step() -> None:
        with record_function("outer"):
            job.step()
            thread = threading.Thread(target=boundary)
            thread.start()
            thread.join()
            torch.ones(3).add(1)

    yield step


PLACES: dict[str, Callable[[Job], Place]] = {
    place.__name__: place
    for place in (
        between,
        one_range,
        three_ranges,
        range_of_the_whole_job,
        ranges_across,
        forward,
        forward_hook,
        forward_pre_hook,
        backward_hook,
        gradient_hook,
        function_forward,
        function_backward,
        operator,
        optimizer_hook,
        second_thread,
        window_by_a_thread,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--out", default="data")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the profiler, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    job = Job()
    place = contextlib.contextmanager(PLACES[args.place])
    with place(job) as step:
        step()
        every = stepscope.schedule(wait=0, warmup=0, active=1, repeat=0)
        with stepscope.Profiler(schedule=every, output_path=args.out, host_interval_ms=0, **args.options) as profiler:
            _profilers.append(profiler)
            for _ in range(args.windows):
                step()
            _profilers.clear()
        for _ in range(20):  # what was broken then is often found only later
            step()
    print(json.dumps({"windows": profiler.step_num}), flush=True)


if __name__ == "__main__":
    main()
