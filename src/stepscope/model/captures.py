"""A capture: the column files of one recording window of one process, written with numpy alone.

    NAME.capture/
        capture.json              header: the process, and whether the capture is complete
        <table>.<number>.npz      part of a table: one array per column; text as codes into a list of words
        <other files>             files that the framework's profiler wrote

A file is written under another name and renamed: every file is complete, even after kill -9.
"""

import io
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import tokenize
import zipfile
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.errors import UsageError, first_line
from stepscope.process import clock

SUFFIX = ".capture"
HEADER = "capture.json"
VERSION = 1
_WRITTEN_S = 1.0
# With host and process id, the identity of a process: ids are reused, and containers share them.
_PROCESS = os.urandom(8).hex()


class Coded(NamedTuple):
    """Text that repeats: the code of each row, where -1 is null, and the words."""

    codes: NDArray[np.int32]
    words: list[str]

    def where(self, words: Container[str]) -> NDArray[np.bool_]:
        """Whether the word of each row is one of these."""
        return np.array([*(word in words for word in self.words), False], np.bool_)[self.codes]


def coded(texts: Sequence[str | None]) -> Coded:
    distinct = dict.fromkeys(texts)
    distinct.pop(None, None)
    numbers: dict[str | None, int] = {word: number for number, word in enumerate(distinct)} | {None: -1}
    return Coded(np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts)), [word for word in distinct if word is not None])


Column = NDArray[Any] | Coded | Sequence[str | None]


