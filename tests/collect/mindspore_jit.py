"""Trains under mindspore.jit, 20 iterations: mindspore_jit.py graph|pynative LOOP [START]

A `stepscope.Profiler` records from iteration START on; none does where there is no START. The profiler's options come as JSON in OPTIONS.
"""

import json
import os
import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ITERATIONS, BATCH, EVERY = 20, 256, 5

# One call each, by hand. Two Dense layers, ReLU and the loss; of each layer BiasAddGrad and MatMul for the weights, of the second MatMul
# for its input as well, ReluGrad, and the loss; a counter and four parameters.
FORWARD, BACKWARD, UPDATE = 2 + 2 + 1 + 1, 2 + 2 + 1 + 1 + 1, 1 + 4


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Dense(512, 512), nn.ReLU(), nn.Dense(512, 10)

    def construct(self, x):
        return self.last(self.relu(self.first(x)))


def parts():
    """A network of its own with gradient function and optimizer."""
    net, loss = Net(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)

    def forward(x, y):
        return loss(net(x), y)

    return forward, ms.value_and_grad(forward, None, optimizer.parameters), optimizer


def batch(size=BATCH):
    values = np.random.default_rng(size).random((size, 512), np.float32)
    return ms.Tensor(values), ms.Tensor(np.zeros(size, np.int32))


def loop_of(kind):
    """What iteration `number` does."""
    forward, gradient, optimizer = parts()
    x, y = batch()

    @ms.jit
    def train_step(x, y):
        loss, grads = gradient(x, y)
        optimizer(grads)
        return loss

    @ms.jit
    def gradients(x, y):
        return gradient(x, y)

    @ms.jit
    def update(grads):
        return optimizer(grads)

    @ms.jit
    def evaluate(x, y):
        return forward(x, y)

    @ms.jit
    def branching(x, y, number):
        loss, grads = gradient(x, y)
        optimizer(grads)
        if number > 9:
            loss = ops.exp(loss)
        return loss

    def two(number):
        _, grads = gradients(x, y)
        update(grads)

    def eager_update(number):
        _, grads = gradients(x, y)
        optimizer(grads)

    def evaluating(number):
        train_step(x, y)
        if number % EVERY == EVERY - 1:
            evaluate(x, y)

    small = batch(64)

    def recompiling(number):
        train_step(*(small if number in (7, 19) else (x, y)))

    def mixed(number):
        loss = train_step(ops.tanh(x), y)
        ops.exp(loss)

    if kind == "turns":
        _, other_gradient, other_optimizer = parts()

        @ms.jit
        def other_step(x, y):
            loss, grads = other_gradient(x, y)
            other_optimizer(grads)
            return loss

    def turns(number):
        train_step(x, y)
        other_step(x, y)

    return {
        "step": lambda number: train_step(x, y),
        "two": two,
        "eager_update": eager_update,
        "evaluate": evaluating,
        "recompile": recompiling,
        "branch": lambda number: branching(x, y, ms.Tensor(number, ms.int32)),
        "mixed": mixed,
        "turns": turns,
        "infer": lambda number: evaluate(x, y),
    }[kind]


def main():
    mode, kind, *start = sys.argv[1:]
    ms.set_seed(1)
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    profiler = None
    if start:
        from stepscope import Profiler

        profiler = Profiler(output_path="out", start_profile=False, **json.loads(os.environ.get("OPTIONS", "{}")))
    iterate = loop_of(kind)
    for number in range(ITERATIONS):
        if profiler and number == int(start[0]):
            profiler.start()
        iterate(number)
    if profiler:
        profiler.stop()


if __name__ == "__main__":
    main()
