"""Memory that was freed and that the process still holds."""

import ctypes
import gc
import sys


def give_back() -> None:
    """To the system, where the C library can: glibc keeps what a large reading has freed, and the next large thing would come on top."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
