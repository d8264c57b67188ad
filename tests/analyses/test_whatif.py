"""Expected values are worked out by hand from the dependencies that each trace shows."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
import tiny
from stepscope.analyses.shared.replays.changes import NEVER, parse_scales
from stepscope.analyses.shared.replays.graph import build
from stepscope.analyses.shared.replays.nodes import KERNEL, Graph
from stepscope.analyses.shared.replays.replay import path_shares, replay
from stepscope.errors import UsageError
from stepscope.model.trace import Trace
from stepscope.process.compiled import choice, library

SAMPLES = Path(__file__).parent.parent / "samples"
TRACKS = """
    track  kind    label         device
    0      thread  main          -
    7      stream  "stream_7"    0
    8      stream  "stream_8"    0
"""


def synchronized() -> Trace:
    """One step of 100 us: k1 starts 8 us after its launch, k2 waits for k1 (2 us after it), the host waits for k2 (10 us after it)."""
    return tiny.trace(
        spans="""
            track  kind    name      start_ns  dur_ns  span  flow_in
            0      step    step      0         100000  0     -
            0      op      a         0         10000   1     -
            0      api     launch    2000      2000    2     -
            0      op      b         10000     20000   3     -
            0      api     launch    12000     2000    4     -
            0      sync    wait      40000     40000   5     -
            0      op      c         82000     13000   6     -
            7      kernel  k1        10000     20000   7     2
            7      kernel  k2        32000     38000   8     4
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100000
        """,
    )


@pytest.mark.parametrize(
    ("changes", "predicted_ns"),
    [
        ({}, 100_000),
        ({"scale": "k1=0.5"}, 90_000),  # k1 20, k2 22 to 60, host continues at 70 instead of 80
        ({"scale": "k2=0"}, 63_000),  # the wait returns after its own 3 us, at 43 instead of 80
        ({"scale": "k*=0"}, 63_000),
        ({"scale": "c=0"}, 87_000),
        ({"scale": "b=0"}, 100_000),  # k2 waits for k1 as before
        ({"remove": "sync"}, 70_000),  # k2 ends at 70, the host at 63
        ({"remove": "host"}, 60_000),  # launches at 0: k1 to 20, k2 from 22 to 60
        ({"remove": "device"}, 63_000),
        ({"remove": "launch_latency"}, 92_000),  # k1 starts at 2
        ({"remove": "sync,launch_latency"}, 63_000),
        ({"scale": "k1=2"}, 120_000),
    ],
)
def test_a_change_moves_the_end_of_the_step_along_its_dependencies(changes: dict[str, Any], predicted_ns: int) -> None:
    (row,) = synchronized().analyse("whatif", **changes).to_dicts()
    assert (row["steps"], row["step_ns"], row["replayed_ns"]) == (1, 100_000, 100_000)
    assert row["predicted_ns"] == predicted_ns
    assert row["gain_ns"] == 100_000 - predicted_ns


def test_the_bottleneck_is_what_most_of_the_changed_path_is() -> None:
    trace = synchronized()
    assert trace.analyse("whatif")["bottleneck"].to_list() == ["kernel"]  # k1 and k2: 58 of 100 us
    assert trace.analyse("whatif", remove="device")["bottleneck"].to_list() == ["host"]


def test_steps_of_the_device_keep_their_lengths_where_the_first_one_launched_the_work_of_all() -> None:
    # As CANN records a training in graph mode: the program launches three steps within the first one, and the steps are ranges of the
    # device of 100, 120 and 80 us. k2 is half of the second step.
    trace = tiny.trace(
        spans="""
            track  kind    name      step  start_ns  dur_ns  span  flow_in
            0      api     launch    0     0         1000    1     -
            0      api     launch    0     2000      1000    2     -
            0      api     launch    0     4000      1000    3     -
            7      kernel  k1        0     10000     90000   4     1
            7      kernel  k2        1     100000    60000   5     2
            7      kernel  k3        2     220000    80000   6     3
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100000
            1     100000    220000
            2     220000    300000
        """,
    )
    graph = build(trace)
    assert graph.step_times(replay(graph).ends).tolist() == [100_000, 120_000, 80_000]
    shorter = np.where(graph.span == 5, 0, graph.duration)
    assert graph.step_times(replay(graph, shorter).ends).tolist() == [100_000, 60_000, 80_000]


def test_without_launches_a_transfer_that_takes_no_time_gains_what_no_kernel_hid() -> None:
    # A transfer of 60 us from 20: k1 hides 10 us of it, and k2 begins 5 us after it, on another stream than k1. The step ends 5 us after
    # k2. So 50 us are exposed, and no more can be gained: k1 and k2 take 30 and 10 us, and the gaps are kept.
    trace = tiny.trace(
        spans="""
            track  kind           name      step  start_ns  dur_ns  span
            7      kernel         k1        0     0         30000   1
            9      communication  transfer  0     20000     60000   2
            8      kernel         k2        0     85000     10000   3
        """,
        tracks=TRACKS
        + """            9      stream  "stream_9"    0
    """,
        steps="step start_ns end_ns\n0 0 100000",
    )
    assert trace.overlap().select("exposed_ns", "free_ns").row(0) == (50_000, 10_000)
    (row,) = trace.analyse("whatif", remove="communication").to_dicts()
    assert (row["step_ns"], row["replayed_ns"], row["gain_ns"]) == (100_000, 100_000, 50_000)


def graph_of(duration: list[int], dependencies: list[list[tuple[int, int]]]) -> Graph:
    """Kernels of one step that start at 0, each with its dependencies: (node, lag)."""
    count, flat = len(duration), [pair for pairs in dependencies for pair in pairs]
    ends = np.array(duration)
    return Graph(
        rank=np.zeros(count, np.int64),
        kind=np.full(count, KERNEL),
        start=np.zeros(count, np.int64),
        end=ends,
        duration=ends,
        span=np.arange(count),
        offset=np.cumsum([0, *map(len, dependencies)]),
        node=np.array([node for node, _ in flat]),
        lag=np.array([lag for _, lag in flat]),
        on_host=np.zeros(len(flat), np.bool_),
        steps=pl.DataFrame({"rank": [0], "first": [0], "last": [count - 1]}),
        task_step=np.zeros(count, np.int64),
    )


@pytest.fixture(params=["native", "python"])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both paths of a replay: compiled and Python."""
    if request.param == "native" and library.load() is None:
        pytest.skip("needs the compiled code")
    monkeypatch.setenv(choice.VARIABLE, request.param)
    return str(request.param)


