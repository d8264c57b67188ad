"""Samples are decoded in the training process; the GPU waits for them. The twin has workers and pins memory."""

from training import FIXED, endless, mlp, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "loader")
torch = torch_setup()


class Images(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return torch.tensor([(index * 31 + k) % 256 / 256 for k in range(1024)])

    def __len__(self):
        return 65_536


model = mlp(1024, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
workers = {"num_workers": 12, "persistent_workers": True, "pin_memory": True} if FIXED else {}
batches = endless(torch.utils.data.DataLoader(Images(), batch_size=256, **workers))


def step():
    return update(optimizer, model(next(batches).to("cuda", non_blocking=True)).square().mean())


train(step, lambda _: torch.cuda.synchronize())
