"""Figures in sentences of `verdict` beside those that plain Python computes from the files of three recordings."""

import bisect
import csv
import gzip
import json
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import stepscope

Event = dict[str, Any]
# ResNet-50 at 224 x 224: multiply-adds of its convolutions, of the first of them, and of the classifier, per image.
CONVOLUTIONS, FIRST, CLASSIFIER = 4_087_136_256, 118_013_952, 2_048_000
BATCH, STEPS = 64, 2
H200_BF16 = 989.4e12


def parameters(path: Path, code: str, rank: int | None = 0, device: str | None = None) -> dict[str, Any]:
    """The parameters of the first row with this code."""
    for row in stepscope.open(path).verdict().iter_rows(named=True):
        if row["code"] == code and row["rank"] == rank and device in (None, row["device"]):
            return dict(json.loads(row["parameters"]))
    raise AssertionError(f"no row {code}")


@pytest.fixture(scope="module")
def resnet(shared: Path) -> tuple[Path, list[Event]]:
    path = shared / "torch_h200" / "resnet50_full.json.gz"
    with gzip.open(path) as file:
        return path, json.load(file)["traceEvents"]


def nanoseconds(event: Event, key: str = "dur") -> int:
    return round(Fraction(str(event[key])) * 1000)


def test_kernels_of_a_kineto_file(resnet: tuple[Path, list[Event]]) -> None:
    path, events = resnet
    kernels = [event for event in events if event.get("cat") == "kernel"]
    times: Counter[str] = Counter()
    for event in kernels:
        times[event["name"]] += nanoseconds(event)
    total, (name, longest) = times.total(), times.most_common(1)[0]
    half, covered = 0, 0
    for _, time in times.most_common():
        half, covered = half + 1, covered + time
        if covered * 2 >= total:
            break
    found = parameters(path, "kernels-largest")
    assert (found["kernel_full"], found["share"], found["total"]) == (name, pytest.approx(longest / total), total)
    assert (found["half"], found["kernels"]) == (half, len(times))
    short = [nanoseconds(event) for event in kernels if nanoseconds(event) < 10_000]
    found = parameters(path, "kernels-short")
    assert (found["calls"], found["time"]) == (len(kernels), sum(short))
    assert (found["share"], found["time_share"]) == (pytest.approx(len(short) / len(kernels)), pytest.approx(sum(short) / total))


def test_launches_on_an_empty_stream_of_a_kineto_file(resnet: tuple[Path, list[Event]]) -> None:
    path, events = resnet
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    streams: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            streams[event["tid"]].append(event)
    launched = late = 0
    for work in streams.values():
        busy_until = Fraction(0)
        for event in sorted(work, key=lambda event: event["ts"]):
            call, start = calls.get(event["args"]["correlation"]), Fraction(str(event["ts"]))
            if call is not None:
                launched += 1
                late += busy_until <= Fraction(str(call["ts"]))
            busy_until = max(busy_until, start + Fraction(str(event["dur"])))
    found = parameters(path, "launches-host-bound")
    assert (found["calls"], found["late"]) == (launched, late)


def test_memory_of_a_kineto_file(resnet: tuple[Path, list[Event]]) -> None:
    path, events = resnet
    changes = sorted(
        (event for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == 1), key=lambda event: event["ts"]
    )
    highest = max(changes, key=lambda event: event["args"]["Total Allocated"])
    peak = highest["args"]["Total Allocated"]
    found = parameters(path, "memory-peak", device="gpu 0")
    assert (found["peak"], found["reserved"], found["capacity"]) == (peak, highest["args"]["Total Reserved"], 150_109_880_320)
    # The innermost operator around an allocation, among those of its thread.
    operators = sorted((event for event in events if event.get("cat") == "cpu_op"), key=lambda event: event["ts"])
    starts = [event["ts"] for event in operators]
    live: dict[int, tuple[str | None, int]] = {}
    for change in changes[: changes.index(highest) + 1]:
        address, size = change["args"]["Addr"], change["args"]["Bytes"]
        if size < 0:
            live.pop(address, None)
            continue
        before = reversed(operators[: bisect.bisect_right(starts, change["ts"])])
        around = (one for one in before if one["tid"] == change["tid"] and one["ts"] + one["dur"] >= change["ts"])
        live[address] = (next((one["name"] for one in around), None), size)
    held: Counter[str | None] = Counter()
    for name, size in live.values():
        held[name] += size
    name, size = held.most_common(1)[0]
    found = parameters(path, "memory-operator", device="gpu 0")
    assert (found["operator"], found["bytes"], found["share"]) == (name, size, pytest.approx(size / peak))
    assert found["blocks"] == sum(one == name for one, _ in live.values())


