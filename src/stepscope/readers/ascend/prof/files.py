"""The files of an Ascend PROF directory: what they say of the machine, their slices put together, and records cut from them."""

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
_RESYNCS = 256  # how often a stream may lose its rhythm before the rest of it is given up


class Notes:
    """What could not be read, as rows of `problems`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: dict[Path, int] = {}  # records of a file that are known to be lost
        self._rows: list[dict[str, object]] = []

    def add(self, file: Path | str, what: str, lost: int = 0, where: str = "") -> None:
        name = str(file.relative_to(self.root)) if isinstance(file, Path) and file.is_relative_to(self.root) else str(file)
        self._rows.append({"file": printable_name(name), "where": where, "what": printable_name(what), "lost": lost})

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows, schema={"file": pl.String, "where": pl.String, "what": pl.String, "lost": pl.Int64})


class Side(NamedTuple):
    """A data source of the directory, `host` or `device_N`: its raw files by name, and what its small files say."""

    path: Path
    device: int | None
    raw: dict[str, Path]
    info: dict[str, Any]
    sample: dict[str, Any]
    expanded: bool = False  # more streams than the device's records have room for: their numbers are packed another way

    def slices(self, pattern: str) -> list[Path]:
        """The pieces of one stream, in the order in which they were written."""
        paths = [path for name, path in self.raw.items() if re.fullmatch(pattern + r"(\.slice_\d+)?", name)]
        return sorted(paths, key=_slice_number)

    @property
    def level(self) -> str:
        """How much was asked for: `l0`, `l1` as earlier CANN calls it, `level0`, `level1` as current CANN does."""
        return str(self.sample.get("profLevel") or self.sample.get("prof_level") or "")

    @property
    def current(self) -> bool:
        """Of current CANN, whose msprof exports some figures in another way than that of earlier CANN."""
        return self.level.startswith("level")

    @property
    def chip(self) -> str:
        return str(self.info.get("platform_version", "")).strip()

    @property
    def unit(self) -> dict[str, Any]:
        """What the directory says of the chip itself."""
        units = self.info.get("DeviceInfo")
        return units[0] if isinstance(units, list) and units and isinstance(units[0], dict) else {}

    @property
    def core_hertz(self) -> int:
        """The usual frequency of its AI cores; 0 if unknown."""
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
    """The host's part, if it is there, and those of the devices by number."""
    host = _side(root / "host", None, notes) if (root / "host").is_dir() else None
    devices = [
        _side(path, int(match[1]), notes)
        for path in sorted(root.iterdir())
        if (match := re.fullmatch(r"device_(\d{1,6})", path.name)) and path.is_dir()
    ]
    every = [side for side in (host, *devices) if side]
    # Only the host says it, of all devices alike.
    expanded = any(_is_expanded(side, notes) for side in every)
    chosen = [side._replace(expanded=expanded, sample=side.sample or _sample_of_others(side, every, notes)) for side in devices]
    return host, sorted(chosen, key=lambda side: side.device or 0)


def _sample_of_others(side: Side, every: list[Side], notes: Notes) -> dict[str, Any]:
    """What to record is asked once for all: a folder that lost its sample.json is none the worse for it."""
    other = next((one for one in every if one.sample), None)
    if other is None:
        if any(name.startswith(("ffts_profile.", "aicore.")) for name in side.raw):
            notes.add(side.path, "no sample.json can be read: which events the cores counted is not known")
        return {}
    notes.add(side.path, f"no sample.json can be read: that of {other.path.name} is used in its place")
    return other.sample


_EXPANSION = np.dtype([("magic", "<u2"), ("head", "V22"), ("status", "<u2"), ("rest", "V38")])


def _is_expanded(side: Side, notes: Notes) -> bool:
    expansions = records(side.slices(r"(un)?aging\.compact\.expand_stream_spec"), _EXPANSION, notes, HOST_MAGIC)
    return bool((expansions["status"] == 1).any())


def _side(path: Path, device: int | None, notes: Notes) -> Side:
    info = _first(path, "info.json")
    if info is None:
        notes.add(path, "no info.json: clock frequency and chip are taken as usual for such files")
    sample = _first(path, "sample.json")
    return Side(path, device, raw_files(path / "data"), _json(info, notes), _json(sample, notes))


def raw_files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.endswith(_NOT_RAW)}


def _first(folder: Path, name: str) -> Path | None:
    """`name`, or the same with a device number behind it."""
    return next((path for path in sorted(folder.glob(f"{name}*")) if path.is_file() and not path.name.endswith(_NOT_RAW)), None)


def _json(path: Path | None, notes: Notes) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        notes.add(path, f"not JSON ({error}): what it says is unknown")
        return {}
    return value if isinstance(value, dict) else {}


