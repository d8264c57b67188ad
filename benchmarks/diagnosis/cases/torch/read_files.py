"""Every sample is a JSON file that is opened and parsed when it is needed, in the training process."""

import json
import tempfile
from pathlib import Path

from training import FIXED, endless, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "loader", "training thread")
torch = torch_setup()
folder = Path(tempfile.mkdtemp())
for index in range(256):
    (folder / f"{index}.json").write_text(json.dumps([[(index * k) % 17 / 17 for k in range(64)] for _ in range(16)]))


class Samples(torch.utils.data.Dataset):
    kept = [torch.tensor(json.loads((folder / f"{index}.json").read_text())) for index in range(256)] if FIXED else []

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return self.kept[index] if FIXED else torch.tensor(json.loads((folder / f"{index}.json").read_text()))


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1024, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
batches = endless(torch.utils.data.DataLoader(Samples(), batch_size=32, shuffle=True))


def step():
    return update(optimizer, model(next(batches)).square().mean())


train(step)
