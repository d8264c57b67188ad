"""Which recordings in a folder are one run: the ranks of a job, and the windows of a process. The list, the pages and `open` ask here.

One run are
- files or folders whose paths differ in the rank alone: ddp_rank0.json.gz and ddp_rank1.json.gz, rank_0/trace.json and rank_1/trace.json;
- recordings of Ascend's tools and PyTorch that say their rank, in one folder or in folders side by side, begun together, each rank once;
- recordings of stepscope in one folder: all windows of a process; processes of a job of several ranks that began together, each rank once;
  processes of one job that know nothing of each other, which get ranks in the order of host and process id. Processes are of one job where
  they lie in the folder of one `stepscope run`, or where one process started them and they were recorded at the same time.
"""

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope import captures, readers, store
from stepscope.errors import DataError, UnknownFormatError

# How deep below a folder traces are looked for: plugins/profile/DATE/host.xplane.pb below a log folder is four.
DEPTH = 6
TOGETHER_S = 120  # ranks of one window begin within so long
_RANK = re.compile(r"rank[-_]?\d{1,9}", re.IGNORECASE)
_OWN = re.compile(r"rank(\d{1,9})_(.*)_(\d{20})(\.capture)?")
_JOB = re.compile(r".+-\d{8}-\d{6}-\d+(-.+)?")  # a folder of `stepscope run` or `attach`
# Endings and beginnings that profilers give to the recordings of each rank.
_PROFILER = re.compile(r"(?:_ascend_(?:pt|ms)|\.pt\.trace\.json(?:\.gz)?|\.xplane\.pb(?:\.gz)?)$|^PROF_(?=\d)")


class Source(msgspec.Struct, frozen=True):
    """Something that can be opened by itself: a path and the reader that claims it ("run" for a run folder)."""

    path: Path
    format: str


class Recording(msgspec.Struct, frozen=True):
    """What one process recorded: its windows, in order of time."""

    sources: tuple[Source, ...]
    rank: int | None = None  # that it gets here; None: what it says itself


class Group(msgspec.Struct, frozen=True):
    """One run."""

    recordings: tuple[Recording, ...]
    pattern: str  # the path it would have without rank and moment
    alone: bool = True  # in its folder
    remark: str | None = None  # for `problems`
    unread: tuple[DataError, ...] = ()  # recordings of its other ranks that cannot be read

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for recording in self.recordings for source in recording.sources)


def groups(found: list[Source], unread: Iterable[DataError] = ()) -> Iterator[Group]:
    """The runs that these recordings are. Each lists what of `unread` is part of it by its name."""
    # Without its header a recording of ours says only by its name what it is part of.
    headless = {source.path: source for source in found if _OWN.fullmatch(source.path.name) and not header(source)}
    errors = [*unread, *(DataError(path, "the header of the recording is damaged") for path in headless)]
    for group in _groups([source for source in found if source.path not in headless]):
        own = tuple(error for error in errors if _is_part(Path(error.path), group))
        for error in own:
            headless.pop(Path(error.path), None)
        yield msgspec.structs.replace(group, unread=(*group.unread, *own)) if own else group
    yield from _groups(list(headless.values()))


def unread_alone(every: list[Group], unread: Iterable[DataError]) -> list[DataError]:
    """What cannot be read and is part of no run. What only has the name of a recording is one where a run has others beside it."""
    known = {id(error) for group in every for error in group.unread}
    return [error for error in unread if id(error) not in known and not isinstance(error, UnknownFormatError)]


def has_others(recording: Recording, group: Group, every: list[Group]) -> bool:
    """Whether a job has recordings of other ranks beside this one: in its group, or in one that it is part of by its name."""
    if len(group.recordings) > 1:
        return True
    return any(_is_part(recording.sources[0].path, other) for other in every if other is not group)


def is_recording_name(name: str) -> bool:
    """Whether profilers call the recordings of ranks so."""
    return _RANK.search(name) is not None or _PROFILER.search(name) is not None


def is_process_name(name: str) -> bool:
    """Whether a profiler named a recording after the process and the time, which says nothing of the job."""
    return _PROFILER.search(name) is not None and _begun(Path(name)) is not None


def _is_part(path: Path, group: Group) -> bool:
    """Whether a path is, by its name, a recording of another rank of the run."""
    pattern, kind, when = _unpacked(_pattern(path)), _kind(path.name), _began(path)
    for source in group.sources:
        if "rank*" in str(pattern) and _unpacked(_pattern(source.path)).is_relative_to(pattern):
            return not _same_rank(path, group)
        began = _began(source.path)
        late = when is not None and began is not None and abs(when - began) > TOGETHER_S
        timed = when is not None and began is not None
        beside = path.parent == source.path.parent or (timed and path.parent.parent == source.path.parent.parent)
        if kind and kind == _kind(source.path.name) and beside and not late:
            return True
    return False


