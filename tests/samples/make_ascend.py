"""Makes samples of the formats of Ascend's tools. No NPU was at hand: they are written by hand, in the form that the tools write.

One step of a small training on two streams: a copy, two kernels, one of them on an AI CPU, and an all-reduce half hidden behind them.
"""

# ruff: noqa: E501 - events as the tools write them

import json
import sqlite3
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PID, BEGIN = 4321, 1_700_000_000_000_000  # microseconds
NO_MODEL = 4294967295

# Name, type, core, stream, start and length in microseconds, connection.
TASKS = [
    ("MEMCPY_ASYNC", None, "MEMCPY_ASYNC", 2, 100.0, 20.0, 11),
    ("aclnnMatmul_MatMulV2", "MatMulV2", "AI_CORE", 2, 130.0, 60.5, 12),
    ("aclnnRelu_Relu", "Relu", "AI_VECTOR_CORE", 2, 195.0, 40.25, 13),
    ("GetNext", "GetNext", "AI_CPU", 3, 90.0, 30.0, 14),
]
TRANSFER = ("hcom_allReduce__123_0_1", 215.0, 80.0, 15)
# Name, thread, start, length, connection of what it launched.
OPERATORS = [("aten::mm", 50.0, 20.0, 12), ("aten::relu", 75.0, 15.0, 13), ("c10d::allreduce_", 95.0, 20.0, 15)]
LAUNCHES = [("aclrtMemcpyAsync", 40.0, 5.0, 11), ("launch", 55.0, 5.0, 12), ("launch", 80.0, 5.0, 13), ("launch", 100.0, 5.0, 15)]


def main() -> None:
    result = HERE / "ascend_result" / "torch_npu-by-hand" / "rank0_ascend_pt"
    output = result / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    (result / "profiler_info_0.json").write_text(json.dumps({"config": {"common_config": {"record_shapes": True}}, "rank_id": 0}))
    (output / "trace_view.json").write_text(json.dumps([*_python(), *_device()]))
    (output / "kernel_details.csv").write_text(_kernels("Step Id,Device_id", "Name,Type,Accelerator Core", "Start Time(us),Duration(us)"))
    (output / "memory_record.csv").write_text(
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\n"
        f"PTA,{BEGIN + 60}.000\t,1.5,4.0,1.5,7,NPU:0\nPTA,{BEGIN + 80}.000\t,0.5,4.0,0.5,7,NPU:0\n"
    )
    exported = HERE / "msprof_output" / "by-hand" / "mindstudio_profiler_output"
    exported.mkdir(parents=True, exist_ok=True)
    (exported / "msprof_20260101000000.json").write_text(json.dumps(_device(iterations=True)))
    (exported / "op_summary_20260101000000.csv").write_text(
        _kernels("Device_id", "Op Name,OP Type,Task Type", "Task Start Time(us),Task Duration(us)")
    )
    cluster = HERE / "cluster_output" / "by-hand" / "cluster_analysis_output"
    cluster.mkdir(parents=True, exist_ok=True)
    (cluster / "cluster_step_trace_time.csv").write_text(
        "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
        "1,rank,0,100.75,59.75,20.25,80.0,5.0,165.5,0\n"
    )
    _database(HERE / "ascend_db" / "by-hand" / "ascend_pytorch_profiler_0.db")


def _at(moment: float) -> str:
    return f"{BEGIN + moment:.3f}"


