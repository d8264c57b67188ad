"""What each event of an XPlane file means: its lane, its kind, the operation it is of, and its stats as text."""

import json
import re
from math import isfinite
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import schema
from stepscope.readers import _hlo
from stepscope.readers._wall_clock import WallClock
from stepscope.readers._wire import Damage, Ints
from stepscope.readers._xspace import DOUBLE, RAW, SIGNED, Batch, Plane, Space, Stats
from stepscope.step_assignment import REGIONS

Bools = NDArray[np.bool_]
_NONE = -1
_TIME_LIMIT = 1 << 62  # picoseconds: 53 days


class Programs:
    """The compiled programs that the file describes, read when first asked for."""

    def __init__(self, space: Space, planes: list[Plane]) -> None:
        self._buffer = space.buffer
        self._places: dict[int, tuple[int, int]] = {}
        self._ids: dict[str, int] = {}
        self._read: dict[int, _hlo.Program | None] = {}
        self.unreadable: list[tuple[int, Damage]] = []
        for plane in planes:
            stats = plane.metadata_stats
            for row in np.flatnonzero((stats.name == plane.code("Hlo Proto")) & (stats.number == RAW)).tolist():
                named = re.fullmatch(r"(.*)\((\d+)\)", plane.names[int(stats.owner[row])])
                if named:
                    number = int(named[2]) - (1 << 64 if int(named[2]) >= 1 << 63 else 0)
                    self._places[number] = (int(stats.value[row]), int(stats.end[row]))
                    self._ids[named[1]] = number

    def number(self, module: str) -> int:
        return self._ids.get(module, _NONE)

    def find(self, number: int) -> _hlo.Program | None:
        if number not in self._read and number in self._places:
            try:
                self._read[number] = _hlo.Program(self._buffer, *self._places[number])
            except Damage as damage:  # the trace stands without it
                self._read[number] = None
                self.unreadable.append((number, damage))
        return self._read.get(number)


# The lines of a device that are not streams: what stands on them, and what kind of lane they are.
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
_ROLE_WORDS = ("thread", "stream", "ops", "async", "steps", "ranges", "scopes", "syncs", "counters", "other")
_STEP, _CALL, _COPY, _SET = 1, 2, 4, 8  # what the stats of an event say

_ON_WALL_CLOCK = ("/host:CPU", "/host:python-tracer")  # planes whose events each look at it


