"""MindInsight's profiler folders. What MindInsight 2.3.1 shows wrongly of such files is shown rightly: B1 to B12 of its own faults.

The folders here are written by hand, in the columns of each generation; those of MindInsight's own tests are read where they are present.
"""

# ruff: noqa: E501 - tables as the tools write them

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.model.trace import Trace, analysis_names
from stepscope.readers.mindinsight import reader as mindinsight
from tiny import assert_rows

DATA = Path(__file__).parents[3] / "shared" / "data"
OWN = DATA / "mindinsight"
LEGACY = DATA / "ascend" / "legacy" / "expected" / "run_1" / "normal_run" / "profiler"


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """A profiler folder of these files, opened."""

    def make(**files: str | dict[str, Any] | list[Any]) -> Trace:
        path = tmp_path / "profiler"
        path.mkdir(exist_ok=True)
        for name, content in files.items():
            word, _, ending = name.rpartition("__")
            (path / f"{word}.{ending}").write_text(content if isinstance(content, str) else json.dumps(content))
        return stepscope.open(path, cache=False)

    return make


NEW_FRAMEWORK = """task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info
1,0,1,Default/net/MatMul-op1,Default/net/MatMul-op1,MatMul-op1,MatMul,Default,"{""input_0"": {""format"": ""ND"", ""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""2,3""}, ""input_1"": {""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""3,4""}}"
2,0,1,Gradients/Default/net/Cast-op2,Gradients/Default/net/Cast-op2,Cast-op2,Cast,Gradients,"{""input_0"": {""data_type"": ""FLOAT32"", ""shape"": [5]}}"
"""
OLD_FRAMEWORK = """task_id,stream_id,block_dim,full_op_name,op_name,op_type,subgraph,op_info
1,0,1,Default/net/MatMul-op1,MatMul-op1,MatMul,Default,"{""input_0"": {""format"": ""ND"", ""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""2,3""}, ""input_1"": {""data_type"": ""NUMBER_TYPE_FLOAT16"", ""shape"": ""3,4""}}"
2,0,1,Gradients/Default/net/Cast-op2,Cast-op2,Cast,Gradients,"{""input_0"": {""data_type"": ""FLOAT32"", ""shape"": [5]}}"
"""
NEW_DETAIL = "full_kernel_name,execution_time,execution_frequency\nDefault/net/MatMul-op1,0.25,4\nGradients/Default/net/Cast-op2,3.0,1\n"
OLD_DETAIL = "full_op_name,execution_time\nDefault/net/MatMul-op1,0.25\nGradients/Default/net/Cast-op2,3.0\n"
OPERATORS = """
device name                           type   scope                 calls total_ns avg_ns  share  shapes         dtypes
aicore Gradients/Default/net/Cast-op2 Cast   Gradients/Default/net 1     3000000  3000000 0.75   [[5]]          ["float32"]
aicore Default/net/MatMul-op1         MatMul Default/net           4     1000000  250000  0.25   [[2,3],[3,4]]  ["float16","float16"]
"""


def test_b1_columns_of_every_generation_tell_the_types_and_shapes(folder: Any) -> None:
    """MindInsight answers 500 for the older eight columns."""
    assert_rows(folder(framework_raw_0__csv=NEW_FRAMEWORK, aicore_intermediate_0_detail__csv=NEW_DETAIL).operators(), OPERATORS)
    old = folder(framework_raw_0__csv=OLD_FRAMEWORK, aicore_intermediate_0_detail__csv=OLD_DETAIL).operators()
    assert old.select("name", "type", "shapes", "dtypes").sort("name").rows() == [
        ("Default/net/MatMul-op1", "MatMul", "[[2,3],[3,4]]", '["float16","float16"]'),
        ("Gradients/Default/net/Cast-op2", "Cast", "[[5]]", '["float32"]'),
    ]
    assert old["avg_ns"].to_list() == [3_000_000, 250_000]


@pytest.mark.parametrize("percent", [("0.75", "0.25"), ("75.0", "25.0")])
def test_b2_shares_are_of_what_is_there_whatever_the_file_calls_percent(folder: Any, percent: tuple[str, str]) -> None:
    """MindInsight shows 7500 % for files whose percent is 0 to 100 already."""
    types = f"kernel_type,total_time,execution_frequency,percent\nCast,3.0,1,{percent[0]}\nMatMul,1.0,4,{percent[1]}\n"
    trace = folder(framework_raw_0__csv=NEW_FRAMEWORK, aicore_intermediate_0_detail__csv=NEW_DETAIL, aicore_intermediate_0_type__csv=types)
    assert dict(trace.operator_types().select("type", "share").iter_rows()) == {"Cast": 0.75, "MatMul": 0.25}


def test_b3_every_column_of_the_operators_sorts(folder: Any) -> None:
    """MindInsight refuses to sort by the names of kernels and types."""
    table = folder(framework_raw_0__csv=NEW_FRAMEWORK, aicore_intermediate_0_detail__csv=NEW_DETAIL).operators()
    for column in table.columns:
        assert table.sort(column).height == 2, column
    assert table.sort("name")["type"].to_list() == ["MatMul", "Cast"]


