"""A recurrent network calls its cell once per time step; the twin uses the fused operator."""

from training import FIXED, torch_setup, train, update

RULES = ("small_operators",)
CULPRIT = ("lstm", "cell", "select", "linear", "addmm")
torch = torch_setup()
cell, fused, head = torch.nn.LSTMCell(32, 32), torch.nn.LSTM(32, 32), torch.nn.Linear(32, 4)
used = fused if FIXED else cell
optimizer = torch.optim.SGD([*used.parameters(), *head.parameters()], lr=0.01, foreach=True)
data = torch.rand(64, 8, 32)


def last_state():
    if FIXED:
        return fused(data)[0][-1]
    state = None
    for row in data:
        state = cell(row, state)
    return state[0]


def step():
    return update(optimizer, head(last_state()).square().mean())


train(step)
