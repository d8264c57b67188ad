"""Mutations of recorded files, by content: JSON, CSV, SQLite, npz, Parquet, protobuf, text, bytes, and of the files of a folder.

All chance comes from the `random.Random` that is handed in, so that the same seed makes the same mutant.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import shutil
import sqlite3
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

Mutator = Callable[[Path, random.Random], None]

# As they stand in a JSON text.
TOKENS = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "-0.0",
        "0.1",
        "1e-320",
        "1e308",
        "-1e308",
        "1e400",
        "-1e400",
        "NaN",
        "Infinity",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
    ),
    *("2147483647", "2147483648", "-2147483649", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "18446744073709551615", "18446744073709551616", "9" * 40, "9" * 5000, "253402300800000000", "1e18", "1e19"),
    *('""', '"x"', '"-5"', '"NaN"', '"inf"', '"1e400"', '"0x10"', '"\\u00b2"', '"\\ud800"', '"a\\nb"', '"a\\u0000b"', '"../.."', '"1,2"'),
    *('"' + "9" * 30 + '"', '"' + "x" * 5000 + '"', '["a",1,null]', '{"a":[1]}', "[" * 50 + "]" * 50, '{"a":' * 5000 + "1" + "}" * 5000),
    *('"Infinity"', '"None"', '"true"', '" 1"', '"1 "', '"1_000"', '"\\u0661"', '"%s%n"', '"<b>"', '"[1, 2"', '"{"', '"/"', '"\\ufeff"'),
)
WORDS = (
    *(
        "",
        "N/A",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "-1",
        "-0",
        "0",
        "1e308",
        "1e400",
        "9" * 19,
        "9" * 20,
        "9" * 40,
        "x",
        '"',
        "a\tb",
        "²",
        "0.0.1",
    ),
    *(
        "\ufeff",
        "None",
        "null",
        "[]",
        "{}",
        "[1,2",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        " ",
    ),
    *(
        "1_000",
        "٣",
        "0x10",
        "a\nb",
        "x" * 3000,
        "'",
        "=1+1",
        "\x1b[31m",
        "1,5",
        "\x00",
        "true",
        "+5",
        "1e5",
        "-5.5",
        "18446744073709551615",
    ),
)
NUMBERS = (-1, 0, 1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**62, 2**63 - 1, -(2**63), 2**63 - 1000, 2**53, 10**18)
FLOATS = (float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, 1e18, 1e19)
SIZES = (8, 16, 20, 24, 32, 40, 64, 128, 256)  # of records, and of what they are made of
MOST_BYTES = 4 << 20  # a mutation never lets a file grow above this


# An earlier mutation may have left nothing for the next.
_NOTHING_TO_CHANGE = (
    *(OSError, IndexError, ValueError, KeyError, TypeError, EOFError, RecursionError, MemoryError, OverflowError, NotImplementedError),
    *(
        sqlite3.Error,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        zipfile.BadZipFile,
        zlib.error,
        csv.Error,
        tokenize.TokenError,
        SyntaxError,
    ),
)


def mutate(root: Path, chance: random.Random, extra: tuple[Mutator, ...] = ()) -> list[str]:
    """Change the files below `root` (or the file itself) once to a few times; the names of what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 6))):
        with contextlib.suppress(*_NOTHING_TO_CHANGE):
            done.append(_mutate_once(root, chance, extra))
    return done


def _mutate_once(root: Path, chance: random.Random, extra: tuple[Mutator, ...]) -> str:
    if root.is_dir() and chance.random() < 0.12:
        change = chance.choice((*_FILES, *extra, *extra))
        change(root, chance)
        return change.__name__
    file = root if root.is_file() else chance.choice(files_of(root))
    return mutate_file(file, chance)


def mutate_file(file: Path, chance: random.Random) -> str:
    data = file.read_bytes()
    if data[:2] == b"\x1f\x8b" and chance.random() < 0.9:
        with contextlib.suppress(OSError, EOFError, zlib.error):
            inner = gzip.decompress(data)
            file.write_bytes(inner)
            name = mutate_file(file, chance)
            file.write_bytes(gzip.compress(file.read_bytes(), 1, mtime=0))
            return f"gzip {name}"
    mutators: tuple[Mutator, ...] = _BYTES if chance.random() < 0.2 else _mutators(file, data)
    change = chance.choice(mutators)
    change(file, chance)
    if file.stat().st_size > MOST_BYTES:
        file.write_bytes(data)
    return f"{file.name}: {change.__name__}"


