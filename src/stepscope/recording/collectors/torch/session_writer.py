"""Writes the events of a finished session of torch.profiler into the capture."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Column
from stepscope.recording.collectors.options import Options
from stepscope.recording.collectors.torch import events, kineto_file, older_events
from stepscope.recording.collectors.torch.clock import Session
from stepscope.recording.collectors.torch.kineto_file import Content

CLOCK_ERROR_NS = 100_000  # largest difference between PyTorch's timestamps and the system's
_ON_HOST = ("cpu_op", "user_annotation")


class SessionWriter:
    """One per window: numbers that relate events continue from session to session."""

    def __init__(self, capture: Capture, options: Options, *, keep_events: bool) -> None:
        self._capture, self._options = capture, options
        self._keep_events = keep_events  # Kineto writes its file once only, and the user may want to do that
        self.full = False  # max_events was reached
        self._files = 0
        self._first_number = self._last_number = 0  # the numbers of this session start here; the largest so far

    def write(self, profiler: Any, session: Session, *, room: int, thread: int, stopped_ns: int, last: bool) -> Content:
        """Write a session, at most `room` events of it, that stopped at this time. `thread` is the number of the recorded thread.

        The last session becomes Kineto's file, which pauses training for a shorter time; columns take an eighth of the space. So do all
        sessions of older releases of PyTorch, whose events take longer to copy.
        """
        results = profiler.profiler.kineto_results
        source = events if hasattr(results, "trace_activities") else older_events
        self._late_ns, self._thread, self._room = stopped_ns - CLOCK_ERROR_NS, thread, room
        is_older = source is older_events
        only_file = self._options.with_stack and is_older  # these events have no Python stacks
        prefers_file = only_file or ((last or is_older) and not self._keep_events and not session.clock_was_set)
        self._counts = not last
        with _without_collections():
            content = self._write_file(results, session, only_file) if prefers_file else None
            if content is None:
                content, failure = self._write_columns(results, source, session)
                if failure and (file := None if content.events or prefers_file else self._write_file(results, session, True)):
                    content = file
                    self._capture.notice(f"PyTorch's events are written as Kineto's file: they could not be copied ({failure})")
                elif failure:
                    self.full = True
                    self._capture.notice(f"PyTorch's events are lost: they could not be copied ({failure})", lost=1)
        self._first_number = self._last_number
        return content

    def _write_file(self, results: Any, session: Session, is_needed: bool) -> Content | None:
        """None where the events must be copied instead."""
        number = self._files
        path = self._capture.folder / f"kineto.{number:06d}.json"
        self._files += 1
        try:
            kineto_file.save(results, path)
            content = kineto_file.content(path, self._late_ns, self._thread, None if self._counts else self._room)
            if content.events > self._room and not is_needed:
                raise ValueError("more events than max_events")
            if self._options.with_flops:
                self._capture.append("torch_flops", kineto_file.flops(results, number))
            self._capture.header.setdefault("kineto", {})[path.name] = {"ahead_ns": session.ahead_ns}
            self._capture.describe()
        except (OSError, AttributeError, TypeError, ValueError, RuntimeError):  # private to PyTorch: another release may differ
            path.unlink(missing_ok=True)
            return None
        self._capture.bytes += path.stat().st_size
        if session.clock_was_set:
            self._capture.notice("timestamps of PyTorch may be wrong: the machine's clock was set during the recording")
        return content

    def _write_columns(self, results: Any, source: Any, session: Session) -> tuple[Content, str]:
        """What was written, and why the rest was not."""
        cut, failure = events.Cut(self._room), ""
        if source is older_events and events.has_devices():
            self._capture.notice("arguments of kernels are not recorded: PyTorch could not write its own file")
        content = Content(0, [])
        try:
            for table, piece in session.corrected(source.pieces(results, self._options, cut)):
                self._capture.append(table, self._renumbered(piece))
                content = content._replace(events=content.events + len(piece["start_ns"]))
                if table == "torch":
                    content.open_elsewhere.extend(_open_elsewhere(piece, self._late_ns, self._thread))
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # private to PyTorch, as above
            failure = f"{type(error).__name__}: {error}"
        if cut.lost:
            self.full = True
            self._capture.header["recorded_until_ns"] = cut.at_ns
            self._capture.notice(f"max_events={self._options.max_events:,} was reached: later events are not written", lost=cut.lost)
        return content, failure

    def _renumbered(self, piece: Mapping[str, Column]) -> dict[str, Column]:
        """The numbers that relate events start again in each session; in the capture they must not."""
        columns = dict(piece)
        for name in columns.keys() & {"correlation", "external", "flow"}:
            values = np.asarray(columns[name])
            self._last_number = max(self._last_number, self._first_number + int(values.max(initial=0)))
            if self._first_number:
                columns[name] = np.where(values > 0, values + np.int64(self._first_number), values)
        return columns


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection: nothing that is created here is garbage, and searching the program's objects for garbage takes long."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _open_elsewhere(piece: Mapping[str, Any], late_ns: int, thread: int) -> list[tuple[int, str]]:
    """Thread and name of the operators on other threads that ended later than this."""
    is_late = (piece["start_ns"] + piece["dur_ns"] > late_ns) & (piece["tid"] != thread)
    names = piece["name"]
    return [(int(piece["tid"][row]), names.words[names.codes[row]]) for row in np.flatnonzero(is_late & piece["category"].where(_ON_HOST))]
