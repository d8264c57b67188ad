"""The cache of foreign files: bounded, clearable, and never the end of anything that is not its own."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.cli import main
from stepscope.errors import UsageError
from stepscope.io import cache

KEY = "0123456789abcdef" * 2
SAMPLE = Path(__file__).parent / "samples/chrome/torch-2.13.0/cpu_training.json.gz"


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
    assert cache.clear() == (1, 1000 + len('{"source": "trace.json"}'), 0)
    assert cache.clear() == (0, 0, 0)
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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1073741824", 1 << 30),
        ("1GB", 10**9),
        ("500MB", 500 * 10**6),
        ("500 mb", 500 * 10**6),
        ("1GiB", 1 << 30),
        ("1.5GiB", 3 << 29),
        ("2T", 2 * 10**12),
    ],
)
def test_a_limit_is_bytes_or_has_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", text)
    assert cache.limit() == size


@pytest.mark.parametrize("text", ["lots", "-1", "1 G B", "GB", "1e9", "1XB", "1.GB", "٣GB"])
def test_a_limit_that_is_no_size_is_wrong_use_before_anything_is_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", text)
    (tmp_path / "trace.json").write_text('{"traceEvents": [')  # to read it would be another error
    with pytest.raises(UsageError, match=f"STEPSCOPE_CACHE_LIMIT is '{text}'; expected a size such as 500MB, 1GB, 1GiB"):
        stepscope.open(tmp_path / "trace.json")


def test_the_cache_is_for_the_eyes_of_its_user_only(folder: Path) -> None:
    assert cache.draft().parent == folder
    assert folder.stat().st_mode & 0o077 == 0


def test_a_cache_that_recording_or_an_earlier_release_left_open_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "stepscope").mkdir()
    (tmp_path / "stepscope").chmod(0o755)
    assert cache.draft().parent == tmp_path / "stepscope"
    assert (tmp_path / "stepscope").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_the_user_chose_keeps_its_mode_and_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may hold other things. What the cache puts into it is closed."""
    folder.mkdir()
    folder.chmod(0o755)
    made = cache.draft() / "run"
    made.mkdir()
    (made / "run.json").write_text("{}")
    (made / "run.json").chmod(0o644)
    assert cache.settle(made, folder / KEY)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / KEY).stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (folder / KEY).iterdir()} == {0o600}
    assert main(["cache"]) == 0
    assert f"other users can list {folder}" in capsys.readouterr().err


def test_what_a_process_uses_is_removed_by_nobody_until_it_lets_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used, idle = entry(folder, "a" * 32, 1000, 300), entry(folder, "b" * 32, 1000, 200)
    pins = cache.Pins()
    assert pins.hold(used) and not pins.hold(folder / KEY)
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "10")
    cache.trim()
    assert used.exists() and not idle.exists()
    assert cache.clear() == (0, 0, 1)
    pins.release()
    assert cache.clear()[0] == 1
    assert list(folder.iterdir()) == []


HOLDING = """
import sys, pathlib
from stepscope.io import cache
pins = cache.Pins()
assert pins.hold(pathlib.Path(sys.argv[1]))
draft = cache.draft()
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_what_another_process_uses_stays_until_that_ends_however_it_ends(end: str, folder: Path) -> None:
    used = entry(folder, KEY, 1000, 0)
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(used)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert cache.clear() == (0, 0, 1)
        assert used.exists() and len(list(folder.glob(".reading.*"))) == 1
        other.kill() if end == "kill" else other.communicate("\n")
        other.wait()
    assert cache.clear()[0] == 1
    assert not used.exists() and not list(folder.glob(".reading.*"))


def test_damage_to_a_sealed_folder_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    path.mkdir()
    (path / "spans.parquet").write_bytes(b"x" * 1000)
    assert not cache.intact(path)
    cache.seal(path)
    assert cache.intact(path)
    (path / "spans.parquet").write_bytes(b"y" * 1000)
    assert not cache.intact(path)
    cache.seal(path)
    (path / "spans.parquet").unlink()
    assert not cache.intact(path)
    cache.seal(path)
    (path / "files.json").write_bytes(b"[" * 100_000)  # nested too deep for a parser
    assert not cache.intact(path)


def test_what_is_used_is_known_again_after_somebody_emptied_the_folder(folder: Path) -> None:
    pins = cache.Pins()
    assert pins.hold(entry(folder, KEY, 1000, 0))
    shutil.rmtree(folder)
    again = entry(folder, KEY, 1000, 0)
    assert not pins.intact()
    assert pins.hold(again)
    assert cache.clear() == (0, 0, 1)
    pins.release()
    assert cache.clear()[0] == 1


def test_a_cache_entry_that_lost_a_bit_is_read_again_a_day_later(folder: Path, tmp_path: Path) -> None:
    """Size and time of the file stay. Within a day of its use, an entry is not read as a whole, so the damage shows only later."""
    trace = tmp_path / "trace.json"
    trace.write_text('[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1000,"cat":"cpu_op","name":"aten::mm"}]')
    assert stepscope.open(trace).spans.collect()["dur_ns"].to_list() == [1_000_000]
    (header,) = folder.glob("*/run.json")
    spans = header.parent / "spans.parquet"
    content, times = bytearray(spans.read_bytes()), (spans.stat().st_atime_ns, spans.stat().st_mtime_ns)
    at = content.index((1_000_000).to_bytes(8, "little"))
    content[at] ^= 1
    spans.write_bytes(content)
    os.utime(spans, ns=times)
    assert cache.intact(header.parent)
    os.utime(header, (time.time() - 90_000,) * 2)
    assert stepscope.open(trace).spans.collect()["dur_ns"].to_list() == [1_000_000]
    assert content != spans.read_bytes()


OTHER_USER = 54_321


def opened_once(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says about a trace whose cache is or was in `folder`."""
    monkeypatch.setattr(cache, "_notices", [])
    assert main(["show", "steps", str(SAMPLE), "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) > 2
    return said.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_default_folder_that_another_user_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STEPSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    place = tmp_path / "stepscope"
    place.mkdir(mode=0o777)
    os.chown(place, OTHER_USER, OTHER_USER)
    assert "it belongs to another user" in opened_once(place, monkeypatch, capsys)
    assert list(place.iterdir()) == []
    monkeypatch.setenv("STEPSCOPE_CACHE", str(place))  # chosen by name
    assert opened_once(place, monkeypatch, capsys) == ""
    assert list(place.iterdir()) != []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("linked", [False, True])
def test_an_entry_that_another_user_planted_is_not_read(
    linked: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opened_once(folder, monkeypatch, capsys) == ""
    made = next(path for path in folder.iterdir() if len(path.name) == 32 and (path / "run.json").exists())
    false = folder / "false"
    made.rename(false)
    pl.read_parquet(false / "steps.parquet").head(1).write_parquet(false / "steps.parquet")
    cache.seal(false)
    if linked:
        made.symlink_to(false)
    else:
        false.rename(made)
        os.chown(made, OTHER_USER, OTHER_USER)
    opened_once(folder, monkeypatch, capsys)  # it has the rows of the file
