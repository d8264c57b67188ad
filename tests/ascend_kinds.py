"""Results of Ascend's tools and of MindSpore that have, between them, every kind of file that their readers open: what fuzzing mutates."""

import json
import shutil
import struct
from pathlib import Path

import stepscope
from prof_directories import HOST_TICKS, MONOTONIC, REAL_US, host, small_network
from stepscope import exporters

SAMPLES = Path(__file__).parent / "samples"


def written(room: Path) -> dict[str, Path]:
    """One of each kind, by name."""
    names = ("msprof", "msprof_db", "mindinsight export", "mindinsight files")
    made = dict(zip(names, exported(room / "exported"), strict=True))
    made |= {"raw with framework": with_framework(room / "result"), "tables": with_tables(room / "tables")}
    return made | {"cluster": cluster(room / "cluster"), "mindinsight": of_mindinsight(room / "mindinsight")}


def exported(room: Path) -> list[Path]:
    """A small network as msprof, its database and MindInsight have it."""
    trace = stepscope.open(small_network().write(room / "raw"), cache=False)
    folders = [room / "mindstudio_profiler_output", room / "msprof_20260101000000.db", room / "profiler"]
    for name, folder in zip(("msprof", "msprof_db", "mindinsight"), folders, strict=True):
        exporters.exporter(name).function(trace, folder)
    # Of an export of ours only the timeline is read: without what says so, all its files are.
    plain = room / "of MindInsight" / "profiler"
    shutil.copytree(folders[-1], plain, ignore=shutil.ignore_patterns("stepscope_*.json"))
    return [*folders, plain]


def record(head: bytes, **fields: str) -> bytes:
    """As both frameworks write it: fields are `f2="name"`."""
    body = head + b"".join(struct.pack("<HI", int(key[1:]), len(text)) + text.encode() for key, text in fields.items())
    return struct.pack("<HI", 1, len(body)) + body


def with_framework(room: Path) -> Path:
    """A result that was never analysed: raw data, and what torch_npu recorded on the host."""
    folder = room / "host_42_20231114_ascend_pt"
    small_network().write(folder / "PROF_000001_20231114221320000_ABCDEFGH")
    (folder / "FRAMEWORK").mkdir()
    calls, marks, blocks = b"", b"", b""
    for at in range(0, 900, 30):
        head = struct.pack("<3q4QB?", host(at), host(at + 20), at, 42, 7, 7, 0, 0, False)
        calls += record(
            head, f2="ProfilerStep#5" if at % 300 == 0 else "aten::linear", f3="float;float", f4="16,32;32,8", f9="Net_0/Linear_0"
        )
        for category in range(4):
            marks += record(struct.pack("<q4Q", host(at + category), category, at, 7 if category < 2 else 100, 42), f1="aten::addmm")
        blocks += record(struct.pack("<7q2b3B2Q", at, host(at), (-1) ** at * 512, 512, 1024, 512, 0, 20, 0, 0, at % 2, 0, 7, 42))
    for name, data in (("op_range", calls), ("op_mark", marks), ("memory_usage", blocks)):
        (folder / "FRAMEWORK" / f"torch.{name}").write_bytes(data)
    started = {"syscnt_enable": True, "freq": 100, "start_cnt": HOST_TICKS, "start_monotonic": MONOTONIC}
    ended = {"collectionTimeEnd": REAL_US * 1000 + 5_000, "MonotonicTimeEnd": MONOTONIC + 5_000}
    document = {"config": {"common_config": {"record_shapes": True}}, "start_info": started, "end_info": ended, "rank_id": 3}
    (folder / "profiler_info_3.json").write_text(json.dumps(document))
    return folder


