"""Ask in SQL, over the tables of a trace and over its analyses.

Every table (spans, steps, ...) and every analysis (operators, kernels, ...) is a table; --tables lists them with their columns.
"""

import argparse
import itertools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli import _output
from stepscope.cli._arguments import add_reading, open_trace
from stepscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from stepscope.trace import Trace

_READS = ("select", "with", "show", "explain", "values", "from", "(")
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|$)) | (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    | (?P<word>\w+) | (?P<sign>\S)""",
    re.VERBOSE | re.DOTALL,
)


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
    words = _words(args.sql)
    trace = open_trace(args.path, args)
    _output.put(_answer(trace, args.sql, words), args, trace, {"query": args.sql, "source": trace.meta.source})
    return 0


def _words(sql: str) -> list[str]:
    """The words and signs of a question, in lower case; what is not a question, or reaches for files, is refused."""
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(sql)]
    words = [text.strip('"`').lower() for kind, text in tokens if kind not in ("comment", "text")]
    if not words or words[0] not in _READS:
        raise UsageError(f"begins with '{words[0] if words else ''}'; expected a question: SELECT, WITH, SHOW TABLES or EXPLAIN")
    if any(word.startswith("read_") and after == "(" for word, after in itertools.pairwise(words)):
        raise UsageError("reads a file; only the tables of the trace can be asked")
    # Two ways to write text that the pattern above does not know, and so could hide something in.
    if "$" in words or any(kind == "comment" and "/*" in text[2:] for kind, text in tokens):
        raise UsageError("has a $ or a comment within a comment; write text in single quotes")
    return words


def _answer(trace: "Trace", sql: str, words: list[str]) -> "pl.LazyFrame":
    import polars as pl

    from stepscope.trace import analysis_names

    tables = trace.tables | {name: trace.analyse(name).lazy() for name in analysis_names() if name in words}
    # Polars 1.44, the one for Python 3.10, tells names apart by case.
    spelled = {word: tables[word.lower()] for word in re.findall(r"\w+", sql) if word.lower() in tables}
    context = pl.SQLContext({name: _output.plain(frame) for name, frame in (tables | spelled).items()})
    try:
        return context.execute(sql, eager=True).lazy()
    except pl.exceptions.PolarsError as error:
        raise UsageError(str(error).strip().splitlines()[0].rstrip(":")) from error


def _list() -> None:
    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    tables = schema.TABLES | {name: analysis(name).columns for name in analysis_names()}
    wide = max(map(len, tables))
    sys.stdout.writelines(f"{name:<{wide}}  {', '.join(columns)}\n" for name, columns in tables.items())
