"""Convolutions in half precision run in NCHW, so that cuDNN transposes; the twin uses channels_last."""

from training import FIXED, torch_setup, train, update

RULES = ("layout_conversion",)
CULPRIT = ("nchwToNhwc", "nhwcToNchw", "layout", "channels_last")
torch = torch_setup()
blocks = (torch.nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(12))
layout = torch.channels_last if FIXED else torch.contiguous_format
model = torch.nn.Sequential(*blocks).cuda().half().to(memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, fused=True)
data = torch.rand(64, 64, 56, 56, device="cuda", dtype=torch.half).to(memory_format=layout)


def step():
    return update(optimizer, model(data).float().square().mean())


train(step, lambda _: torch.cuda.synchronize())
