"""Steps of what no iteration is marked in: those that a table of kernels numbers, or the whole as one."""

import polars as pl


def whole(spans: pl.DataFrame) -> pl.DataFrame:
    """What the devices did, and where they did nothing, everything: the host's calls reach far before and behind."""
    device = spans.filter(~pl.col("kind").is_in(["api", "sync", "annotation"]))
    spans = device if device.height else spans
    return pl.DataFrame(
        {
            "step": [1],
            "start_ns": [spans["start_ns"].min()],
            "end_ns": [(spans["start_ns"] + spans["dur_ns"]).max()],
            "how": ["whole"],
        }
    )


def is_of_cann(spans: pl.DataFrame, steps: pl.DataFrame) -> bool:
    """Whether nothing marks steps and no framework ran: all formats of such a recording have one step, of what the devices did."""
    return bool((steps["how"] == "whole").all()) and not (spans["kind"] == "op").any()


def numbered(spans: pl.DataFrame, steps: pl.Series) -> pl.DataFrame:
    """The steps that a table of kernels gives its rows; one that begins ends the one before."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    rows = spans.select("start_ns", "dur_ns", steps.alias("step")).drop_nulls("step").group_by("step")
    found = rows.agg(pl.col("start_ns").min(), end_ns=end.max()).sort("start_ns", "step")
    return found.with_columns(end_ns=pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1)), how=pl.lit("marker"))
