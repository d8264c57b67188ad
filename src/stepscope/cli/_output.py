"""A table as text, CSV, JSON or Parquet, on a terminal, a pipe or in a file: the same rows everywhere."""

import argparse
import itertools
import math
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from stepscope import exporters, units
from stepscope.cli import _terminal, _text
from stepscope.cli._arguments import OneOf, check_ending
from stepscope.errors import UsageError
from stepscope.parameters import checked, listing
from stepscope.tables import batches, chosen, finite, json_text, write_csv, write_json

if TYPE_CHECKING:
    import polars as pl

    from stepscope.trace import Trace

FORMATS = ("table", "csv", "json", "parquet")
# A terminal is for looking: the first rows, and how many there are. A pipe gets every row and column, with long names cut; a file, all.
ON_TERMINAL = 30
ENDINGS = {".txt": "table", ".csv": "csv", ".json": "json", ".parquet": "parquet"}
_BATCH = 1 << 14
_MOMENTS = {"start_ns", "end_ns", "at_ns", "fp_start_ns", "bp_end_ns", "alloc_ns", "peak_ns"}
# Sentences, and what is copied into another command: whole also on a pipe.
_WHOLE = {"what", "where", "file", "note", "hint", "choice"}
_IDS = {"rank", "step", "span", "parent", "op", "track", "depth", "correlation", "flow_in", "device", "stream", "op_id"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format",
        type=OneOf("format", FORMATS),
        metavar="FORMAT",
        help=f"Write {listing(FORMATS)}. Default: by the ending of FILE, else table.",
    )
    group.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"Write to FILE, whose name ends in {listing(ENDINGS)}. Default: standard output."
    )
    group.add_argument("--force", action="store_true", help="Replace FILE if it exists.")
    group.add_argument(
        "--limit", type=int, metavar="N", help=f"Show at most N rows, 0 for all. Default: {ON_TERMINAL} on a terminal, else all."
    )
    group.add_argument("--sort", metavar="COLUMN", help="Sort by COLUMN, the largest first. Default: the order of the analysis or table.")
    group.add_argument("--ascending", action="store_true", help="With --sort: the smallest first.")
    group.add_argument("--columns", metavar="A,B", help="Show only these columns, in this order. Default: all.")
    group.add_argument(
        "--wide", action="store_true", help="Show whole names and all columns, however wide. Without it, long names are cut."
    )


def put(frame: "pl.LazyFrame", args: argparse.Namespace, trace: "Trace | None", about: dict[str, str], title: str = "") -> None:
    """Write a table as the arguments say. `about` is what JSON says of it besides its rows."""
    frame = _chosen(frame, args)
    form = args.format or _by_ending(args.output)
    if form == "table" and args.output is None and sys.stdout.isatty():
        _on_terminal(frame, args, trace, title)
    else:
        _write(frame.head(args.limit) if args.limit else frame, form, args, trace, about)
    if trace is not None and (lost := trace.problems.select("lost").sum().collect().item()):
        missing = "1 row could not be read and is missing" if lost == 1 else f"{lost:,} rows could not be read and are missing"
        sys.stderr.write(f"stepscope: {missing} here; `stepscope show problems PATH` says which\n")


def cell(column: str, value: object, origin: int | None, moments: set[str]) -> str:
    """A value of the named column for people: with its unit, moments from the start of the trace, nothing that steers a terminal."""
    if value is None:
        return ""
    if column in moments and origin is not None and isinstance(value, int):
        return f"+{units.duration(value - origin)}" if value >= origin else f"-{units.duration(origin - value)}"
    if isinstance(value, int) and not isinstance(value, bool):
        if column in _IDS:
            return str(value)
        if column == "address":
            return f"{value:#x}"
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    if isinstance(value, (list, dict)):
        return _text.clean(json_text(value))
    return _text.clean(units.cell(column, value))


def moments_of(columns: list[str]) -> set[str]:
    """The columns that hold moments rather than durations; `free_ns` is one only beside `alloc_ns`."""
    return {name for name in columns if name in _MOMENTS or (name == "free_ns" and "alloc_ns" in columns)}


