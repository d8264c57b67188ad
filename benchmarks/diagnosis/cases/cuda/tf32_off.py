"""Float32 matrix products do not use tensor cores: TF32 is off."""

from training import FIXED, torch_setup, train, update

RULES = ("tf32", "mixed_precision")
CULPRIT = ("aten::mm", "aten::addmm", "gemm")
RECORD = ("--shapes",)
torch = torch_setup()
torch.backends.cuda.matmul.allow_tf32 = FIXED
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(2048, 4096, device="cuda")


def step():
    return update(optimizer, model(data).square().mean())


train(step, lambda _: torch.cuda.synchronize())
