"""Damaged PROF directories: what can be read is read, the rest is told in `problems` or refused in a line, and nothing hangs.

A sample of them belongs to the suite. STEPSCOPE_FUZZ=2000 tries as many, STEPSCOPE_FUZZ_SEED=7 others.
"""

import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

import prof_kinds
from conftest import SHARED
from damage import BYTES, FILES, TEXT, Damage, tally
from looking import looked_at
from prof_directories import small_network
from stepscope import prof_folders
from stepscope.errors import StepscopeError

COUNT = int(os.environ.get("STEPSCOPE_FUZZ", "30"))
SEED = int(os.environ.get("STEPSCOPE_FUZZ_SEED", "1"))


def bases(room: Path) -> list[list[Path]]:
    """Directories to damage: those that the tests write, and those of others, where they are."""
    cases = [next(case.glob("PROF_*"), None) for case in sorted((SHARED / "ascend" / "synth").glob("c*"))]
    legacy = sorted((SHARED / "ascend" / "legacy" / "raw").glob("*JOB*"))
    others = [path for path in (*cases, *legacy) if path]
    return [prof_kinds.written(room), *([others] if others and COUNT >= 100 else [])]


# Damage that only such directories know


def missing_dictionary(root: Path, chance: random.Random) -> None:
    for file in [path for path in root.rglob("*_dic*") if chance.random() < 0.7]:
        file.unlink()


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
        chip = chance.choice(("99", "", "-1", "0", "1", "5", "7", "15", "16", "x" * 50, 5, None))
        path.write_text(json.dumps({**found, "platform_version": chip} if isinstance(found, dict) else chip))


def other_device(root: Path, chance: random.Random) -> None:
    """Another device with the same data, or the device under another name."""
    for path in sorted(root.glob("device_*")):
        other = path.with_name(f"device_{chance.choice((1, 7, 63, 999999, 10**30, '00', '-1', 'x', '²'))}")
        if other.exists():
            continue
        if chance.random() < 0.5:
            shutil.copytree(path, other, symlinks=True)  # other damage may have left a link that leads in a circle
        else:
            path.rename(other)


OWN: tuple[Damage, ...] = (missing_dictionary, device_alone, host_alone, unknown_chip, other_device)


def test_every_directory_that_is_damaged_is_whole_before(tmp_path: Path) -> None:
    """What was wrong from the beginning would hide what damage does."""
    for folder in prof_kinds.written(tmp_path):
        told = looked_at(folder, tmp_path, random.Random(1))
        assert [row["what"] for row in told if row["lost"]] == [], folder.parent.name


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


def tried(folder: Path, room: Path, chance: random.Random) -> str:
    """Everything that can be done with it. What became of it, in a word."""
    request = prof_folders.Request(folder=str(folder), query=True, text=True, database=True, rules=list(prof_folders.RULES), clear=True)
    exported = prof_folders.done(request)
    assert "internal error" not in exported.failed and "memory" not in exported.failed and "\n" not in exported.failed, exported.failed
    assert sum(file.bytes for file in exported.written) < 50_000_000
    try:
        told = looked_at(folder, room, chance)
    except StepscopeError as error:
        assert "\n" not in str(error)
        return "refused"
    return "told" if told else "whole"


def test_no_damage_surprises_and_none_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became = tally(bases(tmp_path / "bases"), (*BYTES, *FILES, *TEXT, *OWN), tried, tmp_path, monkeypatch, count=COUNT, seed=SEED)
    # Most damage leaves something to read, and is told.
    assert became.get("told", 0) >= COUNT / 2
