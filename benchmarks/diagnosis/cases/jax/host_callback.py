"""The compiled step calls back into Python to normalize the batch; the twin normalizes with jax.numpy."""

import jax
import jax.numpy as jnp
import numpy as np
from training import FIXED, train

RULES = ("python_bound", "host_operator")
CULPRIT = ("callback", "host_callback", "normalize")
weights = [jax.random.normal(key, (256, 256)) / 16 for key in jax.random.split(jax.random.key(0), 4)]
data = jnp.ones((128, 256))


def on_host(values):
    return np.stack([(row - row.mean()) / (row.std() + 1) for row in np.asarray(values)]).astype(np.float32)


def normalize(values):
    if FIXED:
        return (values - values.mean(1, keepdims=True)) / (values.std(1, keepdims=True) + 1)
    return jax.pure_callback(on_host, jax.ShapeDtypeStruct(values.shape, values.dtype), values)


def loss(weights, data):
    for weight in weights:
        data = jnp.tanh(data @ weight)
    return (data**2).mean()


@jax.jit
def update(weights, data):
    value, gradients = jax.value_and_grad(loss)(weights, normalize(data))
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients, strict=True)], value


number = 0


def step():
    global weights, number
    number += 1
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights, value = update(weights, data)
        return value.block_until_ready()


train(step)
