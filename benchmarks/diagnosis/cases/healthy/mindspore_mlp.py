"""A compiled step with data in memory."""

import mindspore as ms
import numpy as np
from mindspore import nn
from training import train

net = nn.SequentialCell(*(layer for _ in range(4) for layer in (nn.Dense(512, 512), nn.ReLU())))
optimizer = nn.SGD(net.trainable_params(), 0.001)


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)
data = ms.Tensor(np.ones((256, 512), np.float32))


@ms.jit
def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


def step():
    return update(data).asnumpy()


train(step)
