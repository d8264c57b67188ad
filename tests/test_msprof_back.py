"""What is exported as msprof's files or as its database says, read again, how much was computed, communicated and copied in each step."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope import exporters
from stepscope.trace import Trace

DATA = Path(__file__).parents[2] / "shared" / "data"
FOUND = [
    *sorted((DATA / "ascend" / "torch_npu").glob("*/level*/rank*_ascend_pt")),
    *sorted((DATA / "ascend" / "synth").glob("c0[1-5789]*/PROF_*")),
    *sorted((DATA / "ascend" / "synth").glob("c1[03]*/PROF_*")),
    *sorted((DATA / "torch_h200").glob("*.json.gz")),
    *sorted((DATA / "torch_public").glob("**/*rank-[01]*.json.gz")),
]
pytestmark = pytest.mark.skipif(not FOUND, reason="the recordings are not here")


def sums(trace: Trace) -> list[dict[str, Any]]:
    return trace.overlap().drop("rank", "step").to_dicts()


def totals(trace: Trace) -> dict[str, int]:
    """Of each kernel. Collectives that only tags tell are numbered by msprof in another order."""
    rows = trace.kernels().with_columns(pl.col("name").str.replace(r"^Reduce \d+$", "Reduce"))
    return dict(rows.group_by("name").agg(pl.col("total_ns").sum()).iter_rows())


def named(path: Path) -> str:
    return "/".join(path.relative_to(DATA).parts[1:])[:60]


@pytest.mark.parametrize("path", FOUND, ids=named)
@pytest.mark.parametrize("to", ["msprof", "msprof_db"])
def test_sums_of_steps_and_of_kernels_are_those_before(path: Path, to: str, tmp_path: Path) -> None:
    trace = stepscope.open(path)
    out = tmp_path / ("out" if to == "msprof" else "msprof_20240101000000.db")
    exporters.exporter(to).function(trace, out)
    again = stepscope.open(out, cache=False)
    assert sums(again) == sums(trace)
    before, after = totals(trace), totals(again)
    by_host = set(trace.communication()["name"]) - before.keys()  # as gloo's, which are on a lane of the device now
    assert {name: total for name, total in after.items() if name not in by_host} == before
    assert again.step_trace().select(pl.col("total_ns").sum()).item() == trace.step_trace().select(pl.col("total_ns").sum()).item()
