"""Runs of one program differ by a factor of all operators: it is told apart from changes of single operators."""

import pytest

import stepscope
import tiny
from stepscope.comparison.compare import Comparison
from stepscope.comparison.gate import CANNOT_TELL, PASS, SLOWER, check, slowdown_limit
from stepscope.model.trace import Trace

NAMES = [f"aten::op{number}" for number in range(10)]


def run(pace: float = 1.0, sort: float = 1.0, other: float = 1.0) -> Trace:
    """20 steps of ten operators of 100 us each and a sort of 100 us, all multiplied by `pace`."""
    durations = [*[100_000 * pace * other] * 5, *[100_000 * pace] * 5, 100_000 * pace * sort]
    rows, steps, now = ["kind name start_ns dur_ns"], ["step start_ns end_ns"], 0
    for step in range(20):
        start = now
        for name, length in zip([*NAMES, "aten::sort"], durations, strict=True):
            rows.append(f"op {name} {now} {round(length)}")
            now += round(length)
        steps.append(f"{step} {start} {now}")
    return tiny.trace(spans="\n".join(rows), steps="\n".join(steps))


def compared(**changed: float) -> Comparison:
    return stepscope.compare(run(), run(**changed))


def test_a_factor_of_all_operators_is_the_pace_and_no_difference() -> None:
    comparison = compared(pace=1.08)
    assert comparison.verdict["code"][0] == "compare-same-paced"
    row = comparison.summary.row(0, named=True)
    assert (row["pace_share"], row["paced_share"]) == (pytest.approx(0.08, abs=1e-4), pytest.approx(0, abs=1e-4))
    assert set(comparison.operators()["state"]) == {"within noise"}


def test_an_operator_that_changed_is_found_at_another_pace() -> None:
    comparison = compared(pace=1.08, sort=1.55)
    assert comparison.verdict["code"][0] == "compare-slower-paced"
    assert comparison.operators()["name"][0] == "aten::sort" and comparison.operators()["state"].to_list().count("changed") == 1
    assert comparison.change is not None
    assert comparison.change.share == pytest.approx(0.05, abs=0.001)  # 55 of 1,100 us


def test_a_faster_machine_does_not_hide_a_slower_operator() -> None:
    comparison = compared(pace=0.95, sort=1.55)
    assert comparison.verdict["code"][0] == "compare-slower-paced"
    assert comparison.summary["change_share"][0] < 0.001


def test_a_factor_above_a_fifth_is_a_change_of_the_program() -> None:
    comparison = compared(pace=1.3)
    assert comparison.pace is None
    assert comparison.verdict["code"][0] == "compare-slower"


def test_the_gate_passes_no_slowdown_of_all_operators_beyond_its_limit() -> None:
    limit = slowdown_limit("5%")
    assert check(compared(pace=1.02), limit).code == PASS
    assert check(compared(pace=1.08), limit).code == CANNOT_TELL
    assert check(compared(sort=2.5), limit).code == SLOWER
