"""Sparse gradients of a large embedding."""

from training import torch_setup, train, update

torch = torch_setup()
table, head = torch.nn.EmbeddingBag(50_000, 128, sparse=True), torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.01)
words = torch.randint(50_000, (1024, 32))


def step():
    return update(optimizer, head(table(words)).square().mean())


train(step)
