"""Hangs: which ranks the others wait for, and in which collective. Only of dumps of a flight recorder."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.hangs.hangs import hangs
from stepscope.analyses.verdict.topics.message import Message, Options, known
from stepscope.model.trace import Trace

_CODES = {
    "device stopped": "hang-device-stopped",
    "not called": "hang-not-called",
    "no partner": "hang-no-partner",
    "no dump": "hang-no-dump",
    "mismatch": "hang-mismatch",
    "deadlock": "hang-deadlock",
    "transfer stopped": "hang-transfer-stopped",
}
_RANKS_NAMED = 8


def hang_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of the whole run: a sentence per kind of cause, then the ranks without a dump."""
    rows = hangs(trace.whole)
    if rows.is_empty():
        return
    causes = rows.filter(pl.col("role") == "cause")
    waiting, every = rows.filter(pl.col("role") == "waiting").height, rows.height
    for why, code in _CODES.items():
        ranks = causes.filter(pl.col("why") == why)
        if ranks.height:
            parameters = known(**_operation(ranks), waiting=waiting)
            yield Message("hangs", code, parameters | {"all": every} | _rank_list(ranks["rank"].to_list()), severity="high")
    if causes.is_empty() and waiting:
        parameters = known(**_operation(rows.filter(pl.col("role") == "waiting")))
        dumps = rows.filter(pl.col("role") != "no dump")["rank"].to_list()
        if len(dumps) == 1 < every:
            yield Message("hangs", "hang-one-dump", parameters | {"all": every} | _rank_list(dumps), severity="medium")
            return
        yield Message("hangs", "hang-unknown", parameters | {"waiting": waiting, "all": every}, severity="medium")
    elif causes.is_empty():
        yield Message("hangs", "hang-none", {"ranks": rows.filter(pl.col("role") != "no dump").height}, severity="info")
    missing = rows.filter((pl.col("role") == "no dump") & (pl.col("why").is_null() | (pl.col("why") != "no dump")))
    if missing.height:
        yield Message("hangs", "hang-dumps-missing", {"all": every} | _rank_list(missing["rank"].to_list()), severity="medium")


def _operation(ranks: pl.DataFrame) -> dict[str, Any]:
    """The operation in which most ranks wait for these."""
    row = ranks.sort("waiting", "rank", descending=[True, False], nulls_last=True).row(0, named=True)
    group = " ".join(filter(None, (row["description"], row["group"])))
    number = None if row["number"] is None else f"{row['number']}"
    return {"operation": row["operation"], "number": number, "group": group or None, "line": row["line"]}


def _rank_list(ranks: list[int]) -> dict[str, Any]:
    """The number of ranks, and the ranks by number where they are few; of many, the first ones."""
    shown = ", ".join(map(str, ranks[:_RANKS_NAMED]))
    return {"count": len(ranks), "ranks": shown} | ({"more": len(ranks) - _RANKS_NAMED} if len(ranks) > _RANKS_NAMED else {})
