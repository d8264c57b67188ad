"""What a job loses to differences between its ranks."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline_file
import stepscope
import tiny


def rows(trace: stepscope.Trace) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in trace.job_loss().iter_rows(named=True)}


def test_a_pipeline_is_replayed_with_ideal_durations(tmp_path: Path) -> None:
    loss = rows(stepscope.open(pipeline_file.write(tmp_path), cache=False))
    # A step takes 127 ms. With the mean forward pass of 14 ms: forward to 14 and 28, stage 1 from 14: 28, 48, 62, 82, and the last backward
    # pass of stage 0 to 102: 107 ms with the optimizer.
    assert (loss["all"]["step_ns"], loss["all"]["loss_ns"]) == (127_000_000, 20_000_000)
    assert loss["all"]["slowdown"] == pytest.approx(127 / 107)
    # Stage 1 as recorded and stage 0 ideal: 14, 40, 60, 86, 106, and stage 0 to 126. Stage 1 ideal and stage 0 as recorded: 10, 24, 44, 58,
    # 78, and stage 0 to 98: 24 of the 20 ms are explained.
    assert loss["stage 1"]["loss_ns"] == 24_000_000
    assert loss["stage 1"]["explained"] == pytest.approx(24 / 20)
    slowest = loss["1 of 4 workers: rank 3"]
    assert (slowest["dimension"], slowest["explained"]) == ("slowest workers", pytest.approx(24 / 20))
    assert loss["rank 3"]["slowdown"] == pytest.approx(127 / 107) and loss["rank 0"]["slowdown"] == pytest.approx(103 / 107)
    # With the mean backward pass of 20 ms nothing changes.
    assert loss["backward-compute"]["loss_ns"] == 0
    assert {row["replay"] for row in loss.values()} == {"pipeline"}


def test_operations_that_follow_no_schedule_are_not_replayed_and_the_reason_is_noted(tmp_path: Path) -> None:
    path = pipeline_file.write(tmp_path)
    pl.read_parquet(path).filter(~((pl.col("optype") == "forward-recv") & (pl.col("seq_id") == 0))).write_parquet(path)
    table = stepscope.open(path, cache=False).job_loss()
    assert table["replay"].unique().to_list() == ["steps"]
    assert table["note"][0].startswith("the operations of a stage do not follow a pipeline schedule")


@pytest.mark.parametrize("name", ["SE", "ST"])
def test_the_published_slowdowns_of_bytedance_are_reproduced(shared: Path, name: str) -> None:
    folder = shared / "straggler"
    published = {kind: json.loads((folder / f"{kind}-{name}.json").read_text()) for kind in ("result", "mw", "ms")}
    table = stepscope.open(folder / f"trace-{name}.parquet", cache=False).job_loss()
    loss = {dimension: table.filter(dimension=dimension) for dimension in ("all", "slowest workers", "stage")}
    assert loss["all"]["slowdown"].item() == pytest.approx(published["result"]["blocking_slowdown"], rel=0.001)
    assert loss["slowest workers"]["explained"].item() == pytest.approx(published["mw"]["Mw"], abs=0.001)
    assert loss["stage"]["explained"][-1] == pytest.approx(published["ms"]["Ms"], abs=0.001)


def test_without_a_pipeline_each_step_lasts_as_long_as_its_slowest_rank() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name             step  start_ns  dur_ns
            0     op             mm               0     0         100
            0     communication  gloo:all_reduce  0     100       210
            1     op             mm               0     0         100
            1     communication  gloo:all_reduce  0     100       210
            2     op             mm               0     0         300
            2     communication  gloo:all_reduce  0     300       10
        """,
        tracks="rank track kind label\n0 0 thread main\n1 0 thread main\n2 0 thread main",
        steps="rank step start_ns end_ns\n0 0 0 310\n1 0 0 310\n2 0 0 310",
    )
    loss = rows(trace)
    assert (loss["all"]["loss_ns"], loss["all"]["slowdown"]) == (200, pytest.approx(310 / 110))
    assert [loss[f"rank {rank}"]["loss_ns"] for rank in (0, 1, 2)] == [0, 0, 200]
    assert (loss["compute"]["loss_ns"], loss["host"]["loss_ns"]) == (200, 0)
    assert loss["1 of 3 workers: rank 2"]["explained"] == 1.0


def test_a_single_rank_has_no_loss() -> None:
    trace = tiny.trace(spans="kind name step start_ns dur_ns\nop mm 0 0 100", steps="step start_ns end_ns\n0 0 100")
    assert trace.job_loss().is_empty() and trace.stragglers().is_empty()
