"""Anomaly detection, switched on while debugging, stayed on: it records a stack for each operator and checks each gradient."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("anomaly_detection", "python_bound", "host_operator")
CULPRIT = ("anomaly", "aten::isnan", "aten::any", "isnan", "traceback")
torch = torch_setup()
torch.autograd.set_detect_anomaly(not FIXED)
model = mlp(128, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(32, 128)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