def _python() -> list[dict[str, Any]]:
    named = [{"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "Python"}}]
    step = {"ph": "X", "cat": "cpu_op", "name": "ProfilerStep#1", "pid": PID, "tid": PID, "ts": _at(0), "dur": 320.0, "args": {}}
    ops: list[dict[str, Any]] = []
    starts = {task[6]: task for task in TASKS} | {TRANSFER[3]: (TRANSFER[0], None, None, 0, TRANSFER[1])}
    for name, start, length, connection in OPERATORS:
        shapes = {"Input Dims": "4,8;\r\n8,2", "Input type": "float;\r\nfloat"}
        ops.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": PID, "ts": _at(start), "dur": length, "args": shapes})
        ops.append({"ph": "s", "cat": "async_npu", "name": "torch_to_npu", "id": connection, "pid": PID, "tid": PID, "ts": _at(start)})
        task = starts[connection]
        place = (_process(15), 0) if connection == TRANSFER[3] else (_process(14), task[3])
        ops.append(
            {"ph": "f", "bp": "e", "cat": "async_npu", "name": "torch_to_npu", "id": connection, "pid": place[0], "tid": place[1],
             "ts": _at(float(task[4]))}
        )  # fmt: skip
    return [*named, step, *ops]


def _process(layer: int) -> int:
    return PID << 10 | layer << 5


def _device(*, iterations: bool = False) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for layer, name, label in ((7, "CANN", "CPU"), (14, "Ascend Hardware", "NPU 0"), (15, "Communication", "NPU 0")):
        events.append({"ph": "M", "name": "process_name", "pid": _process(layer), "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_labels", "pid": _process(layer), "tid": 0, "args": {"labels": label}})
    names = {
        (14, 2): "Stream 2",
        (14, 3): "Stream 3",
        (15, 0): "Group 0 Communication",
        (15, 1): "Plane 0",
        (14, 70001): "Step Trace(Model ID:1)",
    }
    for (layer, tid), name in names.items():
        events.append({"ph": "M", "name": "thread_name", "pid": _process(layer), "tid": tid, "args": {"name": name}})
    for name, start, length, connection in LAUNCHES:
        level = "AscendCL" if name.startswith("acl") else "Node"
        events.append({"ph": "X", "name": f"{level}@{name}", "pid": _process(7), "tid": PID, "ts": _at(start), "dur": length,
                       "args": {"connection_id": connection}})  # fmt: skip
        events.append({"ph": "s", "cat": "HostToDevice", "name": f"HostToDevice{connection}", "id": str(connection), "pid": _process(7), "tid": PID,
                       "ts": _at(start)})  # fmt: skip
    for name, _, core, stream, start, length, connection in TASKS:
        events.append({"ph": "X", "name": name, "pid": _process(14), "tid": stream, "ts": _at(start), "dur": length,
                       "args": {"Model Id": NO_MODEL, "Task Type": core, "connection_id": connection}})  # fmt: skip
        events.append({"ph": "f", "bp": "e", "cat": "HostToDevice", "name": f"HostToDevice{connection}", "id": str(connection),
                       "pid": _process(14), "tid": stream, "ts": _at(start)})  # fmt: skip
    name, start, length, connection = TRANSFER
    events.append({"ph": "X", "name": name, "pid": _process(15), "tid": 0, "ts": _at(start), "dur": length,
                   "args": {"connection_id": connection, "data_type": "FP32", "count": 1000}})  # fmt: skip
    events.append({"ph": "X", "name": "Memcpy", "pid": _process(15), "tid": 1, "ts": _at(start), "dur": length,
                   "args": {"src rank": 0, "dst rank": 1, "size(Byte)": 4000, "transport type": "SDMA", "link type": "HCCS", "task type": "Memcpy"}})  # fmt: skip
    if iterations:
        points = {"Iteration ID": 1, "FP Start": float(_at(130.0)), "BP End": float(_at(235.5))}
        events.append({"ph": "X", "cat": "Iteration Time", "name": "Iteration 1", "pid": _process(14), "tid": 70001, "ts": _at(30.0), "dur": 270.0,
                       "args": points})  # fmt: skip
    return events


def _kernels(first: str, names: str, times: str) -> str:
    lines = [f"{first},Stream ID,{names},{times},Input Shapes,Input Data Types"]
    ids = "1,0" if first.startswith("Step") else "0"
    for name, type_, core, stream, start, length, _ in TASKS:
        if type_:
            lines.append(f'{ids},{stream},{name},{type_},{core},{_at(start)}\t,{length},"""4,8;8,2""",FLOAT;FLOAT')
    name, start, length, _ = TRANSFER
    lines.append(f"{ids},N/A,{name},hcom_allReduce_,HCCL,{_at(start)}\t,{length},N/A,N/A")
    return "\n".join(lines) + "\n"


def _database(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    def ns(moment: float) -> int:
        return BEGIN * 1000 + round(moment * 1000)

    thread = PID << 32 | PID
    database = sqlite3.connect(file)
    tables = {
        "TASK": "startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, taskId, modelId",
        "COMPUTE_TASK_INFO": "name, globalTaskId, blockDim, mixBlockDim, taskType, opType, inputFormats, inputDataTypes, inputShapes",
        "COMMUNICATION_OP": "opName, startNs, endNs, connectionId, groupName, opId, dataType, algType, count, opType",
        "CANN_API": "startNs, endNs, type, globalTid, connectionId, name",
        "PYTORCH_API": "startNs, endNs, globalTid, connectionId, name, inputDtypes, inputShapes, type",
        "CONNECTION_IDS": "id, connectionId",
        "STEP_TIME": "id, startNs, endNs",
        "ENUM_API_TYPE": "id, name",
        "ENUM_HCCL_DATA_TYPE": "id, name",
        "NPU_INFO": "id, name",
        "RANK_DEVICE_MAP": "rankId, deviceId",
        "STRING_IDS": "id, value",
    }
    for name, columns in tables.items():
        database.execute(f"create table {name} ({columns})")

    def put(table: str, *row: object) -> None:
        database.execute(f"insert into {table} values ({', '.join('?' * len(row))})", row)

    for number, (name, type_, core, stream, start, length, connection) in enumerate(TASKS):
        put("TASK", ns(start), ns(start + length), 0, connection, number, PID, word(core), NO_MODEL, stream, number, NO_MODEL)
        if type_:
            put("COMPUTE_TASK_INFO", word(name), number, 8, 0, word(core), word(type_), word("ND;ND"), word("FLOAT;FLOAT"), word("4,8;8,2"))
    name, start, length, connection = TRANSFER
    put(
        "COMMUNICATION_OP",
        word(name),
        ns(start),
        ns(start + length),
        connection,
        word("group"),
        1,
        4,
        word("RING"),
        1000,
        word("hcom_allReduce_"),
    )
    for name, start, length, connection in LAUNCHES:
        put("CANN_API", ns(start), ns(start + length), 20000 if name.startswith("acl") else 10000, thread, connection, word(name))
    for number, (name, start, length, connection) in enumerate(OPERATORS):
        put(
            "PYTORCH_API",
            str(ns(start)),
            str(ns(start + length)),
            thread,
            number,
            word(name),
            word("float;\r\nfloat"),
            word("4,8;\r\n8,2"),
            50001,
        )
        put("CONNECTION_IDS", number, connection)
    put("PYTORCH_API", str(ns(0)), str(ns(320)), thread, None, word("ProfilerStep#1"), None, None, 50001)
    put("STEP_TIME", 1, ns(0), ns(320))
    for number, level in {5000: "runtime", 10000: "node", 20000: "acl", 50001: "op", 50002: "queue", 50003: "trace"}.items():
        put("ENUM_API_TYPE", number, level)
    put("ENUM_HCCL_DATA_TYPE", 4, "FP32")
    put("NPU_INFO", 0, "Ascend910B")
    put("RANK_DEVICE_MAP", 0, 0)
    for text, number in words.items():
        put("STRING_IDS", number, text)
    database.commit()
    database.close()


if __name__ == "__main__":
    main()
