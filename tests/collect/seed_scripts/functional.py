"""A loop of one's own, without a profiler: `python functional.py jit`, eager or cell."""

import sys

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from network import Net, generator

net = Net()
loss_fn = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(net.trainable_params(), 1, 0.9)


def forward_fn(data, label):
    return loss_fn(net(data), label)


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)


def train_step(data, label):
    loss, grads = grad_fn(data, label)
    optimizer(grads)
    return loss


if sys.argv[1] == "jit":
    train_step = ms.jit(train_step)
if sys.argv[1] == "cell":
    train_step = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer)
for data in ds.GeneratorDataset(generator, ["data", "label"]).batch(1).create_dict_iterator():
    train_step(data["data"][0], data["label"][0])
