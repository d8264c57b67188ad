"""TensorFlow: operations, kernels and steps, through tf.profiler.experimental, whose file (XPlane) stays in the capture for the reader."""

import importlib
from typing import Any

from stepscope.captures import Capture
from stepscope.collect.options import Options, ProfilerActivity


class Collector:
    """From start to stop, one session."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def start(self, capture: Capture) -> None:
        tf = _tensorflow()
        self._marker: Any = None
        capture.header |= {"base": "tensorflow", "framework": "tensorflow"}
        capture.header["versions"] = capture.header.get("versions", {}) | {"tensorflow": str(tf.__version__)}
        chosen = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2 if ProfilerActivity.CPU in self._options.activities else 1,
            python_tracer_level=int(self._options.with_stack),
            device_tracer_level=int(ProfilerActivity.GPU in self._options.activities),
        )
        tf.profiler.experimental.start(str(capture.folder / "xplane" / "000000"), options=chosen)

    def step(self, number: int) -> None:
        tf = _tensorflow()
        if self._marker:
            self._marker.__exit__(None, None, None)
        self._marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1)
        self._marker.__enter__()

    def stop(self) -> None:
        tf = _tensorflow()
        tf.profiler.experimental.stop()
        if self._marker:  # ends when nothing is recorded any more: the step that is not over is no step
            self._marker.__exit__(None, None, None)


def _tensorflow() -> Any:
    """Not typed, and nowhere in our own environment."""
    return importlib.import_module("tensorflow")
