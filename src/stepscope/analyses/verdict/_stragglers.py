"""Stragglers: the ranks, hosts, links and stages that the others wait for, each with its cause and what the job loses."""

from collections.abc import Iterator
from typing import Any

from stepscope.analyses.cluster.stragglers import CAUSE_WORDS, stragglers
from stepscope.analyses.verdict._message import Message, known, severity
from stepscope.model.trace import Trace

_CODES = {"rank": "straggler-rank", "host": "straggler-host", "stage": "straggler-stage", "link": "straggler-link"}
_SHOWN = 3  # as sentences; the table has all
_MATTERS = 0.01  # of the step


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


def _parameters(row: dict[str, Any]) -> dict[str, Any]:
    figures = {"excess": row["excess_ns"], "slow": row["slow_steps"], "steps": row["all_steps"]}
    places = known(rank=row["rank"], peer=row["peer_rank"], stage=row["stage"], host=row["host"])
    return places | figures | {"cause": CAUSE_WORDS[row["cause"]]} | known(loss=row["loss_ns"], share=row["loss_share"])
