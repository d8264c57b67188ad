"""What MindInsight shows wrongly of its own files is right on the pages here: B1 to B12 of the list of its faults.

The same folders, and what the analyses say of them: tests/readers/test_mindinsight.py. Expected figures are written by hand.
"""

# ruff: noqa: E501 - tables as the tools write them

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

OPERANDS = '"{""input_0"": {""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""2,3""}, ""input_1"": {""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""3,4""}}"'
OLD_FRAMEWORK = f"task_id,stream_id,block_dim,full_op_name,op_name,op_type,subgraph,op_info\n1,0,1,Default/net/MatMul-op1,MatMul-op1,MatMul,Default,{OPERANDS}\n2,0,1,Default/net/Cast-op2,Cast-op2,Cast,Default,\n"
OLD_DETAIL = "full_op_name,execution_time\nDefault/net/MatMul-op1,0.25\nDefault/net/Cast-op2,3.0\n"
NEW_FRAMEWORK = f"task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info\n1,0,1,Default/net/MatMul-op1,Default/net/MatMul-op1,MatMul-op1,MatMul,Default,{OPERANDS}\n2,0,1,Default/net/Cast-op2,Default/net/Cast-op2,Cast-op2,Cast,Default,\n"
NEW_DETAIL = "full_kernel_name,execution_time,execution_frequency\nDefault/net/MatMul-op1,0.25,4\nDefault/net/Cast-op2,3.0,1\n"
TYPES = "kernel_type,total_time,execution_frequency,percent\nCast,3.0,1,75.0\nMatMul,1.0,4,25.0\n"
FLOPS = "full_kernel_name, FLOPs, FLOPS, FLOPS utilization\nDefault/net/MatMul-op1, 2, 8, 1.5\n"
HCCL = """step_num,communication_cost,wait_cost,link_info,communication_operator_cost
1,3.0,1.0,"{""0-1"": {""SDMA"": [3.0, 4000.0, 5000.0]}}","{""AllReduce-op1"": [1, 1.0, 0.5, {""0-1"": {""SDMA"": [1.0, 1000.0, 1000.0]}}], ""AllReduce-op2"": [1, 2.0, 0.5, {""0-1"": {""SDMA"": [2.0, 3000.0, 4000.0]}}]}"
-,3.0,1.0,"{""0-1"": {""SDMA"": [3.0, 4000.0, 5000.0]}}","{}"
"""
CPU = {"sampling_interval": 1000, "cpu_processor_num": 4, "time_stamp": [1000, 2000, 3000],
       "device_info": {"user_utilization": [10, 20, 30], "idle_utilization": [90, 80, 70], "runable_processes": [1, 2, 3]}}  # fmt: skip
GRAPH = {"static_mem": 0.0, "nodes": [{"node_id": 0, "name": "a", "size": 1}], "lines": [0.25, 0.5],
         "breakdowns": [[{"tensor_name": "t", "size": 0.25, "life_start": 0, "life_end": 1}]]}  # fmt: skip
SHARDS = {
    "dtype": "DT_TUPLE",
    "values": [{"dtype": "DT_TUPLE", "values": [{"dtype": "DT_INT64", "intVal": "2"}, {"dtype": "DT_INT64", "intVal": "1"}]}],
}
STRATEGY = {"config": {"rankId": 0, "stageId": 0, "parallelType": "auto_parallel"},
            "graph": {"node": [{"name": "1", "opType": "MatMul", "scope": "Default", "attribute": [{"name": "in_strategy", "value": SHARDS}]}]}}  # fmt: skip
CALL = "op_name, stream_id, start_time(ms), duration(ms)\nDefault/MatMul-op1,2,0.0002,0.0007\n"


def steps(*ends: int) -> str:
    """In counts of 10 ns; each step begins where the one before ends, with 10 counts of interval and 20 of tail."""
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail\n"
    rows = [f"{n + 1},{s},{e},{e - s},{s + 10},{e - 20},10,{e - s - 30},20" for n, (s, e) in enumerate(itertools.pairwise(ends))]
    return head + "\n".join([*rows, "-,0,0,1,0,0,1,1,1"]) + "\n"


