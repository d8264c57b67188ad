"""Of which steps the device's work is completely recorded: decided here, for every analysis that calls a device busy or idle.

A step without a kernel is one of two things: the device was idle, or its work was not recorded. What tells them apart is evidence, per rank
and, where recording paused, per window of it:

- *Range.* Kernels, copies, and transfers whose launch call is recorded, show that the device was recorded from the first of them to the
  last. A step inside that range is recorded, also one without a kernel (an evaluation on the host, a wait for input): it was idle.
- *Launches.* Where launch calls are recorded, they say what the device had to do. A step outside the range was idle if nothing was
  launched in it; a launch call whose work is missing says that the device was not recorded (any more).
- *Step trace.* Where the source itself says when forward starts and backward ends, or has transfers of its own in the step, a step
  without kernels was not recorded: the device did run it.
- *Neither.* A step before the first or after the last kernel of a rank whose host is not recorded: unknown. Ascend's operator data is
  often shorter than its step trace.
- *Edges.* In the step where the range ends (or begins), recording may have stopped half way. It is incomplete where launches without work,
  or the source's backward end, lie well beyond the range; and, next to a step that is not recorded, where it has fewer kernels than any
  other step.

A rank without such work is one of three: its kernels are missing (streams, an Ascend chip, launch calls or the source's forward and
backward say that there is a device), it ran on the host (operators stand in for kernels, over the range of operators), or nothing is known.
"""

from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from stepscope import intervals
from stepscope.intervals import Bools, Ints
from stepscope.schema import TrackKind
from stepscope.trace import Trace
from stepscope.trace_windows import not_recorded, with_windows

DATA = ("complete", "partial", "none", "host")  # of a device; host: there is none, host operators stand in
_EDGE = 0.05  # of a step: less than this missing at its begin or end is no matter
_LINKED = 0.9  # of the calls of a name: then one without work has lost it
_LAUNCH = "(?i)launch"
_MANY = 16  # ranges of time: more are looked up in one


class Coverage(NamedTuple):
    steps: pl.DataFrame  # rank, step, start_ns, end_ns, complete, transfers: whether transfers are recorded apart from kernels
    data: dict[int, str | None]  # per rank one of DATA; None where nothing is known to be work


def coverage(trace: Trace) -> Coverage:
    """Every step of every rank and whether its device work is completely recorded; of a part of a trace, as the whole says."""
    whole = trace.whole
    with _lock:  # whoever asks meanwhile waits, instead of finding out the same
        if whole not in _known:
            _known[whole] = _decide(whole)
        found = _known[whole]
    if whole is trace:
        return found
    steps = found.steps.join(trace.steps.select("rank", "step").unique().collect(), on=["rank", "step"], how="semi", maintain_order="left")
    return Coverage(steps, {int(rank): _data(rows["complete"], found.data[int(rank)]) for (rank,), rows in steps.group_by("rank")})


_known: "WeakKeyDictionary[Trace, Coverage]" = WeakKeyDictionary()
_lock = Lock()


def complete_steps(trace: Trace) -> pl.DataFrame:
    """Rank and step of every step whose device work (host operators, without a device) is completely recorded."""
    return coverage(trace).steps.filter("complete").select("rank", "step")


def unrecorded_steps(trace: Trace) -> pl.DataFrame:
    """Rank and step of every step that a device ran and whose work is not completely recorded."""
    found = coverage(trace)
    ranks = [rank for rank, what in found.data.items() if what in ("partial", "none")]
    return found.steps.filter(pl.col("rank").is_in(ranks) & ~pl.col("complete")).select("rank", "step")


def unknown_times(trace: Trace, rank: int) -> intervals.Set:
    """When nobody knows what the device of a rank did: between windows, and in steps whose device work is not completely recorded."""
    found = coverage(trace)
    if found.data.get(rank) == "none":
        return intervals.merge(np.array([-(2**62)]), np.array([2**62]))
    rows = found.steps.filter((pl.col("rank") == rank) & ~pl.col("complete"))
    steps = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return intervals.join(not_recorded(trace.meta, rank), steps)


def step_ranges(steps: list[int]) -> str:
    """`1-14, 20`: numbers of steps as ranges; of many ranges the first ones."""
    ranges: list[list[int]] = []
    for step in sorted(steps):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    spelled = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(spelled[:_SPELLED]) + (", …" if len(spelled) > _SPELLED else "")


