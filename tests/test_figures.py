"""One definition per figure: whatever two analyses, or an analysis and the terminal, say of the same thing is the same number."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.cli.analysis import summary
from stepscope.model import units
from stepscope.model.trace import Trace

# PyTorch with and without steps on the device, over gloo and NCCL, two ranks, Ascend, an inference, the CPU alone.
RUNS = [
    "torch_h200/resnet50_full.json.gz",
    "torch_h200/ddp_gloo_rank0.json.gz",
    "torch_public/two_ranks",
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "ascend/torch_npu/text/level1",
    "ascend/prof_2023",
    "mindspore_cpu/lenet_graph",
]
PARTS = {"compute": "computing_ns", "communication": "device_exposed_ns", "copy": "copy_ns", "idle": "free_ns"}


@pytest.fixture(scope="module", params=RUNS)
def trace(shared: Path, request: pytest.FixtureRequest) -> Iterator[Trace]:
    yield stepscope.open(shared / request.param)


def rows(frame: pl.DataFrame) -> dict[int, dict[str, Any]]:
    return {row["rank"]: row for row in frame.iter_rows(named=True)}


def test_compute_communication_copy_and_idle_are_the_whole_step(trace: Trace) -> None:
    for row in trace.overview().iter_rows(named=True):
        shares = [row[f"{part}_share"] for part in PARTS]
        assert sum(shares) == pytest.approx(1) and all(0 <= share <= 1 for share in shares)
        assert row["busy_share"] == pytest.approx(1 - row["idle_share"])
    for row in trace.overlap().iter_rows(named=True):
        assert sum(row[column] for column in PARTS.values()) == row["device_ns"]
        assert row["device_exposed_ns"] <= row["exposed_ns"] <= row["communication_ns"]
        assert row["host_exposed_ns"] <= row["free_ns"]


def test_the_idle_share_is_that_of_the_gaps_and_of_their_causes(trace: Trace) -> None:
    overview = rows(trace.overview())
    on_device = trace.gap_causes().filter(pl.col("device").is_not_null())
    causes = on_device.group_by("rank", "device").agg(pl.col("share").sum()).group_by("rank").agg(pl.col("share").mean())
    for rank, share in causes.iter_rows():
        assert share == pytest.approx(overview[rank]["idle_share"])
    gaps = trace.gaps().filter(pl.col("device").is_not_null()).group_by("rank", "step").agg(pl.col("dur_ns").sum())
    idle = {(row["rank"], row["step"]): row["free_ns"] for row in trace.overlap().iter_rows(named=True)}
    for rank, step, time in gaps.iter_rows():
        assert time == idle[rank, step]


def test_every_analysis_leaves_out_the_same_steps(trace: Trace) -> None:
    overview, times, means = (rows(frame) for frame in (
        trace.overview(), trace.step_times().filter(pl.col("stage") == "step"), trace.cluster_steps(per_step=False)))  # fmt: skip
    for rank, row in overview.items():
        assert (row["steps"], row["left_out"]) == (times[rank]["steps"], times[rank]["left_out"])
        assert row["steps"] == means[rank]["steps"]
        assert (row["step_ns"], row["p90_ns"]) == (times[rank]["p50_ns"], times[rank]["p90_ns"])
        for part, column in PARTS.items():
            mean, device = means[rank][column], means[rank]["device_ns"]
            assert mean / device == pytest.approx(row[f"{part}_share"], abs=1e-6)
    for row in trace.step_times().filter(pl.col("stage") == "exposed communication").iter_rows(named=True):
        assert row["share"] == pytest.approx(overview[row["rank"]]["exposed_communication_share"])


def test_the_input_wait_of_a_run_is_the_mean_of_that_of_its_steps(trace: Trace) -> None:
    stages = trace.step_stages().filter(pl.col("stage") == "data wait")
    steps = trace.steps.sort("rank", "start_ns").collect()
    for rank, row in rows(trace.overview()).items():
        if row["input_wait_ns"] is None:
            assert stages.filter(pl.col("rank") == rank).is_empty()
            continue
        counted = steps.filter(pl.col("rank") == rank).tail(row["steps"])
        waited = stages.filter(pl.col("rank") == rank).join(counted, on="step", how="semi")["dur_ns"].sum()
        assert row["input_wait_ns"] == pytest.approx(waited / row["steps"], abs=0.5)
        assert row["input_wait_share"] == pytest.approx(waited / (counted["end_ns"] - counted["start_ns"]).sum())


def test_calls_are_counted_alike_by_operator_type_and_step(trace: Trace) -> None:
    key = ["rank", "device", "type"]
    by_type = trace.operator_types().select(*key, "calls", "total_ns").sort(key).rows()
    for frame in (trace.operators(), trace.operator_steps()):
        assert frame.group_by(key).agg(pl.col("calls", "total_ns").sum()).sort(key).rows() == by_type
    spread = trace.durations().select(*key, "calls", "min_ns", "max_ns").sort(key).rows()
    assert spread == trace.operator_types().select(*key, "calls", "min_ns", "max_ns").sort(key).rows()


def test_the_terminal_says_what_the_analyses_say(trace: Trace) -> None:
    found = summary.figures(trace)
    overview = trace.overview().to_dicts()
    assert [{key: row[key] for key in overview[0]} for row in found["overview"]] == [pytest.approx(row) for row in overview]
    average = found["average_step"]
    if len(overview) == 1:
        for part, column in PARTS.items():
            assert average[column] / average["device_ns"] == pytest.approx(overview[0][f"{part}_share"])
    text = " ".join("".join(piece for piece, _ in line).strip() for line in summary.page(found, Path(trace.meta.source), 200))
    ranges: list[tuple[str, Callable[[float], str]]] = [(f"{part}_share", units.share) for part in PARTS] + [("step_ns", units.duration)]
    for column, write in ranges:
        values = [row[column] for row in overview]
        low, high = write(min(values)), write(max(values))
        output = low if low == high else f"{low} to {high}"
        words = rf"(A step|Step \d+) takes {output}\." if column == "step_ns" else f"{output} {column.removesuffix('_share')}"
        assert re.search(words, text) or max(values) < 0.0005
    assert re.search(r"\bbusy\b", text) is None
