"""The one step of what no iteration is marked in."""

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
