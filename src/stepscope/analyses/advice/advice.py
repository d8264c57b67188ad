"""What should be fixed first, how much does the step gain, and how is it fixed?"""

import json
from typing import Any

import polars as pl

from stepscope.analyses.advice.engine.findings import Finding
from stepscope.analyses.advice.engine.results import Advice, Ranked, Unchecked, advice_of, first_finding
from stepscope.analyses.shared.steps.coverage import step_ranges
from stepscope.model.strings.messages import catalog, render
from stepscope.model.trace import Trace

COLUMNS = {
    "position": pl.Int32,  # 0 is the first to fix
    "status": pl.String,  # finding, statement, healthy, not checked
    "rule": pl.String,
    "topic": pl.String,  # host, input, device, memory, communication, recording, steps
    "rank": pl.Int32,  # where it was found; null: the whole run
    "ranks": pl.String,  # all ranks with it: 0-3, 7
    "severity": pl.String,  # high (10 % of the step), medium (3 %), low (1 %, or behind another finding); null for other rows
    "code": pl.String,  # of the title
    "parameters": pl.String,  # JSON object: of title and fix
    "title": pl.String,  # in English
    "culprit": pl.String,
    "source": pl.String,  # file:line, where stacks are recorded
    "evidence": pl.String,  # JSON object: analysis, arguments, rows (column to value), figures
    "gain_ns": pl.Int64,  # of a step, now
    "gain_share": pl.Float64,  # of the step in of_step
    "of_step": pl.String,  # which step gains refer to: unprofiled (where the recording has timed some), recorded, mean (over all steps)
    "of_step_ns": pl.Int64,
    "later_ns": pl.Int64,  # gain once the findings above it are fixed, where it gains less than 1 % now
    "after": pl.String,  # the rule of the finding that hides it now
    "device_ns": pl.Int64,  # device time per step that it frees
    "step_ns": pl.Int64,  # of the replay: the mean
    "limited_by": pl.String,  # now, most of the critical path is: host, input, launch, kernel, copy, communication
    "next_bottleneck": pl.String,  # the same after the fix
    "confidence": pl.String,  # high, medium, low
    "fix_code": pl.String,  # of the text of the fix
    "fix": pl.String,  # in English
    "snippet": pl.String,  # code to copy, for the framework in use
    "link": pl.String,
    "spans": pl.String,  # JSON list of {rank, step, span} or {rank, step, start_ns, end_ns} to open on the timeline
    "not_checked": pl.String,  # what is missing, and how to record it
    "coverage": pl.String,  # the steps and ranks that were replayed; null: all
}
_SPANS = 20


def advice(trace: Trace) -> pl.DataFrame:
    """Findings of all rules, those with the largest gain first; then statements, and rules that could not be checked.

    The gain is what a step gets shorter in a replay of the recording with the changes that the fix makes, as the mean over the replayed
    steps: time that other work hides is no gain. Gains of several findings overlap: `waterfall` has the steps after fix A, then B. A
    finding with `later_ns` gains next to nothing now, and that much once the findings above it are fixed. Gains of the host are reduced
    by the recording overhead where that is known. A run without findings has one row with status `healthy`. Rules that cannot apply,
    such as one for GPUs without a GPU, have no row.
    """
    result = advice_of(trace)
    rows = [_row(ranked, result, "finding", trace) for ranked in result.findings]
    if not result.findings and result.step_ns:
        rows.append(_healthy(result))
    rows += [_row(ranked, result, "statement", trace) for ranked in result.statements]
    rows += [_unchecked(item, result) for item in result.unchecked]
    return _table(rows)


def main_finding(trace: Trace) -> pl.DataFrame:
    """The first row of `advice` if it is a finding, in half of the time."""
    result = first_finding(trace)
    return _table([_row(ranked, result, "finding", trace) for ranked in result.findings])


def _table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, {name: dtype for name, dtype in COLUMNS.items() if name != "position"})
    return frame.with_columns(position=pl.int_range(pl.len(), dtype=pl.Int32)).select(*COLUMNS)


def _row(ranked: Ranked, result: Advice, status: str, trace: Trace) -> dict[str, Any]:
    rule, finding = ranked.rule, ranked.finding
    code, fix = finding.code or f"advice-{rule.name}", finding.fix or f"advice-{rule.name}-fix"
    parameters = {"device": result.device, "gain": ranked.gain_ns, **finding.parameters}
    parameters |= {"later": ranked.later_ns} if ranked.later_ns is not None else {}
    parameters |= {"source": finding.source} if finding.source else {}
    parameters |= {"culprit": finding.culprit} if finding.culprit else {}
    snippets = finding.fix_code or rule.fix
    gains = status == "finding"
    return {
        "status": status,
        "rule": rule.name,
        "topic": rule.topic,
        "rank": ranked.ranks[0] if len(ranked.ranks) == 1 else None,
        "ranks": step_ranges(ranked.ranks) if ranked.ranks else None,
        "severity": ranked.severity,
        "code": code,
        "parameters": json.dumps(parameters, ensure_ascii=False),
        "title": render(code, parameters),
        "culprit": finding.culprit,
        "source": finding.source,
        "evidence": json.dumps(finding.evidence._asdict(), ensure_ascii=False),
        "gain_ns": ranked.gain_ns if gains else None,
        "gain_share": ranked.gain_share if gains else None,
        "of_step": ranked.of_step if gains else None,
        "of_step_ns": ranked.of_step_ns if gains else None,
        "later_ns": ranked.later_ns,
        "after": ranked.after,
        "device_ns": ranked.device_ns,
        "step_ns": result.step_ns or None,
        "limited_by": result.limited_by,
        "next_bottleneck": ranked.next_bottleneck,
        "confidence": ranked.confidence,
        "fix_code": fix if fix in catalog("en") else None,
        "fix": render(fix, parameters) if fix in catalog("en") else None,
        "snippet": snippets.get(trace.meta.framework, snippets.get("")),
        "link": rule.link or None,
        "spans": _spans(finding),
        "not_checked": None,
        "coverage": result.coverage,
    }


def _spans(finding: Finding) -> str | None:
    if finding.spans is None or finding.spans.is_empty():
        return None
    columns = [name for name in ("rank", "step", "span", "start_ns", "end_ns") if name in finding.spans.columns]
    return json.dumps(finding.spans.select(columns).head(_SPANS).to_dicts())


def _healthy(result: Advice) -> dict[str, Any]:
    parameters = {"checked": result.checked, "unchecked": len(result.unchecked), "step": result.step_ns}
    return _plain("healthy", "advice-healthy", parameters, result)


def _unchecked(item: Unchecked, result: Advice) -> dict[str, Any]:
    row = _plain("not checked", "advice-not-checked", {"symptom": item.rule.symptom.splitlines()[0], "needs": item.needs}, result)
    return row | {"rule": item.rule.name, "topic": item.rule.topic, "not_checked": item.needs, "link": item.rule.link or None}


def _plain(status: str, code: str, parameters: dict[str, Any], result: Advice) -> dict[str, Any]:
    row = dict.fromkeys(name for name in COLUMNS if name != "position")
    texts = {"parameters": json.dumps(parameters, ensure_ascii=False), "title": render(code, parameters)}
    return row | {"status": status, "code": code, **texts, "step_ns": result.step_ns or None, "coverage": result.coverage}
