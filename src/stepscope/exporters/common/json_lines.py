"""JSON texts built column by column, without an object per event; and small JSON files."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl


def fill_template(template: str, *values: str | pl.Expr) -> pl.Expr:
    """The template with a value for each {}; null if a value is null. pl.format would need the braces of JSON escaped."""
    texts = [pl.lit(text) for text in template.split("{}")]
    pairs = zip(texts[1:], values, strict=True)
    return pl.concat_str(texts[0], *(part for text, value in pairs for part in (value, text)))


def encode_distinct(texts: pl.Series, encode: Callable[[str], str]) -> pl.Series:
    """Each text encoded; each distinct text only once."""
    distinct = texts.drop_nulls().unique()
    encoded = pl.Series([encode(text) for text in distinct], dtype=pl.String)
    return texts.replace_strict(distinct, encoded, default=None, return_dtype=pl.String)


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), "utf-8")
