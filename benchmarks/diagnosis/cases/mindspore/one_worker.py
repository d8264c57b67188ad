"""Samples come from storage that answers after a millisecond, to one worker of the dataset; the twin has one per core."""

import os
import time

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from training import FIXED, endless, train

RULES = ("input_wait",)
CLOCK = "wall"
CULPRIT = ("Generator", "worker", "dataset", "pipeline", "input")


class Stored:
    def __getitem__(self, index):
        time.sleep(0.001)  # the latency of an object store
        return np.full(256, index / 4096, np.float32)

    def __len__(self):
        return 4096


workers = min(os.cpu_count() or 1, 6) if FIXED else 1
source = ds.GeneratorDataset(Stored(), ["row"], shuffle=False, num_parallel_workers=workers, python_multiprocessing=False).batch(32)
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
