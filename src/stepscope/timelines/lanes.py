"""Which lanes a trace has, and what stands in each of their rows.

A lane is a track, or something that is told from many: the steps, the scopes, how computing and communication overlap, a counter. Its
rows are the depths of what nests. All times are nanoseconds since the first moment of the trace.
"""

import heapq
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals, pyramid, schema
from stepscope.analyses.overlap import parts
from stepscope.intervals import Ints, Set
from stepscope.pyramid import Pyramid, Unsorted
from stepscope.trace import Trace

# Those of the spans, and what else is drawn: the rows of the overlap lane, the pieces of the critical path.
KINDS = (*schema.KINDS, "computing", "exposed", "hidden", "free", "launch", "host", "wait")
# The critical path of more spans would take as long as everything else; `critical_path` finds that of some steps.
PATH_SPANS = 1 << 21
# Work on a device is not nested: where two pieces overlap, neither is part of the other.
FLAT = ("kernel", "copy", "set")
WORK = (*FLAT, "communication")
_NOTES = {"kernel": "kernels", "copy": "copies", "set": "fills", "op": "operators", "api": "calls", "python": "Python"}
_SHALLOW = 15  # levels that are taken for nesting unseen
_TABLE = 1 << 24
_PORTION = 1 << 18
_Codes = NDArray[np.int32]
_Bytes = NDArray[np.uint8]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes that fold together: of a device, of a process, or of the whole rank."""

    id: int
    rank: int
    label: str
    note: str = ""
    kind: str  # run, device or process
    device: int | None = None
    busy_share: float | None = None  # of the time in steps, where it is a device


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    group: int
    rank: int
    kind: str  # steps, path, scope, overlap, spans or counter
    label: str
    note: str = ""
    track: int | None = None
    rows: int = 1
    row_labels: tuple[str, ...] = ()
    events: int = 0
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    nested: bool = False  # what stands in a row is part of what stands above it
    tangled: bool = False  # spans overlap so that rows are only room for them, and say nothing of what is part of what
    first: int = 0  # its first row among those of all lanes; of a counter, its number among the counters


class Samples(NamedTuple):
    """The counters, one after the other, each by time."""

    offsets: Ints
    at: Ints
    value: NDArray[np.float64]


class Timeline(NamedTuple):
    origin: int  # the moment that the others count from, on the trace's own clock
    end: int
    spans: int
    groups: list[Group]
    lanes: list[Lane]
    pyramid: Pyramid
    labels: pl.DataFrame  # name, type and scope, by the number that events bear
    samples: Samples


def build(trace: Trace, ends: tuple[int, int] | None = None) -> Timeline:
    """`ends` are the first and the last moment of the trace, where they are known already."""
    origin, last = ends or trace.ends()
    overlaps = {rank: _since(found, origin) for rank, _, found in parts(trace)}  # first: what it reads is gone before the rest is read
    steps = trace.steps.select("rank", "step", start=pl.col("start_ns") - origin, end=pl.col("end_ns") - origin).sort("rank", "start")
    counters, samples = _counters(trace, origin)
    spans, tracks, labels = _spans(trace, origin)
    picture, count = _Picture(spans, labels), len(spans.start)
    del spans
    chips = {(rank, device): name for rank, device, name in trace.devices.select("rank", "device", "name").collect().iter_rows()}
    paths = _paths(trace, origin) if count <= PATH_SPANS else {}
    steps_of = steps.collect().partition_by("rank", as_dict=True)
    for rank in sorted({*(rank for (rank,) in steps_of), *(track.rank for track in tracks), *(counter["rank"] for counter in counters)}):
        own = _Rank(
            rank,
            steps_of.get((rank,), steps.clear().collect()),
            [track for track in tracks if track.rank == rank],
            overlaps.get(rank),
            {device: name for (of, device), name in chips.items() if of == rank},
            [counter for counter in counters if counter["rank"] == rank],
            paths.get(rank),
        )
        picture.add(own)
    made = pyramid.build(picture.events(), last - origin)
    return Timeline(origin, last - origin, count, picture.groups, picture.lanes, made, picture.labels.frame(), samples)


class _Spans(NamedTuple):
    """All spans of the trace, column by column."""

    track: _Codes  # its number among the tracks that have spans
    depth: _Codes
    start: Ints
    dur: Ints
    label: _Codes
    kind: _Bytes
    span: _Codes


class _Track(NamedTuple):
    number: int
    rank: int
    track: int | None
    group: str
    label: str
    kind: str
    device: int | None
    pid: str | None
    rows: int
    tangled: bool
    events: int
    kinds: tuple[str, ...]  # of its spans, the most frequent first


class _Rank(NamedTuple):
    rank: int
    steps: pl.DataFrame
    tracks: list[_Track]
    overlap: dict[str, Set] | None
    chips: dict[int | None, str | None]
    counters: list[dict[str, Any]]
    path: pl.DataFrame | None


class _Labels:
    """What events are called: what the spans are, and more."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame
        self._more: dict[tuple[str, str | None], int] = {}
        self.scopes: list[str | None] = frame["scope"].to_list()

    def add(self, name: str, scope: str | None = None) -> int:
        return self._more.setdefault((name, scope), self._frame.height + len(self._more))

    def frame(self) -> pl.DataFrame:
        more = pl.DataFrame(
            [{"name": name, "type": None, "scope": scope} for name, scope in self._more], schema=self._frame.schema, orient="row"
        )
        return self._frame.vstack(more)


