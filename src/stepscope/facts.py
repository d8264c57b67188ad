"""What can be said of a trace only after looking at every row: when it begins and ends, and how many there are of each kind.

Of a large trace this is kept in the cache: opening it again looks at no row.
"""

import msgspec
import polars as pl

from stepscope import cache
from stepscope.errors import UsageError
from stepscope.trace import Trace

HEADER = "facts.json"
# Of fewer spans they are found faster than a file.
WORTH = 1 << 22


class Facts(msgspec.Struct, frozen=True):
    source: str
    first_ns: int
    last_ns: int
    kinds: dict[str, int]
    counters: dict[str, int]


def facts(trace: Trace, name: str | None = None) -> Facts:
    """From the cache, where it has them by this name; without a name nothing is kept."""
    if name is None or trace.spans.select(pl.len()).collect().item() < WORTH:
        return _found(trace)
    try:
        folder = cache.folder() / name
        known = msgspec.json.decode((folder / HEADER).read_bytes(), type=Facts)
    except UsageError:  # no cache to be had here
        return _found(trace)
    except (OSError, msgspec.MsgspecError):  # not known yet, or damaged where it lies
        cache.discard(folder)
    else:
        cache.touch(folder)
        return known
    found = _found(trace)
    try:
        draft = cache.draft()
    except OSError:  # a cache that cannot be written to
        return found
    try:
        (draft / "facts").mkdir()
        (draft / "facts" / HEADER).write_bytes(msgspec.json.encode(found))
        cache.settle(draft / "facts", folder)
    except OSError:  # the disk is full
        pass
    finally:
        cache.drop(draft)
    return found


def _found(trace: Trace) -> Facts:
    first, last = trace.ends()
    return Facts(trace.meta.source, first, last, _counted(trace.spans, "kind"), _counted(trace.counters, "name"))


def _counted(frame: pl.LazyFrame, column: str) -> dict[str, int]:
    # Words are made of the few that there are, not of every row.
    rows = frame.group_by(column).len().with_columns(pl.col(column).cast(pl.String)).sort("len", column, descending=[True, False])
    return {key: count for key, count in rows.collect(engine="streaming").iter_rows() if key is not None}
