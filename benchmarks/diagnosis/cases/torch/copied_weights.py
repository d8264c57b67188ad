"""The best weights are kept by a deep copy in every step."""

import copy

from training import FIXED, torch_setup, train, update

RULES = ("contiguous_copies", "host_operator", "pauses", "python_bound")
CULPRIT = ("deepcopy", "copied_weights", "aten::clone", "aten::copy_", "state_dict")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data, best = torch.rand(16, 1024), {"loss": float("inf"), "weights": None}


def step():
    loss = update(optimizer, model(data).square().mean())
    if not FIXED:
        best.update(loss=float(loss.detach()), weights=copy.deepcopy(model.state_dict()))


train(step)
