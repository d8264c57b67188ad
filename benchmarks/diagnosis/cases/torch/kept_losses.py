"""A list keeps the loss of every step with its graph: memory grows in each step."""

from training import FIXED, torch_setup, train, update

RULES = ("memory_growth",)
CULPRIT = ("aten::", "grow", "leak", "Linear", "kept")
RECORD = ("--memory",)
GAIN = False  # of memory, not of time
torch = torch_setup()
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, losses = torch.rand(1024, 256), []


def step():
    outputs = model(data)
    losses.append(outputs.mean().item() if FIXED else outputs)
    return update(optimizer, outputs.square().mean())


train(step)
