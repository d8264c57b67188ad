"""Rank 1 runs the garbage collector over a large heap in every step."""

import gc

from training import FIXED, RANK, ddp, join, mlp, torch_setup, train, update

RULES = ("slow_rank", "garbage_collection")
CULPRIT = ("rank 1", "garbage", "gc")
torch = torch_setup()
join()
heap = [{"id": i, "tags": [i]} for i in range(150_000)]
model = ddp(mlp(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(64, 256)


def step():
    if RANK == 1 and not FIXED:
        gc.collect()
    return update(optimizer, model(data).square().mean())


train(step)
