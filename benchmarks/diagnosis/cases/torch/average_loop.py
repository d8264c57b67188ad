"""The moving average of the weights is updated tensor by tensor in Python; the twin uses one call for all."""

import copy

from training import FIXED, torch_setup, train, update

RULES = ("small_operators", "elementwise_chain", "python_bound", "host_operator")
CULPRIT = ("aten::mul_", "aten::add_", "aten::mul", "average", "aten::copy_", "aten::add")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(150)))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
data = torch.rand(8, 32)


@torch.no_grad()
def update_average():
    if FIXED:
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
        return
    state = dict(model.named_parameters())
    for name, kept in average.named_parameters():
        kept.copy_(0.99 * kept + 0.01 * state[name].data)


def step():
    update(optimizer, model(data).square().mean())
    update_average()


train(step)
