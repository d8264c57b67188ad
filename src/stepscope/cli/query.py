"""Ask in SQL, over the tables of a trace and over its analyses.

Every table (spans, steps, ...) and every analysis (operators, kernels, ...) is a table; --tables lists them with their columns.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from stepscope.cli import _output
from stepscope.cli._arguments import TRACE, add_reading, open_trace, size_of
from stepscope.errors import UsageError

EXAMPLES = """\
stepscope query --tables
stepscope query trace.json.gz "select name, sum(dur_ns) as total_ns from spans group by name order by total_ns desc limit 10"
stepscope query runs/job-17/ "select step, total_ns from overlap" --format csv -o steps.csv
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", nargs="?", metavar="PATH", help=TRACE)
    parser.add_argument("sql", nargs="?", metavar="SQL", help="A question in SQL, in quotes.")
    parser.add_argument("--tables", action="store_true", help="List the tables and their columns.")
    parser.add_argument(
        "--memory",
        type=size_of("--memory"),
        default=2 * 10**9,
        metavar="SIZE",
        help="Let the query, and the tables it reads, use at most SIZE. Default: 2GB.",
    )
    add_reading(parser)
    _output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.tables:
        _list()
        return 0
    if args.sql is not None and _is_sql(args.path) and not _is_sql(args.sql):  # in the other order
        args.path, args.sql = args.sql, args.path
    if args.sql is None:
        missing = "PATH" if args.path is not None and _is_sql(args.path) else "SQL"
        raise UsageError(f'missing {missing}: stepscope query PATH "select ..."; --tables lists the tables')
    _output.check_output(args)
    from stepscope.query_process import QueryProcess

    with QueryProcess(args.memory) as process:  # it starts while this process imports what it needs itself
        from stepscope.queries import Query

        query = Query(process, args.sql)  # a mistake is found before anything is read
        trace = open_trace(Path(args.path), args)
        answer = query.frame(trace)
    _output.put(answer.lazy(), args, trace, {"query": args.sql, "source": trace.meta.source})
    return 0


def _is_sql(text: str) -> bool:
    """Whether a text is a statement, and no path: it begins as one, behind remarks, and goes on behind a blank."""
    begins = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*[(\s]*(?:select|with|from|values|show|explain|describe)\b.*\s\S", text, re.I | re.S)
    return begins is not None and not os.path.exists(text)  # noqa: PTH110 - any text, of any length


def _list() -> None:
    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    tables = schema.TABLES | {name: analysis(name).columns for name in analysis_names()}
    wide = max(map(len, tables))
    sys.stdout.writelines(f"{name:<{wide}}  {', '.join(columns)}\n" for name, columns in tables.items())
