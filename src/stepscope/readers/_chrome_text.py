"""The text of a Chrome trace, in pieces: what stands before the array of events, runs of whole events, what stands behind it."""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.errors import DataError
from stepscope.readers._documents import whole_characters

PIECE = 8 << 20
# Longer than any real event or header: past this the file is something else, and memory stays bounded.
LONGEST = 256 << 20

_EVENT_KEYS = (b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"s", b"bp")


class Piece(NamedTuple):
    """A run of whole events. The last one goes on to the end of the file, whatever stands there."""

    number: int
    offset: int  # of its first event, in bytes of the (unpacked) file
    size: int
    last: bool
    body: bytes | None  # `{...},{...}`; None: it is to be read from the file


def bracketed(body: bytes, last: bool) -> bytes:
    """The events as an array: closed, unless the file itself is to close it."""
    return b"[" + body + (b"" if last else b"]")


class Opening(NamedTuple):
    """What stands before the events."""

    header: dict[str, Any]
    bare: bool  # no object around the array of events
    rest: bytes  # the text read so far, from the first event on
    offset: int  # of that text


class Text:
    """A file, plain or gzip, read forward once."""

    def __init__(self, path: Path, *, partial: bool) -> None:
        self.path, self.partial = path, partial
        self.size = path.stat().st_size
        self._file = path.open("rb")
        self.packed = self._file.peek(2)[:2] == b"\x1f\x8b"
        self._text = gzip.GzipFile(fileobj=self._file) if self.packed else self._file
        self.cut = ""  # why the packed stream broke off, when partial

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer only at the end."""
        pieces, wanted = [], count
        while wanted > 0 and not self.cut:
            try:
                piece = self._text.read(min(wanted, PIECE))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.cut = f"the gzip stream breaks off after {self._file.tell():,} bytes ({error})"
                if not self.partial:
                    raise DataError(self.path, f"{self.cut}; --partial reads what is whole") from error
                break
            if not piece:
                break
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def between(self, offset: int, size: int) -> bytes:
        """A part of a plain file."""
        self._file.seek(offset)
        return self._file.read(size)

    def done(self) -> int:
        """How many bytes of the file have been read."""
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def opening(text: Text) -> Opening:
    """Read up to the first event."""
    head = text.read(1 << 16)
    while True:
        try:
            header, start, bare = _before_events(head)
            return Opening(header, bare, head[start:], start)
        except _MoreError:
            more = text.read(len(head))
            if not more:
                raise DataError(text.path, "the file ends before its events begin", f"byte {len(head):,}") from None
            if len(head) > LONGEST:
                raise DataError(text.path, f"no events in the first {LONGEST >> 20} MiB") from None
            head += more
        except (ValueError, RecursionError) as error:
            raise DataError(text.path, f"not a trace: {error}") from error


class Closing(NamedTuple):
    """What stands behind the events: more of the header, and perhaps another array of events."""

    header: dict[str, Any]
    events: bytes | None  # from the opening bracket of that array on


def closing(path: Path, behind: bytes, *, partial: bool) -> Closing:
    """What the object says behind its events; `behind` starts after their closing bracket."""
    header: dict[str, Any] = {}
    try:
        text = behind.decode("latin-1")
        at = _skip(text, 0)
        at = _read_header(text + "\n", _skip(text, at + 1) if text[at] == "," else at, header)
        if text[at] == "[":
            return Closing(header, behind[at:])
        if text[at + 1 :].strip(" \t\r\n"):
            raise ValueError(f"extra text {at + 1} bytes behind the events")
    except (ValueError, RecursionError, _MoreError) as error:
        if not partial:
            why = "it ends too early" if isinstance(error, _MoreError) else error
            raise DataError(path, f"the file is damaged or cut off behind its events ({why}); --partial reads the events") from error
    return Closing(header, None)


def rest(path: Path, offset: int, *, partial: bool) -> bytes:
    """What stands from an offset (in bytes of the unpacked file) on, at most LONGEST."""
    text = Text(path, partial=partial)
    try:
        if not text.packed:
            return text.between(offset, LONGEST)
        while offset > 0 and (skipped := text.read(min(offset, PIECE))):
            offset -= len(skipped)
        return text.read(LONGEST)
    finally:
        text.close()


def pieces(text: Text, opening: Opening, *, exact: bool) -> Iterator[Piece]:
    """Runs of whole events of about PIECE bytes.

    Where one event ends and the next begins is first guessed by the look of it: decoding notices a wrong guess, since it leaves
    a bracket or a string open. `exact` follows strings and brackets instead, at a third of the speed.
    """
    if not exact and not text.packed:
        yield from _pieces_in_place(text, opening.offset)
        return
    number, buffer, offset, ended = 0, opening.rest, opening.offset, False
    while True:
        boundary, near = None, PIECE
        while boundary is None:
            while len(buffer) < near + PIECE and not ended:
                more = text.read(PIECE)
                buffer, ended = buffer + more, len(more) < PIECE
            boundary = _exact_boundary(buffer, near) if exact else _boundary(buffer, near)
            if ended or boundary is not None:
                break
            if len(buffer) > LONGEST:
                raise DataError(text.path, f"no event ends in the {LONGEST >> 20} MiB from here on", f"byte {offset:,}")
            near = len(buffer)
        if boundary is None:
            yield Piece(number, offset, len(buffer), True, buffer)
            return
        comma, following = boundary
        yield Piece(number, offset, comma, False, buffer[:comma])
        number, buffer, offset = number + 1, buffer[following:], offset + following


def _pieces_in_place(text: Text, offset: int) -> Iterator[Piece]:
    """The same for a plain file, looking only where pieces end: who decodes a piece reads it from the file."""
    number = 0
    while True:
        near, window, boundary = offset + PIECE, 1 << 16, None
        while boundary is None and near < text.size:
            boundary = _boundary(text.between(near, window), 0)
            if boundary is None and near + window >= text.size:
                break
            if window > LONGEST:
                raise DataError(text.path, f"no event ends in the {LONGEST >> 20} MiB from here on", f"byte {offset:,}")
            window *= 4
        if boundary is None:
            yield Piece(number, offset, text.size - offset, True, None)
            return
        comma, following = boundary
        yield Piece(number, offset, near + comma - offset, False, None)
        number, offset = number + 1, near + following


def whole_events(text: bytes, until: int | None = None) -> int:
    """Where the last whole event of `[{...},{...` ends that lies before `until`."""
    positions, after, _ = _structure(text[:until])
    ends = positions[(after == 1) & (np.frombuffer(text, np.uint8)[positions] == ord("}"))]
    return int(ends[-1]) + 1 if len(ends) else 1


_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{\s*\"(?:" + b"|".join(_EVENT_KEYS) + rb")\"\s*:)")


def _boundary(buffer: bytes, near: int) -> tuple[int, int] | None:
    """The comma behind an event and the start of the next one, at or after `near`."""
    found = _BOUNDARY.search(buffer, near)
    return (found.start(1), found.end()) if found else None


def _exact_boundary(buffer: bytes, near: int) -> tuple[int, int] | None:
    positions, after, commas = _structure(buffer)
    # No bracket is open around these events: between two of them, depth is 0.
    depth = np.concatenate(([0], after))[np.searchsorted(positions, commas)]
    ended = positions[after < 0]
    between = commas[(depth == 0) & (commas >= near) & (commas < (ended[0] if len(ended) else len(buffer)))]
    return (int(between[0]), int(between[0]) + 1) if len(between) else None


def _structure(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where the brackets outside strings are, how deep it is after each, and where the commas outside strings are."""
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    slashes = np.flatnonzero(data == ord("\\"))
    if len(slashes):
        # A quote is part of its string when the run of backslashes before it is odd.
        new_run = np.concatenate(([True], np.diff(slashes) > 1))
        run_start = slashes[new_run][np.cumsum(new_run) - 1]
        odd_end = slashes[(slashes - run_start) % 2 == 0] + 1
        quotes = quotes[~np.isin(quotes, odd_end)]

    def outside(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        even: NDArray[np.bool_] = np.searchsorted(quotes, positions) % 2 == 0
        return positions[even]

    brackets = outside(np.flatnonzero(np.isin(data, np.frombuffer(b"{}[]", np.uint8))))
    opens = np.isin(data[brackets], np.frombuffer(b"{[", np.uint8))
    return brackets, np.cumsum(np.where(opens, 1, -1)), outside(np.flatnonzero(data == ord(",")))


class _MoreError(Exception):
    """The text ends too early to tell."""


def _before_events(head: bytes) -> tuple[dict[str, Any], int, bool]:
    # Latin-1 keeps positions in text and bytes the same; values are decoded properly below.
    text = head.decode("latin-1")
    at = _skip(text, 3 if head.startswith(b"\xef\xbb\xbf") else 0)
    if text[at] == "[":
        return {}, at + 1, True
    if text[at] != "{":
        raise ValueError("expected { or [ at the start")
    header: dict[str, Any] = {}
    at = _read_header(text, _skip(text, at + 1), header)
    if text[at] == "[":
        return header, at + 1, False
    raise ValueError('no "traceEvents" in it')


def _read_header(text: str, at: int, header: dict[str, Any]) -> int:
    """Read entries of an object into `header`; the place of the bracket that opens an array of events, or of the one that closes all."""
    while text[at] != "}":
        key, at = _value(text, at)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"expected ':' at byte {at}")
        at = _skip(text, at + 1)
        if key == "traceEvents" and text[at] == "[":
            return at
        if key == "traceEvents":
            raise ValueError(f"expected an array of events at byte {at}")
        header[str(key)], at = _value(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at


def _skip(text: str, at: int) -> int:
    """The next place that is not blank."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if at >= len(text):
        raise _MoreError
    return at


def _whole_number(text: str) -> int | str:
    """Larger ones stay text: no column holds them, nor does every reader of JSON."""
    return number if len(text) < 21 and -(2**63) <= (number := int(text)) < 2**64 else text


def _number(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


# Python's own, but what is no number anywhere else is text.
JSON = json.JSONDecoder(parse_int=_whole_number, parse_float=_number, parse_constant=str)


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        _, end = JSON.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.pos > len(text) - 64 or "Unterminated" in error.msg:
            raise _MoreError from error
        raise ValueError(f"{error.msg} at byte {error.pos}") from error
    if end >= len(text) - 1:  # a number may go on
        raise _MoreError
    return JSON.decode(whole_characters(text[at:end].encode("latin-1")).decode(errors="replace")), end
