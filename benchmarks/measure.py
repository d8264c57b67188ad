"""What a command costs, with every process it starts: wall and CPU time, and the most memory held at one moment; and where that is kept."""

import itertools
import os
import re
import resource
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, NamedTuple

_PERIOD_S = 0.02
_PSS_EVERY = 10  # proportional memory needs a walk over the page tables, which would itself slow the command
_KEPT_BYTES = 4096  # the end of what a command prints: a table of a million rows stays on the disk
_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    rss_bytes: int  # summed over the processes: a page that two of them share counts twice
    pss_bytes: int  # a shared page counts once; sampled more coarsely
    code: int
    output: str
    error: str


def cost(command: list[str], **environment: str) -> Cost:
    """Run a command in a session of its own, so that whatever it starts is known by the session."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        done = threading.Event()
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=error, env=os.environ | environment, start_new_session=True
        )
        peaks = _Peaks(process.pid)
        sampler = threading.Thread(target=peaks.sample_until, args=(done,))
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        done.set()
        sampler.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        return Cost(
            wall_s=wall,
            cpu_s=usage.ru_utime + usage.ru_stime,
            rss_bytes=max(peaks.rss, _largest(usage)),
            pss_bytes=peaks.pss,
            code=process.returncode,
            output=_end(output),
            error=_end(error),
        )


def keep(file: Path, report: str) -> None:
    """Put a report in the place of the one with the same first line; the file's other reports stay as they are."""
    heading = report.partition("\n")[0]
    found = re.split(r"^(?=# )", file.read_text(), flags=re.MULTILINE) if file.exists() else []
    reports = [text.strip() for text in found if text.strip()]
    places = [place for place, text in enumerate(reports) if text.partition("\n")[0] == heading] or [len(reports)]
    reports[places[0] : places[0] + 1] = [report.strip()]
    file.write_text("\n\n".join(reports) + "\n")


def table(head: list[str], rows: list[list[str]]) -> str:
    """As Markdown whose columns line up."""
    lines = [head, ["---"] * len(head), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |\n" for line in lines)


def bounds_of_median(ordered: list[float]) -> tuple[float, float]:
    """Between which the true median lies, 19 times out of 20: as many values are below it as heads fall in so many throws."""
    count = len(ordered)
    beside = int(0.98 * count**0.5 + 0.5)
    return ordered[max(count // 2 - beside, 0)], ordered[min((count - 1) // 2 + beside, count - 1)]


def _largest(usage: resource.struct_rusage) -> int:
    """The kernel's own peak of the largest process, without gaps between samples; a process starts with the peak of who forked it, us."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss << 10 if usage.ru_maxrss > ours else 0


def _end(file: IO[bytes]) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - _KEPT_BYTES, 0))
    return file.read().decode(errors="replace")


class _Peaks:
    """The most memory the processes of one session held together."""

    def __init__(self, session: int) -> None:
        self.rss = self.pss = 0
        self._session = session
        self._members: dict[int, bool] = {}

    def sample_until(self, done: threading.Event) -> None:
        for sample in itertools.count():
            members = self._alive()
            self.rss = max(self.rss, sum(map(_rss, members)))
            if sample % _PSS_EVERY == 0:
                self.pss = max(self.pss, sum(map(_pss, members)))
            if done.wait(_PERIOD_S):
                return

    def _alive(self) -> list[int]:
        pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - fifty times a second
        self._members = {pid: self._members[pid] if pid in self._members else _session(pid) == self._session for pid in pids}
        return [pid for pid, member in self._members.items() if member]


def _session(pid: int) -> int:
    stat = _read(pid, "stat")
    return int(stat.rpartition(")")[2].split()[3]) if stat else 0


def _rss(pid: int) -> int:
    statm = _read(pid, "statm")
    return int(statm.split()[1]) * _PAGE if statm else 0


def _pss(pid: int) -> int:
    rollup = _read(pid, "smaps_rollup")
    return int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0]) << 10 if rollup else 0


def _read(pid: int, name: str) -> str:
    """A file of a process, empty where the process has ended meanwhile."""
    try:
        return (_PROC / str(pid) / name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
