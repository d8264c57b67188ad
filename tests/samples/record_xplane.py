"""Record the XPlane samples: `python record_xplane.py FOLDER` with jax installed, on a CPU or with a GPU.

One sample is four marked steps of a small network, data-parallel over the devices there are; the other is the same without step
markers and without Python's frames, packed.
"""

import gzip
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Parameters = list[tuple[jax.Array, jax.Array]]


def main(folder: Path) -> None:
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")  # a sample says nothing of where it was recorded
    random = np.random.default_rng(0)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    layers = [(random.normal(0, 0.1, (64, 64)).astype(np.float32), np.zeros(64, np.float32)) for _ in range(2)]
    parameters: Parameters = jax.device_put(layers, whole)
    batch = random.normal(size=(32, 64)).astype(np.float32)
    parameters = _step(parameters, batch, split)
    jax.block_until_ready(parameters)  # compiled and idle
    sample = f"jax-{jax.__version__}-{jax.default_backend()}"
    for mark in (True, False):
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(mark)
        with tempfile.TemporaryDirectory() as there:
            with jax.profiler.trace(there, profiler_options=options):
                for number in range(10, 14):
                    annotation = (
                        jax.profiler.StepTraceAnnotation("train", step_num=number) if mark else jax.profiler.TraceAnnotation("loop body")
                    )
                    with annotation:
                        parameters = _step(parameters, batch, split)
            (found,) = Path(there).rglob("*.xplane.pb")
            target = folder / (f"{sample}/train.xplane.pb" if mark else f"{sample}-no-steps/plain.xplane.pb.gz")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(found.read_bytes() if mark else gzip.compress(found.read_bytes(), mtime=0))


def _step(parameters: Parameters, batch: np.ndarray, split: NamedSharding) -> Parameters:
    with jax.profiler.TraceAnnotation("next_batch"):
        x = jax.device_put(batch, split)
    parameters, loss = train(parameters, x)
    loss.block_until_ready()
    return parameters


@jax.jit
def train(parameters: Parameters, x: jax.Array) -> tuple[Parameters, jax.Array]:
    loss, gradients = jax.value_and_grad(_loss)(parameters, x)
    with jax.named_scope("sgd"):
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), loss


def _loss(parameters: Parameters, x: jax.Array) -> jax.Array:
    with jax.named_scope("mlp"):
        for number, (weight, bias) in enumerate(parameters):
            with jax.named_scope(f"layer{number}"):
                x = jnp.tanh(x @ weight + bias)
    with jax.named_scope("loss"):
        return (x**2).mean()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
