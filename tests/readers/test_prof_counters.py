"""Samples of devices and of the host in a PROF directory, written by the tests: every expected value follows from what was written."""

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl

from prof_directories import DEVICE_MAGIC, MONOTONIC, REAL_US, Directory, device, host
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

START_NS = REAL_US * 1000


def read(root: Path, *, sample: dict[str, Any] | None = None, info: dict[str, Any] | None = None) -> Trace:
    for side in ("host", "device_0"):
        for name, more in (("sample.json", sample), ("info.json", info)):
            for file in (root / side).glob(f"{name}*"):
                file.write_text(json.dumps(json.loads(file.read_text()) | (more or {})))
    return prof.read(root, Options(scratch=root))


def samples(trace: Trace, *starts: str) -> list[tuple[str, int, float, str | None]]:
    rows = trace.counters.select(
        pl.col("name").cast(pl.String), pl.col("at_ns") - START_NS, "value", pl.col("unit").cast(pl.String)
    ).collect()
    return sorted(row for row in rows.iter_rows() if not starts or row[0].startswith(starts))


def test_samples_of_memories_and_links_become_rates(tmp_path: Path) -> None:
    made = Directory()
    for at_us, count in ((1000, 7), (2000, 1_000_000)):
        made.put("device_0/data/hbm.data.0.slice_0", struct.pack("<QQII", at_us, count, 0, 3))
        made.put("device_0/data/ddr.data.0.slice_0", struct.pack("<5I", at_us, count, 1, 0, 2**32 - 1))
        made.put("device_0/data/ddr.data.0.slice_0", struct.pack("<5I", at_us, count, 1, 0, 5))  # of one master: in the whole already
    made.put("device_0/data/npu_mem.data.0.slice_0", struct.pack("<IIQQQ", 500, 1, 0, 100, 4000))
    lines = "".join(f"{MONOTONIC + at}: {sent} {sent // 2}\n" for at, sent in ((0, 0), (1_000_000, 5_000)))
    made.put("device_0/data/hccs.data.0.slice_0", f"Timestamp Tx Rx\n{lines}".encode())
    assert samples(read(made.write(tmp_path))) == [
        ("DDR 0 Write npu 0", 2_000_000, 16e9, "bytes/s"),  # 16 bytes for each event on this chip
        ("HBM 3 Read npu 0", 2_000_000, 32e9, "bytes/s"),  # 32 MB in a millisecond
        ("HCCS rxThroughput npu 0", 1_000_000, 2.5e6, "bytes/s"),
        ("HCCS txThroughput npu 0", 1_000_000, 5e6, "bytes/s"),
        ("memory used npu 0", 500_000, 4100.0, "bytes"),
    ]


def test_samples_of_the_second_version_say_the_time_of_day(tmp_path: Path) -> None:
    made = Directory()
    for at_ns, count in ((1_000, 7), (1_001_000, 1_000_000)):
        made.put("device_0/data/hbm.data.0.slice_0", struct.pack("<IIIIQQ", 0, 0, 1, 3, count, START_NS + at_ns))
    made.put("device_0/data/npu_mem.app.0.slice_0", struct.pack("<IIQQQ", 0, 0, START_NS + 77, 100, 4000))
    assert samples(read(made.write(tmp_path), info={"version": "2.0"})) == [
        ("HBM 3 Write npu 0", 1_001_000, 32e9, "bytes/s"),
        ("process memory npu 0", 77, 4100.0, "bytes"),
    ]


def test_a_network_cards_ports_are_told_apart(tmp_path: Path) -> None:
    made = Directory()
    for port in (0, 1):
        line = f"{MONOTONIC + 5}: 100 1 {2048 + port} 3 4 5 6 7 1024 9 10 11 12 {port}\n"
        made.put("device_0/data/nic.data.0.slice_0", line.encode())
    found = samples(read(made.write(tmp_path)))
    assert found[:4] == [
        ("NIC 1 rxByteRate npu 0", 5, 2049.0, "bytes/s"),
        ("NIC 1 rxDropped npu 0", 5, 6.0, "packets"),
        ("NIC 1 rxErrors npu 0", 5, 5.0, "packets"),
        ("NIC 1 rxPacketRate npu 0", 5, 1.0, "packets/s"),
    ]
    assert ("NIC txByteRate npu 0", 5, 1024.0, "bytes/s") in found and len(found) == 16


