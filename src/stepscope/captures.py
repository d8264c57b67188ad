"""A capture: the plain column files that one recording window of one process leaves, with numpy alone.

    NAME.capture/
        capture.json              what it is and whether it is whole
        <table>.<number>.npz      a piece of a table: one array per column; text as codes into a list of words
        <anything else>           files that the framework's own profiler wrote, for the reader to take over

A piece is written under another name and renamed: what is there is whole, also after kill -9.
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

from stepscope import clock
from stepscope.errors import UsageError

SUFFIX = ".capture"
HEADER = "capture.json"
VERSION = 1
_WRITTEN_S = 1.0
# With host and process id, what tells a process from all others: ids are used again, in containers at once.
_PROCESS = os.urandom(8).hex()


class Coded(NamedTuple):
    """Text that repeats: the number of each row's word, where -1 is null, and the words."""

    codes: NDArray[np.int32]
    words: list[str]

    def where(self, words: Container[str]) -> NDArray[np.bool_]:
        """The rows whose word is one of these."""
        return np.array([*(word in words for word in self.words), False], np.bool_)[self.codes]


def coded(texts: Sequence[str | None]) -> Coded:
    distinct = dict.fromkeys(texts)
    distinct.pop(None, None)
    numbers: dict[str | None, int] = {word: number for number, word in enumerate(distinct)} | {None: -1}
    return Coded(np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts)), [word for word in distinct if word is not None])


Column = NDArray[Any] | Coded | Sequence[str | None]


def check_writable(folder: Path, name: str) -> None:
    """Plainly wrong, so said at once rather than when the recording is over."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{name} is '{folder}', which cannot be written: {error.strerror or error}") from error


def run_folder(capture: Path) -> Path:
    """Where a capture's run folder is, or will be."""
    name = capture.name
    return capture.with_name(name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else f"{name}.run")


class Capture:
    """The writing side. Safe to use from several threads."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        clock.anchor()
        self._clocks = clock.Readings()
        about = {"capture_version": VERSION, "whole": False, "notices": [], "parent": os.getppid(), "process": _PROCESS}
        self.header: dict[str, Any] = {**about, **header, "start_ns": clock.now_ns()}
        self._pieces: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._lock = threading.RLock()  # a signal may end the recording from within
        self.bytes = 0
        # The folder appears with its header in it: a job killed in between leaves nothing that looks like a capture.
        draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        draft.mkdir(parents=True)
        try:
            _write(draft / HEADER, self._header_text())
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)  # not even what it is could be written
            raise

    def append(self, table: str, columns: Mapping[str, Column], *, again: bool = False) -> None:
        """Add rows to a table. Columns are arrays, or lists of text where None is null. Rows that cannot be written are counted as lost,
        unless the caller will try `again`."""
        try:
            self._append(table, columns)
        except OSError as error:
            if again:
                raise
            rows = columns.get("start_ns", columns.get("at_ns", next(iter(columns.values()))))
            self.count_lost(f"rows of the table '{table}'", len(rows), error)
            raise

    def count_lost(self, what: str, count: int, error: OSError) -> None:
        """So many could not be written: the disk is full, or gone."""
        with self._lock:
            self._lost[what] = self._lost.get(what, 0) + count
            reason = self.header["incomplete"] = error.strerror or str(error)
            ours = f" {what} could not be written: {reason}"
            others = [said for said in self.header["notices"] if not said["what"].endswith(ours)]
            self.header["notices"] = [*others, {"what": f"{self._lost[what]:,}{ours}", "lost": self._lost[what]}]

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

    def notice(self, what: str, *, lost: int = 0) -> None:
        """Something the user should know of: it becomes a row of `problems`."""
        with self._lock:
            if all(said["what"] != what for said in self.header["notices"]):
                self.header["notices"].append({"what": what, "lost": lost})

    def check_clock(self) -> None:
        """Keep, and say, that the wall clock was set: the profilers of the frameworks take their times from it."""
        with self._lock:
            set_ = self._clocks.look()
        if set_:
            self._note_clock()
            self._write_header()

    def begin_session(self) -> int:
        """A session of the framework's profiler begins now. The answer is `clock_settings`: when it grows, another session should begin."""
        self.header.setdefault("sessions", []).append(clock.now_ns())
        return self.clock_settings

    @property
    def clock_settings(self) -> int:
        """How often the wall clock has been set since the recording began."""
        return len(self._clocks.kept) // 2

    @property
    def clock_ahead_ns(self) -> int:
        """How far the wall clock is ahead of the recording's, as it was when last looked at."""
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
        """Put what is known by now on disk, for the case that the job does not live to finish."""
        self.header |= more
        self._write_header()

    def finish(self, **more: Any) -> None:
        """Everything is written."""
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
    """When what is recorded goes to disk: every second, so that one can look on; the longer it lasts the rarer, or files would pile up."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last <= max(_WRITTEN_S, (now - self._began) / 100):
            return False
        self._last = now
        return True


def header(folder: Path) -> dict[str, Any]:
    """What capture.json says."""
    found: Any = json.loads((folder / HEADER).read_bytes())
    # JSON can hold halves of characters, which no table and no other file can.
    plain: dict[str, Any] = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def clock_ahead_ns(header: Mapping[str, Any]) -> int:
    """How far the wall clock was ahead of a recording's clock when that was last looked at."""
    try:
        return int(header["clock"]["readings"][-1][1])
    except (KeyError, TypeError, ValueError, IndexError):  # it was not set, or the header is damaged
        return 0


