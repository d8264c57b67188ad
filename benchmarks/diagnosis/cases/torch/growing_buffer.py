"""A replay buffer grows by torch.cat: every step copies all of it. The twin writes into a buffer of fixed size."""

import itertools

from training import FIXED, mlp, torch_setup, train, update

RULES = ("host_operator", "contiguous_copies", "memory_growth")
CULPRIT = ("aten::cat",)
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, buffer, numbers = torch.rand(64, 256), torch.rand(20_000, 256), itertools.count()


def step():
    global buffer
    update(optimizer, model(data).square().mean())
    if FIXED:
        at = next(numbers) * 64 % 19_000
        buffer[at : at + 64] = data
    else:
        buffer = torch.cat([buffer, data])[-20_000:].clone()


train(step)
