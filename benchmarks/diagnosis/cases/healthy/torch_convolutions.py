"""A small convolutional network without biases in front of BatchNorm, in channels-last."""

from training import torch_setup, train, update

torch = torch_setup()


def block(before, after):
    return torch.nn.Conv2d(before, after, 3, padding=1, bias=False), torch.nn.BatchNorm2d(after), torch.nn.ReLU()


model = torch.nn.Sequential(*block(3, 16), *block(16, 32), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data = torch.rand(16, 3, 32, 32).to(memory_format=torch.channels_last)
targets, loss = torch.randint(10, (16,)), torch.nn.CrossEntropyLoss()


def step():
    return update(optimizer, loss(model(data), targets))


train(step)
