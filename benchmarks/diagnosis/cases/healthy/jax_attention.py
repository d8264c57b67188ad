"""A compiled attention layer."""

import jax
import jax.numpy as jnp
from training import train

weights = [jax.random.normal(key, (128, 128)) / 12 for key in jax.random.split(jax.random.key(0), 4)]
data = jnp.ones((8, 128, 128))


def loss(weights, data):
    query, key, value = (data @ weight for weight in weights[:3])
    mixed = jax.nn.softmax(query @ key.transpose(0, 2, 1) / 11.3) @ value
    return ((mixed @ weights[3]) ** 2).mean()


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
