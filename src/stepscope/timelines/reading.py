"""The spans and the counters of a trace, read in portions, each span with its row and with a number for what it is called."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import schema
from stepscope.intervals import Ints
from stepscope.timelines.columns import PORTION, Waiting
from stepscope.trace import Trace

_Codes = NDArray[np.int32]
_BITS = {"name": 22, "op_type": 19, "scope": 17}  # of each in one number, with 4 for the kind
_SLOTS = 18
_ODD = np.uint64(0x9E3779B97F4A7C15)
_CACHED = 1 << 16
_LABELS = {"name": pl.String, "type": pl.String, "scope": pl.String, "kind": pl.UInt8}


class Spans(NamedTuple):
    """All spans of a trace, in rows: one per depth of each track."""

    waiting: Waiting  # start, dur, label, kind, span
    labels: "Labels"
    tracks: list[tuple[int, int]]  # rank and track, by number
    kinds: Ints  # how many spans of each kind a track has
    rows: dict[tuple[int, int], int]  # by number of the track and depth
    total: int


def spans(trace: Trace, origin: int, folder: Path | None, heard: Callable[[float], None]) -> Spans:
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
    waiting, labels = Waiting((np.int64, np.int64, np.int32, np.uint8, np.int32), folder), Labels()
    tracks, rows, count = Numbers(), Numbers(), 0
    kinds = np.zeros(0, np.int64)
    for portion in portions(frame, heard):
        track = tracks.of((portion["rank"].to_numpy() << 32) | portion["track"].to_numpy())
        kind = portion["kind"].to_numpy()
        found = np.bincount(track * np.int64(len(schema.KINDS)) + kind, minlength=len(tracks.keys) * len(schema.KINDS))
        found[: len(kinds)] += kinds
        kinds = found
        row = rows.of((track.astype(np.int64) << 32) | portion["depth"].to_numpy())
        label = labels.of(portion, kind)
        waiting.add(row, (portion["start"].to_numpy(), portion["dur"].to_numpy(), label, kind, portion["span"].to_numpy()))
        count += portion.height
    return Spans(
        waiting,
        labels,
        [(key >> 32, (key & 0xFFFFFFFF) - 1) for key in tracks.keys],
        kinds.reshape(-1, len(schema.KINDS)),
        {(key >> 32, key & 0xFFFFFFFF): number for number, key in enumerate(rows.keys)},
        count,
    )


def _code(name: str) -> pl.Expr:
    """The number of a text; 0 is none."""
    return (pl.col(name).to_physical() + 1).fill_null(0)


def _key() -> pl.Expr:
    """Name, type, scope and kind in one number, where each has room in it."""
    found = pl.lit(0, pl.Int64)
    for name, bits in _BITS.items():
        found = found * (1 << bits) + _code(name)
    return found * 16 + pl.col("kind").to_physical().fill_null(len(schema.KINDS) - 1)


class Counters(NamedTuple):
    """All samples of a trace, by counter."""

    waiting: Waiting  # moment, value
    about: list[dict[str, Any]]  # rank, name, unit, min, max, events, number: its row in `waiting`


def counters(trace: Trace, origin: int, folder: Path | None, heard: Callable[[float], None]) -> Counters:
    """What is no number is left out."""
    value = pl.col("value")
    frame = trace.counters.select("rank", "name", "unit", "value", at=pl.col("at_ns") - origin)
    is_sample = pl.all_horizontal(value.is_finite().fill_null(False), pl.col("rank", "name", "at").is_not_null())
    waiting, numbers = Waiting((np.int64, np.float64), folder), Numbers()
    about: list[dict[str, Any]] = []
    for whole in portions(frame, heard):
        portion = whole.filter(is_sample)  # not before: each portion would look through all before it
        key = (portion["rank"].to_numpy().astype(np.int64) << 32) | portion["name"].to_physical().to_numpy()
        number = numbers.of(key)
        first_seen = portion.select("rank", "name", "unit")[numbers.new].with_columns(pl.col("name", "unit").cast(pl.String))
        for rank, name, unit in first_seen.iter_rows():
            about.append({"rank": rank, "name": name, "unit": unit, "number": len(about), "min": np.inf, "max": -np.inf, "events": 0})
        waiting.add(number, (portion["at"].to_numpy(), portion["value"].to_numpy()))
        found = portion.select("value", number=number).group_by("number").agg(low=value.min(), high=value.max(), count=pl.len())
        for which, low, high, count in found.iter_rows():
            own = about[which]
            own.update(min=min(own["min"], low), max=max(own["max"], high), events=own["events"] + count)
    return Counters(waiting, sorted(about, key=lambda one: (one["rank"], one["name"])))


def portions(frame: pl.LazyFrame, heard: Callable[[float], None]) -> Iterator[pl.DataFrame]:
    """The rows, so many at a time; the next ones are read while these are worked on."""
    total = frame.select(pl.len()).collect().item()
    with ThreadPoolExecutor(1, "stepscope-portion") as reader:
        coming = [reader.submit(frame.slice(0, PORTION).collect)] if total else []
        for low in range(0, total, PORTION):
            found = coming.pop().result()
            if low + PORTION < total:
                coming.append(reader.submit(frame.slice(low + PORTION, PORTION).collect))
            yield found
            heard(min(low + PORTION, total) / total)


class Numbers:
    """Numbers for whole numbers, from 0 on, in the order in which they are first seen. They must not be negative."""

    def __init__(self) -> None:
        self.keys: list[int] = []  # by number
        self.new: Ints = np.empty(0, np.int64)  # where those stand that were seen for the first time
        self._known: dict[int, int] = {}
        # A table of those seen last: nearly all that come are in it.
        self._slot_keys, self._slot_numbers = np.full(1 << _SLOTS, -1, np.int64), np.zeros(1 << _SLOTS, np.int32)

    def of(self, keys: Ints) -> _Codes:
        found, new = np.empty(len(keys), np.int32), [np.empty(0, np.int64)]
        for low in range(0, len(keys), _CACHED):
            own = keys[low : low + _CACHED]
            slots = ((own.view(np.uint64) * _ODD) >> np.uint64(64 - _SLOTS)).view(np.int64)
            numbers = self._slot_numbers[slots]
            missed = np.flatnonzero(self._slot_keys[slots] != own)
            if len(missed):
                distinct, first, where = np.unique(own[missed], return_index=True, return_inverse=True)
                before = len(self.keys)
                known = np.array([self._known.setdefault(key, len(self._known)) for key in distinct.tolist()], np.int32)
                self.keys += distinct[known >= before].tolist()
                new.append(low + missed[first[known >= before]])
                numbers[missed] = known[where]
                self._slot_keys[slots[missed[first]]], self._slot_numbers[slots[missed[first]]] = distinct, known
            found[low : low + _CACHED] = numbers
        self.new = np.concatenate(new)
        return found


class Labels:
    """What events are called: the distinct combinations of name, type, scope and kind, by number."""

    def __init__(self) -> None:
        self._numbers, self._pairs = Numbers(), (Numbers(), Numbers())
        self._frames = [pl.DataFrame(schema=_LABELS)]
        self._count = 0
        self._more: dict[tuple[str, str | None, int], int] = {}

    def of(self, portion: pl.DataFrame, kind: NDArray[np.uint8]) -> _Codes:
        """The number of each span's."""
        codes = [portion[f"{name}_code"].to_numpy() for name in _BITS]
        key = portion["key"].to_numpy()
        if any(int(own.max(initial=0)) >> room for own, room in zip(codes, _BITS.values(), strict=True)):
            name, of_type, scope = (own.astype(np.int64) for own in codes)
            one, two = self._pairs[0].of(name << 31 | of_type), self._pairs[1].of(scope << 4 | kind)
            key = (1 << 62) | one.astype(np.int64) << 31 | two  # the upper half of all numbers is for these
        found = self._numbers.of(key)
        if len(self._numbers.new):
            fresh = portion.select("name", pl.col("op_type").alias("type"), "scope", "kind")[self._numbers.new]
            fresh = fresh.with_columns(pl.col("name", "type", "scope").cast(pl.String)).with_columns(pl.col("name").fill_null(""))
            self._frames.append(fresh)
            self._count += fresh.height
        return found

    def add(self, name: str, kind: int, scope: str | None = None) -> int:
        """The number of what no span is called. All spans must be known."""
        return self._more.setdefault((name, scope, kind), self._count + len(self._more))

    def spans(self) -> pl.DataFrame:
        self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def frame(self) -> pl.DataFrame:
        """`means` is the type of all that bear the name, where it is one and says more: a name such as `layer0/cube_2` says little."""
        more = [{"name": name, "type": None, "scope": scope, "kind": kind} for name, scope, kind in self._more]
        known = self.spans().vstack(pl.DataFrame(more, schema=_LABELS, orient="row"))
        types = known.filter(pl.col("type") != pl.col("name")).group_by("name").agg(pl.col("type").unique())
        one = types.filter(pl.col("type").list.len() == 1).select("name", means=pl.col("type").list.first())
        return known.join(one, on="name", how="left", maintain_order="left")
