"""Where each rank ran, and the groups that it is in, from headers and names of recordings."""

import json
from pathlib import Path

import pytest

import stepscope
from stepscope.io.host_names import host_in_name
from stepscope.readers.ascend.ascend_result import groups
from stepscope.readers.common.documents import member_text


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("node-7_4242.1700000000000.pt.trace.json.gz", "node-7"),
        ("node-7_4242_20260101120000000_ascend_pt", "node-7"),
        ("vm.xplane.pb", "vm"),
        ("rank_3.1700000000000.pt.trace.json", None),
        ("rank0_ascend_pt", None),
        ("trace.json", None),
    ],
)
def test_names_that_profilers_give_contain_the_host(name: str, host: str | None) -> None:
    assert host_in_name(Path(name)) == host


def _trace(path: Path, rank: int, **job: object) -> Path:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2, **job}, "traceEvents": [op]}))
    return path


GROUPS = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}, {"pg_name": "7", "pg_desc": "mesh_tp", "ranks": [0, 1]}]


def test_the_groups_and_the_host_of_each_rank_are_read_and_exported(tmp_path: Path) -> None:
    for rank in range(2):
        _trace(tmp_path / f"node{rank}_1{rank}.1700000000000.pt.trace.json", rank, pg_config=GROUPS)
    trace = stepscope.open(tmp_path, cache=False)
    assert trace.table("hosts").collect().sort("rank").rows() == [(0, "node0"), (1, "node1")]
    table = trace.table("process_groups").collect().sort("rank", "group")
    assert table.select("rank", "group", "description", "members").rows()[:2] == [(0, "0", "default_pg", "0,1"), (0, "7", "mesh_tp", "0,1")]
    assert trace.parallel_map().select("host", "tp").rows() == [("node0", 0), ("node1", 1)]
    assert trace.hangs().is_empty()
    from stepscope.exporters import exporter

    exporter("chrome").function(trace, tmp_path / "out")
    back = stepscope.open(tmp_path / "out", cache=False)
    assert back.parallel_map().equals(trace.parallel_map())


def test_early_versions_list_groups_by_name_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    trace = stepscope.open(_trace(tmp_path / "t.json", 0, pg_config={"3": {"ranks": [0, 1]}, "4": 5}), cache=False)
    assert trace.table("process_groups").collect().select("group", "members").rows() == [("3", "0,1"), ("4", None)]
    damaged = stepscope.open(_trace(tmp_path / "u.json", 0, pg_config=[{"ranks": [0]}]), cache=False).problems.collect()
    assert any("pg_config is unusable" in what for what in damaged["what"])


def test_groups_of_ascend_have_the_names_of_the_framework() -> None:
    entry = {"10.0.0.1%eth0_60000_0_1": {"group_name": "tp", "group_rank": 0, "global_ranks": [0, 1]}}
    parallel = groups.parse({"parallel_group_info": json.dumps(entry)}, [])
    assert parallel.descriptions == {"10.0.0.1%eth0_60000_0_1": "tp"}


def test_abbreviated_ranks_of_a_group_are_not_known() -> None:
    assert (member_text("[0, 1]"), member_text("[0, 1, ..., 7]"), member_text([0, 1, 2]), member_text(None)) == ("0,1", None, "0,1,2", None)
