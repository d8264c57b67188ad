"""A regularizer draws new Gaussian noise for the whole batch and every layer; the twin draws it once and shifts it."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("host_operator", "tensor_on_cpu")
CULPRIT = ("aten::normal_", "aten::randn")
torch = torch_setup()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, drawn = torch.rand(1024, 256), torch.randn(6, 1024, 256)


def noise(layer):
    return drawn[layer].roll(1, 0) if FIXED else torch.randn(1024, 256)


def step():
    inputs = data
    for layer in range(6):
        inputs = inputs + 0.01 * noise(layer)
    return update(optimizer, model(inputs).square().mean())


train(step)
