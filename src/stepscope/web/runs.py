"""The runs below the paths that were given: what the list shows, without reading more of any file than it takes to know its format.

`run_groups` says which recordings are one run.
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

from stepscope import facts, opening, run_groups, schema
from stepscope.errors import DataError
from stepscope.run_groups import Group, Source
from stepscope.tables import finite
from stepscope.trace import Trace, unread_problem

_ENDINGS = re.compile(r"(\.pt\.trace|\.xplane)?\.(json|pb|gz|capture|txt)(\.gz)?$", re.IGNORECASE)
# What profilers call their output, whatever the job.
_TOOLS = re.compile(
    r"profiler|ascend_(?:pt|ms)|ascend_profiler_output|cluster_analysis_output|mindstudio_profiler_output|trace_view", re.IGNORECASE
)
_QUIET_S = 30  # a job on another machine that has written nothing for so long is not taken for alive
_FILES_LOOKED_AT = 10_000
_PROBLEMS = 1000
LARGE = 1 << 22  # spans: of more, a page of everything takes many seconds and gigabytes
_SHOWN = 1 << 20


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
    step_name: str | None = None  # steps that were chosen; the id says so, too
    unread: tuple[DataError, ...] = ()  # recordings of other ranks of it that cannot be read
    known: dict[str, Any] = {}  # what a run folder's or a capture's header says: framework, ranks, ...

    def shown(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in ("id", "name", "format", "state", "bytes", "modified_ns")}
        row |= {"path": str(self.path), **self.known}
        problems = [unread_problem(error, run_groups.rank_of(Path(error.path))) for error in self.unread]
        return row | ({"error": self.error} if self.error else {}) | ({"problems": problems} if problems else {})

    def with_steps(self, identity: str, step_name: str) -> "Run":
        """The same run with other steps, under an id of its own: nothing that was computed for one is an answer for the other."""
        return msgspec.structs.replace(self, id=identity, step_name=step_name)

    def is_there(self) -> bool:
        return all(source.path.exists() for source in self.sources)

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when any of its files does, or one that is read with it."""
        beside = (file for source in self.sources for file in opening.beside(source))
        return tuple(_files([*(source.path for source in self.sources), *beside]))


