"""benchmarks/compare_checkouts.py finds what differs between two source trees, and nothing where they are equal."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAMPLES = [ROOT / "tests" / "samples" / name for name in ("marey", "chrome/torch-2.11")]


def compare(before: Path, after: Path, *flags: str) -> tuple[int, list[str]]:
    command = [sys.executable, "benchmarks/compare_checkouts.py", str(before), str(after), *flags, "--inputs", *map(str, SAMPLES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


CHANGES = {
    "kernels": "answer.with_columns(pl.col('calls') + 1)",
    "operator_types": "answer.with_columns(pl.col('calls') + 1)",
    "durations": "answer.drop('calls')",
    "links": "1 / 0",
}


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A source tree in which one analysis counts too much, one loses a column and one fails."""
    package = tmp_path / "changed" / "src" / "stepscope"
    shutil.copytree(ROOT / "src" / "stepscope", package, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    for name, answer in CHANGES.items():
        (module,) = package.rglob(f"analyses/*/{name}.py")
        code = f"import functools\n_old = {name}\n@functools.wraps(_old)\ndef {name}(trace, **given):\n"
        module.write_text(f"{module.read_text()}\n{code}    answer = _old(trace, **given)\n    return {answer}\n")
    return tmp_path / "changed"


def test_a_checkout_equals_itself() -> None:
    code, lines = compare(ROOT, ROOT, "--exports", "--only", "*marey*")
    assert code == 0, lines
    assert len(lines) == 1 and lines[0].startswith("1 of 2 inputs") and ": 0 differences" in lines[0]


def test_a_changed_value_a_lost_column_and_a_new_error_are_differences(changed: Path, tmp_path: Path) -> None:
    code, lines = compare(ROOT, changed, "--only", "*h200_modules*")
    assert code == 1
    assert any("analyses/kernels.arrow: calls: " in line and "first row 0: " in line for line in lines)
    assert any("analyses/durations.arrow: columns: gone " in line for line in lines)
    assert any("analyses/links.arrow: only in BEFORE" in line for line in lines)
    assert any("analyses/links.txt: only in AFTER (ZeroDivisionError: division by zero)" in line for line in lines)
    assert any("summary.json: .operator_types.rows.0.calls: " in line for line in lines)
    assert lines[-1].startswith("1 of 2 inputs") and ": 6 differences" in lines[-1]

    (tmp_path / "expected").write_text(
        "analyses/(kernels|operator_types|durations|links|verdict)|summary.json: .operator_types  # changed by this test\n"
    )
    code, lines = compare(ROOT, changed, "--only", "*h200_modules*", "--expected", str(tmp_path / "expected"))
    assert code == 0 and lines[-1].endswith("6 expected"), lines
