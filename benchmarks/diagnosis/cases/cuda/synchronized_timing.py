"""Timers call torch.cuda.synchronize() around every layer."""

import time

from training import FIXED, torch_setup, train, update

RULES = ("synchronization",)
CULPRIT = ("cudaDeviceSynchronize", "synchronize")
torch = torch_setup()
layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(24)).cuda()
optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4, fused=True)
data = torch.rand(512, 1024, device="cuda")


def step():
    outputs, times = data, []
    for layer in layers:
        start = time.perf_counter()
        outputs = torch.relu(layer(outputs))
        if not FIXED:
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    return update(optimizer, outputs.square().mean())


train(step, lambda _: torch.cuda.synchronize())
