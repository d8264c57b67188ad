"""What recording tells while the job runs: the user, in a line on stderr; `stepscope run`, of profilers that the program itself uses."""

import contextlib
import sys
from pathlib import Path
from typing import Protocol

from stepscope.errors import StepscopeError
from stepscope.escapes import escape_controls


def say(what: str) -> str:
    """One line where the user looks, once."""
    if what not in _said:
        _said.add(what)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all: no reason to disturb the job
            sys.stderr.write(f"stepscope: {escape_controls(what)}\n")
    return what


_said: set[str] = set()


def told(error: BaseException) -> str:
    """An error in one line: its kind, unless it is one of ours, and what it says first."""
    lines = str(error).strip().splitlines()
    return (f"{type(error).__name__}: " if not isinstance(error, StepscopeError) else "") + (lines[0] if lines else "")


class Listener(Protocol):
    def own_profiler(self) -> None:
        """The program makes or starts a profiler."""

    def refused(self) -> None:
        """It should have been recorded in a way that makes no sense, which the user has been told."""

    def own_window(self, capture: Path, steps: int, incomplete: str | None = None) -> None:
        """It has recorded this, and so many whole steps in it; why part of it could not be written."""

    def steps_so_far(self) -> int:
        """How many steps of the job are over."""


listeners: list[Listener] = []  # empty unless `stepscope run` started the job
