"""Convolutions in front of BatchNorm have a bias, which the normalization removes again."""

from training import FIXED, torch_setup, train, update

RULES = ("bias_before_norm",)
CULPRIT = ("bias", "Conv2d", "conv")
RECORD = ("--shapes",)
torch = torch_setup()


def block(before, after):
    return torch.nn.Conv2d(before, after, 1, bias=not FIXED), torch.nn.BatchNorm2d(after), torch.nn.ReLU()


model = torch.nn.Sequential(*block(3, 16), *block(16, 16), *block(16, 16), *block(16, 16), torch.nn.AdaptiveAvgPool2d(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(16, 3, 48, 48)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
