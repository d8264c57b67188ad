"""Computes for six steps and sets its wall clock in the fourth, once for each number: clock_job.py FRAMEWORK FOLDER SECONDS..."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any


def product(framework: str) -> Callable[[], Any]:
    """One operator, run to its end."""
    if framework == "torch":
        import torch

        matrix = torch.ones(64, 64)
        return lambda: matrix @ matrix
    if framework == "jax":
        import jax

        compute = jax.jit(lambda matrix: matrix @ matrix)
        ones = jax.numpy.ones((64, 64))
        return lambda: compute(ones).block_until_ready()
    if framework == "tensorflow":
        import tensorflow as tf

        square = tf.ones((64, 64))
        return lambda: tf.matmul(square, square).numpy()
    import mindspore
    import numpy as np

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    tensor = mindspore.Tensor(np.ones((64, 64), np.float32))
    return lambda: mindspore.ops.matmul(tensor, tensor).asnumpy()


def set_clock(seconds: float) -> None:
    with open(os.environ["WALL_CLOCK_AHEAD_NS"], "r+b") as file:  # noqa: PTH123  one write
        file.write(round(seconds * 1e9).to_bytes(8, "little", signed=True))


def record(compute: Callable[[], Any], framework: str, seconds: float, folder: str) -> None:
    from stepscope import Profiler, record_function

    profiler = Profiler(output_path=folder, framework=framework)
    for number in range(6):
        with record_function(f"around {number}"):
            compute()
            if number == 3:
                set_clock(seconds)
            compute()
            time.sleep(0.02)
        profiler.step()
    profiler.analyse()
    set_clock(0)


def main(framework: str, folder: str, *settings: str) -> None:
    compute = product(framework)
    compute()
    for seconds in settings:
        record(compute, framework, float(seconds), f"{folder}/{seconds}")


if __name__ == "__main__":
    main(*sys.argv[1:])
