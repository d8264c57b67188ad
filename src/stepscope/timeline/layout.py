"""The groups and tracks of a timeline, and the rows of each track.

A track shows spans of a thread or stream, a counter, or something derived from many spans: the steps, the scopes, the overlap of compute
and communication. Its rows are the depths of nested spans. All times are nanoseconds since the first timestamp of the trace.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.analyses.shared.steps.step_windows import device_steps
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.overlap import step_parts
from stepscope.model import intervals, rank_tables, schema
from stepscope.model.intervals import Ints, Set
from stepscope.model.trace import Trace
from stepscope.timeline import rows as span_rows
from stepscope.timeline.construction.derived import END_OF_TIME, DerivedRows, Pieces, Scopes, Union
from stepscope.timeline.construction.portions import OnProgress, SpanRows, load_counters, load_spans
from stepscope.timeline.construction.tracks import SpanTrack, first_fit, span_tracks
from stepscope.timeline.pyramid import Pyramid
from stepscope.timeline.rows import Samples, Sums

# The kinds of spans, then of derived rows: the rows of the overlap track, the pieces of the critical path.
KINDS = (*schema.KINDS, "computing", "exposed", "hidden", "free", "launch", "host", "wait")
# For more spans the critical path would take as long as the rest of the timeline; `critical_path` computes it for one step.
PATH_SPANS = 1 << 21
# Device work does not nest: where two kernels overlap, neither is part of the other.
FLAT = ("kernel", "copy", "set")
WORK = (*FLAT, "communication")
_NOTES = {"kernel": "kernels", "copy": "copies", "set": "fills", "op": "operators", "api": "calls", "python": "Python"}
_INTERPRETER = re.compile(r" \(python[\d.]*\)")  # the name of every thread of the process without a name of its own
_ANNOTATES = re.compile(r"(.+) \((.+)\) annotations")  # drawn next to the thread itself, so the name can be left out
_OVER_TIME = ("share", "percent", "cores", "1/s", "bytes/s")  # units of values over the interval before a sample: docs/data_model.md
_FIRST = ("allocated", "reserved", "utilization", "queue")  # counters that are shown first
_BESIDE = 4  # other counters in the group of a device; more get a group of their own
# Ascend's names for the tracks of a communication group: its operators, and each of its planes.
_GROUPED = re.compile(r"Group (\S+) (Communication|Plane \d+)")
# Row of the overlap track, name, kind, and the key in the result of `overlap`. The row of communication shows hidden and exposed parts.
_OVERLAP = (
    (0, "computing", "computing", "computing"),
    (1, "communication", "hidden", "overlapped"),
    (1, "communication", "exposed", "exposed"),
    (2, "exposed", "exposed", "exposed"),
    (3, "free", "free", "free"),
    (4, "copy", "copy", "copy"),
)
READ = 0.6  # share of the work that is done when the trace is read


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The tracks of a device, of a process, or of the whole rank, which fold together."""

    id: int
    rank: int
    label: str
    note: str = ""
    kind: str  # run, device or process
    device: int | None = None
    busy_share: float | None = None  # of a device, in the steps that count, as in `overview`
    unrecorded: tuple[tuple[int, int], ...] = ()  # when work of the device is not completely recorded: not idle


