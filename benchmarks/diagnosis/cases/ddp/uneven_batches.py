"""Rank 1 gets four times as many rows as rank 0."""

from training import FIXED, RANK, ddp, join, mlp, torch_setup, train, update

RULES = ("slow_rank", "uneven_work", "uneven_flops")
CULPRIT = ("rank 1", "rank 0")
torch = torch_setup()
join()
model = ddp(mlp(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
rows = 320 if FIXED else (512 if RANK else 128)
data = torch.rand(rows, 256)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
