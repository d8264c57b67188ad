"""Python's stacks: sampled by a thread, or exactly, call by call.

Sampled (the default, `stack_hz` times a second) into two tables of the capture. Stacks form a tree, and a row is written only when the
stack of a thread has changed:

    stack_frames     node, parent (-1: the outermost), name        "file.py(line): function", as PyTorch writes it
    stack_samples    tid, thread, at_ns, node (-1: the thread, or the recording, has ended)

Exactly (`stack_hz=0`) through sys.monitoring, or sys.setprofile before Python 3.12:

    stack_frames     node, parent (-1), name
    stack_calls      tid, thread, at_ns, node; ~node where that function returns
"""

import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture, Column
from stepscope.collect.options import Options

_HERE = str(Path(__file__).parent.parent) + "/"
_OWN = ("torch", "jax")  # record Python's stacks themselves; TensorFlow 2.21 has an option for it that does nothing
_FLUSH_S = 3.0  # what a killed job may lose at most, in short recordings
_NOT_OURS = -2  # in place of a number: a frame of stepscope's own


class Collector:
    """From start to stop, unless the framework records stacks itself."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.full = False  # the bound on events was reached
        self._recorder: _Sampler | _Tracer | None = None

    def start(self, capture: Capture) -> None:
        if capture.header.get("base") in _OWN:
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
    """Frames and threads by number, and what has to be written of them."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._nodes: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}  # held so that its id stays its own
        self._numbers = itertools.count()  # several threads may ask at once
        self._new: deque[tuple[int, int, str]] = deque()
        self._threads: dict[int, tuple[int, str]] = {}

    def node(self, parent: int, code: CodeType) -> int:
        key = (parent, id(code))
        number = self._nodes.get(key)
        if number is None:
            self._codes[id(code)] = code
            # What is skipped takes its parent's place.
            number = _NOT_OURS if code.co_filename.startswith(_HERE) else next(self._numbers)
            self._nodes[key] = number
            if number >= 0:
                self._new.append((number, parent, f"{_short(code.co_filename)}({code.co_firstlineno}): {code.co_name}"))
        return number

    def thread(self, ident: int) -> tuple[int, str]:
        """The number that the system knows a thread by, and its name."""
        found = self._threads.get(ident)
        if found is None:
            thread = threading._active.get(ident)  # type: ignore[attr-defined]
            found = self._threads[ident] = (thread.native_id or ident, thread.name) if thread else (ident, f"thread {ident}")
        return found

    def look(self) -> None:
        """Learn the names of the threads that there are."""
        for ident in list(threading._active):  # type: ignore[attr-defined]
            self.forget(ident)
            self.thread(ident)

    def forget(self, ident: int) -> None:
        """The thread has ended: another may get its number."""
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
    """As seen from where modules are looked for."""
    known = _shortened.get(file)
    if known is None:
        homes = [home for home in sys.path if home and file.startswith(home.rstrip("/") + "/")]
        known = _shortened[file] = file[len(max(homes, key=len).rstrip("/")) + 1 :] if homes else file
    return known


_shortened: dict[str, str] = {}


class _Sampler:
    """A thread that looks at the stacks of the others."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self.capture, self._options = capture, options
        self.full = False
        self._names = _Names(capture)
        self._last: dict[int, int] = {}  # by thread, its stack when we looked last
        self._rows: list[tuple[int, str, int, int]] = []
        self._count = 0
        self._ended = threading.Event()

    def start(self) -> None:
        hz = self._options.stack_hz
        self.capture.notice(f"Python's stacks are samples, {hz} a second: times of Python functions are exact to {1000 / hz:.3g} ms only")
        self._began = self._written = time.monotonic()
        self._sweep()
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
                self._sweep()
                now = time.monotonic()
                if now - self._written > max(_FLUSH_S, (now - self._began) / 100):
                    self._written = now
                    self._write()
                if (base := self.capture.header.get("base")) in _OWN:
                    self.capture.notice(f"Python's stacks are sampled up to where {base} was imported, and its own from there on")
                    break
                if self._count >= self._options.max_events:
                    self.full = True
                    break
        except Exception as error:  # noqa: BLE001 - a thread has no caller to tell: the capture is told, and training goes on
            self.capture.notice(
                f"Python's stacks were sampled for {time.monotonic() - self._began:.1f} s only: {type(error).__name__}: {error}"
            )
        self._close(clock.now_ns())

    def _sweep(self) -> None:
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
        # A row of no thread says how far the recording has come, should it end here.
        self._names.write("stack_samples", [*rows, (0, "", clock.now_ns(), -1)])


def _leaf(names: _Names, frame: FrameType | None) -> int:
    """The node of a whole stack."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    node = -1
    for code in reversed(codes):
        found = names.node(node, code)
        node = node if found == _NOT_OURS else found
    return node