def test_b4_totals_are_totals_and_averages_are_averages(folder: Any) -> None:
    """MindInsight's overview prints totals as time of a call, and its pie is of averages: here Cast is 3 of 4 ms in all."""
    types = folder(framework_raw_0__csv=NEW_FRAMEWORK, aicore_intermediate_0_detail__csv=NEW_DETAIL).operator_types()
    rows = """
    type   calls total_ns avg_ns  share
    Cast   1     3000000  3000000 0.75
    MatMul 4     1000000  250000  0.25
    """
    assert_rows(types, rows)


HCCL = """step_num,communication_cost,wait_cost,link_info,communication_operator_cost
1,3.0,1.0,"{""0-1"": {""SDMA"": [3.0, 4000.0, 5000.0]}}","{""AllReduce-op1"": [1, 1.0, 0.5, {""0-1"": {""SDMA"": [1.0, 1000.0, 1000.0]}}], ""AllReduce-op2"": [1, 2.0, 0.5, {""0-1"": {""SDMA"": [2.0, 3000.0, 4000.0]}}]}"
2,1.0,1.0,"{""0-1"": {""SDMA"": [1.0, 1000.0, 1000.0]}}","{""AllReduce-op1"": [2, 1.0, 0.5, {""0-1"": {""SDMA"": [1.0, 1000.0, 1000.0]}}]}"
-,2.0,1.0,"{""0-1"": {""SDMA"": [2.0, 2500.0, 3000.0]}}","{}"
"""


def test_b5_the_bandwidth_of_a_link_is_its_bytes_by_its_time(folder: Any) -> None:
    """MindInsight adds up the rates of operators: 5 MB/s in step 1, where 4 MB took 3 ms."""
    links = folder(hccl_raw_0__csv=HCCL).links(step=1)
    assert links.select("src", "dst", "transport", "transfers", "bytes", "total_ns").rows() == [(0, 1, "SDMA", 2, 4_000_000, 3_000_000)]
    assert links["bytes_per_s"][0] == pytest.approx(4e6 / 3e-3)
    assert folder(hccl_raw_0__csv=HCCL).links()["bytes"].to_list() == [5_000_000]  # the average is no transfer


def test_b6_a_link_has_an_owner_and_ranks_of_the_whole_job(folder: Any) -> None:
    """In files of ranks 2 and 3, whose group counts from 0, MindInsight shows the link of ranks 0 and 1 again."""
    trace = folder(hccl_raw_0__csv=HCCL, hccl_raw_2__csv=HCCL)
    assert trace.links(step=2).select("rank", "src", "dst").rows() == [(0, 0, 1), (2, 2, 3)]
    assert "their rank 0 is read as rank 2 of the job" in trace.of_rank(2).problems.collect()["what"][0]


def step_rows(*ends: int) -> str:
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail\n"
    rows = [f"{n + 1},{s},{e},{e - s},{s + 10},{e - 20},10,{e - s - 30},20" for n, (s, e) in enumerate(itertools.pairwise(ends))]
    return head + "\n".join([*rows, "-,0,0,100,0,0,10,70,20"]) + "\n"


def test_b7_ranks_with_different_numbers_of_steps_are_each_averaged_over_their_own(folder: Any) -> None:
    """MindInsight limits all to the number of whichever file it finds first."""
    trace = folder(step_trace_raw_0_detail_time__csv=step_rows(0, 100, 200, 500), step_trace_raw_1_detail_time__csv=step_rows(0, 400))
    means = trace.cluster_steps(per_step=False, warmup=0).sort("rank")
    assert means.select("rank", "steps", "total_ns").rows() == [(0, 3, 1667), (1, 1, 4000)]
    steps = trace.step_trace()
    assert steps.filter(pl.col("rank") == 0).select("step", "total_ns", "interval_ns", "fp_bp_ns", "tail_ns").row(2) == (
        3,
        3000,
        100,
        2700,
        200,
    )


def test_b8_flops_are_shown_by_operator_and_by_scope_from_every_generation_of_the_file(folder: Any) -> None:
    """MindInsight reads five columns, of which there are four or seven, and has no way to open its own diagram of scopes."""
    old = "full_kernel_name, FLOPs, FLOPS, FLOPS utilization\nDefault/net/MatMul-op1, 2, 8, 1.5\n"
    new = """full_kernel_name, MFLOPs(10^6 cube), GFLOPS(10^9 cube), FLOPS utilization(cube), MFLOPs(10^6 vector), GFLOPS(10^9 vector), FLOPS utilization(vec)
Default/net/MatMul-op1, 1.5, 6, 1.5, 0.5, 2, 0.1
"""
    for text in (old, new):
        trace = folder(framework_raw_0__csv=NEW_FRAMEWORK, aicore_intermediate_0_detail__csv=NEW_DETAIL, flops_0__txt=text)
        row = trace.flops().filter(pl.col("flops") > 0).row(0, named=True)
        assert (row["name"], row["calls"], row["flops"], row["time_ns"]) == ("Default/net/MatMul-op1", 4, 8_000_000, 1_000_000)
        assert row["flops_per_s"] == pytest.approx(8e9)
        assert 8_000_000 in trace.flops_by_scope()["flops"].to_list()
    devices = folder(flops_summary_0__json={"FLOPs": 1.0, "FLOPS": 2.0}).devices.collect()
    assert devices.select("step_flops", "flops_per_s").rows() == [(1_000_000, 2e9)]