def number(text: object) -> Fraction:
    """A number as the small files write it, exactly; 0 where it is none, or one of more digits than anything counts."""
    digits = str(text).strip()
    return Fraction(digits) if _NUMBER.fullmatch(digits) else Fraction(0)


def _frequency(text: object) -> Fraction:
    """In MHz; 0 where it is none, or one that no counter has: damage may leave any number."""
    megahertz = number(text)
    return megahertz if Fraction(1, 1000) <= megahertz <= 100_000 and megahertz.denominator <= 10**6 else Fraction(0)


def bounded_time(nanoseconds: Fraction | int) -> int:
    """0 for one that is not within what 64 bits hold, with room to add others."""
    return int(nanoseconds) if -(2**62) < nanoseconds < 2**62 else 0


def _slice_number(path: Path) -> tuple[int, str]:
    match = re.search(r"(\d{1,18})$", path.name)
    return (int(match[1]) if match else 0, path.name)


# Clocks


class Clock(NamedTuple):
    """A counter's reading in nanoseconds of wall-clock time, in integers: floats of today's date have a grain of 0.25 microseconds."""

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


def host_clock(host: Side, devices: list[Side], notes: Notes) -> Clock:
    log = _log(host.path, "host_start.log", notes)
    # Every part says the frequency of the host's counter: one that lacks its info.json is none the worse.
    mhz = next((side.host_mhz for side in (host, *devices) if side.info), Fraction(0))
    past = wall(host, notes)
    if mhz <= 0:  # the counter is the monotonic clock
        return Clock(0, past, Fraction(1))
    return Clock(log.get("cntvct", 0), bounded_time(log.get("clock_monotonic_raw", 0) + past), 1000 / mhz)


def framework_clock(said: dict[str, Any], host: Side | None, devices: list[Side], notes: Notes) -> Clock | None:
    """The clock of what a framework records beside CANN, from CANN's files or from profiler_info.json; None where neither says it."""
    start, end = (part if isinstance(part := said.get(key), dict) else {} for key in ("start_info", "end_info"))
    counts = start.get("syscnt_enable", True)  # MindSpore does not say: it always reads the counter
    if host is not None and host.path.is_dir():
        clock = host_clock(host, devices, notes)
        return clock if counts else Clock(0, wall(host, notes), Fraction(1))
    past = number(end.get("collectionTimeEnd")) - number(end.get("MonotonicTimeEnd"))
    if not past:
        return None
    mhz = _frequency(start.get("freq"))
    if not counts or mhz <= 0:
        return Clock(0, bounded_time(past), Fraction(1))
    return Clock(bounded_time(number(start.get("start_cnt"))), bounded_time(number(start.get("start_monotonic")) + past), 1000 / mhz)


def device_clock(device: Side, host: Side | None, usual_mhz: int, notes: Notes) -> tuple[Clock, bool]:
    """And whether the device's times can be compared with those of the host."""
    mhz = _frequency(device.unit.get("hwts_frequency"))
    if mhz <= 0:
        mhz = Fraction(usual_mhz)
        notes.add(
            device.path, f"the frequency of the device's counter is not recorded: taken as {usual_mhz} MHz, as is usual for this chip"
        )
    log = _log(device.path, "host_start.log", notes)
    start = _log(device.path, "dev_start.log", notes)
    host_mhz = device.host_mhz or (host.host_mhz if host else Fraction(0))
    late = int(log.get("cntvct_diff", 0) * 1000 / host_mhz) if host_mhz > 0 else 0
    origin = log.get("clock_monotonic_raw", start.get("clock_monotonic_raw", 0)) + late + wall(device, notes)
    return Clock(start.get("cntvct", 0), bounded_time(origin), 1000 / mhz), "cntvct" in start


def counter_clock(device: Side, notes: Notes) -> Clock:
    """The counter of the host as the device's folder has it: what the driver samples is in its ticks."""
    log = _log(device.path, "host_start.log", Notes(notes.root))  # what is missing was said for the device's own clock
    past = wall(device, notes)
    if device.host_mhz <= 0:
        return Clock(0, past, Fraction(1))
    return Clock(log.get("cntvct", 0), bounded_time(log.get("clock_monotonic_raw", 0) + past), 1000 / device.host_mhz)


def device_start(device: Side) -> int:
    """The device's own monotonic clock at the start."""
    path = _first(device.path, "dev_start.log")
    match = re.search(r"clock_monotonic_raw\s*[:=]\s*(\d{1,18})", path.read_text("utf-8", "replace")) if path else None
    return int(match[1]) if match else 0


def wall(side: Side, notes: Notes) -> int:
    """What to add to the monotonic clock for the date."""
    begin = _json(_first(side.path, "start_info"), notes)
    return bounded_time(int(number(begin.get("collectionTimeBegin")) * 1000) - int(number(begin.get("clockMonotonicRaw"))))


