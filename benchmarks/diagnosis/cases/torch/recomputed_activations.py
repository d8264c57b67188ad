"""Activation checkpointing is on although memory is plentiful: the forward pass runs twice."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("recomputation", "memory_headroom", "host_operator")
CULPRIT = ("checkpoint", "recompute", "CheckpointFunction", "computed again", "aten::addmm")
torch = torch_setup()
model = mlp(512, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(256, 512)


def step():
    outputs = data
    for layer in model:
        outputs = layer(outputs) if FIXED else torch.utils.checkpoint.checkpoint(layer, outputs, use_reentrant=False)
    return update(optimizer, outputs.square().mean())


train(step)
