"""Shapes and types of arguments, as torch_npu and msprof write them."""

import re

import msgspec
import polars as pl


def listed(text: pl.Expr) -> pl.Expr:
    """torch_npu's text of arguments, `"2,3;\\r\\n;\\r\\n4"`, as the JSON that everyone else writes."""
    return pl.when(text.str.starts_with('"')).then(text.map_batches(_lists, return_dtype=pl.String)).otherwise(text)


def _lists(text: pl.Series) -> pl.Series:
    distinct = text.unique().drop_nulls()
    return text.replace_strict(
        distinct, pl.Series([json_list(one) for one in distinct], dtype=pl.String), default=None, return_dtype=pl.String
    )


def json_list(text: str) -> str:
    """`2,3;;4` gives [[2,3],[],[4]], `float;Scalar` gives ["float","Scalar"]."""
    body = text.strip().strip('"').replace("\\r\\n", "").replace("\\n", "").replace("\r\n", "").replace("\n", "").strip('"')
    parts = [part.strip() for part in body.split(";")]
    shapes = [[size.strip() for size in part.split(",") if size.strip()] for part in parts]
    if all(_SIZE.fullmatch(size) for shape in shapes for size in shape):
        return "[" + ",".join("[" + ",".join(shape) + "]" for shape in shapes) + "]"
    return msgspec.json.encode(parts).decode()


_SIZE = re.compile(r"0|-?[1-9][0-9]{0,17}")
