"""TensorFlow: operations, kernels and steps, through tf.profiler.experimental, whose file (XPlane) stays in the capture for the reader."""

import importlib
from typing import Any

from stepscope.captures import Capture
from stepscope.collect.options import Options, ProfilerActivity, of_ascend_alone


class Collector:
    """From start to stop, one session; another one where the wall clock is set, from which TensorFlow takes its times."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def start(self, capture: Capture) -> None:
        tf = _tensorflow()
        self._capture, self._sessions = capture, 0
        self._marker: Any = None
        capture.header |= {"base": "tensorflow", "framework": "tensorflow"}
        capture.header["versions"] = capture.header.get("versions", {}) | {"tensorflow": str(tf.__version__)}
        for what in _without_effect(self._options):
            capture.notice(what)
        self._begin()

    def _begin(self) -> None:
        tf = _tensorflow()
        chosen = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2 if ProfilerActivity.CPU in self._options.activities else 1,
            python_tracer_level=0,
            device_tracer_level=int(ProfilerActivity.GPU in self._options.activities),
        )
        folder = self._capture.folder / "xplane" / f"{self._sessions:06d}"
        self._clock_settings, self._sessions = self._capture.begin_session(), self._sessions + 1
        tf.profiler.experimental.start(str(folder), options=chosen)

    def step(self, number: int) -> None:
        tf = _tensorflow()
        if self._marker:
            self._marker.__exit__(None, None, None)
        if self._capture.clock_settings != self._clock_settings:
            tf.profiler.experimental.stop()
            self._begin()
        self._marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1)
        self._marker.__enter__()

    def stop(self) -> None:
        tf = _tensorflow()
        tf.profiler.experimental.stop()
        if self._marker:  # ends when nothing is recorded any more: the step that is not over is no step
            self._marker.__exit__(None, None, None)


def _without_effect(options: Options) -> list[str]:
    """What was asked for and cannot be had here."""
    found = of_ascend_alone(options)
    found += [
        f"{name}: TensorFlow does not record this" for name in ("hbm_ddr", "pcie", "record_shapes", "with_flops") if getattr(options, name)
    ]
    return found


def _tensorflow() -> Any:
    """Not typed, and nowhere in our own environment."""
    return importlib.import_module("tensorflow")
