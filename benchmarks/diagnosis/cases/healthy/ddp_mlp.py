"""Two equal ranks with the buckets that DistributedDataParallel chooses."""

from training import ddp, join, mlp, torch_setup, train, update

torch = torch_setup()
join()
model = ddp(mlp(384, 4), gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
data = torch.rand(512, 384)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
