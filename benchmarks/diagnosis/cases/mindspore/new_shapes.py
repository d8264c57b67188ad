"""Batches have the length of their longest text, so that the graph is compiled again and again; the twin pads to one length."""

import itertools

import mindspore as ms
import numpy as np
from mindspore import nn
from training import FIXED, train

RULES = ("recompilation", "changing_shapes")
CULPRIT = ("compile", "recompil", "shape")
net = nn.SequentialCell(nn.Dense(128, 128), nn.ReLU(), nn.Dense(128, 10))
optimizer = nn.SGD(net.trainable_params(), 0.01)


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)
numbers = itertools.count(17)


@ms.jit
def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


def step():
    return update(ms.Tensor(np.ones((64 if FIXED else next(numbers), 128), np.float32))).asnumpy()


train(step)
