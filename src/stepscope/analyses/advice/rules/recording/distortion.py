"""The recording itself lengthens the steps.

A statement: how much longer a recorded step is, or what was recorded that slows the host, and profiler work inside the steps. The gains
of host-bound findings are reduced by the known overhead; where it is not known, their confidence is lower.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps",)
APPLIES = ()
NOTICE = True
LINK = "https://docs.pytorch.org/docs/stable/profiler.html"
FIX = {
    "": "stepscope run --steps 10:19 train.py  # without --stack, --shapes and --memory",
    "pytorch": "stepscope run --steps 10:19 train.py  # without --stack, --shapes and --memory; it also times unprofiled steps",
}
_FLUSH = r"(?i)Activity Buffer Request|Buffer Flush|Lazy Function Loading|^profiler\b.*(flush|stop|export)|CUPTI"
_FLUSHED = 0.01  # of the steps
_TINY_NS, _MANY, _TINY_SHARE = 20_000, 1_000, 0.5  # mean time of operators, operators per step, and their share of the host


def distortion(run: Run) -> Iterator[Finding]:
    flushed = run.host.filter(pl.col("name").str.contains(_FLUSH))
    if run.share(run.per_step(flushed["dur_ns"])) >= _FLUSHED:
        time = run.per_step(flushed["dur_ns"])
        yield _statement("flush", {"time": time, "share": run.share(time)}, flushed)
    rows = run.table("recording_overhead").to_dicts()
    overhead = rows[0]["overhead"] if rows else None
    if overhead in ("most of the idle time", "part of the idle time", "steps"):
        row = rows[0]
        figures = {"recorded": row["step_ns"], "unprofiled": row["unprofiled_step_ns"], "change": row["overhead_share"]}
        yield _statement("known", figures, None)
    elif overhead == "likely":
        ops = run.operators
        per_step = round(ops.height / max(run.steps.height, 1))
        mean = ops.select(pl.col("self_ns").mean()).item() or 0
        if per_step >= _MANY and mean < _TINY_NS:
            yield _statement("tiny", {"options": rows[0]["slowed_by"], "operators": per_step, "mean": round(mean)}, None)
        else:
            yield _statement("likely", {"options": rows[0]["slowed_by"]}, None)


def _statement(kind: str, parameters: dict[str, Any], spans: pl.DataFrame | None) -> Finding:
    return Finding(
        parameters=parameters,
        evidence=Evidence("recording_overhead"),
        code=f"advice-distortion-{kind}",
        spans=None if spans is None else spans.select("rank", "step", "span"),
        statement=True,
    )
