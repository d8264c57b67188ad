"""Messages of a recording while the job runs: to the user, on stderr; to `stepscope run`, about profilers of the program itself."""

import contextlib
import sys
from pathlib import Path
from typing import Protocol

from stepscope.errors import StepscopeError, first_line
from stepscope.process.escapes import escape_controls


def say(message: str) -> str:
    """Print a line on stderr, each text once."""
    if message not in _printed:
        _printed.add(message)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed or missing: no reason to disturb the job
            sys.stderr.write(f"stepscope: {escape_controls(message)}\n")
    return message


_printed: set[str] = set()


def error_line(error: BaseException) -> str:
    """An error in one line, with its class unless it is a StepscopeError."""
    return first_line(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


class Listener(Protocol):
    def own_profiler(self) -> None:
        """The program creates or starts a profiler."""

    def refused(self) -> None:
        """The program asked for a recording with invalid options; the user has seen the reason."""

    def own_window(self, capture: Path, steps: int, incomplete: str | None = None) -> None:
        """The program has recorded a window with this many complete steps; `incomplete` is why part of it could not be written."""

    def steps_so_far(self) -> int:
        """The number of steps of the job that have ended."""


listeners: list[Listener] = []  # empty unless `stepscope run` started the job
