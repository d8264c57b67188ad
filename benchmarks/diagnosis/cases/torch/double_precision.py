"""The data comes from numpy in float64, and the model was converted to match."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("double_precision", "mixed_precision")
CULPRIT = ("float64", "double", "addmm", "aten::mm", "64 bits")
RECORD = ("--shapes",)
torch = torch_setup()
dtype = torch.float32 if FIXED else torch.float64
model = mlp(512, 4).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(256, 512, dtype=dtype)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