def _unpacked(pattern: str) -> Path:
    return Path(pattern.removesuffix(".gz"))


def _same_rank(path: Path, group: Group) -> bool:
    """Whether the run has this rank already, in the other form of a compressed file and the same one that is not."""
    forms = {str(path), f"{path}.gz", str(path).removesuffix(".gz")}
    return any(str(source.path) in forms for source in group.sources)


def _kind(name: str) -> str:
    """Whose recording this is, as the name says; empty where it does not."""
    found = _PROFILER.search(name)
    return found[0].removesuffix(".gz") if found else "stepscope" if _OWN.fullmatch(name) else ""


def _began(path: Path) -> float | None:
    """When a recording began, in seconds, as its name says."""
    digits = moment(path)
    return _time_of(digits) / 1e9 if digits else _begun(path)


def _groups(found: list[Source]) -> Iterator[Group]:
    made = {source.path for source in found}
    # A capture whose run folder is there is about to be removed.
    found = [source for source in found if source.format != "capture" or captures.run_folder(source.path) not in made]
    by_pattern: dict[str, list[Source]] = {}
    own: dict[tuple[Path, int], list[_Window]] = {}
    for source in found:
        if (window := _window(source)) is not None:
            own.setdefault((source.path.parent, window.size), []).append(window)
        else:
            by_pattern.setdefault(_pattern(source.path), []).append(source)
    single: list[Source] = []
    for pattern, sources in _packed_alike(by_pattern).items():
        ranks = {rank_in_name(source.path) for source in sources}
        if len(ranks) == len(sources) > 1:
            yield Group(_each(sources), pattern)
        else:
            single += sources
    for members, unknown in _jobs(single):
        yield Group(_each(members), str(members[0].path), unread=tuple(map(_without_rank, unknown)))
    runs = [(folder, size, job) for (folder, size), windows in own.items() for job in _own_jobs(folder, size, windows)]
    in_folder = Counter(folder for folder, _, _ in runs)
    for folder, size, job in runs:
        yield _own_group(folder, size, job, alone=in_folder[folder] == 1)


def place(group: Group, every: list[Group]) -> Path | None:
    """The path that opens this run, of all that were found, and no other: its folder, where nothing else is in it; None for none."""
    first, *others = group.sources
    if not others and not group.unread:
        return first.path
    folder = job_folder(group)
    alone = all(other is group or not any(source.path.is_relative_to(folder) for source in other.sources) for other in every)
    return folder if alone else None


def job_folder(group: Group) -> Path:
    """The folder in which the recordings of a run are, also those that cannot be read."""
    paths = [*(source.path for source in group.sources), *(Path(error.path) for error in group.unread)]
    return Path(os.path.commonpath([path.parent for path in paths]))


def _packed_alike(by_pattern: dict[str, list[Source]]) -> dict[str, list[Source]]:
    """Ranks of which some are compressed are one job; a rank that is there in both forms is there twice."""
    joined: dict[str, list[Source]] = {}
    for pattern, sources in by_pattern.items():
        plain = pattern.removesuffix(".gz")
        others = by_pattern.get(plain if plain != pattern else f"{pattern}.gz", [])
        ranks = [rank_in_name(source.path) for source in (*sources, *others)]
        together = None not in ranks and len(set(ranks)) == len(ranks)
        joined.setdefault(plain if together else pattern, []).extend(sources)
    return joined


def rank_in_name(path: Path) -> int | None:
    """rank3, rank-3, rank_3 in its own name, or a folder above it that is called so and nothing else."""
    match = re.search(r"rank[-_]?(\d{1,9})", path.name, re.IGNORECASE)
    above = (re.fullmatch(r"rank[-_]?(\d{1,9})", part, re.IGNORECASE) for part in reversed(path.parts[-DEPTH:-1]))
    match = match or next((found for found in above if found), None)
    return int(match[1]) if match else None


def rank_of(path: Path, format: str | None = None) -> int | None:
    """The rank that a recording's name or its description says, also where it cannot be read."""
    named = rank_in_name(path)
    if named is not None or (format is None and _PROFILER.search(path.name) is None):
        return named
    return _rank(Source(path, format or "ascend_result"), _changed_ns(path))


