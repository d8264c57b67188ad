"""What all scripts of the diagnosis bench share: the loop, and small models.

A script defines one training step. With FIXED=1 it is the repaired twin. With TIMED=1 it trains as many steps as each line of the standard
input says, and prints how long they took in all, by the clock and in CPU time, so that both twins can be measured in turns.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

FIXED = os.environ.get("FIXED") == "1"
TIMED = os.environ.get("TIMED") == "1"
STEPS = int(os.environ.get("STEPS", "20"))  # of a recording
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WARMUP = 3


def train(step: Callable[[], Any], finish: Callable[[Any], Any] = lambda state: state) -> None:
    """Run steps. `finish` waits for what the last step returned, in frameworks that return before the work is done."""
    if not TIMED:
        for _ in range(STEPS):
            state = step()
        finish(state)
        return
    for _ in range(WARMUP):
        state = step()
    finish(state)
    if RANK == 0:
        print("ready", flush=True)
    while count := _requested_steps():
        start, start_cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(count):
            state = step()
        finish(state)
        if RANK == 0:
            print(time.perf_counter_ns() - start, time.process_time_ns() - start_cpu, flush=True)


def _requested_steps() -> int:
    """Steps of the next block: rank 0 reads them, the others ask rank 0."""
    count = int(sys.stdin.readline() or 0) if RANK == 0 else 0
    if WORLD > 1:
        import torch

        shared = torch.tensor([count])
        torch.distributed.broadcast(shared, 0)
        count = int(shared)
    return count


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def torch_setup(threads: int = 1) -> Any:
    """PyTorch with a fixed seed and as many threads as the case needs."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    return torch


def mlp(width: int = 256, depth: int = 3, classes: int = 10) -> Any:
    from torch import nn

    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def update(optimizer: Any, loss: Any) -> Any:
    """Backward and optimizer."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def ddp(model: Any, **options: Any) -> Any:
    """The model in DistributedDataParallel over gloo."""
    import torch

    return torch.nn.parallel.DistributedDataParallel(model, **options)


def join() -> None:
    import torch

    torch.distributed.init_process_group("gloo")
