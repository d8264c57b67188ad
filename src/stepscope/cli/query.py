"""Ask in SQL, over the tables of a trace and over its analyses.

Every table (spans, steps, ...) and every analysis (operators, kernels, ...) is a table; --tables lists them with their columns.
"""

import argparse
import functools
import sys
from pathlib import Path

from stepscope.cli import _output
from stepscope.cli._arguments import add_reading, byte_count, open_trace
from stepscope.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a trace file, a run folder, or a folder of ranks")
    parser.add_argument("sql", nargs="?", metavar="SQL", help='such as "select name, sum(dur_ns) from spans group by name"')
    parser.add_argument("--tables", action="store_true", help="list the tables and their columns")
    parser.add_argument(
        "--memory",
        type=functools.partial(byte_count, "--memory"),
        default=2 * 10**9,
        metavar="SIZE",
        help="the most that the query may use, and the most that the tables it reads may have; default 2GB",
    )
    add_reading(parser)
    _output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.tables:
        _list()
        return 0
    if args.sql is None:
        raise UsageError('which question? `stepscope query PATH "select ..."`; --tables lists what there is')
    from stepscope.query_process import QueryProcess

    with QueryProcess(args.memory) as process:  # it starts while this process imports what it needs itself
        from stepscope.queries import Query

        query = Query(process, args.sql)  # a mistake is found before anything is read
        trace = open_trace(args.path, args)
        answer = query.frame(trace)
    _output.put(answer.lazy(), args, trace, {"query": args.sql, "source": trace.meta.source})
    return 0


def _list() -> None:
    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    tables = schema.TABLES | {name: analysis(name).columns for name in analysis_names()}
    wide = max(map(len, tables))
    sys.stdout.writelines(f"{name:<{wide}}  {', '.join(columns)}\n" for name, columns in tables.items())
