"""The jobs that other profilers recorded: the processes of each, and the windows of each process.

PyTorch, torch_npu and MindSpore name a recording after the process and the time: `host_42_20260101120000000_ascend_pt`,
`host_42.1700000000000000000.pt.trace.json`. A schedule writes one per window. Recordings of one folder that are named after one
process are its windows, unless the steps of the later one begin again: a profiler counts on, so that is another job or another
profiler. Names that users chose may belong to several jobs; then only steps that count on show the windows of one process.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from stepscope import readers
from stepscope.errors import DataError

if TYPE_CHECKING:
    from stepscope.io.discover import Source

START_SPREAD_S = 120  # the ranks of one window start within this time
_WINDOW_NAME = re.compile(
    r"(?P<process>.+?)(?:\.(?P<torch>1\d{12}(?:\d{3}|\d{6})?)\.pt\.trace\.json(?:\.gz)?|_(?P<ascend>20\d{15})_ascend_(?:pt|ms))"
)
_NAMES_PROCESS = re.compile(r".+_\d+")  # host and process id
_T = TypeVar("_T")


def split_by_start(
    items: Iterable[_T], start_s: Callable[[_T], float], rank: Callable[[_T], int], size: int = 1 << 31
) -> Iterator[list[_T]]:
    """Items in order of time as jobs: started within the spread, each rank once, at most as many as the job has."""
    job: list[_T] = []
    for item in items:
        late = job and start_s(item) - start_s(job[0]) > START_SPREAD_S
        if job and (late or len(job) == size or rank(item) in map(rank, job)):
            yield job
            job = []
        job.append(item)
    if job:
        yield job


Process = tuple["Source", ...]  # its windows, in order of time


class Job(NamedTuple):
    processes: list[Process]
    without_rank: list[DataError] = []  # recordings that started together with it and do not contain their rank


class _Ranked(NamedTuple):
    start_s: float | None
    rank: int
    windows: Process


def jobs(sources: "list[Source]") -> Iterator[Job]:
    """Processes with ranks as jobs, each with the recordings without a rank that started at the same time. Every other process is a job."""
    ranked: dict[tuple[str, Path], list[_Ranked]] = {}
    unranked: dict[tuple[str, Path], list[tuple[float, Process]]] = {}
    for windows in _processes(sources):
        source = windows[0]
        ranks = (described_rank(window, modified_ns(window.path)) for window in windows)
        rank, start = next((rank for rank in ranks if rank is not None), None), start_in_name(source.path)
        if rank is None and start is not None and source.format != "chrome":
            unranked.setdefault((source.format, source.path.parent.parent), []).append((start, windows))
        # A job without ranks is a run; traces whose names contain neither rank nor time need not belong together.
        elif rank is None or rank < 0 or (start is None and source.format == "chrome"):
            yield Job([windows])
        else:
            folder = source.path.parent if start is None else source.path.parent.parent
            ranked.setdefault((source.format, folder), []).append(_Ranked(start, rank, windows))
    for key, members in ranked.items():
        if members[0].start_s is None and len({member.rank for member in members}) < len(members):
            yield from (Job([member.windows]) for member in members)  # nothing shows which of them ran at the same time
            continue
        members.sort(key=lambda member: (member.start_s or 0, member.rank))
        for job in split_by_start(members, lambda member: member.start_s or 0, lambda member: member.rank):
            near = [entry for entry in unranked.get(key, []) if abs(entry[0] - (job[0].start_s or 0)) <= START_SPREAD_S]
            for entry in near:
                unranked[key].remove(entry)
            without_rank = [_no_rank_error(window) for _, windows in near for window in windows]
            yield Job([member.windows for member in sorted(job, key=lambda member: member.rank)], without_rank)
    yield from (Job([windows]) for entries in unranked.values() for _, windows in entries)


def _processes(sources: "list[Source]") -> "Iterator[Process]":
    """The windows of each process. A recording whose name contains no process and time is alone."""
    named: dict[tuple[str, Path, str, int | None], list[tuple[str, Source]]] = {}
    for source in sources:
        if (match := _WINDOW_NAME.fullmatch(source.path.name)) is None:
            yield (source,)
        else:
            key = source.format, source.path.parent, match["process"], described_rank(source, modified_ns(source.path))
            # A time in ms, us or ns: to 19 digits, all are one.
            named.setdefault(key, []).append(((match["torch"] or match["ascend"]).ljust(19, "0"), source))
    for (_, _, name, _), windows in named.items():
        windows.sort(key=lambda window: (window[0], window[1].path))
        process = windows[:1]
        for window in windows[1:]:
            if window[0] == process[-1][0] or not _counts_on(
                process[-1][1], window[1], named_after_process=_NAMES_PROCESS.fullmatch(name) is not None
            ):
                yield tuple(source for _, source in process)
                process = []
            process.append(window)
        yield tuple(source for _, source in process)


def _counts_on(before: "Source", after: "Source", *, named_after_process: bool) -> bool:
    """Whether a recording with the same process in its name is a later window of that process."""
    first, next_first = (_first_step(source, modified_ns(source.path)) for source in (before, after))
    return named_after_process if first is None or next_first is None else next_first > first


@functools.lru_cache(maxsize=10_000)
def _first_step(source: "Source", modified_ns: int) -> int | None:
    try:
        return readers.first_step(source.path, source.format)
    except (OSError, DataError):
        return None


def _no_rank_error(source: "Source") -> DataError:
    return DataError(source.path, "the recording does not contain its rank; open it alone")


def modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns if path.is_file() else 0
    except OSError:
        return 0


@functools.lru_cache(maxsize=10_000)
def described_rank(source: "Source", modified_ns: int) -> int | None:
    try:
        return None if source.format == "run" else readers.rank(source.path, source.format)
    except (OSError, DataError):
        return None


def start_in_name(path: Path) -> float | None:
    """The start of a recording in seconds, from its name: 20230818142704322 of Ascend tools, 1700000000000 of PyTorch."""
    if match := re.search(r"(?<!\d)(20\d\d[01]\d[0-3]\d[0-2]\d[0-5]\d[0-5]\d)\d{0,3}(?!\d)", path.name):
        try:
            return datetime.strptime(match[1], "%Y%m%d%H%M%S").timestamp()
        except ValueError:
            return None
    match = re.search(r"\.(1\d{12}(?:\d{3}|\d{6})?)\.pt\.trace\.json", path.name)
    return int(match[1][:13]) / 1000 if match else None
