"""Samples of the host by msprof: processors, memory, disk, network, and system calls. Text, in nanoseconds.

host_cpu.data           `time NS`, the machine's uptime, then /proc/PID/task/TID/stat of each thread
host_mem.data           NS and /proc/PID/statm
host_disk.data          `start_time NS`, then lines of iotop, one for each interval
host_network.data       `time NS`, then /proc/net/dev
host_syscall.data       lines of `perf trace`; host_pthreadcall.data those of `ltrace`
host_sys_cpu.data, host_sys_mem.data, SystemCpuUsage.data, Memory.data      `TimeStamp:NS`, then /proc/stat or /proc/meminfo
PID-CpuUsage.data, PID-Memory.data                                          the same of one process
"""

import re
from collections.abc import Iterator

import polars as pl

from stepscope.model.columns.counters import COLUMNS, of_device
from stepscope.readers.ascend.prof.files import Notes, Side, lines, number

_Sample = tuple[str | None, str, int, float, str]
_SAMPLES = {"process": pl.String, "series": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
_PAGE = 4096
_SLOWEST = 1e-6  # samples per second: a lower frequency is invalid
_UNITS = {"B/s": 1, "K/s": 1024, "M/s": 1024**2, "G/s": 1024**3}
_TICKS = 100  # default of the kernel's clock, if info.json does not contain it


def read(side: Side, offset_ns: int, notes: Notes) -> pl.DataFrame:
    """Samples with the columns of counters. `offset_ns` converts the monotonic clock to the time of day."""
    pid = str(side.info.get("pid", "")).strip() or "?"
    frames = [*_processors(side, pid), *_memory(side, pid), *_disk(side, pid, notes), *_network(side), *_machine(side)]
    samples = pl.concat([pl.DataFrame(schema=_SAMPLES), *frames]).with_columns(pl.col("at_ns") + offset_ns)
    name = pl.concat_str(pl.lit("process "), "process", pl.lit(" "), "series")
    text = pl.coalesce(name, "series")
    if side.device is not None:
        rows = samples.select(**of_device(text, "npu", side.device), at_ns="at_ns", value="value", unit="unit")
    else:
        pid_number = pl.when(pl.col("process").str.contains(r"^[1-9][0-9]{0,17}$")).then("process").cast(pl.Int64, strict=False)
        owner = pl.when(pid_number.is_not_null()).then(pl.lit("process"))
        series = pl.when(pl.col("process").is_not_null() & pid_number.is_null()).then(text).otherwise("series")
        rows = samples.select("at_ns", "value", "unit", name=text, series=series, owner=owner, number=pid_number)
    return rows.select(list(COLUMNS)).sort("name", "at_ns", maintain_order=True)


def _blocks(texts: list[str], head: str) -> Iterator[tuple[int, list[str]]]:
    """Each time with the lines that follow it."""
    at, block = None, list[str]()
    for line in texts:
        if match := re.match(rf"{head}\s*:?\s*(\d{{1,18}})", line):
            if at is not None:
                yield at, block
            at, block = int(match[1]), []
        else:
            block.append(line)
    if at is not None:
        yield at, block


def _counts(texts: list[str]) -> bool:
    """Whether all texts are integers that fit a counter."""
    return all(re.fullmatch(r"[0-9]{1,18}", text) for text in texts)


def _processors(side: Side, pid: str) -> Iterator[pl.DataFrame]:
    """Number of cores that the process used, and the use of each core, since the previous sample."""
    ticks = float(number(side.info.get("sysClockFreq"))) or _TICKS
    before: tuple[float, dict[str, tuple[int, int]]] | None = None
    samples: list[_Sample] = []
    for at, block in _blocks(lines(side.slices(r"host_cpu\.data")), "time"):
        uptime_text = re.match(r"[0-9]{1,15}(\.[0-9]+)?(?=\s|$)", block[0]) if block else None
        if not uptime_text:
            continue
        uptime = float(uptime_text[0]) * ticks
        spent: dict[str, tuple[int, int]] = {}
        on: dict[str, str] = {}
        for line in block[1:]:
            # The name of a thread is in parentheses and may contain blanks.
            behind = line.rpartition(")")[2].split()
            if len(behind) > 36 and _counts(behind[11:13]):
                thread = line.split(maxsplit=1)[0]
                spent[thread], on[thread] = (int(behind[11]), int(behind[12])), behind[36]
        if before and uptime > before[0]:
            known = {thread: before[1][thread] for thread in spent if thread in before[1]}
            for place, word in enumerate(("user", "system")):
                busy = sum(spent[thread][place] - known[thread][place] for thread in known)
                samples.append((pid, f"cpu {word}", at, busy / (uptime - before[0]), "cores"))
            cores: dict[str, int] = {}
            for thread, was in known.items():
                cores[on[thread]] = cores.get(on[thread], 0) + sum(spent[thread]) - sum(was)
            samples += [(pid, f"on core {core}", at, min(1.0, busy / (uptime - before[0])), "share") for core, busy in cores.items()]
        before = uptime, spent
    yield _samples(samples)


def _samples(rows: list[_Sample]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=_SAMPLES, orient="row")


def _memory(side: Side, pid: str) -> Iterator[pl.DataFrame]:
    rows = [line.split() for line in lines(side.slices(r"host_mem\.data"))]
    samples = [
        (int(row[0]), int(row[2]) * _PAGE) for row in rows if len(row) > 2 and all(re.fullmatch(r"\d{1,18}", part) for part in row[:3])
    ]
    yield _samples([(pid, "memory", at, float(size), "bytes") for at, size in samples])


def _disk(side: Side, pid: str, notes: Notes) -> Iterator[pl.DataFrame]:
    files = side.slices(r"host_disk\.data")
    hertz = float(number(side.sample.get("host_disk_freq")))
    start, rates = 0, list[tuple[float, float]]()
    for line in lines(files):
        parts = line.split()
        if len(parts) > 1 and parts[0] == "start_time" and _counts(parts[1:2]):
            start = int(parts[1])
        elif len(parts) > 7 and _counts(parts[1:2]) and parts[5] in _UNITS and parts[7] in _UNITS:
            rates.append((float(number(parts[4])) * _UNITS[parts[5]], float(number(parts[6])) * _UNITS[parts[7]]))
    if not rates:
        return
    if hertz < _SLOWEST or not start:
        notes.add(files[0], "the times of the disk samples are unknown (no start_time or host_disk_freq)", len(rates))
        return
    at = [start + int((nth + 1) * 1e9 / hertz) for nth in range(len(rates))]
    for place, word in enumerate(("disk read", "disk written")):
        yield _samples([(pid, word, at_ns, rate[place], "bytes/s") for at_ns, rate in zip(at, rates, strict=True)])


def _network(side: Side) -> Iterator[pl.DataFrame]:
    """Rates over all networks except the loopback."""
    before: tuple[int, dict[str, tuple[int, int]]] | None = None
    samples: list[_Sample] = []
    for at, block in _blocks(lines(side.slices(r"host_network\.data")), "time"):
        counted: dict[str, tuple[int, int]] = {}
        for line in block:
            name, colon, rest = line.partition(":")
            parts = rest.split()
            if colon and len(parts) > 8 and _counts([parts[0], parts[8]]) and name.strip() != "lo":
                counted[name.strip()] = int(parts[0]), int(parts[8])
        if before and at > before[0]:
            for place, word in enumerate(("network received", "network sent")):
                more = [counted[card][place] - before[1][card][place] for card in counted if card in before[1]]
                if more:
                    samples.append((None, word, at, sum(count for count in more if count >= 0) * 1e9 / (at - before[0]), "bytes/s"))
        before = at, counted
    yield _samples(samples)


def _machine(side: Side) -> Iterator[pl.DataFrame]:
    """Processors and memory of the machine, or of the device's control and AI CPUs, and of processes on them."""
    for pattern in (r"host_sys_cpu\.data", r"SystemCpuUsage\.data(\.\d+)?"):
        yield _samples(list(_shares(lines(side.slices(pattern)))))
    for pattern in (r"host_sys_mem\.data", r"Memory\.data(\.\d+)?"):
        samples: list[_Sample] = []
        for at, block in _blocks(lines(side.slices(pattern)), "TimeStamp"):
            sizes = {
                name: int(size) for line in block if (match := re.match(r"(\w+):\s+(\d{1,15})", line)) for name, size in [match.groups()]
            }
            free = sizes.get("MemAvailable", sizes.get("MemFree"))
            if free is not None and "MemTotal" in sizes:
                samples.append((None, "memory used", at, float(sizes["MemTotal"] - free) * 1024, "bytes"))
                samples.append((None, "memory available", at, float(free) * 1024, "bytes"))
        yield _samples(samples)
    for name in sorted({match[1] for name in side.raw if (match := re.match(r"(\d+)-(CpuUsage|Memory)\.data", name))}):
        yield _samples(list(_process(lines(side.slices(rf"{name}-CpuUsage\.data(\.\d+)?")), name)))
        samples = [
            (name, "memory", at, float(match[1]) * _PAGE, "bytes")
            for at, block in _blocks(lines(side.slices(rf"{name}-Memory\.data(\.\d+)?")), "TimeStamp")
            for line in block
            if (match := re.match(r"\d+\s+(\d{1,15})\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+", line))
        ]
        yield _samples(samples)


def _shares(texts: list[str]) -> Iterator[_Sample]:
    """Lines `cpu0 user nice system idle iowait irq softirq steal`, which are cumulative ticks."""
    before: dict[str, list[int]] = {}
    for at, block in _blocks(texts, "TimeStamp"):
        for line in block:
            name, *rest = line.split() or [""]
            if not re.fullmatch(r"cpu\d*", name) or len(rest) < 8 or not _counts(rest[:8]):
                continue
            now = [int(part) for part in rest[:8]]
            user, nice, system, idle, io, irq, soft, steal = (new - old for new, old in zip(now, before.get(name, now), strict=True))
            whole = user + nice + system + idle + io + irq + soft + steal
            if whole > 0:
                where = "cpu" if name == "cpu" else f"cpu {name[3:]}"
                parts = {"user": user + nice, "system": system + irq + soft, "io": io, "idle": idle, "steal": steal}
                yield from ((None, f"{where} {word}", at, part / whole, "share") for word, part in parts.items())
            before[name] = now


def _process(texts: list[str], pid: str) -> Iterator[_Sample]:
    """CPU time of a process from /proc/PID/stat, as a share of the ticks of all processors."""
    before: tuple[list[int], float] | None = None
    for at, block in _blocks(texts, "TimeStamp"):
        stat = next((behind for line in block if re.match(r"\d+ ", line) and len(behind := line.rpartition(")")[2].split()) > 12), None)
        total = next((sum(float(number(part)) for part in line.split()[1:]) for line in block if line.startswith("cpu")), 0.0)
        if stat is None or not _counts(stat[11:13]):
            continue
        spent = [int(stat[11]), int(stat[12])]
        if before and total > before[1]:
            for place, word in enumerate(("user", "system")):
                yield pid, f"cpu {word} share", at, (spent[place] - before[0][place]) / (total - before[1]), "share"
        before = spent, total


# System calls

_SYSCALL = r"^\s*(?<ms>\d+\.\d+)\s*\(\s*(?<took>\d+\.\d+)\s*ms\s*\)\s*:\s*(?:(?<who>[^/()\s]*)/(?<thread>\d+)\s+)?(?<name>\w+)\("
_LIBRARY = r"^\[pid\s+(?<thread>\d+)\]\s+(?<s>\d+\.\d+)\s+(?:\S*->)?(?<name>\w+)\(.*<(?<took>\d+\.\d+)>\s*$"


def calls(side: Side, start_ns: int, notes: Notes) -> pl.DataFrame:
    """name, start_ns, dur_ns, thread of each call. Their clock is another one than the host's: the first call is placed at `start_ns`."""
    parts = []
    for pattern, form, unit, time_group in ((r"host_syscall\.data", _SYSCALL, 1e6, "ms"), (r"host_pthreadcall\.data", _LIBRARY, 1e9, "s")):
        files = side.slices(pattern)
        texts = pl.Series([line for line in lines(files) if line.strip()], dtype=pl.String)
        if texts.is_empty():
            continue
        matches = texts.str.extract_groups(form).struct.unnest()
        at = (pl.col(time_group).cast(pl.Float64, strict=False) * unit).round().cast(pl.Int64, strict=False)
        took = (pl.col("took").cast(pl.Float64, strict=False) * unit).round().cast(pl.Int64, strict=False)
        known = matches.with_columns(at=at, length=took).filter(
            pl.col("name").is_not_null(), pl.col("at").is_between(0, 2**60), pl.col("length").is_between(0, 2**60)
        )
        if lost := matches.height - known.height:
            notes.add(files[0], "lines that are no call", lost)
        parts.append(
            known.select(
                "name",
                start_ns=pl.col("at") - pl.col("at").min() + start_ns,
                dur_ns="length",
                thread=pl.coalesce("thread", pl.lit(str(side.info.get("pid", "")) or "0")),
                category=pl.lit("system call" if time_group == "ms" else "library call"),
            )
        )
    return pl.concat(parts) if parts else pl.DataFrame()
