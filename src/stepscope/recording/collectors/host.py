"""The host: CPU, memory, disk and network of the machine, and CPU and memory of this process and its children, sampled by a thread.

Counters, on the clock of the recording. A rate or a share covers the time since the previous sample; the first sample is at the start,
the last at the stop.

    cpu user, cpu system, cpu io, cpu idle, cpu steal          share of the machine's CPU time; they add up to 1
    cpu cores                                                  cores of the machine (once)
    compute threads                                            threads that PyTorch uses for an operator on the CPU (once)
    run queue                                                  processes that run or are ready to run
    context switches                                           1/s, of the machine
    memory used, memory available                              bytes, of the machine
    disk read, disk written                                    bytes/s, of whole disks
    network received, network sent                             bytes/s, without the loopback
    process PID cpu user, process PID cpu system               cores: 1.5 is one and a half cores busy
    process PID memory                                         bytes in memory (RSS)
    process PID threads                                        threads
    process PID voluntary switches, involuntary switches       1/s
    sampling cost                                              CPU time of this sample, in ns

A child is `data worker PID` where it feeds the training (PyTorch's DataLoader, MindSpore's dataset), else `child PID`; counters as above.
"""

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.recording.collectors.options import HostSystem, Options

Gauges = Iterator[tuple[str, float, str]]  # name, value, unit
Totals = dict[str, tuple[float, str, int]]  # by name of a growing total: value, unit of its growth per second, time of reading

_FLUSH_S = 3.0  # most that a killed job may lose, in short recordings
_CHILDREN_S = 1.0  # between two searches for children
_COARSE_S = 0.1  # least time between two readings of totals that count in ticks of 10 ms, or take long to read
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Collector:
    """A thread that samples at `host_interval_ms`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, capture: Capture) -> None:
        self._capture = capture
        self._rows: list[tuple[str, int, float, str]] = []
        self._count = 0
        source = _source()
        if source is None:
            capture.notice(f"CPU, memory, disk and network are not recorded: {sys.platform} has no /proc, and psutil is not installed")
            return
        if HostSystem.OSRT in self._options.host_sys:
            capture.notice("host_sys: calls of the operating system (osrt) are not recorded")
        self._source, self._before = source, {}
        self._ended.clear()
        self._began = self._written = time.monotonic()
        self._sample(ends=True)
        self._thread = threading.Thread(target=self._run, name="stepscope host", daemon=True)
        self._thread.start()

    _source: "_Proc | _Psutil"
    _before: Totals

    def step(self, number: int) -> None:
        pass

    def stop(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self._sample(ends=True)
        self._write()

    def _run(self) -> None:
        """Sample at regular times from the start: the duration of samples does not add up."""
        interval = self._options.host_interval_ms / 1000
        try:
            while not self._ended.wait(interval - (time.monotonic() - self._began) % interval):
                self._sample()
                now = time.monotonic()
                # The longer it lasts, the larger the files: one sample in a hundred is at risk, and a week does not write a million files.
                if now - self._written > max(_FLUSH_S, (now - self._began) / 100):
                    self._written = now
                    self._write()
                if self._count >= self._options.max_events:
                    self._capture.notice(f"the host was sampled up to max_events={self._options.max_events:,}: later samples are missing")
                    return
        except Exception as error:  # noqa: BLE001 - a thread has no caller: the capture gets a notice, and training continues
            self._capture.notice(f"the host was sampled for {time.monotonic() - self._began:.1f} s only: {type(error).__name__}: {error}")

    def _sample(self, *, ends: bool = False) -> None:
        cost, at = time.thread_time_ns(), clock.now_ns()
        now = self._source.totals(everything=ends)
        rows = [(name, at, value, unit) for name, value, unit in self._source.gauges()]
        if not self._before:
            rows.append(("cpu cores", at, float(os.cpu_count() or 1), "cores"))
            if torch := sys.modules.get("torch"):
                rows.append(("compute threads", at, float(torch.get_num_threads()), "threads"))
        shares = _shares(now, self._before, 1 if ends else _TICKS)
        if not shares:  # too few ticks: the next sample covers this time, too
            now |= {name: total for name, total in self._before.items() if name in _SHARES}
        rows += [(name, at, value, "share") for name, value in shares.items()]
        for name, (total, unit, read) in now.items():
            before, _, read_before = self._before.get(name, (0.0, "", read))
            if name not in _SHARES and read > read_before:
                rows.append((name, at, max(total - before, 0.0) / (read - read_before) * 1e9, unit))
        self._before |= now
        self._rows += [*rows, ("sampling cost", at, float(time.thread_time_ns() - cost), "ns")]
        self._count += len(rows) + 1

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            names, at, values, units = zip(*rows, strict=True)
            self._capture.append("counters", {"name": names, "at_ns": np.array(at, np.int64), "value": np.array(values), "unit": units})


_SHARES = {"cpu user", "cpu system", "cpu io", "cpu idle", "cpu steal"}


def _shares(now: Totals, before: Totals, ticks: int) -> dict[str, float]:
    """Shares of the machine's CPU time since the previous sample; empty where too few ticks have passed."""
    spent = {name: max(total - before[name][0], 0.0) for name, (total, _, _) in now.items() if name in _SHARES and name in before}
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()} if total >= ticks else {}


