"""The output layer has 50,257 columns, which tensor cores cannot split evenly; the twin pads to 50,304."""

from training import FIXED, torch_setup, train, update

RULES = ("misaligned_product",)
CULPRIT = ("50257", "aten::mm", "aten::addmm")
RECORD = ("--shapes",)
torch = torch_setup()
model = torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.Linear(768, 50_304 if FIXED else 50_257, bias=False)).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(8192, 768, device="cuda", dtype=torch.bfloat16)


def step():
    return update(optimizer, model(data).square().mean())


train(step, lambda _: torch.cuda.synchronize())
