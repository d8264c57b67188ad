"""The loss is computed row by row in a Python loop; the twin uses one operator for the batch."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("small_operators", "elementwise_chain", "host_operator", "python_bound")
CULPRIT = ("aten::select", "select", "row_loop", "aten::cross_entropy_loss", "step")
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, targets = torch.rand(128, 256), torch.randint(10, (128,))
cross_entropy = torch.nn.functional.cross_entropy


def step():
    scores = model(data)
    if FIXED:
        loss = cross_entropy(scores, targets)
    else:
        loss = sum(cross_entropy(scores[i], targets[i]) for i in range(len(scores))) / len(scores)
    return update(optimizer, loss)


train(step)