class _Tracer:
    """Hears of every call and return."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self.capture, self._options = capture, options
        self.full = False
        self._names = _Names(capture)
        self._events: deque[tuple[int, int, int]] = deque()
        self._count = 0
        self._ended = threading.Event()
        self._silence: Callable[[], None] = _nothing

    def start(self) -> None:
        append, now, ident, node = self._events.append, clock.now_ns, threading.get_ident, self._names.node

        def begins(code: CodeType) -> None:
            if (number := node(-1, code)) >= 0:
                append((ident(), now(), number))

        def ends(code: CodeType) -> None:
            if (number := node(-1, code)) >= 0:
                append((ident(), now(), ~number))

        listen = _monitored if hasattr(sys, "monitoring") else _profiled
        self._silence = listen(begins, ends)
        _listening.append(self)
        at = now()
        for thread, frame in sys._current_frames().items():
            if hasattr(sys, "monitoring") or thread == ident():
                running = [(thread, at, node(-1, one.f_code)) for one in _outermost_first(frame)]
                self._events.extendleft(reversed([event for event in running if event[2] >= 0]))
        if not hasattr(sys, "monitoring"):
            self.capture.notice("before Python 3.12, calls are recorded of the thread that began the recording and of those begun later")
        self._thread = threading.Thread(target=self._run, name="stepscope stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.forget()
        self._ended.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        try:
            while not self._ended.wait(0.2) and not self.full:
                self._write()
                if self._count >= self._options.max_events:
                    self.full = True
                    self.forget()
        except Exception as error:  # noqa: BLE001 - a thread has no caller to tell: the capture is told, and training goes on
            self.capture.notice(f"Python's calls were recorded in part: {type(error).__name__}: {error}")

    def forget(self) -> None:
        """Hear of nothing more."""
        self._silence()
        if self in _listening:
            _listening.remove(self)

    def _write(self) -> None:
        events = [self._events.popleft() for _ in range(len(self._events))]
        self._names.look()
        named = ((*self._names.thread(ident), at, node) for ident, at, node in events)
        rows = [row for row in named if not row[1].startswith("stepscope ")]
        self._count += len(rows)
        self._names.write("stack_calls", rows)


_listening: list[_Tracer] = []


def _forked() -> None:
    """A forked child would remember every call, and nobody would ever write them down."""
    for tracer in list(_listening):
        tracer.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _outermost_first(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _monitored(begins: Callable[[CodeType], None], ends: Callable[[CodeType], None]) -> Callable[[], None]:
    """Listen through sys.monitoring; what this returns ends it."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool = next((number for number in (2, 3, 4) if monitoring.get_tool(number) is None), None)
    if tool is None:
        raise RuntimeError("other tools hold all places for profilers in sys.monitoring")
    monitoring.use_tool_id(tool, "stepscope")
    kinds = monitoring.events
    skipped = monitoring.DISABLE  # what is not ours to record is not asked again

    def began(code: CodeType, *_: Any) -> Any:
        return skipped if code.co_filename.startswith(_HERE) else begins(code)

    def ended(code: CodeType, *_: Any) -> Any:
        return skipped if code.co_filename.startswith(_HERE) else ends(code)

    heard: dict[int, Callable[..., Any]] = {
        kinds.PY_START: began,
        kinds.PY_RESUME: began,
        kinds.PY_THROW: lambda code, *_: begins(code),  # these two cannot be skipped
        kinds.PY_RETURN: ended,
        kinds.PY_YIELD: ended,
        kinds.PY_UNWIND: lambda code, *_: ends(code),
    }
    for kind, callback in heard.items():
        monitoring.register_callback(tool, kind, callback)
    monitoring.set_events(tool, sum(heard))

    def silence() -> None:
        if monitoring.get_tool(tool) == "stepscope":
            monitoring.set_events(tool, 0)
            for kind in heard:
                monitoring.register_callback(tool, kind, None)
            monitoring.free_tool_id(tool)
            monitoring.restart_events()  # what was skipped is heard of again by the next recording

    return silence


def _profiled(begins: Callable[[CodeType], None], ends: Callable[[CodeType], None]) -> Callable[[], None]:
    """Listen through sys.setprofile."""
    if sys.getprofile() is not None:
        raise RuntimeError("another profiler of Python's calls is active, such as cProfile")
    listening = True

    def heard(frame: FrameType, event: str, argument: Any) -> None:
        if not listening:
            sys.setprofile(None)
        elif event == "call":
            begins(frame.f_code)
        elif event == "return":
            ends(frame.f_code)

    threading.setprofile(heard)
    sys.setprofile(heard)

    def silence() -> None:
        nonlocal listening
        listening = False
        threading.setprofile(None)
        if sys.getprofile() is heard:
            sys.setprofile(None)

    return silence


def _nothing() -> None:
    pass
