"""Adam updates 400 tensors one by one."""

from training import FIXED, torch_setup, train, update

RULES = ("optimizer_loop",)
CULPRIT = ("Adam", "Optimizer.step", "_single_tensor", "optimizer")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(200))).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False, fused=FIXED)
data = torch.rand(256, 256, device="cuda")


def step():
    return update(optimizer, model(data).square().mean())


train(step, lambda _: torch.cuda.synchronize())
