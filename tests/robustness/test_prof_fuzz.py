"""Damaged PROF directories: what can be read is read, the rest is told in `problems` or refused in a line, and nothing hangs.

A sample of them belongs to the suite. STEPSCOPE_FUZZ=2000 tries as many, STEPSCOPE_FUZZ_SEED=7 others.
"""

import json
import os
import random
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from conftest import SHARED
from prof_directories import Directory, small_network
from stepscope import prof_folders
from stepscope.errors import StepscopeError
from stepscope.readers import Options, prof

COUNT = int(os.environ.get("STEPSCOPE_FUZZ", "48"))
SEED = int(os.environ.get("STEPSCOPE_FUZZ_SEED", "1"))
HANGS_AFTER_S = 120
ANALYSES = ("overview", "step_trace", "operators", "overlap", "communication", "links", "launches", "gaps", "roofline", "totals", "memory")
Damage = Callable[[Path, random.Random], None]


# Directories to damage


def older(root: Path) -> Path:
    """A chip of the older kind: HWTS logs, counters of 128 bytes, AI CPU operators."""
    made = small_network()
    tasks = made.files.pop("device_0/data/stars_soc.data.0.slice_0")
    made.files.pop("device_0/data/ffts_profile.data.0.slice_0")
    for number, record in enumerate(tasks):
        head, magic, stream, task, at = struct.unpack("<4HQ", record[:16])
        log = struct.pack("<BBHHHQI", (head & 1) | (number & 15) << 4, head >> 10 & 15, magic, 0, task, at, stream)
        made.put("device_0/data/hwts.data.0.slice_0", log.ljust(64, b"\0"))
        counters = struct.pack("<B5xH8xQ8x8Q", (number & 15) << 4, task, 1000, *range(8)) + struct.pack("<I28x", stream)
        made.put("device_0/data/aicore.data.0.slice_0", counters)
    made.write(root)
    for path in (root / "host" / "info.json", root / "device_0" / "info.json.0"):
        path.write_text(path.read_text().replace('"platform_version": "5"', '"platform_version": "1"'))
    return root


def counted(root: Path) -> Path:
    """Samples of memories and links beside the network."""
    made: Directory = small_network()
    for at in range(40):
        made.put("device_0/data/hbm.data.0.slice_0", struct.pack("<QQII", at * 1000, at * 7, at % 2, 3))
        made.put("device_0/data/npu_mem.data.0.slice_0", struct.pack("<IIQQQ", at * 500, 1, 0, 100, 4000))
        made.put("device_0/data/lpmFreqConv.data.0.slice_0", struct.pack("<II", 1, 0) + struct.pack("<QII", at, 1800, 0) * 55)
        made.put("device_0/data/nic.data.0.slice_0", f"{at}: 100 1 2048 3 4 5 6 7 1024 9 10 11 12 0\n".encode())
    return made.write(root)


def bases(room: Path) -> list[Path]:
    name = "PROF_000001_20231114221320000_ABCDEFGH"
    own = [small_network().write(room / "a" / name), older(room / "b" / name), counted(room / "c" / name)]
    cases = (
        "c01_train_steps",
        "c02_flips",
        "c03_mix",
        "c04_aicpu_dsa_host",
        "c05_comm",
        "c07_memcpy_slices",
        "c08_hwts_streams",
        "c10_two_devices",
    )
    found = [next((SHARED / "ascend" / "synth" / case).glob("PROF_*"), None) for case in cases] if SHARED.is_dir() else []
    legacy = sorted((SHARED / "ascend" / "legacy" / "raw").glob("JOB[14]")) if SHARED.is_dir() else []
    return [*own, *(path for path in found if path), *legacy]


# Damage


def raw_file(root: Path, chance: random.Random) -> Path:
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.endswith((".done", ".complete"))]
    return chance.choice([path for path in files if path.parent.name == "data"] or files)


def small_file(root: Path, chance: random.Random) -> Path:
    names = ("info.json", "sample.json", "start_info", "end_info", "host_start.log", "dev_start.log")
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name.startswith(names)]
    return chance.choice(files) if files else raw_file(root, chance)


def truncated(root: Path, chance: random.Random) -> None:
    file = raw_file(root, chance)
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(len(data) + 1)])


