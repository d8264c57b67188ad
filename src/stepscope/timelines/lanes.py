"""Which lanes a trace has, and what stands in each of their rows.

A lane is a track, or something that is told from many: the steps, the scopes, how computing and communication overlap, a counter. Its
rows are the depths of what nests. All times are nanoseconds since the first moment of the trace.
"""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from stepscope import intervals, schema
from stepscope.analyses._coverage import coverage
from stepscope.analyses._warmup import counting_steps
from stepscope.analyses._windows import device_steps
from stepscope.analyses.overlap import told_apart
from stepscope.intervals import Ints, Set
from stepscope.pyramid import Pyramid
from stepscope.timelines import filling, reading
from stepscope.timelines.columns import Window
from stepscope.timelines.filling import Samples, Sums
from stepscope.timelines.told import EVER, Pieces, Scopes, Told, Union
from stepscope.timelines.tracks import Track, first_fit, tracks
from stepscope.trace import Trace

# Those of the spans, and what else is drawn: the rows of the overlap lane, the pieces of the critical path.
KINDS = (*schema.KINDS, "computing", "exposed", "hidden", "free", "launch", "host", "wait")
# The critical path of more spans would take as long as everything else; `critical_path` finds that of some steps.
PATH_SPANS = 1 << 21
_NO_PATH = pl.DataFrame()
# Work on a device is not nested: where two pieces overlap, neither is part of the other.
FLAT = ("kernel", "copy", "set")
WORK = (*FLAT, "communication")
_NOTES = {"kernel": "kernels", "copy": "copies", "set": "fills", "op": "operators", "api": "calls", "python": "Python"}
_INTERPRETER = re.compile(r" \(python[\d.]*\)")  # which every thread of the process is called that has no name of its own
_ANNOTATES = re.compile(r"(.+) \((.+)\) annotations")  # beside the thread itself, so that its name may be cut off
_OVER_TIME = ("share", "percent", "cores", "1/s", "bytes/s")  # of the time since the sample before: docs/data_model.md
_FIRST = ("allocated", "reserved", "utilization", "queue")  # of counters: what most look for
_BESIDE = 4  # other counters that stand with the work of a device
# Ascend's names of the lanes of a group of processes: its operators, and each of the planes that carry them out.
_GROUPED = re.compile(r"Group (\S+) (Communication|Plane \d+)")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes that fold together: of a device, of a process, or of the whole rank."""

    id: int
    rank: int
    label: str
    note: str = ""
    kind: str  # run, device or process
    device: int | None = None
    busy_share: float | None = None  # of the time in the steps that count, as in `overview`, where it is a device
    unrecorded: tuple[tuple[int, int], ...] = ()  # when work of the device is not completely recorded: what is missing is not idle


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


class Timeline(NamedTuple):
    origin: int  # the moment that the others count from, on the trace's own clock
    end: int
    spans: int
    groups: list[Group]
    lanes: list[Lane]
    pyramid: Pyramid
    labels: pl.DataFrame  # name, type, scope and kind, by the number that events bear
    samples: Samples
    sums: Sums


Heard = Callable[[float], None]
READ = 0.6  # of the work is done when all is read


def build(trace: Trace, ends: tuple[int, int] | None = None, folder: Path | None = None, heard: Heard = lambda share: None) -> Timeline:
    """`ends` are the first and the last moment of the trace, where they are known already.

    With a folder, the timeline is written there as it is built, and nothing large stays in memory. `heard` is told how much is done.
    """
    origin, last = ends or trace.ends()
    spans = reading.spans(trace, origin, folder, lambda share: heard(0.8 * READ * share))
    counters = reading.counters(trace, origin, folder, lambda share: heard((0.8 + 0.2 * share) * READ))
    over_time = [one["unit"] in _OVER_TIME for one in counters.about]
    samples = filling.samples(counters.waiting, [one["number"] for one in counters.about], over_time, folder)
    for number, counter in enumerate(counters.about):
        counter["number"] = number
    told = Told(spans.waiting)
    drawn = tracks(trace, spans, told)
    steps = (
        trace.steps.drop_nulls(["start_ns", "end_ns"])
        .select("rank", "step", start=pl.col("start_ns") - origin, end=pl.col("end_ns") - origin)
        .sort("rank", "start")
    )
    paths = _paths(trace, origin) if spans.total <= PATH_SPANS else None
    steps_of = steps.collect().partition_by("rank", as_dict=True)
    device = (
        device_steps(trace)
        .drop_nulls(["start_ns", "end_ns"])
        .select("rank", "step", start=pl.col("start_ns") - origin, end=pl.col("end_ns") - origin)
    )
    counting = counting_steps(trace, None).select("rank", "step", counts=pl.lit(True))
    device = device.join(coverage(trace).steps.select("rank", "step", "complete"), on=["rank", "step"], how="left", maintain_order="left")
    device = device.join(counting, on=["rank", "step"], how="left", maintain_order="left")
    device = device.with_columns(counts=pl.col("complete") & pl.col("counts").fill_null(False))
    chips = {(rank, device): name for rank, device, name in trace.devices.select("rank", "device", "name").collect().iter_rows()}
    picture = _Picture(spans, told)
    for rank in sorted({*(rank for (rank,) in steps_of), *(track.rank for track in drawn), *(one["rank"] for one in counters.about)}):
        own = _Rank(
            rank,
            steps_of.get((rank,), steps.clear().collect()),
            [track for track in drawn if track.rank == rank],
            {device: name for (of, device), name in chips.items() if of == rank},
            [counter for counter in counters.about if counter["rank"] == rank],
            None if paths is None else paths.get(rank, _NO_PATH),
            device.filter(pl.col("rank") == rank),
        )
        picture.add(own)
    labels = picture.labels.frame()
    made, sums = filling.filled(
        spans.waiting, picture.rows, picture.above, labels.height, last - origin, folder, lambda share: heard(READ + (1 - READ) * share)
    )
    return Timeline(origin, last - origin, spans.total, picture.groups, picture.lanes, made, labels, samples, sums)


class _Rank(NamedTuple):
    rank: int
    steps: pl.DataFrame
    tracks: list[Track]
    chips: dict[int | None, str | None]
    counters: list[dict[str, Any]]
    path: pl.DataFrame | None  # null where it is not looked for
    device_steps: pl.DataFrame  # as `overlap` has them, whether they are complete, and whether they count for the figures of `overview`

    @property
    def in_steps(self) -> Set:
        """The time in steps whose device work is completely recorded: what is not recorded is not idle."""
        known = self.device_steps.filter("complete")
        return intervals.merge(known["start"].to_numpy(), known["end"].to_numpy())

    @property
    def unrecorded(self) -> tuple[tuple[int, int], ...]:
        """The time of steps that are not complete; those that follow one another are one stretch."""
        gone = ~pl.col("complete")
        end = pl.when(gone.shift(-1, fill_value=False)).then(pl.col("start").shift(-1)).otherwise("end")
        rows = self.device_steps.sort("start").with_columns(end=pl.max_horizontal("end", end)).filter(gone)
        times = intervals.merge(rows["start"].to_numpy(), rows["end"].to_numpy())
        return tuple(zip(times.starts.tolist(), times.ends.tolist(), strict=True))


class _Picture:
    """Groups and lanes in the order in which they are drawn, and what stands in them."""

    def __init__(self, spans: reading.Spans, told: Told) -> None:
        self.groups: list[Group] = []
        self.lanes: list[Lane] = []
        self.labels = spans.labels
        self.rows: list[int] = []  # by row of the picture, its number in what waits
        self.above: list[int] = []  # the row of what its events are part of, or -1
        self._waiting = spans.waiting
        self._scopes_known = self.labels.spans()["scope"]
        self._told = told

    def add(self, own: _Rank) -> None:
        """Everything of one rank: its steps, then its devices, then its processes."""
        by_group: dict[str, list[Track]] = {}
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
            self._overlap(own, own.tracks, whole, "of all devices" if devices else "")
        scoped = [self._device(own, label, tracks, counters.get(label, []), len(devices) == 1) for label, tracks in devices.items()]
        if not any(scoped):
            self._host_scopes(own, whole)
        for label in processes:
            group = self._group(own.rank, "process", label)
            for track in by_group[label]:
                self._track(group, track)
            for counter in counters.get(label, []):
                self._counter(group, counter)
        for label in sorted((label for label in counters if label not in by_group), reverse=True):
            group = self._group(own.rank, "run", label or "host")
            for counter in counters[label]:
                self._counter(group, counter)

    def _group(self, rank: int, kind: str, label: str, **more: Any) -> int:
        self.groups.append(Group(id=len(self.groups), rank=rank, kind=kind, label=label, **more))
        return self.groups[-1].id

    def _lane(self, group: int, kind: str, label: str, rows: list[int], **more: Any) -> None:
        about = {"first": len(self.rows), "events": sum(map(self._waiting.count, rows)), "rows": max(len(rows), 1)} | more
        self.lanes.append(Lane(id=len(self.lanes), group=group, rank=self.groups[group].rank, kind=kind, label=label, **about))
        self.above += [len(self.rows) + at - 1 if at and more.get("nested") else -1 for at in range(len(rows))]
        self.rows += rows

    def _steps(self, own: _Rank, group: int) -> None:
        start, dur = own.steps["start"].to_numpy(), (own.steps["end"] - own.steps["start"]).to_numpy()
        if len(start) == 0:
            return
        row = first_fit(start, start + dur)
        label = np.array([self.labels.add(f"step {step}", KINDS.index("step")) for step in own.steps["step"].to_list()], np.int32)
        rows = self._told.rows(int(row.max()) + 1)
        for at, new in enumerate(rows):
            self._told.tell(new, start[row == at], dur[row == at], label[row == at], KINDS.index("step"))
        self._lane(group, "steps", "steps", rows)

    def _path(self, own: _Rank, group: int) -> None:
        """Which work each step waited for, one piece after the other."""
        if own.path is None and own.steps.height:
            # An empty lane, so that nobody looks for it in vain.
            note = f"left out of more than {PATH_SPANS:,} spans; a selected event tells its step's"
            self._lane(group, "path", "critical path", self._told.rows(1), note=note)
        if own.path is None or own.path.is_empty():
            return
        found = own.path.sort("start", maintain_order=True)
        start, dur = found["start"].to_numpy(), found["dur_ns"].to_numpy()
        # Of several steps that run at the same time each has its own.
        row = first_fit(start, start + dur)
        kind = found["kind"].replace_strict({kind: at for at, kind in enumerate(KINDS)}, return_dtype=pl.UInt8).to_numpy()
        label = np.array([self.labels.add(*one) for one in zip(found["label"].to_list(), kind.tolist(), strict=True)], np.int32)
        rows = self._told.rows(int(row.max()) + 1)
        for at, new in enumerate(rows):
            self._told.tell(new, start[row == at], dur[row == at], label[row == at], kind[row == at])
        self._lane(group, "path", "critical path", rows, note="what each step waited for")

    def _overlap(self, own: _Rank, among: list[Track], group: int, note: str = "") -> None:
        """As `overlap` has it: what is free is so within the steps; the rest is drawn wherever it is."""
        ran = {kind: Union() for kind in (*WORK, "op")}
        tracks = [track for track in among if track.kind != "other"]  # what is there has no place in time
        known = {kind for track in tracks for kind in track.kinds if kind in ran}
        if not own.steps.height or not known & {"kernel", "op"}:
            return
        computing = "kernel" if "kernel" in known else "op"
        wanted = known & {*WORK, computing}
        # Communication twice: all of it, told apart by whether something hides it, and what nothing hides by itself.
        drawn = [
            (0, "computing", "computing", "computing"),
            (1, "communication", "hidden", "overlapped"),
            (1, "communication", "exposed", "exposed"),
            (2, "exposed", "exposed", "exposed"),
            (3, "free", "free", "free"),
            (4, "copy", "copy", "copy"),
        ]
        rows = self._told.rows(5)
        pieces = [Pieces(functools.partial(self._tell_set, rows[row], name, kind)) for row, name, kind, _ in drawn]
        in_steps, now = own.in_steps, -EVER
        for window in self._windows([row for track in tracks if wanted & {*track.kinds} for row in track.rows]):
            start, dur, _, kind, _ = window.columns
            until = EVER if window.end is None else window.end
            busy = {}
            for name in sorted(wanted):
                of_kind = kind == KINDS.index(name)
                busy[name] = ran[name].until(start[of_kind], start[of_kind] + dur[of_kind], until)
            found = told_apart({"kernel" if name == computing else name: part for name, part in busy.items()})
            everything = intervals.join(found["computing"], found["communication"], found["copy"])
            found["free"] = intervals.subtract(intervals.clip(in_steps, now, until), everything)
            for piece, (_, _, _, part) in zip(pieces, drawn, strict=True):
                piece.add(found[part])
            now = until
        for piece in pieces:
            piece.end()
        names = tuple(dict.fromkeys(name for _, name, _, _ in drawn))[: 5 if self._waiting.count(rows[4]) else 4]
        self._lane(group, "overlap", "overlap", rows[: len(names)], note=note, row_labels=names)

    def _device(self, own: _Rank, label: str, tracks: list[Track], counters: list[dict[str, Any]], only: bool) -> bool:
        """Returns whether the scopes of its work are known."""
        streams = [track for track in tracks if track.kind == "stream"]
        counted = own.device_steps.filter("counts")
        low, high = counted["start"].to_numpy(), counted["end"].to_numpy()
        in_steps, busy, ran = int((high - low).sum()), 0, Union()
        is_work = np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in WORK])
        scopes = Scopes(self._told, self.labels, own.steps["start"].to_numpy())
        for window in self._windows([row for track in streams if {*WORK} & {*track.kinds} for row in track.rows]):
            works = is_work[window.columns[3]]
            start, dur, name = (column if works.all() else column[works] for column in window.columns[:3])
            here = ran.until(start, start + dur, EVER if window.end is None else window.end)
            busy += int(intervals.covered(here, low, high).sum())
            scopes.add(name, start, start + dur)
        group = self._group(
            own.rank,
            "device",
            label,
            note=own.chips.get(streams[0].device) or "",
            device=streams[0].device,
            busy_share=busy / in_steps if in_steps else None,
            unrecorded=own.unrecorded,
        )
        if rows := scopes.end():
            self._lane(group, "scope", "scopes", rows, nested=True)
        # Of several, each has its own: nothing that one computes hides what another waits for.
        self._overlap(own, own.tracks if only else tracks, group)
        for track in tracks:
            self._track(group, track)
        for counter in counters:
            self._counter(group, counter)
        return bool(rows)

    def _host_scopes(self, own: _Rank, group: int) -> None:
        """Where no device says: of the operators of the thread that has the most of them."""
        scoped = self._scopes_known.is_not_null().to_numpy()
        if not scoped.any():
            return
        counts = {}
        for track in own.tracks:
            if "op" in track.kinds:
                windows = self._windows(track.rows)
                counts[track] = sum(int((scoped[one.columns[2]] & (one.columns[3] == KINDS.index("op"))).sum()) for one in windows)
        if not any(counts.values()):
            return
        most = max(counts, key=lambda track: counts[track])
        scopes = Scopes(self._told, self.labels, own.steps["start"].to_numpy())
        for window in self._windows(most.rows):
            start, dur, name, kind, _ = window.columns
            which = scoped[name] & (kind == KINDS.index("op"))
            scopes.add(name[which], start[which], start[which] + dur[which])
        if rows := scopes.end():
            self._lane(group, "scope", "scopes", rows, nested=True)

    def _track(self, group: int, track: Track) -> None:
        label, _, more = _INTERPRETER.sub("", track.label or "thread").partition(", ")
        note = _NOTES.get(track.kinds[0], track.kinds[0]) if track.kinds else ""
        if note == "annotation" and "step" in track.kinds:
            note = "step"  # and what of each is which pass
        if note == "other" and (track.device is not None or track.kind in ("stream", "communication")):
            note = "tasks"
        if annotates := _ANNOTATES.fullmatch(label):
            label, note = f"{annotates[1]} annotations", annotates[2]
        if of_group := _GROUPED.fullmatch(label):
            group_name, label = of_group.groups()
            if label == "Communication":
                label = f"Group {group_name}"
            else:
                note = f"{note} of {group_name}"
        if note.casefold() in label.casefold():
            note = ""  # said already
        if more or track.kind == "other":
            note = more or f"{note}, without their place in time".lstrip(", ")
        own_thread = track.kind != "stream"
        rows: dict[str, Any] = {"nested": own_thread and not track.tangled, "tangled": own_thread and track.tangled}
        self._lane(group, "spans", label, list(track.rows), note=note, track=track.track, **rows)

    def _counter(self, group: int, counter: dict[str, Any]) -> None:
        about = {name: counter[name] for name in ("note", "unit", "min", "max", "events")}
        self._lane(group, "counter", counter["label"], [], first=counter["number"], **about)

    def _windows(self, rows: list[int] | tuple[int, ...]) -> Iterator[Window]:
        return self._waiting.windows(rows)

    def _tell_set(self, row: int, name: str, kind: str, start: Ints, end: Ints) -> None:
        label = np.full(len(start), self.labels.add(name, KINDS.index(kind)), np.int32)
        self._told.tell(row, start, end - start, label, KINDS.index(kind))


def _paths(trace: Trace, origin: int) -> dict[int, pl.DataFrame]:
    """The critical path of each rank."""
    label = pl.coalesce("name", "kind")
    found = trace.analyse("critical_path").select("rank", "kind", "dur_ns", label=label, start=pl.col("start_ns") - origin)
    return {int(rank): part for (rank,), part in found.partition_by("rank", as_dict=True).items()}


def _placed(
    counters: list[dict[str, Any]], devices: dict[str, list[Track]], processes: dict[str, list[Track]]
) -> dict[str, list[dict[str, Any]]]:
    """The counters by the group that they are of: a device, a process, a group of their own, or "" for the machine."""
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
        some.sort(key=lambda one: (not one["label"].startswith(_FIRST), _counted(one["label"])))
    # Many of a device would stand between its work and the threads that launch it.
    for label in devices:
        rest = [one for one in found.get(label, []) if not one["label"].startswith(_FIRST)]
        if sum(one["min"] != 0 or one["max"] != 0 for one in rest) > _BESIDE:
            found[label] = [one for one in found[label] if one["label"].startswith(_FIRST)]
            found[f"{label} counters"] = rest
    return found


def _counted(label: str) -> list[tuple[str, int]]:
    """`HBM 10` behind `HBM 2`."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d{0,18})", label)]


def rows_of(lane: Lane) -> Iterator[int]:
    """The numbers of a lane's rows among those of all lanes."""
    yield from range(lane.first, lane.first + lane.rows) if lane.kind != "counter" else ()
