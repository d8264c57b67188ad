"""Which code runs: the compiled code where it is built, or Python. STEPSCOPE_SCANNER chooses one."""

import ctypes
import os

from stepscope.errors import UsageError
from stepscope.process.compiled import library

VARIABLE = "STEPSCOPE_SCANNER"


def chosen_library() -> ctypes.CDLL | None:
    """The compiled code; None for Python."""
    choice = os.environ.get(VARIABLE) or "any"
    if choice not in ("any", "native", "python"):
        raise UsageError(f"{VARIABLE}={choice}: expected native or python")
    compiled = None if choice == "python" else library.load()
    if choice == "native" and compiled is None:
        raise UsageError(f"{VARIABLE}=native: the compiled code is not built ({library.FILE.name}); unset {VARIABLE}, or build it")
    return compiled
