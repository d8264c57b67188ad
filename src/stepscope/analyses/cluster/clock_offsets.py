"""How far are the clocks of the ranks apart, and how certain is that?"""

import polars as pl

from stepscope.analyses.shared.ranks.rank_clocks import CLOCK_COLUMNS, rank_clocks
from stepscope.model.trace import Trace

COLUMNS = CLOCK_COLUMNS


def clock_offsets(trace: Trace) -> pl.DataFrame:
    """Per rank: the offset of its clock from that of the first rank, its uncertainty, and how they are known.

    Matching collectives bound the offset: no rank can end one before the last rank has started it. Within the bounds, the ends of the
    shortest quarter of the calls are aligned; the uncertainty is the time for which the data of these calls is in transit. Ranks of one
    host share its clock. An offset within its uncertainty counts as 0: the recorded times stay as they are. Waits are computed on
    aligned clocks.
    """
    return rank_clocks(trace).filter(pl.col("rank").is_in(trace.meta.ranks))
