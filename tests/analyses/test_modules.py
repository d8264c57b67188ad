import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

import stepscope
import tiny

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"


def test_a_module_has_the_time_of_its_calls_and_of_the_device_work_of_both_passes() -> None:
    trace = tiny.trace(
        spans="""
            span  kind    track  name   scope    start_ns  dur_ns  flow_in  op
            0     scope   0      net    net      0         100     -        -
            1     scope   0      a      net/a    10        30      -        -
            2     op      0      mm     net/a    15        20      -        -
            3     scope   0      b      net/b    50        40      -        -
            4     scope   0      a      net/a    110       6       -        -
            5     op      1      MmBw   net/a    200       50      2        -
            6     op      1      mm     net/a    210       30      -        -
            7     kernel  9      k1     net/a    30        7       -        2
            8     kernel  9      k2     net/a    230       11      -        6
            9     kernel  9      k3     net/a    250       13      -        5
            10    kernel  9      k4     net      300       17      -        -
            11    kernel  9      k5     -        320       19      -        -
        """,
        tracks="""
            track  kind
            0      thread
            1      thread
            9      stream
        """,
    )
    tiny.assert_rows(
        trace.modules().drop("flops"),
        """
        rank  scope  depth  calls  forward_ns  self_ns  backward_ns  device_ns  device_self_ns  device_forward_ns  device_backward_ns
        0     net    1      1      100         30       50           48         17              24                 24
        0     net/a  2      2      36          36       50           31         31              7                  24
        0     net/b  2      1      40          40       -            0          0               0                  0
        """,
    )
    assert trace.modules(depth=1)["scope"].to_list() == ["net"]
    assert trace.modules(depth=1)["device_ns"].to_list() == [48]


def test_modules_of_a_list_are_not_self_time_of_its_caller() -> None:
    trace = tiny.trace(
        spans="""
            kind   name  scope    start_ns  dur_ns
            scope  net   net      0         100
            scope  0     net/h/0  10        30
            op     mm    net/h/0  15        20
            scope  1     net/h/1  50        40
        """
    )
    tiny.assert_rows(
        trace.modules(),
        """
        scope    calls  forward_ns  self_ns
        net      1      100         30
        net/h    -      -           -
        net/h/0  1      30          30
        net/h/1  1      40          40
        """,
    )


def test_scopes_without_calls_still_have_their_device_work() -> None:
    trace = tiny.trace(
        spans="""
            kind    track  name  scope      start_ns  dur_ns
            kernel  9      k1    jit/dense  0         7
            kernel  9      k2    jit/dense  10        5
            kernel  9      k3    jit/norm   20        3
        """
    )
    tiny.assert_rows(
        trace.modules(),
        """
        scope      calls  forward_ns  self_ns  backward_ns  device_ns  device_self_ns
        jit        -      -           -        -            15         0
        jit/dense  -      -           -        -            12         12
        jit/norm   -      -           -        -            3          3
        """,
    )


def test_a_trace_without_scopes_has_no_modules() -> None:
    assert tiny.trace().modules().height == 0
    assert tiny.trace(spans="kind track name start_ns dur_ns\n op 0 mm 0 10").modules().height == 0


def test_modules_of_a_real_recording_have_the_time_that_its_events_say() -> None:
    """The path of a moment is that of the module frames around it; a backward operator's is that of the moment its flow starts."""
    events = json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
    spans = [e | {"end": e["ts"] + e["dur"]} for e in events if e.get("ph") == "X"]
    modules = [e for e in spans if e["name"].startswith("nn.Module: ")]
    operators = [e for e in spans if e["cat"] == "cpu_op"]
    launches = {e["args"]["correlation"]: e for e in spans if e["cat"] in ("cuda_runtime", "cuda_driver")}
    flows = {phase: {e["id"]: (e["tid"], e["ts"]) for e in events if e.get("cat") == "fwdbwd" and e["ph"] == phase} for phase in "sf"}
    forward_of = {end: flows["s"][flow] for flow, end in flows["f"].items()}

    def around(some: list[dict[str, float]], thread: float, at: float) -> list[dict[str, float]]:
        return sorted((e for e in some if e["tid"] == thread and e["ts"] <= at < e["end"]), key=lambda e: (e["ts"], -e["end"]))

    def paths(thread: float, at: float) -> list[str]:
        names = [str(e["name"]).removeprefix("nn.Module: ") for e in around(modules, thread, at)]
        return ["/".join(names[:level]) for level in range(1, len(names) + 1)]

    calls: Counter[str] = Counter()
    times: dict[str, Counter[str]] = {column: Counter() for column in ("forward_ns", "device_forward_ns", "device_backward_ns")}
    for event in modules:
        path = paths(event["tid"], event["ts"])[-1]
        calls[path] += 1
        times["forward_ns"][path] += round(event["dur"] * 1000)
    for event in spans:
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            launch = launches[event["args"]["correlation"]]
            linked = [(e["tid"], e["ts"]) for e in around(operators, launch["tid"], launch["ts"])]
            undone = [forward_of[moment] for moment in linked if moment in forward_of]
            for path in paths(*(undone or [(launch["tid"], launch["ts"])])[-1]):
                times["device_backward_ns" if undone else "device_forward_ns"][path] += round(event["dur"] * 1000)
    got = stepscope.open(SAMPLE).modules()
    assert dict(got.select("scope", "calls").iter_rows()) == dict(calls)
    for column, expected in times.items():
        assert dict(got.select("scope", column).iter_rows()) == {scope: expected[scope] for scope in calls}
    # Two products of 256 x 512 and 512 x 2048 in each of 3 steps; a third, for the gradient of its input, only in the second block.
    flops = dict(got.select("scope", "flops").iter_rows())
    product = 3 * 2 * 256 * 512 * 2048
    assert (flops["M_0/Sequential_0/B_0/Linear_0"], flops["M_0/Sequential_0/B_1/Linear_2"]) == (2 * product, 3 * product)


def test_times_within_a_module_add_up_to_it() -> None:
    got = {row["scope"]: row for row in stepscope.open(SAMPLE).modules().iter_rows(named=True)}
    for scope, row in got.items():
        children = [inner for path, inner in got.items() if path.rpartition("/")[0] == scope]
        assert row["self_ns"] + sum(inner["forward_ns"] for inner in children) == row["forward_ns"]
        assert row["device_self_ns"] + sum(inner["device_ns"] for inner in children) == row["device_ns"]
    assert got["M_0"]["device_ns"] == pytest.approx(sum(row["device_self_ns"] for row in got.values()))
