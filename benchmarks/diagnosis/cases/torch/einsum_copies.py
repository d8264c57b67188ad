"""Attention heads come last, so that every product permutes and copies its operands; the twin keeps them in front."""

from training import FIXED, torch_setup, train, update

RULES = ("contiguous_copies",)
CULPRIT = ("aten::bmm", "aten::contiguous", "aten::reshape", "aten::einsum")
torch = torch_setup()
weight = torch.nn.Parameter(torch.rand(8, 32, 32) / 32)
optimizer = torch.optim.SGD([weight], lr=0.01, foreach=True)
data = torch.rand(16, 128, 32, 8)
first = data.permute(3, 0, 1, 2).reshape(8, 2048, 32).contiguous()


def step():
    if FIXED:
        x = first
        for _ in range(3):
            x = torch.bmm(x, weight)
    else:
        x = data
        for _ in range(3):
            x = torch.einsum("btdh,hde->bteh", x, weight).contiguous()
    return update(optimizer, x.square().mean())


train(step)
