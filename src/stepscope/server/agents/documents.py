"""The documentation of tables and analyses for agents, generated from the schema and the analyses."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.model import parameters, schema
from stepscope.model.columns import column_comments
from stepscope.model.trace import analysis, analysis_names

ROOT = "stepscope://docs/"
MEDIA_TYPE = "text/markdown"


def uris() -> dict[str, str]:
    """The address of each document, and its title."""
    tables = {f"{ROOT}tables/{name}": f"table {name}" for name in schema.TABLES}
    analyses = {f"{ROOT}analyses/{name}": f"analysis {name}" for name in analysis_names()}
    return {f"{ROOT}index": "all tables and analyses"} | tables | analyses


def document(uri: str) -> str | None:
    """The text at an address; None where there is none."""
    if uri not in uris():
        return None
    kind, _, name = uri.removeprefix(ROOT).partition("/")
    return index() if kind == "index" else of_table(name) if kind == "tables" else of_analysis(name)


def index() -> str:
    """Every table and analysis in one line."""
    lines = ["# Tables and analyses", "", "Times are integers of nanoseconds (`_ns`). A share is 0 to 1.", ""]
    lines += ["## Analyses: tools `analysis` and `sql`", ""]
    lines += [f"- `{name}`: {analysis(name).question.splitlines()[0]}" for name in analysis_names()]
    lines += ["", "## Tables: tool `sql`", ""]
    lines += [f"- `{name}`: {about}" for name, about in column_comments.of_tables().items()]
    return "\n".join(lines) + "\n"


def describe(name: str) -> str:
    """The documentation of an analysis, of a table, or of both where both have the name."""
    parts = [of_analysis(name)] if name in analysis_names() else []
    parts += [of_table(name)] if name in schema.TABLES else []
    if not parts:
        parameters.check_word("table or analysis", name, [*schema.TABLES, *analysis_names()])
    return "\n".join(parts)


def of_table(name: str) -> str:
    about = column_comments.of_tables().get(name, "")
    lines = [f"# Table {name}", "", about, "", *_columns(schema.TABLES[name], column_comments.of_table(name))]
    if name == "spans":
        comments = column_comments.of_words(schema, "KINDS")
        lines += ["", "Values of `kind`:", "", *(f"- `{kind}`: {comments.get(kind, '')}".rstrip(": ") for kind in schema.KINDS)]
    return "\n".join(lines) + "\n"


def of_analysis(name: str) -> str:
    about = analysis(name)
    lines = [f"# Analysis {name}", "", inspect.cleandoc(about.question), "", inspect.getdoc(about.function) or ""]
    lines += ["", "Parameters:", "", *_parameters(about.parameters)] if about.parameters else []
    lines += ["", "Columns:", "", *_columns(about.columns, column_comments.of_analysis(name))]
    return "\n".join(lines) + "\n"


def _parameters(items: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    for name, item in items.items():
        bounds = parameters.bounds(name, item)
        within = f", {bounds['minimum']} to {bounds['maximum']}" if bounds else ""
        yield f"- `{name}` ({inspect.formatannotation(item.annotation)}, default {item.default!r}{within})"


def _columns(columns: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    for name, dtype in columns.items():
        yield f"- `{name}` ({str(dtype).split('(')[0]})" + (f": {comments[name]}" if name in comments else "")
