"""Which collectives, sends and receives did each rank call last?"""

import polars as pl

from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "record": pl.Int64,  # counts all operations of the rank
    "group": pl.String,
    "description": pl.String,
    "operation": pl.String,
    "number": pl.Int64,  # counts the collectives of the group; for a send or receive, the sends and receives
    "peer": pl.Int32,  # rank of the other side of a send or receive, within the group
    "state": pl.String,  # scheduled, started, completed
    "created_ns": pl.Int64,
    "started_ns": pl.Int64,  # both as the recorder noticed them, which is later
    "completed_ns": pl.Int64,
    "input_shapes": pl.String,
    "input_dtypes": pl.String,
    "output_shapes": pl.String,
    "thread": pl.String,
    "line": pl.String,  # file:line function
}


def recorded_collectives(trace: Trace) -> pl.DataFrame:
    """The rows of a flight recorder: per rank in order of the calls."""
    descriptions = trace.table("process_groups").select(pl.col("group", "description").cast(pl.String)).drop_nulls().unique("group")
    records = trace.table("flight_records").with_columns(pl.col("group").cast(pl.String))
    return (
        records.join(descriptions, on="group", how="left")
        .with_columns(operation="name", number=pl.when("is_p2p").then("p2p_number").otherwise("number"))
        .sort("rank", "record")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
        .collect()
    )
