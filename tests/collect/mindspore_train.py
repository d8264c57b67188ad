"""Trains LeNet on MindSpore, recorded by its collector alone: mindspore_train.py OUT JSON

JSON holds the arguments of `main`; what it does not know is an option of the recording.
"""

import json
import os
import signal
import sys
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn

from stepscope.model import captures
from stepscope.recording.collectors.mindspore import collector as collect
from stepscope.recording.collectors.options import Options

BATCH, STEPS = 8, 4


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(400, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc3(self.relu(self.fc2(x)))


def rows():
    for number in range(BATCH * STEPS):
        yield np.full((1, 32, 32), number / 10, np.float32), np.array(number % 10, np.int32)


class Window:
    """What a stepscope.Profiler does with the collector."""

    def __init__(self, out, **options):
        self.out, self.options, self.count = Path(out), Options(**options), 0
        self.rank = int(os.environ.get("RANK_ID", "0"))
        collect.prepare(self.options)

    def start(self, step=0):
        self.capture = captures.Capture(self.out / f"{self.count}_rank{self.rank}.capture", {"rank": self.rank, "pid": os.getpid()})
        self.count += 1
        self.collector = collect.Collector(self.options)
        self.collector.start(self.capture)
        self.number = step
        self.collector.step(step)

    def step(self):
        self.number += 1
        self.collector.step(self.number)

    def stop(self):
        self.collector.stop()
        self.capture.finish()


class Conditional(ms.train.Callback):
    """As MindSpore's documentation profiles some steps only."""

    def __init__(self, window, first, last):
        super().__init__()
        self.window, self.first, self.last = window, first, last

    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num == self.first:
            self.window.start()

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == self.last:
            self.window.stop()


def main(
    out,
    *,
    mode,
    loop="model",
    blocking=False,
    only=None,
    twice=False,
    late=False,
    evaluate=False,
    marks=None,
    piece_ns=None,
    killed=False,
    **options,
):
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    if piece_ns is not None:
        collect._PIECE_NS = piece_ns
    if blocking:
        ms.runtime.launch_blocking()
    window = None if late else Window(out, **options)
    net = LeNet()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    data = ds.GeneratorDataset(rows, ["x", "y"], shuffle=False)
    data = data.map(lambda x: x * np.float32(0.5), ["x"], num_parallel_workers=2).batch(BATCH, num_parallel_workers=1)
    train = trainer(loop, net, loss, optimizer, data, evaluate)
    if late:  # the profiler is there when graphs have been compiled and data flows
        train([])
        window = Window(out, **options)
    if only:
        train([Conditional(window, *only)])
        return
    for _ in range(2 if twice else 1):
        window.start(marks or 0)
        train([], window if marks else None)
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        window.stop()


def trainer(loop, net, loss, optimizer, data, evaluate):
    def forward(x, y):
        return loss(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        value, grads = gradient(x, y)
        optimizer(grads)
        return value

    def by_model(callbacks, window=None):
        model.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
        if evaluate:
            model.eval(data, dataset_sink_mode=False)

    def by_hand(callbacks, window=None):
        for x, y in data.create_tuple_iterator(num_epochs=1):
            float(call(x, y))
            if window:
                window.step()

    if loop == "model":
        model = ms.train.Model(net, loss, optimizer, metrics={"loss"} if evaluate else None)
        return by_model
    if loop == "functional":
        call = step
    elif loop == "cell":
        call = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    else:
        call = ms.jit(step)
    return by_hand


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
