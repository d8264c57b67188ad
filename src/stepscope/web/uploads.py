"""Files that are dropped on the page: bounded, in a folder of their own that goes with the server."""

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


class Uploads:
    """What is dropped arrives in a folder that nobody looks at. `show` puts it where the list of runs looks: `folder`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._arriving, self._limit = folder, folder.with_name("arriving"), limit
        for one in (self.folder, self._arriving):
            one.mkdir(mode=0o700)
        self._held = 0
        self._count = 0
        self._waiting: dict[str, list[Path]] = {}  # what has arrived of each batch
        self._places: dict[str, Path] = {}

    async def take(self, request: Request, threaded: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Path:
        """Write the body of a request to a file of the name it gives."""
        name = clean_name(request.query_params.get("name", ""))
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limit:
            raise self._too_large()
        path = self._new(self._arriving) / name
        unpacking: _Unpacking | None = None
        size = 0
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    if not size and chunk[:2] == b"\x1f\x8b":
                        unpacking = _Unpacking(max(self._limit * _UNPACKED, _FREE_RATIO))
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > self._limit or self._held > self._limit * _KEPT:
                        raise self._too_large()
                    await threaded(functools.partial(_put, file, chunk, unpacking))
            if not size:
                raise UsageError("the file is empty")
            if not await threaded(functools.partial(_is_trace, path)):
                raise DataError(name, "not a trace that stepscope knows")
        except BaseException:
            self._held -= size
            _remove(path)
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
        return HTTPException(413, f"more than {units.size(self._limit)}: start `stepscope view` on the file itself, or raise --max-upload")


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
    """Counts what a gzip file would grow to, while it arrives."""

    def __init__(self, limit: int) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._limit, self._in, self._out = limit, 0, 0

    def feed(self, data: bytes) -> None:
        self._in += len(data)
        while data:
            try:
                self._out += len(self._stream.decompress(data, _PORTION))
            except zlib.error:
                return  # the reader will say what is wrong with it
            if self._out > self._limit or self._out > max(_FREE_RATIO, self._in * _RATIO):
                raise HTTPException(413, "unpacks to more than is taken from a page: start `stepscope view` on the file itself")
            data = self._stream.unconsumed_tail
            if self._stream.eof and (data := self._stream.unused_data):
                self._stream = zlib.decompressobj(wbits=31)


def _put(file: Any, data: bytes, unpacking: _Unpacking | None) -> None:
    if unpacking is not None:
        unpacking.feed(data)
    file.write(data)