@pytest.mark.usefixtures("code")
def test_a_node_waits_for_the_latest_of_its_dependencies_and_for_the_first_of_equal_ones() -> None:
    graph = graph_of([10, 20, 5, 1], [[], [(0, 3)], [(0, 0), (1, 2)], [(1, 2), (2, -5)]])
    replayed = replay(graph)
    assert replayed.ends.tolist() == [10, 33, 40, 36]  # 0 + 10; 10 + 3 + 20; 33 + 2 + 5; 33 + 2 + 1, as 40 - 5 is no later
    assert replayed.waited.tolist() == [-1, 0, 1, 1]
    assert path_shares(graph, replayed).rows() == [(0, "kernel", 1.0)]


@pytest.mark.usefixtures("code")
def test_a_chain_of_dependencies_that_never_bind_stays_before_every_time() -> None:
    count = 40  # more of these lags than 64 bits can hold
    graph = graph_of([1] * count, [[], *([(node, NEVER)] for node in range(count - 1))])
    ends, waited = replay(graph)
    assert ends[0] == 1
    assert ends.min() == ends[-1] == -(1 << 62) + 1
    assert waited[-1] == -1


@pytest.mark.skipif(library.load() is None, reason="needs the compiled code")
def test_the_compiled_replay_is_that_of_python_and_leaves_it_what_fits_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random("replay")
    for count in (1, 2, 50, 400):
        dependencies = [[(chance.randrange(node), chance.choice((0, -7, NEVER, 90))) for _ in range(node % 4)] for node in range(count)]
        graph = graph_of([chance.randrange(1000) for _ in range(count)], dependencies)
        results = []
        for name in ("native", "python"):
            monkeypatch.setenv(choice.VARIABLE, name)
            replayed = replay(graph)
            results.append((replayed.ends.tolist(), replayed.waited.tolist(), path_shares(graph, replayed).rows()))
        assert results[0] == results[1]
    monkeypatch.setenv(choice.VARIABLE, "native")
    with pytest.raises(OverflowError):  # of Python, which counts further
        replay(graph_of([1 << 62, 1], [[], [(0, 1 << 62)]]))
    with pytest.raises(IndexError):
        replay(graph_of([1, 1], [[], [(5, 0)]]))


