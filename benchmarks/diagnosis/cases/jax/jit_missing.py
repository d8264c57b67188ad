"""The training step is not compiled: every operation is dispatched by Python."""

import jax
import jax.numpy as jnp
from training import FIXED, train

RULES = ("small_operators", "host_operator", "python_bound", "elementwise_chain")
CULPRIT = ("jit", "compile", "jit_missing", "dispatch", "dot_general", "step")
keys = jax.random.split(jax.random.key(0), 6)
weights = [jax.random.normal(key, (128, 128)) / 12 for key in keys]
data = jnp.ones((32, 128))


def loss(weights, data):
    for weight in weights:
        data = jnp.tanh(data @ weight)
    return (data**2).mean()


def update(weights, data):
    value, gradients = jax.value_and_grad(loss)(weights, data)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients, strict=True)], value


update = jax.jit(update) if FIXED else update
number = 0


def step():
    global weights, number
    number += 1
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights, value = update(weights, data)
        return value.block_until_ready()


train(step)
