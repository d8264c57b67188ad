"""Attention is written as matrix product, mask, softmax and product; the twin uses the fused operator."""

import math

from training import FIXED, torch_setup, train, update

RULES = ("unfused_attention", "elementwise_chain")
CULPRIT = ("attention", "softmax", "scaled_dot_product", "aten::bmm", "baddbmm")
RECORD = ("--shapes",)
torch = torch_setup()
project, head = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD([*project.parameters(), *head.parameters()], lr=0.01)
data, hidden = torch.rand(4, 384, 64), torch.full((384, 384), -math.inf).triu(1)


def attention(query, key, value):
    if FIXED:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + hidden
    return scores.softmax(-1) @ value


def step():
    query, key, value = (part.reshape(4, 384, 4, 16).transpose(1, 2) for part in project(data).chunk(3, -1))
    mixed = attention(query, key, value).transpose(1, 2).reshape(4, 384, 64)
    return update(optimizer, head(mixed).square().mean())


train(step)
