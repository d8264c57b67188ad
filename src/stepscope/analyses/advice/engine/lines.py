"""Lines of the program behind host spans, from recorded Python stacks."""

import re
import sys

import numpy as np
import polars as pl

from stepscope.analyses.operators.callers import is_library
from stepscope.analyses.shared.operator_calls import enclosing_rows, nearest, rows_of
from stepscope.model.intervals import Ints
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_LINE = r"^(?:.*[/\\])?([^/\\]+)\((\d+)\)"  # `/home/me/train.py(41): step`
# Frames of the standard library, whose paths may be cut to `json/encoder.py`.
_STANDARD = rf"^({'|'.join(map(re.escape, sorted(sys.stdlib_module_names)))})([/\\]|\.py\()"


def most_common(trace: Trace, spans: pl.DataFrame) -> str | None:
    """`train.py:41`: the line of the program that most of these host spans (rank, span) were called from; None without stacks.

    A span of the backward pass belongs to the line that called the forward operator.
    """
    names = lines_of(trace, spans).drop_nulls()
    return None if names.is_empty() else str(names.mode().sort()[0])


def lines_of(trace: Trace, spans: pl.DataFrame) -> pl.Series:
    """The line of the program behind each host span (rank, span), null where it is unknown."""
    host, line = _program_lines(trace)
    rows = rows_of(host, spans["rank"], spans["span"])
    at = np.where(rows >= 0, np.append(line, -1)[rows], -1)
    names = host["name"].gather(pl.Series(at).set(pl.Series(at < 0), None))
    return names.str.replace(_LINE + ".*", "${1}:${2}").alias("line")


@memoized
def _program_lines(trace: Trace) -> tuple[pl.DataFrame, Ints]:
    """The host spans, and for each the row of the innermost frame of the program around it, -1 for none."""
    host = (
        trace.spans.filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .select("rank", "span", "parent", "depth", "flow_in", name=pl.col("name").cast(pl.String), kind=pl.col("kind").cast(pl.String))
        .collect()
    )
    names = host.filter(pl.col("kind") == "python")["name"].unique()
    program = names.filter(names.str.contains(_LINE) & ~is_library(names) & ~names.str.contains(_STANDARD))
    is_program = ((host["kind"] == "python") & host["name"].is_in(program.implode())).to_numpy()
    if not is_program.any():
        return host.head(0), np.empty(0, np.int64)
    parent = enclosing_rows(host)
    line = np.where(is_program, np.arange(host.height), nearest(parent, is_program))
    is_op = (host["kind"] == "op").to_numpy()
    forward = np.where(is_op, rows_of(host, host["rank"], host["flow_in"]), -1)
    forward = np.where((forward >= 0) & is_op[forward], forward, -1)
    backward = np.where(forward >= 0, np.arange(host.height), nearest(parent, forward >= 0))
    origin = np.where(backward >= 0, forward[backward], -1)
    return host, np.where(origin >= 0, line[origin], line)


def lines_at(trace: Trace, frames: pl.DataFrame, at: Ints) -> pl.Series:
    """The line of the program that a thread runs at each time, from its Python frames (rank, span, start_ns, end_ns, parent)."""
    frames = frames.sort("start_ns", "end_ns", descending=[False, True])
    start, end, span = (frames[name].to_numpy() for name in ("start_ns", "end_ns", "span"))
    row = np.searchsorted(start, at, "right") - 1
    parents = rows_of(frames, frames["rank"], frames["parent"].fill_null(-1)) if frames.height else np.empty(0, np.int64)
    while len(ended := np.flatnonzero((row >= 0) & (np.append(end, 0)[row] <= at))):
        row[ended] = np.where(parents[row[ended]] < row[ended], parents[row[ended]], -1)
    spans = pl.DataFrame({"rank": np.append(frames["rank"].to_numpy(), -1)[row], "span": np.append(span, -1)[row]})
    return lines_of(trace, spans)
