"""PyTorch uses 32 threads on a machine with few cores: they wait for each other."""

import os

from training import FIXED, mlp, torch_setup, train, update

RULES = ("thread_count",)
CLOCK = "wall"
CULPRIT = ("thread",)
torch = torch_setup(threads=1 if FIXED else 16 * (os.cpu_count() or 1))
model = mlp(512, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(256, 512)


def step():
    return update(optimizer, torch.tanh(model(data)).square().mean())


train(step)
