"""Run a SQL query over the tables and analyses of a trace.

Every table (spans, steps, ...) and every analysis (operators, kernels, ...) is a table of the query; --tables lists them.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from stepscope.cli.shared import output
from stepscope.cli.shared.arguments import PATH_HELP, add_reading, open_trace, size_of
from stepscope.errors import UsageError

EXAMPLES = """\
stepscope query --tables
stepscope query trace.json.gz "select name, sum(dur_ns) as total_ns from spans group by name order by total_ns desc limit 10"
stepscope query runs/job-17/ "select step, total_ns from overlap" --format csv -o steps.csv
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", nargs="?", metavar="PATH", help=PATH_HELP)
    parser.add_argument("sql", nargs="?", metavar="SQL", help="Run this query, in quotes.")
    parser.add_argument("--tables", action="store_true", help="List the tables and their columns. Default: run SQL.")
    text = "Limit the memory of the query and its tables to SIZE. Default: 2GB."
    parser.add_argument("--memory", type=size_of("--memory"), default=2 * 10**9, metavar="SIZE", help=text)
    add_reading(parser)
    output.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.tables:
        _list()
        return 0
    if args.sql is not None and _is_sql(args.path) and not _is_sql(args.sql):  # in the other order
        args.path, args.sql = args.sql, args.path
    if args.sql is None:
        missing = "PATH" if args.path is not None and _is_sql(args.path) else "SQL"
        raise UsageError(f'missing {missing}: stepscope query PATH "select ..."; --tables lists the tables')
    output.check_output(args)
    from stepscope.query.process import QueryProcess

    with QueryProcess(args.memory) as process:  # it starts while this process imports its own libraries
        from stepscope.query.queries import Query

        query = Query(process, args.sql)  # errors in the SQL are found before the trace is read
        trace = open_trace(Path(args.path), args)
        answer = query.frame(trace)
    output.write_table(answer.lazy(), args, trace, {"query": args.sql, "source": trace.meta.source})
    return 0


def _is_sql(text: str) -> bool:
    """Is the text a statement and not a path? It begins like one, behind comments, and has a second word."""
    statement = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*[(\s]*(?:select|with|from|values|show|explain|describe)\b.*\s\S", text, re.I | re.S)
    return statement is not None and not os.path.exists(text)  # noqa: PTH110 - any text, of any length


def _list() -> None:
    from stepscope.model import schema
    from stepscope.model.trace import analysis, analysis_names

    tables = schema.TABLES | {name: analysis(name).columns for name in analysis_names()}
    width = max(map(len, tables))
    sys.stdout.writelines(f"{name:<{width}}  {', '.join(columns)}\n" for name, columns in tables.items())
