"""empty_cache() in every step: the allocator asks the driver for memory again."""

from training import FIXED, mlp, torch_setup, train, update

RULES = ("allocator_stalls",)
CULPRIT = ("cudaFree", "cudaMalloc", "empty_cache")
RECORD = ("--memory",)
torch = torch_setup()
model = mlp(2048, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(8192, 2048, device="cuda")


def step():
    loss = update(optimizer, model(data).square().mean())
    if not FIXED:
        torch.cuda.empty_cache()
    return loss


train(step, lambda _: torch.cuda.synchronize())