class _Picture:
    """Groups and lanes in the order in which they are drawn, and what stands in them."""

    def __init__(self, spans: _Spans, labels: _Labels) -> None:
        self.groups: list[Group] = []
        self.lanes: list[Lane] = []
        self.labels = labels
        self._spans = spans
        self._rows = 0
        self._drawn: list[Unsorted] = []
        self._first_row: dict[int, int] = {}  # by number of the track

    def add(self, own: _Rank) -> None:
        """Everything of one rank: its steps, then its devices, then its processes."""
        by_group: dict[str, list[_Track]] = {}
        for track in own.tracks:
            by_group.setdefault(track.group, []).append(track)
        devices = {label: tracks for label, tracks in by_group.items() if any(track.kind == "stream" for track in tracks)}
        # What only says that a profiler was there comes last.
        processes = sorted(
            (label for label in by_group if label not in devices),
            key=lambda label: not any({"op", "step", "python", "api", "scope"} & set(track.kinds) for track in by_group[label]),
        )
        counters = _placed(own.counters, devices, {label: by_group[label] for label in processes})
        whole = self._group(own.rank, "run", f"rank {own.rank}")
        self._steps(own, whole)
        self._path(own, whole)
        if len(devices) != 1:
            self._overlap(own, whole)
        scoped = [self._device(own, label, tracks, counters.get(label, []), len(devices) == 1) for label, tracks in devices.items()]
        if not any(scoped):
            self._host_scopes(own, whole)
        for label in processes:
            group = self._group(own.rank, "process", label)
            for track in by_group[label]:
                self._track(group, track)
            for counter in counters.get(label, []):
                self._counter(group, counter)
        if rest := counters.get("", []):
            group = self._group(own.rank, "run", "host")
            for counter in rest:
                self._counter(group, counter)

    def events(self) -> pyramid.Events:
        """All of them, by row and start. Nothing can be added any more."""
        first = np.zeros(max(self._first_row, default=0) + 1, np.int32)
        for number, row in self._first_row.items():
            first[number] = row
        parts = [Unsorted(first[self._spans.track] + self._spans.depth, *self._spans[2:]), *self._drawn]
        del self._spans, self._drawn  # they take as much room as what is made of them
        return pyramid.events(parts, self._rows)

    def _group(self, rank: int, kind: str, label: str, **more: Any) -> int:
        self.groups.append(Group(id=len(self.groups), rank=rank, kind=kind, label=label, **more))
        return self.groups[-1].id

    def _lane(self, group: int, kind: str, label: str, drawn: Unsorted | None = None, **more: Any) -> None:
        more = {"first": self._rows, "events": 0 if drawn is None else len(drawn.row)} | more
        self.lanes.append(Lane(id=len(self.lanes), group=group, rank=self.groups[group].rank, kind=kind, label=label, **more))
        if drawn is not None:
            self._drawn.append(drawn._replace(row=drawn.row + np.int32(self._rows)))
        if kind != "counter":
            self._rows += self.lanes[-1].rows

    def _steps(self, own: _Rank, group: int) -> None:
        start, dur = own.steps["start"].to_numpy(), (own.steps["end"] - own.steps["start"]).to_numpy()
        if len(start) == 0:
            return
        row = first_fit(start, start + dur)
        label = np.array([self.labels.add(f"step {step}") for step in own.steps["step"].to_list()], np.int32)
        self._lane(group, "steps", "steps", self._told(row, start, dur, label, "step"), rows=int(row.max()) + 1)

    def _path(self, own: _Rank, group: int) -> None:
        """Which work each step waited for, one piece after the other."""
        if own.path is None:
            return
        start, dur = own.path["start"].to_numpy(), own.path["dur_ns"].to_numpy()
        # Of several steps that run at the same time each has its own.
        row = first_fit(start, start + dur)
        label = np.array([self.labels.add(name) for name in own.path["label"].to_list()], np.int32)
        kinds = own.path["kind"].replace_strict({kind: at for at, kind in enumerate(KINDS)}, return_dtype=pl.UInt8).to_numpy()
        told = self._told(row, start, dur, label, "host")._replace(kind=kinds)
        self._lane(group, "path", "critical path", told, note="what each step waited for", rows=int(row.max()) + 1)

    def _overlap(self, own: _Rank, group: int) -> None:
        """As `overlap` has it: what is free is so within the steps; the rest is drawn wherever it is."""
        if own.overlap is None:
            return
        found = own.overlap
        in_steps = intervals.merge(own.steps["start"].to_numpy(), own.steps["end"].to_numpy())
        free = intervals.subtract(in_steps, intervals.join(found["computing"], found["communication"], found["copy"]))
        # Communication twice: all of it, told apart by whether something hides it, and what nothing hides by itself.
        drawn = [
            (0, "computing", "computing", found["computing"]),
            (1, "communication", "hidden", found["overlapped"]),
            (1, "communication", "exposed", found["exposed"]),
            (2, "exposed", "exposed", found["exposed"]),
            (3, "free", "free", free),
            (4, "copy", "copy", found["copy"]),
        ]
        pieces = [
            self._told(np.full(len(part.starts), row), part.starts, part.ends - part.starts, self.labels.add(name), kind)
            for row, name, kind, part in drawn
        ]
        names = tuple(dict.fromkeys(name for _, name, _, _ in drawn))[: 5 if len(found["copy"].starts) else 4]
        self._lane(group, "overlap", "overlap", _joined(pieces), rows=len(names), row_labels=names)

    def _device(self, own: _Rank, label: str, tracks: list[_Track], counters: list[dict[str, Any]], only: bool) -> bool:
        """Returns whether the scopes of its work are known."""
        number = next(track.device for track in tracks if track.kind == "stream")
        streams = np.array([track.number for track in tracks if track.kind == "stream"], np.int32)
        work = np.flatnonzero(np.isin(self._spans.track, streams) & np.isin(self._spans.kind, [KINDS.index(kind) for kind in WORK]))
        work = work[np.argsort(self._spans.start[work], kind="stable")]
        start, dur = self._spans.start[work], self._spans.dur[work]
        low, high = own.steps["start"].to_numpy(), own.steps["end"].to_numpy()
        in_steps, busy = int((high - low).sum()), int(intervals.covered(intervals.merge(start, start + dur), low, high).sum())
        group = self._group(
            own.rank,
            "device",
            label,
            note=own.chips.get(number) or "",
            device=number,
            busy_share=busy / in_steps if in_steps else None,
        )
        scoped = self._scopes(group, self._spans.label[work], start, start + dur, low)
        if only:
            self._overlap(own, group)
        for track in tracks:
            self._track(group, track)
        for counter in counters:
            self._counter(group, counter)
        return scoped

    def _host_scopes(self, own: _Rank, group: int) -> None:
        """Where no device says: of the operators of the thread that has the most of them."""
        scoped = np.array([scope is not None for scope in self.labels.scopes], bool)
        if not scoped.any():
            return
        which = np.flatnonzero(scoped[self._spans.label] & (self._spans.kind == KINDS.index("op")))
        which = which[np.isin(self._spans.track[which], [track.number for track in own.tracks])]
        if len(which) == 0:
            return
        which = which[self._spans.track[which] == np.bincount(self._spans.track[which]).argmax()]
        which = which[np.argsort(self._spans.start[which], kind="stable")]
        start = self._spans.start[which]
        self._scopes(group, self._spans.label[which], start, start + self._spans.dur[which], own.steps["start"].to_numpy())

    def _scopes(self, group: int, label: _Codes, start: Ints, end: Ints, steps: Ints) -> bool:
        """A row per level: from the first piece of work of a scope to the last before another scope's, or the next step's.

        The work is sorted by start. A scope is called by its whole path.
        """
        codes, used = _dense(label)
        paths = [scope.split("/") if (scope := self.labels.scopes[one]) else [] for one in used]
        levels = max(map(len, paths), default=0)
        if levels == 0:
            return False
        step = np.searchsorted(steps, start, "right")
        pieces = []
        for level in range(levels):
            whole = [("/".join(path[: level + 1])) if len(path) > level else None for path in paths]
            known = np.array([-1 if path is None else self.labels.add(path, path) for path in whole], np.int32)
            scope = known[codes]
            change = np.ones(len(scope), bool)
            np.logical_or(scope[1:] != scope[:-1], step[1:] != step[:-1], out=change[1:])
            first = np.flatnonzero(change)
            until = np.minimum(np.maximum.reduceat(end, first), np.append(start[first[1:]], np.iinfo(np.int64).max))
            own = scope[first] >= 0
            first, until = first[own], until[own]
            pieces.append(self._told(np.full(len(first), level), start[first], until - start[first], scope[first], "scope"))
        self._lane(group, "scope", "scopes", _joined(pieces), rows=levels, nested=True)
        return True

    def _track(self, group: int, track: _Track) -> None:
        self._first_row[track.number] = self._rows
        note = _NOTES.get(track.kinds[0], track.kinds[0]) if track.kinds else ""
        own_thread = track.kind != "stream"
        rows: dict[str, Any] = {"rows": track.rows, "nested": own_thread and not track.tangled, "tangled": own_thread and track.tangled}
        self._lane(group, "spans", track.label or "thread", note=note, track=track.track, events=track.events, **rows)

    def _counter(self, group: int, counter: dict[str, Any]) -> None:
        about = {name: counter[name] for name in ("note", "unit", "min", "max", "events")}
        self._lane(group, "counter", counter["label"], first=counter["number"], **about)

    def _told(self, row: Ints | _Codes, start: Ints, dur: Ints, label: _Codes | int, kind: str) -> Unsorted:
        count = len(row)
        labels = np.full(count, label, np.int32) if isinstance(label, int) else label
        kinds = np.full(count, KINDS.index(kind), np.uint8)
        return Unsorted(row.astype(np.int32), start, dur, labels, kinds, np.full(count, -1, np.int32))


