"""A mixture of experts: the router sorts tokens by expert, which this model needs."""

from training import torch_setup, train, update

torch = torch_setup()
router, first, second = (
    torch.nn.Linear(128, 4),
    torch.nn.Parameter(torch.rand(4, 128, 512) / 128),
    torch.nn.Parameter(torch.rand(4, 512, 128) / 512),
)
optimizer = torch.optim.AdamW([*router.parameters(), first, second], fused=True)
tokens = torch.rand(1024, 128)


def step():
    shares, chosen = router(tokens).softmax(1).topk(1)
    order = chosen[:, 0].argsort()
    groups = tokens[order].view(4, 256, 128)
    mixed = torch.bmm(torch.bmm(groups, first).relu(), second).view(1024, 128)
    return update(optimizer, (mixed * shares[order]).square().mean())


train(step)
