"""Trains a small network on JAX: jax_job.py FOLDER OPTIONS(JSON) [BYTES_OF_A_SESSION]

Leaves FOLDER/job.capture and, in FOLDER/times.json, the moments around each step.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from stepscope.model import captures
from stepscope.recording.collectors import jax as collect
from stepscope.recording.collectors import options as choices

FIRST, STEPS = 10, 4


@jax.jit
def train(weights: jax.Array, batch: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        with jax.named_scope("layer"):
            return (jnp.tanh(batch @ weights) ** 2).mean()

    return weights - 0.1 * jax.grad(loss)(weights)


def main(folder: Path, options: str, held: str = "") -> None:
    if held:
        collect._HELD = int(held)
    weights, batch = jnp.ones((64, 64)), jnp.ones((32, 64))
    train(weights, batch).block_until_ready()
    capture = captures.Capture(folder / "job.capture", {"rank": 3, "pid": 1, "program": "job"})
    collector = collect.Collector(choices.parse(json.loads(options)))
    collector.start(capture)
    times = []
    for number in range(FIRST, FIRST + STEPS):
        collector.step(number)
        times.append(time.time_ns())
        weights = train(weights, batch)
        weights.block_until_ready()
        times.append(time.time_ns())
    collector.step(FIRST + STEPS)
    collector.stop()
    capture.finish()
    (folder / "times.json").write_text(json.dumps(times))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
