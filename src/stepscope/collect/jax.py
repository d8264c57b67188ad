"""JAX: operations, kernels, transfers and steps, through jax.profiler. What it writes (XPlane) stays in the capture for the reader."""

import contextlib
import threading
import time
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture, Column
from stepscope.collect.options import Options, ProfilerActivity, ProfilerLevel, of_ascend_alone

_HELD = 256 << 20  # bytes of a file: a protocol buffer cannot be larger than 2 GiB, and JAX holds all of it in memory
_PER_SECOND = 8 << 20  # bytes that a session may write, as long as none has told
_PER_EVENT = 40  # bytes of the file, about


class Collector:
    """From start to stop: one session of jax.profiler or, where that would hold too much in memory, several from step to step."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.full = False  # the bound on events was reached

    def start(self, capture: Capture) -> None:
        self._capture = capture
        self._sessions = self._bytes = 0
        self._per_second: float = _PER_SECOND
        self._marker: Any = None
        self._open = False
        self._memory: list[tuple[int, str, float]] = []
        capture.header |= {"base": "jax", "framework": "jax"}
        capture.header["versions"] = capture.header.get("versions", {}) | {"jax": str(_jax().__version__)}
        for what in _without_effect(self._options):
            capture.notice(what)
        self._begin()

    def _begin(self) -> None:
        jax = _jax()
        folder = self._capture.folder / "xplane" / f"{self._sessions:06d}"
        # Releases before 0.5 take no options, and record everything.
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
        # JAX takes its times from the wall clock: once that has been set, another session limits what cannot be told apart.
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
            # JAX records a range when it ends. That of the step which is not over ends when nothing is recorded any more: it is no step.
            if self._marker and self._thread == threading.get_ident():
                self._marker.__exit__(None, None, None)
            self._marker = None
            self._write_memory()

    def _end(self) -> None:
        jax = _jax()
        with contextlib.suppress(RuntimeError):  # the program's own failure, which it will meet itself
            jax.block_until_ready([array for array in jax.live_arrays() if not array.is_deleted()])  # what was begun is seen to its end
        self._open = False
        seconds = time.monotonic() - self._since
        jax.profiler.stop_trace()
        for converted in self._folder.rglob("*.json.gz"):  # the same again for Chrome, which nobody reads
            converted.unlink()
        size = sum(file.stat().st_size for file in self._folder.rglob("*.xplane.pb"))
        self._sessions, self._bytes, self._per_second = self._sessions + 1, self._bytes + size, size / seconds
        self._capture.bytes += size

    def _sample_memory(self) -> None:
        jax = _jax()
        if self._options.profile_memory:
            at = clock.now_ns()
            for device in jax.local_devices():
                said = device.memory_stats() or {}
                for name, key in (("allocated", "bytes_in_use"), ("reserved", "pool_bytes")):
                    if key in said:
                        self._memory.append((at, f"{name} {device.platform} {device.local_hardware_id}", float(said[key])))

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
            self._capture.notice("profile_memory: JAX does not say what this device has allocated")


def _profile_options(options: Options) -> Any:
    jax = _jax()
    chosen = jax.profiler.ProfileOptions()
    chosen.python_tracer_level = int(options.with_stack)
    if ProfilerActivity.CPU not in options.activities:
        chosen.host_tracer_level = 1  # what users mark, steps among them
    elif options.profiler_level is ProfilerLevel.Level2:
        chosen.host_tracer_level = 3
    if not {ProfilerActivity.GPU, ProfilerActivity.NPU} & {*options.activities} and hasattr(chosen, "device_tracer_level"):
        chosen.device_tracer_level = 0
    return chosen


def _jax() -> Any:
    """Not typed throughout."""
    import jax

    return jax


def _without_effect(options: Options) -> list[str]:
    """What was asked for and cannot be had here."""
    found = of_ascend_alone(options)
    found += [f"{name}: JAX does not count this" for name in ("hbm_ddr", "pcie") if getattr(options, name)]
    if options.record_shapes:
        found.append("record_shapes: shapes are those of the compiled program; JAX records none per call")
    return found
