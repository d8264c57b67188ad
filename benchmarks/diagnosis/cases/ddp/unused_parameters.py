"""find_unused_parameters walks the graph in every step, although all parameters are used."""

from training import FIXED, ddp, join, torch_setup, train, update

RULES = ("small_transfers", "exposed_communication")
CULPRIT = ("unused", "allreduce", "all_reduce")
torch = torch_setup()
join()
model = ddp(torch.nn.Sequential(*(torch.nn.Linear(48, 48) for _ in range(150))), find_unused_parameters=not FIXED)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.rand(8, 48)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
