"""The protocol-buffer wire format, decoded for all messages of one kind at once: a column per field, no object per message.

Messages advance in lockstep: each round decodes one field of every message that has one left. What is rare (long tags, few messages
with many fields, damage) goes through the plain decoder at the bottom, which also says what is wrong and where.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MANY = -1  # the place of a field that may come any number of times
PADDING = 16  # bytes behind the data, so that a field's tag and value can be loaded from any place

# With fewer messages than this in a round, numpy costs more per call than Python per field.
_FEW = 48
_BAD, _RARE = 126, 127


class Damage(Exception):  # noqa: N818 - not a user's error: the reader that knows the file's name turns it into one
    """What is wrong with the bytes, and at which offset."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset, self.what = offset, what


class Parts(NamedTuple):
    """The occurrences of a repeated field, in the order of the data: which message each belongs to, and its bytes."""

    owner: Ints
    start: Ints
    end: Ints


class Messages(NamedTuple):
    """Decoded messages, a column per place. Of fields that share a place the last one counts, as in a oneof."""

    number: NDArray[np.uint8]  # [place, message]: the field that filled it, 0 for none
    value: Words  # [place, message]: the number, or where the bytes start
    end: Ints  # [place, message]: where the bytes end
    many: dict[int, Parts]
    broken: dict[int, Damage]  # by message; empty unless damage is tolerated
    cut: set[int]  # where parts start of which only the first bytes are there

    def bytes_at(self, place: int) -> tuple[Ints, Ints]:
        return self.value[place].astype(np.int64), self.end[place]

    def signed(self, place: int) -> Ints:
        values: Ints = self.value[place].view(np.int64)
        return values


class Buffer:
    """Data with PADDING behind it."""

    def __init__(self, padded: bytearray) -> None:
        self.raw, self.size = padded, len(padded) - PADDING
        self.bytes = np.frombuffer(padded, np.uint8)
        self.words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))


Layout = dict[int, tuple[int, int]]  # field number: (wire type, place or MANY)


def decode(buffer: Buffer, start: Ints, end: Ints, layout: Layout, *, tolerant: bool = False) -> Messages:
    """The fields of the messages at [start, end), by `layout`; other fields are passed over.

    Damage raises, or with `tolerant` ends the message there: what came before it stands, and a repeated field that is cut off
    keeps its first bytes.
    """
    work = _Work(buffer, start, end, layout, tolerant)
    at = np.flatnonzero(start < end)
    here, limit = start[at], end[at]
    while len(at) >= _FEW:
        at, here, limit = work.round(at, here, limit)
    for message, offset, stop in zip(at.tolist(), here.tolist(), limit.tolist(), strict=True):
        work.plain(message, offset, stop)
    return work.result()


