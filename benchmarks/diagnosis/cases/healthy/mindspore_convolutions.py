"""A compiled convolutional network."""

import mindspore as ms
import numpy as np
from mindspore import nn
from training import train

net = nn.SequentialCell(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Dense(16 * 256, 10))
optimizer = nn.Momentum(net.trainable_params(), 0.001, 0.9)


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)
data = ms.Tensor(np.ones((16, 3, 32, 32), np.float32))


@ms.jit
def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


def step():
    return update(data).asnumpy()


train(step)
