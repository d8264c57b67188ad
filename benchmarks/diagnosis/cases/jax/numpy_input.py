"""Every batch is cut and shuffled in numpy row by row before the compiled step; the twin indexes once."""

import jax
import jax.numpy as jnp
import numpy as np
from training import FIXED, train

RULES = ("input_wait", "python_bound", "host_operator")
CULPRIT = ("batch", "input", "numpy_input", "roll")
weights = [jax.random.normal(key, (256, 256)) / 16 for key in jax.random.split(jax.random.key(0), 4)]
rows, random = np.random.default_rng(0).random((4096, 256), np.float32), np.random.default_rng(1)


def next_batch():
    chosen = random.integers(0, 4096, 256)
    if FIXED:
        return np.roll(rows[chosen], 1, 1)
    return np.stack([np.roll(rows[index], 1) for index in chosen])


def loss(weights, data):
    for weight in weights:
        data = jnp.tanh(data @ weight)
    return (data**2).mean()


@jax.jit
def update(weights, data):
    value, gradients = jax.value_and_grad(loss)(weights, data)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients, strict=True)], value


number = 0


def step():
    global weights, number
    number += 1
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights, value = update(weights, next_batch())
        return value.block_until_ready()


train(step)
