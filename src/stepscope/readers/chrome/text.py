"""The text of a Chrome trace: the header before the array of events, pieces of whole events, the header behind the array."""

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepscope.errors import DataError
from stepscope.model.intervals import Bools, Ints
from stepscope.readers.chrome import compression
from stepscope.readers.common.documents import replace_lone_surrogates

PIECE = 8 << 20
# Longer than any real event or header: a longer one is not a trace, and memory stays bounded.
LONGEST = 256 << 20
_PART = 1 << 18  # bytes read at a time: they stay in the cache of the processor

_EVENT_KEYS = (b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"s", b"bp")


class Piece(NamedTuple):
    """A run of whole events. The last piece extends to the end of the file, beyond the array of events."""

    number: int
    offset: int  # of its first event, in bytes of the (unpacked) file
    size: int
    last: bool
    body: bytes | None  # `{...},{...}`; None: read it from the file


def event_array(body: bytes, last: bool) -> bytes:
    """The events as an array: closed here, except for the last piece, which the file closes."""
    return b"[" + body + (b"" if last else b"]")


class Opening(NamedTuple):
    """The text before the events."""

    header: dict[str, Any]
    bare: bool  # no object around the array of events
    rest: bytes  # the text that was read, from the first event on
    offset: int  # of that text


class Text:
    """A file, plain or compressed, read forward once."""

    def __init__(self, path: Path, *, partial: bool) -> None:
        self.path, self.partial = path, partial
        self.size = path.stat().st_size
        self._file = path.open("rb")
        self.packed = compression.form(self._file.peek(4))
        self._text = compression.text_of(self._file, self.packed)
        self.damage = ""  # why the compressed stream ended early, when partial

    def __enter__(self) -> "Text":
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer only at the end."""
        chunks = []
        while count > 0 and not self.damage:
            try:
                chunk = self._text.read(min(count, PIECE))
            except compression.damages() as error:
                self.damage = f"the {self.packed} stream breaks off after {self._file.tell():,} bytes ({error})"
                if not self.partial:
                    raise DataError(self.path, f"{self.damage}; --partial reads the intact part") from error
                break
            if not chunk:
                break
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def read_at(self, offset: int, size: int) -> bytes:
        """A part of a plain file."""
        return os.pread(self._file.fileno(), size, offset)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read a part of a plain file into a buffer; the number of bytes, fewer only at the end of the file."""
        done = 0
        while done < len(buffer) and (part := os.pread(self._file.fileno(), min(len(buffer) - done, _PART), offset + done)):
            buffer[done : done + len(part)] = part
            done += len(part)
        return done

    def event_array(self, piece: Piece) -> bytes:
        return event_array(self.read_at(piece.offset, piece.size) if piece.body is None else piece.body, piece.last)

    def position(self) -> int:
        """How many bytes of the file have been read."""
        return self._file.tell()


def read_opening(text: Text) -> Opening:
    """Read up to the first event."""
    head = text.read(1 << 16)
    while True:
        try:
            header, start, bare = _parse_opening(head)
            return Opening(header, bare, head[start:], start)
        except _TooShortError:
            more = text.read(len(head))
            if not more:
                raise DataError(text.path, "the file ends before its events begin", f"byte {len(head):,}") from None
            if len(head) > LONGEST:
                raise DataError(text.path, f"no events in the first {LONGEST >> 20} MiB") from None
            head += more
        except (ValueError, RecursionError) as error:
            raise DataError(text.path, f"not a trace: {error}") from error


class Closing(NamedTuple):
    """The text behind the events: more of the header, and possibly another array of events."""

    header: dict[str, Any]
    events: bytes | None  # from the opening bracket of that array on


def parse_closing(path: Path, rest: bytes, *, partial: bool) -> Closing:
    """`rest` starts after the closing bracket of the array of events."""
    header: dict[str, Any] = {}
    try:
        text = rest.decode("latin-1")
        at = _skip_blanks(text, 0)
        at = _parse_header(text + "\n", _skip_blanks(text, at + 1) if text[at] == "," else at, header)
        if text[at] == "[":
            return Closing(header, rest[at:])
        if text[at + 1 :].strip(" \t\r\n"):
            raise ValueError(f"extra text {at + 1} bytes behind the events")
    except (ValueError, RecursionError, _TooShortError) as error:
        if not partial:
            why = "it ends too early" if isinstance(error, _TooShortError) else error
            raise DataError(path, f"the file is damaged or cut off behind its events ({why}); --partial reads the events") from error
    return Closing(header, None)


def read_rest(path: Path, offset: int, *, partial: bool) -> bytes:
    """The text from an offset (in bytes of the unpacked file) on, at most LONGEST."""
    with Text(path, partial=partial) as text:
        if not text.packed:
            return text.read_at(offset, LONGEST)
        while offset > 0 and (skipped := text.read(min(offset, PIECE))):
            offset -= len(skipped)
        return text.read(LONGEST)


def split_pieces(text: Text, opening: Opening, *, exact: bool) -> Iterator[Piece]:
    """Runs of whole events of about PIECE bytes.

    A pattern guesses where one event ends and the next begins: decoding detects a wrong guess, since it leaves a bracket or a string
    open. `exact` follows strings and brackets instead, at a third of the speed.
    """
    if not exact and not text.packed:
        yield from _split_in_place(text, opening.offset)
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
                raise _endless_event(text, offset)
            near = len(buffer)
        if boundary is None:
            yield Piece(number, offset, len(buffer), True, buffer)
            return
        comma, following = boundary
        yield Piece(number, offset, comma, False, buffer[:comma])
        number, buffer, offset = number + 1, buffer[following:], offset + following


