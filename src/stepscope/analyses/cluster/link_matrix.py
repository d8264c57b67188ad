"""How fast are the links between ranks or hosts, by transport?"""

import polars as pl

from stepscope.analyses.shared.parallelism.rank_places import rank_labels
from stepscope.analyses.shared.ranks.link_sums import link_sums
from stepscope.analyses.shared.ranks.rank_ranges import rank_ranges
from stepscope.analyses.shared.ranks.slow_links import slow_links
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

COLUMNS = {
    "row": pl.Int32,
    "column": pl.Int32,
    "src": pl.String,  # rank, ranks as ranges, host, or index in a dimension
    "dst": pl.String,
    "src_rank": pl.Int32,  # of the slowest link in the cell
    "dst_rank": pl.Int32,
    "transport": pl.String,
    "links": pl.Int64,
    "transfers": pl.Int64,
    "bytes": pl.Int64,
    "total_ns": pl.Int64,
    "bytes_per_s": pl.Float64,  # bytes by time of the transfers with both
    "slowest": pl.Float64,  # bytes per second of the slowest link
    "usual": pl.Float64,  # median of the links of the transport
    "slow_links": pl.Int64,  # that `stragglers` names
}


@memoized
def link_matrix(trace: Trace, *, by: str | None = None, transport: str | None = None, max_rows: int = 128) -> pl.DataFrame:
    """A matrix of senders by receivers and transport: bytes, time, and bandwidth as bytes divided by time.

    Ranks are those of the job, not those of a group. A link that both sides record counts with the transfers of both. With `by` the ranks
    of a host (`host`) or index of a dimension share a row; of more ranks than `max_rows`, neighbors do. `transport` restricts the table.
    Copies of a rank to itself are left out.
    """
    sums = link_sums(trace).filter(pl.col("src") != pl.col("dst"), pl.col("sized_ns") > 0)
    ends = _rows(trace, sums, by, max_rows)
    sums = sums if transport is None else sums.filter(pl.col("transport") == transport)
    if sums.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    links = sums.group_by("src", "dst", "transport").agg(pl.col("transfers", "bytes", "sized_bytes", "sized_ns").sum())
    speed = pl.col("sized_bytes") / pl.col("sized_ns") * 1e9
    links = links.with_columns(speed=speed).with_columns(usual=pl.col("speed").median().over("transport"))
    slow = slow_links(trace).select("src", "dst", "transport", slow=pl.lit(1))
    links = links.join(slow, on=["src", "dst", "transport"], how="left")
    for end, place in (("src", "row"), ("dst", "column")):
        links = links.join(ends.rename({"rank": end, "place": place, "label": f"{end}_label"}), on=end)
    slowest = pl.col("speed").arg_min()
    cells = links.group_by("row", "column", "transport").agg(
        pl.col("src_label", "dst_label").first(),
        pl.col("transfers", "bytes", "sized_bytes", "sized_ns").sum(),
        src_rank=pl.col("src").get(slowest),
        dst_rank=pl.col("dst").get(slowest),
        links=pl.len(),
        slowest=pl.col("speed").min(),
        usual=pl.col("usual").first(),
        slow_links=pl.col("slow").fill_null(0).sum(),
    )
    cells = cells.drop("src", "dst", strict=False).rename({"src_label": "src", "dst_label": "dst"})
    cells = cells.with_columns(total_ns="sized_ns", bytes_per_s=speed).sort("row", "column", "transport")
    return cells.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())


def _rows(trace: Trace, links: pl.DataFrame, by: str | None, max_rows: int) -> pl.DataFrame:
    """rank, place and label: of recorded ranks, and of ranks that only the other side recorded."""
    ranks = pl.concat([links["src"], links["dst"]]).unique().sort().to_frame("rank")
    if (by or "rank") != "rank":
        labels = rank_labels(trace, by).join(ranks, on="rank", how="semi")
        order = labels.select("label").unique().sort(pl.col("label").cast(pl.Int64, strict=False), "label").with_row_index("place")
        return labels.join(order, on="label").select("rank", "place", "label")
    rows = ranks.with_row_index("at")
    rows = rows.with_columns(place=(pl.col("at") * min(max_rows, rows.height) // rows.height).cast(pl.UInt32))
    shared = rows.group_by("place").agg("rank")
    shared = shared.with_columns(pl.Series("label", [rank_ranges(members) for members in shared["rank"]], pl.String))
    return rows.select("rank", "place").join(shared.select("place", "label"), on="place")
