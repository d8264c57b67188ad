"""The cache of foreign files: bounded, clearable, and never the end of anything that is not its own."""

import os
import time
from pathlib import Path

import pytest

from stepscope import cache
from stepscope.errors import UsageError

KEY = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry(folder: Path, name: str, size: int, age: float) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "spans.parquet").write_bytes(b"x" * size)
    (path / "run.json").write_text('{"source": "trace.json"}')
    os.utime(path / "run.json", (time.time() - age,) * 2)
    return path


def test_the_longest_unused_entries_go_first_and_the_newest_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, middle, new = (entry(folder, digit * 32, 1000, age) for digit, age in (("a", 300), ("b", 200), ("c", 100)))
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "2500")
    cache.trim(new)
    assert [path.exists() for path in (old, middle, new)] == [False, True, True]
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "10")
    cache.trim(new)
    assert [path.exists() for path in (middle, new)] == [False, True]


def test_using_an_entry_keeps_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = entry(folder, "a" * 32, 1000, 300), entry(folder, "b" * 32, 1000, 200)
    cache.touch(first)
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "1500")
    cache.trim(folder / KEY)
    assert first.exists() and not second.exists()


def test_drafts_of_killed_processes_go_after_a_day_and_those_of_living_ones_stay(folder: Path) -> None:
    killed, living = folder / ".reading.killed", folder / ".reading.living"
    killed.mkdir(parents=True)
    living.mkdir()
    headless = folder / ("d" * 32)
    headless.mkdir()
    for path in (killed, headless):
        os.utime(path, (time.time() - 90_000,) * 2)
    cache.trim(folder / KEY)
    assert not killed.exists() and not headless.exists() and living.exists()


def test_only_what_the_cache_made_is_ever_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [folder / ".ssh" / "key", folder / "runs" / "run.json", folder / "notes.txt", folder / ".config" / "x"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path.parent, (time.time() - 90_000,) * 2)
    own = entry(folder, KEY, 10, 0)
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "run.json").write_text("{}")
    (folder / ("e" * 32)).symlink_to(outside, target_is_directory=True)
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "0")
    cache.trim(own)
    assert cache.clear()[0] == 1
    assert not own.exists()
    assert all(path.read_text() == "mine" for path in mine)
    assert (outside / "run.json").exists()


def test_clearing_says_what_went(folder: Path) -> None:
    entry(folder, KEY, 1000, 0)
    assert cache.clear() == (1, 1000 + len('{"source": "trace.json"}'))
    assert cache.clear() == (0, 0)
    assert cache.entries() == []


def test_a_changed_file_has_another_key(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(b"a" * 10_000_000)
    os.utime(file, ns=(1, 1))
    first = cache.key(file, "chrome")
    assert cache.key(file, "chrome") == first
    assert cache.key(file, "chrome", True) != first
    with file.open("r+b") as writer:  # the same size and time, another end
        writer.seek(9_999_999)
        writer.write(b"b")
    os.utime(file, ns=(1, 1))
    changed = cache.key(file, "chrome")
    assert changed != first
    os.utime(file, ns=(2, 2))
    assert cache.key(file, "chrome") not in (first, changed)


def test_a_limit_that_is_no_number_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "20GB")
    with pytest.raises(UsageError, match="STEPSCOPE_CACHE_LIMIT is '20GB'"):
        cache.limit()


def test_the_cache_is_for_the_eyes_of_its_user_only(folder: Path) -> None:
    assert cache.draft().parent == folder
    assert folder.stat().st_mode & 0o077 == 0
