"""Writes small PROF directories as an Ascend device and CANN would: a network of a few operators, its steps, and a collective.

`python tests/prof_directories.py` writes anew the sample in tests/samples/prof.
"""

import json
import shutil
import struct
from pathlib import Path

HOST_MAGIC, DEVICE_MAGIC, EVENT = 0x5A5A, 0x6BD3, 2**64 - 1
LEVELS = {"acl": 20000, "model": 15000, "node": 10000, "communication": 5500, "runtime": 5000}
MONOTONIC, REAL_US, HOST_TICKS, DEVICE_TICKS = 5_000_000_000, 1_700_000_000_000_000, 70_000_000, 90_000_000
NO_CONTEXT = 2**32 - 1
# name, type, core, what the runtime calls it, SQE, start and length in microseconds
OPERATORS = [
    ("net/layer0/MatMul-op1", "MatMul", 0, "KERNEL_AICORE", 0, 0, 40),
    ("net/layer0/ReLU-op2", "ReLU", 2, "KERNEL_AIVEC", 2, 42, 10),
    ("net/loss/GetLoss-op3", "GetLoss", 1, "KERNEL_AICPU", 1, 55, 20),
    ("Gradients/net/layer0/MatMulGrad-op4", "MatMul", 0, "KERNEL_AICORE", 0, 80, 60),
]
STEP_US, STEPS, MODEL = 300, 3, 7


class Directory:
    """Records by file, in the order in which they are added; what the host says is in 100 MHz ticks, the device in 50."""

    def __init__(self) -> None:
        self.files: dict[str, list[bytes]] = {}
        self.hashes: dict[int, str] = {}
        self.types: dict[tuple[int, int], str] = {}

    def hash(self, text: str) -> int:
        number = 1000 + len(self.hashes)
        known = {word: key for key, word in self.hashes.items()}
        if text not in known:
            self.hashes[number] = text
        return known.get(text, number)

    def kind(self, level: str, name: str) -> int:
        for (of, number), word in self.types.items():
            if of == LEVELS[level] and word == name:
                return number
        self.types[LEVELS[level], len(self.types) + 1] = name
        return len(self.types)

    def put(self, file: str, record: bytes) -> None:
        self.files.setdefault(file, []).append(record)

    def call(self, level: str, name: str, start_us: float, end_us: float, item: int = 0) -> None:
        head = struct.pack("<HHIII", HOST_MAGIC, LEVELS[level], self.kind(level, name), 100, 0)
        self.put("host/data/aging.api_event.data.slice_0", head + struct.pack("<QQQ", host(start_us), host(end_us), item))

    def event(self, name: str, at_us: float, request: int, item: int) -> None:
        head = struct.pack("<HHIII", HOST_MAGIC, LEVELS["model"], self.kind("model", name), 100, request)
        self.put("host/data/aging.api_event.data.slice_0", head + struct.pack("<QQQ", host(at_us), EVENT, item))

    def say(self, stream: str, level: str, at_us: float, body: bytes) -> None:
        size = 40 if stream.startswith("compact") else 232
        head = struct.pack("<HHIIIQ", HOST_MAGIC, LEVELS[level], 0, 100, size, host(at_us))
        self.put(f"host/data/aging.{stream}.slice_0", head + body.ljust(size, b"\0"))

    def launch(self, at_us: float, stream: int, task: int, kind: str, kernel: str = "") -> None:
        name = self.hash(kernel) if kernel else 0
        self.say("compact.task_track", "runtime", at_us, struct.pack("<HHHHQQ", 0, stream, task, 0, self.kind("runtime", kind), name))

    def run(self, stream: int, task: int, sqe: int, start_us: float, end_us: float) -> None:
        file = "device_0/data/stars_soc.data.0.slice_0"
        for function, at in ((0, start_us), (1, end_us)):
            head = function | (len(self.files.get(file, [])) & 15) << 6 | sqe << 10
            self.put(file, struct.pack("<4HQ48x", head, DEVICE_MAGIC, stream, task, device(at)))

    def count(self, stream: int, task: int, vector: int, cycles: int, values: list[int], start_us: float, end_us: float) -> None:
        file = "device_0/data/ffts_profile.data.0.slice_0"
        head = 0b101000 | (len(self.files.get(file, [])) & 15) << 6
        times = struct.pack("<QQ", device(start_us), device(end_us))
        record = struct.pack("<4HQ4H8xQ8x8Q", head, DEVICE_MAGIC, stream, task, device(end_us), 0, 0xFFFF, vector << 13, 0, cycles, *values)
        self.put(file, record + times)

    def tag(self, at_us: float, number: int, stream: int = 3) -> None:
        record = struct.pack("<BBHIQQQHHHH", 1, 10, 40, 0, device(at_us), 0, MODEL, stream, 0, number, 0)
        self.put("device_0/data/ts_track.data.0.slice_0", record)

    def write(self, root: Path) -> Path:
        processor = [{"Frequency": "100.0"}]
        common = {"platform_version": "5", "CPU": processor, "pid": "42", "pid_name": "python3", "rank_id": 0, "cannVersion": "8.3.0"}
        chip = {"hwts_frequency": "50.0", "aic_frequency": "1800", "ai_core_num": 24, "aiv_num": 48}
        sample = {
            "ai_core_metrics": "PipeUtilizationExct",
            "ai_core_profiling_events": "0x416,0x417,0x9,0x302,0xc,0x303,0x54,0x55",
            "aiv_metrics": "PipeUtilization",
            "aiv_profiling_events": "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55",
            "profLevel": "l1",
        }
        start = {"collectionTimeBegin": str(REAL_US), "clockMonotonicRaw": str(MONOTONIC)}
        clock = f"clock_monotonic_raw: {MONOTONIC}\ncntvct: "
        texts = {
            "host/info.json": json.dumps(common | {"DeviceInfo": []}),
            "host/sample.json": json.dumps(sample),
            "host/start_info": json.dumps(start),
            "host/host_start.log": f"[Host]\n{clock}{HOST_TICKS}\ncntvct_diff: 0\n",
            "host/data/unaging.additional.hash_dic.slice_0": "".join(f"{key}:{word}\n" for key, word in self.hashes.items()),
            "host/data/unaging.additional.type_info_dic.slice_0": "".join(f"{a}_{b}:{word}\n" for (a, b), word in self.types.items()),
            "device_0/info.json.0": json.dumps(common | {"DeviceInfo": [chip]}),
            "device_0/sample.json": json.dumps(sample),
            "device_0/start_info.0": json.dumps(start),
            "device_0/host_start.log.0": f"[Device0]\n{clock}{HOST_TICKS}\ncntvct_diff: 0\n",
            "device_0/dev_start.log.0": f"{clock}{DEVICE_TICKS}\n",
        }
        for name, data in [
            *((name, b"".join(parts)) for name, parts in self.files.items()),
            *((name, text.encode()) for name, text in texts.items()),
        ]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root


