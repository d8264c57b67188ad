"""The memory of this process: how much of the C library's heap is in use, and what was freed and the process still holds."""

import ctypes
import os
import sys
from pathlib import Path

_WORTH = 100_000


def give_back(rows: int) -> None:
    """To the system, where the C library can, after work on so many rows: glibc keeps what was freed, and the next large thing would come
    on top. What few rows leave is not worth the time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" and rows >= _WORTH else None
    if trim is not None:
        trim(0)


class _Sizes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def in_use() -> int | None:
    """Bytes that the program has allocated and not freed; None where the C library cannot tell."""
    measure = getattr(ctypes.CDLL(None), "mallinfo2", None) if sys.platform == "linux" else None
    if measure is None:
        return None
    measure.restype = _Sizes
    sizes = measure()
    return int(sizes.uordblks + sizes.hblkhd)


def resident(process: int | str = "self") -> int | None:
    """Bytes of a process that are in memory; None where the system does not say."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def counts_all() -> bool:
    """Whether in_use() knows of what the program allocates: not where jemalloc or another allocator stands in front."""
    before = in_use()
    probe = ctypes.create_string_buffer(_PROBE)
    after = in_use()
    del probe
    return before is not None and after is not None and after - before >= _PROBE


_PROBE = 1 << 20
