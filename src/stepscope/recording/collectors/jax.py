"""JAX: operations, kernels, transfers and steps, through jax.profiler. Its files (XPlane) stay in the capture for the reader."""

import contextlib
import threading
import time
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Column
from stepscope.process import clock
from stepscope.recording.collectors.options import Options, ProfilerActivity, ProfilerLevel, ascend_only

_HELD = 256 << 20  # bytes of a file: a protocol buffer cannot be larger than 2 GiB, and JAX holds all of it in memory
_PER_SECOND = 8 << 20  # bytes that a session may write, until that is measured
_PER_EVENT = 40  # bytes in the file, approximately


class Collector:
    """From start to stop: one session of jax.profiler or, where that would need too much memory, several."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.full = False  # the limit on events was reached

    def start(self, capture: Capture) -> None:
        self._capture = capture
        self._sessions = self._bytes = 0
        self._per_second: float = _PER_SECOND
        self._marker: Any = None
        self._open = False
        self._memory: list[tuple[int, str, float]] = []
        capture.header |= {"base": "jax", "framework": "jax"}
        capture.header["versions"] = capture.header.get("versions", {}) | {"jax": str(_jax().__version__)}
        for notice in _options_without_effect(self._options):
            capture.notice(notice)
        self._begin()

    def _begin(self) -> None:
        jax = _jax()
        folder = self._capture.folder / "xplane" / f"{self._sessions:06d}"
        # Releases before 0.5 accept no options, and record everything.
        options = {"profiler_options": _profile_options(self._options)} if hasattr(jax.profiler, "ProfileOptions") else {}
        self._clock_settings = self._capture.begin_session()
        jax.profiler.start_trace(folder, **options)
        self._folder, self._since, self._open = folder, time.monotonic(), True

    def step(self, number: int) -> None:
        jax = _jax()
        if not self._open:
            return
        if self._marker:
            self._marker.__exit__(None, None, None)
            self._marker = None
        self._sample_memory()
        # JAX uses the wall clock: once that has been set, another session limits the ambiguous timestamps.
        clock_set = self._capture.clock_settings != self._clock_settings
        if clock_set or (time.monotonic() - self._since) * self._per_second >= _HELD:
            self._end()
            if self._bytes / _PER_EVENT >= self._options.max_events:
                self.full = True
                self._capture.notice(
                    f"recording ended early, at step {number}: about max_events={self._options.max_events:,} were recorded"
                )
                return
            self._begin()
        self._thread = threading.get_ident()
        self._marker = jax.profiler.StepTraceAnnotation("train", step_num=number)
        self._marker.__enter__()

    def stop(self) -> None:
        self._sample_memory()
        try:
            if self._open:
                self._end()
        finally:
            # JAX records a range when it ends. The marker of the incomplete step ends after the session, so it is not recorded.
            if self._marker and self._thread == threading.get_ident():
                self._marker.__exit__(None, None, None)
            self._marker = None
            self._write_memory()

    def _end(self) -> None:
        jax = _jax()
        with contextlib.suppress(RuntimeError):  # a failure of the program, which gets it from its own call
            jax.block_until_ready([array for array in jax.live_arrays() if not array.is_deleted()])  # else it is cut
        self._open = False
        seconds = time.monotonic() - self._since
        jax.profiler.stop_trace()
        for converted in self._folder.rglob("*.json.gz"):  # the same data for Chrome
            converted.unlink()
        size = sum(file.stat().st_size for file in self._folder.rglob("*.xplane.pb"))
        self._sessions, self._bytes, self._per_second = self._sessions + 1, self._bytes + size, size / seconds
        self._capture.bytes += size

    def _sample_memory(self) -> None:
        jax = _jax()
        if self._options.profile_memory:
            at = clock.now_ns()
            for device in jax.local_devices():
                stats = device.memory_stats() or {}
                for name, key in (("allocated", "bytes_in_use"), ("reserved", "pool_bytes")):
                    if key in stats:
                        self._memory.append((at, f"{name} {device.platform} {device.local_hardware_id}", float(stats[key])))

    def _write_memory(self) -> None:
        if self._memory:
            at, names, values = zip(*self._memory, strict=True)
            columns: dict[str, Column] = {
                "name": names,
                "at_ns": np.array(at, np.int64),
                "value": np.array(values),
                "unit": ["bytes"] * len(at),
            }
            self._capture.append("counters", columns)
        elif self._options.profile_memory:
            self._capture.notice("profile_memory: JAX does not report the allocations of this device")


def _profile_options(options: Options) -> Any:
    jax = _jax()
    settings = jax.profiler.ProfileOptions()
    settings.python_tracer_level = int(options.with_stack)
    if ProfilerActivity.CPU not in options.activities:
        settings.host_tracer_level = 1  # user annotations, including steps
    elif options.profiler_level is ProfilerLevel.Level2:
        settings.host_tracer_level = 3
    if not {ProfilerActivity.GPU, ProfilerActivity.NPU} & {*options.activities} and hasattr(settings, "device_tracer_level"):
        settings.device_tracer_level = 0
    return settings


def _jax() -> Any:
    """As Any: JAX is only partly typed."""
    import jax

    return jax


def _options_without_effect(options: Options) -> list[str]:
    """A notice for each requested option that is not supported here."""
    notices = ascend_only(options)
    notices += [f"{name}: JAX does not count this" for name in ("hbm_ddr", "pcie") if getattr(options, name)]
    if options.record_shapes:
        notices.append("record_shapes: shapes are those of the compiled program; JAX records none per call")
    return notices
