"""Compressed traces: gzip, and zstd where a decoder is installed (Python 3.14 and later, or the package backports.zstd)."""

import functools
import gzip
import importlib
import io
import zlib
from types import ModuleType
from typing import IO, Any, cast

from stepscope.readers.common.documents import unpack_head

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 12


def form(head: bytes) -> str:
    """How a file is compressed, by its first bytes: gzip, zstd, or not at all."""
    return "gzip" if head.startswith(GZIP) else "zstd" if head.startswith(ZSTD) and zstd_decoder() else ""


def text_of(file: io.BufferedReader, form: str) -> IO[bytes]:
    """The text of a file, to be read forward."""
    if form == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    return cast(IO[bytes], zstd_decoder().ZstdFile(file)) if form == "zstd" else file  # type: ignore[union-attr]


def damages() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises."""
    decoder = zstd_decoder()
    return (EOFError, zlib.error, gzip.BadGzipFile, *([decoder.ZstdError] if decoder else []))


def head_text(head: bytes, limit: int) -> bytes:
    """The first bytes of a file as text, up to about `limit` bytes, or to the first damage."""
    decoder = zstd_decoder()
    if decoder is None or form(head) != "zstd":
        return unpack_head(head, limit)
    unpacker: Any = decoder.ZstdDecompressor()
    text = bytearray()
    for start in range(0, len(head), _CHUNK):
        try:
            text += unpacker.decompress(head[start : start + _CHUNK])
        except (EOFError, decoder.ZstdError):
            break
        if len(text) > limit:
            break
    return bytes(text)


@functools.cache
def zstd_decoder() -> ModuleType | None:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
