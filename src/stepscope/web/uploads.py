"""Files that are dropped on the page: bounded in size, unpacked size and number, in a folder of their own that goes with the server."""

import contextlib
import functools
import re
import shutil
import unicodedata
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from stepscope import opening, units
from stepscope.errors import DataError, UsageError

_KEPT = 4  # times the most that one may have
_UNPACKED = 10  # times the most that one may have
_RATIO = 250  # deflate packs at most 1:1032; traces about 1:20
_FREE_RATIO = 64 << 20  # up to so much, any ratio
_PORTION = 1 << 20
_BATCHES = 100  # that are remembered
_FILES = 1000  # in all: a job of as many ranks can be dropped at once
_LONGEST_HEADER = 1 << 16  # of a gzip member: the name of a file, and a comment


class Uploads:
    """What is dropped arrives in a folder that nobody looks at. `show` puts it where the list of runs looks: `folder`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._arriving, self._limit = folder, folder.with_name("arriving"), limit
        for one in (self.folder, self._arriving):
            one.mkdir(mode=0o700)
        self._held = self._files = 0  # bytes and files that are here, or arriving
        self._count = 0
        self._waiting: dict[str, list[Path]] = {}  # what has arrived of each batch
        self._places: dict[str, Path] = {}

    async def take(self, request: Request, threaded: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Path:
        """Write the body of a request to a file of the name it gives; every byte is counted as it comes, packed and unpacked."""
        name = clean_name(request.query_params.get("name", ""))
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > self._limit:
            raise self._too_large()
        if self._files >= _FILES:
            raise HTTPException(413, f"this server holds {_FILES:,} uploaded files, the most it takes: {_INSTEAD}")
        path = self._new(self._arriving) / name
        unpacking = _Unpacking(max(self._limit * _UNPACKED, _FREE_RATIO))
        size = 0
        self._files += 1
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > self._limit:
                        raise self._too_large()
                    if self._held > self._limit * _KEPT:
                        most = units.size(self._limit * _KEPT)
                        raise HTTPException(
                            413, f"all uploaded files together would be more than {most}: {_INSTEAD}, or raise --max-upload"
                        )
                    await threaded(functools.partial(_put, file, chunk, unpacking))
            if not size:
                raise UsageError("the file is empty")
            if not await threaded(functools.partial(_is_trace, path)):
                raise DataError(name, "not a trace that stepscope knows")
        except BaseException as error:
            self._held -= size
            self._files -= 1
            _remove(path)
            if isinstance(error, OSError):
                raise HTTPException(507, f"the upload could not be stored ({error.strerror or error}): {_INSTEAD}") from error
            raise
        return path

    def keep(self, path: Path, batch: str) -> None:
        """It is whole, and waits for the others that were dropped with it."""
        self._waiting.setdefault(batch, []).append(path)

    def show(self, batch: str) -> list[Path]:
        """Put what has arrived of a batch where the list looks, and say where, in the order in which it came."""
        return [self._shown(path, batch) for path in self._waiting.pop(batch, [])]

    def _shown(self, path: Path, batch: str) -> Path:
        """A folder for each file; one for all that were dropped at once, so that ranks of one job are found together."""
        place = self._places.get(batch) if batch else None
        if place is None or not place.is_dir() or (place / path.name).exists():
            place = self._new(self.folder)
            self._places = {**dict(list(self._places.items())[-_BATCHES:]), batch: place}
        shutil.move(path, place / path.name)
        path.parent.rmdir()
        return place / path.name

    def _new(self, folder: Path) -> Path:
        self._count += 1
        place = folder / f"{self._count:04d}"
        place.mkdir(mode=0o700)
        return place

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"more than {units.size(self._limit)}: {_INSTEAD}, or raise --max-upload")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _is_trace(path: Path) -> bool:
    try:
        return any(opening.sources(path))
    except DataError:
        return False


def clean_name(text: str) -> str:
    """A plain file name: no folders, nothing that steers a terminal, nothing hidden."""
    last = re.split(r"[\\/]", unicodedata.normalize("NFC", text))[-1]
    plain = "".join(char if char.isprintable() and char not in '<>:"|?*\x7f' else "_" for char in last)
    short = plain.encode("utf-8", "ignore")[-120:].decode("utf-8", "ignore")  # the end tells what it is
    return short.strip(". ") or "trace"


class _Unpacking:
    """Counts what a gzip file would grow to, while it arrives: each of its members, as `gzip` of the standard library finds them.

    The readers unpack with `gzip`, which looks less closely at a header than zlib does: what zlib refuses may still be a bomb to it. So
    the headers are read here, and zlib sees only what lies between them.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._in, self._out, self._members = limit, 0, 0, 0
        self._head = b""  # what came of a member's header, and of the end of the one before it
        self._end = 0  # bytes of the last member's checksum that are still to come
        self._stream: zlib._Decompress | None = None
        self._over = False  # what follows is no gzip: no reader unpacks it

    def feed(self, data: bytes) -> None:
        self._in += len(data)
        while data and not self._over:
            data = self._begin(data) if self._stream is None else self._unpack(self._stream, data)

    def _unpack(self, stream: "zlib._Decompress", data: bytes) -> bytes:
        """What is left of the data when it, or one portion of its content, is counted."""
        try:
            self._out += len(stream.decompress(data, _PORTION))
        except zlib.error:
            self._over = True  # readers stop there, too
            return b""
        if self._out > self._limit or self._out > max(_FREE_RATIO, self._in * _RATIO):
            raise HTTPException(413, f"unpacks to more than is taken from a page: {_INSTEAD}")
        if not stream.eof:
            return stream.unconsumed_tail
        self._stream, self._end = None, _CHECKSUM
        return stream.unused_data

    def _begin(self, data: bytes) -> bytes:
        """What is left of the data behind a member's header; until that is whole, nothing."""
        skipped = min(self._end, len(data))
        self._end -= skipped
        self._head += data[skipped:]
        if self._members:
            self._head = self._head.lstrip(b"\0")  # between two members there may be any number of them
        if len(self._head) < len(_MAGIC):
            return b""
        length = _header_length(self._head)
        if not self._head.startswith(_MAGIC):
            self._over = True
        elif length is not None:
            rest, self._head = self._head[length:], b""
            self._stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            self._members += 1
            return rest
        elif len(self._head) > _LONGEST_HEADER:
            raise HTTPException(413, f"a gzip header of more than {_LONGEST_HEADER:,} bytes: {_INSTEAD}")
        return b""


def _header_length(head: bytes) -> int | None:
    """How many bytes a gzip header takes that begins here (RFC 1952); None while it is not whole."""
    if len(head) < 10:
        return None
    flags, at = head[3], 10
    if flags & 4:  # extra field
        if len(head) < at + 2:
            return None
        at += 2 + int.from_bytes(head[at : at + 2], "little")
    for flag in (8, 16):  # name, comment
        if flags & flag:
            end = head.find(b"\0", at)
            if end < 0:
                return None
            at = end + 1
    at += 2 if flags & 2 else 0  # checksum of the header
    return at if len(head) >= at else None


_MAGIC, _CHECKSUM = b"\x1f\x8b", 8
_INSTEAD = "start `stepscope view` on the file itself"


def _put(file: Any, data: bytes, unpacking: _Unpacking) -> None:
    unpacking.feed(data)
    file.write(data)
