"""TensorFlow: operations, kernels and steps, through tf.profiler.experimental, whose file (XPlane) stays in the capture for the reader."""

import importlib
from typing import Any

from stepscope.model.captures import Capture
from stepscope.recording.collectors.options import Options, ProfilerActivity, ascend_only


class Collector:
    """From start to stop, one session; another one where the wall clock is set, which TensorFlow uses for timestamps."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def start(self, capture: Capture) -> None:
        tf = _tensorflow()
        self._capture, self._sessions = capture, 0
        self._marker: Any = None
        capture.header |= {"base": "tensorflow", "framework": "tensorflow"}
        capture.header["versions"] = capture.header.get("versions", {}) | {"tensorflow": str(tf.__version__)}
        for notice in _options_without_effect(self._options):
            capture.notice(notice)
        self._begin()

    def _begin(self) -> None:
        tf = _tensorflow()
        settings = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2 if ProfilerActivity.CPU in self._options.activities else 1,
            python_tracer_level=0,
            device_tracer_level=int(ProfilerActivity.GPU in self._options.activities),
        )
        folder = self._capture.folder / "xplane" / f"{self._sessions:06d}"
        self._clock_settings, self._sessions = self._capture.begin_session(), self._sessions + 1
        tf.profiler.experimental.start(str(folder), options=settings)

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
        if self._marker:  # ends after the session, so the incomplete step is not recorded
            self._marker.__exit__(None, None, None)


def _options_without_effect(options: Options) -> list[str]:
    """A notice for each requested option that is not supported here."""
    notices = ascend_only(options)
    notices += [
        f"{name}: TensorFlow does not record this" for name in ("hbm_ddr", "pcie", "record_shapes", "with_flops") if getattr(options, name)
    ]
    return notices


def _tensorflow() -> Any:
    """As Any: TensorFlow is not typed, and not installed where types are checked."""
    return importlib.import_module("tensorflow")
