"""How far are the clocks of the ranks apart, and how certain is that?"""

import polars as pl

from stepscope.analyses.shared.ranks.rank_clocks import CLOCK_COLUMNS, rank_clocks
from stepscope.model.trace import Trace

COLUMNS = CLOCK_COLUMNS


def clock_offsets(trace: Trace) -> pl.DataFrame:
    """Per rank: the offset of its clock from that of a reference rank, its uncertainty, and how they are known.

    Matching collectives bound the offset: no rank can end one before the last rank has started it, and nothing is received before it is
    sent. Within the bounds, the ends of the shortest quarter of the collectives are aligned; the uncertainty is the time for which their
    data is in transit. Ranks of one host share its clock. The reference is the first rank; ranks that share no calls with it, directly or
    through others, have a reference of their own. An offset within its uncertainty counts as 0: the recorded times stay as they are.
    Waits are computed on aligned clocks.
    """
    return rank_clocks(trace).filter(pl.col("rank").is_in(trace.meta.ranks))
