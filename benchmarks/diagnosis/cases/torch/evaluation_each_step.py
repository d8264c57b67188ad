"""The validation set is evaluated after every step; the twin evaluates every 100 steps."""

import itertools

from training import FIXED, mlp, torch_setup, train, update

RULES = (
    "forward_only",
    "host_operator",
)
CULPRIT = ("evaluate", "no_grad", "Sequential", "aten::addmm", "evaluation")
torch = torch_setup()
model, loss = mlp(), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, targets = torch.rand(64, 256), torch.randint(10, (64,))
held_out, numbers = torch.rand(4096, 256), itertools.count(1)


@torch.no_grad()
def evaluate():
    model.eval()
    result = float(model(held_out).argmax(1).float().mean())
    model.train()
    return result


def step():
    update(optimizer, loss(model(data), targets))
    if next(numbers) % (100 if FIXED else 1) == 0:
        evaluate()


train(step)