def header(source: Source) -> dict[str, Any]:
    """What a run folder's or a capture's header says; nothing where it cannot be read."""
    name = {"run": store.RUN_JSON, "capture": captures.HEADER}.get(source.format)
    try:
        found = msgspec.json.decode((source.path / name).read_bytes()) if name else {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def moment(path: Path) -> str:
    """When a recording of stepscope began, as its name says: 20 digits, from the year to the microsecond."""
    match = _OWN.fullmatch(path.name)
    return match[3] if match else ""


def is_job_folder(path: Path) -> bool:
    return _JOB.fullmatch(path.name) is not None


def _each(sources: list[Source]) -> tuple[Recording, ...]:
    return tuple(Recording((source,)) for source in sources)


def _pattern(path: Path) -> str:
    """The path without the rank: in its own name, and in folders that are called after nothing else."""
    above = ("rank*" if _RANK.fullmatch(part) else part for part in path.parts[:-1])
    return str(Path(*above, _RANK.sub("rank*", path.name)))


# Recordings of stepscope


class _Window(NamedTuple):
    """One recording of one process."""

    source: Source
    rank: int
    size: int
    process: tuple[Any, ...]  # what tells it from others
    host: str
    pid: int
    parent: int | None
    start_ns: int
    end_ns: int


_Process = list[_Window]


def _window(source: Source) -> _Window | None:
    """What the header says of a recording that stepscope made; None for others."""
    if source.format not in ("run", "capture"):
        return None
    said = header(source)
    more = said.get("extra")
    facts = (more if isinstance(more, dict) else {}) | said if source.format == "run" else said
    named = _OWN.fullmatch(source.path.name)
    host, pid, start = facts.get("host"), facts.get("pid"), facts.get("start_ns")
    known = isinstance(host, str) and isinstance(pid, int) and isinstance(start, int)
    if not named and not known:
        return None
    ranks = facts.get("ranks") if source.format == "run" else [facts.get("rank")]
    if not named and (not isinstance(ranks, list) or len(ranks) != 1):
        return None  # several ranks in one folder: put together by an export
    rank = int(named[1]) if named else ranks[0] if isinstance(ranks, list) and isinstance(ranks[0], int) else 0
    begun = start if isinstance(start, int) else _time_of(named[3]) if named else 0
    end, size, parent = facts.get("end_ns"), facts.get("world_size"), facts.get("parent")
    worker = named[2] if named else None
    return _Window(
        source,
        rank,
        size if isinstance(size, int) and size > 0 else 1,
        (rank, host, pid, facts.get("program"), facts.get("process")) if known else (rank, worker),
        host if isinstance(host, str) else worker or "",
        pid if isinstance(pid, int) else 0,
        parent if isinstance(parent, int) else None,
        begun,
        end if isinstance(end, int) else begun,
    )


def _time_of(digits: str) -> int:
    try:
        return int(datetime.strptime(digits[:14], "%Y%m%d%H%M%S").timestamp()) * 10**9 + int(digits[14:]) * 1000
    except ValueError:
        return 0


def _own_jobs(folder: Path, size: int, windows: list[_Window]) -> Iterator[list[_Process]]:
    """The processes of each job, each with its windows in order of time."""
    by_process: dict[tuple[Any, ...], _Process] = {}
    for window in sorted(windows, key=lambda one: (one.start_ns, one.source.path)):
        by_process.setdefault(window.process, []).append(window)
    whole: list[_Process] = []
    for process in by_process.values():
        if any(after.start_ns < before.end_ns for before, after in pairwise(process)):
            yield from ([[window]] for window in process)  # a process records one window at a time: these are copies
        else:
            whole.append(process)
    if size > 1:
        yield from _begun_together(whole, size)
    elif is_job_folder(folder):
        if whole:
            yield whole
    else:
        yield from _started_together(whole)


def _begun_together(processes: list[_Process], size: int) -> Iterator[list[_Process]]:
    """Processes in order of time, each rank once, as many as the job has."""
    group: list[_Process] = []
    for process in sorted(processes, key=lambda one: one[0].start_ns):
        first = process[0]
        late = group and first.start_ns - group[0][0].start_ns > TOGETHER_S * 10**9
        if group and (first.rank in {other[0].rank for other in group} or len(group) == size or late):
            yield group
            group = []
        group.append(process)
    if group:
        yield group


def _started_together(processes: list[_Process]) -> Iterator[list[_Process]]:
    """Processes that one process started and that were recorded at the same time; each of the others by itself."""
    open_jobs: dict[tuple[str, int], tuple[list[_Process], int]] = {}
    for process in sorted(processes, key=lambda one: one[0].start_ns):
        first, last = process[0], process[-1]
        if first.parent is None:
            yield [process]
            continue
        key = (first.host, first.parent)
        job, until = open_jobs.get(key, ([], 0))
        if job and first.start_ns >= until:
            yield job
            job, until = [], 0
        open_jobs[key] = [*job, process], max(until, last.end_ns)
    for job, _ in open_jobs.values():
        yield job


def _own_group(folder: Path, size: int, job: list[_Process], *, alone: bool) -> Group:
    ranks = [process[0].rank for process in job]
    first = min((process[0] for process in job), key=lambda window: window.start_ns).source.path
    several = size > 1 or len(job) > 1
    pattern = str(folder / f"{folder.name}-{moment(first)}") if several and moment(first) else str(first).removesuffix(captures.SUFFIX)
    if len(set(ranks)) == len(ranks):
        ordered = sorted(job, key=lambda process: process[0].rank)
        return Group(tuple(Recording(_sources(process)) for process in ordered), pattern, alone)
    ordered = sorted(job, key=lambda process: (process[0].host, process[0].pid, process[0].start_ns))
    recordings = tuple(Recording(_sources(process), rank) for rank, process in enumerate(ordered))
    return Group(recordings, pattern, alone, _renamed([process[0] for process in ordered]))


def _sources(process: _Process) -> tuple[Source, ...]:
    return tuple(window.source for window in process)


def _renamed(windows: list[_Window]) -> str:
    said = sorted({window.rank for window in windows})
    what = f"each call themselves rank {said[0]}" if len(said) == 1 else f"call themselves ranks {', '.join(map(str, said))}, some the same"
    shown = ", ".join(map(str, range(len(windows)))) if len(windows) <= 8 else f"0 to {len(windows) - 1}"
    by = "process id" if len({window.host for window in windows}) == 1 else "host and process id"
    return f"{len(windows)} processes {what}: shown as ranks {shown} in order of {by}"


# Recordings of others


class _Ranked(NamedTuple):
    begun: float | None
    rank: int
    source: Source


def _jobs(sources: list[Source]) -> Iterator[tuple[list[Source], list[Source]]]:
    """Recordings that say their rank, in order of time, with those begun at the same time that do not; each of the others by itself."""
    ranked: dict[tuple[str, Path], list[_Ranked]] = {}
    unknown: dict[tuple[str, Path], list[tuple[float, Source]]] = {}
    for source in sources:
        rank = _rank(source, _changed_ns(source.path))
        begun = _begun(source.path)
        if rank is None and begun is not None and source.format != "chrome":
            unknown.setdefault((source.format, source.path.parent.parent), []).append((begun, source))
        # A job that has no ranks is a run of its own; traces whose names say nothing need have nothing to do with each other.
        elif rank is None or rank < 0 or (begun is None and source.format == "chrome"):
            yield [source], []
        else:
            where = source.path.parent if begun is None else source.path.parent.parent
            ranked.setdefault((source.format, where), []).append(_Ranked(begun, rank, source))
    for key, members in ranked.items():
        if members[0].begun is None and len({one.rank for one in members}) < len(members):
            yield from (([one.source], []) for one in members)  # nothing tells which of them ran together
            continue
        for group in _begun_as_one(members):
            near = [one for one in unknown.get(key, []) if abs(one[0] - (group[0].begun or 0)) <= TOGETHER_S]
            for one in near:
                unknown[key].remove(one)
            yield [other.source for other in sorted(group, key=lambda member: member.rank)], [source for _, source in near]
    yield from (([source], []) for others in unknown.values() for _, source in others)


def _begun_as_one(members: list[_Ranked]) -> Iterator[list[_Ranked]]:
    """Ranks of one job: begun together, each rank once."""
    group: list[_Ranked] = []
    for one in sorted(members, key=lambda member: (member.begun or 0, member.rank)):
        late = group and (one.begun or 0) - (group[0].begun or 0) > TOGETHER_S
        if group and (late or one.rank in {other.rank for other in group}):
            yield group
            group = []
        group.append(one)
    yield group


def _without_rank(source: Source) -> DataError:
    return DataError(source.path, "the recording does not say its rank; open it by itself")


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns if path.is_file() else 0
    except OSError:  # gone meanwhile
        return 0


@functools.lru_cache(maxsize=10_000)
def _rank(source: Source, changed_ns: int) -> int | None:
    try:
        return None if source.format == "run" else readers.rank(source.path, source.format)
    except (OSError, DataError):  # gone meanwhile, or damaged
        return None


def _begun(path: Path) -> float | None:
    """When the recording began, in seconds, as the name says: 20230818142704322 in Ascend's, 1700000000000 in PyTorch's."""
    if match := re.search(r"(?<!\d)(20\d\d[01]\d[0-3]\d[0-2]\d[0-5]\d[0-5]\d)\d{0,3}(?!\d)", path.name):
        try:
            return datetime.strptime(match[1], "%Y%m%d%H%M%S").timestamp()
        except ValueError:
            return None
    match = re.search(r"\.(1\d{12}(?:\d{3}|\d{6})?)\.pt\.trace\.json", path.name)
    return int(match[1][:13]) / 1000 if match else None
