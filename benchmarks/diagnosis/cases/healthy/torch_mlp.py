"""A multilayer perceptron with data in memory."""

from training import mlp, torch_setup, train, update

torch = torch_setup()
model, loss = mlp(512, 4), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data, targets = torch.rand(256, 512), torch.randint(10, (256,))


def step():
    return update(optimizer, loss(model(data), targets))


train(step)