def test_where_the_host_runs_ahead_a_step_lasts_until_its_device_work_has_ended() -> None:
    # The host needs 10 us per step, the device 40.
    trace = tiny.trace(
        spans="""
            track  kind    name      start_ns  dur_ns  span  flow_in
            0      step    step      0         10000   0     -
            0      api     launch    1000      1000    1     -
            0      step    step      10000     10000   2     -
            0      api     launch    11000     1000    3     -
            7      kernel  k1        5000      40000   4     1
            7      kernel  k1        45000     40000   5     3
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         10000
            1     10000     20000
        """,
    )
    # 45 and 40 us as recorded; with kernels of half their length 25 and 20.
    assert trace.analyse("whatif", scale="k1=0.5").select("step_ns", "predicted_ns").row(0) == (42_500, 22_500)
    assert trace.analyse("whatif", remove="device").select("predicted_ns").item() == 10_000


def test_ranks_wait_for_the_last_of_them_in_a_collective() -> None:
    # Rank 1 launches its part 40 us after rank 0, because of `slow`; the transfer itself takes 10 us.
    trace = tiny.trace(
        spans="""
            rank  track  kind           name                     start_ns  dur_ns  span  flow_in
            0     0      step           step                     0         80000   0     -
            0     0      api            launch                   5000      1000    1     -
            0     0      sync           wait                     10000     52000   2     -
            0     7      communication  ncclDevKernel_AllReduce  10000     50000   3     1
            1     0      step           step                     0         80000   0     -
            1     0      op             slow                     0         40000   4     -
            1     0      api            launch                   45000     1000    1     -
            1     0      sync           wait                     48000     14000   2     -
            1     7      communication  ncclDevKernel_AllReduce  50000     10000   3     1
        """,
        tracks="""
            rank  track  kind    label         device
            0     0      thread  main          -
            0     7      stream  "stream_7"    0
            1     0      thread  main          -
            1     7      stream  "stream_7"    0
        """,
        steps="""
            rank  step  start_ns  end_ns
            0     0     0         80000
            1     0     0         80000
        """,
    )
    assert trace.analyse("whatif")["replayed_ns"].to_list() == [80_000, 80_000]
    # Without `slow` rank 1 arrives at 10 us, as rank 0 does: both end 40 us earlier.
    assert trace.analyse("whatif", scale="slow=0")["gain_ns"].to_list() == [40_000, 40_000]
    # A transfer of no time ends when the last rank has arrived.
    assert trace.analyse("whatif", infinite_bandwidth=True)["gain_ns"].to_list() == [10_000, 10_000]


def test_each_change_is_also_replayed_alone() -> None:
    rows = synchronized().analyse("whatif", scale="k1=0.5,c=0", remove="sync", each=True)
    # c alone: 87, sync alone: 70. Together k2 ends at 60 and the host, without its wait and c, at 50.
    assert rows.select("change", "predicted_ns").rows() == [
        (None, 60_000),
        ("k1=0.5", 90_000),
        ("c=0", 87_000),
        ("remove sync", 70_000),
    ]
    assert rows["coverage"].unique().to_list() == ["0"]


def test_a_name_may_contain_commas() -> None:
    assert parse_scales("gemm<4, 2>=0.5, a=0,b=1e-3") == [("gemm<4, 2>", 0.5), ("a", 0.0), ("b", 0.001)]


def test_wrong_changes_are_refused_with_what_is_expected() -> None:
    trace = synchronized()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"scale": "k1"}, "expected NAME=FACTOR"),
        ({"scale": "k1=-1"}, "expected NAME=FACTOR"),
        ({"scale": "k1=nan"}, "expected NAME=FACTOR"),
        ({"scale": "k9=0.5"}, "nothing is named 'k9'"),
        ({"scale": "k=0.5"}, "nothing is named 'k'; the nearest names are 'k1' or 'k2'"),
        ({"scale": "k1=0.5=,k2=0"}, "expected NAME=FACTOR"),
        ({"remove": "gpu"}, "input_wait, sync, launch_latency, copy, communication, host or device"),
    ]
    for changes, message in cases:
        with pytest.raises(UsageError, match=message):
            trace.analyse("whatif", **changes)


def test_floors_are_the_step_of_each_resource_alone() -> None:
    rows = synchronized().analyse("floors").select("floor", "step_ns")
    # Device: k1 and k2 with 2 us between them. Host: 100 us less the wait, of which the call itself takes 3.
    assert dict(rows.iter_rows()) == {"measured": 100_000, "device": 60_000, "host": 63_000}


