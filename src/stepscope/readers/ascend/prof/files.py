"""The files of an Ascend PROF directory: descriptions of the machine, and records from the concatenated slices of each stream."""

import configparser
import itertools
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import units
from stepscope.model.intervals import Bools, Ints
from stepscope.readers.common.documents import parse_json, printable_name

Records = NDArray[Any]
HOST_MAGIC = 0x5A5A
DEVICE_MAGIC = 0x6BD3
_NOT_RAW = (".done", ".complete", ".zip")
_YEARS_NS = 10 * 365 * 86_400 * 10**9
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")
_RESYNCS = 256  # realignments per stream; after these, the rest is decoded without realignment


class Notes:
    """Data that could not be read, as rows of `problems`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: dict[Path, int] = {}  # number of lost records per file
        self._rows: list[dict[str, object]] = []

    def add(self, file: Path | str, text: str, lost: int = 0, where: str = "") -> None:
        name = str(file.relative_to(self.root)) if isinstance(file, Path) and file.is_relative_to(self.root) else str(file)
        self._rows.append({"file": printable_name(name), "where": where, "what": printable_name(text), "lost": lost})

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows, schema={"file": pl.String, "where": pl.String, "what": pl.String, "lost": pl.Int64})


class Side(NamedTuple):
    """A data source of the directory, `host` or `device_N`: its raw files by name, and the contents of its other files."""

    path: Path
    device: int | None
    raw: dict[str, Path]
    info: dict[str, Any]
    sample: dict[str, Any]
    start: dict[str, Any]  # start_info, that of another folder if it is missing
    host_start: dict[str, int]  # host_start.log likewise
    knows_start: bool = True  # whether host_start.log is its own
    expanded: bool = False  # more streams than the fields of a record can number: another encoding of stream and task

    def slices(self, pattern: str) -> list[Path]:
        """The slices of one stream, in the order in which they were written."""
        paths = [path for name, path in self.raw.items() if re.fullmatch(pattern + r"(\.slice_\d+)?", name)]
        return sorted(paths, key=_slice_number)

    @property
    def level(self) -> str:
        """The profiling level: `l0`, `l1` in earlier CANN, `level0`, `level1` in current CANN."""
        return str(self.sample.get("profLevel") or self.sample.get("prof_level") or "")

    @property
    def current(self) -> bool:
        """Whether current CANN recorded it: its msprof computes some figures differently than earlier versions."""
        return self.level.startswith("level")

    @property
    def chip(self) -> str:
        return str(self.info.get("platform_version", "")).strip()

    @property
    def unit(self) -> dict[str, Any]:
        """The entry DeviceInfo: the chip."""
        units = self.info.get("DeviceInfo")
        return units[0] if isinstance(units, list) and units and isinstance(units[0], dict) else {}

    @property
    def core_hertz(self) -> int:
        """The nominal frequency of the AI cores; 0 if unknown."""
        return int(_frequency(self.unit.get("aic_frequency")) * 1_000_000)

    def cores(self, kind: str) -> int:
        """The number of cores of a kind, `ai_core_num` or `aiv_num`; 0 if unknown or implausible."""
        count = int(number(self.unit.get(kind)))
        return count if 0 < count < 2**20 else 0

    @property
    def host_mhz(self) -> Fraction:
        processors = self.info.get("CPU")
        first = processors[0] if isinstance(processors, list) and processors and isinstance(processors[0], dict) else {}
        return _frequency(first.get("Frequency"))


def sides(root: Path, notes: Notes) -> tuple[Side | None, list[Side]]:
    """The host, if it was recorded, and the devices sorted by number."""
    host = _side(root / "host", None, notes) if (root / "host").is_dir() else None
    devices = [
        _side(path, int(match[1]), notes)
        for path in sorted(root.iterdir())
        if (match := re.fullmatch(r"device_(\d{1,6})", path.name)) and path.is_dir()
    ]
    every = [side for side in (host, *devices) if side]
    host = _with_start(host, every, notes) if host else None
    devices = [_with_start(side, every, notes) for side in devices]
    # Only the host's files contain it; it applies to all devices.
    expanded = any(_is_expanded(side, notes) for side in every)
    chosen = [side._replace(expanded=expanded, sample=side.sample or _sample_of_others(side, every, notes)) for side in devices]
    return host, sorted(chosen, key=lambda side: side.device or 0)


def _sample_of_others(side: Side, every: list[Side], notes: Notes) -> dict[str, Any]:
    """The sample.json of another folder: all folders of a recording have the same settings."""
    other = next((candidate for candidate in every if candidate.sample), None)
    if other is None:
        if any(name.startswith(("ffts_profile.", "aicore.")) for name in side.raw):
            notes.add(side.path, "no readable sample.json: the events that the cores counted are unknown")
        return {}
    notes.add(side.path, f"no readable sample.json: that of {other.path.name} is used instead")
    return other.sample


def _with_start(side: Side, every: list[Side], notes: Notes) -> Side:
    """The folder with the start times of another one where its own are missing: all devices start with the host, within milliseconds."""
    start = next((other.start for other in (side, *every) if other.start), {})
    host_start = next((other.host_start for other in (side, *every) if other.host_start), {})
    for name, borrowed in (("start_info", start is not side.start), ("host_start.log", host_start is not side.host_start)):
        if borrowed and (start if name == "start_info" else host_start):
            notes.add(side.path, f"no readable {name}: that of another folder is used instead")
    return side._replace(start=start, host_start=host_start, knows_start=bool(side.host_start))


_EXPANSION = np.dtype([("magic", "<u2"), ("head", "V22"), ("status", "<u2"), ("rest", "V38")])


def _is_expanded(side: Side, notes: Notes) -> bool:
    expansions = records(side.slices(r"(un)?aging\.compact\.expand_stream_spec"), _EXPANSION, notes, HOST_MAGIC)
    return bool((expansions["status"] == 1).any())


def _side(path: Path, device: int | None, notes: Notes) -> Side:
    info = _first(path, "info.json")
    if info is None:
        notes.add(path, "no info.json: defaults are used for the clock frequency and the chip")
    sample = _first(path, "sample.json")
    start = _json(_first(path, "start_info"), notes)
    return Side(
        path, device, raw_files(path / "data"), _json(info, notes), _json(sample, notes), start, _log(path, "host_start.log", notes)
    )


def raw_files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.endswith(_NOT_RAW)}


def _first(folder: Path, name: str) -> Path | None:
    """The file `name`, or `name` with a device number as suffix."""
    return next((path for path in sorted(folder.glob(f"{name}*")) if path.is_file() and not path.name.endswith(_NOT_RAW)), None)


def _json(path: Path | None, notes: Notes) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        notes.add(path, f"not JSON ({error}): its contents are ignored")
        return {}
    return value if isinstance(value, dict) else {}


def number(text: object) -> Fraction:
    """The exact value of a number in a JSON or log file; 0 for text that is no number, or has more digits than any real value."""
    digits = str(text).strip()
    return Fraction(digits) if _NUMBER.fullmatch(digits) else Fraction(0)


def _frequency(text: object) -> Fraction:
    """In MHz; 0 for an invalid or implausible frequency: a damaged file may contain any number."""
    megahertz = number(text)
    return megahertz if Fraction(1, 1000) <= megahertz <= 100_000 and megahertz.denominator <= 10**6 else Fraction(0)


def bounded_time(nanoseconds: Fraction | int) -> int:
    """The time as an integer; 0 if sums with it could exceed 64 bits."""
    return int(nanoseconds) if -(2**62) < nanoseconds < 2**62 else 0


def _slice_number(path: Path) -> tuple[int, str]:
    match = re.search(r"(\d{1,18})$", path.name)
    return (int(match[1]) if match else 0, path.name)


# Clocks


class Clock(NamedTuple):
    """Converts readings of a counter to wall-clock nanoseconds, with integers: a float of this size has a resolution of 0.25 us."""

    base: int  # the counter's reading at `origin_ns`
    origin_ns: int
    tick_ns: Fraction

    def ns(self, ticks: NDArray[np.uint64]) -> Ints:
        past: Ints = ticks.astype(np.int64) - self.base
        up, down = self.tick_ns.numerator, self.tick_ns.denominator
        if down == 1:
            return past * up + self.origin_ns
        times: Ints = past // down * up + past % down * up // down + self.origin_ns
        return times

    def plausible(self, *times: Ints) -> Bools:
        """Which timestamps are within ten years of the start. A damaged record may contain any value."""
        possible: Bools = np.logical_and.reduce([np.abs(at - self.origin_ns) < _YEARS_NS for at in times])
        return possible

    def drop_implausible(self, rows: pl.DataFrame, side: Side, notes: Notes, noun: str, where: str = "") -> pl.DataFrame:
        """The rows with plausible times that do not end before they start; the others are reported."""
        columns = [name for name in ("at_ns", "start_ns", "end_ns") if name in rows.columns]
        possible = self.plausible(*(rows[name].to_numpy() for name in columns))
        if "end_ns" in columns:
            possible &= (rows["end_ns"] >= rows["start_ns"]).to_numpy()
        if possible.all():
            return rows
        notes.add(side.path / "data", f"{noun} with invalid timestamps", int((~possible).sum()), where)
        return rows.filter(pl.Series(possible))


def host_clock(host: Side, devices: list[Side]) -> Clock:
    log = host.host_start
    # Each info.json contains the frequency of the host's counter, so one of them is enough.
    mhz = next((side.host_mhz for side in (host, *devices) if side.info), Fraction(0))
    past = wall(host)
    if mhz <= 0:  # the counter is the monotonic clock
        return Clock(0, past, Fraction(1))
    return Clock(log.get("cntvct", 0), bounded_time(log.get("clock_monotonic_raw", 0) + past), 1000 / mhz)


def framework_clock(profiler_info: dict[str, Any], host: Side | None, devices: list[Side]) -> Clock | None:
    """The clock of the framework's own records, from CANN's files or from profiler_info.json; None if neither contains it."""
    start, end = (part if isinstance(part := profiler_info.get(key), dict) else {} for key in ("start_info", "end_info"))
    counts = start.get("syscnt_enable", True)  # MindSpore omits it and always reads the counter
    if host is not None and host.path.is_dir():
        clock = host_clock(host, devices)
        return clock if counts else Clock(0, wall(host), Fraction(1))
    past = number(end.get("collectionTimeEnd")) - number(end.get("MonotonicTimeEnd"))
    if not past:
        return None
    mhz = _frequency(start.get("freq"))
    if not counts or mhz <= 0:
        return Clock(0, bounded_time(past), Fraction(1))
    return Clock(bounded_time(number(start.get("start_cnt"))), bounded_time(number(start.get("start_monotonic")) + past), 1000 / mhz)


def device_clock(device: Side, host: Side | None, usual_mhz: int, notes: Notes) -> tuple[Clock, bool]:
    """The device's clock, and whether it is aligned with the host's clock."""
    mhz = _frequency(device.unit.get("hwts_frequency"))
    if mhz <= 0:
        mhz = Fraction(usual_mhz)
        notes.add(
            device.path, f"the frequency of the device's counter is not recorded: {usual_mhz} MHz is assumed, the default of this chip"
        )
    log = device.host_start
    start = _log(device.path, "dev_start.log", notes)
    host_mhz = device.host_mhz or (host.host_mhz if host else Fraction(0))
    late = int(log.get("cntvct_diff", 0) * 1000 / host_mhz) if host_mhz > 0 else 0
    origin = log.get("clock_monotonic_raw", start.get("clock_monotonic_raw", 0)) + late + wall(device)
    return Clock(start.get("cntvct", 0), bounded_time(origin), 1000 / mhz), "cntvct" in start and device.knows_start


def counter_clock(device: Side) -> Clock:
    """The host's counter, from the files of the device: the driver's samples have its ticks as timestamps."""
    log = device.host_start
    past = wall(device)
    if device.host_mhz <= 0:
        return Clock(0, past, Fraction(1))
    return Clock(log.get("cntvct", 0), bounded_time(log.get("clock_monotonic_raw", 0) + past), 1000 / device.host_mhz)


def device_start(device: Side) -> int:
    """The reading of the device's monotonic clock at the start."""
    path = _first(device.path, "dev_start.log")
    match = re.search(r"clock_monotonic_raw\s*[:=]\s*(\d{1,18})", path.read_text("utf-8", "replace")) if path else None
    return int(match[1]) if match else 0


