"""Damaged results of Ascend's tools: what can be read is read, the rest is refused in one line or told in `problems`."""

import random
import shutil
from pathlib import Path

import pytest

import stepscope
from stepscope.errors import StepscopeError

SAMPLES = Path(__file__).parents[1] / "samples"
FORMATS = ("ascend_result", "ascend_db", "msprof_output", "cluster_output", "mindinsight")
FOLDERS = [path for name in FORMATS for path in sorted(SAMPLES.glob(f"{name}/*/*"))]
DAMAGE = 12  # of each sample


def damaged(data: bytes, chance: random.Random) -> bytes:
    where = chance.randrange(len(data) + 1)
    kind = chance.randrange(5)
    if kind == 0:
        return data[:where]
    if kind == 1:
        return b""
    if kind == 2:
        noise = bytes(chance.randrange(256) for _ in range(8))
        return data[:where] + noise + data[where + 8 :]
    if kind == 3:
        return data[:where] + data[min(len(data), where + chance.randrange(1, 64)) :]
    words = [b"N/A", b"", b"-1", b"99999999999999999999", b"nan", b"[]", b"{}", b"null", b'"', b"\x00"]
    digits = [at for at, byte in enumerate(data) if 48 <= byte < 58]
    at = chance.choice(digits) if digits else 0
    return data[:at] + chance.choice(words) + data[at + 1 :]


@pytest.mark.parametrize("sample", FOLDERS, ids=lambda path: f"{path.parent.parent.name}/{path.name}")
def test_damage_is_refused_or_told_and_never_surprises(sample: Path, tmp_path: Path) -> None:
    chance = random.Random(sample.name)
    for number in range(DAMAGE):
        copy = tmp_path / f"{number}" / sample.name
        copy.parent.mkdir()
        (shutil.copytree if sample.is_dir() else shutil.copy)(sample, copy)
        files = sorted(file for file in copy.rglob("*") if file.is_file()) if copy.is_dir() else [copy]
        target = chance.choice(files)
        target.write_bytes(damaged(target.read_bytes(), chance))
        try:
            trace = stepscope.open(copy, cache=False, partial=bool(number % 2))
            for name in ("overview", "step_trace", "operators", "overlap", "communication", "memory", "data_pipeline"):
                trace.analyse(name)
        except StepscopeError as error:
            assert "\n" not in str(error)
        shutil.rmtree(copy.parent)
