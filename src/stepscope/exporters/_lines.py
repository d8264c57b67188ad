"""Lines of JSON, made by columns: no object for each event."""

from collections.abc import Callable

import msgspec
import polars as pl


def filled(template: str, *values: str | pl.Expr) -> pl.Expr:
    """The template with a value for each {}; null where one is null. Not pl.format: JSON is full of braces."""
    texts = [pl.lit(text) for text in template.split("{}")]
    pairs = zip(texts[1:], values, strict=True)
    return pl.concat_str(texts[0], *(part for text, value in pairs for part in (value, text)))


def json_of(texts: pl.Series, encode: Callable[[str], str]) -> pl.Series:
    """Each text encoded, each distinct one once."""
    distinct = texts.drop_nulls().unique()
    return texts.replace_strict(
        distinct, pl.Series([encode(text) for text in distinct], dtype=pl.String), default=None, return_dtype=pl.String
    )


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
