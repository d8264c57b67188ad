"""A chain of elementwise operators reads and writes 256 MB each time; the twin fuses it with torch.compile."""

from training import FIXED, torch_setup, train, update

RULES = ("elementwise_chain",)
CULPRIT = ("aten::mul", "aten::add", "aten::tanh", "elementwise")
torch = torch_setup()
scale = torch.nn.Parameter(torch.ones(8192, device="cuda"))
optimizer = torch.optim.SGD([scale], lr=1e-6, fused=True)
data = torch.rand(8192, 8192, device="cuda")


def activation(values):
    return 0.5 * values * (1 + torch.tanh(0.79788456 * (values + 0.044715 * values * values * values)))


activation = torch.compile(activation) if FIXED else activation


def step():
    return update(optimizer, activation(data * scale).mean())


train(step, lambda _: torch.cuda.synchronize())