def origin_of(trace: "Trace | None") -> int | None:
    """The first moment of the trace."""
    import polars as pl

    if trace is None:
        return None
    firsts = [
        trace.table(table).select(pl.col(column).min()).collect().item()
        for table, column in (("spans", "start_ns"), ("steps", "start_ns"), ("counters", "at_ns"), ("allocations", "alloc_ns"))
    ]
    return min((first for first in firsts if first is not None), default=None)


def _chosen(frame: "pl.LazyFrame", args: argparse.Namespace) -> "pl.LazyFrame":
    if args.ascending and not args.sort:
        raise UsageError("--ascending needs --sort COLUMN")
    frame = chosen(frame, sort=args.sort, descending=not args.ascending, columns=args.columns)
    if args.limit is not None:
        checked(int, "--limit", args.limit)
    return frame


def _by_ending(output: Path | None) -> str:
    return ENDINGS.get(output.suffix.lower(), "table") if output else "table"


def check_output(args: argparse.Namespace) -> None:
    """Refuse an output file that exists or whose ending is unknown: before anything is read."""
    if args.output is None:
        return
    if args.format is None:
        check_ending(args.output, list(ENDINGS), "the ending gives the format (or --format does)")
    if args.output.is_dir():
        raise UsageError(f"-o {args.output} is a folder; expected the name of a file")
    exporters.check_output(args.output, overwrite=args.force)


def _write(frame: "pl.LazyFrame", form: str, args: argparse.Namespace, trace: "Trace | None", about: dict[str, str]) -> None:
    if args.output is None:
        if form != "parquet":
            file = cast(IO[str], _Safe(sys.stdout)) if sys.stdout.isatty() else sys.stdout
            _write_text(frame, form, file, trace, about, cut=not args.wide)
        elif sys.stdout.isatty():
            raise UsageError("Parquet is not for a terminal: use -o FILE or a pipe")
        else:
            frame.collect().write_parquet(sys.stdout.buffer)
        return
    with exporters.whole(args.output, overwrite=args.force) as draft:
        if form == "parquet":
            frame.sink_parquet(draft, maintain_order=True)
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                _write_text(frame, form, file, trace, about, cut=False)


def _write_text(frame: "pl.LazyFrame", form: str, file: IO[str], trace: "Trace | None", about: dict[str, str], *, cut: bool) -> None:
    if form == "json":
        write_json(frame, file, about)
    elif form == "csv":
        write_csv(frame, file)
    else:
        _write_plain(frame, file, trace, cut=cut)


def _write_plain(frame: "pl.LazyFrame", file: IO[str], trace: "Trace | None", *, cut: bool) -> None:
    """Aligned without holding a long table in memory, and without reading all of it before the first line."""
    schema = frame.collect_schema()
    moments = moments_of(schema.names())
    origin = origin_of(trace) if moments else None
    columns = []
    for name, dtype in schema.items():
        cells = (cell(name, value, origin, moments) for value in _telling(frame, name, dtype.is_numeric()))
        columns.append(_text.Column(name, dtype.is_numeric(), max(map(_text.width, [_text.clean(name), *cells]))))
    whole = _WHOLE if trace is not None else _WHOLE | {"path"}  # of files that `list` found; that of an analysis is a stack
    if cut and (narrow := _text.narrow(columns, _terminal.width(), whole)) != columns:
        shorter = [column.name for column, was in zip(narrow, columns, strict=True) if column.width < was.width]
        sys.stderr.write(f"stepscope: long values of {_text.clean(', '.join(shorter))} are cut; --wide, CSV and JSON have them whole\n")
        columns = narrow
    file.write(_text.heading(columns) + "\n")
    for batch in batches(frame):
        padded = [_padded(values, column, origin, moments) for values, column in zip(batch, columns, strict=True)]
        file.writelines(_text.GAP.join(row).rstrip() + "\n" for row in zip(*padded, strict=True))


