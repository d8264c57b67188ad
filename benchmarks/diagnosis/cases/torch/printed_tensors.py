"""Each step formats the scores as text for a log."""

import os

from training import FIXED, mlp, torch_setup, train, update

RULES = ("pauses", "python_bound", "synchronization", "host_operator")
RECORD = ("--stack",)
CULPRIT = ("aten::item", "_local_scalar_dense", "printed_tensors", "print", "item", "_tensor_str")
torch = torch_setup()
torch.set_printoptions(threshold=2000, linewidth=200)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, log = torch.rand(64, 256), open(os.devnull, "w")  # noqa: SIM115, PTH123


def step():
    scores = model(data)
    update(optimizer, scores.square().mean())
    print("mean", float(scores.mean()) if FIXED else scores, file=log)


train(step)
