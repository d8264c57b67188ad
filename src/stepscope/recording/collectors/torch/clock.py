"""PyTorch's timestamps, where the wall clock was set while they were recorded.

PyTorch counts ticks of the processor and converts them to wall clock time when a session ends, by a straight line from its start to its
end. If the wall clock was set in between, all timestamps and durations of the session are stretched; set back by more than the length of
the session, they run backwards and have lost their ends.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.model import units
from stepscope.model.captures import Capture, Column
from stepscope.process import clock

Piece = tuple[str, Mapping[str, Column]]
_ERROR_NS = 1_000_000


class Session:
    """Maps PyTorch's timestamps to our clock, by ranges whose start is known on both."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        capture.check_clock()
        self.clock_settings, self._ahead = capture.begin_session(), capture.clock_ahead_ns
        self._marks: dict[str, tuple[int, int]] = {}  # by name of a range: its start, and the error of that

    def enter(self, marker: Any, name: str) -> None:
        """Begin a range of this name."""
        before = clock.now_ns()
        marker.__enter__()
        after = clock.now_ns()
        self._marks[name] = (before + after) // 2, after - before

    def close(self) -> None:
        """PyTorch reads the wall clock for the last time, right after this."""
        self._capture.check_clock()
        self._end = clock.reading()

    @property
    def clock_was_set(self) -> bool:
        return self._capture.clock_settings != self.clock_settings

    def corrected(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces of the session, on the clock of the recording."""
        if not self.clock_was_set:
            for table, columns in pieces:
                start = np.asarray(columns["start_ns"])
                yield table, {**columns, "start_ns": start - self._ahead} if abs(self._ahead) > clock.TOLERANCE_NS else columns
            return
        all_pieces = list(pieces)
        theirs, ours = self._range_starts(all_pieces)
        slope = (ours[-1] - ours[0]) / (theirs[-1] - theirs[0]) if len(theirs) > 1 and theirs[-1] > theirs[0] else 0
        wrong = np.abs(ours[0] + (theirs - theirs[0]) * slope - ours).max() if slope else 0
        if not slope or wrong > _ERROR_NS:
            lost = sum(len(columns["start_ns"]) for _, columns in all_pieces)
            self._capture.notice(
                units.count(lost, "event of PyTorch is lost", "events of PyTorch are lost")
                + ": the machine's clock was set during the recording, and with it the timestamps",
                lost=lost,
            )
            return
        for table, columns in all_pieces:
            start = np.asarray(columns["start_ns"])
            corrected = {"start_ns": ours[0] + np.rint((start - theirs[0]) * slope).astype(np.int64)}
            if "dur_ns" in columns:
                corrected["dur_ns"] = np.rint(np.asarray(columns["dur_ns"]) * slope).astype(np.int64)
            yield table, {**columns, **corrected}

    def _range_starts(self, pieces: list[Piece]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts of ranges on PyTorch's clock and on ours, in the order of ours."""
        close = max(min((width for _, width in self._marks.values()), default=0), _ERROR_NS // 4)  # unless the thread had to wait
        starts = [
            (self._marks[name][0], int(start))
            for table, columns in pieces
            if table == "torch"
            for name, start in _starts(columns)
            if name in self._marks and self._marks[name][1] <= close
        ]
        if len(starts) == 1:  # one step: up to the session's end
            starts.append((self._end[0], sum(self._end)))
        ours, theirs = np.array(sorted(starts), np.int64).reshape(-1, 2).T
        return theirs, ours


def _starts(columns: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Name and start of each row."""
    names = columns["name"]
    return ((names.words[code], start) for code, start in zip(names.codes, columns["start_ns"], strict=True))
