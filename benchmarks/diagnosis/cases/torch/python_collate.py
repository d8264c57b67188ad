"""The collate function pads texts token by token in Python."""

from training import FIXED, endless, torch_setup, train, update

RULES = ("input_wait",)
CULPRIT = ("DataLoader", "collate", "loader")
torch = torch_setup()
texts = [torch.randint(1, 1000, (40 + i % 60,)) for i in range(512)]


def collate(batch):
    longest = max(len(text) for text in batch)
    return torch.tensor([[int(text[k]) if k < len(text) else 0 for k in range(longest)] for text in batch])


def padded(batch):
    return torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)


model = torch.nn.Sequential(torch.nn.EmbeddingBag(1000, 64), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = endless(torch.utils.data.DataLoader(texts, batch_size=32, collate_fn=padded if FIXED else collate))


def step():
    return update(optimizer, model(next(batches)).square().mean())


train(step)
