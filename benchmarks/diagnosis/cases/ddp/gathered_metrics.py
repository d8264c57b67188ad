"""Metrics of all ranks are gathered as Python objects, between two barriers, in every step; the twin reduces them every 50 steps."""

import itertools

from training import FIXED, ddp, join, mlp, torch_setup, train, update

RULES = ("exposed_communication", "small_transfers", "synchronization")
CULPRIT = ("gather", "barrier", "communication", "allgather")
torch = torch_setup()
join()
model = ddp(mlp(128, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, numbers = torch.rand(32, 128), itertools.count(1)


def step():
    loss = update(optimizer, model(data).square().mean())
    if next(numbers) % (50 if FIXED else 1) == 0:
        torch.distributed.barrier()
        everyone = [None, None]
        torch.distributed.all_gather_object(everyone, {"loss": float(loss.detach()), "rate": 0.01})
        torch.distributed.barrier()


train(step)
