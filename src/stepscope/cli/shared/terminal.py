"""Standard output: styled on a terminal, plain elsewhere. Rich is only loaded for a terminal."""

import functools
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# A line is a list of texts with their styles. The styles use the 16 colors of the terminal, which its user chose to be readable.
Line = list[tuple[str, str]]
_PLAIN_WIDTH = 100


def write(lines: Iterable[Line]) -> None:
    """Write lines to standard output. Names in a trace are data: markup and highlighting are off."""
    if not sys.stdout.isatty():
        sys.stdout.writelines("".join(text for text, _ in line).rstrip() + "\n" for line in lines)
        return
    from rich.text import Text

    for line in lines:
        console().print(Text.assemble(*line), markup=False, emoji=False, highlight=False, soft_wrap=True)


def width() -> int:
    """The number of columns of a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


@functools.cache
def console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)
