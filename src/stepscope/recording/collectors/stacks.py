"""Python stacks: sampled by a thread, or recorded call by call.

Samples (the default, `stack_hz` times a second) are written into two tables of the capture. Stacks form a tree, and a row is written only
when the stack of a thread has changed:

    stack_frames     node, parent (-1: the outermost), name        "file.py(line): function", as PyTorch writes it
    stack_samples    tid, thread, at_ns, node (-1: the thread, or the recording, has ended)

Calls (`stack_hz=0`) are recorded through sys.monitoring, or sys.setprofile before Python 3.12:

    stack_frames     node, parent (-1), name
    stack_calls      tid, thread, at_ns, node; ~node where that function returns
"""

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Column
from stepscope.process import clock
from stepscope.recording.collectors.options import Options
from stepscope.recording.process.runtime import runtime

_PACKAGE = str(Path(__file__).parents[2]) + "/"
_RECORD_STACKS = ("torch", "jax")  # themselves; TensorFlow 2.21 has an option for it that has no effect
_FLUSH_S = 3.0  # most that a killed job may lose, in short recordings
_SKIPPED = -2  # instead of a number: a frame of stepscope


class Collector:
    """From start to stop, unless the framework records stacks itself."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.full = False  # the limit on events was reached
        self._recorder: _Sampler | _Tracer | None = None

    def start(self, capture: Capture) -> None:
        if capture.header.get("base") in _RECORD_STACKS:
            return
        recorder = _Sampler(capture, self._options) if self._options.stack_hz else _Tracer(capture, self._options)
        recorder.start()
        self._recorder = recorder

    def step(self, number: int) -> None:
        if self._recorder and self._recorder.full and not self.full:
            self.full = True
            self._recorder.capture.notice(f"recording ended early, at step {number}: max_events={self._options.max_events:,} was reached")

    def stop(self) -> None:
        if self._recorder:
            self._recorder.stop()
            self._recorder = None


class _Names:
    """Numbers of frames and threads, and the frames that are not written yet."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._nodes: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}  # referenced, so that its id is not reused
        self._numbers = itertools.count()  # several threads may call at the same time
        self._new: deque[tuple[int, int, str]] = deque()
        self._threads: dict[int, tuple[int, str]] = {}

    def node(self, parent: int, code: CodeType) -> int:
        key = (parent, id(code))
        number = self._nodes.get(key)
        if number is None:
            self._codes[id(code)] = code
            number = _SKIPPED if code.co_filename.startswith(_PACKAGE) else next(self._numbers)
            self._nodes[key] = number
            if number >= 0:
                self._new.append((number, parent, f"{_short(code.co_filename)}({code.co_firstlineno}): {code.co_name}"))
        return number

    def thread(self, ident: int) -> tuple[int, str]:
        """Number of a thread in the system, and its name."""
        entry = self._threads.get(ident)
        if entry is None:
            thread = threading._active.get(ident)  # type: ignore[attr-defined]
            entry = self._threads[ident] = (thread.native_id or ident, thread.name) if thread else (ident, f"thread {ident}")
        return entry

    def update_threads(self) -> None:
        """Read the names of the running threads."""
        for ident in list(threading._active):  # type: ignore[attr-defined]
            self.forget(ident)
            self.thread(ident)

    def forget(self, ident: int) -> None:
        """The thread has ended: another may reuse its number."""
        self._threads.pop(ident, None)

    def write(self, table: str, rows: list[tuple[int, str, int, int]]) -> None:
        new = [self._new.popleft() for _ in range(len(self._new))]
        if new:
            nodes, parents, names = zip(*new, strict=True)
            self._capture.append("stack_frames", {"node": np.array(nodes, np.int32), "parent": np.array(parents, np.int32), "name": names})
        if rows:
            tids, threads, at, node = zip(*rows, strict=True)
            columns: dict[str, Column] = {
                "tid": np.array(tids, np.int64),
                "at_ns": np.array(at, np.int64),
                "node": np.array(node, np.int32),
            }
            self._capture.append(table, columns | {"thread": threads})


