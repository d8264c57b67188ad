"""The memory of this process: bytes in use on the heap of the C library, and freed bytes that the process still holds."""

import ctypes
import os
import sys
from pathlib import Path

_WORTHWHILE_ROWS = 100_000
_MMAP_THRESHOLD, _RETURNED_BYTES = -3, 1 << 20  # M_MMAP_THRESHOLD of glibc, which otherwise grows with use
_POLARS_OPTIONS = "dirty_decay_ms:100,muzzy_decay_ms:0"  # of jemalloc


def give_back(rows: int) -> None:
    """Return freed memory to the system after work on this many rows: glibc keeps it, and the next large allocation would add to it.
    Few rows are not worth the time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" and rows >= _WORTHWHILE_ROWS else None
    if trim is not None:
        trim(0)


def return_early() -> None:
    """Return freed memory to the system sooner than by default: of the C library at once, of Polars after a tenth of a second.

    It matters where one command decodes, joins and analyses a large file one after the other. Polars must not be loaded yet.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", _POLARS_OPTIONS)
    option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if option is not None:
        option(_MMAP_THRESHOLD, _RETURNED_BYTES)


class _Sizes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def in_use() -> int | None:
    """Bytes that the program has allocated and not freed; None where the C library does not report them."""
    measure = getattr(ctypes.CDLL(None), "mallinfo2", None) if sys.platform == "linux" else None
    if measure is None:
        return None
    measure.restype = _Sizes
    sizes = measure()
    return int(sizes.uordblks + sizes.hblkhd)


def resident(process: int | str = "self") -> int | None:
    """Resident bytes of a process; None where the system does not report them."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def counts_all() -> bool:
    """Whether in_use() sees the allocations of the program: not with jemalloc or another allocator."""
    before = in_use()
    probe = ctypes.create_string_buffer(_PROBE)
    after = in_use()
    del probe
    return before is not None and after is not None and after - before >= _PROBE


_PROBE = 1 << 20
