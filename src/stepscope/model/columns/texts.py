"""Texts of columns of categories, each stored once however many rows have it."""

import numpy as np
import polars as pl


def as_text(*columns: str) -> pl.Expr:
    """Columns of categories as text. A cast copies the text of each row, which for names of kernels is hundreds of bytes."""
    return pl.col(*columns).map_batches(_shared_texts, return_dtype=pl.String, is_elementwise=True)


def _shared_texts(column: pl.Series) -> pl.Series:
    distinct = column.unique().drop_nulls()
    if column.dtype == pl.String or distinct.is_empty():
        return column.cast(pl.String)
    known = distinct.to_physical().to_numpy()
    place = np.zeros(int(known.max()) + 1, np.uint32)
    place[known] = np.arange(len(known))
    rows = pl.Series(place[column.to_physical().fill_null(int(known[0])).to_numpy()])
    return distinct.cast(pl.String).gather(rows.set(column.is_null(), None)).alias(column.name)