def _short(file: str) -> str:
    """The path relative to the folder of sys.path that contains it."""
    short = _shortened.get(file)
    if short is None:
        folders = [folder for folder in sys.path if folder and file.startswith(folder.rstrip("/") + "/")]
        short = _shortened[file] = file[len(max(folders, key=len).rstrip("/")) + 1 :] if folders else file
    return short


_shortened: dict[str, str] = {}


class _Sampler:
    """A thread that samples the stacks of the others."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self.capture, self._options = capture, options
        self.full = False
        self._names = _Names(capture)
        self._last: dict[int, int] = {}  # by thread: its last stack
        self._rows: list[tuple[int, str, int, int]] = []
        self._count = 0
        self._ended = threading.Event()

    def start(self) -> None:
        hz = self._options.stack_hz
        self.capture.notice(f"Python's stacks are samples, {hz} a second: times of Python functions are exact to {1000 / hz:.3g} ms only")
        self._began = self._written = time.monotonic()
        self._sample()
        self._thread = threading.Thread(target=self._run, name="stepscope stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._close(clock.now_ns())
        self._write()

    def _run(self) -> None:
        interval = 1 / self._options.stack_hz
        try:
            while not self._ended.wait(interval - (time.monotonic() - self._began) % interval):
                self._sample()
                now = time.monotonic()
                if now - self._written > max(_FLUSH_S, (now - self._began) / 100):
                    self._written = now
                    self._write()
                if (base := self.capture.header.get("base")) in _RECORD_STACKS:
                    self.capture.notice(f"Python's stacks are sampled up to where {base} was imported, and its own from there on")
                    break
                if self._count >= self._options.max_events:
                    self.full = True
                    break
        except Exception as error:  # noqa: BLE001 - a thread has no caller: the capture gets a notice, and training continues
            self.capture.notice(
                f"Python's stacks were sampled for {time.monotonic() - self._began:.1f} s only: {type(error).__name__}: {error}"
            )
        self._close(clock.now_ns())

    def _sample(self) -> None:
        at, frames = clock.now_ns(), sys._current_frames()
        for ident, frame in frames.items():
            tid, name = self._names.thread(ident)
            if name.startswith("stepscope "):
                continue
            node = _leaf(self._names, frame)
            if self._last.get(ident) != node:
                self._last[ident] = node
                self._rows.append((tid, name, at, node))
                self._count += 1
        for ident in self._last.keys() - frames.keys():
            self._end(ident, at)

    def _end(self, ident: int, at: int) -> None:
        del self._last[ident]
        self._rows.append((*self._names.thread(ident), at, -1))
        self._names.forget(ident)

    def _close(self, at: int) -> None:
        for ident in list(self._last):
            self._end(ident, at)

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        # A row without a thread marks how far the recording has come, in case it ends here.
        self._names.write("stack_samples", [*rows, (0, "", clock.now_ns(), -1)])


def _leaf(names: _Names, frame: FrameType | None) -> int:
    """The node of a stack."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    node = -1
    for code in reversed(codes):
        child = names.node(node, code)
        node = node if child == _SKIPPED else child
    return node


