"""Quantiles of every weight and gradient are logged in each step, as a dashboard shows them; the twin logs every 100 steps."""

import itertools

from training import FIXED, mlp, torch_setup, train, update

RULES = ("host_operator",)
CULPRIT = ("aten::quantile", "aten::sort", "quantile")
torch = torch_setup()
model = mlp(256, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, numbers, history = torch.rand(64, 256), itertools.count(), []
levels = torch.tensor([0.05, 0.5, 0.95])


def step():
    update(optimizer, model(data).square().mean())
    if next(numbers) % (100 if FIXED else 1) == 0:
        history.append([[value.quantile(levels).tolist() for value in (weight.data, weight.grad)] for weight in model.parameters()])


train(step)
