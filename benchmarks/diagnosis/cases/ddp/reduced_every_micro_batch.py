"""Gradients are accumulated over 8 micro-batches, and each of them is reduced; the twin reduces the last one only (no_sync)."""

import contextlib

from training import FIXED, ddp, join, torch_setup, train

RULES = ("exposed_communication", "small_transfers")
CULPRIT = ("allreduce", "all_reduce", "communication")
torch = torch_setup()
join()
model = ddp(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.rand(8, 4, 512)


def step():
    optimizer.zero_grad()
    for number, part in enumerate(data):
        with model.no_sync() if FIXED and number < 7 else contextlib.nullcontext():
            model(part).square().mean().backward()
    optimizer.step()


train(step)
