"""Large matrix products run in float32 although bfloat16 is available; the twin uses autocast."""

from training import FIXED, torch_setup, train, update

RULES = ("mixed_precision", "tf32")
CULPRIT = ("aten::mm", "aten::addmm", "gemm", "sgemm")
RECORD = ("--shapes",)
torch = torch_setup()
torch.backends.cuda.matmul.allow_tf32 = True
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(4096, 4096, device="cuda")


def step():
    with torch.autocast("cuda", torch.bfloat16, enabled=FIXED):
        loss = model(data).float().square().mean()
    return update(optimizer, loss)


train(step, lambda _: torch.cuda.synchronize())
