"""Ranks of the job, and not those within a group, on the links and calls of Ascend's results."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.readers import _ascend_groups
from stepscope.trace import Trace

NAME = "90.91.105.46%enp189s0f0_60000_0_1736410538306028"  # of the communicator in db/level1
NUMBER = "17148521525495523210"  # of the same communicator, in analysis.db beside
OUTPUT = "ASCEND_PROFILER_OUTPUT"
# Rank 0 of its group of eight is made rank 8 of a job of sixteen.
GROUPS = {
    NAME: {"group_name": "tp", "group_rank": 0, "global_ranks": list(range(8, 16))},
    "127.0.0.1%lo_1_0_2": {"group_name": "dp", "group_rank": 0, "global_ranks": [8, 0]},
}
ARGS = {
    "tensor_model_parallel_size": 8,
    "pipeline_model_parallel_size": 1,
    "data_parallel_size": 2,
    "sequence_parallel": True,
    "world_size": 16,
}


@pytest.fixture
def result(shared: Path, tmp_path: Path) -> Any:
    def make(kind: str, metadata: object = None, rank: int = 8) -> Path:
        folder = tmp_path / f"{kind}_ascend_pt"
        shutil.copytree(shared / "ascend" / "torch_npu" / kind / "level1" / "rank0_ascend_pt", folder)
        for file in (*folder.glob("profiler_info*"), folder / "profiler_metadata.json"):
            file.unlink(missing_ok=True)
        for file in folder.glob(f"{OUTPUT}/*"):
            if file.suffix in (".json", ".csv"):  # the communicator of the database
                text = file.read_text()
                file.write_text(text.replace("17522688603477080586", NUMBER).replace("__586_", "__210_"))
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"config": {}, "rank_id": rank}))
        if metadata is not None:
            (folder / "profiler_metadata.json").write_text(json.dumps(metadata))
        return folder

    return make


def ends(trace: Trace) -> list[tuple[int, int]]:
    return trace.links().select("src", "dst").rows()


def test_the_number_of_a_communicator_is_the_one_that_ascend_has_for_its_name(shared: Path) -> None:
    folder = shared / "ascend" / "torch_npu" / "db" / "level1" / "rank0_ascend_pt" / OUTPUT
    with closing(sqlite3.connect(folder / "ascend_pytorch_profiler_0.db")) as database:
        names = database.execute("select distinct value from STRING_IDS join COMMUNICATION_OP on id = groupName").fetchall()
    with closing(sqlite3.connect(folder / "analysis.db")) as database:
        numbers = database.execute("select distinct group_name from CommAnalyzerTime").fetchall()
    assert names == [(NAME,)] and numbers == [(NUMBER,)]
    assert str(_ascend_groups.group_number(NAME)) == NUMBER
    # By hand: "ab" is 97 * 29 + 98 = 2911 above 97 * 131 + 98 = 12805.
    assert _ascend_groups.group_number("ab") == 2911 * 2**32 + 12805


@pytest.mark.parametrize("kind", ["text", "db"])
def test_links_are_between_ranks_of_the_job(kind: str, result: Any) -> None:
    trace = stepscope.open(result(kind, {"parallel_group_info": GROUPS, "distributed_args": ARGS}), cache=False)
    assert ends(trace) == [(8, dst) for dst in range(8, 16)]
    assert trace.meta.ranks == [8] and trace.meta.world_size == 16
    assert trace.meta.extra["parallel"] == {"tp": 8, "pp": 1, "dp": 2}
    assert trace.problems.collect().is_empty()
    calls = trace.communication()
    assert set(calls["group"]) == {NAME if kind == "db" else NUMBER}
    args = trace.spans.filter(pl.col("kind") == "communication").select("args").collect().to_series()
    assert all(json.loads(one)["Process Group Ranks"] == list(range(8, 16)) for one in args)


def test_links_of_the_matrix_alone_are_between_ranks_of_the_job(result: Any) -> None:
    folder = result("text", {"parallel_group_info": GROUPS})
    (folder / OUTPUT / "trace_view.json").unlink()
    trace = stepscope.open(folder, cache=False)
    assert ends(trace) == [(8, dst) for dst in range(8, 16)] and trace.meta.world_size == 16


def test_the_groups_of_a_database_stand_in_its_metadata(result: Any) -> None:
    folder = result("db")
    with closing(sqlite3.connect(folder / OUTPUT / "ascend_pytorch_profiler_0.db")) as database:
        database.executemany(
            "insert into META_DATA values (?, ?)",
            [("parallel_group_info", json.dumps(GROUPS)), ("distributed_args", json.dumps({"tp": 8, "dp": 2}))],
        )
        database.commit()
    trace = stepscope.open(folder, cache=False)
    assert ends(trace) == [(8, dst) for dst in range(8, 16)]
    assert trace.meta.world_size == 16 and trace.meta.extra["parallel"] == {"tp": 8, "dp": 2}


@pytest.mark.parametrize("kind", ["text", "db"])
def test_links_of_a_group_that_is_not_listed_have_no_ranks(kind: str, result: Any) -> None:
    """Rank 0 of the group is rank 8 of the job, and who the others are is not said."""
    trace = stepscope.open(result(kind), cache=False)
    assert set(ends(trace)) == {(None, None)} and trace.links()["bytes"].sum() == 7 * 61210624 + 60332352
    (what,) = trace.problems.collect()["what"]
    assert what.startswith("64 transfers count ranks within a group")


def test_damaged_metadata_is_a_problem(result: Any) -> None:
    trace = stepscope.open(
        result("text", {"parallel_group_info": {NAME: {"global_ranks": "8"}, "x": 1}, "distributed_args": "{"}), cache=False
    )
    told = trace.problems.collect().filter(where="profiler_metadata.json")
    assert told.select("what", "lost").rows() == [("2 groups without their ranks", 2)]


def test_a_job_has_as_many_ranks_as_its_transfers_name(shared: Path) -> None:
    for kind in ("text", "db"):
        trace = stepscope.open(shared / "ascend" / "torch_npu" / kind / "level1", cache=False)
        assert (trace.meta.ranks, trace.meta.world_size) == ([0, 1], 8)