class _Work:
    def __init__(self, buffer: Buffer, start: Ints, end: Ints, layout: Layout, tolerant: bool) -> None:
        self.buffer, self.layout, self.tolerant = buffer, layout, tolerant
        self.count, self.end_of = len(start), end
        self.places = 1 + max((place for _, place in layout.values()), default=-1)
        self.repeated = [number for number, (_, place) in layout.items() if place == MANY]
        # One place more, for what is passed over.
        self.number = np.zeros((self.places + 1, self.count), np.uint8)
        self.value = np.zeros((self.places + 1, self.count), np.uint64)
        self.end = np.zeros((self.places + 1, self.count), np.int64)
        self.seen = {number: np.zeros(self.count, np.int64) for number in self.repeated}
        self.found: dict[int, list[tuple[Ints, Ints, Ints, Ints]]] = {number: [] for number in self.repeated}
        self.loose = {number: (array("q"), array("q"), array("q")) for number in self.repeated}  # owner, start, end
        self.broken: dict[int, Damage] = {}
        self.cut: set[int] = set()
        self.action = _actions(layout, self.places, self.repeated)

    def round(self, at: Ints, here: Ints, limit: Ints) -> tuple[Ints, Ints, Ints]:
        """Decode one field of each of the messages `at`; the messages that have more, where, and where they end."""
        tag = self.buffer.bytes[here]
        action = self.action[tag]
        wire = tag & 7
        value, width = _varints(self.buffer, here + 1)
        stop = here + 1 + width
        fixed = wire == FIXED64
        if fixed.any():
            value = np.where(fixed, self.buffer.words[here + 1], value)
            stop = np.where(fixed, here + 9, stop)
            width[fixed] = 8
        text = wire == BYTES
        if text.any():
            length = np.minimum(value, np.uint64(1 << 62)).astype(np.int64)
            value = np.where(text, stop.view(np.uint64), value)
            stop = np.where(text, stop + length, stop)
        odd = (action >= _BAD) | (width == 0) | (stop > limit)
        if odd.any():
            for message, offset, last in zip(at[odd].tolist(), here[odd].tolist(), limit[odd].tolist(), strict=True):
                self.plain(message, offset, last)
            fine = ~odd
            at, limit, tag, action, value, stop = at[fine], limit[fine], tag[fine], action[fine], value[fine], stop[fine]
        index = np.minimum(action, self.places) * self.count + at
        self.number.reshape(-1)[index] = tag >> 3
        self.value.reshape(-1)[index] = value
        self.end.reshape(-1)[index] = stop
        for code, number in enumerate(self.repeated, self.places + 1):
            here_too = action == code
            if here_too.any():
                owner = at[here_too]
                self.found[number].append((owner, self.seen[number][owner], value[here_too].view(np.int64), stop[here_too]))
                self.seen[number][owner] += 1
        more = stop < limit
        if more.all():
            return at, stop, limit
        return at[more], stop[more], limit[more]

    def plain(self, message: int, offset: int, limit: int) -> None:
        """Decode the rest of one message, field by field."""
        try:
            self._plain(message, offset, limit)
        except Damage as damage:
            if not self.tolerant:
                raise
            self.broken[message] = damage

    def _plain(self, message: int, here: int, limit: int) -> None:
        raw = self.buffer.raw
        while here < limit:
            begin = here
            tag, here = varint(raw, here, limit)
            number, wire = tag >> 3, tag & 7
            expected, place = self.layout.get(number, (wire, self.places))
            if number == 0 or tag >> 32:
                raise Damage(begin, f"field number {number}; expected 1 to {(1 << 29) - 1}")
            if wire != expected:
                raise Damage(begin, f"field {number} has wire type {wire}; expected {expected}")
            stop = here
            if wire == VARINT:
                value, stop = varint(raw, here, limit)
            elif wire == BYTES:
                length, value = varint(raw, here, limit)
                stop = value + length
            elif wire in (FIXED64, FIXED32):
                stop = here + (8 if wire == FIXED64 else 4)
                value = int.from_bytes(raw[here:stop], "little")
            else:
                raise Damage(begin, f"wire type {wire}; expected 0, 1, 2 or 5")
            cut = stop > limit
            if place == MANY and wire == BYTES:
                here = self._run(message, number, value, min(stop, limit), limit, tag)
            elif not cut:
                here = stop
                if place < self.places:
                    self.number[place, message], self.value[place, message], self.end[place, message] = number, value, stop
            if cut:
                self.cut.add(value)
                raise Damage(begin, f"field {number} needs {stop - begin} bytes; {limit - begin} are left")

    def _run(self, message: int, number: int, value: int, stop: int, limit: int, tag: int) -> int:
        """Note a repeated field, and as many more of it as follow at once; give where the next field starts."""
        raw, (owners, starts, ends) = self.buffer.raw, self.loose[number]
        before = len(starts)
        starts.append(value)
        ends.append(stop)
        add_start, add_end = starts.append, ends.append
        while stop + 1 < limit and raw[stop] == tag:
            length, value = raw[stop + 1], stop + 2
            if length >= 0x80:
                high = raw[value]
                if high >= 0x80:
                    break
                length, value = (length & 0x7F) | high << 7, value + 1
            if value + length > limit:
                break
            stop = value + length
            add_start(value)
            add_end(stop)
        owners.extend(array("q", (message,)) * (len(starts) - before))
        return stop

    def result(self) -> Messages:
        many = {number: self._in_order(number) for number in self.repeated}
        return Messages(self.number[:-1], self.value[:-1], self.end[:-1], many, self.broken, self.cut)

    def _in_order(self, number: int) -> Parts:
        """The pieces of a repeated field, message by message."""
        loose, seen = Parts(*(np.frombuffer(column, np.int64) for column in self.loose[number])), self.seen[number]
        if not self.found[number] and bool((loose.owner[1:] >= loose.owner[:-1]).all()):
            return loose
        more = np.bincount(loose.owner, minlength=self.count)
        counts = seen + more
        before = np.cumsum(counts) - counts
        result = Parts(
            np.repeat(np.arange(self.count), counts), np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int64)
        )
        for owner, ordinal, start, end in self.found[number]:
            index = before[owner] + ordinal
            result.start[index], result.end[index] = start, end
        order = np.argsort(loose.owner, kind="stable")  # what the plain decoder found of a message comes after the rounds
        owner = loose.owner[order]
        index = (before + seen)[owner] + np.arange(len(owner)) - (np.cumsum(more) - more)[owner]
        result.start[index], result.end[index] = loose.start[order], loose.end[order]
        return result


