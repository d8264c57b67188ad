"""The norm of every activation is logged with .item(): the host waits for the GPU in each layer."""

from training import FIXED, torch_setup, train, update

RULES = ("synchronization",)
CULPRIT = ("aten::item", "_local_scalar_dense", "cudaStreamSynchronize", "item")
torch = torch_setup()
layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(24)).cuda()
optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4, fused=True)
data = torch.rand(512, 1024, device="cuda")


def step():
    outputs, norms = data, []
    for layer in layers:
        outputs = torch.relu(layer(outputs))
        norms.append(outputs.detach().norm() if FIXED else outputs.norm().item())
    return update(optimizer, outputs.square().mean())


train(step, lambda _: torch.cuda.synchronize())
