"""Texts of categories are those of a cast."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stepscope.model import schema
from stepscope.model.columns.texts import as_text


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.String, pl.Enum(["b", "a", "c"])], ids=["categories", "text", "words"])
@pytest.mark.parametrize("values", [["a", None, "b", "a", "c"], [None, None], [], ["b"] * 3], ids=["some", "null", "none", "one"])
def test_texts_are_those_of_a_cast(dtype: pl.DataType, values: list[str | None]) -> None:
    frame = pl.DataFrame({"name": pl.Series(values, dtype=dtype), "row": pl.Series(range(len(values)), dtype=pl.Int64)})
    expected = frame.with_columns(pl.col("name").cast(pl.String))
    assert_frame_equal(frame.with_columns(as_text("name")), expected)
    assert_frame_equal(frame.lazy().filter(pl.col("row") != 1).with_columns(as_text("name")).collect(), expected.filter(pl.col("row") != 1))


def test_kinds_of_spans_have_their_words() -> None:
    kinds = pl.DataFrame({"kind": pl.Series(schema.KINDS, dtype=schema.Kind)})
    assert kinds.select(as_text("kind"))["kind"].to_list() == list(schema.KINDS)
