"""XPlane: `*.xplane.pb` of the JAX and TensorFlow profilers, plain or gzip; one file per host, or the folder of these files."""

import contextlib
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl

from stepscope.errors import DataError
from stepscope.model import schema, units
from stepscope.model.steps.step_assignment import with_passes
from stepscope.model.trace import Meta, Trace, combine, unread_problem
from stepscope.readers import Options
from stepscope.readers.common import wire
from stepscope.readers.common.name_parts import add_counter_columns
from stepscope.readers.common.problems import Problem, problem_frame
from stepscope.readers.common.wall_clock import AMBIGUOUS_TIMES, WallClock
from stepscope.readers.common.wire import Damage
from stepscope.readers.xplane import links
from stepscope.readers.xplane.events import PlaneReader
from stepscope.readers.xplane.operations import Programs
from stepscope.readers.xplane.xspace import Plane, Space

_SNIFFED = 1 << 14
_ENDINGS = (".xplane.pb", ".xplane.pb.gz")
# Columns that only pass through: they are never in memory all at once.
_PASSING = ["flops", "bytes", "shapes", "dtypes", "args"]
_LARGEST = 1 << 31  # no protocol buffer is larger: a gzip file that unpacks to more is not one of ours
FORMAT = "JAX/TensorFlow xplane (.xplane.pb)"


def sniff(path: Path) -> bool:
    """A file that starts with a plane, or a folder with such files. Other files in the folder are derived from them."""
    if path.is_dir():
        return any(_is_readable_plane(file) for file in _files(path))
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_SNIFFED)
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head, _SNIFFED)
        except zlib.error:
            return False
    return _starts_with_plane(head)


def _is_readable_plane(file: Path) -> bool:
    """False for a file that cannot be opened, so that the files of other hosts are read."""
    try:
        return sniff(file)
    except OSError:
        return False


def read(path: Path, options: Options) -> Trace:
    if not path.is_dir():
        return read_file(path, options, options.rank or 0)
    files = _files(path, every=True)
    matches = [re.search(r"rank[-_]?(\d+)", file.name, re.IGNORECASE) for file in files]
    ranks = [int(match[1]) for match in matches if match]
    if len(set(ranks)) != len(files):
        ranks = list(range(len(files))) if len(files) > 1 else [options.rank or 0]
    readable, traces, unread = list[Path](), list[Trace](), list[tuple[DataError, int]]()
    for file, rank in zip(files, ranks, strict=True):
        try:
            if not file.is_file():
                raise DataError(file, "not a file")
            traces.append(read_file(file, options, rank))
            readable.append(file)
        except DataError as error:  # the files of other hosts can still be read
            unread.append((error, rank))
        except OSError as error:
            unread.append((DataError(file, error.strerror or str(error)), rank))
    if not traces:
        raise unread[0][0]
    _check_same_run(path, readable, traces)
    return combine(traces).with_problems([unread_problem(error, rank) for error, rank in unread])


def _check_same_run(path: Path, files: list[Path], traces: list[Trace]) -> None:
    """Refuse files of one host that do not overlap in time: those of one run are of different hosts, or ran at the same time."""
    times: dict[str, list[tuple[int, int, str]]] = {}
    for file, trace in zip(files, traces, strict=True):
        first, last = trace.spans.select(pl.col("start_ns").min(), end=(pl.col("start_ns") + pl.col("dur_ns")).max()).collect().row(0)
        times.setdefault(str(trace.meta.extra["hosts"]), []).append((first, last, file.name))
    for same_host in times.values():
        for (_, end, first_name), (start, _, second_name) in pairwise(sorted(same_host)):
            if start > end:
                raise DataError(path, f"two recordings, one after the other: {first_name} and {second_name}; open one of them")


def _files(folder: Path, *, every: bool = False) -> list[Path]:
    """The files of a folder in the order of their hosts, host-2 before host-10; `every`: also entries that are no files."""
    files = [file for file in folder.iterdir() if file.name.endswith(_ENDINGS) and (every or file.is_file())]
    return sorted(files, key=lambda file: [(text, int(part or 0)) for text, part in re.findall(r"(\D*)(\d*)", file.name)])


def _starts_with_plane(head: bytes) -> bool:
    """Whether field 1 is a message with only fields of a plane, its name first after its id, as far as the head shows."""
    try:
        at = 0
        while head[at] == 0x0A:
            length, at = wire.varint(head, at + 1, len(head))
            if length:
                return length < _LARGEST and _is_plane(head, at, at + length)
    except (IndexError, Damage):
        pass
    return False


def _is_plane(head: bytes, at: int, end: int) -> bool:
    if head[at] == 0x08:
        _, at = wire.varint(head, at + 1, len(head))
    if head[at] != 0x12:
        return False
    length, at = wire.varint(head, at + 1, len(head))
    name = head[at : at + length]
    try:
        if len(name) < max(length, 1) or at + length > end or not name.decode().isprintable():
            return False
    except UnicodeDecodeError:
        return False
    at += length
    while at < min(end, len(head)):
        if head[at] not in (0x1A, 0x22, 0x2A, 0x32):
            return False
        if len(head) - at < 11:  # the length may be beyond the head
            break
        length, at = wire.varint(head, at + 1, len(head))
        at += length
    return at <= end