class Reading:
    """One plane as frames, a batch at a time; what is decided once per name is kept."""

    def __init__(
        self,
        plane: Plane,
        first_track: int,
        programs: Programs,
        start_ns: int | None,
        tensorflow: bool,
        wall: WallClock | None = None,
    ) -> None:
        self.plane, self._programs, self._tensorflow = plane, programs, tensorflow
        self.device = re.match(r"/device:([A-Za-z]+):(\d{1,9})(?!\d)", plane.name)
        self.tracks: list[dict[str, object]] = []
        self.nameless = 0
        self._streams = any(line.name.startswith("Stream") for line in plane.lines)
        # A TPU names an operation by the whole text of its instruction.
        short = self.device is not None and not self._streams
        self._labels = [(short and display) or name for name, display in zip(plane.names, plane.displays, strict=True)]
        self._nameless_rows: dict[int, int] = {}
        self._about = _Values(plane, plane.metadata_stats, len(plane.names))
        self._json: list[str] = []
        lanes = list(self._lanes(first_track, start_ns))
        self._track, self._role, self._base = np.array(lanes, np.int64).reshape(-1, 3).T
        if wall and plane.name in _ON_WALL_CLOCK:
            plane.correction = lambda line, offset, duration: _placed(wall, self._base[line], offset, duration)
        elif wall and start_ns is not None:  # a device counts from where the session began
            self._base += wall.place(np.array([start_ns]))[0] - start_ns

    def _lanes(self, first: int, start_ns: int | None) -> list[tuple[int, int, int]]:
        """Track, role and clock of each line; lines of one id and name are one track.

        The profiler subtracts the moment it started from all times; where it says when that was, they become times of day again.
        """
        known: dict[tuple[int, str], int] = {}
        lanes = []
        for line in self.plane.lines:
            role, kind = self._role_of(line.name)
            track = known.setdefault((line.number, line.name), first + len(known))
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
                    }
                )
            since = start_ns if start_ns is not None and line.timestamp_ns < start_ns else 0
            lanes.append((track, _ROLE_WORDS.index(role), line.timestamp_ns + since))
        return lanes

    def _role_of(self, line: str) -> tuple[str, str]:
        if self.device is None:
            return ("thread", "thread") if self.plane.name.startswith("/host:") else ("other", "other")
        if line.startswith("Stream"):
            return "stream", "stream"
        if line == "XLA Ops" and self._streams:  # of a GPU: drawn from the kernels of the streams, which count already
            return "ranges", "annotation"
        return _ROLES.get(line, ("other", "other"))

    def frames(self, batch: Batch) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """The spans, the memory events among them, and the samples of counters."""
        values = _Values(self.plane, batch.stats, len(batch.line))
        rows = self._rows(batch)
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
                "args": self._arguments(batch.stats, len(batch.line)),
                "step_num": _or_null(*values.numbers("step_num")),
                "group_id": _or_null(*values.numbers("group_id")),
                "correlation": _or_null(*values.numbers("correlation_id")),
                "produces": _or_null(*values.numbers("_p")),
                "produces_type": values.numbers("_pt")[0],
                "consumes": _or_null(*values.numbers("_c")),
                "consumes_type": values.numbers("_ct")[0],
            }
        )
        spans = spans.hstack(self._meanings(batch, values, rows)).with_columns(*self._amounts(batch, values))
        # What a loop or a call does is counted in the operations inside it.
        outer = pl.col("op_type").cast(pl.String).is_in(["while", "conditional", "call"])
        spans = spans.with_columns(flops=pl.when(~outer.fill_null(False)).then("flops"))
        counts = spans["role"] == "counters"
        if counts.any() and (sample := values.floats("counter_value")) is not None:
            is_sample = counts.to_numpy() & ~np.isnan(sample)
            counters = spans.select("name", at_ns="start_ns", value=pl.Series(sample)).filter(is_sample)
            return spans.filter(~is_sample), self._memory(spans, values), counters
        return spans, self._memory(spans, values), spans.select("name", at_ns="start_ns", value=pl.lit(0.0)).clear()

    def _rows(self, batch: Batch) -> Ints:
        """The label of each event; one whose metadata the plane lacks is called by its number."""
        rows = batch.metadata
        lost = rows < 0
        if lost.any():
            self.nameless += int(lost.sum())
            ids, inverse = np.unique(batch.metadata_id[lost], return_inverse=True)
            for number in ids.tolist():
                if self._nameless_rows.setdefault(number, len(self._labels)) == len(self._labels):
                    self._labels.append(f"event {number}")
            rows = rows.copy()
            rows[lost] = np.array([self._nameless_rows[number] for number in ids.tolist()], np.int64)[inverse]
        return rows

    def _meanings(self, batch: Batch, values: "_Values", rows: Ints) -> pl.DataFrame:
        """Kind, operation and scope of each event, decided once per distinct name and what its stats say of it."""
        flags = np.zeros(len(rows), np.int64)
        for flag, names in (
            (_STEP, ("step_num",)),
            (_CALL, ("correlation_id",)),
            (_COPY, ("memcpy_details",)),
            (_SET, ("memset_details", "Memset_details")),
        ):
            for name in names:
                flags[values.owners(name)] |= flag
        program, has = self._number(batch, values, "program_id")
        program = np.where(has, program, self._of_module(self._text(batch, values, "hlo_module")))
        keys = pl.DataFrame(
            {
                "row": rows,
                "lane": self._role[batch.line] << 8 | flags,
                "program": program,
                **{name: self._text(batch, values, name) for name in ("hlo_op", "tf_op", "name", "hlo_category")},
            }
        )
        distinct = keys.unique(maintain_order=True)
        found = [self._meaning(*key) for key in distinct.iter_rows()]
        table = pl.DataFrame(found, schema=_MEANING, orient="row", infer_schema_length=None).cast(_MEANING_TYPES)  # type: ignore[arg-type]
        joined = keys.join(distinct.hstack(table), on=keys.columns, how="left", maintain_order="left")
        return joined.select("program", *_MEANING)

    def _of_module(self, codes: Ints) -> Ints:
        """The program of a module's name, for releases that do not number them."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        numbers = [self._programs.number(self.plane.texts[code]) if code >= 0 else _NONE for code in distinct.tolist()]
        return np.array(numbers, np.int64)[inverse]

    def _meaning(self, row: int, role_flags: int, program: int, hlo: int, tf: int, named: int, category: int) -> "_Meaning":
        label, role, flags = self._labels[row], _ROLE_WORDS[role_flags >> 8], role_flags & 0xFF
        hlo_op, tf_op, op_name, hlo_category = (self.plane.texts[code] if code >= 0 else "" for code in (hlo, tf, named, category))
        if role in ("ops", "async"):
            hlo_op = hlo_op or label
        if role in ("thread", "stream", "ops", "async"):
            operation = self._operation(label, role, program, hlo_op, tf_op, op_name, hlo_category)
            if role != "thread":
                return operation._replace(kind=_device_kind(label, role, flags, operation))
            return operation._replace(kind=_host_kind(label, flags, operation), region=label in REGIONS)
        kind = {"steps": "step", "ranges": "annotation", "scopes": "scope", "syncs": "sync"}.get(role, "other")
        return _Meaning(kind, role)

    def _operation(self, label: str, role: str, program: int, hlo_op: str, tf_op: str, op_name: str, category: str) -> "_Meaning":
        """The operation an event is of: by its HLO instruction, by the name of the TensorFlow operation, or by the event's own name."""
        compiled = self._programs.find(program) if hlo_op else None
        instruction = compiled.instruction(hlo_op) if compiled else None
        shared = False
        if compiled and instruction is None and role == "stream":  # inside a CUDA graph, which is all that hlo_op names
            instruction = compiled.of_kernel(label)
            shared = instruction is not None
        if instruction:
            move = "communication" if _COLLECTIVE.match(instruction.opcode) or _COLLECTIVE.match(hlo_op) else ""
            move = "copy" if instruction.opcode in ("infeed", "outfeed") else move
            path, kind = instruction.op_name, category or instruction.kind
            shapes, dtypes = instruction.shapes, instruction.dtypes
            return _Meaning("", role, kind, _hlo.scope(path) or None, path or None, shapes, dtypes, move, shared)
        path, _, kind = tf_op.rpartition(":") if ":" in tf_op else (tf_op, "", "")
        if path == "XlaModule":
            path, kind = op_name, ""
        if role == "thread" and not hlo_op and self._tensorflow and (match := _TENSORFLOW_OP.fullmatch(label)):
            path, kind = match[1], match[2]
        elif role == "thread" and self._tensorflow and (match := _TENSORFLOW_EAGER.fullmatch(label)):
            kind = match[1]
        if hlo_op:
            kind = category or re.sub(r"([._]\d+)+$", "", hlo_op)
        move = "communication" if _COLLECTIVE.match(hlo_op) or kind in _TENSORFLOW_COLLECTIVES else ""
        move = "copy" if re.match(r"(in|out)feed\b", hlo_op) else move
        return _Meaning("", role, kind or None, _hlo.scope(path) or None, path or None, None, None, move)

    def _amounts(self, batch: Batch, values: "_Values") -> list[pl.Series]:
        """FLOPs and bytes: as the profiler counts them, or of a copy on a device what was copied."""
        flops, known = self._number(batch, values, "flops")
        more, also = self._number(batch, values, "model_flops")
        moved, measured = self._number(batch, values, "bytes_accessed")
        on_device = self._role[batch.line] != _ROLE_WORDS.index("thread")
        for name, size in (("memcpy_details", r"\bsize:(\d+)"), ("memset_details", r"_bytes:(\d+)"), ("Memset_details", r"_bytes:(\d+)")):
            codes = values.texts(name)
            for code in np.unique(codes[codes >= 0]).tolist():
                if match := re.search(size, self.plane.texts[code]):
                    here = (codes == code) & on_device
                    moved[here], measured[here] = int(match[1]), True
        return [
            _or_null(np.where(known, flops, more), known | also).alias("flops"),
            _or_null(moved, measured).alias("bytes"),
        ]

    def _memory(self, spans: pl.DataFrame, values: "_Values") -> pl.DataFrame:
        """What the allocators said, each time they gave or took a block."""
        rows = np.unique(values.owners("allocator_name"))
        texts = {"allocator": "allocator_name", "op": "tf_op", "shape": "shape", "category": "region_type"}
        numbers = {"bytes": "allocation_bytes", "address": "addr", "allocated": "bytes_allocated", "type": "data_type"}
        known = pl.Series([*self.plane.texts, None], dtype=pl.String)  # code -1 is the last
        columns = {column: known.gather(values.texts(name)[rows] % len(known)) for column, name in texts.items()}
        columns |= {column: _or_null(*values.numbers(name)).gather(rows) for column, name in numbers.items()}
        said = spans[rows].select("name", at_ns="start_ns").with_columns(**columns)
        return said.filter(pl.col("name").cast(pl.String).is_in(["MemoryAllocation", "MemoryDeallocation"]))

    def _number(self, batch: Batch, values: "_Values", name: str) -> tuple[Ints, Bools]:
        """A number of each event: its own, or its metadata's."""
        own, has = values.numbers(name)
        shared, known = self._about.numbers(name)
        if known.any():
            row = np.maximum(batch.metadata, 0)
            inherits = ~has & (batch.metadata >= 0) & known[row]
            own, has = np.where(inherits, shared[row], own), has | inherits
        return own, has

    def _text(self, batch: Batch, values: "_Values", name: str) -> Ints:
        own, shared = values.texts(name), self._about.texts(name)
        if (shared >= 0).any():
            row = np.maximum(batch.metadata, 0)
            own = np.where((own < 0) & (batch.metadata >= 0), shared[row], own)
        return own

    def _arguments(self, stats: Stats, count: int) -> pl.Series:
        """The stats of each event as a JSON object, null where it has none.

        Events with the same stats, in name and type, are written together, column by column.
        """
        many = np.bincount(stats.owner, minlength=count)
        first = np.cumsum(many) - many
        ordinal = np.arange(len(stats.owner)) - np.repeat(first, many)
        mixed = (stats.name.astype(np.uint64) << np.uint64(4) | stats.number) * _MIX
        mixed = (mixed ^ mixed >> np.uint64(29)) * (ordinal.astype(np.uint64) * np.uint64(2) + np.uint64(1))
        total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed)))
        owners = np.flatnonzero(many)
        form = total[first[owners] + many[owners]] - total[first[owners]]
        order = np.argsort(form, kind="stable")
        edges = np.flatnonzero(np.concatenate(([True], np.diff(form[order]) != 0, [True]))) if len(order) else np.zeros(1, np.int64)
        self._json += [json.dumps(text, ensure_ascii=False) for text in self.plane.texts[len(self._json) :]]
        texts = pl.Series(self._json, dtype=pl.String)
        rows, written = [np.flatnonzero(many == 0)], [pl.Series([None], dtype=pl.String).new_from_index(0, int((many == 0).sum()))]
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            same = owners[order[low:high]]
            at = first[same][:, None] + np.arange(many[same[0]])
            alike = bool((many[same] == many[same[0]]).all()) and self._alike(stats, at)
            rows.append(same)
            written.append(self._written(stats, at, texts) if alike and len(same) > _FEW else self._spelled(stats, same, first, many))
        back = np.empty(count, np.int64)
        back[np.concatenate(rows)] = np.arange(count)
        return pl.concat(written).gather(back)

    def _alike(self, stats: Stats, at: Ints) -> bool:
        return bool((stats.name[at] == stats.name[at[0]]).all() and (stats.number[at] == stats.number[at[0]]).all())

    def _written(self, stats: Stats, at: Ints, texts: pl.Series) -> pl.Series:
        """Events of one form: `at` has a row per event and a column per stat."""
        parts: list[pl.Expr | pl.Series] = []
        for column in range(at.shape[1]):
            cells, one = at[:, column], at[0, column]
            parts.append(pl.lit(("," if column else "{") + self._json[stats.name[one]] + ":"))
            if stats.text[one] >= 0:
                codes = stats.text[cells]
                parts.append(self._launches(codes) if stats.name[one] == self.plane.code("kernel_details") else texts.gather(codes))
            elif stats.number[one] == DOUBLE:
                number = stats.value[cells].view(np.float64)
                quote = pl.Series(np.where(np.isfinite(number), "", '"'))
                parts += [quote, pl.Series(number).cast(pl.String), quote]
            elif stats.number[one] == 0:
                parts.append(pl.lit("null"))
            else:
                parts.append(
                    pl.Series(stats.value[cells].view(np.int64) if stats.number[one] == SIGNED else stats.value[cells]).cast(pl.String)
                )
        return pl.select(pl.concat_str([*parts, pl.lit("}")])).to_series()

    def _spelled(self, stats: Stats, owners: Ints, first: Ints, many: Ints) -> pl.Series:
        """Events one by one: of forms that few have."""
        details = self.plane.code("kernel_details")
        lines = []
        for begin, count in zip(first[owners].tolist(), many[owners].tolist(), strict=True):
            fields = []
            for row in range(begin, begin + count):
                name, text = int(stats.name[row]), int(stats.text[row])
                if text >= 0:
                    value = self._json[text] + (_launch(self.plane.texts[text]) if name == details else "")
                else:
                    number = self.plane.value(stats, row)
                    odd = isinstance(number, float) and not isfinite(number)
                    value = json.dumps(str(number).replace("nan", "NaN") if odd else number)
                fields.append(f"{self._json[name]}:{value}")
            lines.append("{" + ",".join(fields) + "}")
        return pl.Series(lines, dtype=pl.String)

    def _launches(self, codes: Ints) -> pl.Series:
        distinct, inverse = np.unique(codes, return_inverse=True)
        texts = [self._json[code] + _launch(self.plane.texts[code]) for code in distinct.tolist()]
        return pl.Series(texts, dtype=pl.String).gather(inverse)


