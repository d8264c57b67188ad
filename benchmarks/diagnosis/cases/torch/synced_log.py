"""The whole history is written as JSON, with fsync, in every step."""

import json
import os
import tempfile

from training import FIXED, mlp, torch_setup, train, update

RULES = ("python_bound", "pauses", "host_operator")
RECORD = ("--stack",)
CLOCK = "wall"
CULPRIT = ("fsync", "json", "dump", "synced_log", "log")
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, history = torch.rand(64, 256), [{"step": i, "loss": 1 / (i + 1), "rate": 0.01} for i in range(4000)]
path = tempfile.mktemp()


def log(loss):
    history.append({"step": len(history), "loss": float(loss.detach()), "rate": 0.01})
    if FIXED:
        return
    with open(path, "w") as file:  # noqa: PTH123
        json.dump(history, file)
        file.flush()
        os.fsync(file.fileno())


def step():
    log(update(optimizer, model(data).square().mean()))


train(step)
