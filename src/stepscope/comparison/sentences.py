"""The conclusions of a comparison, and what makes its figures incomparable, as message codes with parameters."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from stepscope.comparison.figures import step_change
from stepscope.comparison.judgement import verdict_change
from stepscope.comparison.operators import matched_share, operators
from stepscope.comparison.pace import MOST, pace_of
from stepscope.comparison.side import Side, naming
from stepscope.comparison.statistics import RUN_NOISE, Change
from stepscope.model.strings.messages import render

COLUMNS = {
    "kind": pl.String,  # verdict, notice
    "position": pl.Int32,  # the headline has 0
    "severity": pl.String,  # info, medium, high; null for a statement
    "code": pl.String,
    "parameters": pl.String,  # a JSON object
    "text": pl.String,  # the sentence in English
}
_NOISY = 0.1  # of the step: with more noise than this, "no difference" would say nothing
_HIGH = 0.05
_ALIKE = 0.005  # a smaller change of all operators alike is not worth a word
_EXPLAINS = 0.1  # of the difference: less is not called a cause
_OTHER_MODEL = 0.5  # of the time: less in common, and the runs are of different programs
_LISTED = 3
_MEAN = 0.02  # of the step, by which the mean may change otherwise than the median
_SLOWED = ("likely", "most of the idle time", "part of the idle time")
_OPTIONS = {"with_stack": "stacks", "record_shapes": "shapes", "profile_memory": "memory", "with_flops": "FLOPs", "with_modules": "modules"}


class Sentence(NamedTuple):
    kind: str
    code: str
    parameters: dict[str, Any]
    severity: str | None = None


def sentences(a: Side, b: Side, changes: pl.DataFrame, *, run_noise: float = RUN_NOISE) -> pl.DataFrame:
    """The headline, its largest causes by `changes` (a waterfall), and the notices."""
    rows = [*_verdict(a, b, changes, run_noise), *_notices(a, b, run_noise)]
    table = pl.DataFrame(
        {
            "kind": [row.kind for row in rows],
            "severity": [row.severity for row in rows],
            "code": [row.code for row in rows],
            "parameters": [json.dumps(row.parameters, ensure_ascii=False) for row in rows],
            "text": [render(row.code, row.parameters) for row in rows],
        },
        {name: dtype for name, dtype in COLUMNS.items() if name != "position"},
    )
    return table.with_columns(position=pl.int_range(pl.len()).over("kind")).select(
        pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()
    )


def _verdict(a: Side, b: Side, changes: pl.DataFrame, run_noise: float) -> Iterator[Sentence]:
    missing = [side.label for side in (a, b) if side.step() is None]
    change, pace = verdict_change(a, b, run_noise), pace_of(a, b)
    first, second = a.step(), b.step()
    if change is None or first is None or second is None:
        yield Sentence("verdict", "compare-no-steps", {"sides": ", ".join(missing or ["A", "B"])})
        return
    times = {"a": round(first.value), "b": round(second.value)}
    alike = None if pace is None or change == step_change(a, b, run_noise) else pace.factor - 1
    yield _headline(change, times | ({} if alike is None or abs(alike) < _ALIKE else {"pace": alike}))
    if change.certain and alike is None:
        yield from _causes(changes, second.value - first.value)
    else:
        yield from _changed_operators(operators(a, b, run_noise=run_noise), first.value)
    means = a.mean(), b.mean()
    if means[0] and means[1]:
        difference = means[1] / means[0] - 1 - change.share
        if abs(difference) > max(_MEAN, change.visible or 0):
            code = "compare-mean-slower" if difference > 0 else "compare-mean-faster"
            yield Sentence("verdict", code, {"a": round(means[0]), "b": round(means[1])}, "medium" if difference > 0 else None)


def _headline(change: Change, times: dict[str, Any]) -> Sentence:
    size = abs(change.share)
    if change.low is None or change.high is None or change.visible is None:
        return Sentence("verdict", "compare-chance", times | {"change": change.share})
    if not change.certain:
        code = "compare-noisy" if change.visible > _NOISY else "compare-same-paced" if "pace" in times else "compare-same"
        return Sentence("verdict", code, times | {"visible": change.visible}, "medium" if code == "compare-noisy" else "info")
    interval = sorted([abs(change.low), abs(change.high)])
    slower = change.share > 0
    level = ("high" if size >= _HIGH else "medium") if slower else "info"
    code = ("compare-slower" if slower else "compare-faster") + ("-paced" if "pace" in times else "")
    return Sentence("verdict", code, times | {"change": size, "interval": interval}, level)


def _causes(changes: pl.DataFrame, difference: float) -> Iterator[Sentence]:
    """The rows of the waterfall that change in the direction of the step, the largest first."""
    more = difference > 0
    rows = changes.filter(pl.col("share") >= _EXPLAINS).sort("share", descending=True).head(_LISTED)
    for row in rows.iter_rows(named=True):
        name = row["operator"] or ("other operators" if row["part"] == "compute" else row["part"])
        parameters = {"name": name, "change": abs(row["change_ns"]), "share": row["share"]}
        yield Sentence("verdict", "compare-cause-more" if more else "compare-cause-less", parameters)


def _changed_operators(rows: pl.DataFrame, step: float) -> Iterator[Sentence]:
    """The operators that changed for certain although the step is too noisy to show it, the largest first."""
    for row in rows.filter(pl.col("state") == "changed").head(_LISTED).iter_rows(named=True):
        parameters = {"name": row["name"], "change": abs(row["change_ns"]), "share": abs(row["change_ns"]) / step}
        yield Sentence("verdict", "compare-operator-more" if row["change_ns"] > 0 else "compare-operator-less", parameters)


def _notices(a: Side, b: Side, run_noise: float) -> Iterator[Sentence]:
    for name, code in (("framework", "compare-frameworks"), ("devices", "compare-devices"), ("world_size", "compare-world-size")):
        values = [_text(side.fact(name)) for side in (a, b)]
        if values[0] != values[1]:
            known = {side.label.lower(): value or "not recorded" for side, value in zip((a, b), values, strict=True)}
            yield Sentence("notice", code, known, "medium")
    on_device = [any(word in ("complete", "partial") for fact in side.fact("device_data") for word in fact) for side in (a, b)]
    if on_device[0] != on_device[1] and all(side.has_parts for side in (a, b)):
        yield Sentence("notice", "compare-device-work", {"side": "A" if on_device[0] else "B"}, "medium")
    yield from _recordings(a, b)
    yield from _matching(a, b)
    yield from _noise(a, b, run_noise)


def _recordings(a: Side, b: Side) -> Iterator[Sentence]:
    options = [{name for fact in side.fact("options") for name, value in fact.items() if value} for side in (a, b)]
    for label, options_of_side, other in (("A", options[0], options[1]), ("B", options[1], options[0])):
        only = [_OPTIONS[name] for name in _OPTIONS if name in options_of_side - other]
        if "stacks" in only:
            yield Sentence("notice", "compare-stacks", {"side": label}, "medium")
        if rest := [name for name in only if name != "stacks"]:
            yield Sentence("notice", "compare-options", {"side": label, "options": ", ".join(rest)})
    how = [", ".join(side.fact("steps_how")) for side in (a, b)]
    if how[0] != how[1] and all(how):
        yield Sentence("notice", "compare-steps-how", {"a": how[0], "b": how[1]}, "medium")
    versions = [_versions(side) for side in (a, b)]
    different = sorted(name for name in versions[0].keys() & versions[1].keys() if versions[0][name] != versions[1][name])
    if different and a.fact("framework") == b.fact("framework"):
        texts = [", ".join(f"{name} {values[name]}" for name in different[:_LISTED]) for values in versions]
        yield Sentence("notice", "compare-versions", {"a": texts[0], "b": texts[1]})
    for side in (a, b):
        if lost := sum(run.facts["lost"] for run in side.runs):
            yield Sentence("notice", "compare-lost", {"side": side.label, "rows": lost}, "medium")
    slowed = [side.label for side in (a, b) if any(word in _SLOWED for fact in side.fact("overhead") for word in fact)]
    if slowed:
        yield Sentence("notice", "compare-overhead", {"sides": ", ".join(slowed)})


def _matching(a: Side, b: Side) -> Iterator[Sentence]:
    for side in (a, b):
        if side.step() is not None and not side.has_parts:
            yield Sentence("notice", "compare-not-recorded", {"side": side.label}, "medium")
    if (share := matched_share(a, b)) is None:
        return
    rule = naming(a, b)
    if share < _OTHER_MODEL:
        yield Sentence("notice", "compare-models", {"share": share}, "high")
        return
    yield Sentence(
        "notice",
        {"operator": "compare-matched", "kernel": "compare-matched-kernel"}.get(rule, "compare-matched-framework"),
        {"share": share},
    )


def _noise(a: Side, b: Side, run_noise: float) -> Iterator[Sentence]:
    runs = [len(side.with_steps) for side in (a, b)]
    if min(runs) == 0:
        return
    counts = [sum(run.steps["counted"].sum() for run in side.runs) for side in (a, b)]
    yield Sentence("notice", "compare-sample", {"steps_a": counts[0], "steps_b": counts[1], "runs_a": runs[0], "runs_b": runs[1]})
    if max(runs) == 1 and pace_of(a, b) is not None:
        yield Sentence("notice", "compare-pace", {"most": MOST})
    elif max(runs) == 1 and run_noise:
        noise = max(step.run_noise(run_noise) for step in (a.step(), b.step()) if step is not None)
        yield Sentence("notice", "compare-one-run", {"noise": noise})
    left_out = [sum(run.steps.height for run in side.runs) - count for side, count in zip((a, b), counts, strict=True)]
    if any(left_out):
        yield Sentence("notice", "compare-warmup", {"a": left_out[0], "b": left_out[1]})


def _versions(side: Side) -> dict[str, str]:
    return {name: version for fact in side.fact("versions") for name, version in fact.items()}


def _text(values: list[Any]) -> str:
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return ", ".join(dict.fromkeys(str(value) for value in flat if value))
