"""XPlane: `*.xplane.pb` of the JAX and TensorFlow profilers, plain or gzip; one file per host, or the folder that holds them."""

import contextlib
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl

from stepscope import schema, units
from stepscope.errors import DataError
from stepscope.readers import Options, _wire
from stepscope.readers import _xplane_events as events
from stepscope.readers import _xplane_links as links
from stepscope.readers._wall_clock import BETWEEN_TWO, WallClock
from stepscope.readers._wire import Damage
from stepscope.readers._xspace import Plane, Space
from stepscope.step_assignment import with_passes
from stepscope.trace import Meta, Trace, combine, unread_problem

_SNIFFED = 1 << 14
_ENDINGS = (".xplane.pb", ".xplane.pb.gz")
# Columns that only pass through: they are never in memory all at once.
_PASSING = ["flops", "bytes", "shapes", "dtypes", "args"]
_LARGEST = 1 << 31  # no protocol buffer is larger: a gzip file that unpacks to more is not one of ours
FORMAT = "JAX/TensorFlow xplane (.xplane.pb)"


def sniff(path: Path) -> bool:
    """A file that starts with a plane, or a folder with such files: what else lies there is made from them."""
    if path.is_dir():
        return any(_claims(file) for file in _files(path))
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


def _claims(file: Path) -> bool:
    """A file of a host that cannot be opened does not hide the others."""
    try:
        return sniff(file)
    except OSError:
        return False


def read(path: Path, options: Options) -> Trace:
    if not path.is_dir():
        return _read(path, options, options.rank or 0)
    files = _files(path, every=True)
    said = [re.search(r"rank[-_]?(\d+)", file.name, re.IGNORECASE) for file in files]
    ranks = [int(match[1]) for match in said if match]
    if len(set(ranks)) != len(files):
        ranks = list(range(len(files))) if len(files) > 1 else [options.rank or 0]
    read, traces, unread = list[Path](), list[Trace](), list[tuple[DataError, int]]()
    for file, rank in zip(files, ranks, strict=True):
        try:
            if not file.is_file():
                raise DataError(file, "not a file")
            traces.append(_read(file, options, rank))
            read.append(file)
        except DataError as error:  # one host's file does not hide the others
            unread.append((error, rank))
        except OSError as error:
            unread.append((DataError(file, error.strerror or str(error)), rank))
    if not traces:
        raise unread[0][0]
    _same_run(path, read, traces)
    return combine(traces).with_problems([unread_problem(error, rank) for error, rank in unread])


def _same_run(path: Path, files: list[Path], traces: list[Trace]) -> None:
    """Files of one run are of different hosts, or of processes of one host that ran at the same time."""
    times: dict[str, list[tuple[int, int, str]]] = {}
    for file, trace in zip(files, traces, strict=True):
        first, last = trace.spans.select(pl.col("start_ns").min(), end=(pl.col("start_ns") + pl.col("dur_ns")).max()).collect().row(0)
        times.setdefault(str(trace.meta.extra["hosts"]), []).append((first, last, file.name))
    for same_host in times.values():
        for (_, end, one), (start, _, other) in pairwise(sorted(same_host)):
            if start > end:
                raise DataError(path, f"two recordings, one after the other: {one} and {other}; open one of them")


def _files(folder: Path, *, every: bool = False) -> list[Path]:
    """The files of a folder in the order of their hosts, host-2 before host-10; `every`: also what only has the name of one."""
    found = [file for file in folder.iterdir() if file.name.endswith(_ENDINGS) and (every or file.is_file())]
    return sorted(found, key=lambda file: [(text, int(part or 0)) for text, part in re.findall(r"(\D*)(\d*)", file.name)])


def _starts_with_plane(head: bytes) -> bool:
    """Field 1 with a message in it that is only made of fields of a plane, its name first after its id, as far as we see."""
    try:
        here = 0
        while head[here] == 0x0A:
            length, here = _wire.varint(head, here + 1, len(head))
            if length:
                return length < _LARGEST and _is_plane(head, here, here + length)
    except (IndexError, Damage):
        pass
    return False


def _is_plane(head: bytes, here: int, end: int) -> bool:
    if head[here] == 0x08:
        _, here = _wire.varint(head, here + 1, len(head))
    if head[here] != 0x12:
        return False
    length, here = _wire.varint(head, here + 1, len(head))
    name = head[here : here + length]
    try:
        if len(name) < max(length, 1) or here + length > end or not name.decode().isprintable():
            return False
    except UnicodeDecodeError:
        return False
    here += length
    while here < min(end, len(head)):
        if head[here] not in (0x1A, 0x22, 0x2A, 0x32):
            return False
        if len(head) - here < 11:  # the length may be out of sight
            break
        length, here = _wire.varint(head, here + 1, len(head))
        here += length
    return here <= end


