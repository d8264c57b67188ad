"""The causal mask of attention is built element by element in Python in every step; the twin builds it once."""

from training import FIXED, torch_setup, train, update

RULES = ("python_bound",)
CULPRIT = ("aten::chunk", "aten::linear", "mask", "aten::scaled_dot_product_attention")
torch = torch_setup()
projection, head = torch.nn.Linear(64, 192), torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD([*projection.parameters(), *head.parameters()], lr=0.01)
data = torch.rand(8, 96, 64)


def causal_mask(length):
    return torch.tensor([[0.0 if k <= i else float("-inf") for k in range(length)] for i in range(length)])


mask = causal_mask(96)


def step():
    query, key, value = projection(data).chunk(3, -1)
    allowed = mask if FIXED else causal_mask(96)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    return update(optimizer, head(mixed).square().mean())


train(step)
