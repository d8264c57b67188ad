"""32 experts run one after the other in a Python loop; the twin uses one batched product."""

from training import FIXED, torch_setup, train, update

RULES = ("small_operators", "elementwise_chain", "host_operator")
CULPRIT = ("aten::select", "aten::mm", "aten::matmul", "aten::stack", "head_loop", "select", "SelectBackward")
torch = torch_setup()
weights = torch.nn.Parameter(torch.rand(64, 32, 32) / 32)
optimizer = torch.optim.SGD([weights], lr=0.01)
data = torch.rand(64, 16, 32)


def step():
    if FIXED:
        outputs = torch.bmm(data, weights)
    else:
        outputs = torch.stack([data[i] @ weights[i] for i in range(64)])
    return update(optimizer, outputs.relu().square().mean())


train(step)
