"""Accuracy is counted with .item() for every sample."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("small_operators", "synchronization", "host_operator", "python_bound", "elementwise_chain")
CULPRIT = ("aten::item", "_local_scalar_dense", "aten::select", "aten::argmax", "item")
torch = torch_setup()
model, loss = mlp(), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, targets = torch.rand(256, 256), torch.randint(10, (256,))


def step():
    scores = model(data)
    update(optimizer, loss(scores, targets))
    if FIXED:
        return (scores.argmax(1) == targets).float().mean()
    return sum(scores[i].argmax().item() == targets[i].item() for i in range(256)) / 256


train(step)
