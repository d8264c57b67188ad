"""A penalty on the largest singular value of each weight decomposes them all in every step; the twin does so every 100 steps."""

from training import FIXED, torch_setup, train, update

RULES = ("host_operator",)
CULPRIT = ("linalg", "svd")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(96, 96) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data, count = torch.rand(512, 96), 0


def step():
    global count
    count += 1
    loss = model(data).square().mean()
    if count % (100 if FIXED else 1) == 0:
        for layer in model:
            with torch.no_grad():
                torch.linalg.matrix_norm(layer.weight, 2)
    return update(optimizer, loss)


train(step)