FOLDERS: dict[str, dict[str, Any]] = {
    "old": {"framework_raw_0.csv": OLD_FRAMEWORK, "aicore_intermediate_0_detail.csv": OLD_DETAIL},
    "new": {"framework_raw_0.csv": NEW_FRAMEWORK, "aicore_intermediate_0_detail.csv": NEW_DETAIL, "aicore_intermediate_0_type.csv": TYPES, "flops_0.txt": FLOPS},
    "links": {f"{name}_{rank}{end}": text for rank in (0, 2) for name, end, text in (("hccl_raw", ".csv", HCCL), ("step_trace_raw", "_detail_time.csv", steps(0, 100)))},
    "steps": {"step_trace_raw_0_detail_time.csv": steps(0, 100, 200, 500), "step_trace_raw_1_detail_time.csv": steps(0, 400)},
    "machine": {"minddata_cpu_utilization_0.json": CPU, "memory_usage_details_0.json": {"0": GRAPH, "1": GRAPH | {"lines": [1.0]}}, "device_queue_profiling_0.txt": ""},
    "strategy": {"parallel_strategy_0.json": STRATEGY, "profiler_info_0.json": {"rank_id": "0", "rank_size": 8}},
    "clock": {"step_trace_raw_0_detail_time.csv": steps(0, 100), "output_timeline_data_0.txt": CALL, "profiler_info_0.json": {"rank_id": "0", "diff_time": -2.0}},
}  # fmt: skip
ITERATION = [
    {"name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}, "ph": "M"},
    {"name": "thread_name", "pid": 3, "tid": 9, "args": {"name": "Model ID:2"}, "ph": "M"},
    {"name": "Iteration 1", "cat": "Iteration Time", "pid": 3, "tid": 9, "ts": 10.0, "dur": 5.0, "ph": "X", "args": {"Iteration ID": 1, "FP Start": 11.0, "BP End": 13.5}},
    {"name": "Default/MatMul-op1", "pid": 3, "tid": 2, "ts": 11.0, "dur": 1.5, "ph": "X", "args": {"Task Type": "AI_CORE"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    base = Path(tmp_path_factory.mktemp("mindinsight"))
    for name, files in FOLDERS.items():
        folder = base / name / "profiler"
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    timeline = base / "iterations" / "PROF_1" / "device_0" / "timeline" / "msprof_0_2_1.json"
    timeline.parent.mkdir(parents=True)
    timeline.write_text(json.dumps(ITERATION))
    return base


@pytest.fixture
def opened(server: Any, page: Any, runs: Path) -> Any:
    """A page of one of the folders, all of it there."""

    def go(run: str, name: str, query: str = "") -> Any:
        served = server(runs)
        (found,) = (one["id"] for one in served.ask("api/runs").json()["runs"] if one["name"].split("/")[0] == run)
        page.goto(served.url(f"#/{found}/{name}{query}"))
        page.locator("h1.verdict", has_not_text=re.compile("^…$")).wait_for()
        return page

    return go


def grid(page: Any, label: str | None = None) -> Any:
    """The table of this name; without one the first."""
    found = page.locator("[role=grid], [role=treegrid]")
    return (found if label is None else page.locator(f"[aria-label='{label}']").and_(found)).first


def rows(page: Any, label: str | None = None) -> list[list[str]]:
    """Its cells, as shown."""
    table = grid(page, label)
    table.locator("[role=gridcell]").first.wait_for()
    found = table.locator("[role=row]:not(:has([role=columnheader]))").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.innerText.replace(/\\s+/g, ' ').trim()))"
    )
    return [[str(cell) for cell in row] for row in found]


def test_b1_the_oldest_columns_show_types_and_shapes(opened: Any) -> None:
    page = opened("old", "operators", "?view=all")
    assert [row[:4] for row in rows(page)] == [
        ["Default/net/Cast-op2", "Cast", "Default/net", "1"],
        ["Default/net/MatMul-op1", "MatMul", "Default/net", "1"],
    ]
    page.get_by_text("Default/net/MatMul-op1").first.click()
    assert "[2, 3]" in page.locator(".drawer").inner_text()


def test_b2_and_b4_shares_totals_and_means_are_what_they_are_called(opened: Any) -> None:
    """The file says 75 and 25 percent, which MindInsight shows as 7500; Cast is 3 ms once, MatMul four times 0.25."""
    page = opened("new", "operators")
    assert page.locator("h1").inner_text().replace("\u202f", " ").startswith("75.0 % of the device time goes to copies and casts")
    found = {row[0]: row for row in rows(page)}
    assert found["Cast"][1:5] == ["1", "3.00 ms", "75.0 %", "3.00 ms"]
    assert found["MatMul"][1:5] == ["4", "1.00 ms", "25.0 %", "0.25 ms"]
    page = opened("new", "overview")
    assert "Cast\n3.00 ms\n75.0 %" in page.locator("main").inner_text().replace("\u202f", " ")


def test_b3_every_column_sorts(opened: Any) -> None:
    page = opened("new", "operators", "?view=all")
    heads = grid(page).get_by_role("columnheader")
    before = sorted(row[0] for row in rows(page))
    sortable = [at for at in range(heads.count()) if heads.nth(at).get_attribute("aria-sort") is not None]
    assert len(sortable) > 5
    for at in sortable:
        heads.nth(at).click()
        assert sorted(row[0] for row in rows(page)) == before, heads.nth(at).inner_text()
    heads.first.click()
    first = [row[0] for row in rows(page)]
    heads.first.click()
    assert [row[0] for row in rows(page)] == first[::-1] and len(first) == 2


def test_b5_and_b6_a_link_has_an_owner_the_ranks_of_the_job_and_its_bytes_by_its_time(opened: Any) -> None:
    """4 MB in 3 ms; MindInsight adds up the rates of operators, and shows the link of ranks 2 and 3 as that of 0 and 1."""
    page = opened("links", "communication")
    assert rows(page, "Links") == [
        ["0", "0", "1", "SDMA", "2", "4.00 MB", "3.00 ms", "1.33 GB/s"],
        ["2", "2", "3", "SDMA", "2", "4.00 MB", "3.00 ms", "1.33 GB/s"],
    ]
    output = page.locator("h1").inner_text().replace("\u202f", " ")
    assert output == (
        "The ranks communicate for 8.00 ms in total and wait 2.00 ms of it for one another. "
        "Exposed communication is unknown: the calls have no timestamps."
    )


def test_b7_ranks_with_different_numbers_of_steps_each_have_their_own_mean(opened: Any) -> None:
    """1, 1 and 3 µs on rank 0, 4 µs on rank 1: no step of rank 1 is made up."""
    page = opened("steps", "communication")
    assert [row[:3] for row in rows(page)] == [["0", "3", "1.67 µs"], ["1", "1", "4.00 µs"]]
    page = opened("steps", "steps", "?rank=1")
    assert page.locator("h1").inner_text().replace("\u202f", " ") == "The only recorded step takes 4.00 µs."


def test_b8_flops_are_shown_by_operator_and_by_scope(opened: Any) -> None:
    """2 million a call, four calls in 1 ms."""
    page = opened("new", "flops")
    page.wait_for_function("() => document.querySelector('h1')?.innerText.includes('MFLOP')")
    assert page.locator("h1").inner_text().replace("\u202f", " ").startswith("8.00 MFLOP in operators, at 8.00 GFLOP/s")
    page = opened("new", "flops", "?view=table")
    assert "Default/net/MatMul-op1" in page.locator("main").inner_text()
    assert page.get_by_text("Sankey").count() and page.get_by_text("Icicle").count()


def test_b9_a_series_that_is_missing_costs_only_itself(opened: Any) -> None:
    """There is no system time: 10, 20 and 30 percent are not idle, of which the first is about no known time."""
    page = opened("machine", "cpu")
    output = page.locator("h1").inner_text().replace("\u202f", " ")
    assert re.match(r"CPU is 25\.0 % busy: 1(\.0+)? of 4 cores on average", output), output
    page = opened("machine", "memory")
    assert page.locator("h1").inner_text().replace("\u202f", " ") == "1.07 GB are allocated at the peak on npu 0."
    assert "null" not in page.locator("main").inner_text()


def test_b10_a_strategy_of_one_rank_of_eight_is_shown_and_nothing_loads_for_ever(opened: Any) -> None:
    page = opened("strategy", "communication")
    (row,) = rows(page, "Parallel strategy")
    assert [row[0], *row[3:7]] == ["0", "Default/MatMul-op1", "MatMul", "forward", "[[2, 1]]"]
    page = opened("strategy", "overview")
    assert page.locator(".loading").count() == 0
    assert "no steps" in page.locator("h1").inner_text()


def test_b11_iterations_are_there_whatever_their_thread_is_called(opened: Any) -> None:
    page = opened("PROF_1", "steps")
    assert page.locator("h1").inner_text().replace("\u202f", " ") == "The only recorded step takes 5.00 µs."
    text = page.locator("main").inner_text().replace("\u202f", " ")
    assert re.search(r"Interval\t0\t1\.00 µs", text) and re.search(r"Tail\t3\.50 µs\t5\.00 µs", text), text


def test_b12_the_clocks_offset_moves_steps_and_operators_alike(opened: Any) -> None:
    """The call of 700 ns is in the step: MindInsight moves one of them the other way."""
    page = opened("clock", "overview")
    assert page.locator("h1").inner_text().replace("\u202f", " ").startswith("NPU is idle 30.0 % of the step")


def test_b12_every_graph_has_its_memory_and_an_empty_queue_is_no_error(opened: Any) -> None:
    page = opened("machine", "memory")
    assert "3 samples · 2 blocks" in page.locator(".facts").inner_text()
    page = opened("machine", "data")
    assert page.locator("h1").inner_text() == "This recording does not show how the training gets its data."