class _Tracer:
    """Records every call and return."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self.capture, self._options = capture, options
        self.full = False
        self._names = _Names(capture)
        self._events: deque[tuple[int, int, int]] = deque()
        self._count = 0
        self._ended = threading.Event()
        self._stop_listening: Callable[[], None] = _nothing

    def start(self) -> None:
        append, now, ident, node = self._events.append, clock.now_ns, threading.get_ident, self._names.node

        def on_call(code: CodeType) -> None:
            if (number := node(-1, code)) >= 0:
                append((ident(), now(), number))

        def on_return(code: CodeType) -> None:
            if (number := node(-1, code)) >= 0:
                append((ident(), now(), ~number))

        listen = _monitored if hasattr(sys, "monitoring") else _profiled
        self._stop_listening = listen(on_call, on_return)
        _listening.append(self)
        at = now()
        for thread, frame in sys._current_frames().items():
            if hasattr(sys, "monitoring") or thread == ident():
                running = [(thread, at, node(-1, caller.f_code)) for caller in _outermost_first(frame)]
                self._events.extendleft(reversed([event for event in running if event[2] >= 0]))
        if not hasattr(sys, "monitoring"):
            self.capture.notice("before Python 3.12, only threads that start later and the one that started the recording are recorded")
        self._thread = threading.Thread(target=self._run, name="stepscope stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.detach()
        self._ended.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        try:
            while not self._ended.wait(0.2) and not self.full:
                self._write()
                if self._count >= self._options.max_events:
                    self.full = True
                    self.detach()
        except Exception as error:  # noqa: BLE001 - a thread has no caller: the capture gets a notice, and training continues
            self.capture.notice(f"Python's calls were recorded in part: {type(error).__name__}: {error}")

    def detach(self) -> None:
        """Record nothing more."""
        self._stop_listening()
        if self in _listening:
            _listening.remove(self)

    def _write(self) -> None:
        events = [self._events.popleft() for _ in range(len(self._events))]
        self._names.update_threads()
        named = ((*self._names.thread(ident), at, node) for ident, at, node in events)
        rows = [row for row in named if not row[1].startswith("stepscope ")]
        self._count += len(rows)
        self._names.write("stack_calls", rows)


_listening: list[_Tracer] = []


def _forked() -> None:
    """A forked child would collect calls that are never written."""
    for tracer in list(_listening):
        tracer.detach()


runtime.on_fork(_forked)


def _outermost_first(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _monitored(on_call: Callable[[CodeType], None], on_return: Callable[[CodeType], None]) -> Callable[[], None]:
    """Listen through sys.monitoring. The result stops listening."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool = next((number for number in (2, 3, 4) if monitoring.get_tool(number) is None), None)
    if tool is None:
        raise RuntimeError("other tools use all ids for profilers in sys.monitoring")
    monitoring.use_tool_id(tool, "stepscope")
    kinds = monitoring.events
    skipped = monitoring.DISABLE  # no further events of this code

    def start_or_resume(code: CodeType, *_: Any) -> Any:
        return skipped if code.co_filename.startswith(_PACKAGE) else on_call(code)

    def return_or_yield(code: CodeType, *_: Any) -> Any:
        return skipped if code.co_filename.startswith(_PACKAGE) else on_return(code)

    callbacks: dict[int, Callable[..., Any]] = {
        kinds.PY_START: start_or_resume,
        kinds.PY_RESUME: start_or_resume,
        kinds.PY_THROW: lambda code, *_: on_call(code),  # these two cannot be disabled
        kinds.PY_RETURN: return_or_yield,
        kinds.PY_YIELD: return_or_yield,
        kinds.PY_UNWIND: lambda code, *_: on_return(code),
    }
    for kind, callback in callbacks.items():
        monitoring.register_callback(tool, kind, callback)
    monitoring.set_events(tool, sum(callbacks))

    def stop_listening() -> None:
        if monitoring.get_tool(tool) == "stepscope":
            monitoring.set_events(tool, 0)
            for kind in callbacks:
                monitoring.register_callback(tool, kind, None)
            monitoring.free_tool_id(tool)
            monitoring.restart_events()  # the next recording gets events of all code again

    return stop_listening


def _profiled(on_call: Callable[[CodeType], None], on_return: Callable[[CodeType], None]) -> Callable[[], None]:
    """Listen through sys.setprofile."""
    if sys.getprofile() is not None:
        raise RuntimeError("another profiler of Python's calls is active, such as cProfile")
    listening = True

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if not listening:
            sys.setprofile(None)
        elif event == "call":
            on_call(frame.f_code)
        elif event == "return":
            on_return(frame.f_code)

    threading.setprofile(on_event)
    sys.setprofile(on_event)

    def stop_listening() -> None:
        nonlocal listening
        listening = False
        threading.setprofile(None)
        if sys.getprofile() is on_event:
            sys.setprofile(None)

    return stop_listening


def _nothing() -> None:
    pass
