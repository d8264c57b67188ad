"""XSpace, the file of the JAX and TensorFlow profilers, as columns: planes hold lines, lines hold events, all of them may have stats.

The field numbers are those of XLA's xplane.proto. Events and stats name themselves by numbers that the plane's tables resolve.
"""

import base64
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.model.intervals import Ints
from stepscope.readers.common import wire
from stepscope.readers.common.wire import BYTES, FIXED64, MANY, VARINT, Buffer, Damage, Layout, Messages, Parts, Words

_SPACE: Layout = {1: (BYTES, MANY), 2: (BYTES, MANY), 3: (BYTES, MANY), 4: (BYTES, MANY)}
_PLANE: Layout = {2: (BYTES, 0), 3: (BYTES, MANY), 4: (BYTES, MANY), 5: (BYTES, MANY), 6: (BYTES, MANY)}
_LINE: Layout = {1: (VARINT, 0), 2: (BYTES, 1), 11: (BYTES, 2), 3: (VARINT, 3), 4: (BYTES, MANY)}
_EVENT: Layout = {1: (VARINT, 0), 2: (VARINT, 1), 5: (VARINT, 1), 3: (VARINT, 2), 4: (BYTES, MANY)}
_STAT: Layout = {1: (VARINT, 0), 2: (FIXED64, 1), **dict.fromkeys((3, 4, 7), (VARINT, 1)), **dict.fromkeys((5, 6, 8), (BYTES, 1))}
_ENTRY: Layout = {1: (VARINT, 0), 2: (BYTES, 1)}  # of a map
_EVENT_METADATA: Layout = {2: (BYTES, 0), 4: (BYTES, 1), 5: (BYTES, MANY)}
_STAT_METADATA: Layout = {2: (BYTES, 0)}

DOUBLE, UNSIGNED, SIGNED, TEXT, RAW, REFERENCE, PACKED = 2, 3, 4, 5, 6, 7, 8  # how a stat holds its value
_AGGREGATED = 5  # an event that counts occurrences instead of having a start

# Events per batch, and messages that are decoded at once: the columns of the latter stay in the processor's cache.
_BATCH, _CHUNK = 1 << 18, 1 << 13
_SHOWN = 1 << 10  # longer bytes are not shown as text
_LATEST_PS = 1 << 61  # a time beyond this, or as far before zero, does not fit our columns
_MOST_PLANES, _MOST_LINES = 10_000, 1_000_000  # a file with more is no recording, and would take hours
_MOST_DAMAGE = 100  # places of damage that are reported; one cut can break millions of messages


