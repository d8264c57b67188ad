"""Gradients of four large micro-batches are accumulated."""

from training import mlp, torch_setup, train

torch = torch_setup()
model = mlp(384, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
parts = torch.rand(4, 256, 384)


def step():
    optimizer.zero_grad()
    for part in parts:
        loss = model(part).square().mean() / 4
        loss.backward()
    optimizer.step()
    return loss


train(step)
