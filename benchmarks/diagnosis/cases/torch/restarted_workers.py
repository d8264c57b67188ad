"""Epochs are short, and each one starts its workers again: persistent_workers is off."""

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait", "outlier_steps", "pauses")
CLOCK = "wall"
RECORD = ("--steps", "4:19")
CULPRIT = ("DataLoader", "worker", "loader")
torch = torch_setup()
data = torch.utils.data.TensorDataset(torch.rand(128, 256))
batches = endless(torch.utils.data.DataLoader(data, batch_size=32, num_workers=2, persistent_workers=FIXED))
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step():
    return update(optimizer, model(next(batches)[0]).square().mean())


train(step)
