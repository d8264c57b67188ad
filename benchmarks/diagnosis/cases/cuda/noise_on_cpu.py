"""Noise for diffusion is drawn on the CPU and copied; the twin draws it on the GPU."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("tensor_on_cpu", "host_operator")
CULPRIT = ("aten::normal_", "aten::randn")
torch = torch_setup()
model = mlp(1024, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(4096, 1024, device="cuda")


def step():
    noise = torch.randn(4096, 1024, device="cuda") if FIXED else torch.randn(4096, 1024).cuda()
    return update(optimizer, model(data + noise).square().mean())


train(step, lambda _: torch.cuda.synchronize())
