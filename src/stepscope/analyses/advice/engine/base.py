"""The step that gains refer to: the unprofiled one, where the recording has timed some."""

from typing import NamedTuple

import polars as pl

from stepscope.analyses.advice.engine.replays import Replays
from stepscope.analyses.steps.recording_overhead import recording_overhead
from stepscope.model.trace import Trace

_LEAST = 0.2  # of the recorded time of the host: recording makes it at most five times as long
_TRIES = 7
_CLOSE = 1.02
_SAME = 1.1  # times the unprofiled step: a replayed step up to this length is that step; the device limits a longer one


class Base(NamedTuple):
    """A step, and what turns a replayed time into one of it."""

    step: str  # unprofiled, recorded
    step_ns: int
    part: float  # replayed times are multiplied by it
    of_recorded: float  # its length relative to the recorded one
    is_likely_shorter: bool  # without recording, by an unknown amount


def base_of(trace: Trace, replays: Replays) -> Base:
    """The unprofiled step of the slowest rank, if known and shorter; else the replayed one. Sets the pace of the replays.

    Recording slows the host, not the device. So times of the host are shortened by one factor until the replayed step is as long as the
    unprofiled one. Where the program runs ahead of the device, the clock of the program has timed a shorter step than the device can
    follow: then the host gets faster by as much as this clock says, and the step is the replayed one. In a run without a device, all parts
    of a step shrink alike.
    """
    rows = recording_overhead(trace)
    recorded = replays.step_ns
    likely = bool((rows["overhead"] == "likely").any())
    bare, step = pl.col("unprofiled_step_ns"), pl.col("step_ns")
    if not recorded or rows.filter(bare < step).is_empty():
        return Base("recorded", recorded, 1.0, 1.0, likely)
    target, whole = rows.select(pl.coalesce(bare, step).max(), step=step.max()).row(0)
    if target >= min(whole, recorded):
        return Base("recorded", recorded, 1.0, 1.0, likely)
    if not replays.has_device:
        return Base("unprofiled", target, target / recorded, target / recorded, likely)
    replays.pace = _pace(replays, target, target / whole)
    left = replays.step_ns
    if left > _SAME * target:
        return Base("recorded", left, 1.0, left / recorded, likely)
    return Base("unprofiled", target, target / left, target / recorded, likely)


def _pace(replays: Replays, target: int, of_program: float) -> float:
    """The largest factor of the host's time with which the step is as short as the target, or as the device allows."""
    shortest = replays.step_at(_LEAST)
    low, high = _LEAST, 1.0
    limit = target if shortest <= target else _CLOSE * shortest
    for _ in range(_TRIES):
        middle = (low + high) / 2
        low, high = (middle, high) if replays.step_at(middle) <= limit else (low, middle)
    return low if shortest <= target else min(low, of_program)
