"""Memory: the peak and what it consists of, what is left of the device, and whether it grows from step to step."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.memory.live_tensors import live_tensors
from stepscope.analyses.memory.memory_by_category import memory_by_category
from stepscope.analyses.memory.memory_peaks import memory_peaks
from stepscope.analyses.shared.memory.memory_samples import memory_samples
from stepscope.analyses.verdict.topics.message import Message, Options, known, value_range
from stepscope.model.trace import Trace

_FULL = 0.92  # of the capacity: a slightly larger batch does not fit
_UNUSED = 0.25  # of the reserved bytes
_UNUSED_LEAST = 64 << 20  # bytes: allocators reserve in blocks, so less says nothing
_GROWING_STEPS = 3  # that each leave more behind: two may still fill caches
_GROWTH, _GROWTH_LEAST = 0.01, 1 << 20  # of the peak; bytes
_LARGE = 0.1  # of the peak: an operator whose blocks are less is no conclusion
_OF_RANKS = {"memory-full": "memory-full-ranks", "memory-grows": "memory-grows-ranks", "memory-unused": "memory-unused-ranks"}
_NAMED = 8  # ranks in a sentence
_CHIPS = {"aicore": "npu", "aicpu": "npu"}  # how memory devices are named

_Row = dict[str, Any]
_Text = tuple[str, _Row, str | None]  # code, parameters, severity


def memory_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together where there are several, then of each rank; per device, chips before the host, the highest peak first."""
    devices = _devices(trace)
    ranks = trace.meta.ranks
    texts = {(row["rank"], row["device"]): list(_texts(row)) for row in devices}
    if len(ranks) > 1 and devices:
        yield from (Message("memory", code, parameters, None, level) for code, parameters, level in _of_ranks(devices, texts))
    if not ranks:
        yield Message("memory", "memory-none", {})
    for rank in ranks:
        of_rank = [row for row in devices if row["rank"] == rank]
        if not of_rank:
            yield Message("memory", "memory-none", {}, rank)
        for row in of_rank:
            for code, parameters, level in texts[rank, row["device"]]:
                coverage = _growth_coverage(row) if "steps" in parameters else None
                yield Message("memory", code, parameters, rank, level, coverage, device=row["device"])


def _devices(trace: Trace) -> list[_Row]:
    """Per rank and device: the peak and the figures at the peak, the growth of each step, and the capacity."""
    peaks = memory_peaks(trace)
    samples = memory_samples(trace, None).filter(pl.col("allocated_bytes").is_not_null())
    key = ["rank", "device"]
    chips = trace.devices.filter(pl.col("memory_bytes") > 0).select(
        "rank",
        capacity="memory_bytes",
        device=pl.format("{} {}", pl.col("kind").cast(pl.String).replace(_CHIPS), "device"),
    )
    highest = peaks.sort("peak_bytes", descending=True, nulls_last=True, maintain_order=True).unique(key, keep="first", maintain_order=True)
    at_peak = samples.join(highest.select(*key, "peak_bytes"), on=key).filter(pl.col("allocated_bytes") == pl.col("peak_bytes"))
    growth = pl.col("growth_bytes").drop_nulls()
    sums = peaks.group_by(key).agg(
        most_reserved=pl.col("reserved_bytes").max(), growth=growth, steps=pl.col("step").drop_nulls().n_unique()
    )
    rows = (
        highest.join(at_peak.group_by(key).agg(reserved_at_peak=pl.col("reserved_bytes").first()), on=key, how="left")
        .join(sums, on=key)
        .join(chips.unique(key).collect(), on=key, how="left")
        .join(_largest_operators(trace), on=key, how="left")
        .join(_categories(trace, highest), on=key, how="left")
        .sort("rank", pl.col("device").str.starts_with("cpu"), -pl.col("peak_bytes").fill_null(-1), "device")
    )
    return rows.to_dicts()


def _largest_operators(trace: Trace) -> pl.DataFrame:
    """Per rank and device: the operator whose blocks take most bytes at the peak."""
    alive = live_tensors(trace).filter(pl.col("op").is_not_null(), pl.col("alloc_ns").is_not_null())
    sums = alive.group_by("rank", "device", holder="op").agg(held=pl.col("bytes").sum(), blocks=pl.len())
    return sums.sort(-pl.col("held"), "holder").unique(["rank", "device"], keep="first", maintain_order=True)


def _categories(trace: Trace, highest: pl.DataFrame) -> pl.DataFrame:
    """Per rank and device: bytes by category at the peak, the largest first."""
    # Of one device this is one timestamp; all of them would be millions of rows.
    low, high = highest.select(low=pl.col("peak_ns").min(), high=pl.col("peak_ns").max()).row(0)
    curves = memory_by_category(trace, start_ns=low, end_ns=high)
    curves = curves.join(highest.select("rank", "device", at_ns="peak_ns"), on=["rank", "device", "at_ns"])
    parts = curves.filter(pl.col("bytes") > 0).sort(-pl.col("bytes"), "category")
    return parts.group_by("rank", "device").agg(parts=pl.struct("category", "bytes"))


