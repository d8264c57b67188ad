"""Adam updates 200 small tensors one by one; the twin uses its fused form."""

from training import FIXED, torch_setup, train, update

RULES = ("optimizer_loop",)
CULPRIT = ("Adam", "Optimizer.step", "optimizer", "_single_tensor")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(48, 48) for _ in range(100)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False, fused=FIXED)
data = torch.rand(8, 48)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