class Table:
    """The list of runs. `scan` looks anew; ids of what stays where it is stay the same."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = list(dict.fromkeys(roots))
        self._formats: opening.Formats = {}
        self._confined: dict[Path, tuple[int, int, int]] = {}  # what was looked at; who opens a run looks again
        self._runs: dict[str, Run] = {}

    def scan(self) -> list[Run]:
        found: dict[str, Run] = {}
        for root in self.roots:
            for run in self._below(root):
                found.setdefault(run.id, run)
        self._runs = {run.id: run for run in _told_apart(list(found.values()))}
        return self.runs()

    def runs(self) -> list[Run]:
        return list(self._runs.values())

    def run(self, identity: str) -> Run | None:
        return self._runs.get(identity)

    def _below(self, root: Path) -> Iterator[Run]:
        failed: list[DataError] = []
        found: list[Source] = []
        try:
            for source in opening.sources(root, failed.append, self._formats):
                state = self._formats[source.path][0]
                try:
                    if self._confined.get(source.path) != state:
                        confine(source, root)
                except DataError as error:
                    failed.append(error)
                else:
                    self._confined[source.path] = state
                    found.append(source)
        except DataError as error:  # the path itself
            failed.append(error)
        groups = list(run_groups.groups(found, failed))
        for group, name in zip(groups, _names(groups, root), strict=True):
            yield _run(group, name, root)
        for problem in run_groups.unread_alone(groups, failed):
            path = Path(problem.path)
            yield Run(_identity(path.name, path), path.name, path, root, (), "", "unreadable", 0, 0, str(problem))


def describe(
    trace: Trace, identity: str, name: str, *, path: str | None = None, state: str = "finished", known: str | None = None
) -> dict[str, Any]:
    """What a page needs to know of a trace before it asks anything: how much of what there is, when it began, what could not be read.

    `known` is the name by which what takes long to find is kept, where it may be.
    """
    counts = {table: trace.table(table).select(pl.len()).collect().item() for table in schema.TABLES}
    found = facts.facts(trace, known)
    problems = trace.problems.select("rank", "file", "where", "what", "lost")
    steps = dict(trace.steps.group_by("rank").len().collect().iter_rows())
    meta = msgspec.to_builtins(trace.meta)
    return {
        "id": identity,
        "name": name,
        "path": path or trace.meta.source,
        "state": state,
        **{key: meta[key] for key in ("format", "framework", "versions", "world_size", "ranks", "options", "extra")},
        "origin_ns": str(found.first_ns),
        "end_ns": str(found.last_ns),
        "tables": counts,
        "kinds": found.kinds,
        "counters": found.counters,
        "devices": finite(trace.devices).collect().to_dicts(),
        "steps": [steps.get(rank, 0) for rank in trace.meta.ranks],
        "part": _part(trace, counts["spans"]),
        "problems": finite(problems.head(_PROBLEMS)).collect().to_dicts(),
        "problem_count": counts["problems"],
    }


def _part(trace: Trace, spans: int) -> list[int] | None:
    """The first and the last of the steps that the pages of a large run show unless others are chosen: analyses hold all of their spans.

    As many as have about _SHOWN spans, from the second one on: the first is often another one.
    """
    steps = trace.steps.select(pl.col("step").unique().sort()).collect().to_series().to_list() if spans > LARGE else []
    many = max(1, len(steps) * _SHOWN // max(spans, 1))
    return [steps[1], steps[min(many, len(steps) - 1)]] if len(steps) > 2 else None


def confine(source: Source, root: Path) -> None:
    """Nothing outside the given path is served, by whatever links it is reached."""
    inside = root.resolve()
    for path in [source.path, *_links_below(source.path)]:
        if not path.resolve().is_relative_to(inside):
            raise DataError(path, "a link that leads out of the folder that is served")


def _run(group: Group, name: str, root: Path) -> Run:
    first, *others = group.sources
    path = run_groups.job_folder(group) if others or group.unread else first.path
    files = list(_files(source.path for source in group.sources))
    headers = [run_groups.header(source) for source in group.sources]
    state = "live" if any(_is_live(source, header) for source, header in zip(group.sources, headers, strict=True)) else "finished"
    return Run(
        _identity(_ENDINGS.sub("", Path(group.pattern).name), Path(group.pattern)),
        name,
        path,
        root,
        group.sources,
        first.format,
        state,
        sum(size for _, _, size in files),
        max((changed for _, changed, _ in files), default=0),
        unread=group.unread,
        known=_known(headers) | _assigned(group),
    )


def _identity(name: str, path: Path) -> str:
    """Readable, and never a path: what it stands for is looked up."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48].strip("-")
    return f"{slug or 'run'}-{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:8]}"


def _names(groups: list[Group], root: Path) -> list[str]:
    """Short where that tells them apart, else with the folders above, else the path."""
    short = [_short_name(group) for group in groups]
    above = [[*_relative(group, root).parent.parts, name] for group, name in zip(groups, short, strict=True)]
    long = ["/".join(parts) for parts in above]
    times, more = Counter(short), Counter(long)
    return [
        name if times[name] == 1 else full if more[full] == 1 else str(_relative(group, root))
        for group, name, full in zip(groups, short, long, strict=True)
    ]