def _split_in_place(text: Text, offset: int) -> Iterator[Piece]:
    """Pieces of a plain file, which looks only where pieces end: a worker reads its piece from the file."""
    number = 0
    while True:
        near, window, boundary = offset + PIECE, 1 << 16, None
        while boundary is None and near < text.size:
            boundary = _boundary(text.read_at(near, window), 0)
            if boundary is None and near + window >= text.size:
                break
            if window > LONGEST:
                raise _endless_event(text, offset)
            window *= 4
        if boundary is None:
            yield Piece(number, offset, text.size - offset, True, None)
            return
        comma, following = boundary
        yield Piece(number, offset, near + comma - offset, False, None)
        number, offset = number + 1, near + following


def _endless_event(text: Text, offset: int) -> DataError:
    return DataError(text.path, f"no event ends in the {LONGEST >> 20} MiB from here on", f"byte {offset:,}")


def intact_length(text: bytes, until: int | None = None) -> int:
    """The end of the last whole event of `[{...},{...` before `until`."""
    positions, depth, _ = _structure(text[:until])
    ends = positions[(depth == 1) & (np.frombuffer(text, np.uint8)[positions] == ord("}"))]
    return int(ends[-1]) + 1 if len(ends) else 1


_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{\s*\"(?:" + b"|".join(_EVENT_KEYS) + rb")\"\s*:)")


def _boundary(buffer: bytes, near: int) -> tuple[int, int] | None:
    """The comma behind an event and the start of the next one, at or after `near`."""
    match = _BOUNDARY.search(buffer, near)
    return (match.start(1), match.end()) if match else None


def _exact_boundary(buffer: bytes, near: int) -> tuple[int, int] | None:
    positions, depth, commas = _structure(buffer)
    # The buffer has no bracket around its events: between two of them, depth is 0.
    depth_at_comma = np.concatenate(([0], depth))[np.searchsorted(positions, commas)]
    ended = positions[depth < 0]
    between = commas[(depth_at_comma == 0) & (commas >= near) & (commas < (ended[0] if len(ended) else len(buffer)))]
    return (int(between[0]), int(between[0]) + 1) if len(between) else None


def _structure(text: bytes) -> tuple[Ints, Ints, Ints]:
    """The brackets outside strings, the depth after each, and the commas outside strings."""
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    slashes = np.flatnonzero(data == ord("\\"))
    if len(slashes):
        # A quote is part of its string when the run of backslashes before it is odd.
        starts_run = np.concatenate(([True], np.diff(slashes) > 1))
        run_start = slashes[starts_run][np.cumsum(starts_run) - 1]
        odd_end = slashes[(slashes - run_start) % 2 == 0] + 1
        quotes = quotes[~np.isin(quotes, odd_end)]

    def outside(positions: Ints) -> Ints:
        even: Bools = np.searchsorted(quotes, positions) % 2 == 0
        return positions[even]

    brackets = outside(np.flatnonzero(np.isin(data, np.frombuffer(b"{}[]", np.uint8))))
    opens = np.isin(data[brackets], np.frombuffer(b"{[", np.uint8))
    return brackets, np.cumsum(np.where(opens, 1, -1)), outside(np.flatnonzero(data == ord(",")))


class _TooShortError(Exception):
    """The text ends before the value does."""


def _parse_opening(head: bytes) -> tuple[dict[str, Any], int, bool]:
    # With Latin-1, positions in text and bytes are the same; `_parse_value` decodes values as UTF-8.
    text = head.decode("latin-1")
    at = _skip_blanks(text, 3 if head.startswith(b"\xef\xbb\xbf") else 0)
    if text[at] == "[":
        return {}, at + 1, True
    if text[at] != "{":
        raise ValueError("expected { or [ at the start")
    header: dict[str, Any] = {}
    at = _parse_header(text, _skip_blanks(text, at + 1), header)
    if text[at] == "[":
        return header, at + 1, False
    raise ValueError('no "traceEvents" in it')


def _parse_header(text: str, at: int, header: dict[str, Any]) -> int:
    """Read entries of an object into `header`, up to the bracket that opens an array of events or closes the object."""
    while text[at] != "}":
        key, at = _parse_value(text, at)
        at = _skip_blanks(text, at)
        if text[at] != ":":
            raise ValueError(f"expected ':' at byte {at}")
        at = _skip_blanks(text, at + 1)
        if key == "traceEvents" and text[at] == "[":
            return at
        if key == "traceEvents":
            raise ValueError(f"expected an array of events at byte {at}")
        header[str(key)], at = _parse_value(text, at)
        at = _skip_blanks(text, at)
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)
    return at


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if at >= len(text):
        raise _TooShortError
    return at


def _parse_int(text: str) -> int | str:
    """Numbers that no column holds stay text: not every JSON reader accepts them."""
    return number if len(text) < 21 and -(2**63) <= (number := int(text)) < 2**64 else text


def _parse_float(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


# The decoder of Python, but numbers that are not JSON, or fit no column, are text.
JSON = json.JSONDecoder(parse_int=_parse_int, parse_float=_parse_float, parse_constant=str)


def _parse_value(text: str, at: int) -> tuple[Any, int]:
    try:
        _, end = JSON.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.pos > len(text) - 64 or "Unterminated" in error.msg:
            raise _TooShortError from error
        raise ValueError(f"{error.msg} at byte {error.pos}") from error
    if end >= len(text) - 1:  # a number may continue
        raise _TooShortError
    return JSON.decode(replace_lone_surrogates(text[at:end].encode("latin-1")).decode(errors="replace")), end
