"""The protocol-buffer wire format, decoded for all messages of one kind at once: a column per field, no object per message.

Messages advance in lockstep: each round decodes one field of every message that has one left. Rare cases (long tags, few messages with
many fields, damage) go through the plain decoder, which also reports the error and its place.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.model.intervals import Ints

Words = NDArray[np.uint64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MANY = -1  # the place of a repeated field
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
    cut: set[int]  # starts of parts whose last bytes are missing

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
    """The fields of the messages at [start, end), by `layout`; other fields are skipped.

    Damage raises, or with `tolerant` ends the message there: the fields before it are valid, and a repeated field that is cut off
    keeps its first bytes.
    """
    decoder = _Decoder(buffer, start, end, layout, tolerant)
    messages = np.flatnonzero(start < end)
    offsets, limits = start[messages], end[messages]
    while len(messages) >= _FEW:
        messages, offsets, limits = decoder.round(messages, offsets, limits)
    for message, offset, limit in zip(messages.tolist(), offsets.tolist(), limits.tolist(), strict=True):
        decoder.plain(message, offset, limit)
    return decoder.result()


class _Decoder:
    def __init__(self, buffer: Buffer, start: Ints, end: Ints, layout: Layout, tolerant: bool) -> None:
        self.buffer, self.layout, self.tolerant = buffer, layout, tolerant
        self.count = len(start)
        self.places = 1 + max((place for _, place in layout.values()), default=-1)
        self.repeated = [number for number, (_, place) in layout.items() if place == MANY]
        # One place more, for skipped fields.
        self.number = np.zeros((self.places + 1, self.count), np.uint8)
        self.value = np.zeros((self.places + 1, self.count), np.uint64)
        self.end = np.zeros((self.places + 1, self.count), np.int64)
        self.seen = {number: np.zeros(self.count, np.int64) for number in self.repeated}
        self.parts: dict[int, list[tuple[Ints, Ints, Ints, Ints]]] = {number: [] for number in self.repeated}
        self.plain_parts = {number: (array("q"), array("q"), array("q")) for number in self.repeated}  # owner, start, end
        self.broken: dict[int, Damage] = {}
        self.cut: set[int] = set()
        self.action = _actions(layout, self.places, self.repeated)

    def round(self, messages: Ints, offsets: Ints, limits: Ints) -> tuple[Ints, Ints, Ints]:
        """Decode one field of each message; the messages that have more, their offsets and their limits."""
        tag = self.buffer.bytes[offsets]
        action = self.action[tag]
        wire = tag & 7
        value, width = _varints(self.buffer, offsets + 1)
        stop = offsets + 1 + width
        is_fixed = wire == FIXED64
        if is_fixed.any():
            value = np.where(is_fixed, self.buffer.words[offsets + 1], value)
            stop = np.where(is_fixed, offsets + 9, stop)
            width[is_fixed] = 8
        is_bytes = wire == BYTES
        if is_bytes.any():
            length = np.minimum(value, np.uint64(1 << 62)).astype(np.int64)
            value = np.where(is_bytes, stop.view(np.uint64), value)
            stop = np.where(is_bytes, stop + length, stop)
        rare = (action >= _BAD) | (width == 0) | (stop > limits)
        if rare.any():
            for message, offset, limit in zip(messages[rare].tolist(), offsets[rare].tolist(), limits[rare].tolist(), strict=True):
                self.plain(message, offset, limit)
            usual = ~rare
            messages, limits, tag, action, value, stop = (column[usual] for column in (messages, limits, tag, action, value, stop))
        index = np.minimum(action, self.places) * self.count + messages
        self.number.reshape(-1)[index] = tag >> 3
        self.value.reshape(-1)[index] = value
        self.end.reshape(-1)[index] = stop
        for code, number in enumerate(self.repeated, self.places + 1):
            has_field = action == code
            if has_field.any():
                owner = messages[has_field]
                self.parts[number].append((owner, self.seen[number][owner], value[has_field].view(np.int64), stop[has_field]))
                self.seen[number][owner] += 1
        more = stop < limits
        if more.all():
            return messages, stop, limits
        return messages[more], stop[more], limits[more]

    def plain(self, message: int, offset: int, limit: int) -> None:
        """Decode the rest of one message, field by field."""
        try:
            self._plain(message, offset, limit)
        except Damage as damage:
            if not self.tolerant:
                raise
            self.broken[message] = damage

    def _plain(self, message: int, at: int, limit: int) -> None:
        raw = self.buffer.raw
        while at < limit:
            begin = at
            tag, at = varint(raw, at, limit)
            number, wire = tag >> 3, tag & 7
            expected, place = self.layout.get(number, (wire, self.places))
            if number == 0 or tag >> 32:
                raise Damage(begin, f"field number {number}; expected 1 to {(1 << 29) - 1}")
            if wire != expected:
                raise Damage(begin, f"field {number} has wire type {wire}; expected {expected}")
            stop = at
            if wire == VARINT:
                value, stop = varint(raw, at, limit)
            elif wire == BYTES:
                length, value = varint(raw, at, limit)
                stop = value + length
            elif wire in (FIXED64, FIXED32):
                stop = at + (8 if wire == FIXED64 else 4)
                value = int.from_bytes(raw[at:stop], "little")
            else:
                raise Damage(begin, f"wire type {wire}; expected 0, 1, 2 or 5")
            cut = stop > limit
            if place == MANY and wire == BYTES:
                at = self._run(message, number, value, min(stop, limit), limit, tag)
            elif not cut:
                at = stop
                if place < self.places:
                    self.number[place, message], self.value[place, message], self.end[place, message] = number, value, stop
            if cut:
                self.cut.add(value)
                raise Damage(begin, f"field {number} needs {stop - begin} bytes; {limit - begin} are left")

    def _run(self, message: int, number: int, value: int, stop: int, limit: int, tag: int) -> int:
        """Store a repeated field and those of the same number that follow it directly; the start of the next field."""
        raw, (owners, starts, ends) = self.buffer.raw, self.plain_parts[number]
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
        """The occurrences of a repeated field, message by message."""
        plain, seen = Parts(*(np.frombuffer(column, np.int64) for column in self.plain_parts[number])), self.seen[number]
        if not self.parts[number] and bool((plain.owner[1:] >= plain.owner[:-1]).all()):
            return plain
        more = np.bincount(plain.owner, minlength=self.count)
        counts = seen + more
        before = np.cumsum(counts) - counts
        result = Parts(
            np.repeat(np.arange(self.count), counts), np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int64)
        )
        for owner, ordinal, start, end in self.parts[number]:
            index = before[owner] + ordinal
            result.start[index], result.end[index] = start, end
        order = np.argsort(plain.owner, kind="stable")  # parts from the plain decoder come after those of the rounds
        owner = plain.owner[order]
        index = (before + seen)[owner] + np.arange(len(owner)) - (np.cumsum(more) - more)[owner]
        result.start[index], result.end[index] = plain.start[order], plain.end[order]
        return result


def _actions(layout: Layout, places: int, repeated: Sequence[int]) -> NDArray[np.int64]:
    """The action for each one-byte tag: the place to fill, or the code of a repeated field, or the plain decoder."""
    action = np.full(256, _RARE, np.int64)
    for number in range(1, 16):
        for wire in range(8):
            expected, place = layout.get(number, (wire, places))
            is_known = wire == expected and wire in (VARINT, FIXED64, BYTES)
            action[number << 3 | wire] = _BAD if not is_known else places + 1 + repeated.index(number) if place == MANY else place
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


def _varints(buffer: Buffer, at: Ints) -> tuple[Words, Ints]:
    """The variable-length integers at these places and their widths in bytes; width 0 for one of more than ten."""
    first = buffer.bytes[at]
    value, width = first.astype(np.uint64), np.ones(len(at), np.int64)
    longer = np.flatnonzero(first >= 0x80)
    if len(longer):
        value[longer], width[longer] = _long_varints(buffer, at[longer])
    return value, width


def _long_varints(buffer: Buffer, at: Ints) -> tuple[Words, Ints]:
    word = buffer.words[at]
    last = ~word & _TOP
    last &= ~last + _ONE  # the top bit of the first byte that ends the number
    width = (((last >> _SEVEN) * _PLACES) >> np.uint64(56)).view(np.int64) + 1
    value = word & (last - _ONE) & _LOW
    for low, high, shift in _FOLDS:
        value = (value & low) | ((value & high) >> shift)
    rows = np.flatnonzero(last == 0)
    if len(rows):
        ninth, tenth = (buffer.bytes[at[rows] + more].astype(np.uint64) for more in (8, 9))
        has_tenth = ninth >= 0x80
        value[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        value[rows[has_tenth]] |= (tenth[has_tenth] & _ONE) << np.uint64(63)
        width[rows] = np.where(~has_tenth, 9, np.where(tenth < 0x80, 10, 0))
    return value, width


def varint(raw: bytes | bytearray, at: int, limit: int) -> tuple[int, int]:
    value, shift, begin = 0, 0, at
    while at < limit:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift == 70:
            raise Damage(begin, "a number of more than ten bytes")
    raise Damage(begin, "a number that is cut off")


def packed(buffer: Buffer, start: int, end: int) -> list[int]:
    """The numbers of a packed repeated field."""
    numbers, at = [], start
    while at < end:
        value, at = varint(buffer.raw, at, end)
        numbers.append(value)
    return numbers
