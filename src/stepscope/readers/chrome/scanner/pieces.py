"""A piece of Chrome trace events, from JSON text to columns, by the compiled scanner."""

import ctypes
import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.process.compiled.library import OTHER_PRECISION, SCANNED, Result
from stepscope.readers.chrome.columns import INSTANTS, counter_frame, null_at, parse_args
from stepscope.readers.chrome.records import Report, TrackKey
from stepscope.readers.chrome.scanner.texts import text_series
from stepscope.readers.chrome.timestamps import FAR_NS, from_decimal, from_float

_Rows = NDArray[np.void]

_NUMBERS = [(name, np.int64) for name in ("start", "duration", "correlation", "external", "flops", "bytes")]
_CODES = [(name, np.uint32) for name in ("category", "name", "track", "shapes", "dtypes", "module")]
_PLACES = [(name, np.uint32) for name in ("args_at", "args_size", "id_at", "id_size")]
_SPAN = np.dtype([*_NUMBERS, *_CODES, *_PLACES, ("number", np.uint32), ("phase", np.uint8)], align=True)
_FLOW = np.dtype(
    [("start", np.int64), ("category", np.uint32), ("track", np.uint32), ("id_at", np.uint32), ("id_size", np.uint32), ("phase", np.uint8)],
    align=True,
)
_MEMORY = np.dtype(
    [
        ("address", np.uint64),
        *((name, np.int64) for name in ("start", "bytes", "allocated", "reserved")),
        *((name, np.int32) for name in ("device_type", "device_id")),
        ("track", np.uint32),
    ],
    align=True,
)
_TIME = np.dtype([(name, np.uint32) for name in ("table", "row", "field", "at", "size")])
_ODD = np.dtype([("number", np.uint32), ("kind", np.uint32)])
_TEXT = np.dtype([("text_at", np.uint32), ("text_size", np.uint32), ("escaped", np.uint32)])
_TRACK = np.dtype(
    [
        *((name, np.uint32) for name in ("pid_at", "pid_size", "tid_at", "tid_size", "role_at", "role_size")),
        *((name, np.uint8) for name in ("role", "pid_quoted", "tid_quoted", "escaped")),
    ]
)
# The tables of a result, in their order.
_DICTIONARIES = ("name", "category", "shapes", "dtypes", "module")
_TABLES: dict[str, np.dtype[Any]] = {
    "spans": _SPAN,
    "pairs": _SPAN,
    "others": _SPAN,  # metadata and counters
    "flows": _FLOW,
    "memory": _MEMORY,
    "times": _TIME,
    "odd": _ODD,
    **dict.fromkeys(_DICTIONARIES, _TEXT),
    "tracks": _TRACK,
}
_NO_TEXT = 2**32 - 1
_SEED = int.from_bytes(os.urandom(4), "little")  # no file can be made whose texts all meet in one slot of a hash table


def decode(library: ctypes.CDLL, array: bytes | memoryview) -> tuple[Report, dict[str, pl.DataFrame]] | None:
    """Report and columns of a JSON array of events; None for text that is unusual: the Python path reads it, and reports why."""
    text = np.frombuffer(array, np.uint8)
    result = Result()
    for from_digits in (False, True):
        code = library.stepscope_scan(text.ctypes.data, len(text), _SEED, from_digits, result)
        if code == OTHER_PRECISION:
            continue
        if code != SCANNED:
            return None
        try:
            piece = _Piece(library, text, result)
            return piece.decoded(result) if piece.add_times(from_digits) else None
        finally:
            library.stepscope_free(result)
    return None


