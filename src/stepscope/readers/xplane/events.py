"""Events of a plane in an XPlane file as spans, memory events and samples of counters."""

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import schema
from stepscope.model.intervals import Bools, Ints
from stepscope.model.steps.step_assignment import REGIONS
from stepscope.readers.common.wall_clock import WallClock
from stepscope.readers.xplane import operations
from stepscope.readers.xplane.operations import EventTexts, Operation, Programs
from stepscope.readers.xplane.stats import ArgsWriter, StatColumns, optional
from stepscope.readers.xplane.xspace import Batch, Plane

# The lines of a device that are not streams: their role, and the kind of their tracks.
_ROLES = {
    "Steps": ("steps", "annotation"),
    "Sparse Core Steps": ("steps", "annotation"),
    "XLA Modules": ("ranges", "annotation"),
    "Sparse Core Modules": ("ranges", "annotation"),
    "Framework Ops": ("ranges", "annotation"),
    "Source code": ("ranges", "annotation"),
    "Launch Stats": ("ranges", "annotation"),
    "Framework Name Scope": ("scopes", "annotation"),
    "XLA Ops": ("ops", "stream"),
    "Sparse Core Ops": ("ops", "stream"),
    "Async XLA Ops": ("async", "stream"),
    "Tensor Core Sync Flag": ("syncs", "other"),
    "Sparse Core Syncs": ("syncs", "other"),
    "_counters_": ("counters", "counter"),
}
_ROLE_NAMES = ("thread", "stream", "ops", "async", "steps", "ranges", "scopes", "syncs", "counters", "other")
_ROLE_KINDS = {"steps": "step", "ranges": "annotation", "scopes": "scope", "syncs": "sync"}
_FLAGS = {
    "step_num": operations.IS_STEP,
    "correlation_id": operations.IS_CALL,
    "memcpy_details": operations.IS_COPY,
    "memset_details": operations.IS_SET,
    "Memset_details": operations.IS_SET,
}
_SIZES = {"memcpy_details": r"\bsize:([0-9]+)", "memset_details": r"_bytes:([0-9]+)", "Memset_details": r"_bytes:([0-9]+)"}
_WALL_CLOCK_PLANES = ("/host:CPU", "/host:python-tracer")  # each event reads the wall clock