class Space:
    """The file. With `tolerant`, damaged messages are left out and recorded in `damage`: where, and whether the file ends there."""

    def __init__(self, buffer: Buffer, *, tolerant: bool) -> None:
        self.buffer, self.tolerant = buffer, tolerant
        self.damage: list[tuple[Damage, bool]] = []
        self._cut: set[int] = set()
        fields = self.decode(_array(0), _array(buffer.size), _SPACE).many
        self.errors, self.warnings, self.hosts = ([self.text(*edges) for edges in _edges(fields[number])] for number in (2, 3, 4))
        self._planes = _edges(fields[1])
        if len(self._planes) > _MOST_PLANES:
            raise Damage(self._planes[_MOST_PLANES][0], f"{len(self._planes):,} planes; expected one for each device and source")

    def planes(self) -> list["Plane"]:
        return [Plane(self, start, end) for start, end in self._planes]

    def decode(self, start: Ints, end: Ints, layout: Layout) -> Messages:
        messages = wire.decode(self.buffer, start, end, layout, tolerant=self.tolerant)
        for message, damage in messages.broken.items():
            self.note(damage, cut=int(end[message]) == self.buffer.size)
        self._cut |= messages.cut
        return messages

    def broken(self, parts: Parts, messages: Messages) -> Ints:
        """The messages that are damaged, or cut off between two fields."""
        cut = np.flatnonzero(np.isin(parts.start, list(self._cut))) if self._cut else np.empty(0, np.int64)
        return np.union1d(np.array(list(messages.broken), np.int64), cut)

    def note(self, damage: Damage, *, cut: bool = False) -> None:
        if not self.tolerant:
            raise damage
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append((damage, cut))

    def text(self, start: int, end: int) -> str:
        return self.buffer.raw[start:end].decode(errors="backslashreplace")

    def texts(self, messages: Messages, place: int) -> list[str]:
        starts, ends = messages.bytes_at(place)
        return [self.text(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


class Stats(NamedTuple):
    """Named values. `name` and `text` are codes of the plane's texts; `text` is -1 for a number."""

    owner: Ints
    name: Ints
    number: NDArray[np.uint8]  # DOUBLE, ...; 0 for none
    value: Words
    end: Ints
    text: Ints


class Line(NamedTuple):
    number: int  # its id, which need not be unique
    name: str
    timestamp_ns: int


class Batch(NamedTuple):
    """Events and their stats, whose `owner` is a row of this batch."""

    line: Ints
    metadata: Ints  # row of the plane's `names`, -1 where it lacks one
    metadata_id: Ints
    offset_ps: Ints
    dur_ps: Ints
    stats: Stats
    aggregated: int  # events left out because they have no time
    unplaced: int  # events left out because the wall clock was set, and two times are possible
    broken: int  # events left out because they are damaged


# Maps line, offset and duration of events, in picoseconds, to offset and duration on the clock of the recording, and which are certain.
Correction = Callable[[Ints, Ints, Ints], tuple[Ints, Ints, NDArray[np.bool_]]]


class Plane:
    """One plane: `names` of its event metadata and `displays`, the names for viewers; each text is stored once, `texts[code]`."""

    correction: Correction | None = None

    def __init__(self, space: Space, start: int, end: int) -> None:
        self._space = space
        plane = space.decode(_array(start), _array(end), _PLANE)
        self.name = space.texts(plane, 0)[0]
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}
        keys, names = self._map(plane.many[5], _STAT_METADATA)
        self._stat_codes = _Lookup(keys, np.array([self._code(text) for text in space.texts(names, 0)], np.int64))
        keys, metadata = self._map(plane.many[4], _EVENT_METADATA)
        self.names, self.displays = space.texts(metadata, 0), space.texts(metadata, 1)
        self._metadata_rows = _Lookup(keys, np.arange(len(keys)))
        self.metadata_stats = self._stats(metadata.many[5])
        self.stats = self._stats(plane.many[6])
        if len(plane.many[3].start) > _MOST_LINES:
            raise Damage(start, f"a plane of {len(plane.many[3].start):,} lines; expected one for each thread or stream")
        lines = space.decode(plane.many[3].start, plane.many[3].end, _LINE)
        columns = (lines.signed(0).tolist(), space.texts(lines, 1), space.texts(lines, 2), lines.signed(3).tolist())
        self.lines = [Line(number, display or name, timestamp) for number, name, display, timestamp in zip(*columns, strict=True)]
        self._events = lines.many[4]
        for line, offset in zip(self.lines, plane.many[3].start.tolist(), strict=True):
            if abs(line.timestamp_ns) > _LATEST_PS:
                raise Damage(offset, f"a line that starts at {line.timestamp_ns:,} ns")

    def batches(self, progress: Callable[[int], None]) -> Iterator[Batch]:
        count = len(self._events.start)
        for first in range(0, count, _BATCH):
            last = min(first + _BATCH, count)
            yield self._batch(first, last)
            progress(int(self._events.end[last - 1]))

    def code(self, text: str) -> int:
        """The code of a text, -1 where the plane does not have it."""
        return self._codes.get(text, -1)

    def value(self, stats: Stats, row: int) -> object:
        """One stat as a Python value."""
        if (text := int(stats.text[row])) >= 0:
            return self.texts[text]
        value, number = stats.value[row], stats.number[row]
        if number == DOUBLE:
            return float(value.view(np.float64))
        return int(value.view(np.int64)) if number == SIGNED else int(value) if number else None

    def _batch(self, first: int, last: int) -> Batch:
        events, stats = [], []
        count = aggregated = broken = unplaced = 0
        for low in range(first, last, _CHUNK):
            parts = Parts(*(column[low : min(low + _CHUNK, last)] for column in self._events))
            messages = self._space.decode(parts.start, parts.end, _EVENT)
            stat_parts = messages.many[4]
            values = self._space.decode(stat_parts.start, stat_parts.end, _STAT)
            intact = np.ones(messages.number.shape[1], np.bool_)
            intact[self._space.broken(parts, messages)] = False
            intact[stat_parts.owner[list(values.broken)]] = False
            has_time = messages.number[1] != _AGGREGATED
            offset, duration, certain = messages.signed(1), messages.signed(2), np.ones(len(intact), np.bool_)
            if self.correction:
                offset, duration, certain = self.correction(parts.owner, offset, duration)
            intact[self._report_misplaced(parts, offset, duration, certain)] = False
            aggregated, broken = aggregated + int((intact & ~has_time).sum()), broken + int((~intact).sum())
            unplaced += int((intact & has_time & ~certain).sum())
            keep = intact & has_time & certain
            rows = np.cumsum(keep) - 1 + count
            count += int(keep.sum())
            events.append((parts.owner[keep], messages.signed(0)[keep], offset[keep], duration[keep]))
            keep_stat = keep[stat_parts.owner]
            columns = (values.signed(0), values.number[1], values.value[1], values.end[1])
            stats.append((rows[stat_parts.owner[keep_stat]], *(column[keep_stat] for column in columns)))
        line, metadata_id, offset, duration = (np.concatenate(column) for column in zip(*events, strict=True))
        named = self._resolve_names(*(np.concatenate(column) for column in zip(*stats, strict=True)))
        return Batch(line, self._metadata_rows.find(metadata_id), metadata_id, offset, duration, named, aggregated, unplaced, broken)

    def _report_misplaced(self, parts: Parts, offset: Ints, duration: Ints, certain: NDArray[np.bool_]) -> Ints:
        """Events with a negative duration or times out of range: an error, or left out."""
        bad = np.flatnonzero(((duration < 0) & certain) | (duration > _LATEST_PS) | (offset > _LATEST_PS) | (offset < -_LATEST_PS))
        if len(bad):
            event = f"an event at {offset[bad[0]]:,} ps that lasts {duration[bad[0]]:,} ps"
            self._space.note(Damage(int(parts.start[bad[0]]), event))
        return bad

    def _stats(self, parts: Parts) -> Stats:
        stats = self._space.decode(parts.start, parts.end, _STAT)
        return self._resolve_names(parts.owner, stats.signed(0), stats.number[1], stats.value[1], stats.end[1])

    def _resolve_names(self, owner: Ints, name_id: Ints, number: NDArray[np.uint8], value: Words, end: Ints) -> Stats:
        """Stats with their names and texts as codes."""
        text = np.full(len(owner), -1, np.int64)
        is_reference = number == REFERENCE
        text[is_reference] = self._stat_names(value[is_reference].view(np.int64))
        inline = np.flatnonzero((number == TEXT) | (number == RAW) | (number == PACKED))
        text[inline] = self._inline(number[inline] == TEXT, value[inline].view(np.int64), end[inline])
        return Stats(owner, self._stat_names(name_id), number, value, end, text)

    def _inline(self, is_text: NDArray[np.bool_], start: Ints, end: Ints) -> Ints:
        """Codes of values that are text or bytes. Short ones repeat: each distinct one is decoded once."""
        codes, buffer = np.empty(len(start), np.int64), self._space.buffer
        length = end - start
        short = is_text & (length < 8)
        bits = (length[short] * 8).astype(np.uint64)
        content = buffer.words[start[short]] & ((np.uint64(1) << bits) - np.uint64(1)) | bits << np.uint64(53)
        _, first, inverse = np.unique(content, return_index=True, return_inverse=True)
        edges = zip(start[short][first].tolist(), end[short][first].tolist(), strict=True)
        codes[short] = np.array([self._code(self._space.text(*edge)) for edge in edges], np.int64)[inverse]
        rest = np.flatnonzero(~short)
        for row, begin, stop in zip(rest.tolist(), start[rest].tolist(), end[rest].tolist(), strict=True):
            if is_text[row]:
                codes[row] = self._code(self._space.text(begin, stop))
            elif stop - begin <= _SHOWN:
                codes[row] = self._code(base64.b64encode(buffer.raw[begin:stop]).decode())
            else:
                codes[row] = self._code(f"{stop - begin:,} bytes")
        return codes

    def _stat_names(self, ids: Ints) -> Ints:
        """Codes of the names of stats; a stat without a name in the plane is named after its number."""
        codes = self._stat_codes.find(ids)
        unnamed = codes < 0
        if unnamed.any():
            distinct, inverse = np.unique(ids[unnamed], return_inverse=True)
            codes[unnamed] = np.array([self._code(f"stat {number}") for number in distinct.tolist()], np.int64)[inverse]
        return codes

    def _map(self, parts: Parts, layout: Layout) -> tuple[Ints, Messages]:
        entries = self._space.decode(parts.start, parts.end, _ENTRY)
        whole = np.delete(np.arange(len(parts.start)), self._space.broken(parts, entries))
        start, end = entries.bytes_at(1)
        return entries.signed(0)[whole], self._space.decode(start[whole], end[whole], layout)

    def _code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


class _Lookup:
    """Values by key; the last of equal keys counts."""

    def __init__(self, keys: Ints, values: Ints) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._values = np.append(keys[order], 0), np.append(values[order], -1)  # the last is for missing keys
        self._dense: Ints | None = None
        if len(keys) and keys.min() >= 0 and keys.max() < 4 * len(keys) + 1000:  # profilers count from 1
            self._dense = np.full(int(keys.max()) + 2, -1, np.int64)
            self._dense[keys] = values  # numpy stores the last of equal keys

    def find(self, keys: Ints) -> Ints:
        """The value of each key, -1 where there is none."""
        if self._dense is not None:
            last = len(self._dense) - 1
            return self._dense[np.where((keys >= 0) & (keys < last), keys, last)]
        at = np.searchsorted(self._keys[:-1], keys, "right") - 1
        return np.where(self._keys[at] == keys, self._values[at], -1)


def _array(value: int) -> Ints:
    return np.array([value], np.int64)


def _edges(parts: Parts) -> list[tuple[int, int]]:
    return list(zip(parts.start.tolist(), parts.end.tolist(), strict=True))
