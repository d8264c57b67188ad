"""Which recordings form one run: the ranks of a job, and the windows of a process. Every command, page and `stepscope.open` use this.

These form one run:
- files or folders whose paths differ only in the rank: ddp_rank0.json.gz and ddp_rank1.json.gz, rank_0/trace.json and rank_1/trace.json;
- recordings of Ascend tools and PyTorch that contain their rank, in one folder or in sibling folders, started together, each rank once;
  each with all windows of its process (`foreign_jobs`);
- recordings of stepscope in one folder: all windows of a process; processes of a job of several ranks that started together, each rank
  once; processes of one job without ranks, which get ranks in the order of host and process id. Processes belong to one job where
  they are in the folder of one `stepscope run`, or where one process started them and they were recorded at the same time.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.errors import DataError, UnknownFormatError
from stepscope.io import foreign_jobs, store
from stepscope.model import captures

DEPTH = 6  # levels of folders that are searched: plugins/profile/DATE/host.xplane.pb below a log folder is four
_RANK_WORD = re.compile(r"rank[-_]?\d{1,9}", re.IGNORECASE)
_STEPSCOPE_NAME = re.compile(r"rank(\d{1,9})_(.*)_(\d{20})(\.capture)?")
_JOB = re.compile(r".+-\d{8}-\d{6}-\d+(-.+)?")  # a folder of `stepscope run` or `attach`
# Suffixes and prefixes that profilers give to the recordings of each rank.
_PROFILER_NAME = re.compile(r"(?:_ascend_(?:pt|ms)|\.pt\.trace\.json(?:\.gz)?|\.xplane\.pb(?:\.gz)?)$|^PROF_(?=\d)")


class Source(msgspec.Struct, frozen=True):
    """A path that can be opened alone, and the name of its reader ("run" for a run folder)."""

    path: Path
    format: str


class Recording(msgspec.Struct, frozen=True):
    """The windows that one process recorded, in order of time."""

    sources: tuple[Source, ...]
    rank: int | None = None  # the rank in this run; None: the rank that the recording contains


class Group(msgspec.Struct, frozen=True):
    """One run."""

    recordings: tuple[Recording, ...]
    pattern: str  # the common path, without rank and timestamp
    alone: bool = True  # whether it is the only run in its folder
    remark: str | None = None  # for `problems`
    unread: tuple[DataError, ...] = ()  # recordings of its other ranks that cannot be read

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for recording in self.recordings for source in recording.sources)


def groups(sources: list[Source], unread: Iterable[DataError] = ()) -> Iterator[Group]:
    """The runs that these recordings form. Each lists the `unread` recordings that belong to it by their names."""
    # A recording of stepscope without a readable header belongs to a run by its name only.
    headless = {source.path: source for source in sources if _STEPSCOPE_NAME.fullmatch(source.path.name) and not header(source)}
    errors = [*unread, *(DataError(path, "the header of the recording is damaged") for path in headless)]
    for group in _groups([source for source in sources if source.path not in headless]):
        group_errors = tuple(error for error in errors if _belongs_to(Path(error.path), group))
        for error in group_errors:
            headless.pop(Path(error.path), None)
        yield msgspec.structs.replace(group, unread=(*group.unread, *group_errors)) if group_errors else group
    yield from _groups(list(headless.values()))


def unread_alone(every: list[Group], unread: Iterable[DataError]) -> list[DataError]:
    """Recordings that cannot be read and belong to no run. A file that is only named like a recording counts as one inside a run."""
    grouped = {id(error) for group in every for error in group.unread}
    return [error for error in unread if id(error) not in grouped and not isinstance(error, UnknownFormatError)]


def has_others(recording: Recording, group: Group, every: list[Group]) -> bool:
    """Whether the job has recordings of other ranks: in this group, or in a group that the recording belongs to by its name."""
    return len(group.recordings) > 1 or any(_belongs_to(recording.sources[0].path, other) for other in every if other is not group)


def is_recording_name(name: str) -> bool:
    """Whether profilers give such names to the recordings of ranks."""
    return _RANK_WORD.search(name) is not None or _PROFILER_NAME.search(name) is not None


def is_process_name(name: str) -> bool:
    """Whether a profiler named a recording after the process and the time, and not after the job."""
    return _PROFILER_NAME.search(name) is not None and foreign_jobs.start_in_name(Path(name)) is not None


def _belongs_to(path: Path, group: Group) -> bool:
    """Whether a path is, by its name, a recording of another rank of the run."""
    pattern, kind, start = _uncompressed(_pattern(path)), _kind(path.name), _start_s(path)
    for source in group.sources:
        if "rank*" in str(pattern) and _uncompressed(_pattern(source.path)).is_relative_to(pattern):
            return not _has_rank_of(path, group)
        source_start = _start_s(source.path)
        timed = start is not None and source_start is not None
        late = start is not None and source_start is not None and abs(start - source_start) > foreign_jobs.START_SPREAD_S
        beside = path.parent == source.path.parent or (timed and path.parent.parent == source.path.parent.parent)
        if kind and kind == _kind(source.path.name) and beside and not late:
            return True
    return False


def _uncompressed(pattern: str) -> Path:
    return Path(pattern.removesuffix(".gz"))


def _has_rank_of(path: Path, group: Group) -> bool:
    """Whether the run has the same file, compressed or not."""
    forms = {str(path), f"{path}.gz", str(path).removesuffix(".gz")}
    return any(str(source.path) in forms for source in group.sources)


def _kind(name: str) -> str:
    """The profiler that gives such names; empty for other names."""
    match = _PROFILER_NAME.search(name)
    return match[0].removesuffix(".gz") if match else "stepscope" if _STEPSCOPE_NAME.fullmatch(name) else ""


def _start_s(path: Path) -> float | None:
    """The start of a recording in seconds, from its name."""
    digits = name_timestamp(path)
    return _time_of(digits) / 1e9 if digits else foreign_jobs.start_in_name(path)


def _groups(sources: list[Source]) -> Iterator[Group]:
    converted = {source.path for source in sources}
    by_pattern: dict[str, list[Source]] = {}
    windows_by_folder: dict[tuple[Path, int], list[_Window]] = {}
    for source in sources:
        if source.format == "capture" and captures.run_folder(source.path) in converted:
            continue  # it is about to be removed
        if (window := _window(source)) is not None:
            windows_by_folder.setdefault((source.path.parent, window.size), []).append(window)
        else:
            by_pattern.setdefault(_pattern(source.path), []).append(source)
    single: list[Source] = []
    for pattern, members in _join_nodes(_join_compressed(by_pattern)).items():
        if len({rank_in_name(source.path) for source in members}) == len(members) > 1:
            yield Group(_recordings(members), pattern)
        else:
            single += members
    for foreign in foreign_jobs.jobs(single):
        recordings = tuple(Recording(windows) for windows in foreign.processes)
        yield Group(recordings, str(foreign.processes[0][0].path), unread=tuple(foreign.without_rank))
    jobs = [(folder, size, job) for (folder, size), windows in windows_by_folder.items() for job in _own_jobs(folder, size, windows)]
    per_folder = Counter(folder for folder, _, _ in jobs)
    for folder, size, job in jobs:
        yield _own_group(folder, size, job, alone=per_folder[folder] == 1)


def path_of_run(group: Group, every: list[Group]) -> Path | None:
    """The path that opens this run and no other: its file, or its folder where no other run is in it. None where there is none."""
    first, *others = group.sources
    if not others and not group.unread:
        return first.path
    folder = job_folder(group)
    alone = all(other is group or not any(source.path.is_relative_to(folder) for source in other.sources) for other in every)
    return folder if alone else None


def job_folder(group: Group) -> Path:
    """The folder that contains the recordings of a run, also the unreadable ones."""
    paths = [*(source.path for source in group.sources), *(Path(error.path) for error in group.unread)]
    return Path(os.path.commonpath([path.parent for path in paths]))


def _join_compressed(by_pattern: dict[str, list[Source]]) -> dict[str, list[Source]]:
    """Compressed and uncompressed ranks form one job, unless a rank occurs in both forms."""
    joined: dict[str, list[Source]] = {}
    for pattern, sources in by_pattern.items():
        plain = pattern.removesuffix(".gz")
        others = by_pattern.get(plain if plain != pattern else f"{pattern}.gz", [])
        ranks = [rank_in_name(source.path) for source in (*sources, *others)]
        join = None not in ranks and len(set(ranks)) == len(ranks)
        joined.setdefault(plain if join else pattern, []).extend(sources)
    return joined


def _join_nodes(by_pattern: dict[str, list[Source]]) -> dict[str, list[Source]]:
    """Ranks of one job in a folder for each node, node0/rank0 and node1/rank8: no rank twice, and all of them, or sizes that agree.

    Folders of two jobs would both have a rank 0.
    """
    by_parent: dict[str, list[str]] = {}
    for pattern in by_pattern:
        parts = Path(pattern).parts
        at = next((place for place, part in enumerate(parts) if "rank*" in part), 0)
        if at > 1:
            by_parent.setdefault(str(Path(*parts[: at - 1], *parts[at:])), []).append(pattern)
    joined = dict(by_pattern)
    for parent, patterns in by_parent.items():
        members = [source for pattern in patterns for source in by_pattern[pattern]]
        if len(patterns) > 1 and parent not in by_pattern and _is_one_job(members, [len(by_pattern[pattern]) for pattern in patterns]):
            for pattern in patterns:
                del joined[pattern]
            joined[parent] = sorted(members, key=lambda source: rank_in_name(source.path) or 0)
    return joined


def _is_one_job(members: list[Source], counts: list[int]) -> bool:
    ranks = {rank_in_name(source.path) for source in members}
    if len(ranks) != len(members) or None in ranks:
        return False
    sizes = {header(source).get("world_size") for source in members}
    size = sizes.pop() if len(sizes) == 1 else None
    if isinstance(size, int):
        return max(counts) < size and max(rank for rank in ranks if rank is not None) < size
    return min(counts) > 1 and not sizes and ranks == set(range(len(members)))


def rank_in_name(path: Path) -> int | None:
    """The rank in rank3, rank-3 or rank_3: in the name of the path, or in a folder above it with no other name."""
    match = re.search(r"rank[-_]?(\d{1,9})", path.name, re.IGNORECASE)
    above = (re.fullmatch(r"rank[-_]?(\d{1,9})", part, re.IGNORECASE) for part in reversed(path.parts[-DEPTH:-1]))
    match = match or next((part for part in above if part), None)
    return int(match[1]) if match else None


def rank_of(path: Path, format: str | None = None) -> int | None:
    """The rank in a recording's name or description, also where the recording cannot be read."""
    rank = rank_in_name(path)
    if rank is not None or (format is None and _PROFILER_NAME.search(path.name) is None):
        return rank
    return foreign_jobs.described_rank(Source(path, format or "ascend_result"), foreign_jobs.modified_ns(path))