def test_b9_a_missing_series_costs_only_itself(folder: Any) -> None:
    """MindInsight's page fails whole where `runnable_process` is spelt otherwise, and where a node has no `outputs`."""
    cpu = {
        "sampling_interval": 10, "cpu_processor_num": 4, "time_stamp": [10, 20, 30],
        "device_info": {"user_utilization": [10, 20, 30], "idle_utilization": [90, 80, 70], "runable_processes": [1, 2, 3]},
    }  # fmt: skip
    memory = {"0": {"graph_id": 0, "static_mem": 0.5, "nodes": [{"node_id": 0, "name": "a", "size": 1}], "lines": [0.5, 1.0]}}
    trace = folder(minddata_cpu_utilization_0__json=cpu, memory_usage_details_0__json=memory)
    machine = trace.cpu().filter(pl.col("of") == "machine")
    assert machine["user_share"].to_list() == pytest.approx([0.1, 0.2, 0.3])
    assert machine["run_queue"].to_list() == [1, 2, 3]
    assert trace.memory()["allocated_bytes"].to_list() == [2**29, 2**30]


def test_samples_of_queues_without_times_begin_with_the_first_step(folder: Any) -> None:
    """They have an interval, and no clock: from 0 on they would lie hours before the steps, on the timeline."""
    queues = {
        "sampling_interval": 10,
        "op_info": [{"op_id": 0, "op_type": "Batch", "num_workers": 4, "metrics": {"output_queue": {"size": [1, 2, 3], "length": 8}}}],
    }
    head = "step_num,start_point,end_point,total,fp_point,bp_point\n"
    trace = folder(pipeline_profiling_0__json=queues, step_trace_raw_0_detail_time__csv=f"{head}1,5000,9000,4000,5100,8000\n")
    counters = trace.counters.filter(pl.col("name").cast(pl.String) == "queue 0 Batch").select("at_ns", "value").collect()
    # A count of the clock is 10 ns.
    assert counters.rows() == [(50_000, 1.0), (10_050_000, 2.0), (20_050_000, 3.0)]


def test_samples_of_the_machine_that_are_all_zero_were_not_taken_and_the_next_are_about_the_time_of_both(folder: Any) -> None:
    """MindSpore 2.10 writes zeros every second time: counted in, they would halve the use of the machine."""
    cpu = {
        "sampling_interval": 10, "cpu_processor_num": 2, "time_stamp": [100, 150, 200, 260, 300],
        "device_info": {
            "user_utilization": [0, 0, 60, 0, 70], "sys_utilization": [0, 0, 30, 0, 10], "idle_utilization": [0, 0, 0, 0, 20],
            "context_switch_count": [0, 0, 400, 0, 250], "runnable_process": [7, 7, 8, 8, 6],
        },
    }  # fmt: skip
    trace = folder(minddata_cpu_utilization_0__json=cpu)
    machine = trace.cpu(of="machine")
    assert machine["user_share"].to_list() == [None, None, 0.6, None, pytest.approx(0.7)]
    assert machine["context_switches_per_s"].to_list() == [None, None, 400 / 0.1, None, 250 / 0.1]
    assert machine["run_queue"].to_list() == [7, 7, 8, 8, 6]
    use = trace.cpu_use(of="machine").row(0, named=True)
    assert (use["samples"], use["covered_ns"], use["user_share"]) == (2, 200_000_000, pytest.approx(0.65))


def test_b10_nothing_to_show_is_an_empty_table_that_is_valid_json(folder: Any) -> None:
    """MindInsight answers `Infinity`, or loads for ever where strategy files are missing."""
    trace = folder(parallel_strategy_0__json={"config": {"rankId": 0, "parallelType": "auto_parallel"}, "graph": {"node": []}})
    for name in analysis_names():
        json.loads(trace.analyse(name).write_json(), parse_constant=pytest.fail)