_SPELLED = 4


def _data(complete: pl.Series, whole: str | None) -> str | None:
    if whole not in ("complete", "partial"):
        return whole
    return "complete" if complete.all() else "partial" if complete.any() else "none"


def _decide(trace: Trace) -> Coverage:
    columns = ["rank", "step", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns"]
    steps = trace.steps.select(columns).sort("rank", "start_ns").collect()
    work = _work(trace)
    device = set(work.filter(pl.col("count") > 0)["rank"])
    bare = sorted(set(steps["rank"]) - device)
    missing = _signs_of_device(trace, bare)
    operators = _operators(trace, [rank for rank in bare if rank not in missing])
    on_host = set(operators["rank"])
    passes = steps.filter(pl.col("fp_start_ns").is_not_null(), pl.col("bp_end_ns").is_not_null())["rank"]
    missing |= set(passes) - device - on_host
    counted = pl.concat([work, operators])
    steps = steps.join(counted.drop_nulls("step"), on=["rank", "step"], how="left", maintain_order="left").with_columns(
        pl.col("count", "transfers").fill_null(0)
    )
    steps = with_windows(steps, trace.meta, "start_ns")
    bounds = _bounds(trace, counted, steps)
    parts: list[pl.DataFrame] = []
    known = [_Part(rank, rows, *bounds[rank, window]) for rank, window, rows in _parts(steps) if (rank, window) in bounds]
    lost = _lost_launches(trace, [part for part in known if part.rank in device])
    linked = set(work.filter(pl.col("linked") > 0)["rank"])
    for rank, window, rows in _parts(steps):
        bound = bounds.get((rank, window))
        complete = np.zeros(rows.height, np.bool_)
        if bound is not None:
            part = _Part(rank, rows, *bound)
            complete = part.on_device(lost.get(rank, _NONE), rank in linked) if rank in device else part.inside
        parts.append(rows.with_columns(pl.Series("complete", complete)))
    schema = {"rank": pl.Int32, "step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "complete": pl.Boolean, "transfers": pl.Boolean}
    found = [part.with_columns(pl.col("transfers") > 0).select(schema.keys()) for part in parts]
    every = pl.concat([pl.DataFrame(schema=schema), *found])
    data = {
        int(rank): "none"
        if rank in missing
        else _data(rows["complete"], "complete")
        if rank in device
        else "host"
        if rank in on_host
        else None
        for (rank,), rows in every.group_by("rank", maintain_order=True)
    }
    return Coverage(every, data)


def _parts(steps: pl.DataFrame) -> list[tuple[int, int, pl.DataFrame]]:
    return [(int(rank), int(window), rows) for (rank, window), rows in steps.group_by("rank", "window", maintain_order=True)]


_COUNTED = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "count": pl.Int64,  # kernels, copies, and transfers whose launch is recorded
    "linked": pl.Int64,  # of these, with a launch call
    "transfers": pl.Int64,  # from a source of their own: nobody says what launched them
    "first_ns": pl.Int64,
    "last_ns": pl.Int64,
}


def _work(trace: Trace) -> pl.DataFrame:
    """Per rank and step: how much device work there is, and from when to when."""
    lanes = trace.tracks.select("rank", "track", lane="kind")
    transfer, linked = pl.col("kind") == "communication", pl.col("flow_in").is_not_null()
    placed = ~transfer & pl.col("lane").ne_missing(pl.lit("other", TrackKind))  # else it has no place in time
    shows, end = ~transfer | linked, pl.col("start_ns") + pl.col("dur_ns")
    found: pl.DataFrame = (
        trace.spans.filter(pl.col("kind").is_in(["kernel", "copy", "set", "communication"]))
        .join(lanes, on=["rank", "track"], how="left")
        .filter(placed | (pl.col("lane") == "stream"))
        .group_by("rank", "step")
        .agg(
            count=shows.sum(),
            linked=linked.sum(),
            transfers=(transfer & ~linked).sum(),
            first_ns=pl.col("start_ns").filter(shows).min(),
            last_ns=end.filter(shows).max(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in _COUNTED.items())
        .collect(engine="streaming")
    )
    return found


def _operators(trace: Trace, ranks: list[int]) -> pl.DataFrame:
    """The same of host operators, for ranks that have no device."""
    if not ranks:
        return pl.DataFrame(schema=_COUNTED)
    nowhere = trace.tracks.filter(pl.col("kind") == "other").select("rank", "track")
    found: pl.DataFrame = (
        trace.spans.filter((pl.col("kind") == "op") & pl.col("rank").is_in(ranks))
        .join(nowhere, on=["rank", "track"], how="anti")
        .group_by("rank", "step")
        .agg(
            count=pl.len(),
            linked=pl.lit(0),
            transfers=pl.lit(0),
            first_ns=pl.col("start_ns").min(),
            last_ns=(pl.col("start_ns") + pl.col("dur_ns")).max(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in _COUNTED.items())
        .collect(engine="streaming")
    )
    return found


def _signs_of_device(trace: Trace, ranks: list[int]) -> set[int]:
    """The ranks, of those without recorded device work, that had a device all the same."""
    if not ranks:
        return set()
    lanes = trace.tracks.filter(pl.col("rank").is_in(ranks), (pl.col("kind") == "stream") | pl.col("device").is_not_null())
    work = trace.spans.filter(pl.col("rank").is_in(ranks), pl.col("kind").is_in(["kernel", "copy", "set", "communication"]))
    work = work.select("rank", "track").unique().join(lanes.select("rank", "track"), on=["rank", "track"], how="semi")
    # A trace of PyTorch lists every GPU of the machine, those of Ascend's tools only what was recorded.
    kind = pl.col("kind").cast(pl.String)
    recorded = ~kind.is_in(["cpu", "hostcpu"] if trace.meta.format == "mindinsight" else ["cpu", "hostcpu", "gpu"])
    devices = trace.devices.filter(pl.col("rank").is_in(ranks), recorded)
    calls = trace.spans.filter(pl.col("rank").is_in(ranks), pl.col("kind") == "api").select("rank", "name").unique()
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCH))
    found = [frame.select(pl.col("rank").unique()).collect()["rank"] for frame in (work, devices, launches)]
    return {int(rank) for column in found for rank in column}


def _bounds(trace: Trace, counted: pl.DataFrame, steps: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int]]:
    """Per rank and window: from when to when there is work."""
    known = counted.drop_nulls(["first_ns"])
    if steps["window"].n_unique() > 1:
        known = known.drop_nulls("step")  # what no step claims may lie in any of them
    rows = with_windows(known, trace.meta, "first_ns").group_by("rank", "window").agg(pl.col("first_ns").min(), pl.col("last_ns").max())
    return {(rank, window): (first, last) for rank, window, first, last in rows.iter_rows()}


