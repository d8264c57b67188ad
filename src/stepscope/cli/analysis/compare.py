"""Compare runs: whether a step became slower, by how much, and which operators and idle times explain the difference.

With --baseline, each side may have several runs of one program: then their spread is the noise. --fail-if-slower exits with 3 if B is
slower than allowed, with 4 if the noise is too large to tell.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from stepscope import exporters
from stepscope.cli.shared import layout, terminal
from stepscope.cli.shared.arguments import OneOf
from stepscope.cli.shared.sides import add_sides, compared, side_paths, title
from stepscope.cli.shared.terminal import Line
from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.output.tables import finite, json_text, write_csv

if TYPE_CHECKING:
    import polars as pl

    from stepscope.comparison.compare import Comparison

EXAMPLES = """\
stepscope compare before.json.gz after.json.gz
stepscope compare --baseline base/run1 base/run2 base/run3 -- new/run1 new/run2 new/run3
stepscope compare --baseline 'base/*' 'new/*' --format markdown
stepscope compare a.json.gz b.json.gz --by module --format csv
stepscope compare before.json.gz after.json.gz --fail-if-slower 5%
"""
FORMATS = ("text", "json", "csv", "markdown")
KEYS = ("operator", "family", "kernel", "shape", "phase", "module")
TABLES = ("operators", "waterfall", "figures", "steps", "summary", "verdict")
_ROWS, _BINS, _BAR, _NARROWEST = 8, 40, 16, 60
_LEVELS = " ▁▂▃▄▅▆▇█"
_SEVERITIES = {"high": "bold red", "medium": "bold yellow", "info": "bold green"}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    add_sides(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--by", type=OneOf("key", KEYS), default="operator", metavar="KEY", help=f"Match by {', '.join(KEYS)}. Default: operator."
    )
    group.add_argument(
        "--format",
        type=OneOf("format", FORMATS),
        default="text",
        metavar="FORMAT",
        help="Write text, json, csv or markdown. Default: text.",
    )
    group.add_argument(
        "--table",
        type=OneOf("table", TABLES),
        default="operators",
        metavar="TABLE",
        help="With --format csv, write this table. Default: operators.",
    )
    group.add_argument("-o", "--output", type=Path, metavar="FILE", help="Write to FILE. Default: standard output.")
    group.add_argument("--force", action="store_true", help="Replace FILE if it exists. Default: refuse.")
    group.add_argument(
        "--fail-if-slower", metavar="LIMIT", help="Exit with 3 if B is slower by more than LIMIT, such as 5%%. Default: off."
    )


def run(args: argparse.Namespace) -> int:
    from stepscope.comparison import gate

    limit = None if args.fail_if_slower is None else gate.slowdown_limit(args.fail_if_slower)
    baseline, sets = side_paths(args)
    if len(sets) > 1 and args.format == "csv":
        raise UsageError("--format csv writes one comparison; name two runs, or sets with --baseline")
    if args.output is not None:
        exporters.check_output(args.output, overwrite=args.force)
    comparisons = [(compared(baseline, others, args), title(baseline), title(others)) for others in sets]
    if args.output is not None:
        with exporters.draft_output(args.output, overwrite=args.force) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            _write(comparisons, args, file)
    else:
        _write(comparisons, args, None)
    checks = [] if limit is None else [gate.check(comparison, limit) for comparison, _, _ in comparisons]
    for check in checks:
        sys.stderr.write(f"stepscope: {gate.RESULTS[check.code]}: {layout.clean(gate.text(check))}\n")
    return gate.result(checks)


_Named = tuple["Comparison", str, str]


def _write(comparisons: list[_Named], args: argparse.Namespace, file: IO[str] | None) -> None:
    output = file or sys.stdout
    if args.format == "text" and file is None:
        for number, named in enumerate(comparisons):
            terminal.write([[]] if number else [])
            terminal.write(page(*named, args.by, max(terminal.width(), _NARROWEST)))
    elif args.format == "csv":
        write_csv(comparisons[0][0].table(args.table, args.by if args.table == "operators" else None).lazy(), output)
    elif args.format == "json":
        values = [_values(*named, args.by) for named in comparisons]
        output.write(layout.clean(json_text(values[0] if len(values) == 1 else values)) + "\n")
    else:
        lines = (_markdown if args.format == "markdown" else _plain)(comparisons, args.by)
        output.writelines(line + "\n" for line in lines)


def _plain(comparisons: list[_Named], by: str) -> Iterator[str]:
    for named in comparisons:
        yield from ("".join(text for text, _ in line).rstrip() for line in page(*named, by, 100))


def _values(comparison: "Comparison", a: str, b: str, by: str) -> dict[str, Any]:
    tables = {name: _rows(comparison.table(name)) for name in ("verdict", "waterfall", "figures")}
    return {"a": a, "b": b, **comparison.summary.row(0, named=True), **tables, "by": by, "operators": _rows(comparison.operators(by))}


def _rows(frame: "pl.DataFrame") -> list[dict[str, Any]]:
    return finite(frame.lazy()).collect().to_dicts()


def page(comparison: "Comparison", a: str, b: str, by: str, width: int) -> Iterator[Line]:
    """One screen: verdict, distributions, waterfall, operators, notices."""
    yield [("A  ", "bold"), (layout.shorten(layout.clean(a), width - 3), "")]
    yield [("B  ", "bold"), (layout.shorten(layout.clean(b), width - 3), "")]
    yield []
    sentences = comparison.verdict.to_dicts()
    for row in (row for row in sentences if row["kind"] == "verdict"):
        style = _SEVERITIES.get(row["severity"] or "", "bold") if row["position"] == 0 else ""
        yield from ([(line, style)] for line in textwrap.wrap(layout.clean(row["text"]), width))
    yield from _distributions(comparison, width)
    yield from _waterfall(comparison.waterfall.to_dicts(), width)
    yield from _operators(comparison.operators(by), by, width)
    yield []
    for row in (row for row in sentences if row["kind"] == "notice"):
        sign = "! " if row["severity"] in ("medium", "high") else "  "
        for index, line in enumerate(textwrap.wrap(layout.clean(row["text"]), width - 2)):
            yield [(sign if not index else "  ", "yellow"), (line, "" if sign == "! " else "dim")]


def _distributions(comparison: "Comparison", width: int) -> Iterator[Line]:
    """A row of bars per side on one axis, from the shortest step to the 99th percentile of both."""
    import numpy as np

    times = [side.step_times() for side in (comparison.a, comparison.b)]
    if min(map(len, times)) < 2:
        return
    every = np.concatenate(times)
    low, high = float(every.min()), float(np.quantile(every, 0.99))
    if high <= low:
        return
    yield []
    for label, values in zip("AB", times, strict=True):
        inside = values[values <= high]
        counts, _ = np.histogram(inside, bins=min(_BINS, width - 50), range=(low, high))
        bars = "".join(_LEVELS[-(-int(count) * (len(_LEVELS) - 1) // max(int(counts.max()), 1))] for count in counts)
        beyond = f", {len(values) - len(inside)} longer" if len(inside) < len(values) else ""
        yield [(f"{label}  ", "bold"), (bars, "blue"), (f"  {len(values):,} steps{beyond}", "dim")]
    yield [(f"   {units.duration(low)} to {units.duration(high)} per step", "dim")]


def _waterfall(rows: list[dict[str, Any]], width: int) -> Iterator[Line]:
    """The rows add up to the difference; a bar shows the direction and the size of a change."""
    if not rows:
        return
    total = {name: sum(row[name] for row in rows) for name in ("a_ns", "b_ns", "change_ns")}
    largest = max(abs(row["change_ns"]) for row in rows) or 1
    cells = [[_row_name(row), *(_signed(row[name], name) for name in total)] for row in rows]
    cells.append(["step", *(_signed(total[name], name) for name in total)])
    yield []
    head = ["where the difference is", "A", "B", "change"]
    sizes = [max(layout.width(row[at]) for row in [head, *cells]) for at in range(4)]
    sizes[0] = min(sizes[0], width - sum(sizes[1:]) - _BAR - 8)
    yield [(_columns(head, sizes), "bold")]
    for row, texts in zip([*rows, total], cells, strict=True):
        filled = round(abs(row["change_ns"]) * _BAR / largest) if row is not total else 0
        style = "red" if row["change_ns"] > 0 else "green"
        yield [(_columns(texts, sizes), "bold" if row is total else ""), ("  " + ("▲" if row["change_ns"] > 0 else "▼") * filled, style)]


def _operators(table: "pl.DataFrame", by: str, width: int) -> Iterator[Line]:
    """The largest changes with their calls; new and gone ones by their state."""
    rows = table.sort(table["change_ns"].abs(), descending=True, nulls_last=True).head(_ROWS).to_dicts() if table.height else []
    if not rows:
        return
    several = {"family": "families", "shape": "shapes"}.get(by, f"{by}s")
    count = f"{len(rows)} of {table.height:,}" if table.height > len(rows) else f"{table.height}"
    head = [f"{several}, {count}", "A", "B", "change", "calls A", "calls B", "state"]
    cells = [
        [
            layout.clean(
                str(row["operator"] + " " if by in ("kernel", "shape") and row["operator"] != row["name"] else "")
                + (row["name"] or "(none)")
            ),
            *(_signed(row[name], name) for name in ("a_ns", "b_ns", "change_ns")),
            *("" if row[name] is None else f"{row[name]:,.4g}" for name in ("a_calls", "b_calls")),
            row["state"] or "",
        ]
        for row in rows
    ]
    yield []
    sizes = [max(layout.width(row[at]) for row in [head, *cells]) for at in range(len(head))]
    sizes[0] = min(sizes[0], width - sum(sizes[1:]) - 2 * len(sizes))
    yield [(_columns(head, sizes), "bold")]
    for texts in cells:
        yield [(_columns(texts, sizes), "" if texts[-1] != "within noise" else "dim")]


def _columns(cells: list[str], sizes: list[int]) -> str:
    first, *numbers = cells
    name = layout.pad(layout.shorten(first, sizes[0]), sizes[0], False)
    return "  ".join([name, *(layout.pad(text, size, True) for text, size in zip(numbers, sizes[1:], strict=True))])


def _row_name(row: dict[str, Any]) -> str:
    if row["operator"]:
        return layout.clean(row["operator"])
    return f"{units.count(row['operators'], 'other operator')}" if row["part"] == "compute" else row["part"]


def _signed(value: int | None, name: str) -> str:
    if value is None:
        return "-"
    return f"{'+' if value > 0 else ''}{units.duration(value)}" if name.startswith("change") else units.duration(value)


def _markdown(comparisons: list[_Named], by: str) -> Iterator[str]:
    for comparison, a, b in comparisons:
        sentences = comparison.verdict.to_dicts()
        headline, *others = [row["text"] for row in sentences if row["kind"] == "verdict"]
        yield from (f"**{_escaped(headline)}**", "", *map(_escaped, others), "", f"A: `{a}`, B: `{b}`", "")
        rows = comparison.waterfall.to_dicts()
        if rows:
            cells = [
                [
                    f"`{row['operator']}`" if row["operator"] else _row_name(row),
                    *(_signed(row[key], key) for key in ("a_ns", "b_ns", "change_ns")),
                ]
                for row in rows
            ]
            totals = [f"**{_signed(sum(row[key] for row in rows), key)}**" for key in ("a_ns", "b_ns", "change_ns")]
            yield from markdown_table(["where the difference is", "A", "B", "change"], [*cells, ["**step**", *totals]])
            yield ""
        table = comparison.operators(by).head(_ROWS).to_dicts()
        if table:
            names = ("a_ns", "b_ns", "change_ns")
            cells = [[f"`{row['name']}`", *(_signed(row[key], key) for key in names), row["state"] or ""] for row in table]
            yield from markdown_table([by, "A", "B", "change", "state"], cells)
            yield ""
        yield from (f"- {_escaped(row['text'])}" for row in sentences if row["kind"] == "notice")


def markdown_table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Lines of a table; numbers are aligned right."""
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    yield from (f"| {' | '.join(layout.clean(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _escaped(text: str) -> str:
    return layout.clean(text).replace("<", "&lt;").replace("|", "\\|").replace("_", "\\_").replace("*", "\\*")
