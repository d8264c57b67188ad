"""gc.collect() is called in every step to save memory."""

import gc

from training import FIXED, mlp, torch_setup, train, update

RULES = ("garbage_collection",)
CULPRIT = ("collect", "garbage")
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data = torch.rand(256, 256)


def step():
    loss = update(optimizer, model(data).square().mean())
    if not FIXED:
        gc.collect()
    return loss


train(step)