class _Part(NamedTuple):
    """The steps of one rank in one window, by start, and from when to when there is work."""

    rank: int
    steps: pl.DataFrame
    first: int
    last: int

    @property
    def starts(self) -> Ints:
        return self.steps["start_ns"].to_numpy()

    @property
    def ends(self) -> Ints:
        return self.steps["end_ns"].to_numpy()

    @property
    def pieces(self) -> Ints:
        return self.steps["count"].to_numpy()

    @property
    def inside(self) -> Bools:
        return ((self.ends > self.first) & (self.starts < self.last)) | (self.pieces > 0)

    def doubtful(self) -> tuple[Ints, Ints]:
        """When launches would show that work is missing: in steps without work, and before and after all work."""
        empty = self.pieces == 0
        edge = (self.ends - self.starts) * _EDGE
        before, after = self.inside & (self.first - self.starts > edge) & ~empty, self.inside & (self.ends - self.last > edge) & ~empty
        starts = (self.starts[empty], self.starts[before], np.maximum(self.starts, self.last)[after])
        ends = (self.ends[empty], np.minimum(self.ends, self.first)[before], self.ends[after])
        return np.concatenate(starts), np.concatenate(ends)

    def on_device(self, lost: Ints, linked: bool) -> Bools:
        """Whether each step is complete; `lost` is when something was launched whose work is missing, `linked` whether that would show."""
        missing = np.searchsorted(lost, self.ends, "left") > np.searchsorted(lost, self.starts, "left")
        complete = self.inside | linked
        complete &= ~((self.pieces == 0) & (missing | self._ran()))
        return complete & ~self._cut(complete, lost)

    def _ran(self) -> Bools:
        """The steps that the source itself says the device ran."""
        passes = self.steps["fp_start_ns"].is_not_null() & self.steps["bp_end_ns"].is_not_null()
        return np.asarray((passes | (self.steps["transfers"] > 0)).to_numpy(), np.bool_)

    def _cut(self, complete: Bools, lost: Ints) -> Bools:
        """The steps in which the range of work begins or ends, where recording did so half way."""
        starts, ends, count = self.starts, self.ends, self.pieces
        edge = (ends - starts) * _EDGE
        backward = self.steps["bp_end_ns"].fill_null(self.first).to_numpy()
        begins, stops = (starts < self.first) & (ends > self.first), (starts < self.last) & (ends > self.last)
        late = np.append(lost, ends[-1])[np.searchsorted(lost, np.maximum(starts, self.last), "left")]
        early = np.append(lost, starts[0])[np.searchsorted(lost, np.minimum(ends, self.first), "left") - 1]
        cut = begins & ((early - starts > edge) | (backward < self.first))
        cut |= stops & ((ends - np.minimum(late, ends) > edge) | (backward - self.last > edge))
        others = np.where(complete & (count > 0), count, np.iinfo(np.int64).max)
        for at in np.flatnonzero(begins | stops):
            beside = (stops[at] and at + 1 < len(count) and not complete[at + 1]) or (begins[at] and at > 0 and not complete[at - 1])
            if beside:
                fewest = np.delete(others, at).min(initial=np.iinfo(np.int64).max)
                alone = fewest == np.iinfo(np.int64).max and bool(ends[at] - self.last > edge[at] or self.first - starts[at] > edge[at])
                cut[at] |= alone or (fewest < np.iinfo(np.int64).max and count[at] < fewest)
        return cut