_MIX = np.uint64(0x9E3779B97F4A7C15)
_FEW = 16  # events of one form below which column by column costs more than one by one


def _launch(details: str) -> str:
    """How a kernel was launched, in the words of the other sources: `regs:66 static_shared:0 dynamic_shared:16 grid:2,1,1 block:8,1,1`."""
    said = dict(re.findall(r"(\w+):([\d.,]+)", details))
    words = []
    if "regs" in said:
        words.append(f'"registers per thread":{said["regs"]}')
    if "static_shared" in said and "dynamic_shared" in said:
        words.append(f'"shared memory":{int(said["static_shared"]) + int(said["dynamic_shared"])}')
    words += [f'"{side}":[{said[side]}]' for side in ("grid", "block") if side in said]
    return "".join("," + word for word in words)


class _Meaning(NamedTuple):
    kind: str
    role: str
    op_type: str | None = None
    scope: str | None = None
    category: str | None = None  # the operation's full name
    shapes: str | None = None
    dtypes: str | None = None
    moves: str = ""  # communication, copy
    shared: bool = False  # found by the kernel's name, which several instructions may share
    region: bool = False  # a stretch of work that another thread handed over starts or ends here


_MEANING = list(_Meaning._fields)
_MEANING_TYPES = {
    "kind": schema.Kind,
    **dict.fromkeys(("role", "op_type", "scope", "category", "shapes", "dtypes", "moves"), schema.Text),
    "shared": pl.Boolean,
    "region": pl.Boolean,
}
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|(ragged-)?all-to-all|collective-(permute|broadcast)|send|recv)(-start|-done)?(\.\d+)*$"
)
_COLLECTIVE_KERNEL = re.compile(r"(?i)(void )?(nccl|rccl|msccl|oneccl)")
_TENSORFLOW_COLLECTIVES = {"CollectiveReduceV2", "CollectiveReduceV3", "CollectiveGatherV2", "NcclAllReduce", "HorovodAllreduce"}
_TENSORFLOW_OP = re.compile(r"([A-Za-z0-9.][\w./>-]*):([A-Z_]\w*)")
_TENSORFLOW_EAGER = re.compile(r"EagerLocalExecute: (?!__)(\w+)")  # the names of functions start so; they have operations of their own
_INPUT = re.compile(r"Iterator|Prefetch(Produce|Consume)|Parallel(Map|Batch|Interleave)\w*(Produce|Consume)|MapAndBatch(Produce|Consume)")
_CALLS = re.compile(r"(cu|cuda|hip|nvtx|nccl)[A-Z]\w*(\(.*\))?")
_WAITS = re.compile(r"(?i)(cu|cuda|hip)\w*synchronize")


