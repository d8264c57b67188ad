"""Raw Ascend directories that the tests write themselves: every expected value follows from what was written."""

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from prof_directories import DEVICE_MAGIC, DEVICE_TICKS, HOST_MAGIC, REAL_US, Directory, device, host, small_network
from stepscope.errors import StepscopeError
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof
from volume import seeds

START_NS = REAL_US * 1000


def read(root: Path) -> Trace:
    return prof.read(root, Options(scratch=root))


def kernels(trace: Trace) -> pl.DataFrame:
    return trace.spans.filter(pl.col("kind") == "kernel").sort("start_ns").collect()


def problems(trace: Trace) -> list[tuple[str, int]]:
    return trace.problems.select("what", "lost").collect().rows()


def test_times_operators_and_counters_are_as_written(tmp_path: Path) -> None:
    trace = read(small_network().write(tmp_path))
    first = kernels(trace).to_dicts()[0]
    assert (first["name"], first["op_type"], first["scope"]) == ("net/layer0/MatMul-op1", "MatMul", "net/layer0")
    assert (first["start_ns"] - START_NS, first["dur_ns"], first["step"]) == (150_000, 40_000, 1)
    assert (first["shapes"], first["dtypes"]) == ("[[16,32],[16,32]]", '["FLOAT16","FLOAT16"]')
    about = json.loads(first["args"])
    # Half the cycles of 24 cores at 1.8 GHz: 20 us on each of 24 blocks; an eighth and a quarter of them multiplied.
    assert (about["aicore_time(us)"], about["aic_mac_ratio"], about["cube_utilization(%)"]) == (20.0, 0.375, 50.0)
    assert problems(trace) == []


def test_a_collective_lasts_as_long_as_its_master_tasks_and_its_bytes_are_on_a_link(tmp_path: Path) -> None:
    trace = read(small_network().write(tmp_path))
    operators = trace.spans.filter(pl.col("kind") == "communication").collect()
    assert (operators["start_ns"][0] - START_NS, operators["dur_ns"].to_list()) == (240_000, [90_000] * 3)
    assert trace.links().select("src", "dst", "transport", "transfers", "bytes").rows() == [(0, 1, "HCCS", 3, 3 << 20)]
    assert trace.overlap()["exposed_ns"].to_list() == [40_000] * 3


def test_a_task_of_a_plane_says_which_operator_it_is_part_of_and_whether_it_is_its_master(tmp_path: Path) -> None:
    trace = read(small_network().write(tmp_path))
    planes = trace.spans.filter(pl.col("category") == "communication task").sort("start_ns").collect()
    entries = [json.loads(args) for args in planes["args"]]
    names = trace.spans.filter(pl.col("kind") == "communication").sort("start_ns").collect()["name"].to_list()
    assert [one["operator"] for one in entries] == [name for name in names for _ in range(2)] and len(set(names)) == 3
    assert all(one["master"] for one in entries)


def test_files_that_nobody_reads_are_named_with_their_size(tmp_path: Path) -> None:
    made = small_network()
    made.put("device_0/data/ccu0.instr.0.slice_0", b"?" * 1000)
    made.put("device_0/data/ccu0.instr.0.slice_1", b"?" * 234)
    assert problems(read(made.write(tmp_path))) == [("not read: ccu0.instr.0, 1,234 bytes", 0)]


def test_an_unknown_chip_is_said_and_read_as_its_files_suggest(tmp_path: Path) -> None:
    root = small_network().write(tmp_path)
    for info in (root / "host" / "info.json", root / "device_0" / "info.json.0"):
        info.write_text(info.read_text().replace('"platform_version": "5"', '"platform_version": "99"'))
    trace = read(root)
    assert kernels(trace).height == 12
    assert problems(trace) == [("unknown chip '99': the layout is derived from the files", 0)]


