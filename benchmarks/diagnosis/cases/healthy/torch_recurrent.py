"""A recurrent network with clipped gradients."""

from training import torch_setup, train

torch = torch_setup()
model, head = torch.nn.GRU(64, 128, batch_first=True), torch.nn.Linear(128, 10)
weights = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
data = torch.rand(64, 32, 64)


def step():
    optimizer.zero_grad()
    head(model(data)[0]).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()


train(step)
