"""Communication: how much of it is exposed, and which rank the others wait for."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.analyses.communication.cluster_steps import cluster_steps
from stepscope.analyses.communication.communication import communication
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.overlap import overlap
from stepscope.analyses.verdict.topics.message import MATTERS, Message, Options, column, known, severity
from stepscope.analyses.verdict.topics.stragglers import straggler_messages
from stepscope.model.trace import Trace

_COMPUTES = ("more computation", "a lower device clock")
_WAITING = 0.1  # of the communication
_MUCH = 0.1  # of the step
_TIMES = ("total_ns", "device_ns", "communication_ns", "exposed_ns", "wait_ns", "transit_ns", "communication_idle_ns")


def communication_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of all ranks together."""
    calls, slow = communication(trace), list(straggler_messages(trace))
    if calls.is_empty():
        yield from slow
        summed = trace.steps.select(pl.col("device_communication_ns").mean().round().cast(pl.Int64)).collect().item()
        if summed:
            yield Message("communication", "communication-lost", {"communication": summed}, coverage=_rank_coverage(trace))
            return
        alone = len(trace.meta.ranks) <= 1 and trace.table("sharded_operators").head(1).collect().is_empty()
        yield Message("communication", "communication-one-rank" if alone else "communication-none", {}, coverage=_rank_coverage(trace))
        return
    means = cluster_steps(trace, per_step=False, warmup=options.warmup)
    step = {name: _mean(means, name) for name in _TIMES}
    if means["device_steps"].sum() < means["steps"].sum():
        step["device_ns"] = _recorded_step_ns(trace, options)  # of the steps that the exposed time covers
    covered_steps = _step_coverage(means) if step["exposed_ns"] is not None else None
    coverage = ", ".join(text for text in (covered_steps, _rank_coverage(trace)) if text) or None
    compute = _straggler(means, slow)
    if slow and compute is None:
        yield from slow
    parts, divided = _divided(trace, options, step)
    code, parameters, level = _headline(calls, means, step, parts, compute)
    if code == "communication-overlap-unknown" and _has_timestamps(trace):
        code = "communication-overlap-lost"
    in_parts = ", ".join(text for text in (divided or covered_steps, _rank_coverage(trace)) if text) or None
    yield Message("communication", code, parameters, severity=level, coverage=in_parts if code == "communication-parts" else coverage)
    yield from slow[1:] if compute is not None else []
    for code, name, means_of, covered in (
        ("communication-exposed-time", "exposed_ns", step, coverage),
        ("communication-idle-time", "communication_idle_ns", parts, in_parts),
    ):
        time, device = means_of[name], means_of["device_ns"]
        if time is not None and device:
            much = "high" if time > _MUCH * device else None
            yield Message("communication", code, {"time": round(time), "share": time / device}, severity=much, coverage=covered)
    if len(trace.meta.ranks) > 1 or calls["known_waits"].sum():
        yield Message("communication", "communication-waits", _waits(calls), coverage=_rank_coverage(trace))


_Means = dict[str, float | None]


def _divided(trace: Trace, options: Options, step: _Means) -> tuple[_Means, str | None]:
    """The means over the steps whose communication is divided into transit, wait and idle time, and which these are if they are not all."""
    if step["transit_ns"] is None:
        return step, None
    rows = cluster_steps(trace).join(counting_steps(trace, options.warmup), on=["rank", "step"], how="semi")
    divided = rows.filter(pl.col("transit_ns").is_not_null(), pl.col("communication_ns").is_not_null())
    if divided.height in (0, rows.height):
        return step, None
    means: _Means = divided.select(pl.col(_TIMES).mean()).row(0, named=True)
    return means, f"{divided.height:,} of {rows.height:,} steps"


def _headline(
    calls: pl.DataFrame, means: pl.DataFrame, step: _Means, parts: _Means, slow: dict[str, Any] | None
) -> tuple[str, dict[str, Any], str | None]:
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
    if slow is not None:
        code = "straggler" if "wait" in slow else "straggler-wait-unknown"
        return code, slow, severity(slow["share"])
    if share <= MATTERS:
        hidden = 1 - exposed / step["communication_ns"] if step["communication_ns"] else None
        return "communication-hidden", known(time=times["communication"], share=hidden), "info"
    parameters = known(share=share, time=times["communication"], exposed=times["exposed"], wait=times["wait"])
    if parts["transit_ns"] is not None:
        divided = {name.removesuffix("_ns"): None if time is None else round(time) for name, time in parts.items()}
        share = (parts["exposed_ns"] or 0) / parts["device_ns"] if parts["device_ns"] else share
        divided |= {"time": divided["communication"], "idle": divided["communication_idle"]}
        parameters = known(share=share, **{name: divided[name] for name in ("time", "exposed", "wait", "transit", "idle")})
        return "communication-parts", parameters, severity(share)
    waiting = step["wait_ns"] is not None and step["wait_ns"] > _WAITING * step["communication_ns"]
    return ("communication-waiting" if waiting else "communication-exposed"), parameters, severity(share)


def _has_timestamps(trace: Trace) -> bool:
    """Whether the calls of communication have places on the timeline."""
    streams = trace.tracks.filter(pl.col("kind").cast(pl.String) != "other").select("rank", "track")
    calls = trace.spans.filter(pl.col("kind") == "communication").join(streams, on=["rank", "track"], how="semi")
    return bool(calls.head(1).collect().height)


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


def _straggler(means: pl.DataFrame, slow: list[Message]) -> dict[str, Any] | None:
    """The figures of the slowest rank, where it computes longer than the others."""
    first = slow[0].parameters if slow and slow[0].code == "straggler-rank" else {}
    if first.get("cause") not in _COMPUTES or means["computing_ns"].null_count():
        return None
    rows = means.to_dicts()
    rest = [row for row in rows if row["rank"] != first["rank"]]
    mine = next((row for row in rows if row["rank"] == first["rank"]), None)
    others = sum(row["computing_ns"] for row in rest) / len(rest) if rest else 0
    if mine is None or mine["computing_ns"] <= others:
        return None
    waits = column(rest, "wait_ns")
    wait = sum(waits) / len(waits) if waits else None
    share = (mine["computing_ns"] - others) / mine["total_ns"]
    times = {"rank": mine["rank"], "compute": mine["computing_ns"], "others": round(others), "share": share}
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
