"""All weights are fetched to the host and summarized with numpy in every step; the twin does so every 100 steps."""

import jax
import jax.numpy as jnp
import numpy as np
from training import FIXED, train

RULES = ("host_copies", "synchronization", "python_bound", "host_operator")
CULPRIT = ("device_get", "fetch", "numpy", "np.asarray", "fetched_weights", "summary", "partition", "percentile")
weights = [jax.random.normal(key, (384, 384)) / 20 for key in jax.random.split(jax.random.key(0), 6)]
data = jnp.ones((64, 384))


def loss(weights, data):
    for weight in weights:
        data = jnp.tanh(data @ weight)
    return (data**2).mean()


@jax.jit
def update(weights, data):
    value, gradients = jax.value_and_grad(loss)(weights, data)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients, strict=True)], value


def summary():
    return [np.percentile(jax.device_get(weight), (5, 50, 95)) for weight in weights]


number = 0


def step():
    global weights, number
    number += 1
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights, value = update(weights, data)
        if number % (100 if FIXED else 1) == 0:
            summary()
        return value.block_until_ready()


train(step)
