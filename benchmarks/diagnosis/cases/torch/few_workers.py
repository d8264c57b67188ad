"""One worker waits for storage sample by sample, and the training waits for the worker."""

import time

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait",)
CLOCK = "wall"
CULPRIT = ("DataLoader", "worker", "loader")
torch = torch_setup()


class Stored(torch.utils.data.Dataset):
    def __getitem__(self, index):
        time.sleep(0.001)  # the latency of an object store
        return torch.full((256,), index / 4096), index % 10

    def __len__(self):
        return 4096


model, loss = mlp(depth=6), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Stored(), batch_size=32, num_workers=6 if FIXED else 1, persistent_workers=True)
batches = endless(loader)


def step():
    inputs, targets = next(batches)
    return update(optimizer, loss(model(inputs), targets))


train(step)
