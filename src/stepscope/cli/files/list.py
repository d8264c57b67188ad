"""List every run at or below some paths: format, framework, ranks, steps, size and age.

A folder whose recordings are the ranks and windows of one run is one row, as `stepscope summary FOLDER` opens it.
The column `missing` is the number of ranks of the job without a recording here, where the recordings know how many ranks there are.
The column `problems` lists the ranks of a run that are not recorded, or cannot be read, with the reason.
Files that were never opened are only identified: --deep reads them, to fill framework, ranks, missing and steps.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.cli.shared import layout, output
from stepscope.cli.shared.arguments import PATHS_HELP, open_trace
from stepscope.errors import DataError

if TYPE_CHECKING:
    from stepscope.io.discover import Group, Source
    from stepscope.model.trace import Trace

EXAMPLES = """\
stepscope list
stepscope list runs/ --deep --sort changed
stepscope list runs/ --format json
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help=PATHS_HELP)
    parser.add_argument("--deep", action="store_true", help="Read every file, to fill framework, ranks and steps. Default: off.")
    parser.set_defaults(partial=False, step_name=None, rank=None, no_cache=False)
    output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import polars as pl

    from stepscope.io.sources import find_sources, known_formats
    from stepscope.readers.common.unknown_files import folder_hint

    output.check_output(args)
    failed: list[DataError] = []
    remarks: list[str] = []
    rows = []
    for path in args.paths:
        unread: list[DataError] = []
        try:
            sources = list(find_sources(path, unread.append))
            runs, alone = _runs(sources, unread)
        except DataError as error:  # the path itself
            failed.append(error)
            continue
        failed += alone
        if not sources and not alone:
            remarks.append(f"{path}: no trace in this folder: {folder_hint(path)}. {known_formats()}")
        for place, group in runs:
            try:
                rows.append(_run_row(place, group, args))
            except DataError as error:
                failed.append(error)
    texts = dict.fromkeys(("path", "format", "framework", "ranks"), pl.String)
    columns = texts | {"missing": pl.Int64, "steps": pl.Int64, "size_bytes": pl.Int64, "changed": pl.String, "problems": pl.String}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    if rows or not failed:
        output.write_table(frame.lazy(), args, None, {"list": ", ".join(map(str, args.paths))})
        sys.stdout.flush()
    sys.stderr.writelines(f"stepscope: {layout.clean(str(line))}\n" for line in (*remarks, *failed))
    return 1 if failed else 0


def _runs(sources: "list[Source]", unread: list[DataError]) -> "tuple[list[tuple[Path, Group]], list[DataError]]":
    """The runs in the order of their files, each with the path that opens it; and the unreadable files that belong to no run."""
    from stepscope.io import discover

    groups = list(discover.groups(sources, unread))
    order = {source: number for number, source in enumerate(sources)}
    runs: list[tuple[Path, Group]] = []
    for group in sorted(groups, key=lambda group: min(order[source] for source in group.sources)):
        if (place := discover.path_of_run(group, groups)) is not None:
            runs.append((place, group))
        else:
            runs += [(source.path, discover.Group((discover.Recording((source,)),), group.pattern)) for source in group.sources]
    return runs, discover.unread_alone(groups, unread)


class _Recording(NamedTuple):
    """The fields of one recording."""

    format: str
    framework: str | None
    ranks: list[int]
    world_size: int | None
    steps: int | None
    size: int
    changed: float
    problems: tuple[dict[str, Any], ...] = ()  # ranks of it that cannot be read


def _run_row(place: Path, group: "Group", args: argparse.Namespace) -> tuple[Any, ...]:
    """The recordings of a run as one row; the number of steps is null unless it is known for all of them."""
    from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
    from stepscope.io import discover
    from stepscope.model import units
    from stepscope.model.trace import unread_problem

    rows: list[_Recording] = []
    unread = [(error, discover.rank_of(Path(error.path))) for error in group.unread]
    for recording in group.recordings:
        for source in recording.sources:
            try:
                rows.append(_recording(source, recording.rank, args))
            except DataError as error:
                unread.append((error, discover.rank_of(source.path, source.format) if recording.rank is None else recording.rank))
    if not rows:
        raise unread[0][0]
    ranks = sorted({rank for row in rows for rank in row.ranks})
    world = max((row.world_size for row in rows if row.world_size is not None), default=None)
    steps = [row.steps for row in rows if row.steps is not None]
    problems = [unread_problem(error, rank) for error, rank in unread] + [problem for row in rows for problem in row.problems]
    texts = [f"{Path(row['file']).name}: {row['what']}" for row in problems]
    size = max(world or 0, ranks[-1] + 1 if ranks else 0)
    missing = sorted(set(range(size)) - set(ranks) - {row["rank"] for row in problems})
    if len(ranks) > 1 and missing:
        texts.insert(0, f"{len(missing)} of {units.count(size, 'rank')} not recorded: {rank_ranges(missing)}")
    return (
        str(place),
        rows[0].format,
        rows[0].framework,
        _rank_range(ranks) if ranks else None,
        None if world is None else len(missing),
        sum(steps) if len(steps) == len(rows) else None,
        sum(row.size for row in rows),
        layout.local_time(max(row.changed for row in rows)),
        "; ".join(texts) or None,
    )


def _recording(source: "Source", rank: int | None, args: argparse.Namespace) -> _Recording:
    from stepscope import readers
    from stepscope.io.discover import rank_in_name
    from stepscope.model.trace import UNREAD

    files = [source.path] if source.path.is_file() else [Path(at, name) for at, _, names in os.walk(source.path) for name in names]
    status = [file.stat() for file in files if file.is_file()]
    state = sum(entry.st_size for entry in status), max((entry.st_mtime for entry in status), default=0)
    trace = _converted(source) or (open_trace(source.path, args) if args.deep else None)
    if trace is None:
        rank = readers.rank(source.path, source.format) if rank is None else rank
        rank = rank_in_name(source.path) if rank is None or rank < 0 else rank
        return _Recording(source.format, None, [] if rank is None else [rank], None, None, *state)
    meta, steps = trace.meta, trace.steps.select("step").collect().height
    unread = tuple(row for row in trace.problems.collect().iter_rows(named=True) if UNREAD in row["what"])
    ranks = meta.ranks if rank is None else [rank]
    return _Recording(meta.format or source.format, meta.framework or None, ranks, meta.world_size, steps, *state, unread)


def _converted(source: "Source") -> "Trace | None":
    """The trace of a run folder, or of a file in the cache: both open at once."""
    from stepscope.io import store
    from stepscope.io.open_source import cached_run

    run = source.path if source.format == "run" else cached_run(source)
    return store.read(run) if run and store.sniff(run) else None


def _rank_range(ranks: list[int]) -> str:
    """`0, 3` or `0-7`."""
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks))
