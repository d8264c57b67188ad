"""One rule for waits for input names their cause: advice that would contradict itself is one finding."""

import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace


def waiting(loader: str = "next", waits: tuple[int, ...] = (40_000, 40_000, 40_000, 40_000), **tables: str) -> Trace:
    """Steps of 100 us on the CPU: a wait for the batch, then operators."""
    spans = ["track kind name start_ns dur_ns"]
    for step, wait in enumerate(waits):
        spans.append(f"0 data {loader} {step * 100_000} {wait}")
        spans.append(f"0 op train {step * 100_000 + wait} {100_000 - wait}")
    steps = [f"{step} {step * 100_000} {(step + 1) * 100_000}" for step in range(len(waits))]
    return tiny.trace(
        spans="\n".join(spans), tracks="track kind label\n0 thread main", steps="\n".join(["step start_ns end_ns", *steps]), **tables
    )


CPU_FULL = """
    name         at_ns      value  unit   series       owner
    "cpu_user"   0          0.9    share  "cpu_user"   -
    "cpu_system" 0          0.05   share  "cpu_system" -
    "cpu_user"   1000000000 0.9    share  "cpu_user"   -
    "cpu_system" 1000000000 0.05   share  "cpu_system" -
"""


def test_a_wait_of_unknown_cause_gains_its_time() -> None:
    row = finding(waiting(), "input_wait")
    assert (row["code"], row["gain_ns"], row["severity"]) == ("advice-input_wait-unknown", 40_000, "high")
    assert row["title"] == "40.0 % of each step waits for input: 40.0 µs per step."


def test_a_loader_in_the_training_thread_is_named() -> None:
    row = finding(waiting('"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"').with_meta(framework="pytorch"), "input_wait")
    assert row["code"] == "advice-input_wait-synchronous"
    assert "num_workers" in row["snippet"]


def test_where_the_cpu_is_full_more_workers_are_not_advised() -> None:
    trace = waiting('"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"', counters=CPU_FULL).with_meta(framework="pytorch")
    row = finding(trace, "input_wait")
    assert (row["code"], row["culprit"]) == ("advice-input_wait-cpu", "CPU")
    assert "num_workers" not in row["snippet"]
    assert row["parameters"]["busy"] == pytest.approx(0.95)


def test_one_late_batch_of_many_is_named_as_such() -> None:
    row = finding(waiting(waits=(1_000, 1_000, 1_000, 90_000, 1_000, 1_000)), "input_wait")
    assert row["code"] == "advice-input_wait-slow-batch"
    assert (row["parameters"]["late"], row["parameters"]["longest"]) == (1, 90_000)
    assert (row["confidence"], row["severity"]) == ("low", "medium")  # it waits long in one of six steps


def test_an_empty_queue_names_how_often_no_batch_was_ready() -> None:
    samples = "\n".join(f'"queue_1_depth" {at} 0 - depth loader 1' for at in (0, 100_000, 200_000, 300_000))
    trace = waiting(
        counters=f"name at_ns value unit series owner number\n{samples}",
        pipeline="op_id op_type workers parent queue_capacity\n1 DataLoader 2 - 4",
    )
    row = finding(trace, "input_wait")
    assert row["code"] in ("advice-input_wait-empty", "advice-input_wait-operator")


def test_batches_that_are_ready_in_time_are_no_finding() -> None:
    assert rows(waiting(waits=(500, 500, 500, 500)), "input_wait") == []


def test_a_recording_without_the_input_tells_how_to_record_it() -> None:
    trace = tiny.trace(
        spans="track kind name start_ns dur_ns\n0 op a 0 100",
        tracks="track kind label\n0 thread main",
        steps="step start_ns end_ns\n0 0 100",
    )
    assert "--data" in missing(trace, "input_wait")