def begin(side: Side, notes: Notes) -> int:
    """When the recording began, in the time of day."""
    return bounded_time(number(_json(_first(side.path, "start_info"), notes).get("collectionTimeBegin")) * 1000)


def _log(folder: Path, name: str, notes: Notes) -> dict[str, int]:
    """Lines of `key: value`, in the first section if there are sections."""
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
    """The records of one stream: its slices put together and cut, so that a record may lie across two of them.

    A ring buffer that ran over has lost the head of its first record; a job that was killed, the tail of its last one. Where
    records carry a magic number it tells which; where bytes are missing or too many in between, it finds the next whole record.
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
                f"{units.count(over, 'byte at the beginning belongs', 'bytes at the beginning belong')} to a record that is not whole",
                1,
            )
        return np.frombuffer(data, dtype, offset=over)
    place = _offset(dtype, at)
    parts, bad = [], 0
    here, tries = _rhythm(data, 0, size, place, magic, over), 0
    skipped = here or 0
    while here is not None:
        part = np.frombuffer(data, dtype, count=(len(data) - here) // size, offset=here)
        good = part[at] == magic
        stop = _out_of_step(good)
        if stop is not None and tries < _RESYNCS and (next_at := _rhythm(data, here + stop * size, size, place, magic, None)) is not None:
            parts.append(part[:stop][good[:stop]])
            bad += int((~good[:stop]).sum())
            skipped += next_at - (here + stop * size)
            here, tries = next_at, tries + 1
            continue
        parts.append(part if good.all() else part[good])
        bad += int((~good).sum())
        here = None
    whole = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, dtype)
    _tell(files[0], data, whole, size, over, bad, skipped, notes)
    return whole


def _offset(dtype: np.dtype[Any], field: str) -> int:
    fields = dtype.fields
    assert fields is not None
    return int(fields[field][1])


def _rhythm(data: bytes, start: int, size: int, place: int, magic: int, over: int | None) -> int | None:
    """Where from `start` on records follow one another: at a likely beginning, else where two magic numbers are one record apart."""
    ahead = np.frombuffer(data, np.uint8, count=min(len(data) - start, 64 * size), offset=start)
    hits = (ahead[:-1] == magic & 0xFF) & (ahead[1:] == magic >> 8) if len(ahead) > 1 else np.empty(0, np.bool_)
    begins = hits[place:]
    known = set(np.flatnonzero(begins).tolist())
    # At a likely beginning most records are whole, though the first may not be.
    likely = () if over is None else (at for at in (over, 0) if 2 * begins[at::size].sum() > len(begins[at::size]))
    follows = (at for at in sorted(known) if at + size in known or at + size + place + 2 > len(ahead))
    position = next(itertools.chain(likely, follows), None)
    if position is None:
        return None if over is None else start + over
    return start + position


def _out_of_step(good: Bools) -> int | None:
    """The first of two or more records in a row that are none: one alone is a damaged record, more are records cut wrongly."""
    bad = ~good
    run = np.flatnonzero(bad[:-1] & bad[1:])
    return int(run[0]) if len(run) else None


def _tell(file: Path, data: bytes, whole: Records, size: int, over: int, bad: int, skipped: int, notes: Notes) -> None:
    rest = len(data) - len(whole) * size - bad * size
    if bad:
        notes.damaged[file] = bad
        notes.add(file, "records with a wrong magic number", bad)
    if rest > 0 and (over or skipped):
        notes.add(file, f"{units.count(rest, 'byte belongs', 'bytes belong')} to no whole record", max(1, rest // size))


def lost(counter: NDArray[Any], file: Path, notes: Notes, bits: int = 4) -> None:
    """Devices number their records modulo 16: a jump means that at least that number of records is missing."""
    if len(counter) < 2:
        return
    numbers: Ints = counter.astype(np.int64)
    missing: Ints = (numbers[1:] - numbers[:-1] - 1) & ((1 << bits) - 1)
    jumps = int((missing > 0).sum())
    dropped = int(missing.sum()) - notes.damaged.get(file, 0)
    # Where most numbers jump, this counter counts something else.
    if dropped > 0 and jumps <= max(4, len(counter) // 8):
        notes.add(file, "records that the device dropped, at least: their numbers jump", dropped)


def lines(files: list[Path]) -> list[str]:
    """Text that may be cut anywhere into slices."""
    return b"".join(path.read_bytes() for path in files).decode("utf-8", "replace").splitlines()


def told(columns: Mapping[str, pl.Expr | str]) -> pl.Expr:
    """JSON text of these columns, for `args`."""
    parts = [(pl.col(column) if isinstance(column, str) else column).alias(name) for name, column in columns.items()]
    return pl.struct(parts).struct.json_encode()