def wall(side: Side) -> int:
    """Offset from the monotonic clock to the wall clock."""
    return bounded_time(int(number(side.start.get("collectionTimeBegin")) * 1000) - int(number(side.start.get("clockMonotonicRaw"))))


def begin(side: Side) -> int:
    """Start of the recording, wall-clock time."""
    return bounded_time(number(side.start.get("collectionTimeBegin")) * 1000)


def _log(folder: Path, name: str, notes: Notes) -> dict[str, int]:
    """The integers in lines of `key: value`, of the first section if the file has sections."""
    path = _first(folder, name)
    if path is None:
        notes.add(folder, f"no {name}")
        return {}
    text = path.read_text("utf-8", "replace")
    config = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        config.read_string(text if text.lstrip().startswith("[") else f"[all]\n{text}")
    except configparser.Error as error:
        notes.add(path, f"not lines of key: value ({str(error).splitlines()[0]})")
    section = next(iter(config.sections()), None)
    values = config.items(section) if section else []
    return {key: int(value) for key, value in values if re.fullmatch(r"\d{1,18}", value.strip())}


# Records


def records(files: list[Path], dtype: np.dtype[Any], notes: Notes, magic: int | None = None, at: str = "magic") -> Records:
    """The records of one stream: slices are concatenated first, because a record may continue in the next slice.

    The first record may lack its beginning (the ring buffer overflowed), the last one its end (the job was killed). Records with
    a magic number are realigned by it: at the start, and after missing or extra bytes.
    """
    if not files:
        return np.empty(0, dtype)
    data = b"".join(path.read_bytes() for path in files)
    size = dtype.itemsize
    if not data:
        notes.add(files[0], "the file is empty")
        return np.empty(0, dtype)
    over = len(data) % size
    if magic is None:
        if over:
            notes.add(
                files[0],
                f"{units.count(over, 'byte at the beginning belongs', 'bytes at the beginning belong')} to an incomplete record",
                1,
            )
        return np.frombuffer(data, dtype, offset=over)
    place = _offset(dtype, at)
    parts, bad = [], 0
    start, tries = _aligned_offset(data, 0, size, place, magic, over), 0
    skipped = start or 0
    while start is not None:
        part = np.frombuffer(data, dtype, count=(len(data) - start) // size, offset=start)
        good = part[at] == magic
        stop = _first_misaligned(good)
        end = start + (stop or 0) * size
        if stop is not None and tries < _RESYNCS and (next_at := _aligned_offset(data, end, size, place, magic, None)) is not None:
            parts.append(part[:stop][good[:stop]])
            bad += int((~good[:stop]).sum())
            skipped += next_at - end
            start, tries = next_at, tries + 1
            continue
        parts.append(part if good.all() else part[good])
        bad += int((~good).sum())
        start = None
    whole = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, dtype)
    _report_skipped(files[0], data, whole, size, over, bad, skipped, notes)
    return whole


