"""The spans and counters of a trace, read in portions; each span gets its row and the number of its label."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import schema
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace
from stepscope.timeline.construction.columns import PORTION, RowBuffer

OnProgress = Callable[[float], None]  # called with the share that is done
_Codes = NDArray[np.int32]
_BITS = {"name": 22, "op_type": 19, "scope": 17}  # of each code in one 64-bit key, with 4 bits for the kind
_SLOTS = 18
_ODD = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 1 << 16
_LABELS = {"name": pl.String, "type": pl.String, "scope": pl.String, "kind": pl.UInt8}


class SpanRows(NamedTuple):
    """All spans of a trace in rows: one row per depth of each track."""

    buffer: RowBuffer  # start, dur, label, kind, span
    labels: "Labels"
    tracks: list[tuple[int, int]]  # rank and track, by number
    kinds: Ints  # number of spans by track and kind
    rows: dict[tuple[int, int], int]  # by number of the track and depth
    total: int


def load_spans(trace: Trace, origin: int, folder: Path | None, on_progress: OnProgress) -> SpanRows:
    frame = trace.spans.select(
        pl.col("rank").fill_null(0).cast(pl.Int64),
        (pl.col("track").fill_null(-1) + 1).cast(pl.Int64),
        pl.col("depth").fill_null(0).cast(pl.Int64),
        (pl.col("start_ns") - origin).fill_null(0).alias("start"),
        pl.col("dur_ns").fill_null(0).clip(0).alias("dur"),
        pl.col("kind").to_physical().fill_null(len(schema.KINDS) - 1).cast(pl.UInt8),
        pl.col("span").fill_null(-1).cast(pl.Int32),
        pl.col("name", "op_type", "scope"),
        *(_code(name).alias(f"{name}_code") for name in _BITS),
        _key().alias("key"),
    )
    buffer, labels = RowBuffer((np.int64, np.int64, np.int32, np.uint8, np.int32), folder), Labels()
    tracks, rows, total = Numbers(), Numbers(), 0
    kinds = np.zeros(0, np.int64)
    for portion in portions(frame, on_progress):
        track = tracks.encode((portion["rank"].to_numpy() << 32) | portion["track"].to_numpy())
        kind = portion["kind"].to_numpy()
        counts = np.bincount(track * np.int64(len(schema.KINDS)) + kind, minlength=len(tracks.keys) * len(schema.KINDS))
        counts[: len(kinds)] += kinds
        kinds = counts
        row = rows.encode((track.astype(np.int64) << 32) | portion["depth"].to_numpy())
        label = labels.encode(portion, kind)
        buffer.add(row, (portion["start"].to_numpy(), portion["dur"].to_numpy(), label, kind, portion["span"].to_numpy()))
        total += portion.height
    return SpanRows(
        buffer,
        labels,
        [(key >> 32, (key & 0xFFFFFFFF) - 1) for key in tracks.keys],
        kinds.reshape(-1, len(schema.KINDS)),
        {(key >> 32, key & 0xFFFFFFFF): number for number, key in enumerate(rows.keys)},
        total,
    )


def _code(name: str) -> pl.Expr:
    """The code of a text; 0 for null."""
    return (pl.col(name).to_physical() + 1).fill_null(0)


def _key() -> pl.Expr:
    """Name, type, scope and kind in one number; valid only where each code fits its bits."""
    key = pl.lit(0, pl.Int64)
    for name, bits in _BITS.items():
        key = key * (1 << bits) + _code(name)
    return key * 16 + pl.col("kind").to_physical().fill_null(len(schema.KINDS) - 1)


class Counters(NamedTuple):
    """All samples of a trace, by counter."""

    buffer: RowBuffer  # timestamp, value
    counters: list[dict[str, Any]]  # rank, name, unit, min, max, events (number of samples), number (its row in `buffer`)


def load_counters(trace: Trace, origin: int, folder: Path | None, on_progress: OnProgress) -> Counters:
    """Samples that are not finite numbers are left out."""
    value = pl.col("value")
    frame = trace.counters.select("rank", "name", "unit", "value", at=pl.col("at_ns") - origin)
    is_sample = pl.all_horizontal(value.is_finite().fill_null(False), pl.col("rank", "name", "at").is_not_null())
    buffer, numbers = RowBuffer((np.int64, np.float64), folder), Numbers()
    counters: list[dict[str, Any]] = []
    for unfiltered in portions(frame, on_progress):
        portion = unfiltered.filter(is_sample)  # a filter on the frame would make each slice scan all rows before it
        key = (portion["rank"].to_numpy().astype(np.int64) << 32) | portion["name"].to_physical().to_numpy()
        number = numbers.encode(key)
        first_seen = portion.select("rank", "name", "unit")[numbers.first_seen].with_columns(pl.col("name", "unit").cast(pl.String))
        for rank, name, unit in first_seen.iter_rows():
            counters.append({"rank": rank, "name": name, "unit": unit, "number": len(counters), "min": np.inf, "max": -np.inf, "events": 0})
        buffer.add(number, (portion["at"].to_numpy(), portion["value"].to_numpy()))
        ranges = portion.select("value", number=number).group_by("number").agg(low=value.min(), high=value.max(), count=pl.len())
        for at, low, high, count in ranges.iter_rows():
            counter = counters[at]
            counter.update(min=min(counter["min"], low), max=max(counter["max"], high), events=counter["events"] + count)
    return Counters(buffer, sorted(counters, key=lambda counter: (counter["rank"], counter["name"])))


def portions(frame: pl.LazyFrame, on_progress: OnProgress) -> Iterator[pl.DataFrame]:
    """The rows, PORTION at a time; the next portion is read while the caller works on this one."""
    total = frame.select(pl.len()).collect().item()
    with ThreadPoolExecutor(1, "stepscope-portion") as reader:
        pending = [reader.submit(frame.slice(0, PORTION).collect)] if total else []
        for low in range(0, total, PORTION):
            portion = pending.pop().result()
            if low + PORTION < total:
                pending.append(reader.submit(frame.slice(low + PORTION, PORTION).collect))
            yield portion
            on_progress(min(low + PORTION, total) / total)


class Numbers:
    """Consecutive numbers from 0 for non-negative keys, in order of first appearance."""

    def __init__(self) -> None:
        self.keys: list[int] = []  # by number
        self.first_seen: Ints = np.empty(0, np.int64)  # positions of keys that the last call to `encode` met for the first time
        self._numbers: dict[int, int] = {}
        # A hash table of recent keys: nearly all keys are in it.
        self._slot_keys, self._slot_numbers = np.full(1 << _SLOTS, -1, np.int64), np.zeros(1 << _SLOTS, np.int32)

    def encode(self, keys: Ints) -> _Codes:
        result, first_seen = np.empty(len(keys), np.int32), [np.empty(0, np.int64)]
        for low in range(0, len(keys), _BLOCK):
            block = keys[low : low + _BLOCK]
            slots = ((block.view(np.uint64) * _ODD) >> np.uint64(64 - _SLOTS)).view(np.int64)
            numbers = self._slot_numbers[slots]
            missed = np.flatnonzero(self._slot_keys[slots] != block)
            if len(missed):
                distinct, first, inverse = np.unique(block[missed], return_index=True, return_inverse=True)
                before = len(self.keys)
                codes = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in distinct.tolist()], np.int32)
                self.keys += distinct[codes >= before].tolist()
                first_seen.append(low + missed[first[codes >= before]])
                numbers[missed] = codes[inverse]
                self._slot_keys[slots[missed[first]]], self._slot_numbers[slots[missed[first]]] = distinct, codes
            result[low : low + _BLOCK] = numbers
        self.first_seen = np.concatenate(first_seen)
        return result


class Labels:
    """The distinct combinations of name, type, scope and kind, by number."""

    def __init__(self) -> None:
        self._numbers, self._pairs = Numbers(), (Numbers(), Numbers())
        self._frames = [pl.DataFrame(schema=_LABELS)]
        self._count = 0
        self._derived: dict[tuple[str, str | None, int], int] = {}

    def encode(self, portion: pl.DataFrame, kind: NDArray[np.uint8]) -> _Codes:
        """The label of each span."""
        codes = [portion[f"{name}_code"].to_numpy() for name in _BITS]
        key = portion["key"].to_numpy()
        if any(int(code.max(initial=0)) >> bits for code, bits in zip(codes, _BITS.values(), strict=True)):
            name, op_type, scope = (code.astype(np.int64) for code in codes)
            high, low = self._pairs[0].encode(name << 31 | op_type), self._pairs[1].encode(scope << 4 | kind)
            key = (1 << 62) | high.astype(np.int64) << 31 | low  # the upper half of the key space is for pairs
        numbers = self._numbers.encode(key)
        if len(self._numbers.first_seen):
            fresh = portion.select("name", pl.col("op_type").alias("type"), "scope", "kind")[self._numbers.first_seen]
            fresh = fresh.with_columns(pl.col("name", "type", "scope").cast(pl.String)).with_columns(pl.col("name").fill_null(""))
            self._frames.append(fresh)
            self._count += fresh.height
        return numbers

    def add(self, name: str, kind: int, scope: str | None = None) -> int:
        """The number of a label of derived rows. All spans must be encoded before."""
        return self._derived.setdefault((name, scope, kind), self._count + len(self._derived))

    def span_labels(self) -> pl.DataFrame:
        self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def frame(self) -> pl.DataFrame:
        """`means` is the common type of all labels with the same name, if it differs from the name, such as of `layer0/cube_2`."""
        derived = [{"name": name, "type": None, "scope": scope, "kind": kind} for name, scope, kind in self._derived]
        labels = self.span_labels().vstack(pl.DataFrame(derived, schema=_LABELS, orient="row"))
        types = labels.filter(pl.col("type") != pl.col("name")).group_by("name").agg(pl.col("type").unique())
        means = types.filter(pl.col("type").list.len() == 1).select("name", means=pl.col("type").list.first())
        return labels.join(means, on="name", how="left", maintain_order="left")