def host(us: float) -> int:
    return HOST_TICKS + round(us * 100)


def device(us: float) -> int:
    return DEVICE_TICKS + round(us * 50)


def small_network() -> Directory:
    """Three steps of four operators and an all-reduce that runs beside the last one and beyond it."""
    made = Directory()
    made.event("ModelLoad", 10, 0, MODEL)
    made.say("additional.graph_id_map", "model", 12, struct.pack("<QII", made.hash("small"), 1, MODEL))
    made.event("ModelLoad", 20, 0, MODEL)
    for step in range(STEPS):
        at, ran = 100 + step * STEP_US, 150 + step * STEP_US
        made.event("ModelExecute", at, step + 1, MODEL)
        made.tag(at - 1, 0)
        made.tag(ran - 1, 2)
        for number, (name, kind, core, task_kind, sqe, start, length) in enumerate(OPERATORS):
            called, task = at + 5 + number * 10, step * 10 + number
            made.call("node", "launch", called, called + 8, made.hash(name))
            made.call("runtime", "KernelLaunch", called + 1, called + 4)
            made.launch(called + 2, 3, task, task_kind, f"{kind}_kernel")
            made.say(
                "compact.node_basic_info", "node", called + 5, struct.pack("<QIQIIB", made.hash(name), core, made.hash(kind), 24, 0, 0)
            )
            tensors = b"".join(struct.pack("<11I", way, 2, 1, 16, 32, *[0] * 6) for way in (0, 0, 1))
            made.say("additional.tensor_info", "node", called + 5, struct.pack("<QI", made.hash(name), 3) + tensors)
            made.run(3, task, sqe, ran + start, ran + start + length)
            if core != 1:
                cycles = length * 1800 * 24 // 2
                made.count(
                    3,
                    task,
                    int(core == 2),
                    cycles,
                    [cycles // part for part in (8, 4, 10, 5, 2, 20, 100, 1000)],
                    ran + start,
                    ran + start + length,
                )
        all_reduce(made, at + 60, ran + 90, step)
        made.tag(ran + 141, 3)
        made.tag(ran + 200, 4)
        made.tag(ran + 201, 1)
        made.event("ModelExecute", at + 95, step + 1, MODEL)
    return made


def all_reduce(made: Directory, at: float, ran: float, step: int) -> None:
    group, name = made.hash("hccl_world_group"), made.hash("hcom_allReduce_")
    made.call("node", "launch", at, at + 30, name)
    for number, (word, kind, sqe, size) in enumerate((("Notify_Wait", "NOTIFY_WAIT", 7, 0), ("Memcpy", "MEMCPY_ASYNC", 11, 1 << 20))):
        called = at + 2 + number * 10
        made.call("communication", "master", called, called + 8, made.hash(word))
        made.launch(called + 2, 10, step * 2 + number, kind)
        details = struct.pack(
            "<3Q6IQ2Id3Q6I", made.hash(word), 0, group, 0, 1, 2, 0, 0, NO_CONTEXT, 5, 0, 0, 1.0, 0, 0, size, 0, 4, 1, 0, 255, 0
        )
        made.say("additional.hccl_info", "communication", called + 4, details)
        made.run(10, step * 2 + number, sqe, ran + number * 20, ran + number * 20 + (10 if number == 0 else 70))
    made.say("compact.node_basic_info", "node", at + 25, struct.pack("<QIQIIB", name, 9, name, 0, 0, 0))
    made.say("compact.hccl_op_info", "node", at + 26, struct.pack("<BBQQQ", 0, 4, made.hash("RING"), 1 << 18, group))


if __name__ == "__main__":
    folder = Path(__file__).parent / "samples" / "prof" / "written-by-tests" / "PROF_000001_20231114221320000_ABCDEFGH"
    shutil.rmtree(folder, ignore_errors=True)
    print(small_network().write(folder))