def read_session(path: Path, options: Options, rank: int, wall: WallClock | None) -> Trace:
    """One file of a capture, recorded while the wall clock was set."""
    return _read(path, options, rank, wall)


def _read(path: Path, options: Options, rank: int, wall: WallClock | None = None) -> Trace:
    buffer, notes = _load(path, options)
    try:
        return _assemble(path, Space(buffer, tolerant=options.partial), notes, options, rank, wall)
    except Damage as damage:
        raise DataError(path, f"{damage.what}; --partial reads what is whole", f"byte {damage.offset:,}") from damage


class _Note(NamedTuple):
    where: str
    what: str
    lost: int


def _load(path: Path, options: Options) -> tuple[_wire.Buffer, list[_Note]]:
    """The file in memory, unpacked."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            size = file.seek(0, 2)
            padded = bytearray(size + _wire.PADDING)
            file.seek(0)
            file.readinto(memoryview(padded)[:size])
            return _wire.Buffer(padded), []
        file.seek(0)
        data, notes = bytearray(), []
        unpacker = zlib.decompressobj(31)
        while chunk := unpacker.unconsumed_tail or file.read(1 << 20):
            before = unpacker.copy()
            try:
                data += unpacker.decompress(chunk, 1 << 24)
            except zlib.error as error:
                data += _up_to_damage(before, chunk)
                notes.append(_Note(f"byte {file.tell():,}", f"the gzip data is damaged ({error})", 0))
                break
            if len(data) > _LARGEST:
                raise DataError(path, f"unpacks to more than {_LARGEST:,} bytes, which no XPlane file is")
            if unpacker.eof and unpacker.unused_data:
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(31)
                file.seek(-len(rest), 1)
        if not notes and not unpacker.eof:
            notes.append(_Note(f"byte {file.tell():,}", "the gzip data is cut off", 0))
        if notes and not options.partial:
            raise DataError(path, f"{notes[0].what}; --partial reads what is whole", notes[0].where)
        return _wire.Buffer(data + bytes(_wire.PADDING)), notes


def _up_to_damage(unpacker: "zlib._Decompress", chunk: bytes) -> bytes:
    """What a damaged piece holds before the damage: zlib gives nothing back for a piece with an error in it."""
    found = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in chunk:
            found += unpacker.decompress(bytes((byte,)))
    return bytes(found)


_LATEST_NS = 1 << 61


def _assemble(path: Path, space: Space, notes: list[_Note], options: Options, rank: int, wall: WallClock | None) -> Trace:
    planes = space.planes()
    about = {key: value for plane in planes if plane.name in _ABOUT for key, value in _values(plane).items()}
    programs = events.Programs(space, planes)
    jax = "jax_version" in about or any(name.startswith("PjitFunction(") for plane in planes for name in plane.names)
    start_ns = about.get("profile_start_time")
    if isinstance(start_ns, int) and not 0 <= start_ns < _LATEST_NS:
        notes = [*notes, _Note("", f"profile_start_time is {start_ns}, which is no time: times count from the start of the profiler", 0)]
        start_ns = None
    readings: list[events.Reading] = []
    tracks: list[dict[str, object]] = []
    parts: list[tuple[pl.DataFrame, ...]] = []
    passing: list[Path] = []
    broken = aggregated = unplaced = 0
    for plane in planes:
        began = start_ns if isinstance(start_ns, int) else None
        reading = events.Reading(plane, len(tracks), programs, began, tensorflow=not jax, wall=wall)
        readings.append(reading)
        tracks += reading.tracks
        for batch in plane.batches(lambda done: options.progress(done, space.buffer.size)):
            spans, *others = reading.frames(batch)
            passing.append(options.scratch / f"{rank}.{len(parts):06d}.arrow")
            spans.select(_PASSING).write_ipc(passing[-1], compression="lz4")
            parts.append((spans.drop(_PASSING), *others))
            broken, aggregated, unplaced = broken + batch.broken, aggregated + batch.aggregated, unplaced + batch.unplaced
    if sum(part[0].height for part in parts) == 0:
        raise DataError(path, "the trace holds no events")
    spans, memory, counters = (pl.concat(frames) for frames in zip(*parts, strict=True))
    spans, lanes = links.apart(spans, tracks)
    spans = links.unshared(links.linked(links.nested(spans)))
    steps, remarks = links.steps(spans)
    spans = links.stepped(spans, steps)
    if unplaced:
        notes = [*notes, _Note("", f"{units.count(unplaced, 'event')} {BETWEEN_TWO}", unplaced)]
    if wall and isinstance(start_ns, int) and wall.shows_before(start_ns):
        what = "the profiler dropped events that followed: the machine's clock was set back to before its start"
        notes = [*notes, _Note("", what, 0)]
    notes = [*notes, *_damage(space, broken), *_remarks(space, readings, programs, aggregated), *(_Note("", what, 0) for what in remarks)]
    tables = {
        "spans": pl.concat([spans.lazy(), pl.concat([pl.scan_ipc(file) for file in passing])], how="horizontal"),
        "tracks": lanes,
        "steps": with_passes(steps, spans),
        "counters": pl.concat([links.memory_counters(memory), counters], how="diagonal"),
        "allocations": links.allocations(memory),
        "devices": _devices(readings),
        "problems": pl.DataFrame(notes, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path))
        ),
    }
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    return Trace(ranked, _meta(space, about, spans, rank, jax))


_ABOUT = ("/host:metadata", "Task Environment")


def _values(plane: Plane) -> dict[str, object]:
    """The stats of the plane itself."""
    return {plane.texts[name]: plane.value(plane.stats, row) for row, name in enumerate(plane.stats.name.tolist())}


def _damage(space: Space, broken: int) -> Iterator[_Note]:
    """What --partial left out. A file that is cut off breaks a plane, a line and an event at once: one note says so."""
    cut = [damage for damage, at_end in space.damage if at_end]
    if cut:
        yield _Note(f"byte {space.buffer.size:,}", f"the file is cut off: {cut[0].what}", max(broken, 1))
    elif broken:
        yield _Note("", f"{units.count(broken, 'event is', 'events are')} damaged", broken)
    for damage, at_end in space.damage:
        if not at_end:
            yield _Note(f"byte {damage.offset:,}", damage.what, 0)


def _remarks(space: Space, readings: list[events.Reading], programs: events.Programs, aggregated: int) -> Iterator[_Note]:
    yield from (_Note("", f"the profiler reports an error: {text}", 0) for text in space.errors)
    yield from (_Note("", f"the profiler warns: {text}", 0) for text in space.warnings)
    for number, damage in programs.unreadable:
        yield _Note(f"byte {damage.offset:,}", f"the description of program {number} cannot be read ({damage.what}): no scopes for it", 0)
    for reading in readings:
        dropped = _values(reading.plane).get("dropped_traces")
        if isinstance(dropped, int) and dropped:
            yield _Note(reading.plane.name, f"the profiler dropped {units.count(dropped, 'event')}", dropped)
        if reading.nameless:
            yield _Note(
                reading.plane.name,
                f"{units.count(reading.nameless, 'event has', 'events have')} no name: the file does not say what they are",
                0,
            )
    if aggregated:
        yield _Note("", f"{units.count(aggregated, 'event is a count', 'events are counts')} without a time: left out", aggregated)


def _devices(readings: list[events.Reading]) -> pl.DataFrame:
    rows: dict[tuple[str, int], dict[str, object]] = {}
    for reading in readings:
        if reading.device is None or not reading.plane.name.startswith(("/device:GPU:", "/device:TPU:")):
            continue
        said = _values(reading.plane)
        number, kind = int(reading.device[2]), reading.device[1].lower()
        row = {
            "device": number,
            "name": said.get("gpu_device_name") or said.get("device_type_string") or None,
            "kind": kind,
            "cores": cores if (cores := _times(said.get("core_count"), 1)) is not None and cores < 2**31 else None,
            "clock_hz": _times(said.get("clock_rate"), 1_000),
            "memory_bytes": _times(said.get("memory_size"), 1),
            "peak_flops": _times(said.get("peak_teraflops_per_second"), 10**12),
            "peak_bandwidth": _times(said.get("memory_bandwidth"), 1) or _times(said.get("peak_hbm_bw_gigabytes_per_second"), 10**9),
        }
        rows.setdefault((kind, number), row)
    columns = ("device", "name", "kind", "cores", "clock_hz", "memory_bytes", "peak_flops", "peak_bandwidth")
    return pl.DataFrame(list(rows.values()), schema={name: schema.TABLES["devices"][name] for name in columns}, strict=False)


def _times(value: object, factor: int) -> int | None:
    if not isinstance(value, int | float) or not 0 < value * factor < 1 << 62:
        return None
    return round(value * factor)


def _meta(space: Space, about: dict[str, object], spans: pl.DataFrame, rank: int, jax: bool) -> Meta:
    tensorflow = not jax and bool((spans["kind"] == "op").any())
    return Meta(
        format="xplane",
        framework="jax" if jax else "tensorflow" if tensorflow else "",
        versions={key: str(value) for key, value in about.items() if key.endswith("_version")},
        ranks=[rank],
        options={"with_stack": True} if (spans["kind"] == "python").any() else {},
        extra={"hosts": space.hosts} | {key: value for key, value in about.items() if not key.endswith("_version")},
    )
