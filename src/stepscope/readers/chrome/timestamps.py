"""Times of Chrome events: microseconds in the text, integers of nanoseconds in columns."""

from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model.intervals import Ints
from stepscope.readers.chrome.records import Event, ExactEvent

MISSING = -(2**63)
# Times beyond this (the year 2043 and as long before 1970) are noise, and their sums would not fit.
FAR_NS = 2**61
# Up to here, a float of microseconds holds nanoseconds.
_EXACT_US = 2**43

_EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent])


def start_and_duration(text: bytes, events: list[Event]) -> tuple[pl.Series, pl.Series]:
    """`ts` and `dur` of each event; MISSING where there is none."""
    start, duration = _from_numbers([event.ts for event in events]), _from_numbers([event.dur for event in events])
    if start is None or duration is None:
        exact = _EXACT_EVENTS.decode(text)
        start, duration = (_from_texts([bytes(getattr(event, name)).decode() for event in exact]) for name in ("ts", "dur"))
    return start.set(start.abs() >= FAR_NS, MISSING), duration.set(duration.abs() >= FAR_NS, MISSING)


def _from_numbers(values: list[int | float | str]) -> pl.Series | None:
    """None where a float does not hold the nanoseconds."""
    try:
        numbers = np.array(values, np.float64)
    except (ValueError, OverflowError):
        numbers = np.array([_to_float(value) for value in values])
    missing = ~(np.abs(numbers) < FAR_NS / 1000)  # also NaN: an unusable time must not decide how the others are read
    if missing.all():
        return pl.Series(np.full(len(numbers), MISSING))
    if np.abs(numbers[~missing]).max() < _EXACT_US:
        numbers[missing] = 0
        return pl.Series(np.where(missing, MISSING, _nanoseconds(numbers)))
    integers = np.array(values)
    if integers.dtype == np.int64 and np.abs(integers).max() < 2**53:
        return pl.Series(integers * 1000)
    return None


def _nanoseconds(microseconds: NDArray[np.float64]) -> Ints:
    """The nearest nanoseconds."""
    whole = np.floor(microseconds)
    exact: Ints = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return exact


def from_float(text: str) -> int | None:
    """Nanoseconds of a number in microseconds; None where a float does not hold them."""
    value = float(text)
    return int(_nanoseconds(np.array([value]))[0]) if abs(value) < _EXACT_US else None


def _to_float(value: int | float | str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return float("nan")


def _from_texts(values: list[str]) -> pl.Series:
    text = pl.Series(values, dtype=pl.String).str.strip_chars('"')
    groups = text.str.extract_groups(r"^(-?)([0-9]{1,16})(?:\.([0-9]+))?$").struct.unnest()
    sign, whole, fraction = (groups.to_series(index) for index in range(3))
    digits = fraction.fill_null("").str.pad_end(4, "0")
    whole_ns = whole.cast(pl.Int64) * 1000 + digits.str.slice(0, 3).cast(pl.Int64) + (digits.str.slice(3, 1) >= "5").cast(pl.Int64)
    signed = whole_ns * (1 - 2 * (sign == "-").cast(pl.Int64))
    unmatched = signed.is_null() & (text != "") & (text != "nan")
    if unmatched.any():  # 1.5e3 and the like
        signed = signed.scatter(unmatched.arg_true(), [from_decimal(value) for value in text.filter(unmatched)])
    return signed.fill_null(MISSING)


def from_decimal(text: str) -> int | None:
    try:
        value = Decimal(text)
        return int((value * 1000).to_integral_value()) if abs(value) < FAR_NS // 1000 else None
    except (InvalidOperation, ValueError, OverflowError):
        return None
