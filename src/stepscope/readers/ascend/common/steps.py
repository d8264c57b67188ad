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


def steps_of_kernels(spans: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    """The steps that a kernel table numbers. A step ends where the next one starts."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    rows = spans.select("start_ns", "dur_ns", numbers.alias("step")).drop_nulls("step").group_by("step")
    steps = rows.agg(pl.col("start_ns").min(), end_ns=end.max()).sort("start_ns", "step")
    return steps.with_columns(end_ns=pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1)), how=pl.lit("marker"))
