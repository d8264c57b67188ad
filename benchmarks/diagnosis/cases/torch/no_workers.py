"""Samples come from storage that answers after a millisecond; the loader waits for each of them in the training process."""

import time

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait",)
CLOCK = "wall"
CULPRIT = ("DataLoader", "num_workers", "loader")
torch = torch_setup()


class Stored(torch.utils.data.Dataset):
    def __getitem__(self, index):
        time.sleep(0.001)  # the latency of an object store
        return torch.full((256,), index / 4096), index % 10

    def __len__(self):
        return 4096


model, loss = mlp(512 // 2, 6), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
workers = {"num_workers": 4, "persistent_workers": True} if FIXED else {}
batches = endless(torch.utils.data.DataLoader(Stored(), batch_size=32, **workers))


def step():
    inputs, targets = next(batches)
    return update(optimizer, loss(model(inputs), targets))


train(step)
