"""Standard output, styled on a terminal and plain elsewhere. Rich is loaded only when there is a terminal to write to."""

import functools
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# A line is pieces of text with their styles. Colours are the terminal's own sixteen, which its user chose to be readable.
Line = list[tuple[str, str]]
_PLAIN_WIDTH = 100


def write(lines: Iterable[Line]) -> None:
    """Write lines to standard output. Names in a trace are data: no markup, no guessing at what is a number or a path."""
    if not sys.stdout.isatty():
        sys.stdout.writelines("".join(text for text, _ in line).rstrip() + "\n" for line in lines)
        return
    from rich.text import Text

    for line in lines:
        console().print(Text.assemble(*line), markup=False, emoji=False, highlight=False, soft_wrap=True)


def width() -> int:
    """How many columns a line may have."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


@functools.cache
def console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)