_TICKS = 10  # with fewer, shares are less exact than a tenth


class _Proc:
    """Linux: /proc, read directly."""

    def __init__(self) -> None:
        import resource  # not on every system

        self._usage: Callable[[], Any] = lambda: resource.getrusage(resource.RUSAGE_SELF)
        self._pid = os.getpid()
        self._children: dict[int, str] = {}
        self._children_at = self._coarse_at = 0.0
        self._stats: dict[str, list[str]] = {}
        self._running = 0.0

    def totals(self, *, everything: bool) -> Totals:
        text, read = _read("/proc/stat"), clock.now_ns()
        user, nice, system, idle, io, irq, softirq, steal = (float(number) for number in (text.partition("\n")[0].split() + ["0"] * 8)[1:9])
        spent = {"user": user + nice, "system": system + irq + softirq, "io": io, "idle": idle, "steal": steal}
        totals: Totals = {f"cpu {name}": (value, "ticks", read) for name, value in spent.items()}
        totals["context switches"] = (_after(text, "\nctxt "), "1/s", read)
        self._running = _after(text, "\nprocs_running ")
        used, read = self._usage(), clock.now_ns()  # finer than the ticks of /proc
        process = f"process {self._pid}"
        for name, total, unit in (
            ("cpu user", used.ru_utime, "cores"),
            ("cpu system", used.ru_stime, "cores"),
            ("voluntary switches", float(used.ru_nvcsw), "1/s"),
            ("involuntary switches", float(used.ru_nivcsw), "1/s"),
        ):
            totals[f"{process} {name}"] = (total, unit, read)
        self._stats = {process: _stat(self._pid)}
        if everything or time.monotonic() - self._coarse_at >= _COARSE_S:
            self._coarse_at = time.monotonic()
            totals |= _disks() | _networks() | self._children_totals()
        return totals

    def _children_totals(self) -> Totals:
        if time.monotonic() - self._children_at >= _CHILDREN_S:
            self._children_at, self._children = time.monotonic(), dict(_children(self._pid))
        totals: Totals = {}
        for pid, role in self._children.items():
            if stat := _stat(pid):
                read = clock.now_ns()
                self._stats[f"{role} {pid}"] = stat
                for name, ticks in (("user", stat[11]), ("system", stat[12])):
                    totals[f"{role} {pid} cpu {name}"] = (float(ticks) / _TICK, "cores", read)
        return totals

    def gauges(self) -> Gauges:
        yield "run queue", self._running, "processes"
        text = _read("/proc/meminfo")
        if (available := _after(text, "MemAvailable:")) >= 0:
            yield "memory used", (_after(text, "MemTotal:") - available) * 1024, "bytes"
            yield "memory available", available * 1024, "bytes"
        for name, stat in self._stats.items():
            yield f"{name} memory", float(stat[21]) * _PAGE, "bytes"
            yield f"{name} threads", float(stat[17]), "threads"


def _after(text: str, words: str) -> float:
    """The number after these words; -1 where they are missing."""
    _, match, rest = text.partition(words)
    return float(rest.split(None, 1)[0]) if match else -1.0


def _disks() -> Totals:
    """Bytes of whole disks: partitions and layers above would count them again."""
    amount = {"disk read": 0.0, "disk written": 0.0}
    for line in _read("/proc/diskstats").splitlines():
        fields = line.split()
        if _is_disk(fields[2]):
            amount["disk read"] += float(fields[5]) * 512
            amount["disk written"] += float(fields[9]) * 512
    return {name: (total, "bytes/s", clock.now_ns()) for name, total in amount.items()}


