"""Broken, hostile and huge input: one clear line, the right exit code, and nothing half-written."""

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from settling import until
from stepscope.cli import main

GOOD = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"External id": 1}}


def event(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def document(*events: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": [GOOD, *events, GOOD]}).encode()


def stepscope(*words: object, cache: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"STEPSCOPE_CACHE": str(cache), "COLUMNS": "120"}
    command = [sys.executable, "-m", "stepscope", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False, **options)


def deep(opening: bytes, closing: bytes) -> bytes:
    return opening * 1_000_000 + closing * 1_000_000


NOISE = random.Random(7).randbytes(100_000)
WHOLE = document(*(event(ts=i, name=f"op {i * 7919 % 997}") for i in range(3000)))

BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\t", "not a trace"),
    "truncated json": (WHOLE[: len(WHOLE) // 2], "the file is cut off after event"),
    "truncated header": (WHOLE[:12], "not a trace"),
    "truncated before events": (b'{"traceEvents"', "ends before its events begin"),
    "truncated behind events": (document()[:-1], "cut off behind its events"),
    "truncated gzip": (gzip.compress(WHOLE)[:-2000], "the gzip stream breaks off"),
    "gzip of nothing": (gzip.compress(b""), "not a trace"),
    "corrupt gzip": (gzip.compress(WHOLE)[:5000] + b"\xff" * 500 + gzip.compress(WHOLE)[5500:], "the gzip stream breaks off"),
    "another json": (b'{"loss": [1, 2, 3]}', "not a trace"),
    "json text": (b'"traceEvents"', "not a trace"),
    "prose": (b"The quick brown fox.\n" * 1000, "not a trace"),
    "binary noise": (NOISE, "not a trace"),
    "gzip of noise": (gzip.compress(NOISE), "not a trace"),
    "png": (b"\x89PNG\r\n\x1a\n" + NOISE, "not a trace"),
    "no events": (b'{"traceEvents": []}', "holds no events"),
    "events are no array": (b'{"traceEvents": {"a": 1}}', "expected an array of events"),
    "events are numbers": (b'{"traceEvents": [1, 2, 3]}', "entries that are not events"),
    "nothing but negative durations": (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": -3}]}', "1 event of negative duration"),
    "nothing but huge times": (b'{"traceEvents": [{"ph": "X", "ts": 1e40, "dur": 1}]}', "1 event without a usable time"),
    "broken in the middle": (WHOLE.replace(b'"ts": 1500', b'"ts": #1500'), "malformed"),
    "deep arguments": (document()[:-2] + b',{"ph":"X","args":' + deep(b"[", b"]") + b"}]}", "nested too deeply"),
    "deep header": (b'{"a":' + deep(b"[", b"]") + b',"traceEvents":[]}', "not a trace"),
    "deep array": (deep(b"[", b"]"), "not a trace"),
    "deep objects": (b'[{"ph":' + b'{"ph":' * 1_000_000, "malformed|cut off|nested too deeply"),
}


# The command in this process: that a process of its own ends with this exit code is tested with the files below.
@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_line_and_exit_code_1(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content, complaint = BAD[name]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    for words in (["summary", path], ["export", path, "--to", "parquet", "-o", tmp_path / "run"]):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert code == 1, err
        assert out == ""
        lines = err.splitlines()
        assert len(lines) == 1 and "trace.json" in lines[0], err
        assert any(word in lines[0] for word in complaint.split("|")), lines[0]
        assert len(lines[0]) < 700  # the known formats are listed
    assert not (tmp_path / "run").exists()
    assert left_behind(tmp_path) == ["trace.json"]


def left_behind(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_missing_unreadable_and_empty_places_are_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    missing = stepscope("summary", tmp_path / "nowhere.json", cache=cache)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "nowhere.json: no such file or folder" in missing.stderr
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("nothing")
    empty = stepscope("summary", tmp_path / "folder", cache=cache)
    assert (empty.returncode, empty.stderr.count("\n")) == (1, 1)
    assert "no trace in this folder" in empty.stderr


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document())
    path.chmod(0)
    # Root reads what it likes, unless it gives that power away.
    humble = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*humble, sys.executable, "-m", "stepscope", "summary", str(path)]
    environment = os.environ | {"STEPSCOPE_CACHE": str(tmp_path / "cache")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "trace.json: Permission denied" in result.stderr


def test_a_line_of_two_gigabytes_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as file:  # sparse: the line is as long as it says, the disk does not notice
        file.write(b'{"traceEvents": [' + json.dumps(GOOD).encode() + b', {"ph": "X", "name": "')
        file.truncate(2 << 30)
    result = stepscope(
        "summary", path, cache=tmp_path / "cache", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    )
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr[-500:]
    assert "no event ends in the 256 MiB from here on" in result.stderr


def test_overlapping_ranges_and_repeated_ids_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    flows = [
        {"ph": ph, "id": 1, "cat": "fwdbwd", "name": "f", "pid": 1, "tid": 1, "ts": ts}
        for ph, ts in (("s", 10), ("s", 12), ("f", 14), ("f", 16))
    ]
    path.write_bytes(document(event(ts=12, dur=9), event(ts=14, dur=1), event(ts=14, dur=1), *flows))
    result = stepscope("show", "spans", path, "--format", "json", cache=tmp_path / "cache")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["dur_ns"] for row in rows] == [5000, 9000, 1000, 1000, 5000]


HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m",
    "[bold]markup[/bold]",
    "a\nb",
    "=1+1",
    "'; drop",
    "\u202eabc",
    "x" * 100_000,
]


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    path, cache = tmp_path / "in" / "trace.json", tmp_path / "cache"
    path.parent.mkdir()
    path.write_bytes(document(*(event(name=name, cat=name, pid=name, tid=name, ts=i) for i, name in enumerate(HOSTILE))))
    for words in (["summary"], ["show", "operators"], ["show", "spans"], ["show", "tracks"]):
        result = stepscope(*words, path, cache=cache)
        assert result.returncode == 0, result.stderr
        assert "\x1b" not in result.stdout
    as_json = json.loads(stepscope("show", "spans", path, "--format", "json", cache=cache).stdout)
    assert [row["name"] for row in as_json["rows"]][1:-1] == HOSTILE
    for target in ("csv", "chrome", "parquet"):
        out = tmp_path / "out" / (target + (".json" if target == "chrome" else ""))
        result = stepscope("export", path, "--to", target, "-o", out, cache=cache)
        assert result.returncode == 0, result.stderr
    outside = [name for name in left_behind(tmp_path) if not name.startswith(("in/", "out/", "cache/"))]
    assert outside == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 30 MB: several pieces, several processes."""
    path = tmp_path_factory.mktemp("large") / "trace.json"
    path.write_bytes(document(*(event(ts=i, name=f"op {i % 50}", args={"External id": i, "note": "n" * 100}) for i in range(120_000))))
    return path


def test_a_killed_reader_leaves_nothing_that_misleads(tmp_path: Path, large: Path) -> None:
    cache = tmp_path / "cache"
    environment = os.environ | {"STEPSCOPE_CACHE": str(cache)}
    process = subprocess.Popen([sys.executable, "-m", "stepscope", "summary", str(large)], env=environment, stdout=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or list(cache.rglob("*.arrow")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(cache.glob("[!.]*/run.json"))
    result = stepscope("show", "spans", large, "--format", "csv", cache=cache)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 120_003


def test_two_readers_at_once_both_answer(tmp_path: Path, large: Path) -> None:
    environment = os.environ | {"STEPSCOPE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "stepscope", "show", "operators", str(large), "--format", "csv"]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(list((tmp_path / "cache").glob("*/run.json"))) == 1


def test_a_disk_that_takes_no_more_is_one_line(tmp_path: Path, large: Path) -> None:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    out = tmp_path / "run"
    result = stepscope("export", large, "--to", "parquet", "-o", out, cache=tmp_path / "cache", preexec_fn=small_files)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1, result.stderr
    assert not out.exists()
    assert left_behind(tmp_path) == []


def test_a_damaged_run_folder_is_named(tmp_path: Path) -> None:
    path, cache, run = tmp_path / "trace.json", tmp_path / "cache", tmp_path / "run"
    path.write_bytes(document())
    assert stepscope("export", path, "--to", "parquet", "-o", run, cache=cache).returncode == 0
    whole = {file: file.read_bytes() for file in run.iterdir()}
    damages = {
        "spans.parquet": whole[run / "spans.parquet"][:-40],
        "run.json": b"{",
        "steps.parquet": b"",
    }
    for name, content in damages.items():
        (run / name).write_bytes(content)
        result = stepscope("summary", run, cache=cache)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
        assert name in result.stderr
        (run / name).write_bytes(whole[run / name])
    newer = json.loads(whole[run / "run.json"]) | {"format_version": 99}
    (run / "run.json").write_text(json.dumps(newer))
    assert "newer stepscope" in stepscope("summary", run, cache=cache).stderr
