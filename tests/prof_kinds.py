"""PROF directories that have, between them, every kind of file that a reader of raw data opens: what the damage tests damage."""

import json
import struct
from pathlib import Path

from prof_directories import DEVICE_MAGIC, HOST_MAGIC, MONOTONIC, Directory, device, host, small_network

NAME = "PROF_000001_20231114221320000_ABCDEFGH"


def written(room: Path) -> list[Path]:
    """One directory of each kind."""
    kinds = (network, older_chip, counted, newest_chip, captured_graph, everything_on_the_host, cann_6, slices_of_2020)
    return [kind(room / kind.__name__ / NAME) for kind in kinds]


def network(root: Path) -> Path:
    return small_network().write(root)


def older_chip(root: Path) -> Path:
    """HWTS logs, counters of 128 bytes, AI CPU operators in both forms, states of tasks from the scheduler."""
    made = small_network()
    tasks = made.files.pop("device_0/data/stars_soc.data.0.slice_0")
    made.files.pop("device_0/data/ffts_profile.data.0.slice_0")
    for number, record in enumerate(tasks):
        head, magic, stream, task, at = struct.unpack("<4HQ", record[:16])
        log = struct.pack("<BBHHHQI", (head & 1) | (number & 15) << 4, head >> 10 & 15, magic, 0, task, at, stream)
        made.put("device_0/data/hwts.data.0.slice_0", log.ljust(64, b"\0"))
        if head & 1 and head >> 10 in (0, 2):  # the end of a kernel
            place = len(made.files.get("device_0/data/aicore.data.0.slice_0", []))
            counters = struct.pack("<BxHHH8xQ8x8QI28x", (place & 15) << 4, magic, 0, task, 1000, *range(8), stream)
            made.put("device_0/data/aicore.data.0.slice_0", counters)
    for state, at in ((0, 100), (1, 205), (2, 225)):
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQHHHB17x", 1, 12, 40, 0, device(at), 3, 2, 1, state))
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQHHB19x", 1, 11, 40, 0, device(at), 3, 77, state))
    aicpu(made)
    made.write(root)
    chip(root, "1")
    return root


