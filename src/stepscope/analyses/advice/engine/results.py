"""Findings of all rules, each with its gain by replay, ranked; and the order in which fixes add up."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from stepscope.analyses.advice.engine.base import Base, base_of
from stepscope.analyses.advice.engine.findings import Change, Finding
from stepscope.analyses.advice.engine.machine import is_disturbed
from stepscope.analyses.advice.engine.needs import device_word, how_to_record, missing
from stepscope.analyses.advice.engine.replays import Replays
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules import Rule, rules
from stepscope.analyses.shared.steps.coverage import step_ranges
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

# Severity by the share of the step that a fix recovers. Less than the last one is not shown.
SEVERITIES = (("high", 0.10), ("medium", 0.03), ("low", 0.01))
_SHOWN = SEVERITIES[-1][1]
_RANKS = 8  # rules for one rank look at this many ranks at most: the slowest, the fastest and others between them
_REVEALS = 0.5  # a fix reveals a finding if it alone brings this part of the finding's later gain
_BEHIND = 24  # findings without a gain of their own are tried behind others; the largest ones, which keeps the number of replays small


class Ranked(NamedTuple):
    """A finding with its gain."""

    rule: Rule
    finding: Finding
    ranks: list[int]
    severity: str | None
    gain_ns: int  # of a step now
    gain_share: float
    later_ns: int | None  # gain once the findings before it are fixed; null if it has its gain now, or is no part of the replay
    after: str | None  # the rule whose fix reveals it
    device_ns: int | None  # device time that it frees per step
    next_bottleneck: str | None
    confidence: str
    of_step: str  # which step the gain and its share refer to: unprofiled, recorded, mean (over all steps)
    of_step_ns: int


class Unchecked(NamedTuple):
    rule: Rule
    needs: str


class Fix(NamedTuple):
    """A step of the waterfall."""

    ranked: Ranked
    before_ns: int
    after_ns: int
    bottleneck: str | None


class Advice(NamedTuple):
    findings: list[Ranked]  # by gain
    statements: list[Ranked]
    unchecked: list[Unchecked]
    checked: int  # rules
    not_applicable: int
    waterfall: list[Fix]  # of the unprofiled step where one is known
    base: Base  # the step that gains refer to
    step_ns: int  # as recorded
    device: str  # GPU, NPU, device
    limited_by: str | None  # what most of the critical path is
    coverage: str | None  # which steps and ranks were replayed; null: all


class _Candidate(NamedTuple):
    rule: Rule
    finding: Finding
    ranks: list[int]
    by_rank: dict[int | None, Finding]  # the finding of each rank, with the changes of all


@memoized
def advice_of(trace: Trace) -> Advice:
    """All findings of a trace, ranked."""
    advice, replays, behind = _gains(trace)
    waterfall = list(_waterfall(replays, advice.findings + behind, advice.base))
    findings = advice.findings + _hidden(replays, advice.findings, behind, waterfall, advice.base)
    final = {id(row.finding): row for row in findings}
    fixes = [fix._replace(ranked=final[id(fix.ranked.finding)]) for fix in waterfall if id(fix.ranked.finding) in final]
    return advice._replace(findings=findings, waterfall=fixes)


def first_finding(trace: Trace) -> Advice:
    """Advice with the finding of the largest gain alone: it takes half of the replays."""
    advice, _, _ = _gains(trace)
    return advice._replace(findings=advice.findings[:1])


@memoized
def _gains(trace: Trace) -> tuple[Advice, Replays, list[Ranked]]:
    """Advice with the findings that gain now, without a waterfall; the replays, and the findings that may gain later."""
    replays = Replays(trace)
    base = base_of(trace, replays)
    ranks, coverage = _chosen_ranks(trace, replays)
    runs = {rank: Run(trace, rank, replays.graph, replays.recorded) for rank in ranks}
    whole = Run(trace, None, replays.graph, replays.recorded)
    candidates: list[_Candidate] = []
    unchecked: list[Unchecked] = []
    checked = not_applicable = 0
    for rule in rules():
        of_rule = [whole] if rule.all_ranks else list(runs.values())
        able = [run for run in of_rule if not missing(run, rule.applies)]
        ready = [run for run in able if not missing(run, rule.needs)]
        if ready:
            checked += 1
            candidates += _merged(rule, [(run, finding) for run in ready for finding in rule.find(run)])
        elif able:
            unchecked.append(Unchecked(rule, how_to_record(missing(able[0], rule.needs), trace.meta.framework)))
        else:
            not_applicable += 1
    step = replays.unchanged.sort("step_ns", descending=True, maintain_order=True)
    limited_by = step["bottleneck"][0] if step.height else None
    step_ns = int(replays.recorded["step_ns"].max() or 0)  # type: ignore[arg-type]
    rows = _ranked(trace, replays, _explained(candidates), base)
    behind = [row for row in rows if row.gain_share < _SHOWN and row.finding.changes][:_BEHIND]
    statements = [_statement(candidate) for candidate in candidates if candidate.finding.statement]
    statements.sort(key=lambda row: row.rule.notice)
    text = ", ".join(part for part in (replays.coverage, coverage) if part) or None
    now = [row for row in rows if row.gain_share >= _SHOWN]
    advice = Advice(now, statements, unchecked, checked, not_applicable, [], base, step_ns, device_word(whole), limited_by, text)
    return advice, replays, behind


def severity(share: float) -> str | None:
    """Of a share of the step; None for a share that is not worth a finding."""
    return next((word for word, least in SEVERITIES if share >= least), None)


def _severity(share: float, confidence: str) -> str | None:
    """A finding of low confidence is at most medium: no page should alarm about a guess."""
    word = severity(share)
    return "medium" if word == "high" and confidence == "low" else word


_LOWER = {"high": "medium", "medium": "low", "low": "low"}


def _chosen_ranks(trace: Trace, replays: Replays) -> tuple[list[int], str | None]:
    """The ranks that rules for one rank look at: all, or the slowest, the fastest and others evenly between them by their step."""
    by_time = replays.unchanged.sort("step_ns", "rank", descending=[True, False])["rank"].to_list()
    every = by_time + sorted(set(trace.meta.ranks) - set(by_time))
    every = every or trace.steps.select(pl.col("rank").unique().sort()).collect()["rank"].to_list() or [0]
    if len(every) <= _RANKS:
        return sorted(every), None
    chosen = sorted({every[round(i * (len(every) - 1) / (_RANKS - 1))] for i in range(_RANKS)})
    return chosen, f"rules for one rank: ranks {step_ranges(chosen)} of {len(every):,}"


def _merged(rule: Rule, findings: list[tuple[Run, Finding]]) -> Iterator[_Candidate]:
    """Findings of several ranks with the same message and culprit are one, with the changes of all."""
    groups: dict[tuple[str | None, str | None, str | None], list[tuple[Run, Finding]]] = {}
    for run, finding in findings:
        groups.setdefault((finding.code, finding.culprit, finding.source), []).append((run, finding))
    for group in groups.values():
        changes = tuple(change for _, finding in group for change in finding.changes)
        ranks = sorted({run.rank for run, _ in group if run.rank is not None})
        largest = max(group, key=lambda pair: pair[1].gain_ns or 0)[1]
        by_rank = {run.rank: finding._replace(changes=changes) for run, finding in group}
        yield _Candidate(rule, largest._replace(changes=changes), ranks, by_rank)


def _explained(candidates: list[_Candidate]) -> list[_Candidate]:
    """Without findings that a more precise rule explains: for the same culprit, or all of them where it has none."""
    explained = {(name, candidate.finding.culprit) for candidate in candidates for name in candidate.rule.explains}
    whole = {name for name, culprit in explained if culprit is None}
    return [
        candidate
        for candidate in candidates
        if not candidate.finding.statement
        and candidate.rule.name not in whole
        and (candidate.rule.name, candidate.finding.culprit) not in explained
    ]


def _statement(candidate: _Candidate) -> Ranked:
    finding = candidate.finding
    return Ranked(candidate.rule, finding, candidate.ranks, None, 0, 0.0, None, None, None, None, finding.confidence, "recorded", 0)


def _ranked(trace: Trace, replays: Replays, candidates: list[_Candidate], base: Base) -> list[Ranked]:
    """All candidates by their gain."""
    mean_ns = counting_steps(trace, None).select(pl.col("total_ns").mean().fill_null(0).round().cast(pl.Int64)).item()
    # A pause in single steps is part of the mean step, not of the median one.
    mean = max(round(mean_ns * base.of_recorded), base.step_ns)
    disturbed = is_disturbed(trace)
    rows = [_replayed(replays, candidate, base, mean, disturbed=disturbed) for candidate in candidates]
    rows = _without_explained(replays, rows)
    return _in_order(sorted(rows, key=lambda row: (-row.gain_ns, -(row.device_ns or 0), row.rule.name)))


def _in_order(rows: list[Ranked]) -> list[Ranked]:
    """The rows, each one behind the rows whose fix it needs first."""
    large = [row for row in rows if row.severity in ("high", "medium")]
    waits = [any(other.rule.name in row.rule.after for other in large) for row in rows]
    ordered = [row for row, later in zip(rows, waits, strict=True) if not later]
    for row in (row for row, later in zip(rows, waits, strict=True) if later):
        last = max((at for at, other in enumerate(ordered) if other.rule.name in row.rule.after), default=-1)
        following = next((at for at, other in enumerate(ordered) if at > last and other.gain_ns < row.gain_ns), len(ordered))
        ordered.insert(following, row)
    return ordered


def _hidden(replays: Replays, now: list[Ranked], behind: list[Ranked], waterfall: list[Fix], base: Base) -> list[Ranked]:
    """The findings that gain only after the fix of the others."""
    later = {id(fix.ranked): fix.before_ns - fix.after_ns for fix in waterfall}
    hidden = []
    for row in behind:
        gain = later.get(id(row), 0)
        if base.step_ns and now and gain >= _SHOWN * base.step_ns:
            hidden.append(row._replace(later_ns=gain, after=_revealing(replays, now, row, gain), severity="low"))
    return sorted(hidden, key=lambda row: -(row.later_ns or 0))


def _replayed(replays: Replays, candidate: _Candidate, base: Base, mean_ns: int, *, disturbed: bool) -> Ranked:
    finding, rule = candidate.finding, candidate.rule
    confidence: str = finding.confidence
    gain, device, bottleneck = round((finding.gain_ns or 0) * base.of_recorded), None, None
    if finding.changes:
        outcome = replays.outcome(finding.changes)
        gain, bottleneck, device = round(outcome.gain_ns * base.part), outcome.bottleneck, outcome.device_ns
        finding = candidate.by_rank.get(outcome.rank, finding)  # the rank of the gain: the loss beside it is of the same steps
    if rule.host_bound:
        confidence = _LOWER[confidence] if base.is_likely_shorter else confidence
    if disturbed and (rule.host_bound or not replays.has_device):
        confidence = "low"
    gain = max(gain, 0)
    step, whole = (base.step, base.step_ns) if finding.changes else ("mean", mean_ns)
    share = min(gain / whole, 1.0) if whole else 0.0
    word = _severity(share, confidence)
    return Ranked(rule, finding, candidate.ranks, word, gain, share, None, None, device, bottleneck, confidence, step, whole)


def _without_explained(replays: Replays, rows: list[Ranked]) -> list[Ranked]:
    """The findings; a generic one keeps the gain that is left once its causes beside it are fixed, if that is worth a finding."""
    causes = [row for row in rows if not row.finding.generic and row.gain_share >= _SHOWN]
    changes = [change for row in causes for change in row.finding.changes]
    if not changes or len(causes) == len(rows):
        return rows
    before = replays.outcome(changes).step_ns
    kept = []
    for row in rows:
        if row.finding.generic and row.finding.changes and row.gain_ns:
            alone = replays.outcome(row.finding.changes).gain_ns
            part = max(before - replays.outcome([*changes, *row.finding.changes]).step_ns, 0) / max(alone, 1)
            if part * row.gain_share < _SHOWN:
                continue
            kept.append(_with_gain(row, part) if part < _REVEALS else row)
        else:
            kept.append(row)
    return kept


def _with_gain(row: Ranked, part: float) -> Ranked:
    share = part * row.gain_share
    return row._replace(gain_ns=round(part * row.gain_ns), gain_share=share, severity=_severity(share, row.confidence))


def _waterfall(replays: Replays, rows: list[Ranked], base: Base) -> Iterator[Fix]:
    """Fix after fix: each row is the step before and after it, with all fixes before it done."""
    done: list[Change] = []
    before = base.step_ns
    for row in rows:
        if not row.finding.changes:
            continue
        done += row.finding.changes
        outcome = replays.outcome(done)
        after = min(round(int(outcome.steps["step_ns"].max() or 0) * base.part), before)  # type: ignore[arg-type]
        yield Fix(row, before, after, outcome.bottleneck)
        before = after


def _revealing(replays: Replays, now: list[Ranked], row: Ranked, gain: int) -> str | None:
    """The first finding whose fix alone reveals most of the later gain."""
    for other in now:
        if not other.finding.changes:
            continue
        alone = replays.outcome(other.finding.changes).step_ns
        both = replays.outcome([*other.finding.changes, *row.finding.changes]).step_ns
        if alone - both >= _REVEALS * gain:
            return other.rule.name
    return None
