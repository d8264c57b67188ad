"""Batches have the length of their longest text: torch.compile compiles again for each length. The twin pads to one length."""

import itertools

from training import FIXED, mlp, torch_setup, train, update

RULES = ("recompilation", "changing_shapes")
CULPRIT = ("compile", "recompil", "dynamo", "shape")
torch = torch_setup()
torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 100_000
model = mlp()
compiled = torch.compile(model, backend="eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
numbers = itertools.count(17)


def step():
    return update(optimizer, compiled(torch.rand(64 if FIXED else next(numbers), 256)).square().mean())


train(step)