def captured_graph(root: Path) -> Path:
    """A graph that was captured and runs again, streams of other numbers, memory of operators, the L2 cache."""
    made = small_network()
    for begins, at in ((0, 90), (1, 400)):
        made.say("compact.capture_stream_info", "runtime", at, struct.pack("<5H", begins, 3, 9, 5, 0))
    made.say("additional.logic_stream_info", "model", 20, struct.pack("<II56I", 2, 2, 10, 11, *[0] * 54))
    made.say("additional.mc2_comm_info", "node", 20, struct.pack("<Q5I8I", made.hash("group"), 4, 1, 1, 10, 1, 11, *[0] * 7))
    for task in range(30):
        about = struct.pack("<6I4QII", 5, 0, 3, task, 0, 24, made.hash("net/op"), made.hash("Type"), made.hash("axis:1"), 0, 0, 2)
        about += struct.pack("<11I", 0, 2, 1, 16, 32, *[0] * 6) * 2
        made.say("additional.capture_op_info", "runtime", 95 + task, about)
        head = struct.pack("<HHIIIQ", HOST_MAGIC, 5000, 0, 100, len(about), host(95 + task))
        made.put("host/data/unaging.variable.capture_op_info.slice_0", head + about)
        size = 4096 if task % 2 == 0 else -4096
        memory = struct.pack("<QqQQQII", 0x1000 * (task // 2), size, made.hash("net/op"), 4096, 1 << 20, 0, 0)
        made.say("additional.task_memory_info", "node", 95 + task, memory)
        if task % 10 < 4:  # a kernel of the network
            made.put("device_0/data/l2_cache.data.0.slice_0", struct.pack("<4H8Q", 0, 3, task, 0, *range(1, 9)))
    made.write(root)
    for path in root.glob("*/sample.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"l2CacheTaskProfilingEvents": "0xfb,0xfc,0x90,0x91,0x9c"}))
    return root


def aicpu(made: Directory) -> None:
    times = struct.pack("<4Q8xQ8xQ16xQ4xII", device(205), 1000, 1010, 1015, device(225), device(200), device(230), 5, 30)
    for task in (2, 12, 22):
        new = struct.pack("<HHIIIQHH12x", HOST_MAGIC, 6000, 0, 100, 232, host(100), 3, task) + times
        made.put("device_0/data/aicpu.data.0.slice_0", new.ljust(256, b"\0"))
        old = struct.pack("<4H8x", HOST_MAGIC, 60, 3, task) + times
        made.put("device_0/data/DATA_PREPROCESS.AICPU.0.slice_0", old.ljust(128, b"\0"))


def chip(root: Path, number: str) -> None:
    for path in (root / "host" / "info.json", root / "device_0" / "info.json.0"):
        path.write_text(path.read_text().replace('"platform_version": "5"', f'"platform_version": "{number}"'))


def counted(root: Path) -> Path:
    """Samples of memories, links and processors, of the device and of the host."""
    made = small_network()
    for at in range(40):
        now = MONOTONIC + at * 10**6
        data = {
            "hbm": struct.pack("<QQII", at * 1000, at * 7, at % 2, 3),
            "ddr": struct.pack("<5I", at * 1000, at, at % 2, 0, 2**32 - 1),
            "llc": struct.pack("<QQII", at * 1000, at, (0, 1, 2, 0x13, 0x20, 0x34)[at % 6], 1),
            "lpmFreqConv": struct.pack("<II", 1, 0) + struct.pack("<QII", at, 1800, 0) * 55,
            "nic": f"{now}: 100 1 2048 3 4 5 6 7 1024 9 10 11 12 {at % 2}\n".encode(),
            "roce": f"{now}: 100 1 2048 3 4 5 6 7 1024\n".encode(),
            "hccs": f"{now}: {at * 100} {at * 50}\n".encode(),
            "netdev_stats": (" ".join(map(str, [now, *range(at, at + 15)])) + "\n").encode(),
            "pcie": struct.pack("<QI21I", now, 0, *(value for place in range(7) for value in (place, place + 20, place + 10))),
            "qos": struct.pack("<2I2Q10I", 0, 0, 0, device(at), *range(10)),
            "ub": struct.pack("<4H15Q", HOST_MAGIC, 0, at % 3, 0, at, *range(14)),
            "npu_module_mem": struct.pack("<IIQQ", at % 9, 0, host(at), at << 20),
            "npu_mem": struct.pack("<IIQQQ", at * 500, 1, 0, 100, 4000),
            "SystemCpuUsage": f"TimeStamp:{now}\ncpu0 {at} 0 {at} {at} 0 0 0 0 0 0\n\n".encode(),
            "Memory": f"TimeStamp:{now}\nMemTotal:  1000 kB\nMemFree:  {at} kB\n\n".encode(),
            "77-CpuUsage": f"TimeStamp:{now}\n77 (aicpu) S {'0 ' * 10}{at} {at} {'0 ' * 24}\ncpu {at} 0 0 9\n".encode(),
            "77-Memory": f"TimeStamp:{now}\n{at} 2 3 4 5 6 7\n".encode(),
        }
        for name, record in data.items():
            made.put(f"device_0/data/{name}.data.0.slice_0", record)
        made.put("device_0/data/npu_mem.app.0.slice_0", data["npu_mem"])
        for function, kind, body in (
            (0b011010, 0, struct.pack("<HH12x4Q", 0, 2, 10, 20, 30, 40)),
            (0b011100, 0, struct.pack("<16xH", 5 | 77 << 3)),
            (0b011011, 0b111111, struct.pack("<HH12x2Q", 0, 3, 8, 9)),
            (0b011001, 0, struct.pack("<HH12x8I", 0, 1, *range(1, 9))),
            (0b011000, 1, struct.pack("<8x10I", *range(50, 60))),
        ):
            head = struct.pack("<HHIQ", function | kind << 10, DEVICE_MAGIC, 0, device(at))
            made.put("device_0/data/stars_soc_profile.data.0.slice_0", head + body.ljust(48, b"\0"))
        stat = f"43 (a worker (2)) S {' '.join(['0'] * 10)} {at} {at} {' '.join(['0'] * 23)} {at % 4} 0"
        card = f"  eth0: {at * 100} 1 0 0 0 0 0 0 {at * 50} 1 0 0 0 0 0 0"
        texts = {
            "cpu": f"time {now}\n{1000 + at}.00 500.0\n{stat}\n",
            "mem": f"{now} 900 {at} 3 1 0 8 0\n",
            "disk": f"start_time {now}\n12:00:01 42 be/4 root 2.00 K/s 1.50 M/s 0.00 % 1.5 % python3\n",
            "network": f"time {now}\n{card}\n",
            "sys_cpu": data["SystemCpuUsage"].decode(),
            "sys_mem": data["Memory"].decode(),
            "syscall": f"   {at}.250 ( 0.012 ms): python3/42{at} futex(uaddr: 0x7f) = 0\n",
            "pthreadcall": f"[pid 42{at}] 1700000.{at:06} python3->pthread_mutex_lock(0x1) = 0 <0.000250>\n",
        }
        for name, text in texts.items():
            made.put(f"host/data/host_{name}.data.slice_0", text.encode())
    made.write(root)
    for file in (root / "host" / "sample.json", root / "device_0" / "sample.json"):
        more = {"llc_profiling": "read", "qosEvents": "AICORE,DVPP", "host_disk_freq": 2}
        file.write_text(json.dumps(json.loads(file.read_text()) | more))
    return root


def newest_chip(root: Path) -> Path:
    """Records of half the size, tasks numbered without their stream, ten counters."""
    made = Directory()
    for task in range(1, 9):
        at, ran = 100 + task * 20, 300 + task * 20
        made.call("node", "launch", at, at + 8, made.hash("net/MatMul-op1"))
        made.say(
            "compact.task_track", "runtime", at + 2, struct.pack("<HHIQQ", 0, 3, task << 16 | 9, made.kind("runtime", "KERNEL_MIX_AIC"), 0)
        )
        about = struct.pack("<QIQII", made.hash("net/MatMul-op1"), 4, made.hash("MatMul"), 24 | 2 << 16, 0)
        made.say("compact.node_basic_info", "node", at + 3, about)
        for function in (0, 1):
            log = struct.pack("<4HQ16x", function | function << 6, DEVICE_MAGIC, 9, task, device(ran + function * 10))
            made.put("device_0/data/stars_soc.data.0.slice_0", log)
        for core, flags, cycles in ((0, 3, 14_400), (1, 2, 28_800)):
            values = [cycles >> place for place in range(1, 11)]
            record = struct.pack("<4HQBBHBBHHHI10Q", 0b101010, DEVICE_MAGIC, 9, task, cycles, 0, flags, 0, core, 0, 0, 0, 0, 0, *values)
            made.put("device_0/data/ffts_profile.data.0.slice_0", record + struct.pack("<QQ", device(ran), device(ran + 10)))
    made.write(root)
    chip(root, "15")
    for sample in root.rglob("sample.json"):
        document = {"ai_core_metrics": "Memory", "ai_core_profiling_events": "0x56f,0x571,0x400", "aiv_metrics": "Memory"}
        sample.write_text(json.dumps(json.loads(sample.read_text()) | document | {"aiv_profiling_events": "0x56f,0x571,0x400"}))
    return root


def everything_on_the_host(root: Path) -> Path:
    """Marks, copies, fused operators, parts of kernels, attributes, graphs that were loaded before, flips, wider stream numbers."""
    made = small_network()
    for task in range(6):
        at = 1100 + task * 20
        made.call("node", "launch", at, at + 15, made.hash("net/fused-op9"))
        made.call("acl", "aclnnAdd", at, at + 16)
        made.launch(at + 2, 5, task, "FFTS_PLUS" if task % 2 else "MEMCPY_ASYNC", "fused_kernel")
        op = made.hash("net/fused-op9")
        made.say("compact.node_basic_info", "node", at + 3, struct.pack("<QIQIIB", op, 6, made.hash("Fused"), 24 | 2 << 16, 1, 1))
        made.say("compact.node_attr_info", "node", at + 3, struct.pack("<QIQ", op, 0, made.hash("axis:1")))
        made.say("compact.memcpy_info", "runtime", at + 2, struct.pack("<QH", 4096, task % 4))
        made.say("additional.context_id_info", "node", at + 3, struct.pack("<QI", op, 3) + struct.pack("<55I", *range(55)))
        originals = [made.hash(f"net/part-op{part}") for part in range(8)]
        made.say("additional.fusion_op_info", "model", at + 3, struct.pack("<QI5Q8Q", op, 3, 1, 2, 3, 4, 5, *originals))
        made.put(
            "host/data/aging.compact.expand_stream_spec.slice_0", struct.pack("<HHIIIQH38x", HOST_MAGIC, 5000, 0, 100, 40, host(at), 1)
        )
        made.run(5, task, 11, 1200 + task * 20, 1210 + task * 20)
        for function, moved in ((0b100010, 1), (0b100011, 5)):
            sub = struct.pack("<4HQ4H40x", function, DEVICE_MAGIC, 5, task, device(1200 + task * 20 + moved), task, task, 0, 0)
            made.put("device_0/data/stars_soc.data.0.slice_0", sub)
        mark = struct.pack("<HHIIIQ", HOST_MAGIC, 20500, 0, 100, 232, host(at))
        mark += struct.pack("<HHIHHIIIIiQ", task % 2, task // 2, 0, 0, 0, 42, 100, 6, task % 4, 0, 0)
        mark += struct.pack("<4Qi", host(at), host(at + 9), 5, made.hash("domain"), 0)
        made.put("host/data/aging.additional.msproftx.slice_0", mark + b"a text".ljust(156, b"\0"))
        made.put(
            "device_0/data/ts_track.data.0.slice_0",
            struct.pack("<BBHIQQQHHHH", 1, 10, 40, 0, device(1100 + task), 5, 2**32 - 1, 3, 0, 11, 0),
        )
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQHHHH16x", 1, 14, 40, 0, device(1150 + task), 5, task, 0, task))
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQHHI16x", 1, 15, 40, 0, device(1200 + task), 5, task, 20))
        made.launch(at + 12, 5, task, "FLIP_TASK")
    aicpu(made)
    for name in ("compact.task_track", "compact.node_basic_info", "api_event.data", "additional.tensor_info"):
        whole = [record for record in made.files[f"host/data/aging.{name}.slice_0"] if record[24:32] != b"\xff" * 8]  # no events
        made.files[f"host/data/unaging.{name}.slice_0"] = whole[:4]
    return made.write(root)


def _mixed(text: str | int, size: int) -> bytes:
    """A name as older versions of CANN write it: text, or a hash."""
    return (struct.pack("<B7xQ", 0, text) if isinstance(text, int) else b"\1" + bytes(7) + text.encode()).ljust(8 + size, b"\0")


def cann_6(root: Path) -> Path:
    """Files of each library of the host, as CANN 5 and 6 wrote them."""
    made = Directory()
    for task in range(12):
        at, ran = 100 + task * 20, 500 + task * 20
        op = _mixed(77 if task % 2 else f"net/MatMul-op{task}", 120)
        body = (
            struct.pack("<HHI", HOST_MAGIC, 23, task % 2)
            + op
            + _mixed("MatMul", 56)
            + struct.pack("<QQ6I16x", 1, host(at), 0, 24, 7, 3, task, 100)
        )
        made.put("host/data/Framework.task_desc_info.0.slice_0", body)
        tensors = b"".join(struct.pack("<11I", way, 2, 1, 16, 32, *[0] * 6) for way in (0, 0, 1))
        record = struct.pack("<HHIQ3I", HOST_MAGIC, 24, 7, 1, 3, task, 3) + tensors.ljust(220, b"\0") + bytes(8)
        made.put("host/data/Framework.tensor_data_info.0.slice_0", record)
        track = struct.pack("<HHIQ32sIH10x", HOST_MAGIC, 0, 100, host(at + 2), b"KERNEL_AICORE", task, 3)
        made.put("host/data/runtime.task_track.0.slice_0", track)
        api = struct.pack("<HHIQQQ64s160x", HOST_MAGIC, 0, 100, host(at + 1), host(at + 4), 0, b"KernelLaunch")
        made.put("host/data/runtime.api.0.slice_0", api)
        acl = struct.pack("<HHIQQII64s32x", HOST_MAGIC, 0, 2, host(at), host(at + 9), 42, 100, b"aclmdlExecute")
        made.put("host/data/AclModule.acl_model.0.slice_0", acl)
        for tag in (0, 1):
            log = struct.pack("<BBHHHQI44x", tag | (2 * task + tag) % 16 << 4, task % 2, DEVICE_MAGIC, 0, task, device(ran + tag * 9), 3)
            made.put("device_0/data/hwts.data.0.slice_0", log)
    made.put("host/data/Framework.hash_dic.0.slice_0", b"77:net/loss/GetLoss-op2\n")
    made.put("host/data/Framework.model_load_info_7.0.slice_0", struct.pack("<HHI", HOST_MAGIC, 20, 7) + _mixed("net", 120) + bytes(120))
    fused = struct.pack("<HHI", HOST_MAGIC, 21, 7) + _mixed("net/fused", 120) + struct.pack("<14Q8x", 1, 2, 3, 4, 5, 2, *[77] * 8)
    made.put("host/data/Framework.fusion_op_info_7.0.slice_0", fused)
    made.write(root)
    for name in ("hash_dic", "type_info_dic"):
        (root / "host" / "data" / f"unaging.additional.{name}.slice_0").unlink()
    chip(root, "1")
    return root


def slices_of_2020(root: Path) -> Path:
    """Task log, training trace, and text from the framework and from AI CPUs, in one folder."""
    logs, tags, tasks, graph = b"", b"", "", ""
    for task in range(20):
        for tag in (0, 1):
            at = 10_000 + task * 1000 + tag * 500
            logs += struct.pack("<BBHHHQI44x", tag | (2 * task + tag) % 16 << 4, 0, DEVICE_MAGIC, 0, task, at, 3)
        name = f"Default/network/MatMul-op{task}"
        tasks += f"{name} 24 {task} 3\n"
        graph += f'op_name:{name} op_type:MatMul input_id:0 input_format:ND input_data_type:43 input_shape:"1,2" '
        graph += 'output_id:0 output_format:ND output_data_type:43 output_shape:"1,2"\n'
        for tag, moved in ((1, 0), (3, 100), (4, 300), (2, 400), (255, 900)):
            tags += struct.pack("<QHHQ", tag, task, 3, 10_000 + task * 1000 + moved)
    aicpu_text = "".join(
        f"[{at}] Node:GetLoss, Run start:{at}, compute start:{at}, Run end:{at + 9}\n"
        f"Thread[1] dispatchTime={at} us, totalTime={at + 3} us\n"
        for at in range(1000, 1200, 20)
    )
    files = {
        "hwts.log.data.45.dev.profiler_default_tag.0.slice_0": logs,
        "training_trace.46.dev.profiler_default_tag.0.slice_0": tags,
        "Framework.host.vm.task_desc_info.0.slice_0": tasks.encode(),
        "Framework.host.vm.graph_desc_info.0.slice_0": graph.encode(),
        "Framework.host.vm.point.0.slice_0": b"1 Default/network/MatMul-op0\n2 Default/network/MatMul-op19\n3 Default/AllReduce-op1\n",
        "DATA_PREPROCESS.dev.AICPU.0.slice_0": aicpu_text.encode(),
    }
    (root / "data").mkdir(parents=True)
    for name, data in files.items():
        (root / "data" / name).write_bytes(data)
    return root