def _is_disk(name: str) -> bool:
    if name not in _disk_names:
        _disk_names[name] = not name.startswith(("loop", "ram", "dm-", "md", "zram")) and Path(f"/sys/block/{name}").exists()
    return _disk_names[name]


_disk_names: dict[str, bool] = {}


def _networks() -> Totals:
    amount = {"network received": 0.0, "network sent": 0.0}
    for line in _read("/proc/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            amount["network received"] += float(fields[0])
            amount["network sent"] += float(fields[8])
    return {name: (total, "bytes/s", clock.now_ns()) for name, total in amount.items()}


def _children(root: int) -> Iterator[tuple[int, str]]:
    """Processes below this one, with their roles; none where the kernel does not list processes by parent."""
    roles = _roles()
    pids, parents = {root}, [(root, "child")]
    while parents:
        parent, inherited = parents.pop()
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{parent}/task").iterdir():
                for pid in map(int, _read(f"{task}/children").split()):
                    if pid not in pids:
                        pids.add(pid)
                        role = roles.get(pid) or ("data worker" if _comm(pid) == "pt_data_worker" else inherited)
                        parents.append((pid, role))
                        yield pid, role


def _roles() -> dict[int, str]:
    """Roles of the program's worker processes, as far as their code shows."""
    processes = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    roles = {}
    for process in list(processes):
        modules = (type(process).__module__, getattr(getattr(process, "_target", None), "__module__", "") or "")
        if process.pid and any(module.startswith(("torch.utils.data", "mindspore.dataset")) for module in modules):
            roles[process.pid] = "data worker"
    return roles


def _comm(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").strip()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: the second, the name, may contain any text."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a process that has ended; a kernel without this file
        return ""
    try:
        parts = []
        while part := os.read(file, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:  # it has just ended
        return ""
    finally:
        os.close(file)


class _Psutil:
    """Other systems, where psutil is installed."""

    def __init__(self, psutil: Any) -> None:
        self._psutil, self._process = psutil, psutil.Process()
        self._processes: dict[str, Any] = {}

    def totals(self, *, everything: bool) -> Totals:
        psutil, cpu = self._psutil, self._psutil.cpu_times()
        spent = {"user": cpu.user + getattr(cpu, "nice", 0.0), "system": cpu.system, "io": getattr(cpu, "iowait", 0.0), "idle": cpu.idle}
        totals = {f"cpu {name}": (value * _TICK, "ticks") for name, value in spent.items()}
        totals["context switches"] = (float(psutil.cpu_stats().ctx_switches), "1/s")
        if disks := psutil.disk_io_counters():
            totals |= {"disk read": (float(disks.read_bytes), "bytes/s"), "disk written": (float(disks.write_bytes), "bytes/s")}
        if networks := psutil.net_io_counters():
            totals |= {"network received": (float(networks.bytes_recv), "bytes/s"), "network sent": (float(networks.bytes_sent), "bytes/s")}
        roles = _roles()
        self._processes = {f"process {self._process.pid}": self._process}
        self._processes |= {f"{roles.get(child.pid, 'child')} {child.pid}": child for child in self._process.children(recursive=True)}
        for name, process in self._processes.items():
            with contextlib.suppress(psutil.Error):  # it has ended
                times = process.cpu_times()
                totals |= {f"{name} cpu user": (times.user, "cores"), f"{name} cpu system": (times.system, "cores")}
        read = clock.now_ns()
        return {name: (*total, read) for name, total in totals.items()}

    def gauges(self) -> Gauges:
        memory = self._psutil.virtual_memory()
        yield "memory used", float(memory.total - memory.available), "bytes"
        yield "memory available", float(memory.available), "bytes"
        for name, process in self._processes.items():
            with contextlib.suppress(self._psutil.Error):
                yield f"{name} memory", float(process.memory_info().rss), "bytes"
                yield f"{name} threads", float(process.num_threads()), "threads"


def _source() -> _Proc | _Psutil | None:
    if Path("/proc/stat").exists():
        return _Proc()
    try:
        return _Psutil(importlib.import_module("psutil"))
    except ImportError:
        return None
