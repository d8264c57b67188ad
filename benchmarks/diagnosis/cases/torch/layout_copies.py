"""Activations go to channels-last and back around every block: each change copies them."""

from training import FIXED, torch_setup, train, update

RULES = ("layout_conversion", "contiguous_copies", "host_operator")
CULPRIT = ("aten::contiguous", "aten::copy_", "aten::clone", "layout", "contiguous")
torch = torch_setup()


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))

    def forward(self, images):
        if FIXED:
            return torch.relu(images * self.scale[:, None, None])
        rows = images.permute(0, 2, 3, 1).contiguous()
        return torch.relu(rows * self.scale).permute(0, 3, 1, 2).contiguous()


model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(6)), torch.nn.AdaptiveAvgPool2d(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(8, 3, 48, 48)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