def recorder(folder: Path) -> int | None:
    """The process that is still writing it, if there is one on this machine."""
    said = header(folder)
    pid = said.get("pid")
    if said.get("whole") or said.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return pid
    except (OSError, OverflowError):
        return None
    return pid


Piece = dict[str, NDArray[Any] | tuple[NDArray[Any], list[str]]]
# What a damaged column file may raise; some of it comes from whoever uses the columns.
DAMAGE = (
    *(OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, MemoryError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),  # a method of packing, or a password, that never was
    *(SyntaxError, tokenize.TokenError),  # in what numpy says of an array
)

# The columns that every piece of a table has; readers need no further check of them.
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
    """The pieces of a table in order; a text column is its codes (-1 is null) and its words.

    A piece that cannot be read is left out; `damaged` says why, by the file's name.
    """
    for file in files(folder, table):
        try:
            found = piece(file)
        except DAMAGE as error:
            if damaged is not None:
                damaged[file.name] = damage(error)
            continue
        yield found


def damage(error: BaseException) -> str:
    """Why a column file cannot be read, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def missing_pieces(folder: Path, header: Mapping[str, Any]) -> Iterator[str]:
    """Names of the column files that were written and are not there: pieces are numbered, and the header counts them."""
    said = header.get("pieces")
    counts = {table: count for table, count in said.items() if isinstance(count, int)} if isinstance(said, dict) else {}
    for file in folder.glob("*.*.npz"):
        table, number = file.name.split(".")[:2]
        if number.isdecimal() and len(number) < 10:
            counts[table] = max(counts.get(table, 0), int(number) + 1)
    for table, count in sorted(counts.items()):
        names = (f"{table}.{piece:06d}.npz" for piece in range(min(count, 1_000_000)))
        yield from (name for name in names if not (folder / name).exists())


def files(folder: Path, table: str) -> list[Path]:
    """The files of a table, in the order in which they were written. Each is whole."""
    return sorted(file for file in folder.glob(f"{table}.*.npz") if file.is_file())  # a pipe would be waited for


def piece(file: Path) -> Piece:
    with file.open("rb") as content, np.load(content, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        names = dict.fromkeys(name.removesuffix(".codes") for name in arrays.files if not name.endswith((".blob", ".ends")))
        found: Piece = {
            name: (arrays[f"{name}.codes"], _words(arrays[f"{name}.blob"], arrays[f"{name}.ends"]))
            if f"{name}.codes" in arrays.files
            else arrays[name]
            for name in names
        }
    _check(file.name.partition(".")[0], found)
    return found


def _check(table: str, columns: Piece) -> None:
    """Raise ValueError where a column is missing, or holds something else than the recorder writes."""
    if missing := set(_NEEDED.get(table, ())) - columns.keys():
        raise ValueError(f"there is no column {min(missing)}")
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
    """The words' bytes one after the other, and where each ends."""
    words = [word.encode("utf-8", "replace") for word in text.words]
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    return {"codes": text.codes, "blob": np.frombuffer(b"".join(words), np.uint8), "ends": ends}


def _words(blob: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    text, starts = blob.tobytes(), np.concatenate(([0], ends[:-1])) if len(ends) else ends
    return [text[start:end].decode("utf-8", "replace") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _overwrite(path: Path, content: bytes) -> bool:
    """Where a full disk has no room for another file: write into the room that the file has. False where that does not do."""
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
