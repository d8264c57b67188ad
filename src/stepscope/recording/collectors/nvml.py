"""Counters of NVIDIA's driver for each GPU: utilization, memory, clocks and power, through its library (NVML)."""

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.collectors.options import Options

_BATCH = 10_000  # samples in memory before they are written


class Sampler:
    """A thread that reads the driver's counters at regular times."""

    WHAT = "the GPUs' own counters are"

    def __init__(self, capture: Capture, options: Options) -> None:
        self._capture, self._options = capture, options
        self._rows: list[tuple[str, int, float, str]] = []
        self._ended = threading.Event()

    def start(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if self._library.nvmlInit_v2() != 0:
            raise OSError("the NVIDIA driver does not answer")
        self._devices = list(self._handles())
        self._thread = threading.Thread(target=self._run, name="stepscope nvml", daemon=True)
        self._thread.start()

    def _handles(self) -> Iterator[tuple[int, ctypes.c_void_p]]:
        """The devices with their numbers in the program."""
        import torch

        for number in range(torch.cuda.device_count()):
            handle = ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(number).uuid}".encode()
            if self._library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) == 0:
                yield number, handle

    def _run(self) -> None:
        while True:
            for number, handle in self._devices:
                at = clock.now_ns()
                self._rows += [(f"{name} gpu {number}", at, value, unit) for name, value, unit in self._sample(handle)]
            if len(self._rows) > _BATCH:
                self._write()
            if self._ended.wait(self._options.host_interval_ms / 1000):
                return

    def _sample(self, handle: ctypes.c_void_p) -> Iterator[tuple[str, float, str]]:
        def read(function: str, *arguments: Any) -> bool:
            return bool(getattr(self._library, function)(handle, *arguments) == 0)

        number = ctypes.c_uint()
        use, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
        if read("nvmlDeviceGetUtilizationRates", use):
            yield "utilization", use[0] / 100, "share"
            if self._options.hbm_ddr:
                yield "memory bandwidth use", use[1] / 100, "share"
        if read("nvmlDeviceGetMemoryInfo", memory):
            yield "memory used", float(memory[2]), "bytes"
        if read("nvmlDeviceGetPowerUsage", ctypes.byref(number)):
            yield "power", number.value / 1000, "W"
        for name, kind in (("sm clock", 1), ("memory clock", 2)):
            if read("nvmlDeviceGetClockInfo", kind, ctypes.byref(number)):
                yield name, number.value * 1e6, "Hz"
        if self._options.pcie:  # each takes the driver 20 ms
            for name, direction in (("pcie sent", 0), ("pcie received", 1)):
                if read("nvmlDeviceGetPcieThroughput", direction, ctypes.byref(number)):
                    yield name, number.value * 1024.0, "bytes/s"

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            names, at, values, units = zip(*rows, strict=True)
            self._capture.append(
                "counters", {"name": names, "at_ns": np.array(at, np.int64), "value": np.array(values, np.float64), "unit": units}
            )

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._write()
        self._library.nvmlShutdown()