class _Piece:
    """The rows of a scan, which own their memory no longer than the scan's result."""

    def __init__(self, library: ctypes.CDLL, text: NDArray[np.uint8], result: Result) -> None:
        self._library, self._text = library, text
        self.tables = {name: _rows(table, dtype) for table, (name, dtype) in zip(result.tables, _TABLES.items(), strict=True)}
        self._distinct = {name: self._distinct_texts(name) for name in _DICTIONARIES}

    def add_times(self, from_digits: bool) -> bool:
        """Fill in the times that the scan leaves to Python; False where the Python path has to decide about all of them."""
        for table, row, field, at, size in self.tables["times"].tolist():
            text = self._bytes(at, size).decode()
            value = from_decimal(text) if from_digits else from_float(text)
            if value is None or abs(value) >= FAR_NS or (field and value < 0):
                return False
            rows = self.tables[list(_TABLES)[table]]
            rows[("start", "duration")[field]][row] = value
        return True

    def decoded(self, result: Result) -> tuple[Report, dict[str, pl.DataFrame]]:
        report = Report(events=result.entries, entries=result.entries, tracks=self._tracks())
        self._report_odd(report)
        others = self.tables["others"]
        is_metadata = others["phase"] == ord("M")
        report.metadata = self._metadata(others[is_metadata], report.tracks)
        parts = {
            "spans": self._spans(),
            "pairs": self._pairs(),
            "flows": self._flows(),
            "memory": self._memory(),
            "counters": self._counters(others[~is_metadata], report),
        }
        parts = {name: part for name, part in parts.items() if part.height or name == "spans"}
        report.rows = sum(part.height for part in parts.values())
        if result.rest < len(self._text):
            report.rest = self._text[result.rest :].tobytes()
        return report, parts

    def _spans(self) -> pl.DataFrame:
        rows = self.tables["spans"]
        phase = rows["phase"]
        is_instant = np.isin(phase, [ord(letter) for letter in INSTANTS])
        columns = self._common(rows)
        columns = {
            **{name: columns[name] for name in ("category", "name", "track", "start_ns")},
            "dur_ns": _column(rows, "duration"),
            **columns,
            "instant": pl.Series(is_instant),
            "known_phase": pl.Series(is_instant | (phase == ord("X"))),
        }
        return pl.DataFrame(columns)

    def _pairs(self) -> pl.DataFrame:
        rows = self.tables["pairs"]
        columns = self._common(rows)
        before = {"phase": _phases(rows)} | {name: columns[name] for name in ("category", "name", "track")}
        return pl.DataFrame({**before, "flow": self._texts(rows, "id"), **columns})

    def _common(self, rows: _Rows) -> dict[str, pl.Series]:
        """The columns of spans and of halves of spans."""
        nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(rows))
        return {
            "category": self._categories(rows, "category"),
            "name": self._categories(rows, "name"),
            "track": _tracks_of(rows),
            "start_ns": _column(rows, "start"),
            **{name: null_at(-1, _column(rows, name)) for name in ("correlation", "external", "flops", "bytes")},
            **{name: self._categories(rows, name) for name in ("shapes", "dtypes", "module")},
            "args": self._texts(rows, "args", "{}"),
            "hint_kind": nothing,
            "hint_type": nothing,
        }

    def _flows(self) -> pl.DataFrame:
        rows = self.tables["flows"]
        return pl.DataFrame(
            {
                "phase": _phases(rows),
                "category": self._categories(rows, "category"),
                "flow": self._texts(rows, "id"),
                "track": _tracks_of(rows),
                "at_ns": _column(rows, "start"),
            }
        )

    def _memory(self) -> pl.DataFrame:
        rows = self.tables["memory"]
        column = {name: _column(rows, name) for name in rows.dtype.names or ()}
        return pl.DataFrame(
            {
                "track": _tracks_of(rows),
                "at_ns": column["start"],
                **{name: column[name] for name in ("address", "bytes", "device_type", "device_id")},
                "device": pl.Series([None], dtype=pl.String).new_from_index(0, len(rows)),
                **{name: null_at(-1, column[name]) for name in ("allocated", "reserved")},
            }
        )

    def _counters(self, rows: _Rows, report: Report) -> pl.DataFrame:
        names, flows, args = self._categories(rows, "name").cast(pl.String), self._texts(rows, "id"), self._texts(rows, "args", "{}")
        columns = (rows["number"].tolist(), rows["track"].tolist(), names, flows, rows["start"].tolist(), args)
        return counter_frame(zip(*columns, strict=True), report)

    def _metadata(self, rows: _Rows, tracks: list[TrackKey]) -> list[tuple[str, int | str, int | str, Any]]:
        names = self._categories(rows, "name").cast(pl.String)
        args = self._texts(rows, "args", "{}")
        keys = (tracks[track] for track in rows["track"].tolist())
        return [(name, key[0], key[1], parse_args(text.encode())) for name, key, text in zip(names, keys, args, strict=True)]

    def _report_odd(self, report: Report) -> None:
        odd = self.tables["odd"]
        for kind, description in enumerate(("events without a usable time", "complete events without a usable duration")):
            numbers = odd["number"][odd["kind"] == kind]
            if len(numbers):
                report.add_oddity(description, int(numbers[0]), count=len(numbers), lost=len(numbers))

    def _tracks(self) -> list[TrackKey]:
        return [self._track_key(row) for row in self.tables["tracks"]]

    def _track_key(self, row: Mapping[str, Any]) -> TrackKey:
        def part(name: str) -> str:
            return _unescaped(self._bytes(row[f"{name}_at"], row[f"{name}_size"]), bool(row["escaped"]))

        pid, tid = (part(name) if row[f"{name}_quoted"] else int(part(name)) for name in ("pid", "tid"))
        return pid, tid, ("", "annotation", "async " + part("role"))[row["role"]]

    def _distinct_texts(self, name: str) -> pl.Series:
        rows = self.tables[name]
        texts = self._texts(rows, "text")
        escaped = np.flatnonzero(rows["escaped"])
        if len(escaped):
            texts = texts.scatter(escaped, [_unescaped(texts[row].encode(), True) for row in escaped.tolist()])
        return texts.cast(pl.Categorical)

    def _categories(self, rows: _Rows, name: str) -> pl.Series:
        codes, distinct = _column(rows, name), self._distinct[name]
        if distinct.is_empty():
            return pl.Series([None], dtype=pl.Categorical).new_from_index(0, len(rows))
        return distinct.gather(null_at(_NO_TEXT, codes))

    def _bytes(self, at: int, size: int) -> bytes:
        return self._text[at : at + size].tobytes()

    def _texts(self, rows: _Rows, field: str, empty: str = "") -> pl.Series:
        return text_series(self._library, self._text, rows, field, empty)


def _rows(table: Any, dtype: np.dtype[Any]) -> _Rows:
    if not table.count:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (table.count * dtype.itemsize)).from_address(table.rows)
    return np.frombuffer(memory, dtype)


def _column(rows: _Rows, name: str) -> pl.Series:
    return pl.Series(rows[name].copy())  # a series may share the memory of an array, and that of the scan is freed


def _phases(rows: _Rows) -> pl.Series:
    letters = rows["phase"].copy()
    return pl.Series(letters.view("S1").astype("U1")) if len(rows) else pl.Series(dtype=pl.String)


def _tracks_of(rows: _Rows) -> pl.Series:
    return pl.Series(rows["track"].astype(np.int32))


def _unescaped(text: bytes, escaped: bool) -> str:
    return msgspec.json.decode(b'"' + text + b'"', type=str) if escaped else text.decode()
