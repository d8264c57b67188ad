"""Tiny traces and expected tables, written as aligned text: a line of column names, then a line per row. `-` is null.

A cell with blanks in it is written with `_` for each blank only inside double quotes, e.g. "a_b" is `a b`; columns absent from
the text are null. Span ids, depth, parent and self time are filled in where the text does not give them, and the typed columns of
counters and tracks from their names.
"""

import polars as pl

from stepscope.model import schema
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers.common.name_parts import complete_table


def trace(**tables: str) -> Trace:
    """A trace of the given tables: `trace(spans=..., steps=...)`. Rank is 0 and track 0 where the text does not say."""
    frames = {name: _table(name, text) for name, text in tables.items()}
    ranks = sorted({rank for frame in frames.values() for rank in frame["rank"].to_list()})
    return Trace(frames, Meta(source="tiny", ranks=ranks))


def rows(text: str) -> list[dict[str, object]]:
    """The rows of an aligned text, numbers as numbers."""
    lines = [line.split() for line in text.strip().splitlines()]
    return [{key: _value(cell) for key, cell in zip(lines[0], line, strict=True)} for line in lines[1:]]


def assert_rows(got: pl.DataFrame, text: str) -> None:
    """The table has exactly these rows, in order, in the columns that the text names."""
    expected = rows(text)
    columns = text.strip().splitlines()[0].split()
    found = [
        {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}
        for row in got.select(columns).iter_rows(named=True)
    ]
    assert found == expected


def _table(name: str, text: str) -> pl.DataFrame:
    columns = schema.TABLES[name]
    frame = pl.DataFrame(rows(text), infer_schema_length=None)
    if "rank" not in frame.columns:
        frame = frame.with_columns(rank=pl.lit(0))
    if name == "spans":
        if "track" not in frame.columns:
            frame = frame.with_columns(track=pl.lit(0))
        filled = complete(frame)
        frame = filled.with_columns(frame[column] for column in ("depth", "parent", "self_ns") if column in frame.columns)
    frame = complete_table(frame.lazy(), name).collect()
    return frame.cast({column: columns[column] for column in frame.columns})


def _value(cell: str) -> object:
    if cell == "-":
        return None
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            pass
    return cell.strip('"').replace("_", " ") if cell.startswith('"') else cell
