"""Writes the events of a finished session of torch.profiler into the capture."""

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepscope.model.captures import Capture, Column
from stepscope.recording.collectors.options import Options
from stepscope.recording.collectors.torch import events, older_events
from stepscope.recording.collectors.torch.clock import Session

FALLBACK = "kineto.json"  # Kineto's own file, where its events could not be converted
CLOCK_ERROR_NS = 100_000  # largest difference between PyTorch's timestamps and the system's
_ON_HOST = ("cpu_op", "user_annotation")


class SessionWriter:
    """One per window: numbers that relate events continue from session to session."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self._capture, self._options = capture, options
        self.events = 0  # written so far
        self.full = False  # max_events was reached, or no further session can be written
        self.as_json = False  # the session was written in Kineto's own format
        self._first_number = self._last_number = 0  # the numbers of this session start here; the largest so far

    def write(self, profiler: Any, session: Session, *, room: int, thread: int, stopped_ns: int) -> tuple[int, list[tuple[int, str]]]:
        """The number of events, at most `room`, and the operators that were open on other threads when the session stopped."""
        count, cut = 0, events.Cut(room)
        open_elsewhere: list[tuple[int, str]] = []
        collects = gc.isenabled()
        gc.disable()  # nothing that is created here is garbage, and searching the program's objects for garbage takes long
        try:
            results = profiler.profiler.kineto_results
            source = events if hasattr(results, "trace_activities") else older_events
            if self._options.with_stack and source is older_events:
                self._write_json(profiler, "before 2.12 it returns Python stacks in no other way")
            else:
                for table, piece in session.corrected(source.pieces(results, self._options, cut)):
                    self._capture.append(table, self._renumbered(piece))
                    count += len(piece["start_ns"])
                    if table == "torch":
                        open_elsewhere += _open_elsewhere(piece, stopped_ns - CLOCK_ERROR_NS, thread)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # private to PyTorch: another release may differ
            self._fall_back(profiler, f"{type(error).__name__}: {error}")
        finally:
            if collects:
                gc.enable()
        if cut.lost:
            self.full = True
            self._capture.header["recorded_until_ns"] = cut.at_ns
            self._capture.notice(f"max_events={self._options.max_events:,} was reached: later events are not written", lost=cut.lost)
        self.events += count
        self._first_number = self._last_number
        return count, open_elsewhere

    def _renumbered(self, piece: Mapping[str, Column]) -> dict[str, Column]:
        """The numbers that relate events start again in each session; in the capture they must not."""
        columns = dict(piece)
        for name in columns.keys() & {"correlation", "external", "flow"}:
            values = np.asarray(columns[name])
            self._last_number = max(self._last_number, self._first_number + int(values.max(initial=0)))
            if self._first_number:
                columns[name] = np.where(values > 0, values + np.int64(self._first_number), values)
        return columns

    def _fall_back(self, profiler: Any, reason: str) -> None:
        if self.events:
            self.full = True
            self._capture.notice(f"recording ended early: PyTorch's events could not be converted ({reason})", lost=1)
        else:
            self._write_json(profiler, f"they could not be converted ({reason})")

    def _write_json(self, profiler: Any, reason: str) -> None:
        """Kineto's own file. A capture has one of them, so no session may follow."""
        profiler.export_chrome_trace(str(self._capture.folder / FALLBACK))
        self.as_json = True
        self._capture.notice(f"PyTorch's events are written as JSON, which takes longer to read: {reason}")


def _open_elsewhere(piece: Mapping[str, Any], late_ns: int, thread: int) -> list[tuple[int, str]]:
    """Thread and name of the operators on other threads that ended later than this."""
    is_late = (piece["start_ns"] + piece["dur_ns"] > late_ns) & (piece["tid"] != thread)
    names = piece["name"]
    return [(int(piece["tid"][row]), names.words[names.codes[row]]) for row in np.flatnonzero(is_late & piece["category"].where(_ON_HOST))]