def _offset(dtype: np.dtype[Any], field: str) -> int:
    fields = dtype.fields
    assert fields is not None
    return int(fields[field][1])


def _aligned_offset(data: bytes, start: int, size: int, place: int, magic: int, over: int | None) -> int | None:
    """Offset of the first aligned record from `start` on: at a likely beginning, else where two magic numbers are one record apart."""
    ahead = np.frombuffer(data, np.uint8, count=min(len(data) - start, 64 * size), offset=start)
    hits = (ahead[:-1] == magic & 0xFF) & (ahead[1:] == magic >> 8) if len(ahead) > 1 else np.empty(0, np.bool_)
    begins = hits[place:]
    known = set(np.flatnonzero(begins).tolist())
    # At a likely beginning most records are intact, but the first may be damaged.
    likely = () if over is None else (at for at in (over, 0) if 2 * begins[at::size].sum() > len(begins[at::size]))
    follows = (at for at in sorted(known) if at + size in known or at + size + place + 2 > len(ahead))
    position = next(itertools.chain(likely, follows), None)
    if position is None:
        return None if over is None else start + over
    return start + position


def _first_misaligned(good: Bools) -> int | None:
    """The first of two or more invalid records in a row, which show misalignment; a single one is a damaged record."""
    bad = ~good
    run = np.flatnonzero(bad[:-1] & bad[1:])
    return int(run[0]) if len(run) else None


