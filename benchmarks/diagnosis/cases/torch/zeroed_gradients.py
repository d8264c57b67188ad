"""zero_grad writes zeros into 64 MB of gradients, which backward then adds to."""

from training import FIXED, torch_setup, train

RULES = ("zero_grad",)
CULPRIT = ("zero_grad", "aten::zero_", "_foreach_zero_")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.rand(4, 2048)


def step():
    optimizer.zero_grad(set_to_none=FIXED)
    model(data).square().mean().backward()
    optimizer.step()


train(step)