_NONE = np.empty(0, np.int64)


def _lost_launches(trace: Trace, parts: list[_Part]) -> dict[int, Ints]:
    """Per rank when something was launched whose work is missing, in order; looked up only where work might be."""
    doubts: dict[int, list[tuple[Ints, Ints]]] = {}
    for part in parts:
        doubts.setdefault(part.rank, []).append(part.doubtful())
    found: dict[int, Ints] = {}
    for rank, pairs in doubts.items():
        when = intervals.merge(np.concatenate([low for low, _ in pairs]), np.concatenate([high for _, high in pairs]))
        if len(when.starts):
            found[rank] = _lost_of_rank(trace, rank, when)
    return found


def _lost_of_rank(trace: Trace, rank: int, when: intervals.Set) -> Ints:
    spans, start = trace.spans.filter(pl.col("rank") == rank), pl.col("start_ns")
    times = list(zip(when.starts.tolist(), when.ends.tolist(), strict=True))
    times = times if len(times) <= _MANY else [(times[0][0], times[-1][1])]
    within = pl.any_horizontal(start.is_between(low, high, "left") for low, high in times)
    calls = spans.filter(pl.col("kind") == "api").select("span", "name", "start_ns")
    here = calls.filter(within).collect()
    # Few names, many calls: the rule is tried once per name.
    names = here.select("name").unique().filter(pl.col("name").cast(pl.String).str.contains(_LAUNCH))
    here = here.join(names, on="name", how="semi")
    here = here.filter(pl.Series(intervals.enclosing(when.starts, when.ends, here["start_ns"].to_numpy()) >= 0))
    if here.is_empty():
        return _NONE
    answered = spans.filter(pl.col("kind").is_in(["kernel", "copy", "set", "communication"]), pl.col("flow_in").is_not_null())
    answered = answered.select(span="flow_in").unique()
    lost = here.join(answered.collect(), on="span", how="anti")
    if lost.is_empty():
        return _NONE
    # Some calls launch nothing of their own (one that encloses another, one that a graph captures): a name must nearly always have work.
    others = calls.join(here.select("span").lazy(), on="span", how="anti")
    shares = others.join(lost.select("name").unique().lazy(), on="name", how="semi")
    shares = shares.join(answered.with_columns(work=True), on="span", how="left").group_by("name").agg(pl.col("work").is_not_null().mean())
    launching = shares.filter(pl.col("work") >= _LINKED).select("name").collect()
    return lost.join(launching, on="name", how="semi")["start_ns"].sort().to_numpy()
