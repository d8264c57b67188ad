"""Buckets of 1 kB: each gradient is reduced by its own collective."""

from training import FIXED, ddp, join, torch_setup, train, update

RULES = ("small_transfers",)
CULPRIT = ("allreduce", "bucket", "all_reduce")
torch = torch_setup()
join()
layers = (torch.nn.Linear(64, 64) for _ in range(60))
model = ddp(torch.nn.Sequential(*layers), bucket_cap_mb=25 if FIXED else 0.001)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.rand(16, 64)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
