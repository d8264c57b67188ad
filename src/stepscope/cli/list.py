"""List every run at or below some paths: format, framework, ranks, steps, size and age.

A folder is one row where its recordings are the ranks and windows of one run, as `stepscope summary FOLDER` opens it.
The column `problems` lists the ranks of a run that cannot be read, and why.
Files that were not read before are only looked at: --deep reads them, so that framework, ranks and steps are known.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.cli import _output, _text
from stepscope.cli._arguments import open_trace
from stepscope.errors import DataError

if TYPE_CHECKING:
    from stepscope.run_groups import Group, Source
    from stepscope.trace import Trace

EXAMPLES = """\
stepscope list
stepscope list runs/ --deep --sort changed
stepscope list runs/ --format json
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help="Files or folders. Default: the current folder."
    )
    parser.add_argument("--deep", action="store_true", help="Read every file, so that framework, ranks and steps are known.")
    parser.set_defaults(partial=False, step_name=None, rank=None, no_cache=False)
    _output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import polars as pl

    from stepscope.opening import sources

    _output.check_output(args)
    failed: list[DataError] = []
    rows = []
    for path in args.paths:
        unread: list[DataError] = []
        try:
            found = list(sources(path, unread.append))
        except DataError as error:  # the path itself
            failed.append(error)
            continue
        runs, alone = _runs(found, unread)
        failed += alone
        for place, group in runs:
            try:
                rows.append(_run_row(place, group, args))
            except DataError as error:
                failed.append(error)
    columns = {
        "path": pl.String,
        "format": pl.String,
        "framework": pl.String,
        "ranks": pl.String,
        "steps": pl.Int64,
        "size_bytes": pl.Int64,
    }
    frame = pl.DataFrame(rows, schema=columns | {"changed": pl.String, "problems": pl.String}, orient="row")
    if rows or not failed:
        _output.put(frame.lazy(), args, None, {"list": ", ".join(map(str, args.paths))})
        sys.stdout.flush()
    sys.stderr.writelines(f"stepscope: {_text.clean(str(error))}\n" for error in failed)
    return 1 if failed else 0


def _runs(found: "list[Source]", unread: list[DataError]) -> "tuple[list[tuple[Path, Group]], list[DataError]]":
    """What one path opens, and the run there, in the order in which they were found; and what cannot be read and is part of no run."""
    from stepscope import run_groups

    groups = list(run_groups.groups(found, unread))
    order = {source: number for number, source in enumerate(found)}
    runs: list[tuple[Path, Group]] = []
    for group in sorted(groups, key=lambda one: min(order[source] for source in one.sources)):
        if (place := run_groups.place(group, groups)) is not None:
            runs.append((place, group))
        else:
            each = (run_groups.Group((run_groups.Recording((source,)),), group.pattern) for source in group.sources)
            runs += [(one.sources[0].path, one) for one in each]
    return runs, run_groups.unread_alone(groups, unread)


class _Row(NamedTuple):
    """What is known of one recording."""

    format: str
    framework: str | None
    ranks: list[int]
    steps: int | None
    size: int
    changed: float
    problems: tuple[dict[str, Any], ...] = ()  # ranks of it that cannot be read


def _run_row(place: Path, group: "Group", args: argparse.Namespace) -> tuple[Any, ...]:
    """The recordings of a run as one row; what is not known of all of them is not known."""
    from stepscope import run_groups
    from stepscope.trace import unread_problem

    rows: list[_Row] = []
    unread = [(error, run_groups.rank_of(Path(error.path))) for error in group.unread]
    for recording in group.recordings:
        for source in recording.sources:
            try:
                rows.append(_row(source, recording.rank, args))
            except DataError as error:
                unread.append((error, run_groups.rank_of(source.path, source.format) if recording.rank is None else recording.rank))
    if not rows:
        raise unread[0][0]
    ranks = sorted({rank for row in rows for rank in row.ranks})
    steps = [row.steps for row in rows if row.steps is not None]
    problems = [unread_problem(error, rank) for error, rank in unread] + [problem for row in rows for problem in row.problems]
    return (
        str(place),
        rows[0].format,
        rows[0].framework,
        _spell(ranks) if ranks else None,
        sum(steps) if len(steps) == len(rows) else None,
        sum(row.size for row in rows),
        _text.moment(max(row.changed for row in rows)),
        "; ".join(f"{Path(row['file']).name}: {row['what']}" for row in problems) or None,
    )


def _row(source: "Source", rank: int | None, args: argparse.Namespace) -> _Row:
    from stepscope import readers
    from stepscope.run_groups import rank_in_name
    from stepscope.trace import UNREAD

    files = [source.path] if source.path.is_file() else [Path(at, name) for at, _, names in os.walk(source.path) for name in names]
    status = [file.stat() for file in files if file.is_file()]
    about = sum(one.st_size for one in status), max((one.st_mtime for one in status), default=0)
    trace = _known(source) or (open_trace(source.path, args) if args.deep else None)
    if trace is None:
        said = readers.rank(source.path, source.format) if rank is None else rank
        said = None if said is not None and said < 0 else said
        named = rank_in_name(source.path) if said is None else said
        return _Row(source.format, None, [] if named is None else [named], None, *about)
    meta, steps = trace.meta, trace.steps.select("step").collect().height
    unread = tuple(row for row in trace.problems.collect().iter_rows(named=True) if UNREAD in row["what"])
    return _Row(meta.format or source.format, meta.framework or None, meta.ranks if rank is None else [rank], steps, *about, unread)


def _known(source: "Source") -> "Trace | None":
    """The trace of a run folder, or of a file that was read before: both open at once."""
    from stepscope import store
    from stepscope.opening import kept_run

    run = source.path if source.format == "run" else kept_run(source)
    return store.read(run) if run and store.sniff(run) else None


def _spell(ranks: list[int]) -> str:
    """0, 3 or 0-7."""
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks))
