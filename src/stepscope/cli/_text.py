"""Text for a terminal: what is safe to print, how wide it is, and aligned columns that fit."""

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepscope.escapes import escape_controls

GAP = "  "
# A name is shortened to no less than this; a table that still does not fit leaves out its last columns and says so.
_LEAST = 16
# On a pipe no column is left out, and names keep this much.
_READABLE = 40
_NOISE = re.compile(r"^void |\bat::native::|\bat::|\bstd::|\(anonymous namespace\)::")
clean = escape_controls


def width(text: str) -> int:
    """How many terminal columns the text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shorten(text: str, limit: int) -> str:
    """At most `limit` columns: first what every kernel's name repeats goes, then the middle, for names differ at both ends."""
    if width(text) > limit:
        text = _NOISE.sub("", text)
    if width(text) <= limit:
        return text
    tail = max(limit // 3, 1)
    return f"{_taken(text, limit - 1 - tail)}…{_taken(text[::-1], tail)[::-1]}"


def pad(text: str, limit: int, right: bool) -> str:
    """The text aligned in `limit` columns."""
    blank = " " * (limit - width(text))
    return blank + text if right else text + blank


def moment(seconds: float) -> str:
    """2026-03-31 17:05, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Column(NamedTuple):
    name: str
    right: bool  # numbers stand right
    width: int


def fit(columns: list[Column], limit: int) -> tuple[list[Column], list[str]]:
    """The columns narrowed to a terminal's width, and the names of those that found no room."""
    shown, hidden = list(columns), list[str]()
    while len(shown) > 1 and _total([column if column.right else column._replace(width=_narrowest(column)) for column in shown]) > limit:
        hidden.insert(0, shown.pop().name)
    while (excess := _total(shown) - limit) > 0:
        widest = max(range(len(shown)), key=lambda index: 0 if shown[index].right else shown[index].width - _narrowest(shown[index]))
        column = shown[widest]
        if column.right or column.width <= _narrowest(column):
            break
        others = [other.width for index, other in enumerate(shown) if index != widest and not other.right]
        # The widest gives way until it is as wide as the next, then both: short names stay whole.
        target = max(_narrowest(column), column.width - excess, min(column.width - 1, max(others, default=0)))
        shown[widest] = column._replace(width=target)
    return shown, hidden


def narrow(columns: list[Column], limit: int, whole: set[str]) -> list[Column]:
    """All columns, those of text narrowed as far as the limit asks and names stay readable; those in `whole` keep their width."""
    shown = list(columns)
    texts = [index for index, column in enumerate(columns) if not column.right and column.name not in whole and column.width > _READABLE]
    while texts and (excess := _total(shown) - limit) > 0:
        widest = max(texts, key=lambda index: shown[index].width)
        if (now := shown[widest].width) <= _READABLE:
            break
        # The widest gives way until it is as wide as the next.
        others = [shown[index].width for index in texts if index != widest and shown[index].width < now]
        shown[widest] = shown[widest]._replace(width=max(_READABLE, now - excess, max(others, default=0)))
    return shown


def lines(columns: list[Column], rows: Iterable[list[str]]) -> Iterator[str]:
    """The rows as aligned text: as many cells as there are columns. What is too wide is shortened."""
    for row in rows:
        pairs = zip(columns, row, strict=False)
        yield GAP.join(pad(shorten(text, column.width), column.width, column.right) for column, text in pairs).rstrip()


def heading(columns: list[Column]) -> str:
    return GAP.join(pad(shorten(clean(column.name), column.width), column.width, column.right) for column in columns).rstrip()


def _narrowest(column: Column) -> int:
    return min(column.width, max(_LEAST, width(column.name)))


def _total(columns: list[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _taken(text: str, limit: int) -> str:
    end = used = 0
    for char in text:
        used += width(char)
        if used > limit:
            break
        end += 1
    return text[:end]