def _actions(layout: Layout, places: int, repeated: Sequence[int]) -> NDArray[np.int64]:
    """What to do on each one-byte tag: the place to fill, then the code of a repeated field, or send it to the plain decoder."""
    action = np.full(256, _RARE, np.int64)
    for number in range(1, 16):
        for wire in range(8):
            expected, place = layout.get(number, (wire, places))
            known = wire == expected and wire in (VARINT, FIXED64, BYTES)
            action[number << 3 | wire] = _BAD if not known else places + 1 + repeated.index(number) if place == MANY else place
    return action


_TOP = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_PLACES = np.uint64(0x0001020304050607)
_FOLDS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


def _varints(buffer: Buffer, here: Ints) -> tuple[Words, Ints]:
    """The variable-length integers at these places and their widths in bytes; width 0 for one of more than ten."""
    first = buffer.bytes[here]
    value, width = first.astype(np.uint64), np.ones(len(here), np.int64)
    longer = np.flatnonzero(first >= 0x80)
    if len(longer):
        value[longer], width[longer] = _long_varints(buffer, here[longer])
    return value, width


def _long_varints(buffer: Buffer, here: Ints) -> tuple[Words, Ints]:
    word = buffer.words[here]
    last = ~word & _TOP
    last &= ~last + _ONE  # the top bit of the first byte that ends the number
    width = (((last >> _SEVEN) * _PLACES) >> np.uint64(56)).view(np.int64) + 1
    value = word & (last - _ONE) & _LOW
    for low, high, shift in _FOLDS:
        value = (value & low) | ((value & high) >> shift)
    rows = np.flatnonzero(last == 0)
    if len(rows):
        ninth, tenth = (buffer.bytes[here[rows] + more].astype(np.uint64) for more in (8, 9))
        of_ten = ninth >= 0x80
        value[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        value[rows[of_ten]] |= (tenth[of_ten] & _ONE) << np.uint64(63)
        width[rows] = np.where(~of_ten, 9, np.where(tenth < 0x80, 10, 0))
    return value, width


def varint(raw: bytes | bytearray, here: int, limit: int) -> tuple[int, int]:
    value, shift, begin = 0, 0, here
    while here < limit:
        byte = raw[here]
        here += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, here
        shift += 7
        if shift == 70:
            raise Damage(begin, "a number of more than ten bytes")
    raise Damage(begin, "a number that is cut off")


def packed(buffer: Buffer, start: int, end: int) -> list[int]:
    """The numbers of a packed repeated field."""
    found, here = [], start
    while here < end:
        value, here = varint(buffer.raw, here, end)
        found.append(value)
    return found