def test_counts_of_a_network_card_become_rates(tmp_path: Path) -> None:
    made = Directory()
    for at, count in ((0, 10), (500_000_000, 60)):
        made.put(
            "device_0/data/netdev_stats.data.0.slice_0", (" ".join(map(str, [MONOTONIC + at, *range(count, count + 15)])) + "\n").encode()
        )
    found = samples(read(made.write(tmp_path)))
    assert len(found) == 15 and {value for _, _, value, _ in found} == {100.0}
    assert ("network mac_tx_total_oct npu 0", 500_000_000, 100.0, "bytes/s") in found
    assert ("network roce_rx_err_pkt npu 0", 500_000_000, 100.0, "packets/s") in found


def test_hits_and_traffic_of_the_last_level_cache(tmp_path: Path) -> None:
    """Hits are four events, requests two; an event of traffic is 4096 bytes, as msprof counts."""
    made = Directory()
    counts = {0x00: 3, 0x01: 7, 0x02: 1, 0x13: 2, 0x22: 3, 0x36: 4, 0x20: 15, 0x34: 5}
    for at_us in (1000, 2000):
        for event, count in counts.items():
            made.put("device_0/data/llc.data.0.slice_0", struct.pack("<QQII", at_us, count, event, 1))
    assert samples(read(made.write(tmp_path), sample={"llc_profiling": "read"})) == [
        ("LLC 1 Read Hit Rate npu 0", 1_000_000, 50.0, "percent"),
        ("LLC 1 Read Hit Rate npu 0", 2_000_000, 50.0, "percent"),
        ("LLC 1 Read Throughput npu 0", 2_000_000, 10 * 4096 * 1000.0, "bytes/s"),
    ]
    unknown = read(made.write(tmp_path / "again"))
    assert [lost for what, lost in unknown.problems.select("what", "lost").collect().iter_rows() if "llc_profiling" in what] == [16]


def test_pcie_qos_and_modules(tmp_path: Path) -> None:
    made = Directory()
    values = [value for place in range(7) for value in (place, place + 20, place + 10)]
    made.put("device_0/data/pcie.data.0.slice_0", struct.pack("<QI21I", MONOTONIC + 9, 0, *values))
    made.put("device_0/data/pcie.data.0.slice_0", struct.pack("<QI21I", MONOTONIC + 10, 0, *[2**32 - 1, *[0] * 20]))  # not measured
    made.put("device_0/data/qos.data.0.slice_0", struct.pack("<2I2Q10I", 0, 0, 0, device(3), *range(100, 110)))
    made.put("device_0/data/npu_module_mem.data.0.slice_0", struct.pack("<IIQQ", 7, 0, host(4), 12345))
    made.put("device_0/data/npu_module_mem.data.0.slice_0", struct.pack("<IIQQ", 7, 0, host(5), 2**64 - 5))
    trace = read(made.write(tmp_path), sample={"qosEvents": "AICORE,DVPP"})
    assert samples(trace, "QoS", "RUNTIME") == [
        ("QoS AICORE npu 0", 3000, 100e6, "bytes/s"),
        ("QoS DVPP npu 0", 3000, 101e6, "bytes/s"),
        ("RUNTIME reserved npu 0", 4000, 12345.0, "bytes"),
    ]
    pcie = samples(trace, "PCIe")
    assert len(pcie) == 21
    assert ("PCIe txPost npu 0", 9, 10e6, "bytes/s") in pcie and ("PCIe txPost max npu 0", 9, 20e6, "bytes/s") in pcie
    assert ("PCIe txNonpostLatency npu 0", 9, 13.0, "ns") in pcie and ("PCIe rxCpl min npu 0", 9, 6e6, "bytes/s") in pcie
    assert ("negative memory totals of modules", 1) in trace.problems.select("what", "lost").collect().rows()


