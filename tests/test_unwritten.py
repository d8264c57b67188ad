"""A command answers from memory, then writes the cache entry: the same tables, and whole whatever ends it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.cli import main
from stepscope.io import cache, store
from stepscope.io.unwritten import Unwritten
from stepscope.model import schema
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent / "samples"
TRACE = SAMPLES / "chrome" / "torch-2.11" / "h200_modules.json.gz"
READ = [TRACE, *sorted({path.parent.parent: path for path in sorted(SAMPLES.glob("*/*/*"), reverse=True)}.values())]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def left_in(folder: Path) -> list[str]:
    """What the cache holds: entries and drafts."""
    return sorted(path.name[:9] for path in folder.iterdir() if path.name != "in_use")


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(SAMPLES)))
def test_the_tables_in_memory_are_those_of_the_entry(path: Path) -> None:
    pins = cache.Pins()
    unwritten = Unwritten(pins)
    before = stepscope.open(path, unwritten=unwritten)
    tables = {name: frame.collect() for name, frame in before.tables.items()}
    unwritten.write()
    after = stepscope.open(path, pins=pins)
    pins.release()
    assert after.meta == before.meta
    for name, frame in after.tables.items():
        assert tables[name].equals(frame.collect()), name


def test_arguments_are_read_where_they_are_used(tmp_path: Path) -> None:
    unwritten = Unwritten(cache.Pins())
    spans = stepscope.open(TRACE, unwritten=unwritten).spans
    written = stepscope.open(TRACE, cache=False).spans
    kernels = pl.col("kind") == "kernel"
    queries: tuple[Callable[[pl.LazyFrame], pl.LazyFrame], ...] = (
        lambda frame: frame.select("span", "args"),
        lambda frame: frame.filter(kernels).select("name", "args"),
        lambda frame: frame.filter(pl.col("args").str.contains("stream")).select("span"),
        lambda frame: frame.filter(kernels).select("args").head(5),
        lambda frame: frame.select("span").tail(7),
        lambda frame: frame.filter(pl.col("name").cast(pl.String) == "no such name").select("args", "kind"),
    )
    for query in queries:
        assert query(spans).collect().equals(query(written).collect())
    unwritten.drop()


def test_invalid_rows_are_left_out_before_an_answer() -> None:
    trace = tiny.trace(
        spans="""
            track  kind  name  start_ns  dur_ns  span
            0      op    a     0         10      0
            0      op    b     20        -5      1
        """
    )
    assert store.in_memory(trace) is None
    valid = store.in_memory(trace.with_tables(spans=trace.spans.filter(schema.is_valid("spans"))))
    assert isinstance(valid, Trace) and valid.spans.collect()["span"].to_list() == [0]


def test_the_answer_comes_before_the_entry(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    write = store.write

    def noted(trace: Trace, path: Path) -> None:
        printed.append(capsys.readouterr().out)
        write(trace, path)

    monkeypatch.setattr(store, "write", noted)
    words = ["show", "operator_types", str(TRACE), "--format", "json"]
    assert main(words) == 0
    (first,) = printed
    assert json.loads(first)["rows"]
    assert len(left_in(folder)) == 1
    assert main(words) == 0
    assert (capsys.readouterr().out, len(printed)) == (first, 1)


_COMMAND = """\
import os, signal, sys
from stepscope.cli import main
from stepscope.io import store

def write(trace, path):
    path.mkdir()
    (path / "spans.parquet").write_bytes(b"half")
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))

store.write = write
sys.exit(main(["show", "operator_types", sys.argv[2], "--format", "csv"]))
"""


def answered(number: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _COMMAND, number, str(TRACE)], capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_after_the_answer_changes_nothing_but_the_cache(number: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = answered(number)
    assert (ended.returncode, ended.stderr, left_in(folder)) == (0, "", [])
    assert main(["show", "operator_types", str(TRACE), "--format", "csv"]) == 0
    assert ended.stdout == capsys.readouterr().out


def test_a_killed_process_leaves_a_draft_that_the_next_one_removes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = answered("SIGKILL")
    assert ended.returncode == -signal.SIGKILL
    assert left_in(folder) == [".reading."]
    assert main(["show", "operator_types", str(TRACE), "--format", "csv"]) == 0
    assert ended.stdout == capsys.readouterr().out
    (entry,) = left_in(folder)
    assert not entry.startswith(".")


def test_an_entry_that_cannot_be_written_is_reported_after_the_answer(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_notices", [])
    with monkeypatch.context() as full:
        full.setattr(pl.LazyFrame, "sink_parquet", _no_space)
        assert main(["show", "operator_types", str(TRACE)]) == 0
    output = capsys.readouterr()
    assert "aten::" in output.out
    assert "results are not cached" in output.err and "Traceback" not in output.err
    assert left_in(folder) == []


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")