def _report_skipped(file: Path, data: bytes, whole: Records, size: int, over: int, bad: int, skipped: int, notes: Notes) -> None:
    rest = len(data) - len(whole) * size - bad * size
    if bad:
        notes.damaged[file] = bad
        notes.add(file, "records with a wrong magic number", bad)
    if rest > 0 and (over or skipped):
        notes.add(file, f"{units.count(rest, 'byte belongs', 'bytes belong')} to no complete record", max(1, rest // size))


def report_lost_records(counter: NDArray[Any], file: Path, notes: Notes, bits: int = 4) -> None:
    """Report lost records. Devices number records modulo 16: a gap in the numbers is the minimum number of lost records."""
    if len(counter) < 2:
        return
    numbers: Ints = counter.astype(np.int64)
    missing: Ints = (numbers[1:] - numbers[:-1] - 1) & ((1 << bits) - 1)
    jumps = int((missing > 0).sum())
    dropped = int(missing.sum()) - notes.damaged.get(file, 0)
    # If most numbers have gaps, the field is not a record number.
    if dropped > 0 and jumps <= max(4, len(counter) // 8):
        notes.add(file, "records that the device dropped, at least: gaps in the record numbers", dropped)


def lines(files: list[Path]) -> list[str]:
    """The lines of a text whose slices may begin anywhere."""
    return b"".join(path.read_bytes() for path in files).decode("utf-8", "replace").splitlines()


def args_json(columns: Mapping[str, pl.Expr | str]) -> pl.Expr:
    """JSON text of these columns, for `args`."""
    parts = [(pl.col(column) if isinstance(column, str) else column).alias(name) for name, column in columns.items()]
    return pl.struct(parts).struct.json_encode()
