"""Iterations, collectives and GetNext, from the tags of a graph's tasks in the scheduler's records."""

from typing import NamedTuple

import polars as pl

_MODEL_START, _MODEL_END, _FORWARD, _BACKWARD, _ITERATION_END = 0, 1, 2, 3, 4
_COLLECTIVE, _GET_NEXT, _BEYOND = 10_000, 20_000, 30_000
_STEP_START, _STEP_END = 60_000, 60_001


class Steps(NamedTuple):
    iterations: pl.DataFrame  # step, iteration, model, start_ns, end_ns, fp_start_ns, bp_end_ns
    ranges: pl.DataFrame  # tag (reduce, get_next), model, stream, number, start_ns, end_ns
    unfinished: int


def read(tags: pl.DataFrame) -> Steps:
    """Steps from tags sorted by time. The start of a model opens an iteration, its end closes it and opens the next. The first is 1."""
    explicit = tags.filter(pl.col("tag").is_in([_STEP_START, _STEP_END]))
    marks = tags.filter(pl.col("tag") < 5)
    rows: list[dict[str, int | None]] = []
    unfinished = 0
    for (model,), part in marks.group_by("model", maintain_order=True):
        iterations_of_model, open_count = _iterations(part.select("tag", "at_ns").rows())
        rows += [{"model": int(str(model)), "iteration": number, **times} for number, times in enumerate(iterations_of_model, 1)]
        unfinished += open_count
    if not rows and explicit.height:
        rows = _explicit(explicit)
    columns = ("step", "iteration", "model", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns")
    iterations = pl.DataFrame(rows, schema=dict.fromkeys(columns[1:], pl.Int64)).sort("end_ns", maintain_order=True)
    iterations = iterations.with_columns(step=pl.int_range(1, pl.len() + 1, dtype=pl.Int64)).select(columns)
    return Steps(
        iterations, pl.concat([_ranges(tags, _COLLECTIVE, _GET_NEXT, "reduce"), _ranges(tags, _GET_NEXT, _BEYOND, "get_next")]), unfinished
    )


def as_spans(steps: pl.DataFrame, number: str, **place: pl.Expr) -> pl.DataFrame:
    """Spans of iterations, and of their parts if both passes are marked: forward and backward, and the rest."""
    forward, backward = pl.col("fp_start_ns"), pl.col("bp_end_ns")
    parts = [
        ("Iteration", "Iteration Time", "step", pl.col("start_ns"), pl.col("end_ns")),
        ("FP_BP Time", "FP_BP Time", "annotation", forward, backward),
        ("Iteration Refresh", "Iteration Refresh", "annotation", pl.when(forward.is_not_null()).then(backward), pl.col("end_ns")),
    ]
    rows = [
        steps.select(
            *(column for column in ("step", "model_id", "iteration") if column in steps.columns),
            name=pl.format(f"{name} {{}}", number),
            kind=pl.lit(kind),
            category=pl.lit(category),
            start_ns=start,
            dur_ns=end - start,
            track_kind=pl.lit("annotation"),
            **place,
        ).filter(pl.col("dur_ns") >= 0)
        for name, category, kind, start, end in parts
    ]
    return pl.concat(rows)


def _iterations(marks: list[tuple[int, int]]) -> tuple[list[dict[str, int | None]], int]:
    rows: list[dict[str, int | None]] = []
    start: int | None = None
    forward: int | None = None
    backward: int | None = None
    closed = False  # the model's end adds nothing to an iteration that ended
    for tag, at in marks:
        if tag == _MODEL_START:
            start, forward, backward, closed = at, None, None, False
        elif tag == _FORWARD:
            start = at if start is None else start
            forward, closed = at if forward is None else forward, False
        elif tag == _BACKWARD:
            backward, closed = at, False
        elif tag == _ITERATION_END or (tag == _MODEL_END and not closed and start is not None):
            rows.append({"start_ns": at if start is None else start, "end_ns": at, "fp_start_ns": forward, "bp_end_ns": backward})
            start, forward, backward, closed = at, None, None, True
    return rows, int(not closed and start is not None)


def _explicit(tags: pl.DataFrame) -> list[dict[str, int | None]]:
    """Steps from the framework's own markers."""
    rows: list[dict[str, int | None]] = []
    start: int | None = None
    for model, tag, at in tags.select("model", "tag", "at_ns").iter_rows():
        if tag == _STEP_START:
            start = at
        elif start is not None:
            rows.append({"model": model, "iteration": len(rows) + 1, "start_ns": start, "end_ns": at})
            start = None
    return rows


def _ranges(tags: pl.DataFrame, low: int, high: int, name: str) -> pl.DataFrame:
    """Ranges of tags: an even tag is the start on its stream, the next odd tag the end."""
    number = (pl.col("tag") - low) // 2
    key = ["model", "stream", "number"]
    rows = tags.filter(pl.col("tag").is_between(low, high, closed="left")).with_columns(number=number, is_start=pl.col("tag") % 2 == 0)
    rows = rows.with_columns(end_ns=pl.col("at_ns").shift(-1).over(key), closed=~pl.col("is_start").shift(-1).over(key))
    return rows.filter(pl.col("is_start") & pl.col("closed")).select(
        "model", "stream", "number", "end_ns", tag=pl.lit(name), start_ns="at_ns"
    )
