"""Batches of 100 MB are copied from pageable memory; the twin pins them and copies asynchronously."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("pageable_copies", "host_copies")
CULPRIT = ("pageable", "Memcpy HtoD", "aten::copy_", "aten::to")
torch = torch_setup()
model = mlp(1024, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
batch = torch.rand(24_576, 1024)
batch = batch.pin_memory() if FIXED else batch


def step():
    return update(optimizer, model(batch.to("cuda", non_blocking=FIXED)).square().mean())


train(step, lambda _: torch.cuda.synchronize())
