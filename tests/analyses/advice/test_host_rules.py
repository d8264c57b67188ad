"""Rules for the host. Gains are worked out by hand from the dependencies that each trace shows."""

import polars as pl
import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace

TRACKS = """
    track  kind    label         device
    0      thread  main          -
    7      stream  "stream_7"    0
"""
STEP = """
    step  start_ns  end_ns
    0     0         950000
"""


def created_on_cpu(framework: str = "pytorch") -> Trace:
    """The CPU fills a tensor in 580 us, the call that copies it takes 60 us, then one kernel of 200 us runs."""
    return tiny.trace(
        spans="""
            track  kind    name                               start_ns  dur_ns  span  flow_in  op
            0      op      aten::randn                        0         600000  1     -        -
            0      op      aten::normal_                      10000     580000  2     -        -
            0      op      aten::to                           600000    100000  3     -        -
            0      op      aten::copy_                        610000    80000   4     -        -
            0      api     cudaMemcpyAsync                    620000    60000   5     -        -
            0      op      aten::mm                           700000    100000  6     -        -
            0      api     cudaLaunchKernel                   710000    10000   7     -        -
            7      copy    "Memcpy_HtoD_(Pinned_->_Device)"   630000    40000   8     5        4
            7      kernel  gemm                               730000    200000  9     7        6
        """,
        tracks=TRACKS,
        steps=STEP,
    ).with_meta(framework=framework)


def test_a_tensor_that_is_created_on_the_cpu_and_moved_is_named_with_what_the_step_gains() -> None:
    row = finding(created_on_cpu(), "tensor_on_cpu")
    # 950 us less 580 us of aten::normal_ and 60 us of the call that copies.
    assert (row["step_ns"], row["gain_ns"], row["severity"], row["culprit"]) == (950_000, 640_000, "high", "aten::normal_")
    # The device is idle until the copy (630 us), before the kernel (60 us) and after it (20 us); 580 us of it while the operator runs.
    assert row["parameters"]["idle"] == pytest.approx(580 / 950)
    assert row["title"] == "GPU is idle 61.1 % of each step while the CPU runs aten::normal_ (580 µs per step)."
    assert 'device="cuda"' in row["snippet"]
    assert row["spans"] == [{"rank": 0, "step": 0, "span": 2}]


def test_a_more_precise_rule_replaces_the_operator_that_it_explains() -> None:
    assert rows(created_on_cpu(), "host_operator") == []


def test_an_operator_on_the_cpu_that_no_copy_follows_is_a_host_operator() -> None:
    row = finding(created_on_cpu("mindspore"), "host_operator")  # the rule for tensors knows PyTorch's names only
    assert (row["culprit"], row["gain_ns"]) == ("aten::normal_", 580_000)
    assert row["parameters"]["idle"] == pytest.approx(580 / 950)  # while it runs: the device is also idle before the kernel, and after it
    assert rows(created_on_cpu("mindspore"), "tensor_on_cpu") == []


def many_launches(pause_ns: int = 10_000, launched: bool = True, **steps: str) -> Trace:
    """30 launches of 5 us, one every 20 us; each kernel takes 2 us and starts 8 us after its launch."""
    period = pause_ns + 10_000
    spans = ["track kind name start_ns dur_ns span flow_in"]
    for i in range(30):
        spans.append(f"0 api cudaLaunchKernel {i * period} 5000 {2 * i} -")
        spans.append(f"7 kernel k {i * period + 8000} 2000 {2 * i + 1} {2 * i if launched else '-'}")
    return tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps=f"step start_ns end_ns\n0 0 {30 * period}")


def test_many_launches_in_a_row_gain_what_the_host_takes_for_them() -> None:
    row = finding(many_launches(), "launch_bound")
    # From the first launch to the return of the last one (585 us) the host takes no time; the rest of the step is 600 - 585 = 15 us.
    # On the device 30 kernels of 2 us follow each other from 8 us on, when the first one is recorded to start: until 68 us.
    assert (row["step_ns"], row["gain_ns"]) == (600_000, 532_000)
    assert (row["limited_by"], row["next_bottleneck"]) == ("host", "kernel")
    assert row["parameters"]["launches"] == 30
    assert row["parameters"]["kernel"] == 2_000


