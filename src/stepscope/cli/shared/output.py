"""A table as text, CSV, JSON or Parquet, on a terminal, a pipe or in a file."""

import argparse
import itertools
import math
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from stepscope import exporters
from stepscope.cli.shared import layout, terminal
from stepscope.cli.shared.arguments import OneOf, check_ending
from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.output.tables import batches, chosen, finite, json_text, write_csv, write_json
from stepscope.model.parameters import checked, listing

if TYPE_CHECKING:
    import polars as pl

    from stepscope.model.trace import Trace

FORMATS = ("table", "csv", "json", "parquet")
# A terminal shows the first rows. A pipe gets all rows and columns, with long names cut. A file gets everything.
TERMINAL_ROWS = 30
ENDINGS = {".txt": "table", ".csv": "csv", ".json": "json", ".parquet": "parquet"}
_BATCH = 1 << 14
_TIMESTAMPS = {"start_ns", "end_ns", "at_ns", "fp_start_ns", "bp_end_ns", "alloc_ns", "peak_ns"}
# Sentences, and texts for other commands: never cut on a pipe.
_WHOLE = {"what", "where", "file", "note", "hint", "choice", "text"}
_IDS = {"rank", "step", "span", "parent", "op", "track", "depth", "correlation", "flow_in", "device", "stream", "op_id"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    text = f"Write {listing(FORMATS)}. Default: by the ending of FILE, else table."
    group.add_argument("--format", type=OneOf("format", FORMATS), metavar="FORMAT", help=text)
    text = f"Write to FILE, whose name ends in {listing(ENDINGS)}. Default: standard output."
    group.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    group.add_argument("--force", action="store_true", help="Replace FILE if it exists. Default: refuse.")
    text = f"Show at most N rows, 0 for all. Default: {TERMINAL_ROWS} on a terminal, else all."
    group.add_argument("--limit", type=int, metavar="N", help=text)
    group.add_argument("--sort", metavar="COLUMN", help="Sort by COLUMN, largest first. Default: the order of the analysis or table.")
    group.add_argument("--ascending", action="store_true", help="With --sort: sort smallest first. Default: largest first.")
    group.add_argument("--columns", metavar="A,B", help="Show only these columns, in this order. Default: all.")
    group.add_argument("--wide", action="store_true", help="Show whole names and all columns, however wide. Default: cut long names.")


def write_table(frame: "pl.LazyFrame", args: argparse.Namespace, trace: "Trace | None", header: dict[str, str], title: str = "") -> None:
    """Write a table as the arguments request. `header` is the part of the JSON besides the rows."""
    if args.ascending and not args.sort:
        raise UsageError("--ascending needs --sort COLUMN")
    if args.limit is not None:
        checked(int, "--limit", args.limit)
    frame = chosen(frame, sort=args.sort, descending=not args.ascending, columns=args.columns)
    format_name = args.format or (ENDINGS.get(args.output.suffix.lower(), "table") if args.output else "table")
    if format_name == "table" and args.output is None and sys.stdout.isatty():
        _write_terminal(frame, args, trace, title)
    else:
        _write(frame.head(args.limit) if args.limit else frame, format_name, args, trace, header)
    if trace is not None and (lost := trace.problems.select("lost").sum().collect().item()):
        sys.stderr.write(f"stepscope: {units.count(lost, 'row')} could not be read; `stepscope show problems PATH` lists the losses\n")


def check_output(args: argparse.Namespace) -> None:
    """Refuse an output file that exists or has an unknown ending, before the trace is read."""
    if args.output is None:
        return
    if args.format is None:
        check_ending(args.output, list(ENDINGS), "the ending sets the format, or --format does")
    if args.output.is_dir():
        raise UsageError(f"-o {args.output} is a folder; expected the name of a file")
    exporters.check_output(args.output, overwrite=args.force)


class _Cells(NamedTuple):
    """Texts of the cells of a table."""

    timestamps: set[str]  # columns of timestamps, not durations
    origin: int | None  # the first timestamp of the trace

    def text(self, column: str, value: object) -> str:
        """A value with its unit; timestamps count from the start of the trace; control characters are escaped."""
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return ""
        if column in self.timestamps and self.origin is not None and isinstance(value, int):
            return f"{'+' if value >= self.origin else '-'}{units.duration(abs(value - self.origin))}"
        if isinstance(value, int) and not isinstance(value, bool) and column in _IDS:
            return str(value)
        if isinstance(value, int) and column == "address":
            return f"{value:#x}"
        return layout.clean(json_text(value) if isinstance(value, (list, dict)) else units.cell(column, value))

    def column(self, name: str, numeric: bool, values: Iterable[object]) -> layout.Column:
        """The column with the width of its widest cell."""
        return layout.Column(name, numeric, max(map(layout.width, [layout.clean(name), *(self.text(name, value) for value in values)])))


def _cells(names: list[str], trace: "Trace | None") -> _Cells:
    import polars as pl

    timestamps = {name for name in names if name in _TIMESTAMPS or (name == "free_ns" and "alloc_ns" in names)}
    if trace is None or not timestamps:
        return _Cells(timestamps, None)
    columns = (("spans", "start_ns"), ("steps", "start_ns"), ("counters", "at_ns"), ("allocations", "alloc_ns"))
    firsts = [trace.table(table).select(pl.col(column).min()).collect().item() for table, column in columns]
    return _Cells(timestamps, min((first for first in firsts if first is not None), default=None))


def _write(frame: "pl.LazyFrame", format_name: str, args: argparse.Namespace, trace: "Trace | None", header: dict[str, str]) -> None:
    if args.output is None:
        if format_name != "parquet":
            file = cast(IO[str], _SafeTerminal(sys.stdout)) if sys.stdout.isatty() else sys.stdout
            _write_text(frame, format_name, file, trace, header, cut=not args.wide)
        elif sys.stdout.isatty():
            raise UsageError("Parquet cannot be shown on a terminal: use -o FILE or a pipe")
        else:
            frame.collect().write_parquet(sys.stdout.buffer)
        return
    with exporters.draft_output(args.output, overwrite=args.force) as draft:
        if format_name == "parquet":
            frame.sink_parquet(draft, maintain_order=True)
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                _write_text(frame, format_name, file, trace, header, cut=False)


def _write_text(
    frame: "pl.LazyFrame", format_name: str, file: IO[str], trace: "Trace | None", header: dict[str, str], *, cut: bool
) -> None:
    if format_name == "json":
        write_json(frame, file, header)
    elif format_name == "csv":
        write_csv(frame, file)
    else:
        _write_plain(frame, file, trace, cut=cut)


def _write_plain(frame: "pl.LazyFrame", file: IO[str], trace: "Trace | None", *, cut: bool) -> None:
    """Write aligned text in batches: a long table is never in memory as a whole."""
    schema = frame.collect_schema()
    cells = _cells(schema.names(), trace)
    columns = [cells.column(name, dtype.is_numeric(), _widest(frame, name, dtype.is_numeric())) for name, dtype in schema.items()]
    whole = _WHOLE if trace is not None else _WHOLE | {"path"}  # paths of `list`; the path of an analysis is a stack
    if cut and (narrow := layout.narrow(columns, terminal.width(), whole)) != columns:
        shorter = [column.name for column, before in zip(narrow, columns, strict=True) if column.width < before.width]
        sys.stderr.write(f"stepscope: long values of {layout.clean(', '.join(shorter))} are cut; use --wide, CSV or JSON for all of them\n")
        columns = narrow
    file.write(layout.heading(columns) + "\n")
    for batch in batches(frame):
        padded = [_padded(values, column, cells) for values, column in zip(batch, columns, strict=True)]
        file.writelines(layout.GAP.join(row).rstrip() + "\n" for row in zip(*padded, strict=True))


def _padded(values: "pl.Series", column: layout.Column, cells: _Cells) -> list[str]:
    """The cells of a column as text of its width; repeated values are formatted once."""

    def padded(value: object) -> str:
        return layout.pad(layout.shorten(cells.text(column.name, value), column.width), column.width, column.right)

    if values.dtype.is_nested():
        return [padded(value) for value in values.to_list()]
    texts = {value: padded(value) for value in values.unique().to_list()}
    return [texts[value] for value in values.to_list()]


def _widest(frame: "pl.LazyFrame", name: str, numeric: bool) -> list[Any]:
    """The values that decide the width of a column: all texts; for numbers the extremes and the first rows."""
    import polars as pl

    column = finite(frame.select(name))
    if not numeric:
        return column.unique().collect()[name].to_list()
    extremes = column.select(pl.min(name).alias("low"), pl.max(name).alias("high")).collect().row(0)
    return [*extremes, *column.head(_BATCH).collect()[name].unique()]


def _write_terminal(frame: "pl.LazyFrame", args: argparse.Namespace, trace: "Trace | None", title: str) -> None:
    import polars as pl

    total, width = frame.select(pl.len()).collect().item(), terminal.width()
    shown = frame.head(TERMINAL_ROWS if args.limit is None else args.limit or total).pipe(finite).collect()
    cells = _cells(shown.columns, trace)
    texts = {name: [cells.text(name, value) for value in shown[name].to_list()] for name in shown.columns}
    natural = {name: cells.column(name, dtype.is_numeric(), shown[name].to_list()) for name, dtype in shown.schema.items()}
    # Columns without a value are left out first, then columns that repeat another one; a note names them.
    empty = [name for name, column in texts.items() if column and not any(column)]
    names = [name for name in natural if name not in empty]
    columns, hidden = ([natural[name] for name in names], []) if args.wide else layout.fit([natural[name] for name in names], width)
    same: dict[str, str] = {}
    if hidden:
        strings = [name for name in reversed(names) if shown.schema[name] == pl.String]
        same = {name: first for name, first in itertools.combinations(strings, 2) if texts[name] == texts[first]}
    if same:
        names = [name for name in names if name not in same]
        columns, hidden = layout.fit([natural[name] for name in names], width)
    notes = [f"{shown.height:,} of {units.count(total, 'row')}" + ("; --limit 0 shows all" if shown.height < total else "")]
    notes += [f"no values: {', '.join(empty)}"] if empty else []
    notes += [f"same as {first}: {name}" for name, first in same.items()]
    notes += [f"too wide: {', '.join(hidden)} (select with --columns)"] if hidden else []
    notes += ["long names are cut; --wide shows them"] if any(column.width < natural[column.name].width for column in columns) else []
    notes += ["+ counts from the start of the trace"] if cells.timestamps & {column.name for column in columns} else []
    terminal.write([[(title, "bold")]] if title else [])
    terminal.write([[(layout.heading(columns), "dim")]])
    rows = (list(row) for row in zip(*(texts[column.name] for column in columns), strict=True))
    terminal.write([(line, "")] for line in layout.lines(columns, rows))
    terminal.write([(line, "dim")] for note in notes for line in textwrap.wrap(layout.clean(note), width))


class _SafeTerminal:
    """A terminal that shows data of unknown origin: all control characters but line ends are escaped."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        return self._terminal.write("\n".join(layout.clean(line.rstrip("\r")) for line in text.split("\n")))
