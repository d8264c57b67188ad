"""An encoder of two layers with fused attention and a fused optimizer."""

from training import torch_setup, train, update

torch = torch_setup()
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
data = torch.rand(8, 64, 128)


def step():
    return update(optimizer, model(data).square().mean())


train(step)
