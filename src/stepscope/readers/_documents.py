"""What JSON documents say, as columns can hold it: damage may leave any number and any text."""

import json
import os
import re
from pathlib import Path
from typing import Any

_ESCAPES = re.compile(
    rb"\\\\"  # a backslash: what follows is no escape
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character in two halves
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"  # half a character, which no text can hold
)


def files(folder: Path, pattern: str) -> list[Path]:
    """Those of this name, in order; not what only bears it: a folder, or a pipe, which nobody may ever write to; and no name but text."""
    return sorted(path for path in folder.glob(pattern) if path.is_file() and readable(path.name) == path.name)


LEADS_OUT = "a link that leads out of its folder, which is not followed"


def lies_beside(file: Path) -> bool:
    """Is there a file of this name in its folder, or a link to another place within that folder?

    What lies beside a recording was not asked for by name: a link there may lead to anything that the user can read.
    """
    try:
        return file.is_file() and file.resolve().is_relative_to(file.parent.resolve())
    except (OSError, RuntimeError):  # forbidden; a link that leads to itself
        return False


def readable(name: str) -> str:
    """A file's name as text, which it need not be: bytes that are none become a sign."""
    return os.fsencode(name).decode("utf-8", "replace")


def decoded(data: bytes) -> Any:
    """The document; ValueError or RecursionError where it is none. Bytes and halves of characters that are no text become a sign."""
    return json.loads(whole_characters(data).decode("utf-8-sig", "replace"))


def whole_characters(data: bytes) -> bytes:
    """JSON of the same length in which no escape stands for half a character, which no text can hold."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _ESCAPES.sub(lambda found: found[0] if found[0][1:2] == b"\\" or len(found[0]) > 6 else b"\\ufffd", data)


def exact(value: Any, factor: float = 1) -> int:
    """A number, times a factor, as an integer; ValueError where it is none, or larger than a column holds. Integers stay exact."""
    if isinstance(value, bool):
        raise ValueError(value)
    try:
        whole = isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,30}", value))
        found = int(value) * factor if whole and isinstance(factor, int) else float(value) * factor
    except (TypeError, OverflowError) as error:
        raise ValueError(value) from error
    if not abs(found) < 2**62:
        raise ValueError(value)
    return round(found)


def index(value: Any) -> int:
    """The number of a rank, a device or a step; ValueError where it is none."""
    if isinstance(value, (bool, float)):
        raise ValueError(value)
    try:
        found = int(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(value) from error
    if not -(2**31) <= found < 2**31:
        raise ValueError(value)
    return found


def in_text(text: str) -> int | None:
    """The digits of a text as such a number; None where there are none, or too many."""
    digits = "".join(re.findall(r"[0-9]", text))
    return int(digits) if 0 < len(digits) < 10 else None


def listed(value: Any) -> list[Any]:
    """The list that should be there; an empty one where it is something else."""
    return value if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    """The object that should be there; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}
