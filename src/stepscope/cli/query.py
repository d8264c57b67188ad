"""Ask in SQL, over the tables of a trace and over its analyses.

Every table (spans, steps, ...) and every analysis (operators, kernels, ...) is a table; --tables lists them with their columns.
"""

import argparse
import sys
from pathlib import Path

from stepscope.cli import _output
from stepscope.cli._arguments import add_reading, open_trace
from stepscope.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a trace file, a run folder, or a folder of ranks")
    parser.add_argument("sql", nargs="?", metavar="SQL", help='such as "select name, sum(dur_ns) from spans group by name"')
    parser.add_argument("--tables", action="store_true", help="list the tables and their columns")
    add_reading(parser)
    _output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.tables:
        _list()
        return 0
    if args.sql is None:
        raise UsageError('which question? `stepscope query PATH "select ..."`; --tables lists what there is')
    from stepscope import queries

    queries.checked(args.sql)  # before anything is read
    trace = open_trace(args.path, args)
    _output.put(queries.answer(trace, args.sql).lazy(), args, trace, {"query": args.sql, "source": trace.meta.source})
    return 0


def _list() -> None:
    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    tables = schema.TABLES | {name: analysis(name).columns for name in analysis_names()}
    wide = max(map(len, tables))
    sys.stdout.writelines(f"{name:<{wide}}  {', '.join(columns)}\n" for name, columns in tables.items())