def _padded(values: "pl.Series", column: _text.Column, origin: int | None, moments: set[str]) -> list[str]:
    """The cells of a column as text of its width; what repeats is written once."""
    if values.dtype.is_nested():
        return [_cut(cell(column.name, value, origin, moments), column) for value in values.to_list()]
    texts = {value: _cut(cell(column.name, value, origin, moments), column) for value in values.unique().to_list()}
    return [texts[value] for value in values.to_list()]


def _cut(text: str, column: _text.Column) -> str:
    return _text.pad(_text.shorten(text, column.width), column.width, column.right)


def _telling(frame: "pl.LazyFrame", name: str, numeric: bool) -> list[Any]:
    """The values that decide how wide a column is: every text, and of numbers the ends and the first ones."""
    import polars as pl

    column = finite(frame.select(name))
    if numeric:
        return [
            *column.select(pl.min(name).alias("low"), pl.max(name).alias("high")).collect().row(0),
            *column.head(_BATCH).collect()[name].unique(),
        ]
    return column.unique().collect()[name].to_list()


def _on_terminal(frame: "pl.LazyFrame", args: argparse.Namespace, trace: "Trace | None", title: str) -> None:
    import polars as pl

    many = frame.select(pl.len()).collect().item()
    shown = frame.head(ON_TERMINAL if args.limit is None else args.limit or many).pipe(finite).collect()
    moments = moments_of(shown.columns)
    rows = list(_rows(shown, origin_of(trace) if moments else None, moments))
    natural = [
        _text.Column(name, dtype.is_numeric(), max([_text.width(_text.clean(name)), *(_text.width(row[index]) for row in rows)]))
        for index, (name, dtype) in enumerate(shown.schema.items())
    ]
    # Columns without a single value give way first, then those that repeat another: what is left out is named below the table.
    cells = dict(zip(shown.columns, zip(*rows, strict=True), strict=True)) if rows else {}
    empty = [name for name, column in cells.items() if not any(column)]
    kept = [index for index, column in enumerate(natural) if column.name not in empty]
    columns, hidden = (
        ([natural[index] for index in kept], []) if args.wide else _text.fit([natural[index] for index in kept], _terminal.width())
    )
    same: dict[str, str] = {}
    texts = [name for name, dtype in shown.schema.items() if name not in empty and dtype == pl.String]
    for name, first in itertools.combinations(reversed(texts), 2):
        if hidden and cells[name] == cells[first]:
            same[name] = first
    if same:
        kept = [index for index in kept if natural[index].name not in same]
        columns, hidden = _text.fit([natural[index] for index in kept], _terminal.width())
    notes = [f"{len(rows):,} of {units.count(many, 'row')}" + ("; --limit 0 shows all" if len(rows) < many else "")]
    notes += [f"no values: {', '.join(empty)}"] if empty else []
    notes += [f"same as {first}: {name}" for name, first in same.items()]
    notes += [f"no room: {', '.join(hidden)} (--columns)"] if hidden else []
    notes += (
        ["names are cut; --wide shows them whole"] if any(columns[at].width < natural[kept[at]].width for at in range(len(columns))) else []
    )
    notes += ["+ is counted from the start of the trace"] if moments & {column.name for column in columns} else []
    _terminal.write([[(title, "bold")]] if title else [])
    _terminal.write([[(_text.heading(columns), "dim")]])
    _terminal.write([(line, "")] for line in _text.lines(columns, ([row[index] for index in kept] for row in rows)))
    _terminal.write([(line, "dim")] for note in notes for line in textwrap.wrap(_text.clean(note), _terminal.width()))


def _rows(batch: "pl.DataFrame", origin: int | None, moments: set[str]) -> Iterator[list[str]]:
    for row in batch.iter_rows():
        yield [cell(column, value, origin, moments) for column, value in zip(batch.columns, row, strict=True)]


class _Safe:
    """A terminal that is shown data of unknown origin: only line ends pass."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        return self._terminal.write("\n".join(_text.clean(line.rstrip("\r")) for line in text.split("\n")))
