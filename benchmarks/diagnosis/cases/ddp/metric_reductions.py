"""Forty metrics are reduced one by one in each step; the twin reduces them as one tensor."""

from training import FIXED, ddp, join, mlp, torch_setup, train, update

RULES = ("small_transfers",)
CULPRIT = ("all_reduce", "allreduce")
torch = torch_setup()
join()
model = ddp(mlp(128, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data = torch.rand(128, 128)


def step():
    loss = update(optimizer, model(data).square().mean())
    metrics = torch.rand(40)
    if FIXED:
        torch.distributed.all_reduce(metrics)
    else:
        for metric in metrics:
            torch.distributed.all_reduce(metric)
    return loss


train(step)
