"""A loader with a worker that is faster than the training."""

from training import endless, mlp, torch_setup, train, update

torch = torch_setup()
dataset = torch.utils.data.TensorDataset(torch.rand(512, 512))
batches = endless(torch.utils.data.DataLoader(dataset, batch_size=128, num_workers=1, persistent_workers=True, prefetch_factor=4))
model = mlp(512, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)


def step():
    return update(optimizer, model(next(batches)[0]).square().mean())


train(step)