def _mutators(file: Path, data: bytes) -> tuple[Mutator, ...]:
    if data[:16] == b"SQLite format 3\0":
        return (*[sqlite_cells] * 3, sqlite_schema, sqlite_schema, sqlite_pages)
    if data[:4] == b"PAR1":
        return parquet_values, parquet_values, parquet_columns
    if data[:4] == b"PK\3\4":
        return npz_values, npz_values, npz_arrays, npz_headers
    if data[:6] == b"\x93NUMPY":
        return npy_values, npy_values, npy_header
    if file.suffix == ".pb":
        return protobuf, protobuf, protobuf, protobuf_values
    if file.suffix == ".csv":
        return csv_cells, csv_cells, csv_columns, csv_text, text_numbers
    if data.lstrip()[:1] in (b"{", b"["):
        return json_values, json_values, json_values, json_fields, json_lists, json_text
    if b"\0" not in data[:512]:
        return text_numbers, text_numbers, text_lines, text_noise
    return _BYTES


# Bytes


def flipped_bytes(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 5, 40)) if data else 0):
        at = chance.randrange(len(data))
        data[at] = chance.choice((0, 0xFF, 0x7F, 0x80, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
    file.write_bytes(data)


def spliced_bytes(file: Path, chance: random.Random) -> None:
    """A stretch of the file in the place of another."""
    data = file.read_bytes()
    one, other = chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)
    length = chance.choice((1, 8, 64, 1000, len(data)))
    file.write_bytes(data[:one] + data[other : other + length] + data[one + chance.choice((0, length)) :])


def truncated(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    size = chance.choice((1, *SIZES))
    end = chance.randrange(len(data) // size + 1) * size + chance.choice((0, 0, 1, -1))
    file.write_bytes(data[: max(0, end)])


def inserted_bytes(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    at = chance.choice((0, len(data), chance.randrange(len(data) + 1)))
    file.write_bytes(data[:at] + chance.randbytes(chance.choice((1, 2, 8, 100))) + data[at:])


def removed_bytes(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    at = chance.randrange(len(data) + 1)
    file.write_bytes(data[:at] + data[at + chance.choice((1, 2, 8, 64, 1000)) :])


def filled_bytes(file: Path, chance: random.Random) -> None:
    """A stretch of one byte, as a disk leaves what it never wrote."""
    data = bytearray(file.read_bytes())
    at = chance.choice((0, chance.randrange(len(data) + 1)))
    length = min(chance.choice((8, 600, len(data))), len(data) - at)
    data[at : at + length] = bytes([chance.choice((0, 0, 0xFF, 0x20))]) * length
    file.write_bytes(data)


def extreme_words(file: Path, chance: random.Random) -> None:
    """Extreme numbers of two, four or eight bytes."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 8) if len(data) >= 8 else 0):
        form, size = chance.choice((("<H", 2), ("<I", 4), ("<Q", 8), ("<Q", 8)))
        at = chance.randrange(len(data) // size) * size
        data[at : at + size] = struct.pack(form, chance.choice(NUMBERS) % (1 << 8 * size))
    file.write_bytes(data)


def shifted_words(file: Path, chance: random.Random) -> None:
    """Eight-byte numbers that are larger or smaller by a power of two: as timestamps, hours or years off."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 4) if len(data) >= 16 else 0):
        at = chance.randrange(len(data) // 8 - 1) * 8
        (value,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, (value + chance.choice((1, -1)) * (1 << chance.randrange(8, 63))) % 2**64)
    file.write_bytes(data)


def shuffled_records(file: Path, chance: random.Random) -> None:
    data, size = file.read_bytes(), chance.choice(SIZES)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    chance.shuffle(parts)
    file.write_bytes(b"".join(parts))


def repeated_records(file: Path, chance: random.Random) -> None:
    data, size = file.read_bytes(), chance.choice(SIZES)
    at, to = (chance.randrange(len(data) // size + 1) * size for _ in range(2))
    file.write_bytes(data[:to] + data[at : at + size * chance.randrange(1, 20)] * chance.randrange(1, 4) + data[to:])


_BYTES: tuple[Mutator, ...] = (
    *(flipped_bytes, flipped_bytes, spliced_bytes, truncated, inserted_bytes, removed_bytes, filled_bytes),
    *(extreme_words, extreme_words, shifted_words, shuffled_records, repeated_records),
)


# JSON


def _load(file: Path) -> Any:
    return json.loads(file.read_text(errors="surrogateescape"))


def _dump(file: Path, document: Any) -> None:
    """With the tokens that were put in as they are, and keys that stand twice."""
    text = json.dumps(document)
    if "@@token" in text:
        for number, token in enumerate(TOKENS):
            text = text.replace(f'"@@token{number}@@"', token)
    file.write_text(text.replace('"@@again@@', '"'), errors="surrogatepass")


def _token(chance: random.Random) -> str:
    return f"@@token{chance.randrange(len(TOKENS))}@@"


def _place(document: Any, chance: random.Random) -> tuple[Any, Any]:
    """A container somewhere in the document and a key of it."""
    holder, key = document, _key(document, chance)
    while isinstance(holder[key], (dict, list)) and holder[key] and chance.random() < 0.85:
        holder = holder[key]
        key = _key(holder, chance)
    return holder, key


def _key(holder: Any, chance: random.Random) -> Any:
    return chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))


def _changed(value: Any, chance: random.Random) -> Any:
    """Another value: an extreme, or one near the old."""
    if chance.random() < 0.6:
        return _token(chance)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if isinstance(value, str) and value and chance.random() < 0.7:
            at = chance.randrange(len(value))
            return chance.choice((value[:at], value[at:], value + value, value[:at] + chance.choice(WORDS) + value[at:], value.upper()))
        return chance.choice((str(value), [value], {"": value}, None))
    with contextlib.suppress(OverflowError):
        near = (-value, value + 1, value - 1, value * 1000, value / 1000, str(value), float(value), int(value), value * 2**20, [value])
        return chance.choice(near)
    return None


def json_values(file: Path, chance: random.Random) -> None:
    """Values anywhere: replaced, removed, moved, under a key twice."""
    document = _load(file)
    for _ in range(chance.choice((1, 1, 2, 4, 12))):
        holder, key = _place(document, chance)
        kind = chance.randrange(10)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[f"@@again@@{key}"] = chance.choice((_token(chance), holder[key]))
        elif kind == 2:
            other, place = _place(document, chance)
            holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(holder, dict):
            holder[chance.choice((*WORDS, *map(str, holder)))] = holder.pop(key)
        else:
            holder[key] = _changed(holder[key], chance)
    _dump(file, document)


def json_fields(file: Path, chance: random.Random) -> None:
    """One key of all objects of a list, or of some: replaced, removed, renamed."""
    document = _load(file)
    for _ in range(chance.choice((1, 1, 3))):
        lists = [found for found in _lists(document) if any(isinstance(item, dict) for item in found)]
        items = [item for item in chance.choice(lists) if isinstance(item, dict) and item]
        if nested := [value for item in items for value in item.values() if isinstance(value, dict) and value and chance.random() < 0.3]:
            items = nested
        key, kind, value = chance.choice(list(chance.choice(items))), chance.randrange(5), _token(chance)
        share = chance.choice((1.0, 1.0, 0.5, 0.1))
        for item in items:
            if key in item and chance.random() < share:
                if kind == 0:
                    del item[key]
                elif kind == 1:
                    item[f"{key}_"] = item.pop(key)
                else:
                    item[key] = value if kind == 2 else _changed(item[key], chance)
    _dump(file, document)


def json_lists(file: Path, chance: random.Random) -> None:
    """A list: shuffled, reversed, cut, doubled, emptied, with an item of another kind, or a copy of one with one change."""
    document = _load(file)
    found = chance.choice([found for found in _lists(document) if found])
    kind = chance.randrange(8)
    if kind == 0:
        chance.shuffle(found)
    elif kind == 1:
        found.reverse()
    elif kind == 2:
        del found[chance.randrange(len(found)) :]
    elif kind == 3:
        found.extend(found[: chance.randrange(1, len(found) + 1)])
    elif kind == 4:
        del found[: chance.randrange(1, len(found) + 1)]
    elif kind == 5:
        found.insert(chance.randrange(len(found) + 1), _token(chance))
    elif kind == 6:
        item = json.loads(json.dumps(chance.choice(found)))
        if isinstance(item, dict) and item:
            key = chance.choice(list(item))
            item[key] = _changed(item[key], chance)
        found.insert(chance.randrange(len(found) + 1), item)
    else:
        for _ in range(chance.randrange(1, 9)):
            one, other = chance.randrange(len(found)), chance.randrange(len(found))
            found[one], found[other] = found[other], found[one]
    _dump(file, document)


def _lists(value: Any, depth: int = 0) -> list[Any]:
    found: list[Any] = []
    if isinstance(value, list):
        found.append(value)
    if depth < 6 and isinstance(value, (dict, list)):
        for inner in list(value.values() if isinstance(value, dict) else value)[:400]:
            if isinstance(inner, (dict, list)):
                found += _lists(inner, depth + 1)
    return found


def json_text(file: Path, chance: random.Random) -> None:
    """The text: a token in the place of a number, brackets lost, another encoding, the whole in a list."""
    data = bytearray(file.read_bytes())
    kind = chance.randrange(6)
    if kind == 0:
        data[:] = chance.choice(
            (b"[" + data + b"]", b'{"traceEvents":' + data + b"}", data + data, data + b"\n" + data, b"null", b"[]", b"{}")
        )
    elif kind == 1:
        text = data.decode(errors="replace")
        data[:] = chance.choice((text.encode("utf-16"), b"\xef\xbb\xbf" + data, text.encode("utf-32"), text.replace('"', "'").encode()))
    elif kind == 2:
        data[:] = bytes(data).replace(b",", chance.choice((b",,", b" ,\n", b";", b",\0")), chance.choice((1, 5, -1)))
    else:
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data) + 1)
            noise = (b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\xff\xfe", b"\0", b"//", b"\\u12", b"1e", b"-", b"[[", b"\r")
            data[at : at + chance.choice((0, 0, 1, 20))] = chance.choice(noise)
    file.write_bytes(data)


# CSV and other text


def _rows(file: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(file.read_text(errors="surrogateescape").replace("\0", ""), newline="")))


def _write_rows(file: Path, rows: list[list[str]], delimiter: str = ",") -> None:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    file.write_text(out.getvalue(), errors="surrogatepass")


def csv_cells(file: Path, chance: random.Random) -> None:
    rows = _rows(file)
    for _ in range(chance.choice((1, 2, 8))):
        row = chance.choice(rows[1:] or rows)
        kind = chance.randrange(8)
        at = chance.randrange(len(row))
        if kind < 4:
            row[at] = chance.choice(WORDS)
        elif kind == 4:
            del row[at]
        elif kind == 5:
            row.insert(at, chance.choice(WORDS))
        elif kind == 6:
            row[at] = chance.choice(row)
        else:
            rows.insert(chance.randrange(len(rows) + 1), list(chance.choice(rows)))
    _write_rows(file, rows)


def csv_columns(file: Path, chance: random.Random) -> None:
    """A column: removed, renamed, twice, of one value; the header lost; rows out of order."""
    rows = _rows(file)
    at, kind, word = chance.randrange(len(rows[0])), chance.randrange(8), chance.choice(WORDS)
    if kind == 0:
        rows = [row[:at] + row[at + 1 :] for row in rows]
    elif kind == 1:
        rows[0][at] = chance.choice((word, chance.choice(rows[0]), rows[0][at].upper(), rows[0][at] + " "))
    elif kind == 2:
        rows = [[*row, *row[at : at + 1]] for row in rows]
    elif kind == 3:
        del rows[0]
    elif kind == 4:
        body = rows[1:]
        chance.shuffle(body)
        rows[1:] = body
    elif kind == 5:
        del rows[chance.randrange(1, len(rows) + 1) :]
    else:
        for row in rows[1:]:
            if at < len(row) and chance.random() < 0.7:
                row[at] = word if kind == 6 else chance.choice(WORDS)
    _write_rows(file, rows)


def csv_text(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    text = data.decode(errors="replace")
    changed = (
        text.encode("utf-16"),
        b"\xef\xbb\xbf" + data,
        text.encode("gbk", "replace"),
        data.replace(b",", b";"),
        data.replace(b",", b"\t"),
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data.replace(b"\n", b"\n\n"),
        data.replace(b",", b',"', 1),
        data + b'"',
        data + b"\0" * 50,
        data.rstrip(b"\n") + b",,,,,,",
        data.split(b"\n")[0],
        b"",
        b"\n" + data,
    )
    file.write_bytes(chance.choice(changed))


def text_numbers(file: Path, chance: random.Random) -> None:
    """Numbers of a text made others, or none."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 2, 8))):
        at = chance.randrange(len(data))
        at = next((place for place in range(at, len(data)) if 48 <= data[place] < 58), None) or 0
        end = next((place for place in range(at, len(data)) if not 48 <= data[place] < 58), len(data))
        data[at:end] = chance.choice((*WORDS, *map(str, NUMBERS))).encode()
    file.write_bytes(data)


def text_lines(file: Path, chance: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    at, kind = chance.randrange(len(lines)), chance.randrange(5)
    if kind == 0:
        chance.shuffle(lines)
    elif kind == 1:
        lines.insert(at, chance.choice(lines) * chance.choice((1, 3, 50)))
    elif kind == 2:
        del lines[at : at + chance.choice((1, 5, 100))]
    elif kind == 3:
        lines[at] = lines[at].rstrip(b"\n")
    else:
        lines[at] = lines[at][: chance.randrange(len(lines[at]))] + b"\n"
    file.write_bytes(b"".join(lines))


def text_noise(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    noise = (b"\xff\xfe", b"\0", b":", b"_", b'"', b"{", b"-1", b"\n", b"nan", b"1e400", b"[[", b",", b";", b"\r", b"\xc2\xb2", b" ", b"\t")
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.choice((0, 0, 1, 30))] = chance.choice(noise)
    file.write_bytes(data)


# SQLite

_CELLS = (
    *(
        None,
        -1,
        0,
        1,
        1.5,
        1e308,
        -1e308,
        float("inf"),
        "",
        "x",
        "9" * 30,
        b"\xff\xfe",
        b"",
        2**31,
        2**32,
        2**40,
        2**62,
        2**63 - 1,
        -(2**63),
    ),
    *(
        "a\nb",
        "NaN",
        "1e400",
        "[1, 2",
        "{",
        "\ud7ff",
        "x" * 3000,
        "a\0b",
        "1700000000000000000",
        1_700_000_000_000_000_000.0,
        "1;2;3",
        ";;",
    ),
)


def sqlite_cells(file: Path, chance: random.Random) -> None:
    """SQLite takes anything in any column: values of other types and sizes, in all rows or some."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = _tables(database)
        for _ in range(chance.choice((1, 1, 2, 6))):
            table = chance.choice(names)
            column = chance.choice(_columns(database, table))
            some = chance.choice(("", f" where rowid % {chance.randrange(1, 30)} = 0", " where rowid = (select min(rowid) from t)"))
            some = some.replace(" from t)", f' from "{table}")')
            value: Any = chance.choice(_CELLS)
            with contextlib.suppress(sqlite3.Error):
                if chance.random() < 0.3:
                    change = chance.choice(
                        ("-{}", "{} + 1", "{} * 1000", "cast({} as text)", "cast({} as real)", "{} - 4611686018427387904")
                    )
                    database.execute(f'update "{table}" set "{column}" = {change.format(f"{chr(34)}{column}{chr(34)}")}{some}')
                else:
                    database.execute(f'update "{table}" set "{column}" = ?{some}', [value])
        database.commit()


def sqlite_schema(file: Path, chance: random.Random) -> None:
    """Tables and columns: emptied, dropped, renamed, doubled, a view in the place of a table."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = _tables(database)
        for _ in range(chance.choice((1, 1, 2, 4))):
            table, other = chance.choice(names), chance.choice(names)
            column = chance.choice(_columns(database, table))
            kind = chance.randrange(10) if chance.random() < 0.99 else 10
            with contextlib.suppress(sqlite3.Error, IndexError):
                if kind == 0:
                    database.execute(f'delete from "{table}"')
                elif kind == 1:
                    database.execute(f'delete from "{table}" where rowid % {chance.randrange(1, 9)} = 0')
                elif kind == 2:
                    database.execute(
                        f'alter table "{table}" rename column "{column}" to "{chance.choice(("other", "rowid", column.upper()))}"'
                    )
                elif kind == 3:
                    database.execute(f'alter table "{table}" drop column "{column}"')
                elif kind == 4:
                    database.execute(f'insert into "{table}" select * from "{table}"')
                elif kind == 5:
                    database.execute(f'drop table "{table}"')
                elif kind == 6:
                    database.execute(f'alter table "{table}" rename to "{chance.choice((table + "_", "other"))}"')
                elif kind == 7:
                    database.execute(f'alter table "{table}" add column "{chance.choice(("id", "name", "extra"))}"')
                else:
                    columns = _columns(database, table)
                    database.execute(f'alter table "{table}" rename to "before {table}"')
                    source = {8: f'select * from "before {table}"', 9: f'select * from "{other}"'}.get(kind)
                    endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select " + ", ".join(
                        f'x as "{name}"' for name in columns
                    )
                    database.execute(f'create view "{table}" as {source or endless + " from c"}')
        database.commit()


def sqlite_pages(file: Path, chance: random.Random) -> None:
    """Bytes of one page: its header, its cell pointers, its content."""
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[16:18], "big") or 4096
    for _ in range(chance.choice((1, 1, 3, 20))):
        page = chance.randrange(max(len(data) // size, 1)) * size
        at = page + chance.choice((chance.randrange(12), chance.randrange(100), chance.randrange(size)))
        if at < len(data):
            data[at] = chance.choice((0, 0xFF, 0x7F, 0x80, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
    file.write_bytes(data)


def _tables(database: sqlite3.Connection) -> list[str]:
    return sorted(name for (name,) in database.execute("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"))


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'pragma table_info("{table}")')]


# Columns: npz, npy and Parquet


def _extremes(array: np.ndarray[Any, Any], chance: random.Random) -> np.ndarray[Any, Any]:
    """The array with extreme numbers at some places, or everywhere."""
    array = np.array(array)
    if array.size and array.dtype.kind in "iufb":
        flat = array.reshape(-1)
        places = [slice(None)] if chance.random() < 0.15 else [chance.randrange(array.size) for _ in range(chance.choice((1, 2, 10)))]
        for place in places:
            with contextlib.suppress(OverflowError, ValueError), np.errstate(all="ignore"):
                if array.dtype.kind == "f":
                    flat[place] = chance.choice((*FLOATS, *NUMBERS))
                elif array.dtype.kind == "b":
                    flat[place] = chance.random() < 0.5
                else:
                    limits = np.iinfo(array.dtype)
                    near = int(flat[0]) + chance.choice((-1, 1, 1000, -1000, 2**30))
                    flat[place] = chance.choice((limits.min, limits.max, 0, 1, chance.choice(NUMBERS), near))
    return array


def _reshaped(array: np.ndarray[Any, Any], chance: random.Random) -> np.ndarray[Any, Any]:
    """The array as another: of another type, length, order or number of dimensions."""
    types = ("<i1", "<i2", "<i4", "<i8", "<u8", "<f4", "<f8", ">i8", "?", "<U5", "S3", "<c16", "<M8[ns]", "<f2")
    kind = chance.randrange(8)
    with contextlib.suppress(ValueError, TypeError, OverflowError), np.errstate(all="ignore"):
        if kind < 2:
            return array.astype(chance.choice(types))
        if kind == 2:
            return array[: chance.randrange(array.size + 1)]
        if kind == 3:
            return np.concatenate([array, array])
        if kind == 4:
            return array[::-1]
        if kind == 5:
            return array.reshape(chance.choice(((1, -1), (-1, 1), (-1, 1, 1))))
        if kind == 6:
            return np.array(array.reshape(-1)[0])
        return array[:0]
    return array


def _arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(file, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def npz_values(file: Path, chance: random.Random) -> None:
    arrays = _arrays(file)
    for _ in range(chance.choice((1, 1, 2, 4))):
        name = chance.choice(list(arrays))
        arrays[name] = _extremes(arrays[name], chance)
    _save(file, arrays)


def npz_arrays(file: Path, chance: random.Random) -> None:
    arrays = _arrays(file)
    for _ in range(chance.choice((1, 1, 2))):
        name, other, kind = chance.choice(list(arrays)), chance.choice(list(arrays)), chance.randrange(8)
        if kind == 0:
            del arrays[name]
        elif kind == 1:
            arrays[name] = arrays[other]
        elif kind == 2:
            arrays[chance.choice((name.upper(), f"{name}.x", "x", name.split(".")[0]))] = arrays.pop(name)
        elif kind == 3:
            arrays = {key: array[:0] for key, array in arrays.items()}
        else:
            arrays[name] = _reshaped(arrays[name], chance)
    _save(file, arrays)


def _save(file: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    with file.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def npz_headers(file: Path, chance: random.Random) -> None:
    """Bytes of one array's file, in an archive whose checksums are right."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(list(members))
    members[name] = _npy_damaged(members[name], chance)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, data in members.items():
            archive.writestr(zipfile.ZipInfo(key), data)
    file.write_bytes(out.getvalue())


def _npy_damaged(data: bytes, chance: random.Random) -> bytes:
    shapes = (b"(1000000000000,)", b"(-1,)", b"(3, 1000000)", b"()", b"(0,)", b"(9999999999999999999999,)", b"(None,)", b"(1,) * 5", b"7")
    kind = chance.randrange(4)
    if kind == 0:
        head, found, rest = data.partition(b"'shape': ")
        return head + found + (chance.choice(shapes) + rest[rest.find(b")") + 1 :] if found else b"")
    if kind == 1:
        types = (b"'|O'", b"'<i1'", b"'<f8'", b"'<U9'", b"[('a', '<i8')]", b"'V16'", b"'x'", b"'<M8[ns]'")
        head, found, rest = data.partition(b"'descr': ")
        return head + found + (chance.choice(types) + rest[rest.find(b",") :] if found else b"")
    if kind == 2:
        return data[: chance.randrange(len(data) + 1)]
    changed = bytearray(data)
    changed[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(changed)


def npy_values(file: Path, chance: random.Random) -> None:
    array = np.load(file, allow_pickle=False)
    with file.open("wb") as out:
        np.save(out, _extremes(array, chance) if chance.random() < 0.6 else _reshaped(array, chance))


def npy_header(file: Path, chance: random.Random) -> None:
    file.write_bytes(_npy_damaged(file.read_bytes(), chance))


def parquet_values(file: Path, chance: random.Random) -> None:
    frame = pl.read_parquet(file, memory_map=False)
    for _ in range(chance.choice((1, 1, 3))):
        name = chance.choice(frame.columns)
        column = frame[name]
        if column.dtype.is_numeric() and column.len() and chance.random() < 0.8:
            changed = pl.Series(name, _extremes(column.fill_null(0).to_numpy(), chance)).cast(column.dtype, strict=False)
            frame = frame.with_columns(
                changed if chance.random() < 0.7 else pl.when(column.is_null()).then(None).otherwise(changed).alias(name)
            )
        elif chance.random() < 0.3:
            frame = frame.with_columns(pl.lit(None, column.dtype).alias(name))
        elif chance.random() < 0.5:
            frame = frame.sample(fraction=1, shuffle=True, seed=chance.randrange(2**32))
        else:
            text = pl.lit(chance.choice(WORDS), pl.String)
            frame = frame.with_columns(text.cast(column.dtype, strict=False).alias(name))
    frame.write_parquet(file, compression="zstd", compression_level=1)


def parquet_columns(file: Path, chance: random.Random) -> None:
    """Columns: dropped, renamed, of another type, more of them, other rows."""
    frame = pl.read_parquet(file, memory_map=False)
    types = (pl.String, pl.Float64, pl.Int8, pl.UInt64, pl.Boolean, pl.Null, pl.Categorical, pl.Binary, pl.Datetime, pl.Int128)
    name, kind = chance.choice(frame.columns), chance.randrange(10)
    if kind == 0:
        frame = frame.drop(name)
    elif kind == 1:
        frame = frame.rename({name: chance.choice((name.upper(), "other", ""))})
    elif kind < 5:
        frame = frame.with_columns(pl.col(name).cast(chance.choice(types), strict=False))
    elif kind == 5:
        frame = frame.with_columns(pl.concat_list(name).alias(name) if chance.random() < 0.5 else pl.struct(name).alias(name))
    elif kind == 6:
        frame = frame.clear()
    elif kind == 7:
        frame = pl.concat([frame, frame])
    elif kind == 8:
        frame = frame.select(chance.sample(frame.columns, len(frame.columns))).with_columns(extra=pl.lit(1))
    else:
        frame = frame.head(chance.randrange(frame.height + 1))
    frame.write_parquet(file, compression="zstd", compression_level=1)


# protobuf


def protobuf(file: Path, chance: random.Random) -> None:
    """Fields of messages, at any depth: replaced, removed, repeated, of another number or wire type; the lengths around them stay right."""
    data = file.read_bytes()
    for _ in range(chance.choice((1, 1, 2, 6))):
        data = _message_changed(data, chance, 0)
    file.write_bytes(data)


def protobuf_values(file: Path, chance: random.Random) -> None:
    """Many numbers at once."""
    data = file.read_bytes()
    for _ in range(40):
        data = _message_changed(data, chance, 0, numbers=True)
    file.write_bytes(data)


def _varint(value: int) -> bytes:
    out = bytearray()
    value %= 1 << 64
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("no varint")


def _fields(data: bytes) -> list[tuple[int, int, int, int]]:
    """Of a message: number, wire type, where the value begins, and where it ends. ValueError or IndexError for what is none."""
    at, found = 0, []
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise ValueError("no field")
        if wire == 0:
            end = _read_varint(data, at)[1]
        elif wire == 1:
            end = at + 8
        elif wire == 5:
            end = at + 4
        elif wire == 2:
            length, at = _read_varint(data, at)
            end = at + length
        else:
            raise ValueError("no wire type")
        if end > len(data):
            raise ValueError("too long")
        found.append((number, wire, at, end))
        at = end
    return found


def _message_changed(data: bytes, chance: random.Random, depth: int, numbers: bool = False) -> bytes:
    fields = _fields(data)
    starts = [0, *(end for *_, end in fields[:-1])]
    at = chance.randrange(len(fields))
    number, wire, low, high = fields[at]
    value = data[low:high]
    if wire == 2 and value and depth < 8 and chance.random() < 0.9:
        with contextlib.suppress(ValueError, IndexError):
            value = _message_changed(value, chance, depth + 1, numbers)
            return data[: starts[at]] + _field(number, 2, value) + data[high:]
    kind = 0 if numbers else chance.randrange(7)
    whole = data[starts[at] : high]
    if kind <= 1:
        if wire == 0:
            old = _read_varint(value, 0)[0]
            value = _varint(chance.choice((*NUMBERS, old + 1, old - 1, -old, old * 1000, old + 2**40)))
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            double = struct.pack("<d", chance.choice(FLOATS))[:size]
            value = chance.choice((chance.randbytes(size), (chance.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little"), double))
        elif not numbers:
            value = chance.choice(
                (
                    b"",
                    chance.randbytes(10),
                    value + value,
                    value[: len(value) // 2],
                    b"\xff\xfe",
                    b"x" * 5000,
                    chance.choice(WORDS).encode(),
                )
            )
        new = _field(number, wire, value)
    elif kind == 2:
        new = b""
    elif kind == 3:
        new = whole * chance.choice((2, 2, 50))
    elif kind == 4:
        new = _field(chance.choice((1, 2, 3, 4, 5, 6, 7, 8, 99, 2**28)), wire, value)
    elif kind == 5:
        number, wire, low, other = chance.choice(fields)
        new = _field(number, wire, data[low:other])
    else:
        new = _varint(number << 3 | chance.randrange(8)) + value
    return data[: starts[at]] + new + data[high:]


def _field(number: int, wire: int, value: bytes) -> bytes:
    return _varint(number << 3 | wire) + (_varint(len(value)) if wire == 2 else b"") + value


# Files of a folder


def files_of(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.endswith((".done", ".complete"))]


def _any_file(root: Path, chance: random.Random) -> Path:
    """Those of `data`, where there are such, are what the others are about."""
    files = files_of(root)
    return chance.choice([path for path in files if path.parent.name == "data"] or files)


def _header_file(root: Path, chance: random.Random) -> Path:
    """One that describes the others."""
    names = ("info.json", "sample.json", "start_info", "end_info", "host_start.log", "dev_start.log", "profiler_info", "profiler_metadata")
    files = [path for path in files_of(root) if path.name.startswith(names)]
    return chance.choice(files) if files else _any_file(root, chance)


def emptied_files(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        _any_file(root, chance).write_bytes(b"")


def missing_files(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        _any_file(root, chance).unlink()


def missing_headers(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        _header_file(root, chance).unlink()


def swapped_files(root: Path, chance: random.Random) -> None:
    """Each of two has what the other should."""
    one, other = _any_file(root, chance), _any_file(root, chance)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def renamed_file(root: Path, chance: random.Random) -> None:
    """Slices out of order, twice, or numbered beyond belief; one file in the place of another; a name that is no text."""
    file = _any_file(root, chance)
    name, kind = file.name, chance.randrange(5)
    if kind == 0:
        file.rename(file.with_name(name.replace("slice_0", f"slice_{chance.choice((1, 99, 10**30))}")))
    elif kind == 1:
        shutil.copy(file, file.with_name(name.replace("slice_0", "slice_1") + ("" if "slice_0" in name else ".slice_1")))
    elif kind == 2:
        shutil.copy(file, _any_file(root, chance))
    elif kind == 3:
        file.rename(file.with_name(name.replace("0", chance.choice(("7", "10", "4294967296", "9" * 40, "²", "x")))))
    else:
        shutil.copy(
            os.fsencode(file),
            os.fsencode(file.parent) + b"/" + chance.choice((b"\xff\xfe.data", b"a\nb.json", b"\xff" + os.fsencode(name))),
        )


def replaced_file(root: Path, chance: random.Random) -> None:
    """In place of a file: a folder, a pipe, a link to nothing, to itself, to a folder above, to a file elsewhere."""
    file = _any_file(root, chance)
    data = file.read_bytes()
    file.unlink()
    kind = chance.randrange(6)
    if kind == 0:
        file.mkdir()
    elif kind == 1:
        os.mkfifo(file)
    elif kind == 5:
        outside = root.parent / "outside"
        outside.write_bytes(data)
        file.symlink_to(outside)
    else:
        file.symlink_to((root / "nowhere", file, root)[kind - 2])


def blocked_outputs(root: Path, chance: random.Random) -> None:
    """Where something is to be written there is something else already."""
    for name in ("mindstudio_profiler_output", "analyze", "sqlite", "host/sqlite", "device_0/sqlite"):
        place = root / name
        if place.parent.is_dir() and not place.exists() and chance.random() < 0.5:
            if chance.random() < 0.5:
                place.write_bytes(b"no folder")
            else:
                place.mkdir()
                (place / "task.db").write_bytes(chance.randbytes(100))


_FILES: tuple[Mutator, ...] = (emptied_files, missing_files, missing_headers, swapped_files, renamed_file, replaced_file, blocked_outputs)
