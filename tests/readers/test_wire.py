"""The decoder of all messages at once against one that decodes them one by one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.readers.common import wire as common_wire
from stepscope.readers.common.wire import BYTES, FIXED32, FIXED64, MANY, VARINT, Buffer, Damage, decode

# Fields 3 and 4 share a place, as in a oneof; 20 has a tag of two bytes; 6 is not in the layout.
LAYOUT = {1: (VARINT, 0), 2: (FIXED64, 1), 3: (VARINT, 2), 4: (BYTES, 2), 5: (BYTES, MANY), 7: (BYTES, MANY), 20: (VARINT, 3)}
PLACES = 4


def test_fields_of_a_message_by_hand() -> None:
    # field 1 = 300, field 2 = 1.5, field 5 = "ab", field 5 = "", field 6 (unknown) = 7, field 3 = 9
    data = bytes.fromhex("08 ac02  11 000000000000f83f  2a02 6162  2a00  30 07  18 09")
    found = run(data, [(0, len(data))])
    assert found.value[0, 0] == 300
    assert found.value[1].view(np.float64)[0] == 1.5
    assert (found.number[2, 0], found.value[2, 0]) == (3, 9)
    assert found.number[3, 0] == 0
    assert [data[start:end] for start, end in zip(found.many[5].start, found.many[5].end, strict=True)] == [b"ab", b""]


@pytest.mark.parametrize(
    ("data", "offset", "what"),
    [
        ("08 ff ff ff ff ff ff ff ff ff ff 01", 1, "a number of more than ten bytes"),
        ("08 80", 1, "a number that is cut off"),
        ("2a 05 61", 0, "field 5 needs 7 bytes; 3 are left"),
        ("2a ff ff ff ff ff ff ff ff ff 01", 0, "field 5 needs 18446744073709551626 bytes; 11 are left"),
        ("08 01 0a 00", 2, "field 1 has wire type 2; expected 0"),
        ("33 34", 0, "wire type 3; expected 0, 1, 2 or 5"),
        ("00 00", 0, "field number 0; expected 1 to 536870911"),
        ("11 00", 0, "field 2 needs 9 bytes; 2 are left"),
    ],
)
@pytest.mark.parametrize("copies", [1, 100], ids=["one message", "many messages"])
def test_damage_is_named_with_its_offset(data: str, offset: int, what: str, copies: int) -> None:
    one = bytes.fromhex(data)
    places = [(row * len(one), (row + 1) * len(one)) for row in range(copies)]
    with pytest.raises(Damage, match=f"^{what}$") as caught:
        run(one * copies, places)
    assert caught.value.offset == offset
    found = run(one * copies, places, tolerant=True)
    assert {message: damage.offset for message, damage in found.broken.items()} == {row: row * len(one) + offset for row in range(copies)}


def test_numbers_of_every_width_are_read_at_once_as_one_by_one() -> None:
    values = [value for bits in range(65) for value in (2**bits - 1, 2**bits) if value < 2**64]
    data, places = b"", []
    for value in values:
        start = len(data)
        data += encoded(1, VARINT, value)
        places.append((start, len(data)))
    assert len(values) > common_wire._FEW
    assert run(data, places).value[0].tolist() == values
    assert [int(run(data, [place]).value[0, 0]) for place in places] == values


def test_a_message_of_a_million_fields_takes_no_million_rounds() -> None:
    data = b"\x2a\x00" * 1_000_000
    assert len(run(data, [(0, len(data))]).many[5].start) == 1_000_000


numbers = (
    st.integers(0, 300)
    | st.integers(0, 2**64 - 1)
    | st.integers(0, 64).map(lambda bits: 2**bits - 1)
    | st.integers(0, 63).map(lambda bits: 2**bits)
)
# What a message is made of: (field number, wire type, value).
fields = st.one_of(
    st.tuples(st.sampled_from([1, 3, 20, 6, 300]), st.just(VARINT), numbers),
    st.tuples(st.sampled_from([2, 6]), st.just(FIXED64), st.integers(0, 2**64 - 1)),
    st.tuples(st.sampled_from([4, 5, 7, 6]), st.just(BYTES), st.binary(max_size=200)),
    st.tuples(st.just(6), st.just(FIXED32), st.integers(0, 2**32 - 1)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(fields, max_size=8), max_size=12), st.sampled_from([1, 7, 30]))
def test_whole_messages_give_what_was_written(messages: list[list[tuple[int, int, Any]]], copies: int) -> None:
    data, places = b"", []
    for message in messages * copies:
        body = b"".join(encoded(*one) for one in message)
        places.append((len(data) + 2, len(data) + 2 + len(body)))
        data += b"??" + body  # what lies between messages is nobody's
    assert_same(run(data, places), data, places)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=24), min_size=1, max_size=12), st.sampled_from([1, 60]))
def test_any_bytes_give_what_decoding_one_by_one_gives(messages: list[bytes], copies: int) -> None:
    data = b"".join(messages) * copies
    ends = np.cumsum([len(message) for message in messages * copies]).tolist()
    places = list(zip([0, *ends[:-1]], ends, strict=True))
    assert_same(run(data, places, tolerant=True), data, places)


def run(data: bytes, places: list[tuple[int, int]], *, tolerant: bool = False) -> common_wire.Messages:
    edges = np.array(places, np.int64).reshape(-1, 2)
    return decode(Buffer(bytearray(data + bytes(common_wire.PADDING))), edges[:, 0].copy(), edges[:, 1].copy(), LAYOUT, tolerant=tolerant)


def encoded(number: int, wire: int, value: Any) -> bytes:
    tag = varint(number << 3 | wire)
    if wire == VARINT:
        return tag + varint(value)
    if wire == BYTES:
        return tag + varint(len(value)) + value
    return tag + value.to_bytes(8 if wire == FIXED64 else 4, "little")


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


@dataclass
class Naive:
    """One message, decoded the slow way."""

    slots: dict[int, tuple[int, int]] = field(default_factory=dict)
    many: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {5: [], 7: []})
    broken: bool = False


def naive(data: bytes, here: int, end: int) -> Naive:
    found = Naive()

    def number() -> int:
        nonlocal here
        value = 0
        for position in range(10):
            if here >= end:
                raise ValueError
            byte = data[here]
            here += 1
            value += (byte % 128) * 128**position
            if byte < 128:
                return value % 2**64
        raise ValueError

    try:
        while here < end:
            tag = number()
            which, wire = tag // 8, tag % 8
            expected, place = LAYOUT.get(which, (wire, None))
            if which == 0 or tag >= 2**32 or wire != expected:
                raise ValueError
            if wire == VARINT:
                value = number()
            elif wire == BYTES:
                length = number()
                value = here
                here += length
                if here > end:
                    if place == MANY:
                        found.many[which].append((value, end))
                    raise ValueError
                if place == MANY:
                    found.many[which].append((value, here))
            elif wire in (FIXED64, FIXED32):
                width = 8 if wire == FIXED64 else 4
                if here + width > end:
                    raise ValueError
                value = int.from_bytes(data[here : here + width], "little")
                here += width
            else:
                raise ValueError
            if place is not None and place != MANY:
                found.slots[place] = (which, value)
    except ValueError:
        found.broken = True
    return found


def assert_same(found: common_wire.Messages, data: bytes, places: list[tuple[int, int]]) -> None:
    expected = [naive(data, *place) for place in places]
    assert sorted(found.broken) == [row for row, message in enumerate(expected) if message.broken]
    for place in range(PLACES):
        wanted = [message.slots.get(place, (0, 0)) for message in expected]
        assert found.number[place].tolist() == [which for which, _ in wanted]
        assert found.value[place].tolist() == [value for _, value in wanted]
    for number in (5, 7):
        parts = found.many[number]
        assert list(zip(parts.owner.tolist(), parts.start.tolist(), parts.end.tolist(), strict=True)) == [
            (row, *edges) for row, message in enumerate(expected) for edges in message.many[number]
        ]
