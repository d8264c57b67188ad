"""Batches have the length of their longest text, so that jit compiles again and again; the twin pads to one length."""

import jax
import jax.numpy as jnp
from training import FIXED, train

RULES = ("recompilation", "changing_shapes")
CULPRIT = ("compile", "recompil", "shape", "update")
weights = [jax.random.normal(key, (128, 128)) / 12 for key in jax.random.split(jax.random.key(0), 4)]


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
        weights, value = update(weights, jnp.ones((64 if FIXED else 16 + number, 128)))
        return value.block_until_ready()


train(step)