def _host_kind(label: str, flags: int, operation: _Meaning) -> str:
    if flags & _STEP:
        return "step"
    if label.startswith("$"):
        return "python"
    if operation.moves:
        return operation.moves
    if label in ("MemoryAllocation", "MemoryDeallocation"):
        return "instant"
    if _WAITS.match(label):
        return "sync"
    if flags & _CALL or _CALLS.fullmatch(label):
        return "api"
    if _INPUT.match(label):
        return "data"
    return "op" if operation.op_type else "other"


def _device_kind(label: str, role: str, flags: int, operation: _Meaning) -> str:
    if flags & _COPY or (role == "stream" and label.startswith("Memcpy")):
        return "copy"
    if flags & _SET or (role == "stream" and label.startswith("Memset")):
        return "set"
    if operation.moves:
        return operation.moves
    if role == "stream" and _COLLECTIVE_KERNEL.match(label):
        return "communication"
    return "copy" if role == "async" and re.search("copy|slice", label) else "kernel"


class _Values:
    """Stats by name."""

    def __init__(self, plane: Plane, stats: Stats, count: int) -> None:
        self._plane, self._stats, self._count = plane, stats, count
        narrow = stats.name.astype(np.uint16) if len(plane.texts) < 1 << 16 else stats.name
        self._order = np.argsort(narrow, kind="stable")
        self._names = stats.name[self._order]

    def owners(self, name: str) -> Ints:
        return self._stats.owner[self._rows(name)]

    def numbers(self, name: str) -> tuple[Ints, Bools]:
        """The number of that name for each owner, and whether it has one."""
        value, has = np.zeros(self._count, np.int64), np.zeros(self._count, np.bool_)
        rows = self._rows(name)
        rows = rows[(self._stats.text[rows] < 0) & (self._stats.number[rows] > 0)]
        owner, found = self._stats.owner[rows], self._stats.value[rows].view(np.int64)
        double = self._stats.number[rows] == DOUBLE
        if double.any():
            float_value = found.view(np.float64)
            sound = ~double | (np.abs(float_value) < 2**62)
            found = np.where(double, np.where(sound & double, float_value, 0).astype(np.int64), found)
            owner, found = owner[sound], found[sound]
        value[owner], has[owner] = found, True
        return value, has

    def floats(self, name: str) -> NDArray[np.float64] | None:
        """The number of that name for each owner, NaN for none; None where nobody has one."""
        rows = self._rows(name)
        rows = rows[self._stats.text[rows] < 0]
        if len(rows) == 0:
            return None
        value, number = self._stats.value[rows], self._stats.number[rows]
        result = np.full(self._count, np.nan)
        whole = np.where(number == SIGNED, value.view(np.int64).astype(np.float64), value.astype(np.float64))
        result[self._stats.owner[rows]] = np.where(number == DOUBLE, value.view(np.float64), whole)
        return result

    def texts(self, name: str) -> Ints:
        """The code of the text of that name for each owner, -1 for none."""
        codes = np.full(self._count, -1, np.int64)
        rows = self._rows(name)
        codes[self._stats.owner[rows]] = self._stats.text[rows]
        return codes

    def _rows(self, name: str) -> Ints:
        code = self._plane.code(name)
        low, high = (int(np.searchsorted(self._names, code, side)) for side in ("left", "right"))
        return self._order[low:high] if code >= 0 else self._order[:0]


def _or_null(values: Ints, has: Bools) -> pl.Series:
    return pl.Series(values).set(pl.Series(~has), None)


def _placed(wall: WallClock, base: Ints, offset: Ints, duration: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Offset and duration in picoseconds on the clock of the recording, and which of them are certain."""
    start_ns, end_ns = base + offset // 1000, base + (offset + duration) // 1000
    (start, starts), (end, ends) = wall.place(start_ns), wall.place(end_ns)
    placed = offset + (start - start_ns) * 1000
    return placed, offset + duration + (end - end_ns) * 1000 - placed, starts & ends
