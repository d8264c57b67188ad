"""What may befall a folder of recorded files, and how long to wait for what is done with it.

Each damage takes a folder and a source of chance. What it does to a file that is not there is nothing.
"""

import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

Damage = Callable[[Path, random.Random], None]
# Of its own time, and of the clock on the wall: a busy machine may take a thousand times as long as an idle one.
BUSY_S, WAITS_S = 120, 1800
ROOM_BYTES = 6 << 30  # of addresses, beside what the process has: no damaged number may ask for more
STRANGE: tuple[Any, ...] = (
    *(None, -1, 0, 1e308, -1e308, float("nan"), float("inf"), "", "x", [], {}, [[]], [{}], 2**31, 2**63, 2**64, 2**70, -(2**70)),
    *("1/0", "NaN", "inf", "1e400", "9" * 30, "9" * 5000, "-5", "0x10", "²", True, ["a"], {"a": []}, "a\nb", "\ud800", "x" * 5000, "../.."),
)
NUMBERS = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2)
SIZES = (8, 16, 20, 24, 32, 40, 64, 128, 256)  # of records, and of what they are made of


def files_of(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.endswith((".done", ".complete"))]


def any_file(root: Path, chance: random.Random) -> Path:
    """Those of `data`, where there are such, are what the others are about."""
    files = files_of(root)
    return chance.choice([path for path in files if path.parent.name == "data"] or files)


def small_file(root: Path, chance: random.Random) -> Path:
    """One that describes the others."""
    names = ("info.json", "sample.json", "start_info", "end_info", "host_start.log", "dev_start.log", "profiler_info", "profiler_metadata")
    files = [path for path in files_of(root) if path.name.startswith(names)]
    return chance.choice(files) if files else any_file(root, chance)


# Bytes


def truncated(root: Path, chance: random.Random) -> None:
    """Anywhere, at the end of a record, or beside it."""
    file = any_file(root, chance)
    data, size = file.read_bytes(), chance.choice((1, *SIZES))
    end = chance.randrange(len(data) // size + 1) * size + chance.choice((0, 0, 1, -1))
    file.write_bytes(data[: max(0, end)])


def junk_head(root: Path, chance: random.Random) -> None:
    file = any_file(root, chance)
    file.write_bytes(chance.randbytes(chance.randrange(1, 100)) + file.read_bytes())


def wrong_magic(root: Path, chance: random.Random) -> None:
    file = any_file(root, chance)
    data = bytearray(file.read_bytes())
    size = chance.choice(SIZES)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) // size + 1) * size + chance.choice((0, 2))
        data[at : at + 2] = chance.randbytes(2)
    file.write_bytes(data)


