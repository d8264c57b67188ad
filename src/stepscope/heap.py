"""Memory that was freed and that the process still holds."""

import ctypes
import sys

_WORTH = 100_000


def give_back(rows: int) -> None:
    """To the system, where the C library can, after work on so many rows: glibc keeps what was freed, and the next large thing would come
    on top. What few rows leave is not worth the time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" and rows >= _WORTH else None
    if trim is not None:
        trim(0)
