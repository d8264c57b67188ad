"""Overview: how long a step is, what the device does in it, why it is idle, and what recording adds."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from stepscope.analyses.shared.operator_calls import on_devices
from stepscope.analyses.shared.steps.warmup import counting_steps
from stepscope.analyses.steps.gap_causes import gap_causes
from stepscope.analyses.steps.overview import overview
from stepscope.analyses.steps.step_times import step_times
from stepscope.analyses.verdict.topics.hangs import hang_messages
from stepscope.analyses.verdict.topics.message import MATTERS, Message, Options, column, known, severity, value_range
from stepscope.analyses.verdict.topics.stragglers import leading_straggler
from stepscope.model.trace import Trace

_USED = 0.9  # of a step: a device that computes this much loses little
_HOST_MATTERS = 0.1  # of a step without a device
_SHOWN = 0.0005  # of a step: a smaller part is left out of the list of parts
# Idle time because the host communicates is already part of the exposed communication.
_CODES = {
    "host-bound": "device-idle-host-bound",
    "data wait": "device-idle-input",
    "sync": "device-idle-sync",
    "launch latency": "device-idle-launch-latency",
}
_UNPROFILED_CODES = {
    "device-idle-host-bound": "idle-cause-host-bound",
    "device-idle-input": "idle-cause-input",
    "device-idle-sync": "idle-cause-sync",
    "device-idle-launch-latency": "idle-cause-launch-latency",
    "device-exposed-communication": "device-exposed-communication",
}
_IDLE, _COPY, _EXPOSED = "device-idle", "device-copy", "device-exposed-communication"
_PARAMETERS = {_COPY: "copy", _EXPOSED: "exposed"}  # of other codes: idle
_WAITS = {"device-idle-host-bound", "device-idle-sync", "device-idle-launch-latency", _IDLE}
_MOST, _PART = "most of the idle time", "part of the idle time"
_DEVICES = {"gpu": "GPU", "aicore": "NPU", "npu": "NPU", "aicpu": "AI CPU", "tpu": "TPU"}


class _Rank(NamedTuple):
    row: dict[str, Any]  # of `overview`
    device: str  # the word for its device
    lost: dict[str, float]  # share of the (unprofiled) step by code
    compute: float | None  # share of the (unprofiled) step
    idle: float | None
    step: int | None  # the number of the step, where the figures cover one

    @property
    def on_device(self) -> bool:
        return self.row["device_data"] in ("complete", "partial")


def overview_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of the whole run where it has several ranks, then of each rank. A rank that all others wait for comes first in both."""
    ranks = _ranks(trace, options.warmup)
    if not ranks and (hang := list(hang_messages(trace, options))):
        yield from (message._replace(topic="overview") for message in hang)
        return
    slow = leading_straggler(trace)
    if len(ranks) > 1:
        yield from [slow] if slow else []
        yield from _messages(trace, ranks, None)
    for rank in ranks:
        yield from [slow._replace(rank=rank.row["rank"])] if slow else []
        yield from _messages(trace, [rank], rank.row["rank"])
    for number in [rank for rank in trace.meta.ranks if rank not in {rank.row["rank"] for rank in ranks}]:
        yield Message("overview", _without_steps(trace), {}, number)
    if not ranks and not trace.meta.ranks:
        yield Message("overview", _without_steps(trace), {})


def _without_steps(trace: Trace) -> str:
    if trace.spans.head(1).collect().height:
        return "no-steps"
    if trace.table("pipeline").head(1).collect().height:
        return "no-steps-input"
    cpu = trace.counters.filter(pl.col("series").cast(pl.String).str.starts_with("cpu")).head(1).collect()
    return "no-steps-cpu" if cpu.height else "no-steps"


