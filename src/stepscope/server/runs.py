"""The list of runs below the served paths. Only the part of a file that identifies its format is read.

`io.discover` decides which recordings form one run.
"""

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.io import discover
from stepscope.io.discover import Group, Source
from stepscope.io.inventory import inventory
from stepscope.io.sources import Formats, files_beside, find_sources
from stepscope.model import schema
from stepscope.model.output.tables import finite
from stepscope.model.trace import Trace, unread_problem

_ENDINGS = re.compile(r"(\.pt\.trace|\.xplane)?\.(json|pb|gz|capture|txt)(\.gz)?$", re.IGNORECASE)
# Names that profilers give their output, whatever the job.
_TOOLS = re.compile(
    r"profiler|ascend_(?:pt|ms)|ascend_profiler_output|cluster_analysis_output|mindstudio_profiler_output|trace_view"
    r"|(?:nccl|comm_lib)_trace",
    re.IGNORECASE,
)
_QUIET_S = 30  # a job on another machine that has not written for this time counts as ended
_MAX_FILES = 10_000  # of a folder, whose changes are noticed
_PROBLEMS = 1000
LARGE = 1 << 22  # spans: pages of all steps of larger runs need many seconds and gigabytes
_SHOWN = 1 << 20  # spans of the steps that are shown of a large run