def test_launches_with_other_work_of_the_host_between_them_are_no_chain() -> None:
    assert rows(many_launches(pause_ns=600_000), "launch_bound") == []


def test_launches_need_a_link_to_their_kernels() -> None:
    assert "launch calls linked to kernels" in missing(many_launches(launched=False), "launch_bound")


def python_code(stacks: bool) -> Trace:
    """The program computes in Python for 700 us, then launches one kernel."""
    frame = '0 python "/home/me/train.py(41):_augment" 50000 700000 9 -' if stacks else "0 op aten::sub 800000 10000 9 -"
    return tiny.trace(
        spans=f"""
            track kind   name              start_ns dur_ns span flow_in
            0     op     aten::add         0        50000  1    -
            0     api    cudaLaunchKernel  10000    5000   2    -
            {frame}
            0     op     aten::mm          750000   50000  3    -
            0     api    cudaLaunchKernel  760000   5000   4    -
            7     kernel k                 20000    10000  5    2
            7     kernel k                 770000   100000 6    4
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 900000",
    )


def test_python_code_between_operators_is_named_by_its_line_where_stacks_are_recorded() -> None:
    row = finding(python_code(stacks=True), "python_bound")
    assert (row["source"], row["gain_ns"]) == ("train.py:41", 700_000)
    assert row["title"].startswith("700 µs per step in Python code at train.py:41")


def test_python_code_without_stacks_is_found_and_the_fix_tells_how_to_name_it() -> None:
    row = finding(python_code(stacks=False), "python_bound")
    assert (row["culprit"], row["gain_ns"]) == ("aten::add", 700_000)
    assert "--stack" in row["fix"]


def reads_a_value(call_ns: int) -> Trace:
    """The program waits in aten::item for a kernel of 400 us, then needs 300 us until the next launch."""
    return tiny.trace(
        spans=f"""
            track  kind    name                        start_ns  dur_ns      span  flow_in
            0      op      aten::mm                    0         20000       1     -
            0      api     cudaLaunchKernel            5000      5000        2     -
            0      op      aten::item                  20000     {call_ns}   3     -
            0      op      aten::_local_scalar_dense   20000     {call_ns}   4     -
            0      sync    cudaStreamSynchronize       20000     {call_ns}   5     -
            0      op      aten::add                   420000    300000      6     -
            0      op      aten::mm                    720000    20000       7     -
            0      api     cudaLaunchKernel            725000    5000        8     -
            7      kernel  k                           15000     400000      9     2
            7      kernel  k                           735000    200000      10    8
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 935000",
    )


def test_a_read_of_a_value_names_the_operator_and_gains_what_the_host_could_run_ahead() -> None:
    row = finding(reads_a_value(400_000), "synchronization")
    assert row["culprit"] == "aten::item"
    # Without the wait the host is at the second launch after 328 us (20 us, 3 us of the call, 300 us, 5 us): before the first kernel ends
    # at 415 us. The second one then ends at 615 us, and the host has finished by then.
    assert row["gain_ns"] == pytest.approx(935_000 - 615_000, abs=2_000)
    assert row["parameters"]["time"] == 400_000


def test_a_call_that_returns_before_any_work_ends_does_not_wait() -> None:
    assert rows(reads_a_value(300_000), "synchronization") == []


def blocking(returns_ns: int) -> Trace:
    """20 launches, one every 100 us; each kernel runs for 60 us. A launch takes `returns_ns`."""
    spans = ["track kind name start_ns dur_ns span flow_in"]
    for i in range(20):
        spans.append(f"0 api cudaLaunchKernel {i * 100_000} {returns_ns} {2 * i} -")
        spans.append(f"7 kernel k {i * 100_000 + 10_000} 60000 {2 * i + 1} {2 * i}")
    return tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="step start_ns end_ns\n0 0 2000000")


def test_launches_that_return_after_their_kernel_are_blocking() -> None:
    row = finding(blocking(75_000), "blocking_launch")
    # A launch takes 5 us instead of 75: the host needs 30 us per kernel, the device 60.
    assert row["parameters"] == row["parameters"] | {"share": 1.0, "time": 1_500_000}
    assert row["gain_ns"] == pytest.approx(2_000_000 - 20 * 60_000, abs=40_000)
    assert rows(blocking(75_000), "launch_bound") == []


