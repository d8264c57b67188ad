"""What is exported as msprof's files or as its database says, read again, how much was computed, communicated and copied in each step."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope import exporters
from stepscope.model.trace import Trace
from volume import mostly_deep

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
    """On the host's clock: msprof's files do not say when a step is over on the device."""
    steps = trace.steps.with_columns(device_start_ns=pl.lit(None, pl.Int64), device_end_ns=pl.lit(None, pl.Int64))
    trace = Trace({**trace.tables, "steps": steps}, trace.meta)
    return trace.overlap().drop("rank", "step").to_dicts()


def totals(trace: Trace) -> dict[str, int]:
    """Of each kernel. Collectives that only tags tell are numbered by msprof in another order."""
    rows = trace.kernels().with_columns(pl.col("name").str.replace(r"^Reduce \d+$", "Reduce"))
    return dict(rows.group_by("name").agg(pl.col("total_ns").sum()).iter_rows())


def named(path: Path) -> str:
    return "/".join(path.relative_to(DATA).parts[1:])[:60]


EXPORTS = ("msprof", "msprof_db")


# Each recording to one of the two forms.
@pytest.mark.parametrize(
    ("path", "to"),
    mostly_deep([(path, to) for path in FOUND for to in EXPORTS], [(path, EXPORTS[number % 2]) for number, path in enumerate(FOUND)]),
    ids=lambda value: named(value) if isinstance(value, Path) else value,
)
def test_sums_of_steps_and_of_kernels_are_those_before(path: Path, to: str, tmp_path: Path) -> None:
    trace = stepscope.open(path)
    out = tmp_path / ("out" if to == "msprof" else "msprof_20240101000000.db")
    exporters.exporter(to).function(trace, out)
    again = stepscope.open(out, cache=False)
    before, after = sums(trace), sums(again)
    # Transfers that the host runs, as gloo's, are on a lane of the device in msprof's files: they take of its time there.
    by_host = any(row["host_exposed_ns"] for row in before)
    moved = {"device_exposed_ns", "host_exposed_ns", "copy_ns", "free_ns"} if by_host and to == "msprof" else set()
    assert [{name: row[name] for name in row.keys() - moved} for row in after] == [
        {name: row[name] for name in row.keys() - moved} for row in before
    ]
    kernels, kernels_again = totals(trace), totals(again)
    transfers = set(trace.communication()["name"]) - kernels.keys()
    assert {name: total for name, total in kernels_again.items() if name not in transfers} == kernels
    assert again.step_trace().select(pl.col("total_ns").sum()).item() == trace.step_trace().select(pl.col("total_ns").sum()).item()