class Run(msgspec.Struct, frozen=True):
    """One row of the list."""

    id: str
    name: str
    path: Path
    root: Path
    sources: tuple[Source, ...]
    format: str
    state: str  # finished, live or unreadable
    bytes: int
    modified_ns: int
    error: str | None = None
    step_name: str | None = None  # the chosen steps; also part of the id
    unread: tuple[DataError, ...] = ()  # recordings of its other ranks that cannot be read
    header: dict[str, Any] = {}  # from the header of a run folder or capture: framework, ranks, ...

    def row(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in ("id", "name", "format", "state", "bytes", "modified_ns")}
        row |= {"path": str(self.path), **self.header}
        problems = [unread_problem(error, discover.rank_of(Path(error.path))) for error in self.unread]
        return row | ({"error": self.error} if self.error else {}) | ({"problems": problems} if problems else {})

    def with_steps(self, identity: str, step_name: str) -> "Run":
        """The same run with other steps. It has its own id, so that no table of one is used for the other."""
        return msgspec.structs.replace(self, id=identity, step_name=step_name)

    @property
    def place(self) -> Path:
        """Identifies the recording on this machine, whichever folder is served and whichever steps are chosen.

        Several runs may be in one folder: the part of the id that comes from the names of their files tells them apart.
        """
        return self.path.resolve() / self.id.partition("~")[0].rpartition("-")[0]

    def exists(self) -> bool:
        return all(source.path.exists() for source in self.sources)

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when one of its files changes, or one that is read with it."""
        beside = (file for source in self.sources for file in files_beside(source))
        return tuple(_files([*(source.path for source in self.sources), *beside]))


class RunList:
    """The list of runs. A scan keeps the id of a run that was not moved."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = list(dict.fromkeys(roots))
        self._formats: Formats = {}
        self._confined: dict[Path, tuple[int, int, int]] = {}  # state of the paths that were checked; opening a run checks again
        self._runs: dict[str, Run] = {}

    def scan(self) -> list[Run]:
        runs: dict[str, Run] = {}
        for root in self.roots:
            for run in self._below(root):
                runs.setdefault(run.id, run)
        self._runs = {run.id: run for run in _distinct_names(list(runs.values()))}
        return self.runs()

    def runs(self) -> list[Run]:
        return list(self._runs.values())

    def run(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def _below(self, root: Path) -> Iterator[Run]:
        failed: list[DataError] = []
        sources: list[Source] = []
        try:
            for source in find_sources(root, failed.append, self._formats):
                state = self._formats[source.path][0]
                try:
                    if self._confined.get(source.path) != state:
                        confine(source, root)
                except DataError as error:
                    failed.append(error)
                else:
                    self._confined[source.path] = state
                    sources.append(source)
        except DataError as error:  # the path itself
            failed.append(error)
        groups = list(discover.groups(sources, failed))
        for group, name in zip(groups, _names(groups, root), strict=True):
            yield _run(group, name, root)
        for problem in discover.unread_alone(groups, failed):
            path = Path(problem.path)
            yield Run(_run_id(path.name, path), path.name, path, root, (), "", "unreadable", 0, 0, str(problem))


def describe(
    trace: Trace, run_id: str, name: str, *, path: str | None = None, state: str = "finished", inventory_key: str | None = None
) -> dict[str, Any]:
    """The description of a trace that a page needs first: sizes of the tables, time range, kinds, devices and problems.

    `inventory_key` is the cache key of its inventory; without a key it is not stored.
    """
    counts = {table: trace.table(table).select(pl.len()).collect().item() for table in schema.TABLES}
    counted = inventory(trace, inventory_key)
    problems = trace.problems.select("rank", "file", "where", "what", "lost")
    steps = dict(trace.steps.group_by("rank").len().collect().iter_rows())
    meta = msgspec.to_builtins(trace.meta)
    return {
        "id": run_id,
        "name": name,
        "path": path or trace.meta.source,
        "state": state,
        **{key: meta[key] for key in ("format", "framework", "versions", "world_size", "ranks", "options", "extra", "summary", "windows")},
        "origin_ns": str(counted.first_ns),
        "end_ns": str(counted.last_ns),
        "tables": counts,
        "kinds": counted.kinds,
        "counters": counted.counters,
        "devices": finite(trace.devices).collect().to_dicts(),
        "steps": [steps.get(rank, 0) for rank in trace.meta.ranks],
        "part": _shown_steps(trace, counts["spans"]),
        "problems": finite(problems.head(_PROBLEMS)).collect().to_dicts(),
        "problem_count": counts["problems"],
    }


def _shown_steps(trace: Trace, spans: int) -> list[int] | None:
    """The first and last step that the pages of a large run show by default: analyses hold all spans of the steps in memory.

    Steps with about _SHOWN spans in all, from the second one on: the first is often not typical.
    """
    steps = trace.steps.select(pl.col("step").unique().sort()).collect().to_series().to_list() if spans > LARGE else []
    many = max(1, len(steps) * _SHOWN // max(spans, 1))
    return [steps[1], steps[min(many, len(steps) - 1)]] if len(steps) > 2 else None


def confine(source: Source, root: Path) -> None:
    """Refuse links to files outside the served path."""
    inside = root.resolve()
    for path in [source.path, *_links_below(source.path)]:
        if not path.resolve().is_relative_to(inside):
            raise DataError(path, "links to a file outside the served folder; serve that folder too")


def _run(group: Group, name: str, root: Path) -> Run:
    first, *others = group.sources
    path = discover.job_folder(group) if others or group.unread else first.path
    files = list(_files(source.path for source in group.sources))
    headers = [discover.header(source) for source in group.sources]
    state = "live" if any(_is_live(source, header) for source, header in zip(group.sources, headers, strict=True)) else "finished"
    return Run(
        _run_id(_ENDINGS.sub("", Path(group.pattern).name), Path(group.pattern)),
        name,
        path,
        root,
        group.sources,
        first.format,
        state,
        sum(size for _, _, size in files),
        max((changed for _, changed, _ in files), default=0),
        unread=group.unread,
        header=_merge_headers(headers) | _assigned_ranks(group),
    )


def _run_id(name: str, path: Path) -> str:
    """A readable id that contains no path."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48].strip("-")
    return f"{slug or 'run'}-{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:8]}"


def _names(groups: list[Group], root: Path) -> list[str]:
    """Short names where they are unique, else with the folders above, else the path."""
    short = [_short_name(group) for group in groups]
    above = [[*_relative(group, root).parent.parts, name] for group, name in zip(groups, short, strict=True)]
    long = ["/".join(parts) for parts in above]
    times, more = Counter(short), Counter(long)
    return [
        name if times[name] == 1 else full if more[full] == 1 else str(_relative(group, root))
        for group, name, full in zip(groups, short, long, strict=True)
    ]


def _distinct_names(runs: list[Run]) -> list[Run]:
    """Runs of several paths with the same name get as many folders above as necessary."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    return [msgspec.structs.replace(run, name=_with_folders(run, by_name[run.name])) for run in runs]


def _with_folders(run: Run, alike: list[Run]) -> str:
    folders, *others = [_folders_above(other) for other in (run, *(other for other in alike if other.root != run.root))]
    count = 0
    while count < len(folders) and any(folders[len(folders) - count :] == other[len(other) - count :] for other in others):
        count += 1
    return "/".join((*folders[len(folders) - count :], run.name))


def _folders_above(run: Run) -> tuple[str, ...]:
    """The folders above the one that gives the run its name."""
    root = run.root.absolute()
    return (root.parent if run.path == run.root else root).parts


def _short_name(group: Group) -> str:
    """A recording of stepscope has the name of its job, or of the program with the start time; the ranks of a job have the name of their
    folder, or the common part of their file names; any other run has the name of its file.
    """
    first = group.sources[0].path
    if moment := discover.name_timestamp(first):
        when = f"{moment[:4]}-{moment[4:6]}-{moment[6:8]} {moment[8:10]}:{moment[10:12]}:{moment[12:14]}"
        if discover.is_job_folder(first.parent):
            return first.parent.name if group.alone else f"{first.parent.name} {when}"
        return f"{_program(discover.header(group.sources[0])) or first.parent.name} {when}"
    name = _ENDINGS.sub("", Path(group.pattern).name)
    if len(group.sources) > 1 or group.unread:
        folder = discover.job_folder(group)
        name = re.sub(r"[-_. ]*rank(?:\*|[-_]?\d+)[-_. ]*", "-", name).strip("-")
        names_job = "rank" in Path(group.pattern).name.lower() and not _TOOLS.fullmatch(name)
        return name if name and names_job and not discover.is_process_name(first.name) else _user_folder(folder)
    return _user_folder(first) if _TOOLS.fullmatch(name) else name or first.name


def _user_folder(path: Path) -> str:
    """The name of the nearest folder, upwards, that the user named and not a profiler."""
    folders = (path.absolute(), *path.absolute().parents)
    return next((folder.name for folder in folders if folder.name and not _TOOLS.fullmatch(_ENDINGS.sub("", folder.name))), path.name)


def _relative(group: Group, root: Path) -> Path:
    path = group.sources[0].path
    return path.relative_to(root) if path != root and path.is_relative_to(root) else Path(path.name)


def _program(header: dict[str, Any]) -> str:
    """`train` for train.py."""
    extra = header.get("extra")
    program = header.get("program") or (extra.get("program") if isinstance(extra, dict) else None)
    return Path(program).stem if isinstance(program, str) else ""


def _merge_headers(headers: list[dict[str, Any]]) -> dict[str, Any]:
    """Framework, world size, ranks and devices of a run; values of an unexpected type are ignored."""
    first = headers[0]
    fields = {name: first[name] for name, kind in (("framework", str), ("world_size", int)) if isinstance(first.get(name), kind)}
    ranks: list[int] = []
    devices: list[str] = []
    for header in headers:
        members = header.get("ranks", [header.get("rank")])
        ranks += [rank for rank in members if isinstance(rank, int)] if isinstance(members, list) else []
        chips = header.get("devices")
        names = [chip.get("name") for chip in chips if isinstance(chip, dict)] if isinstance(chips, list) else []
        devices += [chip for chip in names if isinstance(chip, str)]
    return fields | ({"ranks": sorted(set(ranks))} if ranks else {}) | ({"devices": list(dict.fromkeys(devices))} if devices else {})


def _assigned_ranks(group: Group) -> dict[str, Any]:
    """The ranks that `discover` assigned to processes without one."""
    ranks = [recording.rank for recording in group.recordings if recording.rank is not None]
    return {"ranks": ranks} if ranks else {}


def _is_live(source: Source, header: dict[str, Any]) -> bool:
    """Is it still being recorded? A killed job leaves an incomplete capture, too."""
    if source.format != "capture" or header.get("whole") or not header:
        return False
    try:
        changed = max(entry.stat().st_mtime for entry in os.scandir(source.path))
    except (OSError, ValueError):
        return False
    return time.time() - changed < _QUIET_S or _runs_here(header.get("pid"), header.get("start_ns"))


def _runs_here(pid: object, start_ns: object) -> bool:
    """Is this process on this machine, and older than its recording?"""
    if not isinstance(pid, int) or not isinstance(start_ns, int):
        return False
    try:
        return Path(f"/proc/{pid}").stat().st_ctime <= start_ns / 1e9
    except OSError:
        return False


def _files(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        for file in [path] if path.is_file() else _walk(path):
            try:
                status = file.stat()
            except OSError:
                continue  # removed since it was listed
            yield str(file), status.st_mtime_ns, status.st_size


def _walk(folder: Path) -> Iterator[Path]:
    seen = 0
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            seen += 1
            if seen > _MAX_FILES:
                return
            yield Path(place, name)


def _links_below(folder: Path) -> Iterator[Path]:
    """Links inside a run folder or a capture; a reader follows them."""
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            if path.is_symlink():
                yield path
