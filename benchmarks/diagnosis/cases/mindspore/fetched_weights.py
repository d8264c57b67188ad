"""All weights are fetched to the host and summarized with numpy in every step; the twin does so every 100 steps."""

import itertools

import mindspore as ms
import numpy as np
from mindspore import nn
from training import FIXED, train

RULES = ("host_copies", "synchronization", "python_bound", "host_operator")
CULPRIT = ("asnumpy", "summary", "percentile", "fetched_weights", "step")
net = nn.SequentialCell(*(nn.Dense(384, 384) for _ in range(6)))
optimizer = nn.SGD(net.trainable_params(), 0.001)


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)
data, numbers = ms.Tensor(np.ones((64, 384), np.float32)), itertools.count(1)


@ms.jit
def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


def summary():
    return [np.percentile(weight.asnumpy(), (5, 50, 95)) for weight in net.trainable_params()]


def step():
    loss = update(data).asnumpy()
    if next(numbers) % (100 if FIXED else 1) == 0:
        summary()
    return loss


train(step)
