"""Rank numbers as short text."""

from collections.abc import Iterable
from itertools import pairwise

_SHOWN = 8  # ranges


def rank_ranges(ranks: Iterable[int]) -> str:
    """`0-7, 12` and, of ranks at one distance, `0-56 by 8`; of many ranges, the first ones and the number of the other ranks."""
    numbers = sorted(set(ranks))
    stride = numbers[1] - numbers[0] if len(numbers) > 2 else 1
    if stride > 1 and all(after - before == stride for before, after in pairwise(numbers)):
        return f"{numbers[0]}-{numbers[-1]} by {stride}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_SHOWN]]
    more = sum(last - first + 1 for first, last in ranges[_SHOWN:])
    return ", ".join(texts) + (f" and {more:,} more" if more else "")
