"""Text for a terminal: escaped, measured, and aligned in columns that fit."""

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepscope.process.escapes import escape_controls

GAP = "  "
_LEAST = 16  # columns that a shortened name keeps; a table that is still too wide loses its last columns
_READABLE = 40  # columns that a name keeps on a pipe, where no column is left out
_NOISE = re.compile(r"^void |\bat::native::|\bat::|\bstd::|\(anonymous namespace\)::")
clean = escape_controls


def width(text: str) -> int:
    """The number of terminal columns; a Chinese character needs two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shorten(text: str, limit: int) -> str:
    """The text in at most `limit` columns: first without common parts of kernel names, then without its middle."""
    if width(text) > limit:
        text = _NOISE.sub("", text)
    if width(text) <= limit:
        return text
    tail = max(limit // 3, 1)
    return f"{_prefix(text, limit - 1 - tail)}…{_prefix(text[::-1], tail)[::-1]}"


def pad(text: str, limit: int, right: bool) -> str:
    """The text aligned in `limit` columns."""
    blank = " " * (limit - width(text))
    return blank + text if right else text + blank


def local_time(seconds: float) -> str:
    """2026-03-31 17:05"""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Column(NamedTuple):
    name: str
    right: bool  # aligned right, as numbers are
    width: int


def fit(columns: list[Column], limit: int) -> tuple[list[Column], list[str]]:
    """The columns narrowed to a width, and the names of the columns that do not fit."""
    shown, hidden = list(columns), list[str]()
    while len(shown) > 1 and _total([column._replace(width=_narrowest(column)) for column in shown]) > limit:
        hidden.insert(0, shown.pop().name)
    return _narrow(shown, limit, [_narrowest(column) for column in shown]), hidden


def narrow(columns: list[Column], limit: int, whole: set[str]) -> list[Column]:
    """All columns; text is narrowed to the limit while it stays readable, except the columns in `whole`."""
    return _narrow(columns, limit, [width if right or name in whole else min(width, _READABLE) for name, right, width in columns])


def _narrow(columns: list[Column], limit: int, least: list[int]) -> list[Column]:
    """The widest column shrinks until it is as wide as the next one, then both: short names stay whole."""
    shown = list(columns)
    while (excess := _total(shown) - limit) > 0:
        wide = [index for index, column in enumerate(shown) if column.width > least[index]]
        if not wide:
            break
        widest = max(wide, key=lambda index: shown[index].width)
        others = [shown[index].width for index in wide if shown[index].width < shown[widest].width]
        target = max(least[widest], shown[widest].width - excess, max(others, default=0))
        shown[widest] = shown[widest]._replace(width=target)
    return shown


def lines(columns: list[Column], rows: Iterable[list[str]]) -> Iterator[str]:
    """The rows as aligned text; wide cells are shortened."""
    for row in rows:
        cells = zip(columns, row, strict=False)  # columns that do not fit are missing
        yield GAP.join(pad(shorten(text, column.width), column.width, column.right) for column, text in cells).rstrip()


def heading(columns: list[Column]) -> str:
    return next(lines(columns, [[clean(column.name) for column in columns]]))


def _narrowest(column: Column) -> int:
    return column.width if column.right else min(column.width, max(_LEAST, width(column.name)))


def _total(columns: list[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _prefix(text: str, limit: int) -> str:
    end = used = 0
    for char in text:
        used += width(char)
        if used > limit:
            break
        end += 1
    return text[:end]
