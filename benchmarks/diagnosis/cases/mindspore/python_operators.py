"""PyNative mode: every operator is dispatched by Python; the twin compiles the step with jit."""

import mindspore as ms
import numpy as np
from mindspore import nn
from training import FIXED, train

RULES = ("small_operators", "python_bound", "host_operator", "elementwise_chain")
CULPRIT = ("jit", "PyNative", "compile", "MatMul", "step", "python_operators")
ms.set_context(mode=ms.PYNATIVE_MODE)
net = nn.SequentialCell(*(layer for _ in range(12) for layer in (nn.Dense(64, 64), nn.ReLU())))
optimizer = nn.SGD(net.trainable_params(), 0.01)
data = ms.Tensor(np.ones((16, 64), np.float32))


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)


def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


update = ms.jit(update) if FIXED else update


def step():
    return update(data).asnumpy()


train(step)