def _ranks(trace: Trace, warmup: int | None) -> list[_Rank]:
    rows = overview(trace, warmup=warmup).to_dicts()
    if not rows:
        return []
    on_device = any(row["device_data"] in ("complete", "partial") for row in rows)
    causes = gap_causes(trace, warmup=warmup) if on_device else pl.DataFrame()
    devices: dict[int, str] = {}
    for rank, kind in trace.devices.select("rank", pl.col("kind").cast(pl.String)).collect().iter_rows():
        if kind in _DEVICES:
            devices.setdefault(rank, _DEVICES[kind])
    steps = dict(counting_steps(trace, warmup).group_by("rank").agg(pl.col("step").first()).iter_rows())
    return [_rank(row, causes, devices.get(row["rank"], "device"), steps[row["rank"]]) for row in rows]


def _rank(row: dict[str, Any], causes: pl.DataFrame, device: str, step: int) -> _Rank:
    overhead = row["overhead"] in (_MOST, _PART)
    # Recording adds idle time alone: in the shorter step, the other parts have larger shares.
    stretch = row["step_ns"] / row["unprofiled_step_ns"] if overhead else 1
    lost = {_EXPOSED: (row["exposed_communication_share"] or 0) * stretch, _COPY: (row["copy_share"] or 0) * stretch}
    if causes.height:
        of_rank = causes.filter(pl.col("rank") == row["rank"])
        devices = max(of_rank["device"].n_unique(), 1)  # shares are of each device, those of a rank are their mean
        for cause, share in of_rank.select("cause", "unprofiled_share" if overhead else "share").iter_rows():
            if cause != "communication":
                code = _CODES.get(cause, _IDLE)
                lost[code] = lost.get(code, 0) + (share or 0) / devices
    compute = None if row["compute_share"] is None else row["compute_share"] * stretch
    idle = row["idle_unprofiled_share"] if overhead else row["idle_share"]
    return _Rank(row, "host" if row["device_data"] == "host" else device, lost, compute, idle, step if row["steps"] == 1 else None)


def _messages(trace: Trace, ranks: list[_Rank], number: int | None) -> Iterator[Message]:
    coverage = _coverage([rank.row for rank in ranks])
    headlines = list(_headlines(trace, ranks))
    for code, parameters, level in (*headlines, *_statements(ranks), *_recording(ranks, headlines[0][0])):
        covered = None if code.startswith(("step-time", "coverage", "recording")) else coverage
        yield Message("overview", code, parameters, number, level, covered)


_Text = tuple[str, dict[str, Any], str | None]  # code, parameters, severity
_COVERAGE = {
    "coverage-steps": "steps {steps} ({known} of {all})",
    "coverage-some-steps": "some steps",
    "coverage-ranks": "{recorded} of {ranks} ranks",
}


def _coverage(rows: list[dict[str, Any]]) -> str | None:
    """`steps 1-14 of 322, 3 of 4 ranks`; None if shares cover all steps and ranks."""
    recorded = sum(bool(row["device_steps"]) for row in rows)
    texts = [_COVERAGE[code].format(**parameters, recorded=recorded) for code, parameters, _ in _coverage_messages(rows)]
    return ", ".join(texts) or None


def _headlines(trace: Trace, ranks: list[_Rank]) -> Iterator[_Text]:
    """The headline; with the overhead of recording, what is left of the idle time and its main cause follow."""
    shares = [rank for rank in ranks if rank.compute is not None]
    if not shares:
        yield _unknown(trace, ranks)
        return
    device_ranks = [rank for rank in shares if rank.on_device]
    if not device_ranks:
        yield _host_headline(shares)
        return
    code, parameters, level = _device_headline(device_ranks)
    slowed = [rank.row for rank in ranks if rank.row["overhead"] in (_MOST, _PART)]
    if not slowed:
        yield code, parameters, level
        return
    most = all(row["overhead"] == _MOST for row in slowed)
    yield "recording-overhead-most" if most else "recording-overhead-part", _step_times(slowed), level
    spread = value_range(value for end in ("low", "high") for value in column(slowed, f"idle_unprofiled_{end}_share"))
    idle = known(
        idle=value_range(1 - row["busy_share"] for row in slowed),
        left=value_range(column(slowed, "idle_unprofiled_share")),
        spread=spread if isinstance(spread, list) else None,
    )
    yield "recording-idle", {"device": device_ranks[0].device, **idle}, None
    if code in _UNPROFILED_CODES:
        yield _UNPROFILED_CODES[code], parameters, level


