"""Attention is written as product, softmax and product; the twin uses the fused operator."""

from training import FIXED, torch_setup, train, update

RULES = ("unfused_attention", "elementwise_chain")
CULPRIT = ("attention", "softmax", "aten::bmm", "aten::matmul")
RECORD = ("--shapes",)
torch = torch_setup()
project = torch.nn.Linear(1024, 3072).cuda().bfloat16()
optimizer = torch.optim.SGD(project.parameters(), lr=1e-4, fused=True)
data = torch.rand(4, 2048, 1024, device="cuda", dtype=torch.bfloat16)


def attention(query, key, value):
    if FIXED:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)
    return (query @ key.transpose(-1, -2) / 8).softmax(-1) @ value


def step():
    parts = (part.reshape(4, 2048, 16, 64).transpose(1, 2) for part in project(data).chunk(3, -1))
    return update(optimizer, attention(*parts).float().square().mean())


train(step, lambda _: torch.cuda.synchronize())