def with_tables(room: Path) -> Path:
    """A result with the tables that not every sample has."""
    folder = room / "rank0_ascend_pt"
    shutil.copytree(SAMPLES / "ascend_result" / "torch_npu-by-hand" / "rank0_ascend_pt", folder)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    times = dict.fromkeys(("Wait Time(ms)", "Synchronization Time(ms)", "Transit Time(ms)", "Idle Time(ms)", "Elapse Time(ms)"), 0.5)
    moved = {"SDMA": {"Transit Size(MB)": 1.5, "Transit Time(ms)": 0.5}}
    document = {"Communication Time Info": times | {"Start Timestamp(us)": 1_700_000_000_000_215.0}, "Communication Bandwidth Info": moved}
    (output / "communication.json").write_text(json.dumps({"step1": {"collective": {"hcom_allReduce__123_0_1@5": document}, "p2p": {}}}))
    link = {"Transport Type": "HCCS", "Transit Time(ms)": 0.5, "Transit Size(MB)": 1.5, "Bandwidth(GB/s)": 3.0}
    (output / "communication_matrix.json").write_text(
        json.dumps({"step1": {"collective": {"allreduce-total@5": {"0-1": link, "1-0": link}}}})
    )
    (output / "operator_memory.csv").write_text(
        "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Device Type\n"
        "aten::mm,512.0,1700000000000060.000\t,1700000000000080.000\t,20.0,NPU:0\ncann::add,4.0,1700000000000070.000\t,,,NPU:0\n"
    )
    (output / "npu_module_mem.csv").write_text(
        "Component,Timestamp(us),Total Reserved(KB),Device\nHCCL,1700000000000070.000\t,2048.0,NPU:0\n"
    )
    (output / "step_trace_time.csv").write_text("Step,Computing,Communication,Free\n1,100.75,80.0,5.0\n")
    return folder


def cluster(room: Path) -> Path:
    """What a cluster's analysis says of steps, transfers and links."""
    folder = room / "cluster_analysis_output"
    shutil.copytree(SAMPLES / "cluster_output" / "by-hand" / "cluster_analysis_output", folder)
    link = {"Transport Type": "HCCS", "Transit Time(ms)": 0.5, "Transit Size(MB)": 1.5, "Bandwidth(GB/s)": 3.0}
    matrix = {"(0, 1)": {"step1": {"allreduce-total@5": {"0-1": link, "1-0": link}}}}
    (folder / "cluster_communication_matrix.json").write_text(json.dumps(matrix))
    times = {"Start Timestamp(us)": 1_700_000_000_000_215.0, "Elapse Time(ms)": 0.5}
    document = {"(0, 1)": {"step1": {"allreduce@5": {"0": {"Communication Time Info": times}, "1": {"Communication Time Info": times}}}}}
    (folder / "cluster_communication.json").write_text(json.dumps(document))
    (folder / "communication_group.json").write_text(json.dumps({"collective": [[0, 1]], "p2p": []}))
    return folder


