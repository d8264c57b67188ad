"""Shapes and types of arguments, as torch_npu and msprof write them."""

import re
from collections.abc import Mapping

import msgspec
import polars as pl

_SIZE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def json_lists(text: pl.Expr) -> pl.Expr:
    """The text of `json_list`, converted once for each distinct value."""
    return text.map_batches(_convert, return_dtype=pl.String)


def _convert(texts: pl.Series) -> pl.Series:
    distinct = texts.unique().drop_nulls()
    converted = pl.Series([json_list(text) for text in distinct], dtype=pl.String)
    return texts.replace_strict(distinct, converted, default=None, return_dtype=pl.String)


def json_object(values: Mapping[str, pl.Expr | str]) -> pl.Expr:
    """JSON text of an object; the values are expressions or names of columns."""
    columns = ((pl.col(value) if isinstance(value, str) else value).alias(key) for key, value in values.items())
    return pl.struct(columns).struct.json_encode()


def json_list(text: str) -> str:
    """`2,3;;4` gives [[2,3],[],[4]], `float;Scalar` gives ["float","Scalar"]."""
    body = text.strip().strip('"').replace("\\r\\n", "").replace("\\n", "").replace("\r\n", "").replace("\n", "").strip('"')
    parts = [part.strip() for part in body.split(";")]
    shapes = [[size.strip() for size in part.split(",") if size.strip()] for part in parts]
    if all(_SIZE.fullmatch(size) for shape in shapes for size in shape):
        return "[" + ",".join("[" + ",".join(shape) + "]" for shape in shapes) + "]"
    return msgspec.json.encode(parts).decode()
