"""SQL over the tables of a trace and over its analyses: questions only, and no way to a file."""

import itertools
import re

import polars as pl

from stepscope.errors import UsageError
from stepscope.tables import plain
from stepscope.trace import Trace, analysis_names

_READS = ("select", "with", "show", "explain", "values", "from", "(")
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|$)) | (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    | (?P<word>\w+) | (?P<sign>\S)""",
    re.VERBOSE | re.DOTALL,
)


def checked(sql: str) -> list[str]:
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


def answer(trace: Trace, sql: str) -> pl.DataFrame:
    """What the question asks for; analyses that it names are run."""
    words = checked(sql)
    tables = trace.tables | {name: trace.analyse(name).lazy() for name in analysis_names() if name in words}
    # Polars 1.44, the one for Python 3.10, tells names apart by case.
    spelled = {word: tables[word.lower()] for word in re.findall(r"\w+", sql) if word.lower() in tables}
    context = pl.SQLContext({name: plain(frame) for name, frame in (tables | spelled).items()})
    try:
        return context.execute(sql, eager=True)
    except pl.exceptions.PolarsError as error:
        raise UsageError(str(error).strip().splitlines()[0].rstrip(":")) from error
