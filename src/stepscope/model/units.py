"""Numbers as text with units. The unit of a column is the suffix of its name."""

import re

_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SIZES = {"": 1, "b": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kmgt", 1)
    for ending, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_ROUNDS_UP = 0.9995  # 999.6 µs is written 1.00 ms, not 1,000 µs
_DECIMAL = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def duration(ns: float) -> str:
    """12.3 ms"""
    return _scaled(ns, _TIME, "ns")


def size(count: float) -> str:
    """1.50 GiB"""
    return _scaled(count, _BYTES, "B")


def decimal_size(count: int) -> str:
    """1.50 MB, the unit of file sizes and flags."""
    return rate(count, "B") if count >= 1000 else f"{count} B"


def count(number: int, noun: str, nouns: str = "") -> str:
    """1 row, 1,234 rows; `nouns` where the plural is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def parse_size(text: str) -> int:
    """The bytes of 1GB, 500 MB, 1.5GiB or a plain number; ValueError for other texts."""
    match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-z]*)\s*", text, re.IGNORECASE | re.ASCII)
    if match is None or match[2].lower() not in _SIZES:
        raise ValueError(text)
    unit = _SIZES[match[2].lower()]
    return int(match[1]) * unit if match[1].isdecimal() else int(float(match[1]) * unit)


def rate(value: float, unit: str) -> str:
    """312 TFLOP/s"""
    for factor, prefix in _DECIMAL:
        if abs(value) >= factor * _ROUNDS_UP:
            return f"{_three(value / factor)} {prefix}{unit}"
    return f"{_three(value)} {unit}"


def share(value: float) -> str:
    """12.3 %; <0.1 % for a small share that would round to 0"""
    return "<0.1 %" if 0 < value < 0.0005 else f"{value * 100:.1f} %"


def cell(column: str, value: object) -> str:
    """A value of the named column as text; an empty string for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if column.endswith("_ns"):
            return duration(value)
        if column.endswith("_bytes") or column == "bytes":
            return size(value)
        if column.endswith(("bytes_per_s", "bandwidth")):
            return rate(value, "B/s")
        if column.endswith("flops_per_s"):
            return rate(value, "FLOP/s")
        if column.endswith("flops"):
            return rate(value, "FLOP")
        if column.endswith(("share", "utilization", "occupancy")) or column.startswith("share_"):
            return share(value)
        return f"{value:,}" if isinstance(value, int) else _three(value)
    return str(value)


def _scaled(value: float, scale: tuple[tuple[int, str], ...], base: str) -> str:
    for factor, unit in scale:
        if abs(value) >= factor * _ROUNDS_UP:
            return f"{_three(value / factor)} {unit}"
    return f"{value:.0f} {base}"


def _three(value: float) -> str:
    """Three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
