"""A trace in a notebook cell: steps, operator types and problems as HTML."""

import html
from typing import TYPE_CHECKING

import polars as pl

from stepscope.model import units

if TYPE_CHECKING:
    from stepscope.model.trace import Trace

_TOP = 10


def trace_html(trace: "Trace", title: list[str]) -> str:
    types = trace.analyse("operator_types")
    parts = [f"<p>{' · '.join(html.escape(word) for word in title if word)}</p>"]
    parts += [_table(trace.analyse("overview")), _table(types.head(_TOP)), _table(trace.problems.collect())]
    if types.height > _TOP:
        parts.insert(3, f"<p>{_TOP} of {types.height:,} operator types: trace.operator_types()</p>")
    return "\n".join(part for part in parts if part)


def _table(frame: pl.DataFrame) -> str:
    """Rows with units, without empty columns; an empty text for no rows."""
    columns = [column.name for column in frame if column.null_count() < frame.height]
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = [f"<tr>{cells}</tr>"]
    for row in frame.select(columns).iter_rows():
        cells = "".join(f"<td>{html.escape(units.cell(name, value))}</td>" for name, value in zip(columns, row, strict=True))
        rows.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(rows)}</table>" if columns else ""