def _told_apart(runs: list[Run]) -> list[Run]:
    """Those of several paths that have one name get as many of the folders above as it takes."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    return [msgspec.structs.replace(run, name=_with_folders(run, by_name[run.name])) for run in runs]


def _with_folders(run: Run, alike: list[Run]) -> str:
    mine, *others = [_above(one) for one in (run, *(other for other in alike if other.root != run.root))]
    many = 0
    while many < len(mine) and any(mine[len(mine) - many :] == other[len(other) - many :] for other in others):
        many += 1
    return "/".join((*mine[len(mine) - many :], run.name))


def _above(run: Run) -> tuple[str, ...]:
    """The folders above what its name is of."""
    root = run.root.absolute()
    return (root.parent if run.path == run.root else root).parts


def _short_name(group: Group) -> str:
    """A recording of ours is called by its job, or by the program and when it began; the ranks of a job by their folder, or by what the
    names of their files have in common; anything else by its file.
    """
    first = group.sources[0].path
    if moment := run_groups.moment(first):
        when = f"{moment[:4]}-{moment[4:6]}-{moment[6:8]} {moment[8:10]}:{moment[10:12]}:{moment[12:14]}"
        if run_groups.is_job_folder(first.parent):
            return first.parent.name if group.alone else f"{first.parent.name} {when}"
        return f"{_program(run_groups.header(group.sources[0])) or first.parent.name} {when}"
    name = _ENDINGS.sub("", Path(group.pattern).name)
    if len(group.sources) > 1 or group.unread:
        folder = run_groups.job_folder(group)
        name = re.sub(r"[-_. ]*rank(?:\*|[-_]?\d+)[-_. ]*", "-", name).strip("-")
        told = "rank" in Path(group.pattern).name.lower() and not _TOOLS.fullmatch(name)
        return name if name and told and not run_groups.is_process_name(first.name) else _own_name(folder)
    return _own_name(first) if _TOOLS.fullmatch(name) else name or first.name


def _own_name(path: Path) -> str:
    """The name of the nearest folder, from here up, that the user chose, and not a profiler."""
    folders = (path.absolute(), *path.absolute().parents)
    return next((one.name for one in folders if not _TOOLS.fullmatch(_ENDINGS.sub("", one.name)) and one.name), path.name)


def _relative(group: Group, root: Path) -> Path:
    path = group.sources[0].path
    return path.relative_to(root) if path != root and path.is_relative_to(root) else Path(path.name)


def _program(header: dict[str, Any]) -> str:
    """train of train.py; a run folder says it among what else its source said."""
    more = header.get("extra")
    said = header.get("program") or (more.get("program") if isinstance(more, dict) else None)
    return Path(said).stem if isinstance(said, str) else ""


def _known(headers: list[dict[str, Any]]) -> dict[str, Any]:
    """What the headers say of the run, as far as it is of the kind that is expected there."""
    first = headers[0]
    known = {name: first[name] for name, kind in (("framework", str), ("world_size", int)) if isinstance(first.get(name), kind)}
    ranks: list[int] = []
    devices: list[str] = []
    for header in headers:
        said = header.get("ranks", [header.get("rank")])
        ranks += [rank for rank in said if isinstance(rank, int)] if isinstance(said, list) else []
        chips = header.get("devices")
        names = [chip.get("name") for chip in chips if isinstance(chip, dict)] if isinstance(chips, list) else []
        devices += [chip for chip in names if isinstance(chip, str)]
    return known | ({"ranks": sorted(set(ranks))} if ranks else {}) | ({"devices": list(dict.fromkeys(devices))} if devices else {})


def _assigned(group: Group) -> dict[str, Any]:
    """The ranks that processes have here, where they were assigned."""
    ranks = [recording.rank for recording in group.recordings if recording.rank is not None]
    return {"ranks": ranks} if ranks else {}


def _is_live(source: Source, header: dict[str, Any]) -> bool:
    """Is it still being recorded? A job that was killed left a capture that is not whole, either."""
    if source.format != "capture" or header.get("whole") or not header:
        return False
    try:
        changed = max(entry.stat().st_mtime for entry in os.scandir(source.path))
    except (OSError, ValueError):
        return False
    return time.time() - changed < _QUIET_S or _runs_here(header.get("pid"), header.get("start_ns"))


def _runs_here(pid: object, start_ns: object) -> bool:
    """Is this process on this machine, and older than what it records?"""
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
                continue  # gone meanwhile
            yield str(file), status.st_mtime_ns, status.st_size


def _walk(folder: Path) -> Iterator[Path]:
    seen = 0
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            seen += 1
            if seen > _FILES_LOOKED_AT:
                return
            yield Path(place, name)


def _links_below(folder: Path) -> Iterator[Path]:
    """Links inside a run folder or a capture; a reader follows them."""
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            if path.is_symlink():
                yield path
