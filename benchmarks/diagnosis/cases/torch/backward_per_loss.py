"""Each of four losses has its own backward pass through the shared trunk (retain_graph); the twin adds them first."""

from training import FIXED, mlp, torch_setup, train

RULES = ("repeated_backward",)
CULPRIT = ("backward", "AddmmBackward0")
torch = torch_setup()
trunk, heads = mlp(256, 4, 64), torch.nn.ModuleList(torch.nn.Linear(64, 8) for _ in range(4))
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.01, foreach=True)
data = torch.rand(256, 256)


def step():
    features = trunk(data)
    losses = [head(features).square().mean() for head in heads]
    optimizer.zero_grad()
    if FIXED:
        sum(losses).backward()
    else:
        for loss in losses:
            loss.backward(retain_graph=True)
    optimizer.step()
    return losses[0]


train(step)
