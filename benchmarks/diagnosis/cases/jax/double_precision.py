"""x64 is enabled for one metric, and the whole training runs in float64."""

import jax
import jax.numpy as jnp
from training import FIXED, train

RULES = ("double_precision", "mixed_precision")
CULPRIT = ("float64", "f64", "double", "dot", "fusion", "64 bits")
jax.config.update("jax_enable_x64", not FIXED)
weights = [jax.random.normal(key, (512, 512)) / 22 for key in jax.random.split(jax.random.key(0), 4)]
data = jnp.ones((256, 512))


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
        weights, value = update(weights, data)
        return value.block_until_ready()


train(step)