def test_samples_of_the_scheduler(tmp_path: Path) -> None:
    made = Directory()

    def put(function: int, kind: int, body: bytes) -> None:
        head = struct.pack("<HHIQ", function | kind << 10, DEVICE_MAGIC, 0, device(6))
        made.put("device_0/data/stars_soc_profile.data.0.slice_0", head + body.ljust(48, b"\0"))

    put(0b011010, 0, struct.pack("<HH12x4Q", 0, 2, 10, 20, 30, 40))
    put(0b011100, 0, struct.pack("<16xH", 5 | 77 << 3))
    put(0b011011, 0b111111, struct.pack("<HH12x2Q", 0, 3, 8, 9))
    put(0b011011, 0b100010, struct.pack("<HH12x2Q", 0, 1, 6, 7))
    put(0b011001, 0, struct.pack("<HH12x8I", 0, 1, *range(1, 9)))
    put(0b011000, 1, struct.pack("<8x10I", *range(50, 60)))
    put(0b011101, 0, b"")
    trace = read(made.write(tmp_path), sample={"qosEvents": "AICORE"})
    assert samples(trace) == [
        ("L2 Buffer Bw Level npu 0", 6000, 77.0, None),
        ("Mata Bw Level npu 0", 6000, 5.0, None),
        ("PA Link 3 Rx npu 0", 6000, 8.0, None),
        ("PA Link 3 Tx npu 0", 6000, 9.0, None),
        ("PCIe 1 Read npu 0", 6000, 7.0, None),
        ("PCIe 1 Write npu 0", 6000, 6.0, None),
        ("QoS AICORE die 1 npu 0", 6000, 50e6, "bytes/s"),
        *[(f"SIO 1 {word} npu 0", 6000, value, None) for word, value in sorted(zip(
            ("req_rx", "rsp_rx", "snp_rx", "dat_rx", "req_tx", "rsp_tx", "snp_tx", "dat_tx"), map(float, range(1, 9)), strict=True))],
        ("read_bandwidth acc 2 npu 0", 6000, 20.0, None),
        ("read_ost acc 2 npu 0", 6000, 40.0, None),
        ("write_band_width acc 2 npu 0", 6000, 10.0, None),
        ("write_ost acc 2 npu 0", 6000, 30.0, None),
    ]  # fmt: skip
    assert ("samples of unsupported kinds", 1) in trace.problems.select("what", "lost").collect().rows()


def test_ports_of_the_unified_bus(tmp_path: Path) -> None:
    made = Directory()
    made.put("device_0/data/ub.data.0.slice_0", struct.pack("<4H15Q", 0x5A5A, 0, 4, 0, 2, *range(14)))
    found = samples(read(made.write(tmp_path)))
    assert len(found) == 14 and ("UB 4 rxBytes npu 0", 2_000_000, 4.0, None) in found


# The host


def stat(thread: int, name: str, user: int, system: int, core: int) -> str:
    behind = ["S", *["0"] * 10, str(user), str(system), *["0"] * 23, str(core), "0"]
    return f"{thread} ({name}) {' '.join(behind)}"


