"""How short does the step get when one finding after the other is fixed?"""

import polars as pl

from stepscope.analyses.advice.engine.results import advice_of
from stepscope.model.trace import Trace

COLUMNS = {
    "position": pl.Int32,
    "rule": pl.String,
    "culprit": pl.String,
    "step_before_ns": pl.Int64,  # with all fixes above it done
    "step_after_ns": pl.Int64,
    "gain_ns": pl.Int64,  # what remains of its gain
    "gain_share": pl.Float64,  # of the step as it is
    "of_step": pl.String,  # which step the first row starts with: unprofiled (where the recording has timed some), recorded
    "bottleneck": pl.String,  # after it, most of the critical path is: host, input, launch, kernel, copy, communication
    "coverage": pl.String,  # the steps and ranks that were replayed; null: all
}


def waterfall(trace: Trace) -> pl.DataFrame:
    """The findings of `advice` in their order, each replayed together with all above it: gains that overlap count once.

    Findings whose gain is no part of a replay, such as pauses in single steps, have no row.
    """
    result = advice_of(trace)
    rows = [
        {
            "rule": fix.ranked.rule.name,
            "culprit": fix.ranked.finding.culprit,
            "step_before_ns": fix.before_ns,
            "step_after_ns": fix.after_ns,
            "gain_ns": fix.before_ns - fix.after_ns,
            "gain_share": (fix.before_ns - fix.after_ns) / result.base.step_ns if result.base.step_ns else None,
            "of_step": result.base.step,
            "bottleneck": fix.bottleneck,
            "coverage": result.coverage,
        }
        for fix in result.waterfall
    ]
    frame = pl.DataFrame(rows, {name: dtype for name, dtype in COLUMNS.items() if name != "position"})
    return frame.with_columns(position=pl.int_range(pl.len(), dtype=pl.Int32)).select(*COLUMNS)