def _spans(trace: Trace, origin: int) -> tuple[_Spans, list[_Track], _Labels]:
    frame = trace.spans.select(
        pl.col("rank").fill_null(0),
        pl.col("track").fill_null(-1),
        pl.col("depth").fill_null(0),
        (pl.col("start_ns") - origin).fill_null(0).alias("start"),
        pl.col("dur_ns").fill_null(0).alias("dur"),
        pl.col("kind").to_physical().fill_null(len(schema.KINDS) - 1).cast(pl.UInt8),
        pl.col("span").cast(pl.Int32),
        pl.col("name", "op_type", "scope"),
    ).collect()
    labels, label = _labels(frame)
    frame.drop_in_place("name"), frame.drop_in_place("op_type"), frame.drop_in_place("scope")
    wide = int(frame["track"].max() or 0) + 2  # type: ignore[arg-type]
    track, keys = _dense(frame["rank"].cast(pl.Int64).to_numpy() * wide + frame["track"].to_numpy() + 1)
    frame.drop_in_place("rank"), frame.drop_in_place("track")
    spans = _Spans(
        track,
        frame["depth"].to_numpy(writable=True),
        frame["start"].to_numpy(),
        np.maximum(frame["dur"].to_numpy(), 0),
        label,
        frame["kind"].to_numpy(),
        frame["span"].to_numpy(),
    )
    return spans, _tracks(trace, spans, [(int(key) // wide, int(key) % wide - 1) for key in keys]), labels


def _labels(frame: pl.DataFrame) -> tuple[_Labels, _Codes]:
    """The distinct combinations of name, type and scope, and the number of each span's."""
    texts, numbers = [], []
    for column in (frame["name"], frame["op_type"], frame["scope"]):
        distinct = column.unique()
        texts.append(distinct.cast(pl.String))
        code = (distinct.to_physical().cast(pl.Int64) + 1).fill_null(0).to_numpy()
        number = np.zeros(int(code.max(initial=0)) + 1, np.int32)
        number[code] = np.arange(len(code), dtype=np.int32)
        numbers.append(number)
    one, two, three = (max(len(text), 1) for text in texts)
    small = one * two * three < 1 << 31
    key: Ints | _Codes = np.empty(frame.height, np.int32) if small else np.empty(frame.height, np.int64)
    for part in _portions(frame.height):
        own: Ints = np.zeros(part.stop - part.start, np.int64)
        for column, text, number in zip((frame["name"], frame["op_type"], frame["scope"]), texts, numbers, strict=True):
            own *= len(text)
            if len(text) > 1:
                own += number[(column[part].to_physical() + 1).fill_null(0).to_numpy()]
        key[part] = own
    label, found = _dense(key)
    places = found // (two * three), found // three % two, found % three
    words = {name: text.gather(at) for name, text, at in zip(("name", "type", "scope"), texts, places, strict=True)}
    return _Labels(pl.DataFrame(words, schema=dict.fromkeys(words, pl.String)).with_columns(pl.col("name").fill_null(""))), label


def _tracks(trace: Trace, spans: _Spans, keys: list[tuple[int, int]]) -> list[_Track]:
    """The tracks that have spans, in the order in which they are drawn; those whose depths are not nesting get rows that are."""
    said = {
        (row["rank"], row["track"]): row
        for row in trace.tracks.with_columns(pl.col("group", "kind").cast(pl.String)).collect().iter_rows(named=True)
    }
    place: dict[Any, int] = {}
    for row in said.values():
        home = row["rank"], row["pid"], row["tid"] or row["track"]
        place[home] = min(place.get(home, 1 << 31), row["sort"] or 0)
    levels = int(spans.depth.max(initial=0)) + 1
    flat = np.zeros(len(keys) * levels * len(KINDS), np.int64)
    for part in _portions(len(spans.track)):
        place_of = (spans.track[part] * np.int64(levels) + spans.depth[part]) * len(KINDS) + spans.kind[part]
        flat += np.bincount(place_of, minlength=len(flat))
    table = flat.reshape(-1, levels, len(KINDS))
    counts = table.sum(axis=1)
    deepest = levels - 1 - np.argmax(table.sum(axis=2)[:, ::-1] > 0, axis=1)
    found = []
    for number, (rank, track) in enumerate(keys):
        row = said.get((rank, track), {})
        kind, tangled = row.get("kind") or "other", False
        if deepest[number] > (0 if kind == "stream" else _SHALLOW):
            which = np.flatnonzero(spans.track == number)
            start, end = spans.start[which], spans.start[which] + spans.dur[which]
            if deepest[number] > most_at_once(start, end):
                spans.depth[which] = first_fit(start, end)
                deepest[number], tangled = spans.depth[which].max(), True
        kinds = tuple(KINDS[at] for at in np.argsort(-counts[number], kind="stable") if counts[number, at])
        home = rank, row.get("pid"), row.get("tid") or track
        one = _Track(
            number,
            rank,
            None if track < 0 else track,
            row.get("group") or "",
            row.get("label") or "",
            kind,
            row.get("device"),
            row.get("pid"),
            int(deepest[number]) + 1,
            tangled,
            int(counts[number].sum()),
            kinds,
        )
        # What annotates a thread stands above it, what annotates a stream below.
        found.append(((rank, place.get(home, 0), kind not in ("annotation", "stream"), kind != "stream", row.get("sort") or 0), one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _paths(trace: Trace, origin: int) -> dict[int, pl.DataFrame]:
    """The critical path of each rank."""
    label = pl.coalesce("name", "kind")
    found = trace.analyse("critical_path").select("rank", "kind", "dur_ns", label=label, start=pl.col("start_ns") - origin)
    return {int(rank): part for (rank,), part in found.partition_by("rank", as_dict=True).items()}


def _counters(trace: Trace, origin: int) -> tuple[list[dict[str, Any]], Samples]:
    """The counters by rank and name: what each is, and its samples by time. What is no number is left out."""
    rows = trace.counters.select("rank", "name", "unit", "value", at=pl.col("at_ns") - origin).collect()
    is_sample = pl.all_horizontal(pl.col("value").is_finite().fill_null(False), pl.col("rank", "name", "at").is_not_null())
    if not (known := rows.select(is_sample).to_series()).all():
        rows = rows.filter(known)
    code = rows["name"].to_physical()
    wide = int(code.max() or 0) + 1  # type: ignore[arg-type]
    number, keys = _dense((rows["rank"].cast(pl.Int64) * wide + code).to_numpy())
    moments, values = rows["at"].to_numpy(), rows["value"].to_numpy()
    places = pyramid.by_row(number, moments, len(keys))
    at, value = np.empty(rows.height, np.int64), np.empty(rows.height, np.float64)
    found = []
    first = places.order[places.offsets[:-1]]
    names = rows["name"].gather(first).cast(pl.String).to_list()
    order = sorted(range(len(keys)), key=lambda key: (keys[key] // wide, names[key]))
    offsets = np.concatenate(([0], np.cumsum(np.diff(places.offsets)[order]))).astype(np.int64)
    for index, key in enumerate(order):
        which, to = places.of(key), slice(int(offsets[index]), int(offsets[index + 1]))
        np.take(moments, which, out=at[to], mode="clip")
        np.take(values, which, out=value[to], mode="clip")
        about = {"min": float(value[to].min()), "max": float(value[to].max()), "events": len(which), "number": index}
        unit = rows["unit"][int(which[0])]
        found.append({"rank": int(keys[key] // wide), "name": names[key], "unit": unit, **about})
    return found, Samples(offsets, at, value)


def _placed(
    counters: list[dict[str, Any]], devices: dict[str, list[_Track]], processes: dict[str, list[_Track]]
) -> dict[str, list[dict[str, Any]]]:
    """The counters by the group that they are of: a device, a process, or "" for the machine."""
    by_number = {str(track.device): label for label, tracks in devices.items() for track in tracks if track.kind == "stream"}
    by_pid = {track.pid: label for label, tracks in processes.items() for track in tracks}
    found: dict[str, list[dict[str, Any]]] = {}
    for counter in counters:
        name = counter["name"] or ""
        group, label = "", name
        if (match := re.fullmatch(r"(.+?) (?:\S*:)?[a-z]+[ :](\d+)", name)) and match[2] in by_number:
            group, label = by_number[match[2]], match[1]
        elif (match := re.fullmatch(r"process (\d+) (.+)", name)) and match[1] in by_pid:
            group, label = by_pid[match[1]], match[2]
        found.setdefault(group, []).append(counter | {"label": label, "note": name if label != name else ""})
    for some in found.values():
        some.sort(key=lambda counter: not counter["label"].startswith(("allocated", "reserved", "utilization", "queue")))
    return found


def first_fit(start: Ints, end: Ints) -> _Codes:
    """The first row in which each is alone; of those that nest, the row is the depth."""
    row = np.zeros(len(start), np.int32)
    order = np.lexsort((-end, start))
    free: list[int] = []
    open_: list[tuple[int, int]] = []
    rows = 0
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        while open_ and open_[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(open_)[1])
        if free:
            mine = heapq.heappop(free)
        else:
            mine, rows = rows, rows + 1
        row[index] = mine
        heapq.heappush(open_, (finish, mine))
    return row


def most_at_once(start: Ints, end: Ints) -> int:
    """How many are open at one moment, at most."""
    begun = np.sort(start)
    closed = np.searchsorted(np.sort(np.maximum(end, start)), begun, "right")
    return int((np.arange(1, len(begun) + 1) - closed).max(initial=0))


def _dense(key: Ints | _Codes) -> tuple[_Codes, Ints]:
    """Each value's number among the distinct ones, and these, in order."""
    top = int(key.max(initial=-1)) + 1
    if top > max(_TABLE, 4 * len(key)):
        values, codes = np.unique(key, return_inverse=True)
        return codes.astype(np.int32), values.astype(np.int64)
    seen = np.zeros(top, np.bool_)
    for part in _portions(len(key)):
        seen[key[part]] = True
    values = np.flatnonzero(seen)
    number = np.empty(top, np.int32)  # what was not seen is not looked at
    number[values] = np.arange(len(values), dtype=np.int32)
    result = np.empty(len(key), np.int32)
    for part in _portions(len(key)):
        np.take(number, key[part], out=result[part], mode="clip")
    return result, values


def _portions(count: int) -> Iterator[slice]:
    """So much is worked on at a time that it stays in the processor's cache."""
    yield from (slice(low, min(low + _PORTION, count)) for low in range(0, count, _PORTION))


def _since(found: dict[str, Set], origin: int) -> dict[str, Set]:
    return {name: Set(part.starts - origin, part.ends - origin) for name, part in found.items()}


def _joined(pieces: list[Unsorted]) -> Unsorted:
    return Unsorted(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def rows_of(lane: Lane) -> Iterator[int]:
    """The numbers of a lane's rows among those of all lanes."""
    yield from range(lane.first, lane.first + lane.rows) if lane.kind != "counter" else ()
