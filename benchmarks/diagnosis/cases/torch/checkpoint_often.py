"""The model and the optimizer are saved every 4 steps."""

import io
import itertools
import os
import tempfile

from training import FIXED, torch_setup, train, update

RULES = ("pauses", "outlier_steps")
CLOCK = "wall"
RECORD = ("--steps", "4:19")
CULPRIT = ("save", "checkpoint", "pause", "no operator")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
data, numbers = torch.rand(16, 1024), itertools.count(1)
folder = tempfile.mkdtemp()


def save():
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    with open(f"{folder}/last.pt", "wb") as file:  # noqa: PTH123
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())


def step():
    update(optimizer, model(data).square().mean())
    if next(numbers) % (1000 if FIXED else 4) == 0:
        save()


train(step)