class Track(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    group: int
    rank: int
    kind: str  # steps, path, scope, overlap, spans or counter
    label: str
    note: str = ""
    track: int | None = None  # in the table `tracks`
    rows: int = 1
    row_labels: tuple[str, ...] = ()
    events: int = 0  # spans or samples
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    nested: bool = False  # a span is part of the span above it
    tangled: bool = False  # spans overlap without nesting: rows only make room for them
    first: int = 0  # its first row in the timeline; for a counter, its number


class Timeline(NamedTuple):
    origin: int  # on the clock of the trace
    end: int
    spans: int
    groups: list[Group]
    tracks: list[Track]
    pyramid: Pyramid
    labels: pl.DataFrame  # name, type, scope, kind and meaning, by label number
    samples: Samples
    sums: Sums


def build(
    trace: Trace, ends: tuple[int, int] | None = None, folder: Path | None = None, on_progress: OnProgress = lambda share: None
) -> Timeline:
    """`ends` are the first and the last timestamp of the trace, if the caller knows them.

    With a folder, the timeline is written there as it is built, and no large array stays in memory.
    """
    rank_tables.refuse_summary(trace, "spans for a timeline")
    origin, last = ends or trace.ends()
    spans = load_spans(trace, origin, folder, lambda share: on_progress(0.8 * READ * share))
    buffer, counters = load_counters(trace, origin, folder, lambda share: on_progress((0.8 + 0.2 * share) * READ))
    over_time = [counter["unit"] in _OVER_TIME for counter in counters]
    samples = span_rows.build_samples(buffer, [counter["number"] for counter in counters], over_time, folder)
    for number, counter in enumerate(counters):
        counter["number"] = number
    derived = DerivedRows(spans.buffer)
    layout = _Layout(spans, derived)
    for rank in _ranks(trace, origin, span_tracks(trace, spans, derived), counters, spans.total <= PATH_SPANS):
        layout.add(rank)
    labels = layout.labels.frame()
    pyramid, sums = span_rows.build_rows(
        spans.buffer,
        layout.rows,
        layout.parent_rows,
        labels.height,
        last - origin,
        folder,
        lambda share: on_progress(READ + (1 - READ) * share),
    )
    return Timeline(origin, last - origin, spans.total, layout.groups, layout.tracks, pyramid, labels, samples, sums)


class _Rank(NamedTuple):
    rank: int
    steps: pl.DataFrame
    tracks: list[SpanTrack]
    chips: dict[int | None, str | None]
    counters: list[dict[str, Any]]
    path: pl.DataFrame | None  # the critical path; None where it is not computed
    device_steps: pl.DataFrame  # as in `overlap`; `complete`: device work is recorded; `counts`: part of the figures of `overview`

    @property
    def recorded(self) -> Set:
        """The time of steps whose device work is completely recorded: unrecorded time is not idle."""
        complete = self.device_steps.filter("complete")
        return intervals.merge(complete["start"].to_numpy(), complete["end"].to_numpy())

    @property
    def unrecorded(self) -> tuple[tuple[int, int], ...]:
        """The time of incomplete steps; consecutive ones form one interval."""
        incomplete = ~pl.col("complete")
        end = pl.when(incomplete.shift(-1, fill_value=False)).then(pl.col("start").shift(-1)).otherwise("end")
        rows = self.device_steps.sort("start").with_columns(end=pl.max_horizontal("end", end)).filter(incomplete)
        times = intervals.merge(rows["start"].to_numpy(), rows["end"].to_numpy())
        return tuple(zip(times.starts.tolist(), times.ends.tolist(), strict=True))


def _ranks(trace: Trace, origin: int, tracks: list[SpanTrack], counters: list[dict[str, Any]], with_path: bool) -> Iterator[_Rank]:
    times = {"start": pl.col("start_ns") - origin, "end": pl.col("end_ns") - origin}
    key = ["rank", "step"]
    steps = trace.steps.drop_nulls(["start_ns", "end_ns"]).select(*key, **times).sort("rank", "start").collect()
    counting = counting_steps(trace, None).select(*key, counts=pl.lit(True))
    device = device_steps(trace).drop_nulls(["start_ns", "end_ns"]).select(*key, **times)
    for frame in (coverage(trace).steps.select(*key, "complete"), counting):
        device = device.join(frame, on=key, how="left", maintain_order="left")
    device = device.with_columns(counts=pl.col("complete") & pl.col("counts").fill_null(False))
    chips = {(rank, device): name for rank, device, name in trace.devices.select("rank", "device", "name").collect().iter_rows()}
    label = pl.coalesce("name", "kind")
    path = trace.analyse("critical_path").select("rank", "kind", "dur_ns", label=label, start=times["start"]) if with_path else None
    for rank in sorted({*steps["rank"].unique(), *(track.rank for track in tracks), *(counter["rank"] for counter in counters)}):
        yield _Rank(
            rank,
            steps.filter(pl.col("rank") == rank),
            [track for track in tracks if track.rank == rank],
            {device: name for (chip_rank, device), name in chips.items() if chip_rank == rank},
            [counter for counter in counters if counter["rank"] == rank],
            None if path is None else path.filter(pl.col("rank") == rank),
            device.filter(pl.col("rank") == rank),
        )


class _Layout:
    """Groups and tracks in drawing order, and the rows of their spans."""

    def __init__(self, spans: SpanRows, derived: DerivedRows) -> None:
        self.groups: list[Group] = []
        self.tracks: list[Track] = []
        self.labels = spans.labels
        self.rows: list[int] = []  # rows of the buffer, in drawing order
        self.parent_rows: list[int] = []  # the row that contains the parents of a row's spans, or -1
        self._buffer = spans.buffer
        self._derived = derived

    def add(self, rank: _Rank) -> None:
        """Add one rank: its steps, then its devices, then its processes."""
        by_group: dict[str, list[SpanTrack]] = {}
        for track in rank.tracks:
            by_group.setdefault(track.group, []).append(track)
        devices = {label: tracks for label, tracks in by_group.items() if any(track.kind == "stream" for track in tracks)}
        # Processes that only contain marks of the profiler come last.
        processes = sorted(
            (label for label in by_group if label not in devices),
            key=lambda label: not any({"op", "step", "python", "api", "scope"} & set(track.kinds) for track in by_group[label]),
        )
        counters = _group_counters(rank.counters, devices, {label: by_group[label] for label in processes})
        run = self._group(rank.rank, "run", f"rank {rank.rank}")
        self._steps(rank, run)
        self._path(rank, run)
        if len(devices) != 1:
            self._overlap(rank, rank.tracks, run, "of all devices" if devices else "")
        have_scopes = [self._device(rank, label, tracks, counters.get(label, []), len(devices) == 1) for label, tracks in devices.items()]
        if not any(have_scopes):
            self._host_scopes(rank, run)
        for label in processes:
            group = self._group(rank.rank, "process", label)
            self._members(group, by_group[label], counters.get(label, []))
        for label in sorted((label for label in counters if label not in by_group), reverse=True):
            group = self._group(rank.rank, "run", label or "host")
            self._members(group, [], counters[label])

    def _group(self, rank: int, kind: str, label: str, **fields: Any) -> int:
        self.groups.append(Group(id=len(self.groups), rank=rank, kind=kind, label=label, **fields))
        return self.groups[-1].id

    def _track(self, group: int, kind: str, label: str, rows: list[int], **fields: Any) -> None:
        fields = {"first": len(self.rows), "events": sum(map(self._buffer.count, rows)), "rows": max(len(rows), 1)} | fields
        self.tracks.append(Track(id=len(self.tracks), group=group, rank=self.groups[group].rank, kind=kind, label=label, **fields))
        self.parent_rows += [len(self.rows) + at - 1 if at and fields.get("nested") else -1 for at in range(len(rows))]
        self.rows += rows

    def _members(self, group: int, tracks: list[SpanTrack], counters: list[dict[str, Any]]) -> None:
        for track in tracks:
            self._spans(group, track)
        for counter in counters:
            fields = {name: counter[name] for name in ("note", "unit", "min", "max", "events")}
            self._track(group, "counter", counter["label"], [], first=counter["number"], **fields)

    def _fit(self, start: Ints, dur: Ints, label: list[int], kind: NDArray[np.uint8]) -> list[int]:
        """Rows for spans that may overlap: steps that run at the same time."""
        row, labels = first_fit(start, start + dur), np.array(label, np.int32)
        rows = self._derived.allocate(int(row.max()) + 1)
        for at, new in enumerate(rows):
            self._derived.append(new, start[row == at], dur[row == at], labels[row == at], kind[row == at])
        return rows

    def _steps(self, rank: _Rank, group: int) -> None:
        if rank.steps.is_empty():
            return
        start, kind = rank.steps["start"].to_numpy(), KINDS.index("step")
        labels = [self.labels.add(f"step {step}", kind) for step in rank.steps["step"].to_list()]
        rows = self._fit(start, rank.steps["end"].to_numpy() - start, labels, np.full(len(start), kind, np.uint8))
        self._track(group, "steps", "steps", rows)

    def _path(self, rank: _Rank, group: int) -> None:
        if rank.path is None and rank.steps.height:
            # An empty track with the reason, so that users do not search for it.
            note = f"not computed for more than {PATH_SPANS:,} spans; select a span to see the critical path of its step"
            self._track(group, "path", "critical path", self._derived.allocate(1), note=note)
        if rank.path is None or rank.path.is_empty():
            return
        path = rank.path.sort("start", maintain_order=True)
        kind = path["kind"].replace_strict({kind: at for at, kind in enumerate(KINDS)}, return_dtype=pl.UInt8).to_numpy()
        labels = [self.labels.add(*label) for label in zip(path["label"].to_list(), kind.tolist(), strict=True)]
        rows = self._fit(path["start"].to_numpy(), path["dur_ns"].to_numpy(), labels, kind)
        self._track(group, "path", "critical path", rows, note="bottleneck of each step")

    def _overlap(self, rank: _Rank, candidates: list[SpanTrack], group: int, note: str = "") -> None:
        """Compute and communication as in `overlap`. Idle time is shown within steps only, work wherever it is.

        Transfers that the host runs, such as those over gloo, use no time of a device: they are only on the tracks of their threads.
        """
        unions = {kind: Union() for kind in (*WORK, "op")}
        tracks = [track for track in candidates if track.kind != "other"]  # spans of these tracks have no timestamps
        present = {kind for track in tracks for kind in track.kinds if kind in unions}
        if not rank.steps.height or not present & {"kernel", "op"}:
            return
        computing = "kernel" if "kernel" in present else "op"
        wanted = present & {*WORK, computing}
        if computing == "kernel":
            tracks = [
                track for track in tracks if track.kind in ("stream", "communication") or wanted & {*track.kinds} != {"communication"}
            ]
        rows = self._derived.allocate(5)
        pieces = [Pieces(functools.partial(self._append, rows[row], name, kind)) for row, name, kind, _ in _OVERLAP]
        recorded, now = rank.recorded, -END_OF_TIME
        for window in self._buffer.windows([row for track in tracks if wanted & {*track.kinds} for row in track.rows]):
            start, dur, _, kind, _ = window.columns
            end, until = start + dur, END_OF_TIME if window.end is None else window.end
            busy = {}
            for name in sorted(wanted):
                of_kind = kind == KINDS.index(name)
                busy["kernel" if name == computing else name] = unions[name].until(start[of_kind], end[of_kind], until)
            parts = step_parts(busy)
            everything = intervals.join(parts["computing"], parts["communication"], parts["copy"])
            parts["free"] = intervals.subtract(intervals.clip(recorded, now, until), everything)
            for piece, (_, _, _, key) in zip(pieces, _OVERLAP, strict=True):
                piece.add(parts[key])
            now = until
        for piece in pieces:
            piece.finish()
        names = tuple(dict.fromkeys(name for _, name, _, _ in _OVERLAP))[: 5 if self._buffer.count(rows[4]) else 4]
        self._track(group, "overlap", "overlap", rows[: len(names)], note=note, row_labels=names)

    def _append(self, row: int, name: str, kind: str, start: Ints, end: Ints) -> None:
        label = np.full(len(start), self.labels.add(name, KINDS.index(kind)), np.int32)
        self._derived.append(row, start, end - start, label, KINDS.index(kind))

    def _device(self, rank: _Rank, label: str, tracks: list[SpanTrack], counters: list[dict[str, Any]], only: bool) -> bool:
        """Returns whether the scopes of its work are known."""
        streams = [track for track in tracks if track.kind == "stream"]
        counted = rank.device_steps.filter("counts")
        low, high = counted["start"].to_numpy(), counted["end"].to_numpy()
        step_ns, busy_ns, union = int((high - low).sum()), 0, Union()
        is_work = np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in WORK])
        scopes = Scopes(self._derived, self.labels, rank.steps["start"].to_numpy())
        for window in self._buffer.windows([row for track in streams if {*WORK} & {*track.kinds} for row in track.rows]):
            works = is_work[window.columns[3]]
            start, dur, name = (column if works.all() else column[works] for column in window.columns[:3])
            busy = union.until(start, start + dur, END_OF_TIME if window.end is None else window.end)
            busy_ns += int(intervals.covered(busy, low, high).sum())
            scopes.add(name, start, start + dur)
        group = self._group(
            rank.rank,
            "device",
            label,
            note=rank.chips.get(streams[0].device) or "",
            device=streams[0].device,
            busy_share=busy_ns / step_ns if step_ns else None,
            unrecorded=rank.unrecorded,
        )
        if rows := scopes.finish():
            self._track(group, "scope", "scopes", rows, nested=True)
        # Each of several devices has its own: compute on one device does not hide communication of another.
        self._overlap(rank, rank.tracks if only else tracks, group)
        self._members(group, tracks, counters)
        return bool(rows)

    def _host_scopes(self, rank: _Rank, group: int) -> None:
        """Without scopes of device work: scopes of the operators of the thread that has the most of them."""
        has_scope = self.labels.span_labels()["scope"].is_not_null().to_numpy()
        if not has_scope.any():
            return

        def scoped_operators(track: SpanTrack) -> Iterator[tuple[Any, Ints, Ints]]:
            for window in self._buffer.windows(track.rows):
                start, dur, name, kind, _ = window.columns
                chosen = has_scope[name] & (kind == KINDS.index("op"))
                yield name[chosen], start[chosen], (start + dur)[chosen]

        counts = {track: sum(len(name) for name, _, _ in scoped_operators(track)) for track in rank.tracks if "op" in track.kinds}
        if not any(counts.values()):
            return
        scopes = Scopes(self._derived, self.labels, rank.steps["start"].to_numpy())
        for name, start, end in scoped_operators(max(counts, key=lambda track: counts[track])):
            scopes.add(name, start, end)
        if rows := scopes.finish():
            self._track(group, "scope", "scopes", rows, nested=True)

    def _spans(self, group: int, track: SpanTrack) -> None:
        label, note = _label_and_note(track)
        is_thread = track.kind != "stream"
        self._track(
            group,
            "spans",
            label,
            list(track.rows),
            note=note,
            track=track.track,
            nested=is_thread and not track.tangled,
            tangled=is_thread and track.tangled,
        )