def lost_records(root: Path, chance: random.Random) -> None:
    file = any_file(root, chance)
    data, size = file.read_bytes(), chance.choice(SIZES)
    at = chance.randrange(len(data) // size + 1) * size
    file.write_bytes(data[:at] + data[at + size * chance.randrange(1, 9) :])


def repeated(root: Path, chance: random.Random) -> None:
    """A block of records once more, where it was or elsewhere."""
    file = any_file(root, chance)
    data, size = file.read_bytes(), chance.choice(SIZES)
    at = chance.randrange(len(data) // size + 1) * size
    to = chance.choice((at, chance.randrange(len(data) // size + 1) * size))
    file.write_bytes(data[:to] + data[at : at + size * chance.randrange(1, 20)] * chance.randrange(1, 4) + data[to:])


def reordered(root: Path, chance: random.Random) -> None:
    file = any_file(root, chance)
    data, size = file.read_bytes(), chance.choice(SIZES)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    chance.shuffle(parts)
    file.write_bytes(b"".join(parts))


def filled(root: Path, chance: random.Random) -> None:
    """A stretch of one byte, as a disk leaves what it never wrote."""
    file = any_file(root, chance)
    data = bytearray(file.read_bytes())
    at = chance.choice((0, chance.randrange(len(data) + 1)))
    length = chance.choice((len(data) - at, chance.randrange(1, 600)))
    data[at : at + length] = bytes([chance.choice((0, 0, 0xFF, 0x20))]) * min(length, len(data) - at)
    file.write_bytes(data)


def bits(root: Path, chance: random.Random) -> None:
    file = any_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 40) if data else 0):
        at = chance.randrange(len(data))
        data[at] = chance.choice((0, 0xFF, 0x7F, 0x80, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
    file.write_bytes(data)


def far_numbers(root: Path, chance: random.Random) -> None:
    """The largest and the strangest numbers where numbers are, of two, four or eight bytes."""
    file = any_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 8) if len(data) >= 8 else 0):
        form, size = chance.choice((("<H", 2), ("<I", 4), ("<Q", 8), ("<Q", 8)))
        at = chance.randrange(len(data) // size) * size
        data[at : at + size] = struct.pack(form, chance.choice(NUMBERS) % (1 << 8 * size))
    file.write_bytes(data)


def late(root: Path, chance: random.Random) -> None:
    """A number that is hours, days or years too large: as a time, it is one that could be."""
    file = any_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 4) if len(data) >= 16 else 0):
        at = chance.randrange(len(data) // 8 - 1) * 8
        (value,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, (value + (1 << chance.randrange(20, 56))) % 2**64)
    file.write_bytes(data)


# Files


def zero_length(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        any_file(root, chance).write_bytes(b"")


def missing(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        any_file(root, chance).unlink()


def missing_small(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        small_file(root, chance).unlink()


def swapped(root: Path, chance: random.Random) -> None:
    """Each of two has what the other should."""
    one, other = any_file(root, chance), any_file(root, chance)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def other_names(root: Path, chance: random.Random) -> None:
    """Slices out of order, twice, or numbered beyond belief; one file in the place of another; a name that is no text."""
    file = any_file(root, chance)
    name, kind = file.name, chance.randrange(5)
    if kind == 0:
        file.rename(file.with_name(name.replace("slice_0", f"slice_{chance.choice((1, 99, 10**30))}")))
    elif kind == 1:
        shutil.copy(file, file.with_name(name.replace("slice_0", "slice_1") + ("" if "slice_0" in name else ".slice_1")))
    elif kind == 2:
        shutil.copy(file, any_file(root, chance))
    elif kind == 3:
        file.rename(file.with_name(name.replace("0", chance.choice(("7", "10", "4294967296", "9" * 40, "²", "x")))))
    else:
        shutil.copy(file, os.fsencode(file.parent) + b"/" + chance.choice((b"\xff\xfe.data", b"a\nb.json", b"\xff" + os.fsencode(name))))


def no_file(root: Path, chance: random.Random) -> None:
    """In place of a file: a folder, a pipe, a link to nothing, to itself, to a folder above, to a file elsewhere."""
    file = any_file(root, chance)
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


def in_the_way(root: Path, chance: random.Random) -> None:
    """Where something is to be written there is something else already."""
    for name in ("mindstudio_profiler_output", "analyze", "sqlite", "host/sqlite", "device_0/sqlite"):
        place = root / name
        if place.parent.is_dir() and not place.exists() and chance.random() < 0.5:
            if chance.random() < 0.5:
                place.write_bytes(b"no folder")
            else:
                place.mkdir()
                (place / "task.db").write_bytes(chance.randbytes(100))


# Text


def garbled(root: Path, chance: random.Random) -> None:
    """Bytes put into text: no UTF-8, no line, no number."""
    texts = [path for path in files_of(root) if b"\0" not in path.read_bytes()[:200]]
    file = chance.choice(texts)
    data = bytearray(file.read_bytes())
    words = (
        b"\xff\xfe",
        b"\0",
        b":",
        b"_",
        b'"',
        b"{",
        b"9" * 23,
        b"-1",
        b"\n",
        b"nan",
        b"1e400",
        b"[[",
        b",",
        b"\r",
        b"\xc2\xb2",
        b"\\ud800",
    )
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.choice((0, 0, 1, 30))] = chance.choice(words)
    file.write_bytes(data)


def strange_numbers(root: Path, chance: random.Random) -> None:
    """Numbers of a text made others, or none."""
    file = chance.choice([path for path in files_of(root) if b"\0" not in path.read_bytes()[:200]])
    data = bytearray(file.read_bytes())
    words = (
        b"N/A",
        b"",
        b"-1",
        b"9" * 20,
        b"9" * 40,
        b"nan",
        b"inf",
        b"1e308",
        b"-0",
        b"null",
        b"[]",
        b"{}",
        b'"x"',
        b"true",
        b"1.5",
        b"\xff",
    )
    for _ in range(chance.randrange(1, 12)):
        digits = [at for at in range(chance.randrange(len(data) or 1), len(data)) if 48 <= data[at] < 58]
        if digits:
            end = next((at for at in range(digits[0], len(data)) if not 48 <= data[at] < 58), len(data))
            data[digits[0] : end] = chance.choice(words)
    file.write_bytes(data)


def strange_json(root: Path, chance: random.Random) -> None:
    """Values anywhere in a document are of other kinds, or of other sizes, or gone."""
    documents = [path for path in files_of(root) if path.read_bytes()[:1] in (b"{", b"[")]
    file = small_file(root, chance) if chance.random() < 0.4 or not documents else chance.choice(documents)
    try:
        found = json.loads(file.read_text())
    except ValueError:
        found = {}
    for _ in range(chance.randrange(1, 9)):
        places = list(_places(found, chance))
        if not places:
            found = {}
            break
        holder, key = chance.choice(places)
        if chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = chance.choice(STRANGE)
    file.write_text(json.dumps(chance.choice((*[found] * 12, [found], 5, None))))


def _places(value: Any, chance: random.Random, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Where values are: of long lists a few."""
    keys = (
        list(value) if isinstance(value, dict) else chance.sample(range(len(value)), min(len(value), 12)) if isinstance(value, list) else []
    )
    for key in keys:
        yield value, key
        if depth < 8:
            yield from _places(value[key], chance, depth + 1)


def strange_cells(root: Path, chance: random.Random) -> None:
    """Cells, columns and rows of a table: others, gone, twice, out of order."""
    file = chance.choice([path for path in files_of(root) if path.suffix == ".csv"])
    rows = [line.split(",") for line in file.read_text(errors="replace").splitlines()]
    words = ("", "N/A", "nan", "inf", "-1", "1e308", "9" * 30, "x", '"', "a\tb", "²", "0.0.1", "\ufeff")
    for _ in range(chance.randrange(1, 9)):
        row, place = chance.choice(rows), chance.randrange(len(rows[0]))
        kind = chance.randrange(6)
        if kind < 3 and place < len(row):
            row[place] = chance.choice(words)
        elif kind == 3:
            row[place : place + 1] = []
        elif kind == 4:
            rows[0][place : place + 1] = [chance.choice(rows[0])]
        else:
            rows.insert(chance.randrange(len(rows)), chance.choice(rows))
    file.write_text("\n".join(",".join(row) for row in rows))


def strange_database(root: Path, chance: random.Random) -> None:
    """SQLite takes anything in any column: values of other kinds, no rows, no table, no column, a view of itself."""
    file = chance.choice([path for path in files_of(root) if path.suffix == ".db"])
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        values = (None, -1, 0, 1, 1.5, 1e308, float("inf"), "", "x", "9" * 30, b"\xff\xfe", 2**31, 2**63 - 1, -(2**63), "a\nb", 2**40)
        for _ in range(chance.randrange(1, 9)):
            table = chance.choice(names)
            columns = [row[1] for row in database.execute(f'pragma table_info("{table}")')]
            kind = chance.randrange(8)
            with contextlib.suppress(sqlite3.Error, IndexError):
                if kind < 4:
                    some = "" if kind == 0 else f" where rowid % {chance.randrange(1, 50)} = 0"
                    database.execute(f'update "{table}" set "{chance.choice(columns)}" = ?{some}', [chance.choice(values)])
                elif kind == 4:
                    database.execute(f'delete from "{table}"')
                elif kind == 5:
                    database.execute(f'alter table "{table}" rename column "{chance.choice(columns)}" to "other"')
                elif kind == 6:
                    database.execute(f'insert into "{table}" select * from "{table}"')
                else:
                    database.execute(f'drop table "{table}"')
                    database.execute(f'create view "{table}" as select * from "{chance.choice(names)}"')
        database.commit()


BYTES: tuple[Damage, ...] = (
    *(truncated, truncated, junk_head, wrong_magic, lost_records, repeated, reordered, filled, bits, bits, far_numbers, far_numbers, late),
)
FILES: tuple[Damage, ...] = (zero_length, missing, missing_small, swapped, other_names, no_file, in_the_way)
TEXT: tuple[Damage, ...] = (garbled, strange_numbers, strange_json, strange_json)
TABLES: tuple[Damage, ...] = (strange_cells, strange_cells, strange_database, strange_database)


# Trying


def damaged(whole: Path, room: Path, damages: tuple[Damage, ...], chance: random.Random) -> tuple[Path, list[str]]:
    """A copy with one to three damages, and which."""
    folder = room / whole.name
    room.mkdir()
    (shutil.copytree if whole.is_dir() else shutil.copy)(whole, folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = []
    for damage in chance.sample(damages, chance.choice((1, 1, 2, 3))):
        # The damage before may have left nothing for this one.
        with contextlib.suppress(OSError, IndexError, ValueError, sqlite3.Error):
            damage(folder, chance)
            done.append(damage.__name__)
    return folder, done


class HangsError(Exception):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise HangsError


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Time and memory that no damage may exceed. What hangs where no signal is heard ends the process, and says where."""
    before = [signal.signal(number, _stop) for number in (signal.SIGALRM, signal.SIGPROF)]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    signal.setitimer(signal.ITIMER_PROF, BUSY_S)
    signal.alarm(WAITS_S)
    faulthandler.dump_traceback_later(2 * WAITS_S, exit=True)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip((signal.SIGALRM, signal.SIGPROF), before, strict=True):
            signal.signal(number, handler)


def tally(
    whole: list[list[Path]],
    damages: tuple[Damage, ...],
    tried: Callable[[Path, Path, random.Random], str],
    room: Path,
    monkeypatch: "pytest.MonkeyPatch",
    *,
    count: int,
    seed: int,
) -> dict[str, int]:
    """How often damage ended in what `tried` says of it. Any other end fails, and says how to have it again."""
    became: dict[str, int] = {}
    for number in range(count):
        chance = random.Random(f"{seed}.{number}")
        base = chance.choice(chance.choice(whole))
        own = room / str(number)
        folder, done = damaged(base, own, damages, chance)
        monkeypatch.setattr(tempfile, "tempdir", str(own))
        try:
            with bounded():
                end = tried(folder, own, chance)
        except BaseException as error:
            where = f"seed {seed}.{number} of {base.parent.name}/{base.name}: {done}"
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        became[end] = became.get(end, 0) + 1
        shutil.rmtree(own)
    print(became)
    return became
