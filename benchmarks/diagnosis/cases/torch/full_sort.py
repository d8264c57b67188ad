"""The five best classes of each row are found by sorting all 8,000 scores."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("host_operator",)
CULPRIT = ("aten::sort", "aten::argsort")
torch = torch_setup()
model = mlp(128, 2, 8000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(128, 128)


def step():
    scores = model(data)
    update(optimizer, scores.square().mean())
    return scores.topk(5, 1).indices if FIXED else scores.argsort(1, descending=True)[:, :5]


train(step)
