"""Rules for what happens in some steps only: their gain is their time over all steps."""

import pytest

import tiny
from advice_rows import finding, missing, rows
from stepscope.model.trace import Trace

TRACKS = "track kind label\n0 thread main"


def steps_of(times: list[int], extra: str = "") -> Trace:
    """Steps of these durations in us: an operator of 90 us in each, `extra` spans anywhere."""
    spans, steps, at = ["track kind name start_ns dur_ns"], ["step start_ns end_ns"], 0
    for number, time in enumerate(times):
        spans.append(f"0 op train {at} 90000")
        steps.append(f"{number} {at} {at + time * 1000}")
        at += time * 1000
    return tiny.trace(spans="\n".join([*spans, extra]).strip(), tracks=TRACKS, steps="\n".join(steps))


def test_a_step_much_longer_than_the_others_costs_its_excess_over_all_steps() -> None:
    # Step 6 of ten takes 300 us, of which 150 us are in `save`.
    trace = steps_of([100, 100, 100, 100, 100, 100, 300, 100, 100, 100], "0 annotation write_file 700000 150000")
    row = finding(trace, "outlier_steps")
    assert row["gain_ns"] == 20_000  # 200 us over ten steps
    assert (row["culprit"], row["parameters"]["numbers"]) == ("write_file", "6")
    assert row["spans"] == [{"rank": 0, "step": 6, "start_ns": 600_000, "end_ns": 900_000}]


def test_a_step_with_additional_time_without_operators_is_named_so() -> None:
    row = finding(steps_of([100, 100, 100, 100, 100, 100, 300, 100, 100, 100]), "outlier_steps")
    assert (row["culprit"], row["parameters"]["more"]) == ("no operator", 200_000)
    assert "code without operators (Python, files) takes 200 µs more" in row["title"]


def test_the_same_calls_that_take_longer_are_a_statement_without_a_gain() -> None:
    spans, steps = ["track kind name start_ns dur_ns"], ["step start_ns end_ns"]
    for step in range(10):
        spans.append(f"0 op train {step * 1_000_000} {290_000 if step == 6 else 90_000}")
        steps.append(f"{step} {step * 1_000_000} {step * 1_000_000 + (300_000 if step == 6 else 100_000)}")
    trace = tiny.trace(spans="\n".join(spans), tracks=TRACKS, steps="\n".join(steps))
    (row,) = rows(trace, "outlier_steps")
    assert (row["status"], row["code"], row["gain_ns"]) == ("statement", "advice-outlier_steps-same", None)


def test_steps_that_vary_as_usual_have_no_outliers() -> None:
    assert rows(steps_of([100, 104, 98, 101, 99, 103, 100, 97]), "outlier_steps") == []


def test_a_first_step_that_is_left_out_is_stated_without_a_gain() -> None:
    (row,) = rows(steps_of([900, 100, 100, 100]), "warmup")
    assert (row["status"], row["severity"], row["gain_ns"]) == ("statement", None, None)
    assert row["title"].startswith("900 µs for the first step, 9 times the usual 100 µs")
    assert rows(steps_of([100, 100, 100, 100]), "warmup") == []


def test_compilations_after_the_first_step_cost_their_time_over_all_steps() -> None:
    trace = steps_of([100, 100, 100, 100], "0 other backend_compile 210000 40000")
    row = finding(trace, "recompilation")
    assert (row["gain_ns"], row["parameters"]["affected"]) == (10_000, 1)


def test_a_function_of_jax_that_compiles_in_most_steps_is_named_and_gains_its_calls() -> None:
    calls = [
        f"0 other PjitFunction(update) {at + 10_000} 60000\n0 other backend_compile {at + 20_000} 40000" for at in (0, 100_000, 200_000)
    ]
    row = finding(steps_of([100, 100, 100], "\n".join(calls)), "recompilation")
    # Every step is 60 us shorter: the calls trace and lower as well as compile.
    assert (row["culprit"], row["gain_ns"]) == ("update", 60_000)


def test_a_compilation_in_the_first_step_is_no_recompilation() -> None:
    assert rows(steps_of([100, 100, 100, 100], "0 other backend_compile 10000 40000"), "recompilation") == []


def test_saving_a_checkpoint_costs_its_time_over_all_steps() -> None:
    trace = steps_of([100, 100, 100, 160], "0 annotation save_checkpoint 395000 60000").with_meta(framework="pytorch")
    row = finding(trace, "pauses")
    assert (row["code"], row["gain_ns"], row["culprit"]) == ("advice-pauses-checkpoint", 15_000, "save_checkpoint")
    assert "async_save" in row["snippet"]


@pytest.mark.parametrize("name", ["log_softmax", "activation_checkpoint", "aten::logical_and", "dialog"])
def test_names_that_only_look_like_logging_are_no_pauses(name: str) -> None:
    assert rows(steps_of([100, 100, 100, 160], f"0 annotation {name} 395000 60000"), "pauses") == []


def test_pauses_need_ranges_or_stacks() -> None:
    assert "--stack" in missing(steps_of([100, 100, 100]), "pauses")


def test_a_recording_without_steps_tells_how_to_record_them() -> None:
    trace = tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 100", tracks=TRACKS)
    assert "--steps" in missing(trace, "outlier_steps")