class PlaneReader:
    """Reads one plane, a batch at a time. Results per distinct name are cached.

    The profiler subtracts the time of its start from all times; with `start_ns` they become times of the day again.
    """

    def __init__(
        self, plane: Plane, first_track: int, programs: Programs, start_ns: int | None, tensorflow: bool, wall: WallClock | None = None
    ) -> None:
        self.plane, self._programs, self._tensorflow = plane, programs, tensorflow
        self.device = re.match(r"/device:([A-Za-z]+):([0-9]{1,9})(?![0-9])", plane.name)
        self.tracks: list[dict[str, object]] = []
        self.nameless = 0
        self._has_streams = any(line.name.startswith("Stream") for line in plane.lines)
        # A TPU names an operation by the whole text of its instruction.
        use_display = self.device is not None and not self._has_streams
        self._labels = [(use_display and display) or name for name, display in zip(plane.names, plane.displays, strict=True)]
        self._nameless_rows: dict[int, int] = {}
        self._metadata = StatColumns(plane, plane.metadata_stats, len(plane.names))
        self._args_writer = ArgsWriter(plane)
        lines = self._add_tracks(first_track, start_ns)
        self._track, self._role, self._base = np.array(lines, np.int64).reshape(-1, 3).T
        if wall and plane.name in _WALL_CLOCK_PLANES:
            plane.correction = lambda line, offset, duration: _correct_times(wall, self._base[line], offset, duration)
        elif wall and start_ns is not None:  # a device counts from the start of the session
            self._base += wall.place(np.array([start_ns]))[0] - start_ns

    def _add_tracks(self, first: int, start_ns: int | None) -> list[tuple[int, int, int]]:
        """Track, role and clock of each line; lines with the same id and name are one track."""
        numbers: dict[tuple[int, str], int] = {}
        lines = []
        for line in self.plane.lines:
            role, kind = self._line_role(line.name)
            track = numbers.setdefault((line.number, line.name), first + len(numbers))
            if track == first + len(self.tracks):
                self.tracks.append(
                    {
                        "track": track,
                        "group": self.plane.name,
                        "label": line.name or f"line {line.number}",
                        "kind": kind,
                        "device": int(self.device[2]) if self.device else None,
                        "pid": self.plane.name,
                        "tid": str(line.number),
                        "stream": abs(line.number) % 10**9 if self.device and kind == "stream" else None,
                    }
                )
            since = start_ns if start_ns is not None and line.timestamp_ns < start_ns else 0
            lines.append((track, _ROLE_NAMES.index(role), line.timestamp_ns + since))
        return lines

    def _line_role(self, line: str) -> tuple[str, str]:
        if self.device is None:
            return ("thread", "thread") if self.plane.name.startswith("/host:") else ("other", "other")
        if line.startswith("Stream"):
            return "stream", "stream"
        if line == "XLA Ops" and self._has_streams:  # of a GPU: derived from the kernels of the streams
            return "ranges", "annotation"
        return _ROLES.get(line, ("other", "other"))

    def frames(self, batch: Batch) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Spans, memory events, and samples of counters."""
        stats = StatColumns(self.plane, batch.stats, len(batch.line))
        rows = self._label_rows(batch)
        base = self._base[batch.line]
        start = base + (batch.offset_ps + 500) // 1000
        end = base + (batch.offset_ps + batch.dur_ps + 500) // 1000
        spans = pl.DataFrame(
            {
                "plane": np.full(len(rows), self.tracks[0]["track"], np.int32),
                "track": self._track[batch.line].astype(np.int32),
                "name": pl.Series(self._labels, dtype=schema.Text).gather(rows),
                "start_ns": start,
                "dur_ns": end - start,
                "args": self._args_writer.args(batch.stats, len(batch.line)),
                "step_num": stats.optional_numbers("step_num"),
                "group_id": stats.optional_numbers("group_id"),
                "correlation": stats.optional_numbers("correlation_id"),
                "produces": stats.optional_numbers("_p"),
                "produces_type": stats.numbers("_pt")[0],
                "consumes": stats.optional_numbers("_c"),
                "consumes_type": stats.numbers("_ct")[0],
            }
        )
        spans = spans.hstack(self._classify(batch, stats, rows)).with_columns(*self._amounts(batch, stats))
        # The FLOPs of a loop or a call are counted in the operations inside it.
        is_outer = pl.col("op_type").cast(pl.String).is_in(["while", "conditional", "call"])
        spans = spans.with_columns(flops=pl.when(~is_outer.fill_null(False)).then("flops"))
        values, memory = stats.floats("counter_value"), self._memory(spans, stats)
        is_sample = (spans["role"] == "counters").to_numpy() & (~np.isnan(values) if values is not None else False)
        samples = spans.select("name", at_ns="start_ns", value=pl.Series(values) if values is not None else pl.lit(0.0)).filter(is_sample)
        return spans.filter(~is_sample) if is_sample.any() else spans, memory, samples

    def _label_rows(self, batch: Batch) -> Ints:
        """The row of each event's label; an event without metadata is named after its number."""
        rows = batch.metadata
        is_nameless = rows < 0
        if is_nameless.any():
            self.nameless += int(is_nameless.sum())
            ids, inverse = np.unique(batch.metadata_id[is_nameless], return_inverse=True)
            for number in ids.tolist():
                if self._nameless_rows.setdefault(number, len(self._labels)) == len(self._labels):
                    self._labels.append(f"event {number}")
            rows = rows.copy()
            rows[is_nameless] = np.array([self._nameless_rows[number] for number in ids.tolist()], np.int64)[inverse]
        return rows

    def _classify(self, batch: Batch, stats: StatColumns, rows: Ints) -> pl.DataFrame:
        """Program, kind, operation and scope of each event, decided once per distinct name and stats."""
        flags = np.zeros(len(rows), np.int64)
        for name, flag in _FLAGS.items():
            flags[stats.owners(name)] |= flag
        program, has = self._number(batch, stats, "program_id")
        program = np.where(has, program, self._program_numbers(self._text(batch, stats, "hlo_module")))
        keys = pl.DataFrame(
            {
                "row": rows,
                "role_flags": self._role[batch.line] << 8 | flags,
                "program": program,
                **{name: self._text(batch, stats, name) for name in ("hlo_op", "tf_op", "name", "hlo_category")},
            }
        )
        distinct = keys.unique(maintain_order=True)
        rows_of_keys = [self._classify_event(*key) for key in distinct.iter_rows()]
        table = pl.DataFrame(rows_of_keys, schema=operations.COLUMNS, orient="row", infer_schema_length=None)
        joined = keys.join(
            distinct.hstack(table.cast(operations.COLUMN_TYPES)),  # type: ignore[arg-type]
            on=keys.columns,
            how="left",
            maintain_order="left",
        )
        return joined.select("program", *operations.COLUMNS)

    def _program_numbers(self, codes: Ints) -> Ints:
        """The programs of modules by name, for releases that do not number them."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        numbers = [self._programs.number(self.plane.texts[code]) if code >= 0 else -1 for code in distinct.tolist()]
        return np.array(numbers, np.int64)[inverse]

    def _classify_event(self, row: int, role_flags: int, program: int, *codes: int) -> Operation:
        label, role, flags = self._labels[row], _ROLE_NAMES[role_flags >> 8], role_flags & 0xFF
        if role not in ("thread", "stream", "ops", "async"):
            return Operation(_ROLE_KINDS.get(role, "other"), role)
        texts = EventTexts(label, *(self.plane.texts[code] if code >= 0 else "" for code in codes))
        if role in ("ops", "async") and not texts.hlo_op:
            texts = texts._replace(hlo_op=label)
        compiled = self._programs.find(program) if texts.hlo_op else None
        operation = operations.compiled_operation(compiled, role, texts) if compiled else None
        operation = operation or operations.named_operation(role, texts, self._tensorflow)
        if role == "thread":
            return operation._replace(kind=operations.host_kind(label, flags, operation), region=label in REGIONS)
        return operation._replace(kind=operations.device_kind(label, role, flags, operation))

    def _amounts(self, batch: Batch, stats: StatColumns) -> list[pl.Series]:
        """FLOPs and bytes: as the profiler counts them, or the size of a copy on a device."""
        flops, has_flops = self._number(batch, stats, "flops")
        model_flops, has_model_flops = self._number(batch, stats, "model_flops")
        moved, has_moved = self._number(batch, stats, "bytes_accessed")
        on_device = self._role[batch.line] != _ROLE_NAMES.index("thread")
        for name, pattern in _SIZES.items():
            codes = stats.texts(name)
            for code in np.unique(codes[codes >= 0]).tolist():
                if match := re.search(pattern, self.plane.texts[code]):
                    rows = (codes == code) & on_device
                    moved[rows], has_moved[rows] = int(match[1]), True
        return [
            optional(np.where(has_flops, flops, model_flops), has_flops | has_model_flops).alias("flops"),
            optional(moved, has_moved).alias("bytes"),
        ]

    def _memory(self, spans: pl.DataFrame, stats: StatColumns) -> pl.DataFrame:
        """Allocations and releases, with the values that the allocators report."""
        rows = np.unique(stats.owners("allocator_name"))
        texts = {"allocator": "allocator_name", "op": "tf_op", "shape": "shape", "category": "region_type"}
        numbers = {"bytes": "allocation_bytes", "address": "addr", "allocated": "bytes_allocated", "type": "data_type"}
        plane_texts = pl.Series([*self.plane.texts, None], dtype=pl.String)  # code -1 is the last
        columns = {column: plane_texts.gather(stats.texts(name)[rows] % len(plane_texts)) for column, name in texts.items()}
        columns |= {column: stats.optional_numbers(name).gather(rows) for column, name in numbers.items()}
        events = spans[rows].select("name", at_ns="start_ns").with_columns(**columns)
        return events.filter(pl.col("name").cast(pl.String).is_in(["MemoryAllocation", "MemoryDeallocation"]))

    def _number(self, batch: Batch, stats: StatColumns, name: str) -> tuple[Ints, Bools]:
        """A number of each event, from its stats or those of its metadata."""
        values, has = stats.numbers(name)
        shared, has_shared = self._metadata.numbers(name)
        if has_shared.any():
            row = np.maximum(batch.metadata, 0)
            inherits = ~has & (batch.metadata >= 0) & has_shared[row]
            values, has = np.where(inherits, shared[row], values), has | inherits
        return values, has

    def _text(self, batch: Batch, stats: StatColumns, name: str) -> Ints:
        codes, shared = stats.texts(name), self._metadata.texts(name)
        if (shared >= 0).any():
            codes = np.where((codes < 0) & (batch.metadata >= 0), shared[np.maximum(batch.metadata, 0)], codes)
        return codes


def _correct_times(wall: WallClock, base: Ints, offset: Ints, duration: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Offset and duration in picoseconds on the clock of the recording, and which of them are certain."""
    start_ns, end_ns = base + offset // 1000, base + (offset + duration) // 1000
    (start, start_is_certain), (end, end_is_certain) = wall.place(start_ns), wall.place(end_ns)
    corrected = offset + (start - start_ns) * 1000
    return corrected, offset + duration + (end - end_ns) * 1000 - corrected, start_is_certain & end_is_certain
