"""Metrics of the step are computed outside of the compiled function, operator by operator; the twin compiles them, too."""

import jax
import jax.numpy as jnp
from training import FIXED, train

RULES = ("small_operators",)
CULPRIT = ("metrics", "mul", "sub", "functions", "add", "true_divide", "square", "sum")
weights = [jax.random.normal(key, (128, 128)) / 12 for key in jax.random.split(jax.random.key(0), 3)]
data = jax.random.normal(jax.random.key(1), (64, 128))


@jax.jit
def update(weights, data):
    def loss(weights):
        value = data
        for weight in weights:
            value = jnp.tanh(value @ weight)
        return (value**2).mean(), value

    (value, scores), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients, strict=True)], value, scores


def metrics(scores):
    shares = jnp.exp(scores) / jnp.exp(scores).sum(1, keepdims=True)
    entropy = -(shares * jnp.log(shares)).sum(1).mean()
    spread = ((scores - scores.mean(0)) ** 2).mean(0) ** 0.5
    return entropy + spread.max() - spread.min() + jnp.abs(scores).mean()


compiled = jax.jit(metrics)
number = 0


def step():
    global weights, number
    number += 1
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights, value, scores = update(weights, data)
        figure = (compiled if FIXED else metrics)(scores)
        return (value + figure).block_until_ready()


train(step)
