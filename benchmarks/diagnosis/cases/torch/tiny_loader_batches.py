"""The loader returns single samples, and the step joins 64 of them; the twin lets the loader make the batch."""

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "loader", "batch")
torch = torch_setup()
model = mlp(128, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
rows = torch.utils.data.TensorDataset(torch.rand(4096, 128))
batches = endless(torch.utils.data.DataLoader(rows, batch_size=64 if FIXED else 1))


def next_batch():
    return next(batches)[0] if FIXED else torch.cat([next(batches)[0] for _ in range(64)])


def step():
    return update(optimizer, model(next_batch()).square().mean())


train(step)
