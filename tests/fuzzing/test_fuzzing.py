"""Mutants that were failures once, and a few new ones of each target. `make test-deep` reads many more (fuzz.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzzing import fuzz

SCRIPT = Path(fuzz.__file__)


@pytest.mark.parametrize("case", sorted(path.parent.name for path in fuzz.CORPUS.glob("*/case.txt")))
def test_a_past_failure_opens_or_is_refused_in_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert set(fuzz.try_case(fuzz.CORPUS / case, tmp_path)) <= {"opened", "refused"}


def test_mutants_of_every_target_open_or_are_refused_in_one_line(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, SCRIPT, "--own", "--mutants", "1", "--keep", tmp_path / "findings"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "0 findings" in tried.stdout


def test_the_same_name_makes_the_same_mutant(tmp_path: Path) -> None:
    sample = SCRIPT.parents[1] / "samples" / "ascend_db" / "by-hand" / "ascend_pytorch_profiler_0.db"
    made = []
    for room in (tmp_path / "one", tmp_path / "two"):
        room.mkdir()
        name = "ascend_db/by-hand:3:5"
        made.append(fuzz._made(sample, room, "ascend_db", fuzz.Chance(name)).read_bytes())
    assert made[0] == made[1] != sample.read_bytes()
