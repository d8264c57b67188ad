"""The parallel dimension of each communicator."""

import polars as pl

from stepscope.analyses.shared.parallelism.communicators import communicators
from stepscope.analyses.shared.parallelism.parallel_dimensions import parallel_groups_of
from stepscope.model.trace import Trace

_COLUMNS = {"rank": pl.Int32, "group": pl.String, "members": pl.String, "dimension": pl.String}


def call_dimensions(trace: Trace) -> pl.DataFrame:
    """rank, group, members, dimension: of the communicators whose ranks are a group of one known dimension."""
    groups = parallel_groups_of(trace)
    by_ranks = {group.members: group.dimension for group in reversed(groups)}
    by_name = {group.group: group.dimension for group in groups if group.group is not None}
    rows = [(used.rank, used.group, used.text, by_ranks.get(used.ranks) or by_name.get(used.group or "")) for used in communicators(trace)]
    return pl.DataFrame(rows, _COLUMNS, orient="row").drop_nulls("dimension")