def _device_headline(ranks: list[_Rank]) -> _Text:
    """The largest part of the step that is lost on the device, as a mean over the ranks."""
    codes = dict.fromkeys(code for rank in ranks for code in rank.lost)
    means = {code: sum(rank.lost.get(code, 0) for rank in ranks) / len(ranks) for code in codes}
    code = max(means, key=lambda name: means[name])
    compute = sum(rank.compute or 0 for rank in ranks) / len(ranks)
    basic = {"device": ranks[0].device, "period": _period(ranks)}
    if compute >= _USED and (means[code] < MATTERS or means[_EXPOSED] < MATTERS):
        return "device-busy", basic | known(compute=value_range(rank.compute for rank in ranks)), "info"
    if means[code] < MATTERS or code == _IDLE:
        idle = [rank.idle for rank in ranks if rank.idle is not None]
        return _IDLE, basic | known(idle=value_range(idle)), severity(sum(idle) / len(idle))
    lost = value_range(rank.lost.get(code, 0) for rank in ranks)
    return code, basic | known(**{_PARAMETERS.get(code, "idle"): lost}), severity(means[code])


def _host_headline(ranks: list[_Rank]) -> _Text:
    rows = [rank.row for rank in ranks]
    exposed, wait = (sum(column(rows, name)) / len(rows) for name in ("exposed_communication_share", "input_wait_share"))
    parameters = {"period": _period(ranks)} | known(compute=value_range(rank.compute for rank in ranks))
    if exposed >= _HOST_MATTERS and wait <= exposed:
        return (
            "host-exposed-communication",
            parameters | known(exposed=value_range(column(rows, "exposed_communication_share"))),
            severity(exposed),
        )
    if wait >= _HOST_MATTERS:
        return "host-input-wait", parameters | known(wait=value_range(column(rows, "input_wait_share"))), severity(wait)
    return "host-compute", parameters, None


def _unknown(trace: Trace, ranks: list[_Rank]) -> _Text:
    """No share is known: the device work is not recorded, or nothing is known to be work."""
    data = {rank.row["device_data"] for rank in ranks}
    if "none" not in data:
        return ("work-unknown" if data == {None} else "work-not-recorded"), {}, None
    numbers = [rank.row["rank"] for rank in ranks]
    # Of the source: stages from the operators of the host say nothing about the device.
    traced = trace.steps.filter(pl.col("fp_start_ns").is_not_null(), pl.col("bp_end_ns").is_not_null()).select("rank").unique().collect()
    stages = step_times(trace).filter(pl.col("rank").is_in(numbers)).join(traced, on="rank", how="semi")
    stages = stages.select("stage", pl.col("mean_ns").round().cast(pl.Int64))
    forward, tail = (value_range(stages.filter(pl.col("stage") == stage)["mean_ns"]) for stage in ("forward and backward", "tail"))
    kernels = on_devices(trace).filter(pl.col("kind").is_in(["kernel", "communication"]), pl.col("rank").is_in(numbers))
    means = pl.col("device_computing_ns", "device_communication_ns").mean().round().cast(pl.Int64)
    sums = trace.steps.filter(pl.col("rank").is_in(numbers)).group_by("rank").agg(means).collect()
    compute, communication = (value_range(sums[f"device_{name}_ns"]) for name in ("computing", "communication"))
    parts = known(forward=forward, tail=tail, compute=compute, communication=communication)
    return (
        "device-partly-recorded" if kernels.head(1).collect().height else "device-not-recorded",
        {"device": ranks[0].device} | parts,
        None,
    )