def read_file(path: Path, options: Options, rank: int, wall: WallClock | None = None) -> Trace:
    """The trace of one file. `wall`: the wall clock during a recording in which it was set."""
    buffer, notes = _load(path, options)
    try:
        return _assemble(path, Space(buffer, tolerant=options.partial), notes, options, rank, wall)
    except Damage as damage:
        raise DataError(path, f"{damage.what}; --partial reads the intact part", f"byte {damage.offset:,}") from damage


def _load(path: Path, options: Options) -> tuple[wire.Buffer, list[Problem]]:
    """The file in memory, unpacked."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            size = file.seek(0, 2)
            padded = bytearray(size + wire.PADDING)
            file.seek(0)
            file.readinto(memoryview(padded)[:size])
            return wire.Buffer(padded), []
        file.seek(0)
        data, notes = bytearray(), []
        unpacker = zlib.decompressobj(31)
        while chunk := unpacker.unconsumed_tail or file.read(1 << 20):
            before = unpacker.copy()
            try:
                data += unpacker.decompress(chunk, 1 << 24)
            except zlib.error as error:
                data += _up_to_damage(before, chunk)
                notes.append(Problem(f"byte {file.tell():,}", f"the gzip data is damaged ({error})", 0))
                break
            if len(data) > _LARGEST:
                raise DataError(path, f"unpacks to more than {_LARGEST:,} bytes, which no XPlane file is")
            if unpacker.eof and unpacker.unused_data:
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(31)
                file.seek(-len(rest), 1)
        if not notes and not unpacker.eof:
            notes.append(Problem(f"byte {file.tell():,}", "the gzip data is cut off", 0))
        if notes and not options.partial:
            raise DataError(path, f"{notes[0].what}; --partial reads the intact part", notes[0].where)
        return wire.Buffer(data + bytes(wire.PADDING)), notes


def _up_to_damage(unpacker: "zlib._Decompress", chunk: bytes) -> bytes:
    """The data of a damaged chunk before the damage: zlib returns nothing for a chunk with an error."""
    data = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in chunk:
            data += unpacker.decompress(bytes((byte,)))
    return bytes(data)


_LATEST_NS = 1 << 61
_METADATA_PLANES = ("/host:metadata", "Task Environment")


class _Losses(NamedTuple):
    """Numbers of events that are left out."""

    broken: int = 0
    aggregated: int = 0
    unplaced: int = 0


def _assemble(path: Path, space: Space, problems: list[Problem], options: Options, rank: int, wall: WallClock | None) -> Trace:
    planes = space.planes()
    metadata = {key: value for plane in planes if plane.name in _METADATA_PLANES for key, value in _plane_stats(plane).items()}
    programs = Programs(space, planes)
    is_jax = "jax_version" in metadata or any(name.startswith("PjitFunction(") for plane in planes for name in plane.names)
    start_ns = _start_time(metadata, problems)
    readers: list[PlaneReader] = []
    tracks: list[dict[str, object]] = []
    parts: list[tuple[pl.DataFrame, ...]] = []
    passing: list[Path] = []
    losses = _Losses()
    for plane in planes:
        reader = PlaneReader(plane, len(tracks), programs, start_ns, tensorflow=not is_jax, wall=wall)
        readers.append(reader)
        tracks += reader.tracks
        for batch in plane.batches(lambda done: options.progress(done, space.buffer.size)):
            spans, *others = reader.frames(batch)
            passing.append(options.scratch / f"{rank}.{len(parts):06d}.arrow")
            spans.select(_PASSING).write_ipc(passing[-1], compression="lz4")
            parts.append((spans.drop(_PASSING), *others))
            losses = _Losses(losses.broken + batch.broken, losses.aggregated + batch.aggregated, losses.unplaced + batch.unplaced)
    if sum(part[0].height for part in parts) == 0:
        raise DataError(path, "the trace holds no events")
    spans, memory, counters = (pl.concat(frames) for frames in zip(*parts, strict=True))
    samples = counters.with_columns(pl.col("name").cast(pl.String)).lazy()
    spans, track_rows = links.separate_markers(spans, tracks)
    spans = links.drop_shared_scopes(links.link_spans(links.nest_spans(spans)))
    steps, step_problems = links.find_marked_steps(spans)
    spans = links.assign_steps(spans, steps)
    problems += _clock_problems(losses.unplaced, wall, start_ns)
    problems += [*_damage_problems(space, losses.broken), *_profiler_problems(space, readers, programs, losses.aggregated)]
    problems += [Problem("", message, 0) for message in step_problems]
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": pl.concat([spans.lazy(), pl.concat([pl.scan_ipc(file) for file in passing])], how="horizontal"),
        "tracks": track_rows,
        "steps": with_passes(steps, spans),
        "counters": pl.concat([links.memory_counters(memory), add_counter_columns(samples).collect()], how="diagonal"),
        "allocations": links.allocation_table(memory),
        "devices": _devices(readers),
        "problems": problem_frame(problems, path),
    }
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    return Trace(ranked, _meta(space, metadata, spans, rank, is_jax))


def _plane_stats(plane: Plane) -> dict[str, object]:
    return {plane.texts[name]: plane.value(plane.stats, row) for row, name in enumerate(plane.stats.name.tolist())}


def _start_time(metadata: dict[str, object], problems: list[Problem]) -> int | None:
    start_ns = metadata.get("profile_start_time")
    if not isinstance(start_ns, int):
        return None
    if not 0 <= start_ns < _LATEST_NS:
        message = f"profile_start_time is {start_ns}, which is no time: times count from the start of the profiler"
        problems.append(Problem("", message, 0))
        return None
    return start_ns


def _clock_problems(unplaced: int, wall: WallClock | None, start_ns: int | None) -> Iterator[Problem]:
    if unplaced:
        yield Problem("", f"{units.count(unplaced, 'event')} {AMBIGUOUS_TIMES}", unplaced)
    if wall and start_ns is not None and wall.shows_before(start_ns):
        yield Problem("", "the profiler dropped later events: the machine's clock was set back to before its start", 0)


def _damage_problems(space: Space, broken: int) -> Iterator[Problem]:
    """What --partial left out. A file that is cut off breaks a plane, a line and an event at once, which is one problem."""
    cut = [damage for damage, at_end in space.damage if at_end]
    if cut:
        yield Problem(f"byte {space.buffer.size:,}", f"the file is cut off: {cut[0].what}", max(broken, 1))
    elif broken:
        yield Problem("", f"{units.count(broken, 'event is', 'events are')} damaged", broken)
    yield from (Problem(f"byte {damage.offset:,}", damage.what, 0) for damage, at_end in space.damage if not at_end)


def _profiler_problems(space: Space, readers: list[PlaneReader], programs: Programs, aggregated: int) -> Iterator[Problem]:
    yield from (Problem("", f"the profiler reports an error: {text}", 0) for text in space.errors)
    yield from (Problem("", f"the profiler warns: {text}", 0) for text in space.warnings)
    for number, damage in programs.unreadable:
        message = f"the description of program {number} cannot be read ({damage.what}): no scopes for it"
        yield Problem(f"byte {damage.offset:,}", message, 0)
    for reader in readers:
        dropped = _plane_stats(reader.plane).get("dropped_traces")
        if isinstance(dropped, int) and dropped:
            yield Problem(reader.plane.name, f"the profiler dropped {units.count(dropped, 'event')}", dropped)
        if reader.nameless:
            events = units.count(reader.nameless, "event has", "events have")
            yield Problem(reader.plane.name, f"{events} no name: the file does not describe them", 0)
    if aggregated:
        yield Problem("", f"{units.count(aggregated, 'event is a count', 'events are counts')} without a time: left out", aggregated)


def _devices(readers: list[PlaneReader]) -> pl.DataFrame:
    rows: dict[tuple[str, int], dict[str, object]] = {}
    for reader in readers:
        if reader.device is None or not reader.plane.name.startswith(("/device:GPU:", "/device:TPU:")):
            continue
        stats = _plane_stats(reader.plane)
        number, kind = int(reader.device[2]), reader.device[1].lower()
        row = {
            "device": number,
            "name": stats.get("gpu_device_name") or stats.get("device_type_string") or None,
            "kind": kind,
            "cores": cores if (cores := _scaled(stats.get("core_count"), 1)) is not None and cores < 2**31 else None,
            "clock_hz": _scaled(stats.get("clock_rate"), 1_000),
            "memory_bytes": _scaled(stats.get("memory_size"), 1),
            "peak_flops": _scaled(stats.get("peak_teraflops_per_second"), 10**12),
            "peak_bandwidth": _scaled(stats.get("memory_bandwidth"), 1) or _scaled(stats.get("peak_hbm_bw_gigabytes_per_second"), 10**9),
        }
        rows.setdefault((kind, number), row)
    columns = ("device", "name", "kind", "cores", "clock_hz", "memory_bytes", "peak_flops", "peak_bandwidth")
    return pl.DataFrame(list(rows.values()), schema={name: schema.TABLES["devices"][name] for name in columns}, strict=False)


def _scaled(value: object, factor: int) -> int | None:
    if not isinstance(value, int | float) or not 0 < value * factor < 1 << 62:
        return None
    return round(value * factor)


def _meta(space: Space, metadata: dict[str, object], spans: pl.DataFrame, rank: int, is_jax: bool) -> Meta:
    is_tensorflow = not is_jax and bool((spans["kind"] == "op").any())
    return Meta(
        format="xplane",
        framework="jax" if is_jax else "tensorflow" if is_tensorflow else "",
        versions={key: str(value) for key, value in metadata.items() if key.endswith("_version")},
        ranks=[rank],
        options={"with_stack": True} if (spans["kind"] == "python").any() else {},
        extra={"hosts": space.hosts} | {key: value for key, value in metadata.items() if not key.endswith("_version")},
    )
