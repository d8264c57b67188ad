"""A small PyTorch training on the CPU, recorded by stepscope: compare_train.py OUTPUT STEPS MORE

Each step sorts 1,000 and MORE numbers. `compare_train.py --calibrate` prints how many more make a recorded step 5 % slower.
"""

import contextlib
import os
import statistics
import sys
import time

import torch
from torch import nn

_BATCH, _WIDTH, _LAYERS, _TRIED = 32, 192, 2, 20_000
SORTED = 1000  # numbers in each step; a planted slowdown sorts more


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if sys.argv[1] == "--calibrate":
        print(_calibrated())
        return
    from stepscope import Profiler

    output, steps, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step = _training_step(SORTED + more)
    with contextlib.suppress(OSError):  # root alone may: other programs disturb the steps less
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    for _ in range(10):
        step()
    profiler = Profiler(output_path=output)
    for _ in range(steps):
        step()
        profiler.step()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    profiler.analyse()


def _training_step(sorted_numbers: int):  # type: ignore[no-untyped-def]
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(_WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels, numbers = torch.randn(_BATCH, _WIDTH), torch.randint(10, (_BATCH,)), torch.randn(sorted_numbers)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.sort(numbers)

    return step


def _calibrated() -> int:
    """How many more numbers to sort for a step that takes 5 % more CPU time while it is recorded."""
    numbers = torch.randn(_TRIED)
    with torch.profiler.profile():
        of_step, of_sort = _cpu_time(_training_step(SORTED)), _cpu_time(lambda: torch.sort(numbers))
    return round(0.05 * of_step / of_sort * _TRIED)


def _cpu_time(work) -> float:  # type: ignore[no-untyped-def]
    """The median CPU time of a call in all threads: other programs disturb it less than the time on the clock."""
    times = []
    for _ in range(400):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
