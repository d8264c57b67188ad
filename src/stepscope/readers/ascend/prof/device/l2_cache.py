"""Hit and victim rates of the L2 cache (`l2_cache`): a record per execution with stream and task, without a time."""

from typing import Any

import numpy as np
import polars as pl

from stepscope.readers.ascend.prof.files import Notes, Side, records

_LAYOUT = np.dtype([("kind", "<u2"), ("stream", "<u2"), ("task", "<u2"), ("pad", "<u2"), ("values", "<u8", 8)])
_DC = ("0x78", "0x79"), ("0x6a",), ("0x71",)
_STARS = ("0xfb", "0xfc"), ("0x90", "0x91"), ("0x9c",)
# Chip -> events of requests, hits and victims (evicted lines).
_EVENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "1": (("0x59",), ("0x5b",), ("0x5c",)),
    **dict.fromkeys(("2", "3", "4"), _DC),
    **dict.fromkeys(("5", "7", "8", "11"), _STARS),
}
_NO_HITS = ("5", "7", "8", "11")  # msprof shows no hit rate for these chips: their requests are counted differently


def read(side: Side, executions: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """execution, l2_hit_rate, l2_victim_rate: shares of requests."""
    files = side.slices(r"l2_cache\.data\.\d+")
    raw = records(files, _LAYOUT, notes)
    counted = [word.strip().lower() for word in str(side.sample.get("l2CacheTaskProfilingEvents", "")).split(",")]
    events = _EVENTS.get(side.chip)
    if not len(raw):
        return pl.DataFrame()
    if events is None or not all(event in counted[:8] for kind in events for event in kind):
        notes.add(files[0], f"no known events of L2 cache hits among the counted events: {','.join(counted) or 'none'}", len(raw))
        return pl.DataFrame()
    requests, hits, victims = (
        sum((raw["values"][:, counted.index(event)].astype(np.float64) for event in kind), _zeros(raw)) for kind in events
    )
    nth = pl.int_range(pl.len()).over("stream", "task")
    rows = pl.DataFrame(
        {
            "stream": raw["stream"].astype(np.int64),
            "task": raw["task"].astype(np.int64),
            "l2_hit_rate": _share(hits, requests),
            "l2_victim_rate": _share(victims, requests),
        }
    ).with_columns(nth=nth)
    runs = executions.filter(pl.col("kind") == "kernel").select("execution", "stream", "task").with_columns(nth=nth)
    matched = rows.join(runs, on=["stream", "task", "nth"], how="left", maintain_order="left")
    if stray := matched["execution"].null_count():
        notes.add(files[0], "counters of the L2 cache of kernels whose start or end is lost", stray)
    hit = pl.lit(None, pl.Float64) if side.chip in _NO_HITS else pl.col("l2_hit_rate")
    return matched.filter(pl.col("execution").is_not_null()).select("execution", "l2_victim_rate", l2_hit_rate=hit)


def _zeros(raw: Any) -> Any:
    return np.zeros(len(raw))


def _share(part: Any, whole: Any) -> Any:
    return np.divide(part, whole, out=_zeros(part), where=whole > 0).round(6)
