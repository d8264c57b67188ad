"""An encoder with dropout, gradient clipping, a schedule and a loss that is read every tenth step."""

from training import torch_setup, train

torch = torch_setup()
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, 0.1, batch_first=True)
model = torch.nn.Sequential(torch.nn.Embedding(2000, 128), torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(128, 2000))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
words, log, count = torch.randint(2000, (8, 65)), [], 0


def step():
    global count
    count += 1
    loss = torch.nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if count % 10 == 0:
        log.append(loss.item())
    return loss


train(step)
