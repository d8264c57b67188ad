"""After each step the script polls for a stop file and sleeps 5 ms; the twin looks every 100 steps."""

import time
from pathlib import Path

from training import FIXED, mlp, torch_setup, train, update

RULES = ("python_bound",)
CULPRIT = ("waiting_retry", "sleep", "Optimizer", "step")
CLOCK = "wall"
torch = torch_setup()
model = mlp(256, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data, count = torch.rand(128, 256), 0


def step():
    global count
    count += 1
    loss = update(optimizer, model(data).square().mean())
    if count % (100 if FIXED else 1) == 0:
        Path("stop").exists()
        time.sleep(0.005)
    return loss


train(step)
