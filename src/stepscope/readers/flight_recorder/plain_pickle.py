"""Pickles of plain data: dicts, lists, tuples, texts, bytes, numbers, booleans and None.

Python's own unpickler imports and calls what the file names. This one has no instruction that could: a pickle with any other
instruction is refused. A pickle may use one list in many places: how much it would be when written out is bounded, and so is its depth.
"""

import struct
from collections.abc import Callable
from typing import Any

MAX_PROTOCOL = 5
_DEEPEST = 100  # containers inside each other
_MOST_VALUES = 20_000_000  # when written out; a dump of 20,000 records has 1 million
_TEXT = 32  # characters that count as a value
_CONTAINERS = (dict, list, tuple)


def load(data: bytes) -> Any:
    """The value; ValueError where it is no pickle of plain data, or damaged."""
    reader = _Reader(data)
    try:
        value = reader.run()
    except (IndexError, KeyError, struct.error, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged at byte {reader.at:,}") from error
    _check_extent(value)
    return value


def _check_extent(value: Any) -> None:
    """Refuse a value that contains itself, is nested too deeply, or is too large when its shared parts are written out."""
    known: dict[int, tuple[int, int]] = {}  # depth and number of values of each container
    begun: set[int] = set()
    waiting = [value]
    while waiting:
        container = waiting[-1]
        if id(container) in known:
            waiting.pop()
            continue
        parts = _parts(container)
        inner = [part for part in parts if isinstance(part, _CONTAINERS)]
        if id(container) not in begun:
            begun.add(id(container))
            if any(id(part) in begun and id(part) not in known for part in inner):
                raise ValueError("it contains itself")
            waiting += {id(part): part for part in inner if id(part) not in known}.values()
            continue
        waiting.pop()
        depth = 1 + max((known[id(part)][0] for part in inner), default=0)
        size = sum(1 + len(part) // _TEXT if isinstance(part, str | bytes) else 1 for part in parts)
        size += sum(known[id(part)][1] for part in inner)
        if depth > _DEEPEST:
            raise ValueError(f"nested in more than {_DEEPEST} levels")
        if size > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values, most of them repeated")
        known[id(container)] = depth, size


def _parts(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [*container, *container.values()]
    return list(container) if isinstance(container, _CONTAINERS) else []


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, length = self.data, len(self.data)
        while self.at < length:
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                return self.stack.pop()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise ValueError(f"instruction {code} at byte {self.at - 1:,} builds more than plain data")
            instruction(self)
        raise ValueError(f"truncated at byte {length:,}")

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if count < 0 or len(part) < count:
            raise ValueError(f"truncated at byte {len(self.data):,}")
        self.at += count
        return part

    def number(self, form: str) -> Any:
        packed = struct.Struct(form)
        return packed.unpack(self.take(packed.size))[0]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def after_mark(self) -> list[Any]:
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values


def _protocol(reader: _Reader) -> None:
    if (version := reader.take(1)[0]) > MAX_PROTOCOL:
        raise ValueError(f"pickle protocol {version}, newer than {MAX_PROTOCOL}")


def _put(reader: _Reader, form: str) -> None:
    reader.memo[reader.number(form)] = reader.stack[-1]


def _memoize(reader: _Reader) -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _get(reader: _Reader, form: str) -> None:
    reader.push(reader.memo[reader.number(form)])


def _text(reader: _Reader, form: str) -> None:
    reader.push(reader.take(reader.number(form)).decode("utf-8", "replace"))


def _bytes(reader: _Reader, form: str) -> None:
    reader.push(reader.take(reader.number(form)))


def _long(reader: _Reader) -> None:
    # A number beyond 255 bytes has an instruction of its own, which no recorder writes: its conversion could take long.
    reader.push(int.from_bytes(reader.take(reader.take(1)[0]), "little", signed=True))


def _append(reader: _Reader) -> None:
    value = reader.stack.pop()
    _of(list, reader.stack[-1]).append(value)


def _appends(reader: _Reader) -> None:
    values = reader.after_mark()
    _of(list, reader.stack[-1]).extend(values)


def _set_item(reader: _Reader) -> None:
    value, key = reader.stack.pop(), reader.stack.pop()
    _of(dict, reader.stack[-1])[_key(key)] = value


def _set_items(reader: _Reader) -> None:
    values = reader.after_mark()
    _of(dict, reader.stack[-1]).update(zip(map(_key, values[::2]), values[1::2], strict=True))


def _key(value: Any) -> str | int:
    """A key as dumps have it. The hash of a deeply nested tuple would end the process."""
    if not isinstance(value, str | int):
        raise TypeError
    return value


def _tuple(reader: _Reader, count: int) -> None:
    if len(reader.stack) < count:
        raise IndexError
    values = tuple(reader.stack[-count:])
    del reader.stack[-count:]
    reader.push(values)


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


_STOP = ord(".")
_Instruction = Callable[[_Reader], Any]
_INSTRUCTIONS: dict[int, _Instruction] = {
    0x80: _protocol,
    0x95: lambda reader: reader.take(8),  # the length of the part that follows
    ord("("): lambda reader: reader.marks.append(len(reader.stack)),
    ord("0"): lambda reader: reader.stack.pop(),
    ord("N"): lambda reader: reader.push(None),
    0x88: lambda reader: reader.push(True),
    0x89: lambda reader: reader.push(False),
    ord("K"): lambda reader: reader.push(reader.number("<B")),
    ord("M"): lambda reader: reader.push(reader.number("<H")),
    ord("J"): lambda reader: reader.push(reader.number("<i")),
    0x8A: _long,
    ord("G"): lambda reader: reader.push(reader.number(">d")),
    ord("X"): lambda reader: _text(reader, "<I"),
    0x8C: lambda reader: _text(reader, "<B"),
    0x8D: lambda reader: _text(reader, "<Q"),
    ord("C"): lambda reader: _bytes(reader, "<B"),
    ord("B"): lambda reader: _bytes(reader, "<I"),
    0x8E: lambda reader: _bytes(reader, "<Q"),
    ord("]"): lambda reader: reader.push([]),
    ord("a"): _append,
    ord("e"): _appends,
    ord("l"): lambda reader: reader.push(reader.after_mark()),
    ord("}"): lambda reader: reader.push({}),
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord(")"): lambda reader: reader.push(()),
    0x85: lambda reader: _tuple(reader, 1),
    0x86: lambda reader: _tuple(reader, 2),
    0x87: lambda reader: _tuple(reader, 3),
    ord("t"): lambda reader: reader.push(tuple(reader.after_mark())),
    ord("q"): lambda reader: _put(reader, "<B"),
    ord("r"): lambda reader: _put(reader, "<I"),
    0x94: _memoize,
    ord("h"): lambda reader: _get(reader, "<B"),
    ord("j"): lambda reader: _get(reader, "<I"),
}
