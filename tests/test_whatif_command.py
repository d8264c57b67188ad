"""`stepscope whatif`: one screen, worked out by hand from the trace of tests/analyses/test_whatif.py."""

import json
from pathlib import Path

import pytest

import tiny
from analyses.test_whatif import synchronized
from stepscope.cli import main
from stepscope.io import store


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    store.write(synchronized(), tmp_path / "run")
    return str(tmp_path / "run")


def test_several_changes_apply_together_and_each_alone(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    # k1 at half its time: 90 us. Without waits of the host: 70 us. Together k2 ends at 60, the host at 63: see the replay by hand below.
    assert main(["whatif", run, "--scale", "k1=0.5", "--remove", "sync"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # k1 runs from 10 to 20, k2 from 22 to 60; the program has no wait and ends at 63.
    assert lines[0] == "63.0 µs per step instead of 100 µs: 37.0 µs less (37.0 %)."
    rows = {line.split("  ")[0]: line.split()[-9:] for line in lines}
    assert any(line.startswith("k1=0.5") and "10.0 µs" in line for line in lines), rows
    assert any(line.startswith("sync") and "30.0 µs" in line for line in lines)
    assert any(line.startswith("together") and "37.0 µs" in line for line in lines)
    measured = next(line for line in lines if line.startswith("measured"))
    assert "100 µs" in measured and "median of 1 step (0)" in measured


def test_without_a_change_it_lists_what_each_kind_of_time_costs(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", run]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "100 µs per step; 40.0 µs less with --remove host."
    assert "stepscope whatif" in out


def test_json_has_the_rows_of_the_analysis(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", run, "--scale", "k1=0.5", "--remove", "sync", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["change"], row["predicted_ns"]) for row in rows] == [(None, 63_000), ("k1=0.5", 90_000), ("remove sync", 70_000)]
    assert main(["whatif", run, "--scale", "k1=0.5", "--format", "csv"]) == 0
    head, row = capsys.readouterr().out.splitlines()  # one change is all of them together
    assert head.startswith("rank,change,steps") and row.startswith("0,,1,")


def test_an_unknown_name_gets_the_nearest_ones(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", run, "--scale", "k=0.5"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "nothing is named 'k'" in error and "'k1' or 'k2'" in error
    assert main(["whatif", run, "--remove", "snyc"]) == 2
    assert "did you mean 'sync'?" in capsys.readouterr().err


def test_a_run_without_complete_steps_has_nothing_to_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    store.write(tiny.trace(spans="kind  name  start_ns  dur_ns\nop  a  0  10"), tmp_path / "run")
    assert main(["whatif", str(tmp_path / "run"), "--scale", "a=0.5"]) == 0
    assert "nothing to replay" in capsys.readouterr().out
