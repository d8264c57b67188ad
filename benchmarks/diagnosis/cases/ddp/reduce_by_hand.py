"""Gradients are reduced one by one after backward, each with a blocking call; the twin uses DistributedDataParallel."""

from training import FIXED, ddp, join, torch_setup, train

RULES = ("exposed_communication", "small_transfers")
CULPRIT = ("allreduce", "all_reduce", "communication")
torch = torch_setup()
join()
model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(40)))
model = ddp(model) if FIXED else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.rand(32, 128)


def step():
    optimizer.zero_grad()
    model(data).square().mean().backward()
    if not FIXED:
        for weight in model.parameters():
            torch.distributed.all_reduce(weight.grad)
            weight.grad /= 2
    optimizer.step()


train(step)
