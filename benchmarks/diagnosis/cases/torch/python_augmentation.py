"""Images are flipped and shifted row by row in Python; the twin augments the whole batch with tensor operators."""

from training import FIXED, endless, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "__getitem__", "loader", "augment")
torch = torch_setup()


class Images(torch.utils.data.Dataset):
    data = torch.rand(256, 3, 32, 32)

    def __getitem__(self, index):
        image = self.data[index]
        if FIXED:
            return image
        return torch.stack([torch.stack([row.flip(0).roll(2) for row in channel]) for channel in image])

    def __len__(self):
        return 256


model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 2), torch.nn.Flatten(), torch.nn.LazyLinear(10)
)
model(torch.rand(1, 3, 32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = endless(torch.utils.data.DataLoader(Images(), batch_size=32))


def step():
    images = next(batches)
    if FIXED:
        images = images.flip(3).roll(2, 3)
    return update(optimizer, model(images).square().mean())


train(step)
