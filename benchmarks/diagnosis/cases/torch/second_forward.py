"""The metrics run the model a second time on the batch of the loss."""

from training import FIXED, mlp, torch_setup, train, update

RULES = (
    "forward_only",
    "host_operator",
)
CULPRIT = ("metrics", "forward", "Sequential", "aten::addmm", "Linear", "second_forward")
torch = torch_setup()
model, loss = mlp(512, 4), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, targets = torch.rand(256, 512), torch.randint(10, (256,))


def accuracy(scores):
    return (scores.argmax(1) == targets).float().mean()


def step():
    scores = model(data)
    update(optimizer, loss(scores, targets))
    return accuracy(scores if FIXED else model(data))


train(step)