def _label_and_note(track: SpanTrack) -> tuple[str, str]:
    label, _, detail = _INTERPRETER.sub("", track.label or "thread").partition(", ")
    note = _NOTES.get(track.kinds[0], track.kinds[0]) if track.kinds else ""
    if note == "annotation" and "step" in track.kinds:
        note = "step"
    if note == "other" and (track.device is not None or track.kind in ("stream", "communication")):
        note = "tasks"
    if annotates := _ANNOTATES.fullmatch(label):
        label, note = f"{annotates[1]} annotations", annotates[2]
    if grouped := _GROUPED.fullmatch(label):
        group_name, label = grouped.groups()
        if label == "Communication":
            label = f"Group {group_name}"
        else:
            note = f"{note} of {group_name}"
    if note.casefold() in label.casefold():
        note = ""
    if detail or track.kind == "other":
        note = detail or f"{note}, without timestamps".lstrip(", ")
    return label, note


def _group_counters(
    counters: list[dict[str, Any]], devices: dict[str, list[SpanTrack]], processes: dict[str, list[SpanTrack]]
) -> dict[str, list[dict[str, Any]]]:
    """The counters by group: a device, a process, a group of their own, or "" for the machine."""
    by_device = {str(track.device): label for label, tracks in devices.items() for track in tracks if track.kind == "stream"}
    by_pid = {track.pid: label for label, tracks in processes.items() for track in tracks}
    groups: dict[str, list[dict[str, Any]]] = {}
    for counter in counters:
        name = counter["name"] or ""
        group, label = "", name
        if (match := re.fullmatch(r"(.+?) (?:\S*:)?[a-z]+[ :](\d+)", name)) and match[2] in by_device:
            group, label = by_device[match[2]], match[1]
        elif (match := re.fullmatch(r"process (\d+) (.+)", name)) and match[1] in by_pid:
            group, label = by_pid[match[1]], match[2]
        groups.setdefault(group, []).append(counter | {"label": label, "note": name if label != name else ""})
    for members in groups.values():
        members.sort(key=lambda counter: (not counter["label"].startswith(_FIRST), _natural_key(counter["label"])))
    # Many counters would separate the work of a device from the threads that launch it.
    for label in devices:
        rest = [counter for counter in groups.get(label, []) if not counter["label"].startswith(_FIRST)]
        if sum(counter["min"] != 0 or counter["max"] != 0 for counter in rest) > _BESIDE:
            groups[label] = [counter for counter in groups[label] if counter["label"].startswith(_FIRST)]
            groups[f"{label} counters"] = rest
    return groups


def _natural_key(label: str) -> list[tuple[str, int]]:
    """Sort key that puts `HBM 10` behind `HBM 2`."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d{0,18})", label)]


def track_rows(track: Track) -> range:
    return range(track.first, track.first + track.rows) if track.kind != "counter" else range(0)
