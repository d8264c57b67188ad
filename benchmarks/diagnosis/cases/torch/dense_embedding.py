"""The gradient of an embedding of 100,000 rows is dense, and the optimizer updates all of it for 256 rows."""

from training import FIXED, torch_setup, train, update

RULES = ("sparse_gradient", "host_operator")
CULPRIT = ("aten::embedding_dense_backward", "EmbeddingBackward", "Embedding", "embedding", "aten::_foreach_add_", "SGD")
torch = torch_setup()
table = torch.nn.Embedding(100_000, 64, sparse=FIXED)
head = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.01)
words = torch.randint(100_000, (256, 16))


def step():
    return update(optimizer, head(table(words)).square().mean())


train(step)