def of_mindinsight(room: Path) -> Path:
    """Files that hold other files' formats: JSON in cells, series of samples, what a compiler predicted, how a network is cut."""
    call = {"op_full_name": "Default/MatMul-op1", "op_type": "MatMul", "step": 1, "dur": 5.5, "shape_info": [[2, 3]]}
    tensor = {
        "tensor_name": "t",
        "size": 0.5,
        "type": "output",
        "data_type": "float32",
        "shape": [2],
        "format": "ND",
        "life_start": 0,
        "life_end": 1,
    }
    graph = {"breakdowns": [[tensor], [tensor]], "nodes": [{"node_id": 0}, {"node_id": 1}], "lines": [0.5, 0.25]}
    operator = {
        "op_id": 0,
        "op_type": "Batch",
        "num_workers": 4,
        "children": [1],
        "metrics": {"output_queue": {"length": 8, "size": [1, 2]}},
    }
    used = {"op_id": 0, "metrics": {"user_utilization": [1, 2], "sys_utilization": [1, 2]}}
    dims = [{"dim": [{"size": "2"}]}]
    strategy = {"name": "in_strategy", "value": {"dtype": "DT_TUPLE", "values": [{"intVal": "2"}]}}
    node = {"name": "1", "opType": "MatMul", "scope": "Default", "attribute": [strategy], "input": [{"name": "0"}]}
    documents = {
        "profiler_info_0.json": {"rank_size": 2, "diff_time": 12.5, "ms_version": "2.2"},
        "dynamic_shape_info_0.json": {"operator": {"1": [call, call]}, "kernel": {"1": [call | {"kernel_name": "k"}]}},
        "memory_usage_details_0.json": {"1": graph, "2": graph},
        "memory_usage_summary_0.json": {"capacity": 32.0, "peak_mem": 1.0},
        "pipeline_profiling_0.json": {"sampling_interval": 10, "op_info": [operator, operator | {"op_id": 1, "children": None}]},
        "minddata_cpu_utilization_0.json": {
            "cpu_processor_num": 8, "sampling_interval": 10, "time_stamp": [1000, 1010], "op_info": [used],
            "device_info": {"user_utilization": [10, 20], "sys_utilization": [1, 2], "context_switch_count": [5, 6]},
        },
        "parallel_strategy_0.json": {"config": {"rankId": 0, "stageId": 0, "stageDevices": dims}, "graph": {"node": [node]}},
        "flops_summary_0.json": {"cube_FLOPs": 5.0},
    }  # fmt: skip
    links = json.dumps({"0-1": {"SDMA": [0.5, 1.5, 3.0]}})
    cost = json.dumps({"AllReduce-op1": [1, 0.5, 0.25, json.loads(links)]}).replace('"', '""')
    quoted = links.replace('"', '""')
    info = json.dumps({"input_0": {"format": "ND", "data_type": "NUMBER_TYPE_FLOAT32", "shape": "2,3"}}).replace('"', '""')
    tables = {
        "hccl_raw_0.csv": "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
        f'1,0.5,0.25,"{quoted}","{cost}"\n-,0.5,0.25,"{quoted}","{cost}"\n',
        "step_trace_raw_0_detail_time.csv": "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail,"
        "stream_10_0_AllReduce-op1_start_point,stream_10_0_AllReduce-op1_end_point,stream_10_0_AllReduce-op1\n"
        "1,1000,2000,1000,1100,1900,100,800,100,1200,1300,100\n2,2000,3000,1000,2100,2900,100,800,100,2200,2300,100\n-,1,2,3,4,5,6,7,8,9,1,2\n",
        "aicore_intermediate_0_detail.csv": "full_kernel_name,execution_time,execution_frequency\nDefault/MatMul-op1,0.5,2\n",
        "aicpu_intermediate_0.csv": "serial_number,kernel_type,total_time,dispatch_time,run_start,run_end\n1,GetNext,0.5,0.1,100,200\n",
        "framework_raw_0.csv": "task_id,stream_id,block_dim,full_kernel_name,kernel_type,op_info\n"
        f'1,2,8,Default/MatMul-op1,MatMul,"{info}"\n',
        "flops_0.txt": "full_op_name,MFLOPs(10^6),GFLOPS\nDefault/MatMul-op1,5.5,1.0\n",
        "output_timeline_data_0.txt": "op_name, stream_id, start_time(ms), duration(ms)\nDefault/MatMul-op1,2,0.010,0.005\n",
        "dataset_iterator_profiling_0.txt": "0 0 1 5 1000\n1 8 1 3 1001\n0 2 2 5 1010\n",
        "device_queue_profiling_0.txt": "0 0 1 5 1000\n1 8 1 3 1001\n",
        "minddata_aicpu_0.txt": "GetNext_dequeue_wait 100 200 5\n",
        "ascend_cluster_analyse_data-parallel_1_2_0.csv": "computation_time,communication_alone_time\n1.5,0.5\n",
    }
    folder = room / "profiler"
    folder.mkdir(parents=True)
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    for name, text in tables.items():
        (folder / name).write_text(text)
    return folder
