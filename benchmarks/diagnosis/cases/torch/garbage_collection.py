"""Samples are objects with cycles: the collector walks a large heap again and again. The twin freezes it and makes no cycles."""

import gc

from training import FIXED, mlp, torch_setup, train, update

RULES = ("garbage_collection",)
RECORD = ("--stack",)
CULPRIT = ("garbage collector", "garbage collection", "gc.collect")
torch = torch_setup()


class Node:
    def __init__(self, other=None):
        self.other = self if other is None and not FIXED else other


heap = [{"id": i, "tags": [i, i + 1], "node": Node()} for i in range(150_000)]
if FIXED:
    gc.freeze()
    gc.disable()
else:
    gc.set_threshold(700, 5, 5)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(64, 256)


def step():
    nodes = [Node() for _ in range(20_000)]
    update(optimizer, model(data).square().mean())
    return len(nodes)


train(step)