def header(source: Source) -> dict[str, Any]:
    """The header of a run folder or a capture; empty where it cannot be read."""
    name = {"run": store.RUN_JSON, "capture": captures.HEADER}.get(source.format)
    try:
        fields = msgspec.json.decode((source.path / name).read_bytes()) if name else {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def name_timestamp(path: Path) -> str:
    """The start of a recording of stepscope, from its name: 20 digits, from the year to the microsecond; empty for other names."""
    match = _STEPSCOPE_NAME.fullmatch(path.name)
    return match[3] if match else ""


def is_job_folder(path: Path) -> bool:
    return _JOB.fullmatch(path.name) is not None


def _recordings(sources: list[Source]) -> tuple[Recording, ...]:
    return tuple(Recording((source,)) for source in sources)


def _pattern(path: Path) -> str:
    """The path with * for the rank: in its name, and in folders that are named after the rank only."""
    above = ("rank*" if _RANK_WORD.fullmatch(part) else part for part in path.parts[:-1])
    return str(Path(*above, _RANK_WORD.sub("rank*", path.name)))


# Recordings of stepscope


class _Window(NamedTuple):
    """One recording of one process."""

    source: Source
    rank: int
    size: int
    process: tuple[Any, ...]  # identity of the process
    host: str
    pid: int
    parent: int | None
    start_ns: int
    end_ns: int


_Process = list[_Window]


def _window(source: Source) -> _Window | None:
    """The window of a recording that stepscope made; None for others."""
    if source.format not in ("run", "capture"):
        return None
    fields = header(source)
    if source.format == "run":
        extra = fields.get("extra")
        fields = (extra if isinstance(extra, dict) else {}) | fields
    name = _STEPSCOPE_NAME.fullmatch(source.path.name)
    host, pid, start = fields.get("host"), fields.get("pid"), fields.get("start_ns")
    complete = isinstance(host, str) and isinstance(pid, int) and isinstance(start, int)
    if not name and not complete:
        return None
    ranks = fields.get("ranks") if source.format == "run" else [fields.get("rank")]
    if not name and (not isinstance(ranks, list) or len(ranks) != 1):
        return None  # an export that combines several ranks
    rank = int(name[1]) if name else ranks[0] if isinstance(ranks, list) and isinstance(ranks[0], int) else 0
    start_ns = start if isinstance(start, int) else _time_of(name[3]) if name else 0
    end, size, parent = fields.get("end_ns"), fields.get("world_size"), fields.get("parent")
    worker = name[2] if name else None
    return _Window(
        source,
        rank,
        size if isinstance(size, int) and size > 0 else 1,
        (rank, host, pid, fields.get("program"), fields.get("process")) if complete else (rank, worker),
        host if isinstance(host, str) else worker or "",
        pid if isinstance(pid, int) else 0,
        parent if isinstance(parent, int) else None,
        start_ns,
        end if isinstance(end, int) else start_ns,
    )


def _time_of(digits: str) -> int:
    try:
        return int(datetime.strptime(digits[:14], "%Y%m%d%H%M%S").timestamp()) * 10**9 + int(digits[14:]) * 1000
    except ValueError:
        return 0


def _own_jobs(folder: Path, size: int, windows: list[_Window]) -> Iterator[list[_Process]]:
    """The processes of each job, each with its windows in order of time."""
    by_process: dict[tuple[Any, ...], _Process] = {}
    for window in sorted(windows, key=lambda window: (window.start_ns, window.source.path)):
        by_process.setdefault(window.process, []).append(window)
    processes: list[_Process] = []
    for process in by_process.values():
        if any(after.start_ns < before.end_ns for before, after in pairwise(process)):
            yield from ([[window]] for window in process)  # a process records one window at a time: these are copies
        else:
            processes.append(process)
    processes.sort(key=lambda process: process[0].start_ns)
    if size > 1:
        yield from foreign_jobs.split_by_start(processes, lambda process: process[0].start_ns / 1e9, lambda process: process[0].rank, size)
    elif is_job_folder(folder):
        if processes:
            yield processes
    else:
        yield from _split_by_parent(processes)


def _split_by_parent(processes: list[_Process]) -> Iterator[list[_Process]]:
    """Processes in order of time as jobs: one process started them, and they were recorded at the same time."""
    open_jobs: dict[tuple[str, int], tuple[list[_Process], int]] = {}
    for process in processes:
        first, last = process[0], process[-1]
        if first.parent is None:
            yield [process]
            continue
        key = (first.host, first.parent)
        job, end_ns = open_jobs.get(key, ([], 0))
        if job and first.start_ns >= end_ns:
            yield job
            job, end_ns = [], 0
        open_jobs[key] = [*job, process], max(end_ns, last.end_ns)
    for job, _ in open_jobs.values():
        yield job


def _own_group(folder: Path, size: int, job: list[_Process], *, alone: bool) -> Group:
    ranks = [process[0].rank for process in job]
    first = min((process[0] for process in job), key=lambda window: window.start_ns).source.path
    several, timestamp = size > 1 or len(job) > 1, name_timestamp(first)
    pattern = str(folder / f"{folder.name}-{timestamp}") if several and timestamp else str(first).removesuffix(captures.SUFFIX)
    if len(set(ranks)) == len(ranks):
        ordered = sorted(job, key=lambda process: process[0].rank)
        return Group(tuple(Recording(_window_sources(process)) for process in ordered), pattern, alone)
    ordered = sorted(job, key=lambda process: (process[0].host, process[0].pid, process[0].start_ns))
    recordings = tuple(Recording(_window_sources(process), rank) for rank, process in enumerate(ordered))
    return Group(recordings, pattern, alone, _rank_remark([process[0] for process in ordered]))


def _window_sources(process: _Process) -> tuple[Source, ...]:
    return tuple(window.source for window in process)


def _rank_remark(windows: list[_Window]) -> str:
    ranks = sorted({window.rank for window in windows})
    recorded = f"each recorded as rank {ranks[0]}" if len(ranks) == 1 else f"recorded as ranks {', '.join(map(str, ranks))}, some repeated"
    shown = ", ".join(map(str, range(len(windows)))) if len(windows) <= 8 else f"0 to {len(windows) - 1}"
    order = "process id" if len({window.host for window in windows}) == 1 else "host and process id"
    return f"{len(windows)} processes, {recorded}: shown as ranks {shown} in order of {order}"
