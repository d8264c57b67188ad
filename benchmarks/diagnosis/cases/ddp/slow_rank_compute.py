"""Rank 1 computes an extra diagnostic in every step, and rank 0 waits for it in the allreduce."""

from training import FIXED, RANK, ddp, join, mlp, torch_setup, train, update

RULES = ("slow_rank", "uneven_work")
CULPRIT = ("rank 1",)
torch = torch_setup()
join()
model = ddp(mlp(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(64, 256)


def step():
    loss = model(data).square().mean()
    if RANK == 1 and not FIXED:
        torch.linalg.svdvals(torch.rand(160, 160))
    return update(optimizer, loss)


train(step)
