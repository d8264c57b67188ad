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
from stepscope.cli import main
from stepscope.model.trace import Trace
from stepscope.readers.ascend.ascend_result import groups as ascend_groups

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


def ends(trace: Trace) -> list[tuple[int | None, int | None]]:
    return trace.links().select("src", "dst").rows()


def test_the_number_of_a_communicator_is_the_one_that_ascend_has_for_its_name(shared: Path) -> None:
    folder = shared / "ascend" / "torch_npu" / "db" / "level1" / "rank0_ascend_pt" / OUTPUT
    with closing(sqlite3.connect(folder / "ascend_pytorch_profiler_0.db")) as database:
        names = database.execute("select distinct value from STRING_IDS join COMMUNICATION_OP on id = groupName").fetchall()
    with closing(sqlite3.connect(folder / "analysis.db")) as database:
        numbers = database.execute("select distinct group_name from CommAnalyzerTime").fetchall()
    assert names == [(NAME,)] and numbers == [(NUMBER,)]
    assert str(ascend_groups.group_number(NAME)) == NUMBER
    # By hand: "ab" is 97 * 29 + 98 = 2911 above 97 * 131 + 98 = 12805.
    assert ascend_groups.group_number("ab") == 2911 * 2**32 + 12805


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
    assert what.startswith("64 transfers have ranks within a group")


def test_damaged_metadata_is_a_problem(result: Any) -> None:
    trace = stepscope.open(
        result("text", {"parallel_group_info": {NAME: {"global_ranks": "8"}, "x": 1}, "distributed_args": "{"}), cache=False
    )
    problems = trace.problems.collect().filter(where="profiler_metadata.json")
    assert problems.select("what", "lost").rows() == [("2 groups without ranks", 2)]


def test_a_job_has_as_many_ranks_as_its_transfers_name(shared: Path) -> None:
    for kind in ("text", "db"):
        trace = stepscope.open(shared / "ascend" / "torch_npu" / kind / "level1", cache=False)
        assert (trace.meta.ranks, trace.meta.world_size) == ([0, 1], 8)


def test_the_size_of_a_job_is_not_known_from_the_number_of_one_rank_nor_from_damage(result: Any, shared: Path) -> None:
    assert stepscope.open(shared / "ascend" / "torch_npu" / "text" / "level0" / "rank1_ascend_pt", cache=False).meta.world_size is None
    folder = result("text", {"parallel_group_info": {NAME: {"global_ranks": [8, 9, 2**30]}}, "distributed_args": {"world_size": 2**30}})
    assert stepscope.open(folder, cache=False).meta.world_size == 10


def test_the_summary_says_how_many_ranks_of_the_job_are_recorded(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(shared / "ascend" / "torch_npu" / "text" / "level1")]) == 0
    assert "2 of 8 ranks recorded" in capsys.readouterr().out.splitlines()[0]


def timeline(folder: Path, rank: int, groups: dict[str, list[int]], *calls: tuple[str, str, int, int, int, int]) -> None:
    """A result whose calls each have a lane of their own and one plane: name, number of the communicator, start, length, and two ranks."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "HCCL"}}]
    document = {}
    for place, (name, number, start, length, src, dst) in enumerate(calls):
        for tid, label in ((2 * place, f"Group {place} Communication"), (2 * place + 1, "Plane 0")):
            events.append({"ph": "M", "name": "thread_name", "pid": 9, "tid": tid, "args": {"name": label}})
            events.append({"ph": "M", "name": "thread_sort_index", "pid": 9, "tid": tid, "args": {"sort_index": tid}})
        span = {"ph": "X", "pid": 9, "ts": f"{start}.000", "dur": length}
        events.append({**span, "name": name, "tid": 2 * place, "args": {"data_type": "INT8", "count": 1000}})
        moved = {"src rank": src, "dst rank": dst, "size(Byte)": 1000, "link type": "HCCS", "transport type": "SDMA", "task type": "Memcpy"}
        events.append({**span, "name": "Memcpy", "tid": 2 * place + 1, "args": moved})
        times = {f"{word} Time(ms)": 0.0 for word in ("Elapse", "Transit", "Wait", "Synchronization", "Idle")}
        document[f"{name}@{number}"] = {
            "Communication Time Info": {"Start Timestamp(us)": start, **times},
            "Communication Bandwidth Info": {},
        }
    output = folder / OUTPUT
    output.mkdir(parents=True)
    (output / "trace_view.json").write_text(json.dumps(events))
    (output / "communication.json").write_text(json.dumps({"step1": {"p2p": {}, "collective": document}}))
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"config": {}, "rank_id": rank}))
    about = {name: {"group_name": "", "group_rank": ranks.index(rank), "global_ranks": ranks} for name, ranks in groups.items()}
    (folder / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": about}))


AB, AC = "12502649811461", "12506944778758"  # of the communicators "ab" and "ac", worked out by hand as above


def test_transfers_of_two_groups_at_the_same_time_are_each_of_their_own_group(tmp_path: Path) -> None:
    """Rank 2 of four: with 3 in one group, with 0 in the other, where it is the second."""
    calls = (("hcom_allReduce__461_0_1", AB, 10, 90, 0, 1), ("hcom_allReduce__758_0_1", AC, 20, 50, 1, 0))
    timeline(tmp_path / "x_ascend_pt", 2, {"ab": [2, 3], "ac": [0, 2]}, *calls)
    trace = stepscope.open(tmp_path / "x_ascend_pt", cache=False)
    assert trace.links().select("src", "dst", "bytes").rows() == [(2, 0, 1000), (2, 3, 1000)]
    assert trace.meta.world_size == 4
    assert trace.links(op="hcom_allReduce__758_0_1").select("src", "dst").rows() == [(2, 0)]


def test_a_call_is_of_the_group_that_the_digits_in_its_name_are_of(tmp_path: Path) -> None:
    timeline(tmp_path / "x_ascend_pt", 2, {"ab": [2, 3], "ac": [0, 2]}, ("hcom_allReduce__758_0_1", AC, 20, 50, 1, 0))
    (tmp_path / "x_ascend_pt" / OUTPUT / "communication.json").unlink()
    trace = stepscope.open(tmp_path / "x_ascend_pt", cache=False)
    assert trace.communication()["group"].to_list() == ["ac"] and ends(trace) == [(2, 0)]


def test_a_send_of_one_rank_meets_the_receive_of_another_by_the_groups_of_the_job(tmp_path: Path) -> None:
    """Four ranks, two stages: 0 sends to 2 and 1 to 3 under one name; rank 2 began 154 us before rank 0, rank 3 when rank 1 did."""
    for rank, name, start, length in ((0, "send", 164, 30), (1, "send", 40, 30), (2, "receive", 10, 184), (3, "receive", 40, 30)):
        ranks = [0, 2] if rank in (0, 2) else [1, 3]
        timeline(
            tmp_path / f"rank{rank}_ascend_pt", rank, {"ab": ranks}, (f"hcom_{name}__461_0_1", AB, start, length, rank // 2, 1 - rank // 2)
        )
        (tmp_path / f"rank{rank}_ascend_pt" / OUTPUT / "communication.json").unlink()
    trace = stepscope.open(tmp_path, cache=False)
    assert trace.communication().select("rank", "wait_ns", "matched").rows() == [(0, 0, 1), (1, 0, 1), (2, 154_000, 1), (3, 0, 1)]
    assert trace.links().select("rank", "src", "dst").rows() == [(0, 0, 2), (1, 1, 3), (2, 2, 0), (3, 3, 1)]
