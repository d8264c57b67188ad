"""A training of several processes over gloo with one slow rank: the job of `straggler_bench.py --real`, started by torchrun."""

import argparse
import gc
import os
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

CAUSES = ("compute", "input", "host", "garbage_collection")
DELAY_S = 0.02


class Samples(IterableDataset[Tensor]):
    """Batches, each after a delay."""

    def __init__(self, count: int, delay_s: float) -> None:
        self.count, self.delay_s = count, delay_s

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.count):
            time.sleep(self.delay_s)
            yield torch.randn(32, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cause", choices=CAUSES)
    parser.add_argument("--slow-rank", type=int, default=0)
    parser.add_argument("--steps", type=int, default=26)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    cause = options.cause if torch.distributed.get_rank() == options.slow_rank else None
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    objects = [[number] for number in range(200_000)] if cause == "garbage_collection" else []
    factor = torch.randn(400, 400)
    for batch in DataLoader(Samples(options.steps, DELAY_S if cause == "input" else 0.0), batch_size=None):
        optimizer.zero_grad()
        if cause == "compute":
            for _ in range(12):
                factor = torch.tanh(factor @ factor)
        elif cause == "host":
            time.sleep(DELAY_S)
        elif objects:
            gc.collect()
        net(batch).square().mean().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    os._exit(0)  # a thread of gloo may still hold Python objects


if __name__ == "__main__":
    main()