def junk_head(root: Path, chance: random.Random) -> None:
    file = raw_file(root, chance)
    file.write_bytes(chance.randbytes(chance.randrange(1, 100)) + file.read_bytes())


def wrong_magic(root: Path, chance: random.Random) -> None:
    file = raw_file(root, chance)
    data = bytearray(file.read_bytes())
    size = chance.choice((40, 64, 128, 256))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) // size + 1) * size + chance.choice((0, 2))
        data[at : at + 2] = chance.randbytes(2)
    file.write_bytes(data)


def lost_records(root: Path, chance: random.Random) -> None:
    file = raw_file(root, chance)
    data, size = file.read_bytes(), chance.choice((40, 64, 128, 256))
    at = chance.randrange(len(data) // size + 1) * size
    file.write_bytes(data[:at] + data[at + size * chance.randrange(1, 9) :])


def bits(root: Path, chance: random.Random) -> None:
    file = raw_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 40) if data else 0):
        data[chance.randrange(len(data))] = chance.choice((0, 0xFF, 0x7F, 0x80, chance.randrange(256)))
    file.write_bytes(data)


def far_numbers(root: Path, chance: random.Random) -> None:
    """The largest and the strangest numbers where numbers are."""
    file = raw_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 8) if len(data) >= 8 else 0):
        at = chance.randrange(len(data) // 8) * 8
        data[at : at + 8] = struct.pack("<Q", chance.choice((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2)))
    file.write_bytes(data)


def late(root: Path, chance: random.Random) -> None:
    """A number that is hours, days or years too large: as a time, it is one that could be."""
    file = raw_file(root, chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 4) if len(data) >= 16 else 0):
        at = chance.randrange(len(data) // 8 - 1) * 8
        (value,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, (value + (1 << chance.randrange(20, 56))) % 2**64)
    file.write_bytes(data)


def zero_length(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        raw_file(root, chance).write_bytes(b"")


def missing(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        raw_file(root, chance).unlink()


def missing_small(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        small_file(root, chance).unlink()


def missing_dictionary(root: Path, chance: random.Random) -> None:
    for file in [path for path in root.rglob("*_dic*") if chance.random() < 0.7]:
        file.unlink()


def garbled_text(root: Path, chance: random.Random) -> None:
    files = [*root.rglob("*_dic*"), small_file(root, chance)]
    file = chance.choice([path for path in files if path.is_file()])
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(data) + 1)
        data[at:at] = chance.choice(
            (b"\xff\xfe", b"\0", b":", b"_", b'"', b"{", b"99999999999999999999999", b"-1", b"\n", b"nan", b"1e400", b"[[")
        )
    file.write_bytes(data)


def strange_json(root: Path, chance: random.Random) -> None:
    file = small_file(root, chance)
    try:
        read = json.loads(file.read_text())
    except ValueError:
        read = None
    found = read if isinstance(read, dict) else {}
    for key in list(found):
        if chance.random() < 0.4:
            found[key] = chance.choice((None, -1, 0, 1e308, "", "x", [], {}, [[]], [{}], 2**70, "1/0", "NaN", True, ["a"], {"a": []}))
    file.write_text(json.dumps(chance.choice((found, found, found, [found], 5, None))))


def device_alone(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "host", ignore_errors=True)


def host_alone(root: Path, chance: random.Random) -> None:
    for path in root.glob("device_*"):
        shutil.rmtree(path)


def unknown_chip(root: Path, chance: random.Random) -> None:
    for path in root.rglob("info.json*"):
        try:
            found = json.loads(path.read_text())
        except ValueError:
            continue
        chip = chance.choice(("99", "", "-1", "0", "7", "15", "16", "x" * 50, 5, None))
        path.write_text(json.dumps({**found, "platform_version": chip} if isinstance(found, dict) else chip))


def other_names(root: Path, chance: random.Random) -> None:
    """Slices out of order, twice, or numbered beyond belief; a folder where a file should be."""
    file = raw_file(root, chance)
    name = file.name
    kind = chance.randrange(4)
    if kind == 0:
        file.rename(file.with_name(name.replace("slice_0", f"slice_{chance.choice((1, 99, 10**30))}")))
    elif kind == 1:
        shutil.copy(file, file.with_name(name.replace("slice_0", "slice_1") + ("" if "slice_0" in name else ".slice_1")))
    elif kind == 2:
        file.unlink()
        file.mkdir()
    else:
        shutil.copy(file, raw_file(root, chance))


def other_device(root: Path, chance: random.Random) -> None:
    for path in sorted(root.glob("device_*")):
        shutil.copytree(path, path.with_name(f"device_{chance.choice((1, 7, 63, 999999))}"), dirs_exist_ok=True)


DAMAGES: list[Damage] = [
    *(truncated, junk_head, wrong_magic, lost_records, bits, bits, far_numbers, late, late, zero_length, missing, missing_small),
    *(missing_dictionary, garbled_text, strange_json, strange_json, device_alone, host_alone, unknown_chip, other_names, other_device),
]


def test_a_time_that_is_years_off_a_plane_and_a_process_that_cannot_be_make_no_file_without_end(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    planes = next(raw.glob("host/data/*hccl_info*"))
    data = bytearray(planes.read_bytes())
    struct.pack_into("<I", data, 64, 2**31)  # the plane of the first task
    planes.write_bytes(data)
    tasks = next(raw.glob("device_0/data/stars_soc*"))
    data = bytearray(tasks.read_bytes())
    struct.pack_into("<Q", data, len(data) - 56, 50_000_000 * 86_400 * 365 * 3)  # the end of the last one: three years later
    tasks.write_bytes(data)
    for path in (raw / "host" / "info.json", raw / "device_0" / "info.json.0"):
        path.write_text(path.read_text().replace('"pid": "42"', f'"pid": {2**70}'))
    result = prof_folders.done(prof_folders.Request(folder=str(raw), text=True, database=True, rules=list(prof_folders.RULES)))
    assert result.failed == "" and sum(file.bytes for file in result.written) < 2_000_000


class HangsError(Exception):
    pass


def stop(number: int, frame: FrameType | None) -> None:
    raise HangsError


def tried(folder: Path, room: Path) -> str:
    """Everything that can be done with it. What became of it, in a word."""
    try:
        trace = prof.read(folder, Options(scratch=room))
    except StepscopeError as error:
        assert "\n" not in str(error)
        return "refused"
    assert trace.problems.collect()["lost"].is_between(0, 2**62).all()
    for name in ANALYSES:
        try:
            trace.analyse(name)
        except StepscopeError as error:
            assert "\n" not in str(error)
    request = prof_folders.Request(folder=str(folder), query=True, text=True, database=True, rules=list(prof_folders.RULES), clear=True)
    failed = prof_folders.done(request).failed
    assert "internal error" not in failed and "\n" not in failed, failed
    return "told" if trace.problems.collect().height else "whole"


def test_no_damage_surprises_and_none_hangs(tmp_path: Path) -> None:
    whole = bases(tmp_path / "bases")
    before = signal.signal(signal.SIGALRM, stop)
    became: dict[str, int] = {}
    try:
        for number in range(COUNT):
            chance = random.Random(f"{SEED}.{number}")
            base = chance.choice(whole[:3] if COUNT < 100 else whole)
            folder = tmp_path / str(number) / base.name
            shutil.copytree(base, folder)
            for path in [folder, *folder.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
            damages = chance.sample(DAMAGES, chance.choice((1, 1, 2, 3)))
            done = []
            for damage in damages:
                try:
                    damage(folder, chance)
                    done.append(damage.__name__)
                except (OSError, IndexError):  # the damage before left nothing for this one
                    continue
            signal.alarm(HANGS_AFTER_S)
            try:
                end = tried(folder, tmp_path)
            except BaseException as error:
                raise AssertionError(f"seed {SEED}.{number} of {base.parent.name}: {done}: {type(error).__name__}: {error}") from error
            finally:
                signal.alarm(0)
            became[end] = became.get(end, 0) + 1
            shutil.rmtree(tmp_path / str(number))
    finally:
        signal.signal(signal.SIGALRM, before)
    print(became)
    # Most damage leaves something to read, and is told.
    assert became.get("told", 0) > COUNT // 2
