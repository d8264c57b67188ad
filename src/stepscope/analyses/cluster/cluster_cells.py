"""How does a figure of the steps differ between ranks, hosts or parallel groups, and from step to step?"""

import polars as pl

from stepscope.analyses.communication.cluster_steps import cluster_steps
from stepscope.analyses.shared.parallelism.rank_places import rank_labels
from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
from stepscope.analyses.shared.ranks.rank_steps import PARTS, rank_steps
from stepscope.model.memo import memoized
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

OWN = ("own_ns", *(f"{part}_ns" for part in PARTS))
FIGURES = ("step_ns", *OWN, "communication_ns", "exposed_ns", "wait_ns", "transit_ns", "free_ns")
COLUMNS = {
    "row": pl.Int32,  # from the top
    "column": pl.Int32,  # from the left
    "label": pl.String,  # of the row: a rank, ranks as ranges, a host, or the index in a dimension
    "rank": pl.Int32,  # of the highest value in the cell
    "step": pl.Int32,
    "first_step": pl.Int32,  # of the column
    "last_step": pl.Int32,
    "value": pl.Float64,  # mean of the cell
    "highest": pl.Float64,
    "usual": pl.Float64,  # median of all ranks in the steps of the column
}


@memoized
def cluster_cells(
    trace: Trace, *, figure: str = "own_ns", by: str | None = None, order: str = "rank", max_rows: int = 256, max_columns: int = 400
) -> pl.DataFrame:
    """A matrix of a figure: ranks (or with `by` hosts or indices of a dimension) by steps, with at most these many rows and columns.

    `figure` is a column: step_ns (the whole step), own_ns and its parts as in `stragglers`, the others as in `cluster_steps`. `order` sorts
    the rows by `rank` or `value`, the highest mean first. If there are more ranks or steps, neighbors share a cell: its mean and its
    highest value, with the rank and the step of that. Ranks and steps without the figure have no cell.
    """
    check_word("figure", figure, FIGURES)
    check_word("order", order, ("rank", "value"))
    table = rank_steps(trace) if figure in OWN else cluster_steps(trace).rename({"total_ns": "step_ns"})
    cells = table.select("rank", "step", value=pl.col(figure).cast(pl.Float64)).drop_nulls("value").join(rank_labels(trace, by), on="rank")
    if cells.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    usual = cells.group_by("step").agg(usual=pl.col("value").median())
    rows = _row_numbers(cells, order, max_rows)
    steps = cells.select("step").unique().sort("step").with_row_index("at")
    steps = steps.with_columns(column=(pl.col("at") * min(max_columns, steps.height) // steps.height).cast(pl.Int32))
    cells = cells.join(usual, on="step").join(rows, on="label").join(steps, on="step")
    highest = pl.col("value").arg_max()
    matrix = cells.group_by("row", "column").agg(
        pl.col("rank").get(highest),
        pl.col("step").get(highest),
        pl.col("label").get(highest),
        pl.col("value").mean(),
        first_step=pl.col("step").min(),
        last_step=pl.col("step").max(),
        highest=pl.col("value").max(),
        usual=pl.col("usual").median(),
    )
    if (by or "rank") == "rank" and rows["row"].n_unique() < rows.height:
        shared = rows.group_by("row").agg(pl.col("label").cast(pl.Int32))
        shared = shared.with_columns(pl.Series("label", [rank_ranges(ranks) for ranks in shared["label"]], pl.String))
        matrix = matrix.drop("label").join(shared, on="row")
    return matrix.sort("row", "column").select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _row_numbers(cells: pl.DataFrame, order: str, max_rows: int) -> pl.DataFrame:
    """label and row."""
    means = cells.group_by("label").agg(mean=pl.col("value").mean(), first=pl.col("rank").min())
    by_number = [pl.col("label").cast(pl.Int64, strict=False), pl.col("label")]
    ordered = means.sort("mean", "first", descending=[True, False]) if order == "value" else means.sort(by_number, nulls_last=True)
    rows = ordered.select("label").with_row_index("at")
    return rows.select("label", row=(pl.col("at") * min(max_rows, rows.height) // rows.height).cast(pl.Int32))
