"""Values of JSON documents that columns can hold: damage may leave any number and any text. Names and first bytes of files."""

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

_ESCAPES = re.compile(
    rb"\\\\"  # a backslash: the next character is no escape
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character in two halves
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"  # half a character, which no text can hold
)


def files(folder: Path, pattern: str) -> list[Path]:
    """The files with such names, in order. Left out: folders, pipes (reading them may block), and names that are no text."""
    return sorted(path for path in folder.glob(pattern) if path.is_file() and printable_name(path.name) == path.name)


OUTSIDE_LINK = "a link that leads out of its folder, which is not followed"


def is_inside_folder(file: Path) -> bool:
    """Whether it is a file, or a link to another place in the same folder.

    The user did not name the files next to a recording: a link there may lead to any file that the user can read.
    """
    try:
        return file.is_file() and file.resolve().is_relative_to(file.parent.resolve())
    except (OSError, RuntimeError):  # forbidden; a link that leads to itself
        return False


def printable_name(name: str) -> str:
    """A file's name as text; bytes that are no text become a replacement character."""
    return os.fsencode(name).decode("utf-8", "replace")


def parse_json(data: bytes) -> Any:
    """The document; ValueError or RecursionError where it is no JSON. Bytes and halves of characters become a replacement character."""
    return json.loads(replace_lone_surrogates(data).decode("utf-8-sig", "replace"))


def replace_lone_surrogates(data: bytes) -> bytes:
    """JSON of the same length without escapes of half a character, which no text can hold."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _ESCAPES.sub(lambda match: match[0] if match[0][1:2] == b"\\" or len(match[0]) > 6 else b"\\ufffd", data)


def to_int(value: Any, factor: float = 1) -> int:
    """A number, times a factor, as an integer; ValueError where it is no number, or larger than a column holds. Integers stay exact."""
    if isinstance(value, bool):
        raise ValueError(value)
    try:
        whole = isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,30}", value))
        number = int(value) * factor if whole and isinstance(factor, int) else float(value) * factor
    except (TypeError, OverflowError) as error:
        raise ValueError(value) from error
    if not abs(number) < 2**62:
        raise ValueError(value)
    return round(number)


def to_index(value: Any) -> int:
    """The number of a rank, a device or a step; ValueError where it is no such number."""
    if isinstance(value, (bool, float)):
        raise ValueError(value)
    try:
        number = int(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(value) from error
    if not -(2**31) <= number < 2**31:
        raise ValueError(value)
    return number


def member_text(ranks: Any) -> str | None:
    """The ranks of a group as a column has them, `0,1`; flight recorders write them as text: "[0, 1]". None where some are left out."""
    if isinstance(ranks, str):
        return None if "..." in ranks else ",".join(re.findall(r"[0-9]{1,9}", ranks)) or None
    numbers = [rank for rank in as_list(ranks) if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31]
    return ",".join(map(str, numbers)) or None


def digits_in(text: str) -> int | None:
    """The digits of a text as a number; None where there are none, or too many."""
    digits = "".join(re.findall(r"[0-9]", text))
    return int(digits) if 0 < len(digits) < 10 else None


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def unpack_head(head: bytes, limit: int) -> bytes:
    """The first bytes of a file: unpacked if it is gzip, up to about `limit` bytes, or to the first damage."""
    if not head.startswith(b"\x1f\x8b"):
        return head
    unpacker, text = zlib.decompressobj(zlib.MAX_WBITS | 16), bytearray()
    for start in range(0, len(head), 4096):
        try:
            text += unpacker.decompress(head[start : start + 4096])
        except zlib.error:
            break
        if len(text) > limit:
            break
    return bytes(text)
