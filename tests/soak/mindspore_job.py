"""A MindSpore training that is the same to the last bit each time: PyNative mode, a compiled training step, an evaluation every fifth.

`mindspore_job.py --way WAY --steps N`. The last line on stdout is one JSON object: steps, loss_hash, param_hash, rss_start, rss_max,
rss_end, rss_slope, step_ms_median, step_ms_p90.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from job import Training, parse_arguments, recording
from mindspore import nn, ops

BATCH, WIDTH, EVERY = 32, 64, 5


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()
        # No Dropout: on the CPU MindSpore draws other numbers each time, whatever the seed.
        self.hidden, self.head = nn.Dense(4 * 8 * 8, WIDTH), nn.Dense(WIDTH, 10)

    def construct(self, x):  # type: ignore[no-untyped-def]
        x = self.relu(self.norm(self.conv(x)))
        return self.head(self.relu(self.hidden(self.flatten(x))))


class MindSporeTraining(Training):
    def stepped(self, *losses: ms.Tensor) -> bool:
        """A step is over. False when it was the last."""
        for loss in losses:
            self.losses.update(loss.asnumpy().tobytes())
        return self.end_step()

    def finish(self, net: nn.Cell) -> dict[str, Any]:
        values = hashlib.sha256()
        for parameter in net.get_parameters():
            values.update(parameter.asnumpy().tobytes())
        return self.result(values)


def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(5)
    for _ in range(BATCH * 50):
        yield generator.random((1, 8, 8), np.float32), np.array(generator.integers(10), np.int32)


def train(training: MindSporeTraining) -> nn.Cell:
    net, loss_of = Net(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Adam(net.trainable_params(), 1e-3)

    def forward(x, y):  # type: ignore[no-untyped-def]
        return loss_of(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def train_step(x, y):  # type: ignore[no-untyped-def]
        loss, grads = gradient(x, y)
        optimizer(grads)
        return loss

    @ms.jit
    def evaluate(x, y):  # type: ignore[no-untyped-def]
        return forward(x, y)

    data = ds.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(BATCH)
    net.set_train()
    while True:
        for x, y in data.create_tuple_iterator(num_epochs=1):
            losses = [train_step(ops.tanh(x) * 2, y)]
            if training.steps % EVERY == EVERY - 1:
                losses.append(evaluate(x, y))
            if not training.stepped(*losses):
                return net


def main() -> None:
    args = parse_arguments(__doc__, ("mindspore",))
    if args.way == "run" and "STEPSCOPE_RUN" not in os.environ:
        os.execv(sys.executable, [sys.executable, "-m", "stepscope", "run", "--out", args.out, *sys.argv])
    ms.set_seed(11)
    ms.set_context(mode=ms.PYNATIVE_MODE, deterministic="ON")
    training = MindSporeTraining(args)
    with recording(training, args):
        net = train(training)
    print(json.dumps(training.finish(net)))


if __name__ == "__main__":
    main()
