"""The dataset maps a Python function over every pixel, in one worker; the twin stores what it computes."""

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from training import FIXED, endless, train

RULES = ("input_wait",)
CULPRIT = ("map", "Map", "dataset", "pipeline", "input")
rows = np.random.default_rng(0).random((512, 256), np.float32)


def scale(row):
    return np.array([(value - 0.5) * 2 for value in row.tolist()], np.float32)


source = ds.NumpySlicesDataset({"row": [scale(row) for row in rows] if FIXED else rows}, shuffle=False)
if not FIXED:
    source = source.map(scale, "row", num_parallel_workers=1)
source = source.batch(64)
net = nn.SequentialCell(nn.Dense(256, 128), nn.ReLU(), nn.Dense(128, 10))
optimizer = nn.SGD(net.trainable_params(), 0.01)


def forward(data):
    return net(data).square().mean()


gradient = ms.value_and_grad(forward, None, optimizer.parameters)


@ms.jit
def update(data):
    loss, gradients = gradient(data)
    optimizer(gradients)
    return loss


class Epochs:
    def __iter__(self):
        return source.create_tuple_iterator(num_epochs=1)


batches = endless(Epochs())


def step():
    return update(next(batches)[0]).asnumpy()


train(step)
