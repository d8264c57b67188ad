"""A denoiser, which needs new noise for every batch."""

from training import torch_setup, train, update

torch = torch_setup()
layers = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.SiLU()]
model = torch.nn.Sequential(*layers, torch.nn.Conv2d(32, 3, 3, padding=1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
images = torch.rand(16, 3, 32, 32)


def step():
    noise, time = torch.randn_like(images), torch.rand(16, 1, 1, 1)
    noisy = time.sqrt() * images + (1 - time).sqrt() * noise
    return update(optimizer, torch.nn.functional.mse_loss(model(noisy), noise))


train(step)