def test_what_the_process_uses_of_processors_memory_disk_and_network(tmp_path: Path) -> None:
    made = Directory()
    cpu = [f"time {MONOTONIC}", "1000.00 500.0", stat(42, "python3", 10, 5, 0), stat(43, "a worker (2)", 0, 0, 1)]
    cpu += [f"time {MONOTONIC + 10**9}", "1001.00 500.5", stat(42, "python3", 60, 15, 0), stat(43, "a worker (2)", 100, 0, 1)]
    made.put("host/data/host_cpu.data.slice_0", "\n".join(cpu).encode())
    made.put("host/data/host_mem.data.slice_0", f"{MONOTONIC + 5} 900 25 3 1 0 8 0\nbroken\n".encode())
    disk = f"start_time {MONOTONIC}\n" + "12:00:01 42 be/4 root 2.00 K/s 1.50 M/s 0.00 % 1.5 % python3\n" * 2
    made.put("host/data/host_disk.data.slice_0", disk.encode())
    card = "  {}: {} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0"
    network = [f"time {MONOTONIC}", card.format("lo", 0, 0), card.format("eth0", 1000, 10), card.format("eth1", 0, 0)]
    network += [f"time {MONOTONIC + 5 * 10**8}", card.format("lo", 10**9, 0), card.format("eth0", 3000, 20), card.format("eth1", 500, 0)]
    made.put("host/data/host_network.data.slice_0", "\n".join(network).encode())
    second = 10**9
    assert samples(read(made.write(tmp_path), sample={"host_disk_freq": 2}, info={"sysClockFreq": 100})) == [
        ("network received", second // 2, 5000.0, "bytes/s"),
        ("network sent", second // 2, 20.0, "bytes/s"),
        ("process 42 cpu system", second, 0.1, "cores"),
        ("process 42 cpu user", second, 1.5, "cores"),
        ("process 42 disk read", second // 2, 2048.0, "bytes/s"),
        ("process 42 disk read", second, 2048.0, "bytes/s"),
        ("process 42 disk written", second // 2, 1.5 * 2**20, "bytes/s"),
        ("process 42 disk written", second, 1.5 * 2**20, "bytes/s"),
        ("process 42 memory", 5, 25.0 * 4096, "bytes"),
        ("process 42 on core 0", second, 0.6, "share"),
        ("process 42 on core 1", second, 1.0, "share"),
    ]


def test_what_the_machine_and_the_devices_own_processors_do(tmp_path: Path) -> None:
    made = Directory()
    for file in ("host/data/host_sys_cpu.data.slice_0", "device_0/data/SystemCpuUsage.data.0.slice_0"):
        text = f"TimeStamp:{MONOTONIC}\ncpu0 0 0 0 0 0 0 0 0 0 0\n\nTimeStamp:{MONOTONIC + 50}\ncpu0 30 10 5 40 5 3 2 5 0 0\n\n"
        made.put(file, text.encode())
    made.put("host/data/host_sys_mem.data.slice_0", f"TimeStamp:{MONOTONIC + 7}\nMemTotal:  1000 kB\nMemFree:  300 kB\n\n".encode())
    shares = {"idle": 0.4, "io": 0.05, "steal": 0.05, "system": 0.1, "user": 0.4}
    found = samples(read(made.write(tmp_path)))
    assert found == [
        *[(f"cpu 0 {word}{on}", 50, value, "share") for word, value in shares.items() for on in ("", " npu 0")],
        ("memory available", 7, 300.0 * 1024, "bytes"),
        ("memory used", 7, 700.0 * 1024, "bytes"),
    ]  # fmt: skip


def test_calls_of_the_system_are_spans_of_their_thread(tmp_path: Path) -> None:
    made = Directory()
    text = "   100.250 ( 0.012 ms): python3/4242 futex(uaddr: 0x7f) = 0\n   103.250 ( 1.500 ms): python3/4243 read(fd: 3) = 5\njunk\n"
    made.put("host/data/host_syscall.data.slice_0", text.encode())
    made.put("host/data/host_pthreadcall.data.slice_0", b"[pid 4242] 1700000.000100 python3->pthread_mutex_lock(0x1) = 0 <0.000250>\n")
    trace = read(made.write(tmp_path))
    rows = trace.spans.join(trace.tracks, on="track").sort("start_ns", "dur_ns")
    found = rows.select(
        pl.col("name").cast(pl.String), pl.col("start_ns") - START_NS, "dur_ns", "label", pl.col("category").cast(pl.String)
    ).collect()
    assert found.rows() == [
        ("futex", 0, 12_000, "Thread 4242 system", "system call"),
        ("pthread_mutex_lock", 0, 250_000, "Thread 4242 system", "library call"),
        ("read", 3_000_000, 1_500_000, "Thread 4243 system", "system call"),
    ]
    assert ("lines that are no call", 1) in trace.problems.select("what", "lost").collect().rows()