def test_a_launch_call_of_two_kernels_waits_once() -> None:
    trace = blocking(75_000)
    spans = trace.spans.collect()
    second = spans.filter(kind="kernel").with_columns(
        span=pl.col("span") + 1000, start_ns=pl.col("start_ns") + 40_000, dur_ns=pl.lit(20_000, pl.Int64)
    )
    shorter = spans.with_columns(dur_ns=pl.when(pl.col("kind") == "kernel").then(40_000).otherwise("dur_ns"))
    row = finding(Trace(trace.tables | {"spans": pl.concat([shorter, second]).sort("start_ns")}, trace.meta), "blocking_launch")
    assert row["parameters"] == row["parameters"] | {"share": 1.0, "time": 1_500_000}


def test_launches_that_return_before_their_kernel_are_not_blocking() -> None:
    assert rows(blocking(5_000), "blocking_launch") == []


def collections(category: str) -> Trace:
    return tiny.trace(
        spans=f"""
            track  kind    name  start_ns  dur_ns  span  category  step
            0      op      a     0         90000   1     -         0
            0      python  GC    90000     5000    2     {category}  0
            0      op      a     100000    90000   3     -         1
            0      op      a     200000    90000   4     -         2
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 100000\n1 100000 200000\n2 200000 300000",
    )


def test_a_garbage_collection_costs_its_time_over_all_steps() -> None:
    row = finding(collections("gc"), "garbage_collection")
    assert row["gain_ns"] == 1_667  # 5 us over 3 steps
    assert row["severity"] == "low"


def test_a_recording_without_collections_tells_how_to_record_them() -> None:
    assert "garbage collections" in missing(collections("-"), "garbage_collection")


def threads(count: int, ranks: int = 1) -> Trace:
    spans = ["rank track kind name start_ns dur_ns", *(f"{rank} 0 op aten::mm 0 100" for rank in range(ranks))]
    steps = ["rank step start_ns end_ns", *(f"{rank} 0 0 100" for rank in range(ranks))]
    counters = ["rank name at_ns value unit"]
    for rank in range(ranks):
        counters += [f'{rank} "compute_threads" 0 {count} threads', f'{rank} "cpu_cores" 0 4 cores']
    trace = tiny.trace(spans="\n".join(spans), steps="\n".join(steps), counters="\n".join(counters))
    return trace.with_meta(framework="pytorch")


def test_more_compute_threads_than_cores_are_stated() -> None:
    (row,) = rows(threads(32), "thread_count")
    assert (row["status"], row["culprit"], row["gain_ns"]) == ("statement", "32 threads", None)
    assert row["title"] == "Operators on the CPU use 32 threads on 4 cores: they wait for each other."
    assert rows(threads(4), "thread_count") == []
    assert rows(threads(4, ranks=2), "thread_count") == []  # the hosts of the ranks are not known


def test_the_sentence_names_operator_time_and_line() -> None:
    """An MLP whose input of 129 ms per step is drawn on the CPU for the GPU, which then works for 26 ms of 155 ms."""
    trace = tiny.trace(
        spans="""
            track  kind    name                                 start_ns   dur_ns     span  flow_in  op
            0      python  "/job/train.py(41):_step"            0          155000000  1     -        -
            0      op      aten::normal_                        0          129000000  2     -        -
            0      op      aten::copy_                          129000000  3000000    3     -        -
            0      api     cudaMemcpyAsync                      129000000  2900000    4     -        -
            0      op      aten::addmm                          132000000  1000000    5     -        -
            0      api     cudaLaunchKernel                     132000000  10000      6     -        -
            7      copy    "Memcpy_HtoD_(Pageable_->_Device)"   129050000  2800000    7     4        3
            7      kernel  gemm                                 132000000  23000000   8     6        5
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 155000000",
    ).with_meta(framework="pytorch")
    row = finding(trace, "tensor_on_cpu")
    assert row["position"] == 0
    assert row["title"] == "GPU is idle 83.2 % of each step while the CPU runs aten::normal_ (129 ms per step, train.py:41)."
    assert row["fix"].startswith("Create the tensor on the GPU")