GIB = 8e-6 * 2**33  # bits in 8 us, 14,400 cycles at 1.8 GHz, as GB/s
NEWEST_GROUPS: dict[str, tuple[str, dict[str, float]]] = {  # events, which count a half, a quarter, an eighth ... of 14,400 cycles
    "PipeUtilization": (
        "0x301,0x1,0x701,0x202,0x714,0x34,0x35",
        {"mac_ratio": 1 / 2, "fixpipe_ratio": 1 / 32, "icache_miss_rate": 112 / 225},
    ),
    "ArithmeticUtilization": ("0x323,0x324", {"mac_fp16_ratio": 0.5, "mac_int8_ratio": 0.25, "cube_fops": 7200 * 8192 + 3600 * 16384}),
    "Memory": ("0x56f,0x571,0x400", {"ub_read_bw(GB/s)": 10_800 * 1024 / GIB, "main_mem_read_bw(GB/s)": 1800 * 64 / GIB}),
    "MemoryL0": ("0x304,0x703", {"l0a_read_bw(GB/s)": 7200 * 4096 / GIB, "l0a_write_bw(GB/s)": 3600 * 4096 / GIB}),
    "MemoryUB": ("0x204,0x571,0x70c", {"ub_read_bw_mte(GB/s)": 7200 * 128 / GIB, "fixp2ub_write_bw(GB/s)": 1800 * 2048 / GIB}),
    "L2Cache": ("0x424,0x42c", {"read_local_l2_hit": 7200, "write_local_l2_victim": 3600}),
    "ResourceConflictRatio": ("0x540,0x556,0x528,0x502", {"vec_bank_cflt_ratio": 0.75, "vec_resc_cflt_ratio": 2.0}),
}


@pytest.mark.parametrize("group", NEWEST_GROUPS)
def test_kernels_and_counters_of_the_newest_chips(tmp_path: Path, group: str) -> None:
    """Records of half the size, tasks numbered without their stream, ten counters; a kernel on both kinds of core has two records."""
    events, wanted = NEWEST_GROUPS[group]
    made = Directory()
    made.call("node", "launch", 100, 108, made.hash("net/MatMul-op1"))
    high, low, stream = 7, 9, 3  # the task's number is 7 << 16 | 9
    body = struct.pack("<HHIQQ", 0, stream, high << 16 | low, made.kind("runtime", "KERNEL_MIX_AIC"), 0)
    made.say("compact.task_track", "runtime", 102, body)
    made.say(
        "compact.node_basic_info", "node", 103, struct.pack("<QIQII", made.hash("net/MatMul-op1"), 4, made.hash("MatMul"), 24 | 2 << 16, 0)
    )
    for function, at in ((0, 150), (1, 190)):
        made.put(
            "device_0/data/stars_soc.data.0.slice_0", struct.pack("<4HQ16x", function | function << 6, DEVICE_MAGIC, low, high, device(at))
        )
    for core, flags, cycles in ((0, 3, 14_400), (1, 2, 28_800)):
        values = [cycles >> place for place in range(1, 11)]
        record = struct.pack("<4HQBBHBBHHHI10Q", 0b101010, DEVICE_MAGIC, low, high, cycles, 0, flags, 0, core, 0, 0, 0, 0, 0, *values)
        made.put("device_0/data/ffts_profile.data.0.slice_0", record + struct.pack("<QQ", device(150), device(190)))
    root = made.write(tmp_path)
    for info in (root / "host" / "info.json", root / "device_0" / "info.json.0"):
        info.write_text(info.read_text().replace('"platform_version": "5"', '"platform_version": "15"'))
    sample = root / "device_0" / "sample.json"
    document = {"ai_core_metrics": group, "ai_core_profiling_events": events, "aiv_metrics": group, "aiv_profiling_events": events}
    sample.write_text(json.dumps(json.loads(sample.read_text()) | document))
    trace = read(root)
    (row,) = kernels(trace).to_dicts()
    assert (row["name"], row["start_ns"] - START_NS, row["dur_ns"]) == ("net/MatMul-op1", 150_000, 40_000)
    about = json.loads(row["args"])
    assert (about["Task Id"], about["Physic Stream Id"]) == (high << 16 | low, stream)
    # 14,400 cycles of 24 blocks on 24 cores at 1.8 GHz; 28,800 of 48 blocks on 48.
    assert (about["aic_total_cycles"], about["aicore_time(us)"]) == (14_400, pytest.approx(14_400 / 1800 / 24, abs=1e-6))
    assert (about["aiv_total_cycles"], about["aiv_time(us)"]) == (28_800, pytest.approx(28_800 / 1800 / 48, abs=1e-6))
    assert {name: about[f"aic_{name}"] for name in wanted} == pytest.approx(wanted, abs=1e-6, rel=1e-6)
    assert all(f"aiv_{name}" in about for name in wanted)
    assert problems(trace) == [("no iterations are marked: the whole recording is one step", 0)]


