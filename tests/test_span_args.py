"""Values of span args, and details of spans: the same whether the source has typed tables or only args."""

from typing import Any

import polars as pl
import pytest

from stepscope.model.columns import span_details
from stepscope.model.trace import Trace

_KEYS: dict[str, Any] = {"x": pl.Int64, "word": pl.Categorical(), "y": pl.Float64, "missing": pl.String}
_ARGS = ['{"x":10,"word":"a"}', '{"x":11,"word":null}', '{"x":12,"word":"a"}', None, None, '{"x":20,"y":0.5}', '{"x":21,"y":1.5}']


def _trace(args: list[str | None], **tables: pl.DataFrame) -> Trace:
    count = len(args)
    spans = pl.DataFrame({"span": range(count), "rank": [0] * count, "start_ns": range(count), "dur_ns": [1] * count, "args": args})
    return Trace({"spans": spans, **tables})


@pytest.mark.parametrize(
    ("spans", "rows"),
    [
        ([0, 1, 2], [(10, "a", None, None), (11, None, None, None), (12, "a", None, None)]),
        ([2, 0], [(12, "a", None, None), (10, "a", None, None)]),
        ([6, 3, 1, 5], [(21, None, 1.5, None), (None, None, None, None), (11, None, None, None), (20, None, 0.5, None)]),
        ([5, 99], [(20, None, 0.5, None), (None, None, None, None)]),
        ([], []),
    ],
)
def test_args_have_one_row_per_span_in_the_order_of_the_spans(spans: list[int], rows: list[tuple[object, ...]]) -> None:
    values = _trace(_ARGS).span_args(pl.Series(spans, dtype=pl.Int64), _KEYS)
    assert values.rows() == rows
    assert values.schema == pl.Schema(_KEYS)


def test_a_number_can_be_read_as_text() -> None:
    assert _trace(_ARGS).span_args(pl.Series([0, 6]), {"x": pl.Categorical()})["x"].to_list() == ["10", "21"]


def test_details_are_the_same_from_tables_and_from_args() -> None:
    args = ['{"Model Id":1,"Task Id":7,"Op Name":"net/mul","aic_total_cycles":120,"mac_ratio":0.25}', None, '{"Task Id":9,"mac_ratio":0.5}']
    tasks = pl.DataFrame({"rank": [0, 0], "span": [2, 0], "model": [None, 1], "task": [9, 7], "op_name": [None, "net/mul"]})
    counters = pl.DataFrame(
        {"rank": [0] * 3, "span": [0, 0, 2], "name": ["aic_total_cycles", "mac_ratio", "mac_ratio"], "value": [120.0, 0.25, 0.5]}
    )
    spans = pl.Series([2, 1, 0], dtype=pl.Int64)
    for trace in (_trace(args), _trace([None] * 3, tasks=tasks, core_counters=counters)):
        details = span_details.details(trace, "tasks", spans, ["model", "task", "op_name"])
        assert details.rows() == [(None, 9, None), (None, None, None), (1, 7, "net/mul")]
        cores = span_details.core_counters(trace, spans, [0])
        assert cores.to_dict(as_series=False) == {"aic_total_cycles": [None, None, 120], "mac_ratio": [0.5, None, 0.25]}


def test_iterations_are_typed_or_named() -> None:
    spans = pl.DataFrame(
        {"rank": [0], "span": [0], "track": [3], "kind": ["step"], "name": ["Iteration 4"], "start_ns": [5], "dur_ns": [2], "step": [1]}
    )
    tracks = pl.DataFrame({"rank": [0], "track": [3], "kind": ["annotation"], "label": ["Step Trace"], "tid": ["model 7"], "device": [2]})
    typed = pl.DataFrame({"rank": [0], "span": [0], "model": [7], "iteration": [4]})
    for tables in ({}, {"tasks": typed}):
        rows = span_details.iterations(Trace({"spans": spans, "tracks": tracks, **tables}))
        assert rows.select("device", "model", "iteration", "step").rows() == [(2, 7, 4, 1)]
