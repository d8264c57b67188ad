"""Rows of `advice` in tests."""

import json
from typing import Any

from stepscope.model.trace import Trace


def rows(trace: Trace, rule: str) -> list[dict[str, Any]]:
    """The rows of one rule, with `parameters`, `evidence` and `spans` decoded."""
    found = [row for row in trace.analyse("advice").to_dicts() if row["rule"] == rule]
    return [row | {name: json.loads(row[name] or "null") for name in ("parameters", "evidence", "spans")} for row in found]


def finding(trace: Trace, rule: str) -> dict[str, Any]:
    """The only row of a rule, which is a finding."""
    (row,) = rows(trace, rule)
    assert row["status"] == "finding", row
    return row


def missing(trace: Trace, rule: str) -> str:
    """What the rule needs, where it was not checked."""
    (row,) = rows(trace, rule)
    assert row["status"] == "not checked", row
    return str(row["not_checked"])
