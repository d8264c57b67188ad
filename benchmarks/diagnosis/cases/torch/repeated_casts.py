"""Every layer converts its activations to bfloat16 and back."""

from training import FIXED, torch_setup, train, update

RULES = ("type_conversion", "host_operator", "contiguous_copies")
CULPRIT = ("aten::to", "aten::_to_copy", "aten::copy_", "ToCopyBackward")
torch = torch_setup()


class Layer(torch.nn.Linear):
    def forward(self, values):
        if not FIXED:
            values = values.to(torch.bfloat16).to(torch.float32)
        return torch.relu(super().forward(values))


model = torch.nn.Sequential(*(Layer(64, 64) for _ in range(8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(8192, 64)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
