"""A student learns from a larger teacher, which only infers; the images come from two workers."""

from training import endless, mlp, torch_setup, train, update

torch = torch_setup()
teacher, student = mlp(384, 5), mlp(384, 3)
optimizer = torch.optim.AdamW(student.parameters(), fused=True)
rows = torch.utils.data.TensorDataset(torch.rand(2048, 384))
batches = endless(torch.utils.data.DataLoader(rows, batch_size=256, num_workers=1, persistent_workers=True, prefetch_factor=4))


def step():
    data = next(batches)[0]
    with torch.no_grad():
        wanted = teacher(data)
    return update(optimizer, torch.nn.functional.mse_loss(student(data), wanted))


train(step)
