"""What a trace says of its spans: the same whether it is kept as columns or as JSON text."""

from typing import Any

import polars as pl
import pytest

from stepscope.trace import Trace

_FIELDS: dict[str, Any] = {"x": pl.Int64, "word": pl.Categorical(), "y": pl.Float64, "nowhere": pl.String}
# Spans 0 to 2 say x and word, 3 and 4 nothing, 5 and 6 x and y.
_SAID = [{"x": 10, "word": "a"}, {"x": 11, "word": None}, {"x": 12, "word": "a"}, None, None, {"x": 20, "y": 0.5}, {"x": 21, "y": 1.5}]


def _spans(**more: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"span": range(7), "rank": [0] * 7, "start_ns": range(7), "dur_ns": [1] * 7, **more})


def _as_columns() -> Trace:
    first, last = (pl.Series(_SAID[part]) for part in (slice(0, 3), slice(5, 7)))
    return Trace({"spans": _spans()}, said=[first, 2, last])


def _as_text() -> Trace:
    texts = ['{"x":10,"word":"a"}', '{"x":11,"word":null}', '{"x":12,"word":"a"}', None, None, '{"x":20,"y":0.5}', '{"x":21,"y":1.5}']
    return Trace({"spans": _spans(args=texts)})


@pytest.mark.parametrize("trace", [_as_columns(), _as_text()], ids=["columns", "text"])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([0, 1, 2], [(10, "a", None, None), (11, None, None, None), (12, "a", None, None)]),
        ([2, 0], [(12, "a", None, None), (10, "a", None, None)]),
        ([6, 3, 1, 5], [(21, None, 1.5, None), (None, None, None, None), (11, None, None, None), (20, None, 0.5, None)]),
        ([5, 99], [(20, None, 0.5, None), (None, None, None, None)]),
        ([], []),
    ],
)
def test_spans_are_answered_in_the_order_asked_and_with_nothing_where_nothing_is_said(
    trace: Trace, asked: list[int], told: list[tuple[object, ...]]
) -> None:
    found = trace.said(pl.Series(asked, dtype=pl.Int64), _FIELDS)
    assert found.rows() == told
    assert found.schema == pl.Schema(_FIELDS)


@pytest.mark.parametrize("trace", [_as_columns(), _as_text()], ids=["columns", "text"])
def test_a_number_can_be_asked_for_as_a_word(trace: Trace) -> None:
    assert trace.said(pl.Series([0, 6]), {"x": pl.Categorical()})["x"].to_list() == ["10", "21"]
