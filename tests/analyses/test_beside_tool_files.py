"""Figures of whole jobs beside those in the files of Ascend's own tools: every rank, call and link of them."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope

# torch_npu rounds the times of each task to 10 ns.
COLUMNS = {
    "Computing": "computing_ns",
    "Communication(Not Overlapped)": "exposed_ns",
    "Overlapped": "overlapped_ns",
    "Communication": "communication_ns",
}
TEXT = "ascend/torch_npu/text"
CLUSTER = "ascend/cluster_output"


@pytest.mark.parametrize("level", ["level0", "level1"])
def test_the_parts_of_a_step_are_those_of_step_trace_time(level: str, shared: Path) -> None:
    table = stepscope.open(shared / TEXT / level).overlap()
    compared = 0
    for rank in (0, 1):
        file = shared / TEXT / level / f"rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
        with file.open(newline="") as lines:
            (expected,) = csv.DictReader(lines)
        (found,) = table.filter(pl.col("rank") == rank).iter_rows(named=True)
        assert found["step"] == int(expected["Step"])
        for name, column in COLUMNS.items():
            assert found[column] == pytest.approx(float(expected[name]) * 1000, abs=20), (rank, name)
            compared += 1
    assert compared == 8


def test_the_parts_of_the_steps_of_a_cluster_are_those_of_its_table(shared: Path) -> None:
    table = {row["rank"]: row for row in stepscope.open(shared / CLUSTER).overlap().iter_rows(named=True)}
    with (shared / CLUSTER / "cluster_step_trace_time.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["Type"] == "rank"]
    assert len(rows) == len(table) == 16
    for row in rows:
        found = table[int(row["Index"])]
        for name, column in {**COLUMNS, "Free": "free_ns"}.items():
            assert found[column] == pytest.approx(float(row[name]) * 1000, abs=2), (row["Index"], name)


def test_transit_waits_and_idle_time_of_a_call_are_those_of_communication_json(shared: Path) -> None:
    table = stepscope.open(shared / TEXT / "level1").communication()
    compared = 0
    for rank in (0, 1):
        for name, times in operators(shared / TEXT / f"level1/rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/communication.json"):
            (found,) = table.filter(pl.col("rank") == rank, pl.col("name") == name).iter_rows(named=True)
            expected = [times[f"{part} Time(ms)"] * 1e6 for part in ("Elapse", "Transit", "Wait", "Idle")]
            assert [found[column] for column in ("total_ns", "transit_ns", "wait_ns", "idle_ns")] == pytest.approx(expected, abs=1)
            compared += 1
    assert compared == 8


def operators(file: Path) -> Iterator[tuple[str, dict[str, float]]]:
    for step in json.loads(file.read_text()).values():
        for kind in step.values():
            for name, entry in kind.items():
                if name != "Total Op Info":
                    yield name.partition("@")[0], entry["Communication Time Info"]


def test_bytes_and_times_of_links_are_those_of_communication_matrix_json(shared: Path) -> None:
    links = stepscope.open(shared / TEXT / "level1").table("links").collect().with_columns(pl.col("op", "transport").cast(pl.String))
    compared = 0
    for rank in (0, 1):
        file = shared / TEXT / f"level1/rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/communication_matrix.json"
        for op, src, dst, entry in matrix_entries(json.loads(file.read_text())):
            of_link = (pl.col("rank") == rank) & (pl.col("src") == src) & (pl.col("dst") == dst) & (pl.col("op") == op)
            found = links.filter(of_link)
            assert found["transport"].unique().to_list() == [entry["Transport Type"]]
            assert found["bytes"].sum() == pytest.approx(entry["Transit Size(MB)"] * 1e6, abs=1)
            assert found["dur_ns"].sum() == pytest.approx(entry["Transit Time(ms)"] * 1e6, abs=2)
            compared += 1
    assert compared == 56  # 4 calls, 7 links, 2 ranks


def matrix_entries(document: dict[str, Any]) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """The longest, middle and shortest call of each kind, by link to another rank, each once.

    Within a rank the tool counts a copy of 8 bytes of the call, which is no transfer of its data.
    """
    seen = set()
    for step in document.values():
        for kind in step.values():
            for links in kind.values():
                for pair, entry in links.items():
                    src, dst = map(int, pair.split("-"))
                    op = str(entry.get("Op Name", "")).partition("@")[0]
                    if op and src != dst and (op, src, dst) not in seen:
                        seen.add((op, src, dst))
                        yield op, src, dst, entry


def test_links_of_a_cluster_are_those_of_its_matrix(shared: Path) -> None:
    links = stepscope.open(shared / CLUSTER).table("links").collect().with_columns(pl.col("op", "transport").cast(pl.String))
    expected = dict[tuple[int, int, str], float]()
    for group in json.loads((shared / CLUSTER / "cluster_communication_matrix.json").read_text()).values():
        for step in group.values():
            for name, pairs in step.items():
                for pair, entry in pairs.items() if name != "Total Op Info" else ():
                    src, dst = map(int, pair.split("-"))
                    if src != dst:
                        key = (src, dst, entry["Transport Type"])
                        expected[key] = expected.get(key, 0.0) + entry["Transit Size(MB)"] * 1e6
    sums = links.filter(pl.col("src") != pl.col("dst")).group_by("src", "dst", "transport").agg(pl.col("bytes").sum())
    found = {(src, dst, transport): size for src, dst, transport, size in sums.iter_rows()}
    assert expected and {key: round(size) for key, size in expected.items()} == found