def test_task_numbers_that_begin_anew_are_told_apart_by_flips(tmp_path: Path) -> None:
    """The same stream and task twice, once before and once after the flip, are two operators."""
    made = Directory()
    for name, at, ran in (("before", 100, 1000), ("after", 300, 2000)):
        made.call("node", "launch", at, at + 8, made.hash(name))
        made.launch(at + 2, 3, 5, "KERNEL_AICORE", name)
        made.run(3, 5, 0, ran, ran + 10)
    made.launch(200, 3, 0, "FLIP_TASK")
    flip = made.files["host/data/aging.compact.task_track.slice_0"]
    flip[-1] = flip[-1][:30] + struct.pack("<H", 1) + flip[-1][32:]  # its number
    made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQHHHH16x", 1, 14, 40, 0, device(1500), 3, 1, 0, 0))
    assert kernels(read(made.write(tmp_path)))["name"].cast(pl.String).to_list() == ["before", "after"]


def marked(event: int, start_us: float, end_us: float, text: bytes, mark: int | None = None, segment: int = 0) -> bytes:
    head = struct.pack("<HHIIIQ", HOST_MAGIC, 20500, 0, 100, 232, host(start_us))
    about = struct.pack("<HHIHHIIIIiQ", int(mark is not None), segment, 0, 0, 0, 42, 100, 6, event, 0, 0)
    return head + about + struct.pack("<4Qi", host(start_us), host(end_us), mark or 0, 0, 0) + text.ljust(156, b"\0")


def test_ranges_and_moments_that_a_program_marks_are_annotations_on_the_host_and_on_the_device(tmp_path: Path) -> None:
    made = small_network()
    file = "host/data/aging.additional.msproftx.slice_0"
    made.put(file, marked(1, 100, 250, b"forward"))
    made.put(file, marked(0, 120, 120, b"here"))
    made.put(file, marked(2, 130, 300, b"a long " * 22, mark=5))
    made.put(file, marked(2, 130, 300, b"text", mark=5, segment=1))
    made.put(file, marked(2, 140, 150, b"lost", mark=6, segment=2))
    for at in (160, 210):
        made.put("device_0/data/ts_track.data.0.slice_0", struct.pack("<BBHIQQQHHHH", 1, 10, 40, 0, device(at), 5, 2**32 - 1, 3, 0, 11, 0))
    trace = read(made.write(tmp_path))
    rows = (
        trace.spans.filter(pl.col("category") == "mstx").join(trace.tracks.select("track", "label"), on="track").sort("start_ns", "label")
    )
    found = rows.select(pl.col("name", "kind").cast(pl.String), pl.col("start_ns") - START_NS, "dur_ns", "label").collect().rows()
    long = "a long " * 22 + "text"
    assert found == [
        ("forward", "annotation", 100_000, 150_000, "Thread 100 marks"),
        ("here", "instant", 120_000, 0, "Thread 100 marks"),
        (long, "annotation", 130_000, 170_000, "Thread 100 marks"),
        ("lost", "annotation", 140_000, 10_000, "Thread 100 marks"),
        (long, "annotation", 160_000, 50_000, "Marks on stream 3"),
    ]
    assert problems(trace) == [("missing segments of mark texts", 2)]


