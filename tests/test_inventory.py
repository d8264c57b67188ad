"""What is known of a trace only after looking at every row: right, found once, and found anew where it is damaged."""

from pathlib import Path

import pytest

import tiny
from stepscope.io import cache, inventory
from stepscope.io.inventory import Inventory

NAME = "0123456789abcdef" * 2
TRACE = tiny.trace(
    spans="""
    kind   name start_ns dur_ns
    op     a    100      50
    op     b    200      10
    kernel k    120      500
    """,
    counters="""
    name at_ns value
    mem  90    1.0
    mem  95    2.0
    cpu  700   3.0
    """,
)
KNOWN = Inventory("tiny", 90, 700, {"op": 2, "kernel": 1}, {"mem": 2, "cpu": 1})
OTHER = tiny.trace(spans="kind name start_ns dur_ns\n op a 1 1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_they_are_counted_over_all_rows() -> None:
    assert inventory.inventory(TRACE) == KNOWN
    assert inventory.inventory(tiny.trace(spans="kind name start_ns dur_ns\n op a 1 1").of_time(5, 6)).kinds == {}


def test_of_a_large_trace_they_are_kept_by_name_and_of_a_small_one_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory.inventory(TRACE, NAME)
    assert not folder.exists()
    monkeypatch.setattr(inventory, "CACHED_SPANS", 1)
    inventory.inventory(TRACE, NAME)
    assert inventory.inventory(OTHER, NAME) == KNOWN  # no row of it is looked at
    assert inventory.inventory(OTHER, "f" * 32).kinds == {"op": 1}
    assert [entry.source for entry in cache.entries()] == ["tiny", "tiny"]


def test_what_is_damaged_is_found_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "CACHED_SPANS", 1)
    inventory.inventory(TRACE, NAME)
    for damage in (b"", b"{", b'{"source": 1}', b"\xff"):
        (folder / NAME / inventory.HEADER).write_bytes(damage)
        assert inventory.inventory(TRACE, NAME) == KNOWN
        assert inventory.inventory(OTHER, NAME) == KNOWN  # kept again


def test_without_a_cache_they_are_found_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "CACHED_SPANS", 1)
    folder.write_text("a file where the cache should be")
    assert inventory.inventory(TRACE, NAME) == KNOWN
