"""Communication: how much of it is exposed, and which rank the others wait for."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.communication.cluster_steps import cluster_steps
from stepscope.analyses.communication.communication import communication
from stepscope.analyses.shared.warmup import counting_steps
from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.verdict._message import MATTERS, Message, Options, column, known, severity
from stepscope.model.trace import Trace

_SLOWER, _OF_STEP = 1.1, 0.03  # a straggler computes longer than the others: by this factor, and by this share of its step
_WAITING = 0.1  # of the communication
_MUCH = 0.1  # of the step
_TIMES = ("total_ns", "device_ns", "communication_ns", "exposed_ns", "wait_ns", "transit_ns", "communication_idle_ns")


def communication_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together."""
    calls = communication(trace)
    if calls.is_empty():
        alone = len(trace.meta.ranks) <= 1 and "strategy_stages" not in trace.meta.extra
        yield Message("communication", "communication-one-rank" if alone else "communication-none", {}, coverage=_rank_coverage(trace))
        return
    means = cluster_steps(trace, per_step=False, warmup=options.warmup)
    step = {name: _mean(means, name) for name in _TIMES}
    if means["device_steps"].sum() < means["steps"].sum():
        step["device_ns"] = _recorded_step_ns(trace, options)  # of the steps that the exposed time covers
    covered_steps = _step_coverage(means) if step["exposed_ns"] is not None else None
    coverage = ", ".join(text for text in (covered_steps, _rank_coverage(trace)) if text) or None
    code, parameters, level = _headline(calls, means, step)
    yield Message("communication", code, parameters, severity=level, coverage=coverage)
    device = step["device_ns"]
    for code, name in (("communication-exposed-time", "exposed_ns"), ("communication-idle-time", "communication_idle_ns")):
        time = step[name]
        if time is not None and device:
            much = "high" if time > _MUCH * device else None
            yield Message("communication", code, {"time": round(time), "share": time / device}, severity=much, coverage=coverage)
    if len(trace.meta.ranks) > 1 or calls["known_waits"].sum():
        yield Message("communication", "communication-waits", _waits(calls), coverage=_rank_coverage(trace))


def _headline(calls: pl.DataFrame, means: pl.DataFrame, step: dict[str, float | None]) -> tuple[str, dict[str, Any], str | None]:
    total, wait = int(calls["total_ns"].sum()), int(calls["wait_ns"].sum())
    times = {name.removesuffix("_ns"): None if time is None else round(time) for name, time in step.items()}
    if step["total_ns"] is None:
        return "communication-no-steps", {"time": total}, None
    if step["communication_ns"] is None and calls["wait_ns"].count():
        return "communication-overlap-unknown", {"time": total, "wait": wait}, None
    if step["exposed_ns"] is None or step["communication_ns"] is None:
        return "communication-exposed-unknown", known(time=times["communication"]), None
    exposed = step["exposed_ns"]
    share = exposed / step["device_ns"] if step["device_ns"] else 0
    if slow := _straggler(means):
        code = "straggler" if "wait" in slow else "straggler-wait-unknown"
        return code, slow, severity(slow["share"])
    if share <= MATTERS:
        hidden = 1 - exposed / step["communication_ns"] if step["communication_ns"] else None
        return "communication-hidden", known(time=times["communication"], share=hidden), "info"
    parameters = known(share=share, time=times["communication"], exposed=times["exposed"], wait=times["wait"])
    if step["transit_ns"] is not None:
        return "communication-parts", parameters | known(transit=times["transit"], idle=times["communication_idle"]), severity(share)
    waiting = step["wait_ns"] is not None and step["wait_ns"] > _WAITING * step["communication_ns"]
    return ("communication-waiting" if waiting else "communication-exposed"), parameters, severity(share)


def _mean(means: pl.DataFrame, name: str) -> float | None:
    """The mean of a column over all steps of all ranks."""
    rows = [row for row in means.select("steps", name).iter_rows() if row[1] is not None]
    steps = sum(count for count, _ in rows)
    return sum(count * value for count, value in rows) / steps if steps else None


def _recorded_step_ns(trace: Trace, options: Options) -> float | None:
    """The mean time on the device of the steps whose device work is completely recorded."""
    steps = overlap(trace).filter("complete").join(counting_steps(trace, options.warmup), on=["rank", "step"], how="semi")
    mean: float | None = steps.select(pl.col("device_ns").mean()).item()
    return mean


def _straggler(means: pl.DataFrame) -> dict[str, Any] | None:
    """The rank that computes longest, if that matters for the step and the rank does not wait for others itself."""
    if means.height < 2 or means["computing_ns"].null_count():
        return None
    rows = means.sort("computing_ns", descending=True, maintain_order=True).to_dicts()
    slow, rest = rows[0], rows[1:]
    waits = column(rest, "wait_ns")
    others = sum(row["computing_ns"] for row in rest) / len(rest)
    wait = sum(waits) / len(waits) if waits else None
    more = slow["computing_ns"] - others
    if slow["computing_ns"] < _SLOWER * others or more < _OF_STEP * slow["total_ns"]:
        return None
    if slow["wait_ns"] is not None and wait is not None and slow["wait_ns"] > wait:
        return None
    times = {"rank": slow["rank"], "compute": slow["computing_ns"], "others": round(others), "share": more / slow["total_ns"]}
    return times | known(wait=None if wait is None else round(wait))


def _waits(calls: pl.DataFrame) -> dict[str, Any]:
    notes = calls["note"].drop_nulls().to_list()
    note = next((note for note in notes if note.startswith("no wait")), notes[0] if notes else None)
    return {"known": int(calls["known_waits"].sum()), "calls": int(calls["calls"].sum())} | known(note=note)


def _step_coverage(means: pl.DataFrame) -> str | None:
    recorded, steps = means["device_steps"].sum(), means["steps"].sum()
    return f"{recorded:,} of {steps:,} steps" if recorded < steps else None


def _rank_coverage(trace: Trace) -> str | None:
    world, recorded = trace.meta.world_size or 0, len(trace.meta.ranks)
    return f"{recorded:,} of {world:,} ranks" if world > recorded else None
