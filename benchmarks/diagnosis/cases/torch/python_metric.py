"""A metric converts all scores to Python lists and computes with numbers one by one."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("python_bound", "synchronization", "host_operator")
CULPRIT = ("metric", "tolist", "python_metric", "entropy")
RECORD = ("--stack",)
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(512, 256)


def entropy(scores):
    if FIXED:
        return float(-(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean())
    import math

    total = 0.0
    for row in scores.tolist():
        weights = [math.exp(value) for value in row]
        whole = sum(weights)
        total -= sum(weight / whole * math.log(weight / whole) for weight in weights)
    return total / len(scores)


def step():
    scores = model(data)
    update(optimizer, scores.square().mean())
    return entropy(scores.detach())


train(step)
