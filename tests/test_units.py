"""Numbers as people read them."""

import pytest

from stepscope.model import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (47_812, "47.8 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (66_409_258, "66.4 ms"),
        (3_200_000_000, "3.20 s"),
        (252_000_000_000, "252 s"),
        (4_000_000_000_000, "4,000 s"),
        (-1_500, "-1.50 µs"),
        (1234.6, "1.23 µs"),
    ],
)
def test_a_duration_has_three_digits_and_one_unit(ns: float, text: str) -> None:
    assert units.duration(ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (1 << 30, "1.00 GiB"), (13_614_822_400, "12.7 GiB")]
)
def test_a_size_is_binary_and_says_so(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.0005, "0.1 %"), (0.653971, "65.4 %"), (1, "100.0 %")])
def test_a_share_is_nothing_only_where_there_is_nothing(value: float, text: str) -> None:
    assert units.share(value) == text


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("dur_ns", 1500, "1.50 µs"),
        ("peak_bytes", 1536, "1.50 KiB"),
        ("bytes", 1, "1 B"),
        ("bytes_per_s", 54.2e9, "54.2 GB/s"),
        ("flops_per_s", 121e12, "121 TFLOP/s"),
        ("flops", 999_999, "1.00 MFLOP"),
        ("utilization", 0.5, "50.0 %"),
        ("share_of_step", 0.5, "50.0 %"),
        ("occupancy", 0.25, "25.0 %"),
        ("calls", 1228, "1,228"),
        ("mean_length", 1.5, "1.50"),
        ("name", "a", "a"),
        ("known", True, "yes"),
        ("anything", None, ""),
    ],
)
def test_the_unit_of_a_column_is_the_end_of_its_name(column: str, value: object, text: str) -> None:
    assert units.cell(column, value) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [units.count(number, "row") for number in (0, 1, 2, 1234)] == ["0 rows", "1 row", "2 rows", "1,234 rows"]
    assert [units.count(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]
    assert [units.count(number, "event is", "events are") for number in (1, 2)] == ["1 event is", "2 events are"]


def test_no_size_is_rounded_to_nothing() -> None:
    assert [units.decimal_size(count) for count in (1, 999, 1000, 52_300, 1_400_000)] == ["1 B", "999 B", "1.00 kB", "52.3 kB", "1.40 MB"]
