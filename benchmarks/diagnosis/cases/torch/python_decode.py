"""Every sample is decompressed and scaled in Python, in the training process."""

import zlib

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "__getitem__", "loader")
torch = torch_setup()


class Images(torch.utils.data.Dataset):
    def __init__(self):
        self.raw = [zlib.compress(bytes((i * 7 + k) % 256 for k in range(256))) for i in range(512)]
        self.ready = torch.stack([self.decode(i) for i in range(512)])

    def decode(self, index):
        return torch.tensor([(value - 128) / 128 for value in zlib.decompress(self.raw[index])])

    def __getitem__(self, index):
        return (self.ready[index] if FIXED else self.decode(index)), index % 10

    def __len__(self):
        return 512


model, loss = mlp(), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = endless(torch.utils.data.DataLoader(Images(), batch_size=128, shuffle=True))


def step():
    inputs, targets = next(batches)
    return update(optimizer, loss(model(inputs), targets))


train(step)
