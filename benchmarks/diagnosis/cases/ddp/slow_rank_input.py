"""The samples of rank 1 are longer: its loader decodes four times as much."""

import zlib

from training import FIXED, RANK, ddp, endless, join, mlp, torch_setup, train, update

RULES = ("slow_rank", "input_wait")
CULPRIT = ("rank 1",)
torch = torch_setup()
join()
raw = zlib.compress(bytes(k % 256 for k in range(256)))


class Images(torch.utils.data.Dataset):
    def __getitem__(self, index):
        for _ in range(12 if RANK == 1 and not FIXED else 1):
            sample = torch.tensor([value / 256 for value in zlib.decompress(raw)])
        return sample

    def __len__(self):
        return 512


model = ddp(mlp(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = endless(torch.utils.data.DataLoader(Images(), batch_size=32))


def step():
    return update(optimizer, model(next(batches)).square().mean())


train(step)