def _statements(ranks: list[_Rank]) -> Iterator[_Text]:
    """The time of a step, the parts of the device's time, and the steps and ranks that these shares cover."""
    rows = [rank.row for rank in ranks]
    step = value_range(column(rows, "step_ns"))
    if all(row["steps_how"] == "whole" for row in rows):
        yield "step-time-recording", {"step": step}, None
    elif len(ranks) == 1 and ranks[0].step is not None:
        yield "step-time-one-device" if _only_device(rows) else "step-time-one", {"number": ranks[0].step, "step": step}, None
    else:
        yield "step-time-device" if _only_device(rows) else "step-time", {"step": step}, None
    shares = [rank for rank in ranks if rank.row["idle_share"] is not None]
    if not shares:
        return
    parts = {name: column([rank.row for rank in shares], f"{name}_share") for name in ("compute", "communication", "copy", "idle")}
    parameters = known(**{name: value_range(values, 0 if name == "compute" else _SHOWN) for name, values in parts.items()})
    device = next((rank.device for rank in shares if rank.on_device), "host")
    yield "device-time", {"device": device, **parameters} | ({"ranks": len(shares)} if len(shares) > 1 else {}), None
    yield from _coverage_messages(rows)
    if lost := sum(column(rows, "lost_launches")):
        yield "coverage-launches", {"lost": lost, "launches": sum(column(rows, "launches"))}, "medium"


def _coverage_messages(rows: list[dict[str, Any]]) -> Iterator[_Text]:
    """The steps and ranks that shares of the device cover, if these are not all."""
    recorded = [row for row in rows if row["device_steps"]]
    partial = [row for row in recorded if row["device_steps"] < row["steps"]]
    if partial and len({row["device_step_ranges"] for row in recorded}) == 1:
        numbers = {"steps": partial[0]["device_step_ranges"], "known": partial[0]["device_steps"], "all": partial[0]["steps"]}
        yield "coverage-steps", numbers, None
    elif partial:
        yield "coverage-some-steps", {}, None
    if 0 < len(recorded) < len(rows):
        yield "coverage-ranks", {"missing": len(rows) - len(recorded), "ranks": len(rows)}, None


def _recording(ranks: list[_Rank], headline: str) -> Iterator[_Text]:
    """The overhead of recording, if the headline does not state it."""
    rows = [rank.row for rank in ranks]
    if any(row["overhead"] in (_MOST, _PART) for row in rows):
        return
    for overhead, code in (("steps", "recording-overhead-steps"), ("small", "recording-overhead-small")):
        if measured := [row for row in rows if row["overhead"] == overhead]:
            yield code, _step_times(measured), None
    if headline in _WAITS and all(row["overhead"] is None for row in rows):
        yield "recording-overhead-unknown", {}, None
    likely = [rank for rank in ranks if rank.row["overhead"] == "likely"]
    if not likely:
        return
    options = {"options": likely[0].row["slowed_by"]}
    if any(rank.on_device and rank.row["busy_share"] is not None and 1 - rank.row["busy_share"] >= MATTERS for rank in likely):
        yield "recording-slows-host", options, "low"
    elif not any(rank.on_device for rank in likely):
        yield "recording-slows-steps", options, "low"
    yield "recording-measure", {}, None


def _step_times(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "unprofiled": value_range(column(rows, "unprofiled_step_ns")),
        "recorded": value_range(column(rows, "step_ns")),
        "change": value_range(row["step_ns"] / row["unprofiled_step_ns"] - 1 for row in rows),
    }


def _only_device(rows: list[dict[str, Any]]) -> bool:
    """Whether only the device's part of the steps is recorded."""
    return any("device" in row["steps_how"].split(", ") for row in rows)


def _period(ranks: list[_Rank]) -> str:
    if all(rank.row["steps_how"] == "whole" for rank in ranks):
        return "the recording"
    single = all(rank.step is not None for rank in ranks)
    if single and _only_device([rank.row for rank in ranks]):
        return "the device part of the step"
    return "the step" if single else "each step"