def test_steps_that_a_framework_marks_itself_and_the_fetching_of_data(tmp_path: Path) -> None:
    """Tags 60000 and 60001 around steps where no graph marks iterations; even and odd ones from 20000 on around GetNext."""
    made = Directory()
    for at, tag in ((100, 60_000), (110, 20_000), (130, 20_001), (200, 60_001), (210, 60_000), (290, 60_001), (300, 60_000)):
        made.tag(at, tag)
    made.run(3, 1, 0, 150, 160)
    made.run(3, 2, 0, 250, 260)
    trace = read(made.write(tmp_path))
    steps = trace.steps.sort("step").select("step", pl.col("start_ns") - START_NS, pl.col("end_ns") - START_NS).collect().rows()
    assert steps == [(1, 100_000, 200_000), (2, 210_000, 290_000)]
    data = trace.spans.filter(pl.col("kind") == "data").select(
        pl.col("name").cast(pl.String), pl.col("start_ns") - START_NS, "dur_ns", "step"
    )
    assert data.collect().rows() == [("GetNext", 110_000, 20_000, 1)]


def test_what_was_loaded_before_is_static_and_may_run_many_times(tmp_path: Path) -> None:
    """A graph is launched once, before the recording's own calls; its task runs again and again."""
    made = Directory()
    made.call("node", "launch", 10, 18, made.hash("loaded"))
    made.launch(12, 3, 5, "KERNEL_AICORE", "loaded")
    made.say("compact.node_basic_info", "node", 13, struct.pack("<QIQIIB", made.hash("loaded"), 0, made.hash("MatMul"), 8, 0, 0))
    made.files = {name.replace("/aging.", "/unaging."): parts for name, parts in made.files.items()}
    made.call("node", "launch", 100, 108, made.hash("asked"))
    made.launch(102, 3, 6, "KERNEL_AICORE", "asked")
    made.say("compact.node_basic_info", "node", 103, struct.pack("<QIQIIB", made.hash("asked"), 0, made.hash("Add"), 8, 0, 0))
    for task, at in ((5, 200), (6, 220), (5, 300), (5, 400)):
        made.run(3, task, 0, at, at + 10)
    rows = [(row["name"], json.loads(row["args"])["OP State"]) for row in kernels(read(made.write(tmp_path))).to_dicts()]
    assert rows == [("loaded", "static"), ("asked", "dynamic"), ("loaded", "static"), ("loaded", "static")]


