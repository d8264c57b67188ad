"""Uploaded files: limited in size, unpacked size and number, in a folder that is removed with the server."""

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

from stepscope.errors import DataError, UsageError
from stepscope.io.sources import find_sources
from stepscope.model import units

_TOTAL = 4  # size of all uploads, as a multiple of the limit of one
_UNPACKED = 10  # unpacked size of one upload, as a multiple of its limit
_RATIO = 250  # deflate packs at most 1:1032; traces about 1:20
_FREE_RATIO = 64 << 20  # unpacked bytes up to which any ratio is allowed
_PORTION = 1 << 20
_BATCHES = 100  # whose folders are remembered
_FILES = 1000  # in all: the ranks of a large job can be uploaded at once
_LONGEST_HEADER = 1 << 16  # of a gzip member: a file name and a comment


class Uploads:
    """Uploads arrive in a folder that is not listed. `publish` moves them to `folder`, which the list of runs scans."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._arriving, self._limit = folder, folder.with_name("arriving"), limit
        for path in (self.folder, self._arriving):
            path.mkdir(mode=0o700)
        self._bytes = self._files = 0  # stored or arriving
        self._count = 0
        self._waiting: dict[str, list[Path]] = {}  # the complete files of each batch
        self._folders: dict[str, Path] = {}

    async def receive(self, request: Request, threaded: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Path:
        """Write the body of a request to a file with the name in its query. Packed and unpacked bytes are counted as they arrive."""
        name = clean_name(request.query_params.get("name", ""))
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > self._limit:
            raise self._too_large()
        if self._files >= _FILES:
            raise HTTPException(413, f"the server has {_FILES:,} uploaded files, which is the limit: {_INSTEAD}")
        path = self._new_folder(self._arriving) / name
        counter = _UnpackedSize(max(self._limit * _UNPACKED, _FREE_RATIO))
        size = 0
        self._files += 1
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    self._bytes += len(chunk)
                    if size > self._limit:
                        raise self._too_large()
                    if self._bytes > self._limit * _TOTAL:
                        limit = units.size(self._limit * _TOTAL)
                        raise HTTPException(413, f"all uploads together would exceed {limit}: {_INSTEAD}, or raise --max-upload")
                    await threaded(functools.partial(_write, file, chunk, counter))
            if not size:
                raise UsageError("the file is empty")
            if not await threaded(functools.partial(_is_trace, path)):
                raise DataError(name, "not a trace in a known format")
        except BaseException as error:
            self._bytes -= size
            self._files -= 1
            _remove(path)
            if isinstance(error, OSError):
                raise HTTPException(507, f"the upload could not be stored ({error.strerror or error}): {_INSTEAD}") from error
            raise
        return path

    def hold(self, path: Path, batch: str) -> None:
        """Keep a complete file until the others of its batch have arrived."""
        self._waiting.setdefault(batch, []).append(path)

    def publish(self, batch: str) -> list[Path]:
        """Move the files of a batch to the listed folder. Returns their paths, in the order of arrival."""
        return [self._publish_file(path, batch) for path in self._waiting.pop(batch, [])]

    def _publish_file(self, path: Path, batch: str) -> Path:
        """One folder for each file, or for each batch, so that the ranks of one job become one run."""
        folder = self._folders.get(batch) if batch else None
        if folder is None or not folder.is_dir() or (folder / path.name).exists():
            folder = self._new_folder(self.folder)
            self._folders = {**dict(list(self._folders.items())[-_BATCHES:]), batch: folder}
        shutil.move(path, folder / path.name)
        path.parent.rmdir()
        return folder / path.name

    def _new_folder(self, parent: Path) -> Path:
        self._count += 1
        folder = parent / f"{self._count:04d}"
        folder.mkdir(mode=0o700)
        return folder

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"more than {units.size(self._limit)}: {_INSTEAD}, or raise --max-upload")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _is_trace(path: Path) -> bool:
    try:
        return any(find_sources(path))
    except DataError:
        return False


def clean_name(text: str) -> str:
    """A plain file name: no folders, no control characters, not hidden."""
    last = re.split(r"[\\/]", unicodedata.normalize("NFC", text))[-1]
    plain = "".join(char if char.isprintable() and char not in '<>:"|?*\x7f' else "_" for char in last)
    short = plain.encode("utf-8", "ignore")[-120:].decode("utf-8", "ignore")  # keep the ending
    return short.strip(". ") or "trace"


class _UnpackedSize:
    """Counts the unpacked size of a gzip file while it arrives, in all members that `gzip` of the standard library would unpack.

    The readers use `gzip`, which is less strict with headers than zlib: data that zlib refuses may still unpack. So the headers are parsed
    here, and zlib only gets the data between them.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._in, self._out, self._members = limit, 0, 0, 0
        self._head = b""  # received part of a member's header, with the end of the previous member
        self._end = 0  # missing bytes of the last member's checksum
        self._stream: zlib._Decompress | None = None
        self._over = False  # the rest is not gzip: no reader unpacks it

    def feed(self, data: bytes) -> None:
        self._in += len(data)
        while data and not self._over:
            data = self._begin(data) if self._stream is None else self._unpack(self._stream, data)

    def _unpack(self, stream: "zlib._Decompress", data: bytes) -> bytes:
        """Count the data, or one portion of its content. Returns the rest of the data."""
        try:
            self._out += len(stream.decompress(data, _PORTION))
        except zlib.error:
            self._over = True  # readers stop here, too
            return b""
        if self._out > self._limit or self._out > max(_FREE_RATIO, self._in * _RATIO):
            raise HTTPException(413, f"the unpacked file is too large for an upload: {_INSTEAD}")
        if not stream.eof:
            return stream.unconsumed_tail
        self._stream, self._end = None, _CHECKSUM
        return stream.unused_data

    def _begin(self, data: bytes) -> bytes:
        """Parse a member's header. Returns the data behind it; nothing until the header is complete."""
        skipped = min(self._end, len(data))
        self._end -= skipped
        self._head += data[skipped:]
        if self._members:
            self._head = self._head.lstrip(b"\0")  # padding between members
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
    """The length of the gzip header at the start (RFC 1952); None while it is incomplete."""
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
_INSTEAD = "open the file with `stepscope view FILE`"


def _write(file: Any, data: bytes, counter: _UnpackedSize) -> None:
    counter.feed(data)
    file.write(data)
