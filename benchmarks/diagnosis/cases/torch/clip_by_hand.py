"""Gradients are clipped in a Python loop with .item() for each tensor; the twin uses clip_grad_norm_."""

from training import FIXED, torch_setup, train

RULES = ("small_operators", "host_operator", "python_bound", "synchronization", "elementwise_chain")
CULPRIT = ("clip", "aten::item", "aten::linalg_vector_norm", "aten::norm", "aten::mul_", "_local_scalar_dense")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(150)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
data = torch.rand(8, 32)


def clip(parameters, limit):
    norm = sum(weight.grad.norm().item() ** 2 for weight in parameters) ** 0.5
    for weight in parameters:
        weight.grad.mul_(min(1.0, limit / (norm + 1e-6)))


def step():
    optimizer.zero_grad()
    model(data).square().mean().backward()
    if FIXED:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    else:
        clip(list(model.parameters()), 1.0)
    optimizer.step()


train(step)
