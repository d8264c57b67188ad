"""400 tiny operators per step: the GPU waits for the host to launch them. The twin compiles the step into CUDA graphs."""

from training import FIXED, torch_setup, train, update

RULES = ("small_operators", "launch_bound", "elementwise_chain", "host_operator")
CULPRIT = ("launch", "aten::", "graph")
torch = torch_setup()
model = torch.nn.Sequential(*(layer for _ in range(60) for layer in (torch.nn.Linear(128, 128), torch.nn.GELU()))).cuda()
model = torch.compile(model, mode="reduce-overhead") if FIXED else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(64, 128, device="cuda")


def step():
    return update(optimizer, model(data).square().mean())


train(step, lambda _: torch.cuda.synchronize())
