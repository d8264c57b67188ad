"""A generator and a discriminator, each with its own forward and backward pass, as this method needs."""

from training import mlp, torch_setup, train

torch = torch_setup()
maker, judge = mlp(256, 3, 256), mlp(256, 3, 1)
optimizers = [torch.optim.AdamW(model.parameters(), fused=True) for model in (maker, judge)]
real = torch.rand(256, 256)
loss_of = torch.nn.functional.binary_cross_entropy_with_logits


def step():
    made, ones = maker(torch.randn(256, 256)), torch.ones(256, 1)
    optimizers[1].zero_grad()
    (loss_of(judge(real), ones) + loss_of(judge(made.detach()), 0 * ones)).backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    loss = loss_of(judge(made), ones)
    loss.backward()
    optimizers[0].step()
    return loss


train(step)
