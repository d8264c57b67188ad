"""Words are looked up by a product of one-hot vectors with a table."""

from training import FIXED, torch_setup, train, update

RULES = ("one_hot_product", "host_operator")
CULPRIT = ("one_hot", "aten::scatter", "aten::mm", "aten::matmul")
torch = torch_setup()
table, head = torch.nn.Parameter(torch.rand(8000, 64)), torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD([table, *head.parameters()], lr=0.01)
words = torch.randint(8000, (256,))


def look_up():
    if FIXED:
        return torch.nn.functional.embedding(words, table)
    return torch.nn.functional.one_hot(words, 8000).float() @ table


def step():
    return update(optimizer, head(look_up()).square().mean())


train(step)