def test_a_trace_without_steps_has_no_rows() -> None:
    trace = tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 10", tracks=TRACKS)
    assert trace.analyse("whatif").height == 0
    assert trace.analyse("floors").height == 0
    assert isinstance(trace.analyse("floors"), pl.DataFrame)


def device_alone() -> Trace:
    """Kernels, a transfer on another stream, and a kernel 5 us after it, in each of two steps; 30 us pass between the steps."""
    spans = ["track kind name start_ns dur_ns"]
    for start in (0, 430_000):
        spans += [f"7 kernel a {start + at * 25_000} 25000" for at in range(4)]
        spans.append(f"8 communication all_reduce {start + 100_000} 200000")
        spans.append(f"7 kernel b {start + 305_000} 90000")
    return tiny.trace(
        spans="\n".join(spans),
        tracks='track kind label device\n7 stream "stream_7" 0\n8 stream "stream_8" 0',
        steps="step start_ns end_ns\n0 0 400000\n1 430000 830000",
    )


def test_without_launches_work_follows_work_of_any_stream_and_the_program_takes_no_part() -> None:
    assert device_alone().whatif().select("step_ns", "replayed_ns").row(0) == (400_000, 400_000)
    row = device_alone().whatif(remove="communication").row(0, named=True)
    assert row["predicted_ns"] == 200_000  # 100 us, 5 us of the gap, 90 us, and 5 us until the step ends


def test_a_recording_of_the_device_alone_follows_its_kernels() -> None:
    # Two streams without launches: k3 starts 30 us after k2. The step ends 5 us after k3.
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  span
            7      kernel  k1    0         40000   1
            8      kernel  k2    5000      20000   2
            8      kernel  k3    55000     40000   3
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         100000
        """,
    )
    (row,) = trace.analyse("whatif").to_dicts()
    assert (row["step_ns"], row["replayed_ns"]) == (100_000, 100_000)
    assert trace.analyse("whatif", scale="k3=0.5")["gain_ns"].item() == 20_000
    assert trace.analyse("whatif", scale="k1=0")["gain_ns"].item() == 0


def test_transfers_on_a_thread_that_also_runs_operators_leave_its_operators_in_the_program() -> None:
    """As in JAX and MindSpore on the CPU: no thread runs operators only."""
    trace = tiny.trace(
        spans="""
            track  kind           name        start_ns  dur_ns  span
            0      op             a           0         30000   1
            0      communication  all_reduce  30000     20000   2
            0      op             b           50000     30000   3
            0      communication  all_reduce  90000     10000   4
            0      op             c           100000    50000   5
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns
            0     0         90000
            1     90000     150000
        """,
    )
    assert trace.analyse("whatif").select("step_ns", "replayed_ns").row(0) == (75_000, 75_000)
    assert trace.analyse("whatif", scale="b=0")["gain_ns"].item() == 15_000  # of the median of 60 and 60 us


@pytest.mark.parametrize("path", ["prof/written-by-tests", "xplane/jax-0.10.2-cpu", "capture/stepscope-0.1.0/torch.capture"])
def test_a_replay_without_changes_repeats_the_samples(path: str) -> None:
    row = stepscope.open(SAMPLES / path).whatif().row(0, named=True)
    assert row["step_ns"] > 0
    assert row["replayed_ns"] == pytest.approx(row["step_ns"], rel=0.03)


def test_a_kernel_outside_of_the_recorded_steps_changes_nothing_and_is_no_unknown_name() -> None:
    # Step 1 has a launch without a kernel: it is not replayed, and k2 with it.
    trace = tiny.trace(
        spans="""
            track  kind    name              start_ns  dur_ns  span  flow_in  step
            0      api     cudaLaunchKernel  1000      1000    1     -        0
            0      api     cudaLaunchKernel  51000     1000    2     -        1
            0      api     cudaLaunchKernel  53000     1000    3     -        1
            7      kernel  k1                3000      20000   4     1        0
            7      kernel  k2                54000     20000   5     2        1
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 50000\n1 50000 100000",
    )
    (row,) = trace.analyse("whatif", scale="k2=0").to_dicts()
    assert (row["steps"], row["gain_ns"]) == (1, 0)
    with pytest.raises(UsageError, match="nothing is named 'k3'"):
        trace.analyse("whatif", scale="k3=0")