def check_writable(folder: Path, name: str) -> None:
    """Raise an error for a folder that cannot be written, before the recording starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{name} is '{folder}', which cannot be written: {error.strerror or error}") from error


def run_folder(capture: Path) -> Path:
    """The path of the run folder of a capture."""
    name = capture.name
    return capture.with_name(name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else f"{name}.run")


class Capture:
    """A capture that is being written. Safe to use from several threads."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        clock.anchor()
        self._clocks = clock.Readings()
        defaults = {"capture_version": VERSION, "whole": False, "notices": [], "parent": os.getppid(), "process": _PROCESS}
        self.header: dict[str, Any] = {**defaults, **header, "start_ns": clock.now_ns()}
        self._pieces: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._lock = threading.RLock()  # a signal handler may end the recording inside a call
        self.bytes = 0
        # The folder appears together with its header: a job that is killed leaves no capture without one.
        draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        draft.mkdir(parents=True)
        try:
            _write(draft / HEADER, self._header_text())
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def append(self, table: str, columns: Mapping[str, Column], *, again: bool = False) -> None:
        """Add rows to a table. Columns are arrays, or lists of text where None is null. Rows that cannot be written count as lost, unless
        the caller tries `again`."""
        try:
            self._append(table, columns)
        except OSError as error:
            if again:
                raise
            rows = columns.get("start_ns", columns.get("at_ns", next(iter(columns.values()))))
            self.count_lost(f"rows of the table '{table}'", len(rows), error)
            raise

    def count_lost(self, noun: str, count: int, error: OSError) -> None:
        """Count rows or files that could not be written, and report the total."""
        with self._lock:
            self._lost[noun] = self._lost.get(noun, 0) + count
            reason = self.header["incomplete"] = error.strerror or str(error)
            text = f" {noun} could not be written: {reason}"
            others = [notice for notice in self.header["notices"] if not notice["what"].endswith(text)]
            self.header["notices"] = [*others, {"what": f"{self._lost[noun]:,}{text}", "lost": self._lost[noun]}]

    def _append(self, table: str, columns: Mapping[str, Column]) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        for name, values in columns.items():
            if isinstance(values, np.ndarray):
                arrays[name] = values
            else:
                text = values if isinstance(values, Coded) else coded(values)
                arrays |= {f"{name}.{part}": array for part, array in _encoded(text).items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        with self._lock:
            number = self._pieces[table] = self._pieces.get(table, -1) + 1
            self.bytes += buffer.tell()
        _write(self.folder / f"{table}.{number:06d}.npz", buffer.getvalue())

    def notice(self, message: str, *, lost: int = 0) -> None:
        """Report something to the user: it becomes a row of `problems`."""
        with self._lock:
            if all(notice["what"] != message for notice in self.header["notices"]):
                self.header["notices"].append({"what": message, "lost": lost})

    def check_clock(self) -> None:
        """Record a change of the wall clock: the profilers of the frameworks use it for their timestamps."""
        with self._lock:
            changed = self._clocks.look()
        if changed:
            self._note_clock()
            self._write_header()

    def begin_session(self) -> int:
        """Start a session of the framework's profiler. Returns `clock_settings`: when it grows, another session should start."""
        self.header.setdefault("sessions", []).append(clock.now_ns())
        return self.clock_settings

    @property
    def clock_settings(self) -> int:
        """The number of changes of the wall clock since the recording started."""
        return len(self._clocks.kept) // 2

    @property
    def clock_ahead_ns(self) -> int:
        """How far the wall clock was ahead of the recording's clock at the last check."""
        return self._clocks.kept[-1][1]

    def _note_clock(self) -> None:
        readings = self._clocks.kept
        self.header["clock"] = {"offset_ns": clock.offset_ns(), "readings": readings}
        for (_, before), (_, after) in pairwise(readings):
            if seconds := round((after - before) / 1e9, 3):
                way = "back" if seconds < 0 else "forward"
                self.notice(
                    f"the machine's clock was set {way} by {abs(seconds):,.3f} s while recording: timestamps follow the monotonic clock"
                )

    def describe(self, **more: Any) -> None:
        """Write these fields to the header now, in case the job is killed."""
        self.header |= more
        self._write_header()

    def finish(self, **more: Any) -> None:
        """Complete the capture: everything is written."""
        with self._lock:
            if not self.header["whole"]:
                self._clocks.close()
                self._note_clock()
        pieces = {table: number + 1 for table, number in self._pieces.items()}
        self.header |= {"whole": True, "end_ns": clock.now_ns(), "pieces": pieces, **more}
        self._write_header()

    def _write_header(self) -> None:
        try:
            _write(self.folder / HEADER, self._header_text())
        except OSError:
            if not _overwrite(self.folder / HEADER, self._header_text()):
                raise

    def _header_text(self) -> bytes:
        return json.dumps(self.header, indent=1, default=str).encode()


class Pace:
    """When to write recorded data to disk: every second, for live views; less often in a long recording, to limit the files."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last <= max(_WRITTEN_S, (now - self._began) / 100):
            return False
        self._last = now
        return True


def header(folder: Path) -> dict[str, Any]:
    """The content of capture.json."""
    fields: Any = json.loads((folder / HEADER).read_bytes())
    # JSON may contain lone surrogates, which tables and other files cannot.
    valid: dict[str, Any] = json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
    return valid


def clock_ahead_ns(header: Mapping[str, Any]) -> int:
    """How far the wall clock was ahead of a recording's clock at the last check."""
    try:
        return int(header["clock"]["readings"][-1][1])
    except (KeyError, TypeError, ValueError, IndexError):  # no change was recorded, or the header is damaged
        return 0


def recorder(folder: Path) -> int | None:
    """The process on this machine that still writes the capture; None where there is none."""
    fields = header(folder)
    pid = fields.get("pid")
    if fields.get("whole") or fields.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return pid
    except (OSError, OverflowError):
        return None
    return pid


Piece = dict[str, NDArray[Any] | tuple[NDArray[Any], list[str]]]
# Errors that a damaged column file may cause, also in code that uses its columns.
DAMAGE = (
    *(OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, MemoryError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),  # a damaged compression method or encryption flag
    *(SyntaxError, tokenize.TokenError),  # in the header of an array
)

# The columns that every file of a table has; readers need not check them.
_TEXTS = ("name", "thread", "kind", "group", "track_kind", "unit", "category", "meta", "args")
_NEEDED = {
    "steps": ("step", "start_ns", "end_ns"),
    "ranges": ("name", "start_ns", "dur_ns", "tid", "thread"),
    "spans": ("name", "start_ns", "dur_ns", "tid", "thread", "kind", "group", "track_kind"),
    "counters": ("name", "at_ns", "value"),
    "unprofiled_steps": ("step", "dur_ns", "order", "after"),
    "torch": ("name", "category", "pid", "tid", "start_ns", "dur_ns", "correlation", "external", "flow", "flow_end", "meta", "told"),
    "torch_memory": ("tid", "start_ns", "text"),
}


def pieces(folder: Path, table: str, damaged: dict[str, str] | None = None) -> Iterator[Piece]:
    """The parts of a table in order. A text column consists of its codes (-1 is null) and its words.

    A file that cannot be read is left out, and `damaged` gets the reason by the file's name.
    """
    for file in files(folder, table):
        try:
            part = piece(file)
        except DAMAGE as error:
            if damaged is not None:
                damaged[file.name] = first_line(error)
            continue
        yield part


def missing_pieces(folder: Path, header: Mapping[str, Any]) -> Iterator[str]:
    """Names of column files that were written and are missing: files are numbered, and the header counts them."""
    written = header.get("pieces")
    counts = {table: count for table, count in written.items() if isinstance(count, int)} if isinstance(written, dict) else {}
    for file in folder.glob("*.*.npz"):
        table, number = file.name.split(".")[:2]
        if number.isdecimal() and len(number) < 10:
            counts[table] = max(counts.get(table, 0), int(number) + 1)
    for table, count in sorted(counts.items()):
        names = (f"{table}.{piece:06d}.npz" for piece in range(min(count, 1_000_000)))
        yield from (name for name in names if not (folder / name).exists())


def files(folder: Path, table: str) -> list[Path]:
    """The files of a table, in the order in which they were written."""
    return sorted(file for file in folder.glob(f"{table}.*.npz") if file.is_file())  # opening a pipe would block


def piece(file: Path) -> Piece:
    with file.open("rb") as content, np.load(content, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        names = dict.fromkeys(name.removesuffix(".codes") for name in arrays.files if not name.endswith((".blob", ".ends")))
        columns: Piece = {
            name: (arrays[f"{name}.codes"], _words(arrays[f"{name}.blob"], arrays[f"{name}.ends"]))
            if f"{name}.codes" in arrays.files
            else arrays[name]
            for name in names
        }
    _check(file.name.partition(".")[0], columns)
    return columns


def _check(table: str, columns: Piece) -> None:
    """Raise ValueError for a missing column, or a column of another type than the recorder writes."""
    if missing := set(_NEEDED.get(table, ())) - columns.keys():
        raise ValueError(f"no column {min(missing)}")
    for name, values in columns.items():
        numbers, text = (values[0], True) if isinstance(values, tuple) else (values, False)
        whole = text or name.endswith(("_ns", "tid", "pid", "step"))
        if numbers.ndim != 1 or numbers.dtype.kind not in ("iu" if whole else "iufb"):
            raise ValueError(f"column {name} does not hold {'integers' if whole else 'numbers'}")
        if table in _NEEDED and name in (*_TEXTS, *_NEEDED[table]) and text != (name in _TEXTS):
            raise ValueError(f"column {name} holds {'text, not numbers' if text else 'numbers, not text'}")
        if name.endswith("_ns") and len(numbers) and not -_LATEST_NS <= int(numbers.min()) <= int(numbers.max()) <= _LATEST_NS:
            raise ValueError(f"column {name} has invalid timestamps")
        if whole and not text and numbers.dtype != np.int64 and (numbers.dtype.itemsize == 8 or name in ("start_ns", "end_ns", "at_ns")):
            columns[name] = numbers.astype(np.int64)


_LATEST_NS = 2**62  # a difference of two such times fits into 64 bits


def _encoded(text: Coded) -> dict[str, NDArray[Any]]:
    """The bytes of all words, and the end of each word."""
    words = [word.encode("utf-8", "replace") for word in text.words]
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    return {"codes": text.codes, "blob": np.frombuffer(b"".join(words), np.uint8), "ends": ends}


def _words(blob: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    text, starts = blob.tobytes(), np.concatenate(([0], ends[:-1])) if len(ends) else ends
    return [text[start:end].decode("utf-8", "replace") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _overwrite(path: Path, content: bytes) -> bool:
    """Write into the existing blocks of a file, for a full disk without room for another file. False where the content does not fit."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        if len(content) > os.fstat(file).st_blocks * 512:
            return False
        before = os.pread(file, len(content), 0)
        written = os.pwrite(file, content, 0)
        if written < len(content):
            os.pwrite(file, before[:written], 0)
            return False
        os.ftruncate(file, len(content))
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
