"""Steps of recordings without step markers: numbered by a kernel table, or the whole recording as one step."""

import polars as pl


def single_step(spans: pl.DataFrame) -> pl.DataFrame:
    """One step from the first to the last device span. Calls of the host reach far before and after, so they count only without devices."""
    device = spans.filter(~pl.col("kind").is_in(["api", "sync", "annotation"]))
    spans = device if device.height else spans
    end = (spans["start_ns"] + spans["dur_ns"]).max()
    return pl.DataFrame({"step": [1], "start_ns": [spans["start_ns"].min()], "end_ns": [end], "how": ["whole"]})


def is_single_step(spans: pl.DataFrame, steps: pl.DataFrame) -> bool:
    """Whether nothing marks steps and no framework ran: every format of such a recording has one step."""
    return bool((steps["how"] == "whole").all()) and not (spans["kind"] == "op").any()


def steps_of_kernels(spans: pl.DataFrame, numbers: pl.Series, durations: pl.DataFrame) -> pl.DataFrame:
    """The steps that a kernel table numbers. A step lasts until the next one starts, the last until its last kernel ends.

    With `durations` (step, preparing, total_ns) a step begins before its first kernel and ends when its device work should have ended,
    also where kernels are missing. Without, the host's part of the first step and of the last is unknown.
    """
    rows = spans.select("start_ns", "dur_ns", numbers.alias("step")).drop_nulls("step").group_by("step")
    steps = rows.agg(first=pl.col("start_ns").min(), last=(pl.col("start_ns") + pl.col("dur_ns")).max()).sort("first", "step")
    steps = steps.join(durations, on="step", how="left", maintain_order="left")
    before = pl.col("preparing").fill_null(0)
    finish = pl.max_horizontal("last", pl.col("first") + pl.col("total_ns"))
    steps = steps.with_columns(start_ns=pl.max_horizontal(pl.col("first") - before, finish.shift(1).clip(upper_bound=pl.col("first"))))
    following = pl.col("step").shift(-1) == pl.col("step") + 1
    next_start = pl.col("start_ns").shift(-1)
    return steps.select(
        "step",
        "start_ns",
        end_ns=pl.when(following).then(next_start).otherwise(pl.min_horizontal(finish, next_start)),
        how=pl.when(pl.col("total_ns").is_null()).then(pl.lit("device")).otherwise(pl.lit("marker")),
    )
