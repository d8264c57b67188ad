"""A whitening matrix that never changes is inverted in each step; the twin inverts it once."""

from training import FIXED, torch_setup, train, update

RULES = ("host_operator",)
CULPRIT = ("inv", "linalg")
torch = torch_setup()
model = torch.nn.Linear(256, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data = torch.rand(256, 256)
covariance = data.T @ data / 256 + torch.eye(256)
once = torch.linalg.inv(covariance)


def step():
    whitening = once if FIXED else torch.linalg.inv(covariance)
    return update(optimizer, model(data @ whitening).square().mean())


train(step)