def test_flops_of_resnet_50(resnet: tuple[Path, list[Event]]) -> None:
    """Backward computes the gradients of weights and inputs, each as much as forward; the first convolution has no input gradient."""
    path, events = resnet
    backward, products = 2 * CONVOLUTIONS - FIRST, CONVOLUTIONS + 3 * CLASSIFIER
    flops = 2 * BATCH * STEPS * (backward + products)
    matrix = [
        event
        for event in events
        if event.get("cat") == "cpu_op" and event["name"] in ("aten::convolution", "aten::convolution_backward", "aten::mm", "aten::addmm")
    ]
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    time = 0
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            call = calls.get(event["args"]["correlation"])
            if call and any(one["tid"] == call["tid"] and one["ts"] <= call["ts"] < one["ts"] + one["dur"] for one in matrix):
                time += nanoseconds(event)
    found = parameters(path, "flops-utilization")
    assert found["rate"] == pytest.approx(flops / time * 1e9)
    assert found["share"] == pytest.approx(flops / time * 1e9 / H200_BF16)
    assert (found["peak"], found["precision"], found["chip"]) == (H200_BF16, "bf16", "NVIDIA H200")
    found = parameters(path, "flops-largest")
    assert (found["operator"], found["share"]) == ("aten::convolution_backward", pytest.approx(backward / (backward + products)))


def test_operators_of_a_mindspore_recording(shared: Path) -> None:
    path = shared / "mindspore_cpu" / "lenet_graph"
    (folder,) = path.iterdir()
    types: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text()):
        if event["ph"] == "X" and event["args"].get("type") == "HostCpuOps":
            op_type = event["name"].rsplit("/", 1)[-1].rsplit("-op", 1)[0]
            types[op_type] += nanoseconds(event)
            calls[op_type] += 1
    total, (name, longest) = types.total(), types.most_common(1)[0]
    found = parameters(path, "operators-largest")
    assert (found["operator"], found["calls"], found["share"]) == (name, calls[name], pytest.approx(longest / total, abs=1e-4))
    assert found["time"] == pytest.approx(longest, rel=1e-4)
    convolutions = sum(time for op_type, time in types.items() if op_type.startswith("Conv2D"))
    found = parameters(path, "operators-families")
    assert (found["family"], found["share"]) == ("conv", pytest.approx(convolutions / total, abs=1e-4))


def test_kernels_and_memory_of_torch_npu(shared: Path) -> None:
    path = shared / "ascend" / "torch_npu" / "text" / "level1"
    output = path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    with (output / "kernel_details.csv").open() as file:
        times: Counter[str] = Counter()
        for row in csv.DictReader(file):
            times[row["Name"]] += round(Fraction(row["Duration(us)"].strip()) * 1000)
    found = parameters(path, "kernels-one")
    longest = times[found["kernel"]]
    assert longest == max(times.values()) == found["time"]
    with (output / "memory_record.csv").open() as file:
        samples = [row for row in csv.DictReader(file) if row["Total Allocated(MB)"]]
    peaks = {row["Component"]: 0.0 for row in samples}
    for row in samples:
        peaks[row["Component"]] = max(peaks[row["Component"]], float(row["Total Allocated(MB)"]))
    assert parameters(path, "memory-peak-only")["peak"] == round(peaks["PTA+GE"] * 2**20)
