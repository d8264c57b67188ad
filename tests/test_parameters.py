"""Numbers of analyses have bounds in Python as well as in a URL, and every number has them."""

from typing import Any

import numpy as np
import pytest

import tiny
from stepscope import exporters
from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.trace import Trace, analysis, analysis_names


@pytest.fixture
def trace() -> Trace:
    return tiny.trace(
        spans="track  kind    name  start_ns  dur_ns  step\n0  kernel  a  1000  500  0\n0  kernel  b  2000  500  1",
        tracks="track  kind  label  device\n0  stream  s  0",
        steps="step  start_ns  end_ns\n0  1000  2000\n1  2000  3000",
    )


def test_every_number_of_every_analysis_and_exporter_has_bounds() -> None:
    found = [analysis(name).parameters for name in analysis_names()] + [exporters.exporter(name).parameters for name in exporters.names()]
    numbers = {name for given in found for name, one in given.items() if parameters.type_of(one) in (int, float)}
    assert numbers <= set(parameters.BOUNDS)
    assert all(low < high for low, high in parameters.BOUNDS.values())


@pytest.mark.parametrize(
    "name, given, message",
    [
        ("activity", {"buckets": 0}, "buckets is 0; expected a whole number from 1 to 100000"),
        ("activity", {"buckets": 2**63 - 1}, "buckets is 9223372036854775807; expected a whole number from 1 to 100000"),
        ("activity", {"buckets": 2.5}, "buckets is 2.5; expected a whole number"),
        ("activity", {"buckets": None}, "buckets is None; expected a whole number"),
        ("activity", {"buckets": "5"}, "buckets is 5; expected a whole number"),
        ("activity", {"buckets": float("inf")}, "buckets is inf; expected a whole number"),
        ("activity", {"step": 2**31}, "step is 2147483648; expected a whole number"),
        ("activity", {"step": -(10**400)}, "step is -1000"),
        ("activity", {"step": 10**9999}, "step is a number of thousands of digits; expected a whole number"),
        ("gaps", {"min_ns": -1}, "min_ns is -1; expected a whole number from 0 to 9223372036854775807"),
        ("memory", {"start_ns": 2**63}, "start_ns is 9223372036854775808; expected"),
        ("hot_paths", {"min_share": float("nan")}, "min_share is nan; expected a number from 0 to 1"),
        ("hot_paths", {"min_share": 1.01}, "min_share is 1.01; expected a number from 0 to 1"),
        ("overview", {"rank": 2**31}, "rank is 2147483648; expected a whole number"),
        ("overview", {"steps": (0, 2**31)}, "step is 2147483648; expected a whole number"),
        ("overview", {"nothing": 2**80}, "overview has no parameter nothing"),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_its_name(trace: Trace, name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        trace.analyse(name, **given)
    assert str(error.value).startswith(message) and len(str(error.value)) < 200


def test_whole_numbers_of_numpy_and_floats_that_are_whole_are_numbers(trace: Trace) -> None:
    """1e6 is the usual way to write a million nanoseconds."""
    for two in (np.int64(2), np.uint8(2), 2.0, np.float64(2)):
        assert trace.activity(buckets=two).height == trace.activity(buckets=2).height == 2
    assert trace.gaps(min_ns=5e2).height == trace.gaps(min_ns=500).height
    assert trace.activity(step=None).height == trace.activity().height


def test_buckets_are_bounded_by_what_all_devices_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is a row for each device: what is little for one is too much for thousands."""
    monkeypatch.setattr("stepscope.analyses.steps.activity._ROWS", 100)
    both = tiny.trace(
        spans="track  kind    name  start_ns  dur_ns\n0  kernel  a  1000  500\n1  kernel  b  1000  500",
        tracks="track  kind  label  device\n0  stream  s  0\n1  stream  s  1",
    )
    assert both.activity(buckets=50).height == 100
    with pytest.raises(UsageError, match="buckets is 51; expected at most 50: a row for each of 2 devices"):
        both.activity(buckets=51)


@pytest.mark.parametrize("word", ["", " 5", "5 ", "1_0", "\u0665", "0x5", "5.0", "1e1", "five", "+-5"])
def test_a_word_that_is_no_plain_number_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as error:
        parameters.value(int, "limit", word)
    assert str(error.value) == f"limit is '{word}'; expected a whole number from 0 to 4294967295"


def test_plain_numbers_are_read() -> None:
    assert parameters.value(int, "limit", "007") == 7
    assert parameters.value(int, "--min-ns", "+12") == 12
    assert parameters.value(int, "at", "-3") == -3
    assert [parameters.value(float, "min_share", word) for word in ("1", ".5", "5e-1", "0.50")] == [1, 0.5, 0.5, 0.5]
