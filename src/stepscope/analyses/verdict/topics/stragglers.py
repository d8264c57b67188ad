"""Stragglers: the ranks, hosts, links and stages that the others wait for, each with its cause and what the job loses."""

from collections.abc import Iterator
from typing import Any

from stepscope.analyses.cluster.stragglers import CAUSE_WORDS, stragglers
from stepscope.analyses.verdict.topics.message import MATTERS, Message, known, severity
from stepscope.model.trace import Trace

_CODES = {"rank": "straggler-rank", "host": "straggler-host", "stage": "straggler-stage", "link": "straggler-link"}
_SHOWN = 3  # as sentences; the table has all
_MATTERS = 0.01  # of the step
_CERTAIN = 0.5  # confidence of the straggler that leads the headline of the run


def straggler_messages(trace: Trace) -> Iterator[Message]:
    """Of the whole run, the largest loss first; of many, the first ones and the number of the others."""
    if len(trace.meta.ranks) < 2:
        return
    rows = [row for row in stragglers(trace).iter_rows(named=True) if row["loss_share"] is None or row["loss_share"] >= _MATTERS]
    for row in rows[:_SHOWN]:
        share = row["loss_share"]
        yield Message("communication", _CODES[row["kind"]], _parameters(row), severity=severity(share) if share else "medium")
    if len(rows) > _SHOWN:
        yield Message("communication", "stragglers-more", {"count": len(rows) - _SHOWN})


def leading_straggler(trace: Trace) -> Message | None:
    """What the ranks wait for in all steps: the slow rank, host or stage that the job loses most to, if that matters and is certain.

    Time that the other ranks wait for it is part of their exposed communication: this is the cause, and so the first thing to know.
    """
    job = trace.of_all_ranks
    rows = stragglers(job).iter_rows(named=True) if len(job.meta.ranks) > 1 else ()
    for row in rows:
        if row["kind"] != "link" and row["persistent"] and row["confidence"] >= _CERTAIN and (row["loss_share"] or 0) >= MATTERS:
            return Message("overview", _CODES[row["kind"]], _parameters(row), severity=severity(row["loss_share"]))
    return None


def _parameters(row: dict[str, Any]) -> dict[str, Any]:
    figures = {"excess": row["excess_ns"], "slow": row["slow_steps"], "steps": row["all_steps"]}
    places = known(rank=row["rank"], peer=row["peer_rank"], stage=row["stage"], host=row["host"])
    return places | figures | {"cause": CAUSE_WORDS[row["cause"]]} | known(loss=row["loss_ns"], share=row["loss_share"])
