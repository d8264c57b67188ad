"""List every trace at or below some paths: format, framework, ranks, steps, size and age.

Files that were not read before are only looked at: --deep reads them, so that framework, ranks and steps are known.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli import _output, _text
from stepscope.cli._arguments import open_trace
from stepscope.errors import DataError

if TYPE_CHECKING:
    from stepscope.opening import Source
    from stepscope.trace import Trace


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help="files or folders; the current one if none")
    parser.add_argument("--deep", action="store_true", help="read every file")
    parser.set_defaults(partial=False, step_name=None, rank=None, no_cache=False)
    _output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import polars as pl

    from stepscope.opening import sources

    failed: list[DataError] = []
    rows = []
    for path in args.paths:
        try:
            for source in sources(path, failed.append):
                try:
                    rows.append(_row(source, args))
                except DataError as error:
                    failed.append(error)
        except DataError as error:  # the path itself
            failed.append(error)
    columns = {
        "path": pl.String,
        "format": pl.String,
        "framework": pl.String,
        "ranks": pl.String,
        "steps": pl.Int64,
        "size_bytes": pl.Int64,
    }
    frame = pl.DataFrame(rows, schema=columns | {"changed": pl.String}, orient="row")
    if rows or not failed:
        _output.put(frame.lazy(), args, None, {"list": ", ".join(map(str, args.paths))})
        sys.stdout.flush()
    sys.stderr.writelines(f"stepscope: {_text.clean(str(error))}\n" for error in failed)
    return 1 if failed else 0


def _row(source: "Source", args: argparse.Namespace) -> tuple[Any, ...]:
    from stepscope import readers
    from stepscope.opening import rank_in_name

    files = [source.path] if source.path.is_file() else [Path(at, name) for at, _, names in os.walk(source.path) for name in names]
    status = [file.stat() for file in files if file.is_file()]
    about = (sum(one.st_size for one in status), _text.moment(max((one.st_mtime for one in status), default=0)))
    trace = _known(source) or (open_trace(source.path, args) if args.deep else None)
    if trace is None:
        said = readers.rank(source.path, source.format)
        named = rank_in_name(source.path) if said is None else said
        return (str(source.path), source.format, None, None if named is None else str(named), None, *about)
    meta, steps = trace.meta, trace.steps.select("step").collect().height
    return (str(source.path), meta.format or source.format, meta.framework or None, _spell(meta.ranks), steps, *about)


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