def _texts(row: _Row) -> Iterator[_Text]:
    peak, capacity = row["peak_bytes"], row["capacity"]
    basic = {"device": row["device"]}
    if peak is None:  # a recording may contain only the reserved bytes
        yield "memory-reserved", basic | {"reserved": row["most_reserved"] or 0} | known(step=row["step"], capacity=capacity), None
        return
    headline = _headline(row)
    if headline:
        yield headline
    where = known(reserved=row["reserved_at_peak"] or None, step=row["step"], operator=row["op"], scope=row["scope"] if row["op"] else None)
    room = {"capacity": capacity, "share": peak / capacity, "left": capacity - peak} if capacity else {}
    yield "memory-peak" if capacity else "memory-peak-only", basic | {"peak": peak} | where | room, None
    yield from _contents(row)
    if row["growth"] and not (headline and headline[0] == "memory-grows"):
        growth, steps = sum(row["growth"]), len(row["growth"])
        if growth:
            yield "memory-growth" if growth > 0 else "memory-shrinks", {"growth": abs(growth), "steps": steps}, None
        elif steps > 1:
            yield "memory-stable", {"growth": 0, "steps": steps}, "info"


def _headline(row: _Row) -> _Text | None:
    peak, capacity, reserved = row["peak_bytes"], row["capacity"], row["reserved_at_peak"] or 0
    basic = {"device": row["device"]}
    used = max(row["most_reserved"] or 0, peak)
    if capacity and used > _FULL * capacity:
        quantity = "reserved" if used > peak else "allocated"
        return "memory-full", basic | {"share": used / capacity, "capacity": capacity, "what": quantity, "left": capacity - used}, "high"
    growth, steps = sum(row["growth"]), len(row["growth"])
    if steps >= _GROWING_STEPS and min(row["growth"]) > 0 and growth > max(_GROWTH * peak, _GROWTH_LEAST):
        left = {"until_full": (capacity - used) * steps // growth} if capacity else {}
        return "memory-grows", basic | {"growth": growth, "steps": steps} | left, "high"
    unused = reserved - peak
    if unused > max(_UNUSED * reserved, _UNUSED_LEAST):
        return "memory-unused", basic | {"unused": unused, "reserved": reserved}, "medium"
    return None


def _contents(row: _Row) -> Iterator[_Text]:
    """What the peak consists of, as far as allocations are recorded."""
    peak = row["peak_bytes"]
    parts = [part for part in row["parts"] or [] if part["bytes"] > 0]
    if parts and peak and sum(part["bytes"] for part in parts) == peak:
        parameters = {"category": parts[0]["category"], "share": parts[0]["bytes"] / peak, "bytes": parts[0]["bytes"]}
        if len(parts) > 1:
            parameters |= {"next": parts[1]["category"], "next_share": parts[1]["bytes"] / peak}
        yield "memory-category", parameters, None
    if row["holder"] is not None and peak and row["held"] > _LARGE * peak:
        yield (
            "memory-operator",
            {"share": row["held"] / peak, "bytes": row["held"], "blocks": row["blocks"], "operator": row["holder"]},
            None,
        )


def _growth_coverage(row: _Row) -> str | None:
    """The growth of a step is known if its first and last bytes are."""
    steps = len(row["growth"])
    return f"{steps:,} of {row['steps']:,} steps" if 0 < steps < row["steps"] else None


def _of_ranks(devices: list[_Row], texts: dict[tuple[int, str], list[_Text]]) -> Iterator[_Text]:
    """The ranks with a conclusion, and the range of the peaks of chips (of hosts, without chips)."""
    ranks = len({row["rank"] for row in devices})
    for code, code_of_ranks in _OF_RANKS.items():
        levels = {rank: level for (rank, _), rows in texts.items() for name, _, level in rows if name == code}
        if levels:
            numbers = ", ".join(map(str, sorted(levels)[:_NAMED])) + (", …" if len(levels) > _NAMED else "")
            yield code_of_ranks, {"count": len(levels), "ranks": ranks, "numbers": numbers}, next(iter(levels.values()))
    chips = [row for row in devices if not row["device"].startswith("cpu")] or devices
    peaks = [row for row in chips if row["peak_bytes"] is not None]
    if peaks:
        highest = max(peaks, key=lambda row: row["peak_bytes"])
        bytes_of = {rank: max(row["peak_bytes"] for row in peaks if row["rank"] == rank) for rank in {row["rank"] for row in peaks}}
        share = {"share": highest["peak_bytes"] / highest["capacity"]} if highest["capacity"] else {}
        most = {"peak": value_range(bytes_of.values()), "ranks": len(bytes_of), "rank": highest["rank"], "device": highest["device"]}
        yield "memory-peak-ranks", most | share, None
