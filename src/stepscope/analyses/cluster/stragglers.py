"""Which ranks, links and stages are slow, in which steps, why, and how much time does the job lose?"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.parallelism.rank_places import rank_places
from stepscope.analyses.shared.ranks.device_clocks import device_clocks
from stepscope.analyses.shared.ranks.longest_spans import longest_spans
from stepscope.analyses.shared.ranks.rank_steps import PARTS
from stepscope.analyses.shared.ranks.slow_links import slow_links, step_list
from stepscope.analyses.shared.ranks.slow_ranks import Floats, SlowRanks, known_median, slow_ranks, usual
from stepscope.analyses.shared.replays.stage_replay import StageJob, stage_job
from stepscope.analyses.shared.replays.step_replay import StepJob, step_job
from stepscope.analyses.shared.steps.coverage import step_ranges
from stepscope.model.intervals import Bools
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

CAUSES = {"compute": "compute", "input": "input", "collection": "garbage_collection", "host": "host"}
CAUSE_WORDS = {  # in sentences
    "compute": "more computation",
    "frequency": "a lower device clock",
    "input": "longer waits for input",
    "garbage_collection": "garbage collection",
    "host": "a slower program on the host",
    "network": "a slow network",
    None: "unknown cause",
}
COLUMNS = {
    "kind": pl.String,  # rank, host, link, stage
    "rank": pl.Int32,  # of a link the sender
    "host": pl.String,
    "peer_rank": pl.Int32,  # of a link the receiver
    "stage": pl.Int32,
    "steps": pl.String,  # the slow steps, as ranges
    "slow_steps": pl.Int64,
    "all_steps": pl.Int64,  # steps in which it could be compared
    "persistent": pl.Boolean,  # slow in all steps but for jitter; else in some of them
    "cause": pl.String,  # compute, input, host, garbage_collection, network, frequency; null if unknown
    "cause_detail": pl.String,
    "excess_ns": pl.Int64,  # above the usual time of its peers, in the median of the slow steps
    "loss_ns": pl.Int64,  # per step, by replay: time lost if all others are as fast as usual; null for links
    "loss_share": pl.Float64,  # of the step
    "gain_ns": pl.Int64,  # per step, by replay: time gained if only this becomes as fast as usual
    "confidence": pl.Float64,  # share of the steps in which it is slow, times the share of the excess that the cause explains
    "evidence": pl.String,
    "step": pl.Int32,  # the slowest step, to open
    "span": pl.Int64,  # of the rank in this step: its longest kernel, wait for input or garbage collection, by the cause
}
_STAGE_ABOVE, _EQUAL_WORK, _CLOCK_BELOW = 0.1, 0.05, 0.05
_ENOUGH_STEPS = 5
_LEAST_EXPLAINED = 0.4  # of the excess


@memoized
def stragglers(trace: Trace) -> pl.DataFrame:
    """One row per slow rank, host, link and pipeline stage; the largest loss first.

    A rank is compared with the other ranks of its stage, step by step, by the time that it needs for itself: the step without exposed
    communication, whose clock is its own. The usual time is the median, so several slow ranks do not hide each other. A rank without
    complete device work in a step is unknown there. The cause is the part with the largest excess over the peers: computation
    (frequency, if its device clock is lower), waits for input, Python's garbage collector, or the rest of the host's time. Where all
    ranks of a host are slow, it has one row. A link is slow below four fifths of the median bandwidth of its transport.
    """
    rows = [*_ranks(trace), *_stages(trace), *_links(trace)]
    table = pl.DataFrame(rows, COLUMNS, orient="row", strict=False)
    return table.sort("loss_ns", "excess_ns", "kind", "rank", descending=[True, True, False, False], nulls_last=True)


Row = dict[str, Any]


class _Found(NamedTuple):
    """A slow row of the matrix of a job."""

    place: int
    slow: Bools  # by step
    known: Bools  # steps in which it could be compared
    excess: Floats
    persistent: bool


def _ranks(trace: Trace) -> Iterator[Row]:
    job = step_job(trace)
    if job is None:
        return
    stages = stage_job(trace)
    slow_rows = [entry for rows in job.groups() if len(rows) > 1 for entry in _slow_rows(job, rows)]
    hosts = dict(rank_places(trace).select("rank", "host").iter_rows())
    clocks = device_clocks(trace)
    spans = _longest_spans(trace, job, slow_rows)
    whole = _whole_hosts(job, slow_rows, hosts)
    for entry in slow_rows:
        rank = job.ranks[entry.place]
        if hosts.get(rank) not in whole:
            yield {
                "kind": "rank",
                "rank": rank,
                "host": hosts.get(rank),
                "stage": job.stage[entry.place],
                **_figures(job, entry, clocks),
                **_loss(job, stages, [entry]),
                "span": spans.get(rank),
            }
    for host, members in whole.items():
        worst = max(members, key=lambda entry: float(np.median(entry.excess[entry.slow])) if entry.slow.any() else 0.0)
        ranks = ", ".join(str(job.ranks[entry.place]) for entry in members)
        figures = _figures(job, worst, clocks)
        figures["evidence"] = f"all {len(members)} ranks of the host are slow: {ranks}; the slowest: {figures['evidence']}"
        yield {"kind": "host", "host": host, **figures, **_loss(job, stages, members), "rank": job.ranks[worst.place]}


def _slow_rows(job: StepJob, rows: list[int]) -> Iterator[_Found]:
    result: SlowRanks = slow_ranks(job.actual[rows], job.step_ns())
    for place in np.flatnonzero(result.persistent | result.transient).tolist():
        known = np.isfinite(result.excess[place])
        yield _Found(rows[place], result.slow[place] & known, known, result.excess[place], bool(result.persistent[place]))


def _whole_hosts(job: StepJob, slow_rows: list[_Found], hosts: dict[int, str | None]) -> dict[str, list[_Found]]:
    """Hosts with several ranks, all of them slow, in a job of several hosts."""
    members: dict[str, list[_Found]] = {}
    for entry in slow_rows:
        if host := hosts.get(job.ranks[entry.place]):
            members.setdefault(host, []).append(entry)
    sizes: dict[str, int] = {}
    for rank in job.ranks:
        if host := hosts.get(rank):
            sizes[host] = sizes.get(host, 0) + 1
    return {host: entries for host, entries in members.items() if len(sizes) > 1 and len(entries) == sizes[host] > 1}


def _figures(job: StepJob, entry: _Found, clocks: dict[int, float]) -> Row:
    place, slow = entry.place, entry.slow if entry.slow.any() else entry.known
    excess = float(np.median(entry.excess[slow]))
    parts = {name: part for name in PARTS if (part := _part_excess(job, name, place, slow)) is not None}
    cause, explained = _cause(parts, excess)
    detail = ", ".join(f"{name} {_ms(value):+.1f} ms" for name, value in sorted(parts.items(), key=lambda part: -part[1]))
    if cause == "compute":
        more, clock = _more_work(job, place, slow), _lower_clock(job, place, clocks)
        if more is None and clock is not None:
            cause = "frequency"
            detail += f"; device clock {clock:.0%} below the other ranks"
        elif more is not None:
            detail += f"; {more:.0%} more operations than the other ranks"
        elif np.isfinite(job.work[place][slow]).any():
            detail += "; as many operations as the other ranks"
    mine, peers = float(np.median(job.actual[place][slow])), float(np.median(job.usual[place][slow]))
    steps, count = [job.steps[column] for column in np.flatnonzero(slow)], int(entry.known.sum())
    often = len(steps) / count if entry.persistent else 1.0
    return {
        "steps": step_ranges(steps),
        "slow_steps": len(steps),
        "all_steps": count,
        "persistent": entry.persistent,
        "cause": cause,
        "cause_detail": detail or "its parts are not recorded",
        "excess_ns": round(excess),
        "confidence": round(often * (explained if cause else 1.0) * min(1.0, count / _ENOUGH_STEPS), 3),
        "evidence": f"{_ms(mine):.1f} ms without communication, its peers {_ms(peers):.1f} ms",
        "step": job.steps[int(np.argmax(np.where(slow, entry.excess, -np.inf)))],
    }


def _part_excess(job: StepJob, name: str, place: int, slow: Bools) -> float | None:
    """Median of a part of the slow steps above that of the peers; None where it is unknown."""
    above = (job.parts[name] - job.usual_parts[name])[place][slow]
    above = above[np.isfinite(above)]
    return float(np.median(above)) if len(above) else None


def _cause(parts: dict[str, float], excess: float) -> tuple[str | None, float]:
    """The part that explains most of the excess, and the share that it explains."""
    if not parts or excess <= 0:
        return None, 0.0
    name = max(parts, key=lambda part: parts[part])
    explained = min(parts[name] / excess, 1.0)
    return (CAUSES[name], explained) if explained >= _LEAST_EXPLAINED else (None, 0.0)


def _more_work(job: StepJob, place: int, slow: Bools) -> float | None:
    peers = [row for row in range(len(job.ranks)) if job.stage[row] == job.stage[place]]
    mine, others = job.work[place][slow], job.work[peers][:, slow]
    mine, others = mine[np.isfinite(mine)], others[np.isfinite(others)]
    more = float(np.median(mine) / max(float(np.median(others)), 1.0) - 1) if len(mine) else 0.0
    return more if more > _EQUAL_WORK else None


def _lower_clock(job: StepJob, place: int, clocks: dict[int, float]) -> float | None:
    """How far the clock of the device is below that of the others; None if it is not, or is not recorded."""
    rank = job.ranks[place]
    others = [value for other, value in clocks.items() if other != rank]
    if rank not in clocks or not others:
        return None
    below = 1 - clocks[rank] / float(np.median(others))
    return below if below >= _CLOCK_BELOW else None


def _loss(job: StepJob, stages: StageJob | None, slow_rows: list[_Found]) -> Row:
    chosen = np.zeros(job.actual.shape, np.bool_)
    for entry in slow_rows:
        chosen[entry.place] = entry.slow
    if stages is not None:
        loss, gain = _pipeline_loss(job, stages, slow_rows)
        return _loss_row(loss, gain, stages.mean(stages.actual))
    return _loss_row(job.alone(chosen), job.without(chosen), float(np.mean(job.step_ns())))


def _pipeline_loss(job: StepJob, stages: StageJob, slow_rows: list[_Found]) -> tuple[float, float]:
    """Compared with a usual rank of the same stage: a stage that is slow as a whole has a row of its own."""
    loss = gain = 0.0
    medians = known_median(job.actual, axis=1)
    for entry in slow_rows:
        peers = [row for row in range(len(job.ranks)) if job.stage[row] == job.stage[entry.place]]
        typical = sorted(peers, key=lambda row: float(medians[row]))[(len(peers) - 1) // 2]
        mine, other = stages.on_rank(job.ranks[entry.place]), stages.on_rank(job.ranks[typical])
        loss += max(stages.with_actual(mine) - stages.with_actual(other), 0.0)
        gain += max(stages.mean(stages.actual) - stages.with_ideal(mine), 0.0)
    return loss, gain


def _loss_row(loss: float, gain: float, step: float) -> Row:
    return {"loss_ns": round(loss), "loss_share": loss / step if step else None, "gain_ns": round(gain)}


def _stages(trace: Trace) -> Iterator[Row]:
    """Stages whose ranks need more time than those of the other stages."""
    job = step_job(trace)
    if job is None or len(set(job.stage) - {None}) < 2 or None in job.stage:
        return
    groups = job.groups()
    of_stage = np.array([known_median(job.actual[rows], axis=0) for rows in groups])
    expected, stages = usual(of_stage), stage_job(trace)
    share = of_stage / expected - 1
    for place, rows in enumerate(groups):
        stage = job.stage[rows[0]]
        assert stage is not None
        known = np.isfinite(share[place])
        slow = known & (np.nan_to_num(share[place]) > _STAGE_ABOVE)
        if not known.any() or float(np.median(share[place][known])) <= _STAGE_ABOVE:
            continue
        chosen = np.isin(np.arange(len(job.ranks)), rows)[:, None]
        excess = float(np.median((of_stage[place] - expected)[slow]))
        usual_text = f"the usual stage {_ms(float(np.median(expected[known]))):.1f} ms"
        if stages is not None:
            ideal, actual = stages.mean(stages.ideal), stages.mean(stages.actual)
            on_stage = stages.on_stage(stage)
            loss = _loss_row(stages.with_actual(on_stage) - ideal, actual - stages.with_ideal(on_stage), actual)
        else:
            level = np.broadcast_to(expected, job.actual.shape)
            loss = _loss_row(max(excess, 0.0), job.without(chosen, level), float(np.mean(job.step_ns())))
        yield {
            "kind": "stage",
            "stage": stage,
            "steps": step_ranges([job.steps[column] for column in np.flatnonzero(slow)]),
            "slow_steps": int(slow.sum()),
            "all_steps": int(known.sum()),
            "persistent": True,
            "cause": "compute",
            "cause_detail": f"its ranks need {float(np.median(share[place][known])):.0%} more time than those of the usual stage",
            "excess_ns": round(excess),
            **loss,
            "confidence": round(float(slow.sum() / known.sum()) * min(1.0, known.sum() / _ENOUGH_STEPS), 3),
            "evidence": f"{_ms(float(np.median(of_stage[place][known]))):.1f} ms a step, {usual_text}",
            "step": job.steps[int(np.nanargmax(np.where(slow, of_stage[place] - expected, -np.inf)))],
        }


def _links(trace: Trace) -> Iterator[Row]:
    hosts = dict(rank_places(trace).select("rank", "host").iter_rows())
    for link in slow_links(trace).iter_rows(named=True):
        slow = step_list(link["slow_steps"]) if isinstance(link["slow_steps"], pl.Series) else sorted(set(link["slow_steps"]))
        often = len(slow) / link["all_steps"] if link["all_steps"] else 0.0
        yield {
            "kind": "link",
            "rank": link["src"],
            "host": hosts.get(link["src"]),
            "peer_rank": link["dst"],
            "steps": step_ranges(slow) or None,
            "slow_steps": len(slow),
            "all_steps": link["all_steps"],
            "persistent": often >= 0.7 if slow else None,
            "cause": "network",
            "cause_detail": f"{link['transport']}: {link['below']:.0%} below the median of {link['count']} links",
            "excess_ns": round(link["excess_ns"]),
            "confidence": round(min(1.0, link["below"] / (2 * max(0.2, link["spread"]))) if link["below"] else 0.0, 3),
            "evidence": f"{link['speed'] / 1e9:.2f} GB/s, the median link {link['median'] / 1e9:.2f} GB/s",
            "step": slow[0] if slow else None,
        }


def _longest_spans(trace: Trace, job: StepJob, slow_rows: list[_Found]) -> dict[int, int]:
    """The longest span of a slow rank in its slowest step."""
    if not slow_rows:
        return {}
    worst = [(job.ranks[entry.place], job.steps[int(np.argmax(np.where(entry.slow, entry.excess, -np.inf)))]) for entry in slow_rows]
    at = pl.DataFrame(worst, {"rank": pl.Int32, "step": pl.Int32}, orient="row").with_columns(
        pl.Series("cause", [_figures(job, entry, {})["cause"] for entry in slow_rows], pl.String)
    )
    rows = longest_spans(trace, at.select("rank", "step")).join(at, on=["rank", "step", "cause"], how="semi")
    return dict(rows.sort("dur_ns", "span").group_by("rank").agg(pl.col("span").last()).iter_rows())


def _ms(time: float) -> float:
    return time / 1e6