@pytest.mark.parametrize("cut", [1, 17, 63, 64, 65, 200])
def test_of_a_file_without_its_head_or_its_tail_all_whole_records_are_read(tmp_path: Path, cut: int) -> None:
    root = small_network().write(tmp_path)
    log = root / "device_0" / "data" / "stars_soc.data.0.slice_0"
    whole = log.read_bytes()
    ends = {row["start_ns"] for row in kernels(read(root)).to_dicts()}
    for data in (whole[cut:], whole[:-cut]):
        log.write_bytes(data)
        trace = read(root)
        missing = -(-cut // 64)
        found = {row["start_ns"] for row in kernels(trace).to_dicts()}
        assert found <= ends and len(found) >= 12 - missing
        assert sum(lost for _, lost in problems(trace)) >= 1


def test_bytes_too_many_in_the_middle_cost_only_the_records_around_them(tmp_path: Path) -> None:
    root = small_network().write(tmp_path)
    log = root / "device_0" / "data" / "stars_soc.data.0.slice_0"
    whole = log.read_bytes()
    log.write_bytes(whole[: 10 * 64 + 20] + b"?" * 33 + whole[10 * 64 + 20 :])
    assert kernels(read(root)).height >= 11


def _mixed(text: str | int, size: int) -> bytes:
    """A name as older versions of CANN write it: text, or a hash."""
    return (
        struct.pack("<B7xQ", 0, text).ljust(8 + size, b"\0")
        if isinstance(text, int)
        else (b"\1" + bytes(7) + text.encode()).ljust(8 + size, b"\0")
    )


def test_a_host_of_cann_5_and_6_names_what_the_device_ran(tmp_path: Path) -> None:
    """Files of each library, tasks with their batch in the upper half of their number, and the task log of an older chip."""
    made = Directory()

    def operator(op: str | int, kind: str, core: int, task: int, at: float) -> None:
        body = struct.pack("<HHI", HOST_MAGIC, 23, core) + _mixed(op, 120) + _mixed(kind, 56)
        made.put("host/data/Framework.task_desc_info.0.slice_0", body + struct.pack("<QQ6I16x", 1, host(at), 0, 24, 7, 3, task, 100))

    operator("net/MatMul-op1", "MatMul", 0, 5, 20)
    operator(77, "GetLoss", 1, 6, 30)
    made.put("host/data/Framework.hash_dic.0.slice_0", b"77:net/loss/GetLoss-op2\n")
    tensors = b"".join(struct.pack("<11I", way, 2, 1, 16, 32, *[0] * 6) for way in (0, 0, 1))
    record = struct.pack("<HHIQ3I", HOST_MAGIC, 24, 7, 1, 3, 5, 3) + tensors.ljust(220, b"\0") + bytes(8)
    made.put("host/data/Framework.tensor_data_info.0.slice_0", record)
    made.put("host/data/Framework.model_load_info_7.0.slice_0", struct.pack("<HHI", HOST_MAGIC, 20, 7) + _mixed("net", 120) + bytes(120))
    for task, kind, at in ((5, b"KERNEL_AICORE", 21), (6, b"KERNEL_AICPU", 31), (9, b"MEMCPY_ASYNC", 41)):
        made.put("host/data/runtime.task_track.0.slice_0", struct.pack("<HHIQ32sIH10x", HOST_MAGIC, 0, 100, host(at), kind, task, 3))
    api = struct.pack("<HHIQQQ64s160x", HOST_MAGIC, 0, 100, host(20.5), host(22), 0, b"KernelLaunch")
    made.put("host/data/runtime.api.0.slice_0", api)
    acl = struct.pack("<HHIQQII64s32x", HOST_MAGIC, 0, 2, host(10), host(60), 42, 100, b"aclmdlExecute")
    made.put("host/data/AclModule.acl_model.0.slice_0", acl)
    for number, (task, sqe, start, end) in enumerate(((5, 0, 150, 190), (6, 1, 200, 210), (9, 9, 220, 230))):
        for tag, at in ((0, start), (1, end)):
            head = struct.pack("<BBHHHQI44x", tag | (2 * number + tag) % 16 << 4, sqe, DEVICE_MAGIC, 0, task, device(at), 3)
            made.put("device_0/data/hwts.data.0.slice_0", head)
    root = made.write(tmp_path)
    for name in ("hash_dic", "type_info_dic"):
        (root / "host" / "data" / f"unaging.additional.{name}.slice_0").unlink()
    trace = read(root)
    rows = kernels(trace).with_columns(pl.col("name", "op_type", "scope", "category").cast(pl.String)).to_dicts()
    found = [(row["name"], row["op_type"], row["scope"], row["category"], row["start_ns"] - START_NS, row["dur_ns"]) for row in rows]
    assert found == [
        ("net/MatMul-op1", "MatMul", "net", "AI_CORE", 150_000, 40_000),
        ("net/loss/GetLoss-op2", "GetLoss", "net/loss", "AI_CPU", 200_000, 10_000),
    ]
    assert (rows[0]["shapes"], rows[0]["dtypes"]) == ("[[16,32],[16,32]]", '["FLOAT16","FLOAT16"]')
    assert json.loads(rows[0]["args"])["Block Num"] == 24
    assert trace.table("models").select("model", "name").collect().rows() == [(7, "net")]
    calls = {row["span"]: row["name"] for row in trace.spans.filter(pl.col("kind") == "api").collect().to_dicts()}
    assert sorted(calls.values()) == ["KernelLaunch", "aclmdlExecute"]
    assert [calls[row["flow_in"]] for row in rows] == ["KernelLaunch", "aclmdlExecute"]
    assert trace.spans.filter(pl.col("kind") == "copy").collect().height == 1
    assert problems(trace) == [("no iterations are marked: the whole recording is one step", 0)]


STARS, TRACK = "device_0/data/stars_soc.data.0.slice_0", "host/data/aging.compact.task_track.slice_0"


def _junk_head(root: Path) -> None:
    (root / STARS).write_bytes(b"?" * 27 + (root / STARS).read_bytes())


def _wrong_magic(root: Path) -> None:
    """The second record of the task log, the end of the first kernel; and the launch of the first."""
    for file, size, place in ((STARS, 64, 64 + 2), (TRACK, 64, 0)):
        data = bytearray((root / file).read_bytes())
        data[place : place + 2] = b"\0\0"
        assert len(data) % size == 0
        (root / file).write_bytes(bytes(data))


def _lost_records(root: Path) -> None:
    """Both of the second kernel's."""
    data = (root / STARS).read_bytes()
    (root / STARS).write_bytes(data[:128] + data[256:])


def _removed(*names: str) -> Callable[[Path], None]:
    def remove(root: Path) -> None:
        for name in names:
            (shutil.rmtree if (root / name).is_dir() else Path.unlink)(root / name)

    return remove


def _emptied(*names: str) -> Callable[[Path], None]:
    def empty(root: Path) -> None:
        for name in names:
            (root / name).write_bytes(b"")

    return empty


# What is done to a directory of twelve kernels; how many are left, how many of them have their name; what is said, and how much was lost.
DAMAGE: dict[str, tuple[Callable[[Path], None], int, int, dict[str, int]]] = {
    "junk head": (_junk_head, 12, 12, {"27 bytes belong to no complete record": 1}),
    "wrong magic": (_wrong_magic, 11, 11, {"records with a wrong magic number": 2, "tasks with a start and no end": 1}),
    "lost records": (_lost_records, 11, 11, {"records that the device dropped, at least: gaps in the record numbers": 2}),
    "no info.json of the device": (_removed("device_0/info.json.0"), 12, 12, {"no info.json: defaults are used": 0}),
    "no info.json of the host": (_removed("host/info.json"), 12, 12, {"no info.json: defaults are used": 0}),
    "no dictionary of names": (
        _removed("host/data/unaging.additional.hash_dic.slice_0"), 12, 0, {"no hash_dic: names are shown as numbers": 0},
    ),
    "no dictionary of types": (
        _removed("host/data/unaging.additional.type_info_dic.slice_0"), 12, 12, {"no type_info_dic: types of calls and tasks are shown": 0},
    ),
    "a device without its host": (_removed("host"), 0, 0, {"no host data: tasks have no names": 0}),
    "a host without its device": (_removed("device_0"), 0, 0, {"no device data: only calls on the host": 0}),
    "files of no length": (_emptied(STARS, "device_0/data/ffts_profile.data.0.slice_0"), 0, 0, {"the file is empty": 0}),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_whole_of_a_damaged_directory_is_read_and_what_is_lost_is_said(tmp_path: Path, damage: str) -> None:
    spoil, count, named, output = DAMAGE[damage]
    root = small_network().write(tmp_path)
    spoil(root)
    trace = read(root)
    rows = kernels(trace).with_columns(pl.col("name").cast(pl.String))
    assert rows.height == count
    assert rows.filter(pl.col("name").str.contains("-op")).height == named
    for what, lost in output.items():
        found = [number for text, number in problems(trace) if text.startswith(what)]
        assert found and sum(found) == lost, problems(trace)
    if damage == "a device without its host":
        ran = trace.spans.filter(pl.col("kind").is_in(["other", "sync", "copy", "kernel"])).collect()
        assert ran.height == 18  # twelve kernels and the six tasks of three collectives, by their numbers
    if damage == "a host without its device":
        assert trace.spans.filter(pl.col("kind") == "api").collect().height > 24


def test_times_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    made = small_network()
    made.run(3, 999, 0, 10.0, 1e15)
    trace = read(made.write(tmp_path))
    assert kernels(trace).height == 12
    assert ("tasks with invalid timestamps", 1) in problems(trace)


@pytest.mark.parametrize("numbers", seeds(20, 100))
def test_damaged_directories_of_any_kind_raise_nothing_but_a_message(numbers: range, tmp_path: Path) -> None:
    """Directories with files cut, emptied, removed, doubled and overwritten."""
    whole = small_network().write(tmp_path / "whole")
    for seed in numbers:
        chance = random.Random(seed)
        root = tmp_path / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(whole, root)
        for file in chance.sample([path for path in sorted(root.rglob("*")) if path.is_file()], chance.randint(1, 5)):
            file.write_bytes(_damaged(file.read_bytes(), chance))
        try:
            trace = read(root)
            for name in trace.tables:
                trace.table(name).collect()
        except StepscopeError:
            continue


def _damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    junk = bytes(chance.randrange(256) for _ in range(chance.randint(1, 90)))
    return chance.choice(
        [data[:at], data[at:], b"", data * 2, data[:at] + junk + data[at:], data[:at] + junk + data[at + len(junk) :], b"\xff" * len(data)]
    )


def test_without_the_counters_start_device_work_is_placed_by_its_launch(tmp_path: Path) -> None:
    root = small_network().write(tmp_path)
    (root / "device_0" / "dev_start.log.0").unlink()
    trace = read(root)
    first = kernels(trace).to_dicts()[0]
    assert (first["start_ns"] - START_NS, first["dur_ns"]) == (107_000, 40_000)  # launched 107 us after the start
    assert DEVICE_TICKS > 0


@pytest.mark.parametrize("strange", [2**80, -(2**80), "1e400", "nan"])
@pytest.mark.parametrize("key", ["collectionTimeBegin", "clockMonotonicRaw"])
def test_a_date_that_cannot_be_leaves_lengths_and_names_as_they_are(key: str, strange: object, tmp_path: Path) -> None:
    right = read(small_network().write(tmp_path / "right"))
    root = small_network().write(tmp_path / "strange")
    for place in (root / "host" / "start_info", root / "device_0" / "start_info.0"):
        place.write_text(json.dumps(json.loads(place.read_text()) | {key: strange}))
    kernels = [
        trace.spans.filter(pl.col("kind") == "kernel").select("name", "dur_ns").sort("name", "dur_ns").collect().rows()
        for trace in (right, read(root))
    ]
    assert kernels[0] == kernels[1] and kernels[0]


@pytest.mark.parametrize(("status", "task"), [(1, 0xA003), (0, 0x8003)])
def test_numbers_of_streams_are_packed_as_the_host_says(status: int, task: int, tmp_path: Path) -> None:
    """A record of stream 0xA003 (bits 13 and 15) and task 0x8005: expanded, bit 15 swaps 15 bits; otherwise bit 13 swaps 12."""
    made = Directory()
    made.say("compact.expand_stream_spec", "runtime", 5, struct.pack("<H", status))
    made.run(0xA003, 0x8005, 0, 150, 190)
    (row,) = read(made.write(tmp_path)).spans.filter(pl.col("name") == "AI_CORE").collect().to_dicts()
    about = json.loads(row["args"])
    assert (about["Physic Stream Id"], about["Task Id"]) == (5, task)


def test_an_ai_cpu_task_without_an_operator_is_no_kernel(tmp_path: Path) -> None:
    """One within the launch of an operator, one with the name of a kernel, one with neither."""
    made = Directory()
    made.call("node", "launch", 100, 108, made.hash("net/GetLoss-op1"))
    made.launch(102, 3, 0, "KERNEL_AICPU")
    made.launch(112, 3, 1, "KERNEL_AICPU", "RunCpuKernel")
    made.launch(122, 3, 2, "KERNEL_AICPU")
    for task in range(3):
        made.run(3, task, 1, 150 + task * 20, 160 + task * 20)
    found = (
        read(made.write(tmp_path)).spans.filter(pl.col("start_ns") >= START_NS + 150_000).sort("start_ns").select("kind", "name").collect()
    )
    assert found.rows() == [("kernel", "net/GetLoss-op1"), ("kernel", "RunCpuKernel"), ("other", "KERNEL_AICPU")]


def test_the_mean_time_of_an_unknown_number_of_blocks_is_unknown(tmp_path: Path) -> None:
    made = Directory()
    made.call("node", "launch", 100, 108, made.hash("net/MatMul-op1"))
    made.launch(102, 3, 0, "KERNEL_AICORE", "MatMul_kernel")
    made.run(3, 0, 0, 150, 190)
    made.count(3, 0, 0, 43_200, [21_600, 0, 0, 0, 0, 0, 0, 0], 150, 190)
    about = json.loads(kernels(read(made.write(tmp_path)))["args"][0])
    assert (about["aic_total_cycles"], about["aic_mac_ratio"], about.get("aicore_time(us)")) == (43_200, 0.5, None)
