"""A finished session as Kineto's own file, which PyTorch writes several times faster than its events can be copied into columns.

The reader of captures makes columns of the file later.
"""

import errno
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepscope.model.captures import Column
from stepscope.recording.collectors.torch.events import MEMORY

_CHUNK = 1 << 22
_END = 1 << 10
_SMALLEST = 100  # bytes of an event
# The order in which Kineto writes: of another one nothing matches, and the session is copied instead.
_THREAD_AND_TIMES = rb'"tid": (%s\d+),\s+"ts": (\d+)\.(\d{3}),\s+"dur": (\d+)\.(\d{3})\D'
_HOST_EVENT = rb'"cat": "(?:cpu_op|user_annotation)",\s+"name": "([^\n]*?)",\s+"pid": \d+,\s+' + _THREAD_AND_TIMES
_EVENT, _BLOCK = b'"ph": "X"', b'"name": "%s"' % MEMORY.encode()


class Content(NamedTuple):
    """What must be known of a session before the next one starts."""

    events: int  # 0 where they were not counted
    open_elsewhere: list[tuple[int, str]]  # operators on other threads that ended late: number of the thread, and name
    open_here: list[str] = []  # ranges of the recorded thread that were not closed: none should be


def save(results: Any, path: Path) -> None:
    """Write the events of a session. The file is complete if it exists. Kineto writes a session once only."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        results.save(str(draft))
        with draft.open("rb") as file:  # Kineto ignores a full disk
            file.seek(max(file.seek(0, os.SEEK_END) - _END, 0))
            end = file.read()
        if b'"traceName"' not in end or not end.rstrip().endswith(b"}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        draft.rename(path)
    finally:
        for leftover in path.parent.glob(f"{draft.name}*"):  # Kineto has a draft of its own
            leftover.unlink()


def content(path: Path, late_ns: int, thread: int, room: int | None) -> Content:
    """Raises ValueError for another layout. The events are counted if there may be more than `room`, or always without one."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        base = re.search(rb'"baseTimeNanoseconds": (\d+),', text[:_END])
        if base is None or not re.search(_HOST_EVENT % b"", text):
            raise ValueError("Kineto's file has another layout, or no events")
        counts = room is None or len(text) // _SMALLEST > room
        events = sum(chunk.count(_EVENT) + chunk.count(_BLOCK) for chunk in _chunks(text)) if counts else 0
        late_us = (late_ns - int(base[1])) // 1000 - 1
        elsewhere = b"(?!%d,)" % thread
        is_late = any(int(match[2]) + int(match[4]) >= late_us for match in re.finditer(_THREAD_AND_TIMES % elsewhere, text))
        on_host = re.findall(_HOST_EVENT % elsewhere, text) if is_late else []  # names take longer to find, and are rarely needed
        late = [(int(tid), name.decode("utf-8", "replace")) for name, tid, at, _, length, _ in on_host if int(at) + int(length) >= late_us]
        return Content(events, late, list(_unfinished(text, thread)))


def _unfinished(text: mmap.mmap, thread: int) -> Iterator[str]:
    """Names of the ranges and operators that had not ended on this thread."""
    for mark in re.finditer(rb'"finished": false', text):
        start = text.rfind(b'"ph": ', 0, mark.start())
        event = re.match(rb'"ph": "X",\s+' + _HOST_EVENT % b"", text[start : mark.start()])
        if event and int(event[2]) == thread:
            yield event[1].decode("utf-8", "replace")


def _chunks(text: mmap.mmap) -> Iterator[bytes]:
    """The text in parts that end where a line ends."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK) + 1 or len(text)
        yield text[start:end]
        start = end


def flops(results: Any, session: int) -> dict[str, Column]:
    """The FLOPs of a session, which its file does not have, by the number of the operator ("External id" in the file of this session)."""
    counted = [event for event in results.events() if event.flops() > 0]
    numbers = np.array([(event.correlation_id(), event.flops()) for event in counted], np.int64).reshape(-1, 2)
    return {"number": numbers[:, 0], "flops": numbers[:, 1], "session": np.full(len(counted), session)}
