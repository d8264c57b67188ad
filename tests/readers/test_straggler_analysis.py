"""Traces of StragglerAnalysis: one Parquet file with the operations of all ranks."""

from pathlib import Path

import polars as pl
import pytest

import pipeline_file
import stepscope
from stepscope.errors import DataError, UnknownFormatError


def test_operations_become_spans_of_their_rank_with_stage_replica_and_micro_batch(tmp_path: Path) -> None:
    trace = stepscope.open(pipeline_file.write(tmp_path), cache=False)
    assert (trace.meta.ranks, trace.meta.world_size) == ([0, 1, 2, 3], 4)
    columns = ("rank", "stage", "replica", "operation", "sequence", "micro_batch", "kind", "start_ns", "dur_ns")
    spans = trace.spans.select("rank", "span", "step", pl.col("kind").cast(pl.String), "start_ns", "dur_ns")
    rows = trace.table("stage_operations").join(spans, on=["rank", "span"]).filter(pl.col("step") == 7, pl.col("rank") == 3)
    found = rows.with_columns(pl.col("operation").cast(pl.String)).collect().sort("start_ns", "operation").select(columns).rows()
    ms = 1_000_000
    assert found[:4] == [
        (3, 1, 1, "forward-recv", 0, None, "communication", 0, 10 * ms),
        (3, 1, 1, "forward-compute", 0, 0, "kernel", 10 * ms, 26 * ms),
        (3, 1, 1, "backward-compute", 0, 0, "kernel", 36 * ms, 20 * ms),
        (3, 1, 1, "forward-recv", 1, None, "communication", 36 * ms, 0),
    ]


def test_steps_follow_each_other_and_the_missing_time_between_them_is_a_problem(tmp_path: Path) -> None:
    trace = stepscope.open(pipeline_file.write(tmp_path), cache=False)
    steps = trace.steps.filter(pl.col("rank") == 2).collect().sort("step")
    assert steps.select("step", "start_ns", "end_ns").rows() == [(7, 0, 127_000_000), (8, 127_000_000, 254_000_000)]
    assert trace.problems.collect()["what"].to_list() == [
        "times start again at 0 in each step: the time between two steps is not in the file"
    ]


def test_rows_without_a_time_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    path = pipeline_file.write(tmp_path, steps=(7,))
    table = pl.read_parquet(path)
    broken = pl.when(pl.int_range(pl.len()) < 3).then(float("nan")).otherwise("duration")
    table.with_columns(duration=broken).write_parquet(path)
    trace = stepscope.open(path, cache=False)
    assert trace.spans.filter(pl.col("kind") != "step").collect().height == table.height - 3
    assert trace.problems.filter(pl.col("lost") == 3).collect().height == 1


def test_a_trace_without_its_meta_file_opens_without_a_world_size(tmp_path: Path) -> None:
    path = pipeline_file.write(tmp_path)
    (tmp_path / "meta-BY.yaml").unlink()
    trace = stepscope.open(path, cache=False)
    assert trace.meta.world_size is None
    assert "the size of the job is not known" in trace.problems.collect()["what"].str.join(" ").item()


def test_other_and_damaged_parquet_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pl.DataFrame({"rank": [1], "step": [1]}).write_parquet(other)
    with pytest.raises(UnknownFormatError, match="Parquet table"):
        stepscope.open(other, cache=False)
    path = pipeline_file.write(tmp_path)
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"not a readable Parquet file|no operation"):
        stepscope.open(path, cache=False)
