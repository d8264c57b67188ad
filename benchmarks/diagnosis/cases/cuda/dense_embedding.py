"""The gradient of an embedding of two million rows is dense; the twin uses sparse gradients."""

from training import FIXED, torch_setup, train, update

RULES = ("sparse_gradient",)
CULPRIT = ("embedding", "aten::embedding_dense_backward", "SGD")
torch = torch_setup()
table = torch.nn.Embedding(2_000_000, 128, sparse=FIXED).cuda()
optimizer = torch.optim.SGD(table.parameters(), lr=0.01)
words = torch.randint(2_000_000, (4096, 16), device="cuda")


def step():
    return update(optimizer, table(words).square().mean())


train(step, lambda _: torch.cuda.synchronize())
