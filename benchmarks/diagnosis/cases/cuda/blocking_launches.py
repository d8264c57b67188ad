"""CUDA_LAUNCH_BLOCKING=1 was left over from debugging."""

import os

from training import FIXED, torch_setup, train, update

os.environ["CUDA_LAUNCH_BLOCKING"] = "0" if FIXED else "1"
RULES = ("blocking_launch", "synchronization")
CULPRIT = ("LAUNCH_BLOCKING", "launch", "cudaLaunchKernel")
torch = torch_setup()
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(40))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(512, 1024, device="cuda")


def step():
    return update(optimizer, model(data).square().mean())


train(step, lambda _: torch.cuda.synchronize())