@pytest.mark.parametrize("thread", ["Model ID:2", "Step Trace(Model ID:2)", "Step Trace(Model ID:12)"])
def test_b11_iterations_appear_whatever_their_thread_is_called(tmp_path: Path, thread: str) -> None:
    events = [
        {"name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}, "ph": "M"},
        {"name": "thread_name", "pid": 3, "tid": 9, "args": {"name": thread}, "ph": "M"},
        {"name": "Iteration 1", "cat": "Iteration Time", "pid": 3, "tid": 9, "ts": 10.0, "dur": 5.0, "ph": "X",
         "args": {"Iteration ID": 1, "FP Start": 11.0, "BP End": 13.5}},
        {"name": "Default/MatMul-op1", "pid": 3, "tid": 2, "ts": 11.0, "dur": 1.5, "ph": "X", "args": {"Task Type": "AI_CORE"}},
    ]  # fmt: skip
    file = tmp_path / "PROF_1" / "device_0" / "timeline" / "msprof_0_2_1.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(events))
    steps = stepscope.open(tmp_path / "PROF_1", cache=False).step_trace()
    assert steps.select("step", "total_ns", "interval_ns", "fp_bp_ns", "tail_ns").rows() == [(1, 5000, 1000, 2500, 1500)]


def test_b12_the_offset_of_a_ranks_clock_moves_all_of_it_alike(folder: Any) -> None:
    """MindInsight adds it to one track and takes it from the others."""
    data = "op_name, stream_id, start_time(ms), duration(ms)\nDefault/MatMul-op1,2,0.0002,0.0007\n"
    plain = folder(step_trace_raw_0_detail_time__csv=step_rows(0, 100), output_timeline_data_0__txt=data)
    before = plain.step_trace().row(0, named=True), plain.overlap(), plain.spans.collect()["start_ns"].to_list()
    moved = folder(profiler_info_0__json={"rank_id": "0", "diff_time": -2.0})
    after = moved.step_trace().row(0, named=True), moved.overlap(), moved.spans.collect()["start_ns"].to_list()
    for name in ("start_ns", "end_ns", "fp_start_ns", "bp_end_ns"):
        assert after[0][name] == before[0][name] + 2000
    assert after[2] == [at + 2000 for at in before[2]] == [2200]
    assert after[1].equals(before[1]) and before[1]["computing_ns"].to_list() == [700]


def test_b12_every_graph_has_its_memory_and_an_empty_queue_file_is_no_division_by_zero(folder: Any) -> None:
    graph = {
        "static_mem": 0.0,
        "nodes": [],
        "lines": [0.25, 0.5],
        "breakdowns": [[{"tensor_name": "t", "size": 0.25, "life_start": 0, "life_end": 1}]],
    }
    trace = folder(memory_usage_details_0__json={"0": graph, "1": graph | {"lines": [1.0]}}, device_queue_profiling_0__txt="")
    assert trace.memory()["allocated_bytes"].to_list() == [2**28, 2**29, 2**30]
    assert trace.allocations.collect().select("bytes", "alloc_ns", "free_ns").rows() == [(2**28, 0, 2000), (2**28, 2000, 4000)]
    assert trace.data_queues().is_empty()


def test_collectives_of_a_step_are_read_in_either_order_of_their_columns(folder: Any) -> None:
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail,"
    row = "1,0,100,100,0,80,0,80,20,"
    early = head + "stream_7_1_AllReduce-op3_start_point,stream_7_1_AllReduce-op3_end_point,stream_7_1_AllReduce-op3\n" + row + "30,60,30\n"
    late = head + "stream_7_1_AllReduce-op3,stream_7_1_AllReduce-op3_start_point,stream_7_1_AllReduce-op3_end_point\n" + row + "30,30,60\n"
    for text in (early, late):
        calls = folder(step_trace_raw_0_detail_time__csv=text).reduces()
        assert calls.select("step", "name", "stream", "start_ns", "dur_ns").rows() == [(1, "AllReduce-op3", "Stream 7", 300, 300)]


def test_inference_has_steps_without_a_backward_pass(folder: Any) -> None:
    text = "step_num,start_point,end_point,total,fp_point,fp,iteration_interval\n1,0,100,100,10,90,10\n-,0,0,100,0,90,10\n"
    trace = folder(step_trace_raw_0_detail_time__csv=text)
    assert trace.steps.collect().select("phase", "fp_start_ns", "bp_end_ns").rows() == [("infer", 100, None)]


def test_means_are_not_taken_for_a_timeline(folder: Any) -> None:
    """They have no place in time: no step is said to be idle or busy with them."""
    trace = folder(step_trace_raw_0_detail_time__csv=step_rows(0, 100), aicore_intermediate_0_detail__csv=NEW_DETAIL)
    assert trace.overlap().select("total_ns", "computing_ns", "free_ns", "complete").rows() == [(1000, None, None, False)]
    assert trace.tracks.collect()["kind"].to_list() == ["other"]
    assert "only means" in trace.problems.collect()["what"][0]


def test_ai_cpu_gpu_and_host_operators_each_have_their_device(folder: Any) -> None:
    ai_cpu = "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end\n1,GetNext-op1,0.5,0.1,0.3,10,510\n2,GetNext-op1,1.5,0.1,0.3,600,2100\n"
    host = "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion,subgraph\nHost,Add,Add-op1,Default/Add-op1,3,0.9,0.3,1,Default\n"
    trace = folder(aicore_intermediate_0_detail__csv=NEW_DETAIL, aicpu_intermediate_0__csv=ai_cpu, cpu_op_detail_info_0__csv=host)
    rows = trace.operator_types().select("device", "type", "calls", "total_ns").rows()
    assert ("aicpu", "GetNext", 2, 2_000_000) in rows and ("cpu", "Add", 3, 900_000) in rows
    assert ("aicore", "MatMul", 4, 1_000_000) in rows


def test_a_gpu_folder_shows_kernels_and_operators(folder: Any) -> None:
    operators = "op_side,op_type,op_name,op_full_name,op_occurrences,op_total_time(us),op_avg_time(us),total_proportion,cuda_activity_cost_time(us),cuda_activity_call_count\nDevice,MatMul,MatMul-op1,Default/MatMul-op1,2,30,15,1,20,2\n"
    kernels = 'name,type,op_full_name,stream_id,block_dim,grid_dim,occurrences,total_duration(us),avg_duration(us),max_duration(us),min_duration(us)\nsgemm,cuLaunchKernel,Default/MatMul-op1,7,"1,1,1","2,1,1",2,20,10,12,8\n'
    trace = folder(gpu_op_detail_info_0__csv=operators, gpu_activity_data_0__csv=kernels)
    rows = trace.operator_types().select("device", "type", "calls", "total_ns").rows()
    assert rows == [("gpu", "MatMul", 2, 20_000), ("cpu", "MatMul", 2, 30_000)]


def test_of_two_timelines_of_a_rank_one_is_shown_and_the_other_is_told(folder: Any) -> None:
    first, second = ([{"name": name, "ph": "X", "tid": "17", "ts": 10.0, "dur": 5.0, "pid": 0}] for name in ("MatMul", "gemm"))
    trace = folder(gpu_timeline_display_0__json=second, ascend_timeline_display_0__json=first)
    assert trace.spans.select(pl.col("name").cast(pl.String)).collect()["name"].to_list() == ["MatMul"]
    reported = {row["where"]: row["what"] for row in trace.problems.collect().iter_rows(named=True)}
    assert reported["gpu_timeline_display_0.json"] == "a second timeline of this rank: not shown"


def test_operators_of_changing_shape_are_told_step_by_step(folder: Any) -> None:
    call = {"op_side": "gpu", "op_type": "Add", "op_name": "Add-op6", "dur": 2.5}
    info = {"operator": {"1": [{**call, "step": 1, "shape_info": ["[32, 1]"]}], "2": [{**call, "step": 2, "shape_info": ["[64, 1]"]}]}}
    trace = folder(dynamic_shape_info_0__json=info)
    assert trace.operator_steps().select("step", "type", "total_ns").rows() == [(1, "Add", 2500), (2, "Add", 2500)]
    assert trace.operators(by_shape=True).sort("shapes")["shapes"].to_list() == ["[[32, 1]]", "[[64, 1]]"]


def test_damage_is_told_and_costs_only_what_is_damaged(folder: Any) -> None:
    trace = folder(
        step_trace_raw_0_detail_time__csv=step_rows(0, 100),
        pipeline_profiling_0__json={"op_info": []},
        hccl_raw_0__csv='step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n1,1,1,"{""0-x"": {""SDMA"": [1]}}","{}"\n',
        output_timeline_data_0__txt="op_name, stream_id, start_time(ms), duration(ms)\nA-op1,1,zero,1\nB-op1,1,0.0001,0.0002\n",
        profiler_info_0__json="{",
    )
    reported = {row["where"]: row["lost"] for row in trace.problems.collect().iter_rows(named=True)}
    assert reported["hccl_raw"] == 1 and reported["output_timeline_data"] == 1 and reported["profiler_info_0.json"] == 1
    assert trace.step_trace().height == 1 and trace.operators()["name"].to_list() == ["B-op1"]


# Files of MindInsight's own tests


@pytest.mark.skipif(not LEGACY.exists(), reason="the legacy results are not here")
def test_the_run_of_2020_has_all_its_steps_and_executions() -> None:
    trace = stepscope.open(LEGACY, cache=False)
    rows = (LEGACY / "step_trace_raw_1_detail_time.csv").read_text().splitlines()[1:]
    expected = [
        tuple(int(cell) * 10 for cell in row.split(",")[1:9]) for row in rows if row.split(",")[0].isdigit() and int(row.split(",")[0])
    ]
    steps = trace.step_trace().select("start_ns", "end_ns", "total_ns", "fp_start_ns", "bp_end_ns", "interval_ns", "fp_bp_ns", "tail_ns")
    assert len(expected) == 322 and steps.rows() == expected
    runs = trace.spans.filter(pl.col("kind") == "kernel").select("name", "start_ns", "dur_ns").collect().sort("start_ns", "name")
    lines = [line.split(",") for line in (LEGACY / "output_timeline_data_1.txt").read_text().splitlines()[1:]]
    reported = [(name, round(float(start) * 1e5) * 10, round(float(length) * 1e5) * 10) for name, _, start, length in lines]
    assert len(reported) == 2817
    assert runs.rows() == sorted(reported, key=lambda row: (row[1], row[0]))


@pytest.mark.skipif(not OWN.exists(), reason="MindInsight's test data is not here")
def test_every_folder_of_mindinsights_own_tests_opens_and_every_analysis_answers() -> None:
    for path in (OWN / "profiler", OWN / "run_3" / "normal_run", OWN / "run_4" / "normal_run", OWN / "parallel_strategy"):
        trace = stepscope.open(path, cache=False)
        for name in analysis_names():
            trace.analyse(name)
    assert not mindinsight.sniff(OWN)
    assert stepscope.open(OWN / "profiler", cache=False).meta.ranks == [0, 1, 10]


CPU = DATA / "mindspore_cpu"


@pytest.mark.skipif(not CPU.exists(), reason="MindSpore's results on the CPU are not here")
@pytest.mark.parametrize("path", [path for path in sorted(CPU.glob("*/*")) if path.is_dir()], ids=lambda path: "/".join(path.parts[-2:]))
def test_a_result_of_mindspore_on_the_cpu_has_the_operators_of_its_own_summary(path: Path) -> None:
    trace = stepscope.open(path, cache=False)
    inside = path / "FRAMEWORK" if (path / "FRAMEWORK").is_dir() else path
    summary = pl.read_csv(next(inside.glob("cpu_op_type_info_*.csv")))
    types = (
        trace.spans.filter(pl.col("kind").is_in(["op", "communication"]))
        .group_by("op_type")
        .agg(pl.len(), pl.col("dur_ns").sum())
        .collect()
    )
    found = {str(name): (calls, total) for name, calls, total in types.iter_rows()}
    assert len(found) == summary.height
    for name, calls, total in summary.select("op_type", "type_occurrences", "total_compute_time").iter_rows():
        assert found[name][0] == calls
        assert found[name][1] == pytest.approx(total * 1e6, rel=1e-4, abs=calls)
    for name in analysis_names():
        trace.analyse(name)


@pytest.mark.skipif(not CPU.exists(), reason="MindSpore's results on the CPU are not here")
def test_ranks_of_a_cpu_job_are_one_run_and_pipelines_alone_open() -> None:
    trace = stepscope.open(CPU / "allreduce_2ranks_graph", cache=False)
    assert trace.meta.ranks == [0, 1] and set(trace.communication()["collective"]) == {"all_reduce"}
    pipeline = stepscope.open(CPU / "minddata", cache=False)
    assert pipeline.data_pipeline()["op_type"].to_list() == ["EpochCtrlOp", "BatchOp", "ShuffleOp", "MapOp", "GeneratorOp"]
    assert pipeline.data_queues(per_step=False)["batches"][0] > 0


def test_what_hccl_says_of_calls_are_their_times_and_waits(folder: Any) -> None:
    """By hand: op1 takes 1 ms and waits 0.5 in each step, op2 2 ms and 0.5 in step 1. Where they ran nobody knows."""
    calls = folder(hccl_raw_0__csv=HCCL).communication()
    rows = """
    name          calls total_ns wait_ns known_waits matched overlapped_ns
    AllReduce-op1 2     3000000  1000000 2           0       -
    AllReduce-op2 1     2500000  500000  1           0       -
    """
    assert_rows(calls, rows)
    older = 'step_num,communication_cost,wait_cost,link_info\n1,3.0,1.0,"{}"\n-,3.0,1.0,"{}"\n'
    assert_rows(folder(hccl_raw_0__csv=older).communication(), "name total_ns wait_ns\ncommunication 4000000 1000000")


def test_collectives_of_which_no_operator_is_known_are_told_apart_by_their_streams(folder: Any) -> None:
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
    slots = "".join(
        f",stream_{stream}_parallel_0_start_point,stream_{stream}_parallel_0_end_point,stream_{stream}_parallel_0" for stream in (7, 8)
    )
    trace = folder(step_trace_raw_0_detail_time__csv=f"{head}{slots}\n1,0,100,100,0,80,0,80,20,30,60,30,50,70,20\n")
    assert_rows(trace.communication(), "name calls total_ns\nstream_7_parallel_0 1 300\nstream_8_parallel_0 1 200")


def test_waits_of_hccl_belong_to_the_transfers_of_the_step_trace(folder: Any) -> None:
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail,"
    slot = "stream_7_1_AllReduce-op1"
    steps = head + f"{slot}_start_point,{slot}_end_point,{slot}\n1,0,100,100,0,80,0,80,20,30,60,30\n"
    trace = folder(hccl_raw_0__csv=HCCL, step_trace_raw_0_detail_time__csv=steps)
    assert_rows(trace.communication(), "name calls total_ns wait_ns\nAllReduce-op1 1 300 500000")
    assert "2 waits of operators that are not on the timeline" in " ".join(trace.problems.collect()["what"])


@pytest.mark.parametrize("prefix", ["stream_41_{}_", ""])
@pytest.mark.parametrize("suffix", ["", "_start_point"])
def test_waits_of_hccl_are_found_with_the_stream_before_the_name_and_without_it(folder: Any, prefix: str, suffix: str) -> None:
    """MindSpore's parser names an operator of hccl_raw after the first of its three columns of the step trace, or as HCCL does."""
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
    names = ["Default/AllReduce-op5", "Default/AllGather-op6"]
    slots = [f"stream_41_{place}_{name}" for place, name in enumerate(names)]
    columns = "".join(f",{slot}_start_point,{slot}_end_point,{slot}" for slot in slots)
    steps = head + columns + "\n1,0,100,100,0,80,0,80,20,30,60,30,65,75,10\n2,100,200,100,100,180,0,80,20,130,160,30,165,175,10\n"
    cost = [
        json.dumps({prefix.format(at) + name + suffix: [step, 1.0, step + at / 2, {}] for at, name in enumerate(names)}).replace('"', '""')
        for step in (1, 2)
    ]
    rows = "".join(f'{step},2.0,{2 * step + 0.5},"{{}}","{text}"\n' for step, text in enumerate(cost, 1))
    hccl = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n" + rows
    trace = folder(hccl_raw_0__csv=hccl, step_trace_raw_0_detail_time__csv=steps)
    # 1 and 2 ms of the reduce, half a millisecond more of the gather each.
    assert_rows(
        trace.communication(),
        """
        name                  calls total_ns wait_ns known_waits
        Default/AllReduce-op5 2     600      3000000 2
        Default/AllGather-op6 2     200      4000000 2
        """,
    )
    assert trace.cluster_steps()["wait_ns"].to_list() == [2_500_000, 4_500_000]
    assert not trace.problems.collect().filter(where="hccl_raw").height


def test_operators_of_one_name_on_two_streams_keep_their_own_waits(folder: Any) -> None:
    head = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
    slots = ("stream_41_0_AllReduce-op5", "stream_42_0_AllReduce-op5")
    columns = "".join(f",{slot}_start_point,{slot}_end_point,{slot}" for slot in slots)
    hccl = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
    cost = '{""stream_41_0_AllReduce-op5"": [1, 1.0, 2.0, {}], ""stream_42_0_AllReduce-op5"": [1, 1.0, 3.0, {}]}'
    trace = folder(
        hccl_raw_0__csv=hccl + f'1,2.0,5.0,"{{}}","{cost}"\n',
        step_trace_raw_0_detail_time__csv=f"{head}{columns}\n1,0,100,100,0,80,0,80,20,30,60,30,65,75,10\n",
    )
    args = trace.spans.filter(pl.col("kind") == "communication").select("start_ns", "args").sort("start_ns").collect()["args"]
    assert [json.loads(text)["wait_ns"] for text in args] == [2_000_000, 3_000_000]


STRATEGY = {
    "config": {"rankId": 0, "stageId": 1, "parallelType": "semi_auto_parallel", "stageDevices": [{"dim": [{"size": "0"}, {"size": "1"}]}]},
    "graph": {
        "node": [
            {"name": "1", "opType": "MatMul", "scope": "Default/net", "fullName": "Default/net/MatMul-op1", "input": [{"name": "w"}],
             "attribute": [{"name": "in_strategy", "value": {"dtype": "DT_TUPLE", "values": [
                 {"dtype": "DT_TUPLE", "values": [{"dtype": "DT_INT64", "intVal": "2"}, {"dtype": "DT_INT64", "intVal": "1"}]},
                 {"dtype": "DT_TUPLE", "values": [{"dtype": "DT_INT64", "intVal": "1"}, {"dtype": "DT_INT64", "intVal": "4"}]}]}}]},
            {"name": "2", "opType": "AllReduce", "scope": "Gradients/Default/net", "instanceName": "grad_mirror1", "input": [{"name": "1"}]},
            {"name": "3", "opType": "Send", "scope": "Default/net"},
            {"opType": "Lost"},
        ]
    },
}  # fmt: skip


def test_the_parallel_strategy_tells_how_each_operator_is_cut(folder: Any) -> None:
    """Also of one rank of many: MindInsight shows nothing unless every rank's file is there."""
    trace = folder(parallel_strategy_0__json=STRATEGY)
    rows = """
    rank stage mode               name                                part     shards              pieces role
    0    1     semi_auto_parallel Default/net/MatMul-op1              forward  "[[2,_1],_[1,_4]]"  4      -
    0    1     semi_auto_parallel Gradients/Default/net/AllReduce-op2 backward -                   -      "gradient_aggregation"
    0    1     semi_auto_parallel Default/net/Send-op3                forward  -                   -      send
    """
    assert_rows(trace.strategy(), rows)
    assert trace.strategy(sharded=True).height == 3
    assert "1 node without a name or a type" in trace.problems.collect()["what"].to_list()


def test_a_file_that_nothing_reads_is_told(folder: Any) -> None:
    trace = folder(step_trace_raw_0_detail_time__csv=step_rows(0, 100), something_new_0__json={}, something_new_1__json={}, notes__txt="a")
    reported = {row["where"]: row["what"] for row in trace.problems.collect().iter_rows(named=True)}
    assert reported == {"notes.txt": "not read", "something_new_0.json": "2 files of this kind are not read"}


# Of each rank, and in tables


def test_stage_receive_and_computation_times_of_a_cluster_are_of_each_rank_and_step(folder: Any) -> None:
    """Milliseconds; the last row is the average of the steps, and of no step."""
    head = "computation_time,communication_alone_time,stage_time,receive_alone_time,collective_communication_alone_time\n"
    files = {
        f"ascend_cluster_analyse_pipeline-parallel_2_2_{rank}__csv": head + f"3.5,1.5,4.25,0.75,0.5\n{rank},2,3,4,5\n9,9,9,9,9\n"
        for rank in range(2)
    }
    steps = {f"step_trace_raw_{rank}_detail_time__csv": step_rows(0, 100, 200) for rank in range(2)}
    rows = (
        folder(**files, **steps).cluster_steps().select("rank", "step", "stage_ns", "receive_ns", "collective_ns", "computation_ns").rows()
    )
    assert rows == [
        (0, 1, 4_250_000, 750_000, 500_000, 3_500_000),
        (1, 1, 4_250_000, 750_000, 500_000, 3_500_000),
        (0, 2, 3_000_000, 4_000_000, 5_000_000, 0),
        (1, 2, 3_000_000, 4_000_000, 5_000_000, 1_000_000),
    ]


def test_times_of_a_cluster_that_fit_no_step_are_a_problem(folder: Any) -> None:
    rows = "computation,communication_alone_time\n" + "1,2\n" * 5
    trace = folder(**{"gpu_cluster_analyse_data-parallel_1_2_0__csv": rows}, step_trace_raw_0_detail_time__csv=step_rows(0, 100, 200))
    assert trace.cluster_steps()["computation_ns"].null_count() == 2
    assert trace.problems.collect().filter(pl.col("where") == "cluster_analyse").select("rank", "lost").rows() == [(0, 4)]


def test_flops_of_each_rank_are_its_own(folder: Any) -> None:
    """Millions of FLOPs; a rank that has the FLOPs of its operators needs no sum."""
    trace = folder(
        flops_summary_0__json={"FLOPs": 8.0, "FLOPS": 2.0}, flops_summary_1__json={"cube_FLOPs": 3.0, "vec_FLOPs": 1.5, "cube_FLOPS": 1.0, "vec_FLOPS": 1.0}
    )  # fmt: skip
    rows = trace.flops().select("rank", "device", "name", "flops", "flops_per_s", "how").rows()
    assert rows == [
        (0, "aicore", "whole step", 8_000_000, 2e9, "sum of a step"),
        (1, "aicore", "whole step", 4_500_000, None, "sum of a step"),
    ]


def test_the_cpu_use_of_the_process_stands_beside_that_of_the_machine(folder: Any) -> None:
    """Of every sample, also where the machine's was not taken."""
    trace = folder(
        minddata_cpu_utilization_0__json={
            "sampling_interval": 10, "cpu_processor_num": 4, "time_stamp": [10, 20, 30],
            "device_info": {"user_utilization": [50, 0, 50], "sys_utilization": [10, 0, 10], "idle_utilization": [40, 0, 40]},
            "process_info": {"user_utilization": [20, 30, 40], "sys_utilization": [5, 5, 5]},
        }
    )  # fmt: skip
    process = trace.cpu(of="process")
    assert process.select("name", "at_ns", "user_share", "system_share").rows() == [
        ("process", 10_000_000, 0.2, 0.05),
        ("process", 20_000_000, 0.3, 0.05),
        ("process", 30_000_000, 0.4, 0.05),
    ]
    assert process["busy_cores"].to_list() == pytest.approx([1.0, 1.4, 1.8])


def test_the_operators_at_which_forward_starts_and_backward_ends_are_named_for_each_rank(folder: Any) -> None:
    points = {
        f"step_trace_point_info_{rank}__json": {"fp_start": f"Default/Cast-op{rank}", "bp_end": "Default/Mul-op9"} for rank in range(2)
    }
    steps = {f"step_trace_raw_{rank}_detail_time__csv": step_rows(0, 100, 200) for rank in range(2)}
    rows = folder(**points, **steps).step_trace().select("rank", "step", "fp_start_op", "bp_end_op").rows()
    assert rows == [(rank, step, f"Default/Cast-op{rank}", "Default/Mul-op9") for rank in range(2) for step in (1, 2)]
    each = [{"fp_start": "a", "bp_end": "b"}, {"fp_start": "c", "bp_end": "d"}]
    rows = folder(step_trace_point_info_0__json=each).of_rank(0).step_trace().select("fp_start_op", "bp_end_op").rows()
    assert rows == [("a", "b"), ("c", "d")]


def test_calls_on_ai_cpus_stand_where_they_ran(folder: Any) -> None:
    """From run_start to run_end, in microseconds, beside the AI cores; a call outside of what was recorded has no place."""
    kernels = "op_name,stream_id,start_time(ms),duration(ms)\nDefault/MatMul-op1,0,0.1,0.5\n"
    calls = "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end\n1,GetNext-op1,0.5,0.1,0.3,200,500\n2,Far-op2,1.5,0.1,0.3,900000,900300\n"
    trace = folder(
        output_timeline_data_0__txt=kernels, aicpu_intermediate_0__csv=calls, step_trace_raw_0_detail_time__csv=step_rows(0, 100_000)
    )
    spans = trace.spans.join(trace.tracks.select("track", "label", track_kind="kind"), on="track").filter(
        pl.col("category").cast(pl.String) == "AI_CPU"
    )
    rows = (
        spans.select(pl.col("name").cast(pl.String), pl.col("track_kind").cast(pl.String), "dur_ns", "step").sort("dur_ns").collect().rows()
    )
    assert rows == [("GetNext-op1", "stream", 300_000, 1), ("Far-op2", "other", 1_500_000, None)]
    assert spans.filter(pl.col("step") == 1).select("start_ns").collect()["start_ns"].to_list() == [200_000]


def test_a_damaged_file_of_one_rank_hides_neither_its_other_files_nor_other_ranks(folder: Any) -> None:
    timeline = json.dumps([{"name": "MatMul", "ph": "X", "pid": 0, "tid": "1", "ts": 1, "dur": 2}] * 20)
    trace = folder(
        ascend_timeline_display_0__json=timeline,
        ascend_timeline_display_1__json=timeline[:200],
        step_trace_raw_0_detail_time__csv=step_rows(0, 100),
        step_trace_raw_1_detail_time__csv=step_rows(0, 100),
        hccl_raw_2__csv="",
    )
    assert trace.meta.ranks == [0, 1, 2]
    assert trace.steps.collect()["rank"].to_list() == [0, 1]
    lost = trace.problems.collect().filter(pl.col("lost") > 0)
    assert lost.filter(pl.col("rank") == 1)["where"].to_list() == ["ascend_timeline_display_1.json"]
    assert lost.filter(pl.col("rank") == 2).height == 1
