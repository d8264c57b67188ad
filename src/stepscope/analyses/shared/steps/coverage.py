"""Coverage: which steps have completely recorded device work. All analyses of busy and idle time use this decision.

In a step without kernels, either the device was idle, or its work was not recorded. The evidence, per rank and, where recording paused, per
window:

- *Range.* The device was recorded from the first to the last kernel, copy, or transfer with a recorded launch call. A step inside this
  range is recorded, even without a kernel (an evaluation on the host, a wait for input): the device was idle.
- *Launches.* Launch calls show the work that a device had to run. In a step outside the range, the device was idle if the step launches
  nothing; a launch call without work shows that the device was no longer recorded. Inside the range, a profiler with full buffers drops
  records: a step is incomplete if more than 5 % of its launches have no work.
- *Operators.* Without launch calls, matrix products and convolutions show work: a step is incomplete if more than 5 % of these calls have
  no device work. Only names with kernels in some call count; if no kernel is recorded at all, each name counts.
- *Step trace.* If the source has forward start and backward end, or separate transfers in the step, a step without kernels was not
  recorded: the device did run it.
- *Neither.* A step before the first or after the last kernel of a rank whose host is not recorded is unknown. The operator data of Ascend
  is often shorter than its step trace.
- *Edges.* In the step where the range begins or ends, recording may have stopped half way. The step is incomplete if launches without work,
  or the backward end of the source, are well beyond the range, and, next to a step that is not recorded, if it has fewer kernels than all
  other steps.
- *Sums.* If the source also has the time that the device computed or communicated in a step, a step with less is incomplete. A source may
  count work at the edge of a step in the next one, so the rank must lack as much over all steps.
- *Other work.* A step also waits for work that was launched before the recording began, or that the file leaves out. It is incomplete if
  the host waits for the device during more than 5 % of the step, at least 10 ms at a time, while no work is recorded, or if the first work
  stays in its queue for more than 5 %. Then the work of the step itself is complete (`launched`): only idle time is unknown.
- *Loss known to the reader.* Some sources keep only the last call of each operator, or lost a table: no step is complete. Or the source
  shows of a step that device work is missing.

For a rank without such work there are three cases: its kernels are missing (streams, an Ascend chip, launch calls, operators of GPUs or
forward and backward times show that there is a device), it ran on the host (operators replace kernels), or nothing is known.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.steps import lost_work
from stepscope.analyses.shared.steps.lost_work import LAUNCH, SUMS, Launches
from stepscope.model import intervals
from stepscope.model.intervals import Bools, Ints
from stepscope.model.memo import memoized
from stepscope.model.rank_tables import stored_rows
from stepscope.model.schema import TrackKind
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.steps.windows import not_recorded, with_windows
from stepscope.model.trace import Trace

DATA = ("complete", "partial", "none", "host")  # of a device; host: there is none, host operators replace its kernels
_EDGE = 0.05  # of a step: less may be missing at its start or end
_LOST = 0.05  # of the launches of a step: fewer may be without work
# Formats that may have operators only; prof: raw data of 2020; ascend_result: a table of kernels without a timeline.
# Operators of PyTorch that run on GPUs only: a profiler without CUDA activities records them without launch calls.
_GPU_OPERATORS = r"^aten::(cudnn_|miopen_|_flash_attention_|_efficient_attention_|_scaled_dot_product_(efficient|cudnn)_attention)"
_CPU_OPERATORS = ["aten::cudnn_is_acceptable"]
_OPERATORS_ALONE = ("mindinsight", "marey", "cluster_output", "prof", "ascend_result")


_STEPS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "complete": pl.Boolean,
    "launched": pl.Boolean,  # all work that the step launched is recorded, if not all that ran in it
    "transfers": pl.Boolean,  # transfers are recorded apart from kernels
    "launches": pl.Int64,  # launch calls; null if these are not recorded
    "lost_launches": pl.Int64,  # launch calls without recorded work, of a complete step at most 5 %
}


class Coverage(NamedTuple):
    steps: pl.DataFrame  # as in _STEPS
    data: dict[int, str | None]  # per rank one of DATA; None if no span is known to be work
    launched: dict[int, str | None]  # the same of the work that steps launched


def coverage(trace: Trace) -> Coverage:
    """Every step of every rank and whether its device work is completely recorded; for a part of a trace, by the evidence of the whole."""
    whole = _whole_coverage(trace.whole)
    if trace.whole is trace:
        return whole
    steps = whole.steps.join(trace.steps.select("rank", "step").unique().collect(), on=["rank", "step"], how="semi", maintain_order="left")
    return _by_rank(steps, whole.data, whole.launched)


def _by_rank(steps: pl.DataFrame, data: dict[int, str | None], launched: dict[int, str | None]) -> Coverage:
    parts = {int(str(rank)): rows for (rank,), rows in steps.group_by("rank", maintain_order=True)}
    return Coverage(
        steps,
        {rank: _data(rows["complete"], data.get(rank)) for rank, rows in parts.items()},
        {rank: _data(rows["launched"], launched.get(rank)) for rank, rows in parts.items()},
    )


def complete_steps(trace: Trace) -> pl.DataFrame:
    """Rank and step of every step whose device work (host operators, without a device) is completely recorded."""
    return coverage(trace).steps.filter("complete").select("rank", "step")


def unrecorded_steps(trace: Trace) -> pl.DataFrame:
    """Rank and step of every step that a device ran and whose work is not completely recorded."""
    covered = coverage(trace)
    ranks = [rank for rank, data in covered.data.items() if data in ("partial", "none")]
    return covered.steps.filter(pl.col("rank").is_in(ranks) & ~pl.col("complete")).select("rank", "step")


def steps_with_lost_work(trace: Trace) -> pl.DataFrame:
    """Rank and step of every step that a device ran and that launched work without a record."""
    covered = coverage(trace)
    ranks = [rank for rank, data in covered.launched.items() if data in ("partial", "none")]
    return covered.steps.filter(pl.col("rank").is_in(ranks) & ~pl.col("launched")).select("rank", "step")


def ranks_without_copies(trace: Trace) -> list[int]:
    """The ranks whose source has only operators and transfers: whether the device copied is unknown."""
    if (stored := stored_rows(trace.whole, "rank_figures")) is not None:
        return stored.filter("copies_unknown")["rank"].to_list()
    if trace.meta.format not in _OPERATORS_ALONE:
        return []
    others = ["copy", "set", "api", *(["op"] if trace.meta.format == "ascend_result" else [])]  # a timeline of torch_npu has copies
    with_copies = trace.whole.spans.filter(pl.col("kind").is_in(others)).select(pl.col("rank").unique()).collect()["rank"]
    return sorted(rank for rank, data in coverage(trace).data.items() if data != "host" and rank not in with_copies)


def unknown_times(trace: Trace, rank: int) -> intervals.Set:
    """The times at which the work of a device is unknown: between windows, and in steps whose device work is not completely recorded."""
    covered = coverage(trace)
    if covered.data.get(rank) == "none":
        return intervals.merge(np.array([-(2**62)]), np.array([2**62]))
    rows = covered.steps.filter((pl.col("rank") == rank) & ~pl.col("complete"))
    steps = intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return intervals.join(not_recorded(trace.meta, rank), steps)


def step_ranges(steps: list[int]) -> str:
    """`1-14, 20`: step numbers as ranges; of more than four, the first ones."""
    ranges: list[list[int]] = []
    for step in sorted(steps):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(texts[:_RANGES]) + (", …" if len(texts) > _RANGES else "")


_RANGES = 4


def _data(complete: pl.Series, whole: str | None) -> str | None:
    if whole not in ("complete", "partial"):
        return whole
    return "complete" if complete.all() else "partial" if complete.any() else "none"


@memoized
def _whole_coverage(trace: Trace) -> Coverage:
    if (stored := stored_rows(trace, "rank_coverage")) is not None:
        data = dict(trace.table("rank_figures").select("rank", "device_data").collect().iter_rows())
        from_steps = {rank: "complete" if kind in ("complete", "partial", "none") else kind for rank, kind in data.items()}
        return _by_rank(stored, from_steps, from_steps)
    times = ("start_ns", "end_ns", "device_start_ns", "device_end_ns", "fp_start_ns", "bp_end_ns")
    columns = ["rank", "step", *times, *SUMS, "device_work_lost"]
    steps = trace.steps.select(columns).sort("rank", "start_ns").collect()
    steps = steps.with_columns(lost=pl.col("device_work_lost").fill_null(False) | lost_work.below_sums(trace, steps)).drop(
        *SUMS, "device_work_lost"
    )
    work = _work(trace, pl.col("kind").is_in(DEVICE_WORK))
    device = set(work.filter(pl.col("count") > 0)["rank"])
    without = sorted(set(steps["rank"]) - device)
    missing = _ranks_with_device(trace, without, set(steps.filter("lost")["rank"]))
    host_ranks = [rank for rank in without if rank not in missing]
    is_operator = (pl.col("kind") == "op") & pl.col("rank").is_in(host_ranks)
    operators = _work(trace, is_operator) if host_ranks else work.clear()
    on_host = set(operators["rank"])
    passes = steps.filter(pl.col("fp_start_ns").is_not_null(), pl.col("bp_end_ns").is_not_null())["rank"]
    missing |= set(passes) - device - on_host
    counts = pl.concat([work, operators])
    steps = steps.join(counts.drop_nulls("step"), on=["rank", "step"], how="left", maintain_order="left").with_columns(
        pl.col("count", "transfers").fill_null(0)
    )
    steps = with_windows(steps, trace.meta, "start_ns")
    bounds = _bounds(trace, counts, steps)
    parts: list[pl.DataFrame] = []
    # A MindInsight timeline links only some calls to their work: a call without work is no sign of lost records.
    linked = set(work.filter(pl.col("linked") > 0)["rank"]) if trace.meta.format != "mindinsight" else set()
    launches = lost_work.launch_calls(trace, sorted(linked)) if linked else {}
    waits = {rank: lost_work.waits_without_work(trace, rank) for rank in sorted(device & lost_work.waiting_ranks(trace))}
    unlaunched = sorted(device - lost_work.launching_ranks(trace))
    bare = pl.concat([steps.clear().select("rank", "step"), *(lost_work.steps_without_kernels(trace, rank) for rank in unlaunched)])
    steps = steps.join(bare.with_columns(bare=True), on=["rank", "step"], how="left", maintain_order="left")
    for (rank, window), rows in steps.group_by("rank", "window", maintain_order=True):
        bound = bounds.get((int(rank), int(window)))
        complete, busy = np.zeros(rows.height, np.bool_), np.zeros(rows.height, np.bool_)
        if bound is not None and not trace.meta.extra.get("incomplete_device_work"):
            starts, ends, counted = (rows[name].to_numpy() for name in ("start_ns", "end_ns", "count"))
            part = _Part(rows, starts, ends, counted, *bound)
            of_rank = launches.get(int(rank))
            complete = part.on_device(of_rank) if rank in device else part.inside
            complete = complete & ~(rows["lost"] | rows["bare"].fill_null(False)).to_numpy()
            busy = part.covered_by(waits.get(int(rank), intervals.NONE)) | part.queued(_NONE if of_rank is None else of_rank.returned)
        parts.append(rows.with_columns(pl.Series("complete", complete & ~busy), pl.Series("launched", complete)))
    calls = pl.concat([_NO_LAUNCHES, *(of_rank.steps.select(*_counts(rank)) for rank, of_rank in launches.items())])
    joined = [part.join(calls, on=["rank", "step"], how="left", maintain_order="left") for part in parts]
    tables = [part.with_columns(pl.col("transfers") > 0).select(_STEPS.keys()) for part in joined]
    groups: list[tuple[str, set[int]]] = [("complete", device), ("host", on_host), ("none", missing)]
    kinds: dict[int, str | None] = {rank: kind for kind, group in groups for rank in group}
    return _by_rank(pl.concat([pl.DataFrame(schema=_STEPS), *tables]), kinds, kinds)


_COUNTS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "count": pl.Int64,  # kernels, copies, and transfers with a recorded launch
    "linked": pl.Int64,  # of these, with a launch call
    "transfers": pl.Int64,  # of a separate source, without a launch
    "first_ns": pl.Int64,
    "last_ns": pl.Int64,
}


def _work(trace: Trace, selected: pl.Expr) -> pl.DataFrame:
    """Per rank and step: the number of the selected spans, and their first start and last end."""
    tracks = trace.tracks.select("rank", "track", track_kind="kind")
    transfer, linked = pl.col("kind") == "communication", pl.col("flow_in").is_not_null()
    has_times = ~transfer & pl.col("track_kind").ne_missing(pl.lit("other", TrackKind))
    counts, end = ~transfer | linked, pl.col("start_ns") + pl.col("dur_ns")
    work: pl.DataFrame = (
        trace.spans.filter(selected)
        .join(tracks, on=["rank", "track"], how="left")
        .filter(has_times | (pl.col("track_kind") == "stream"))
        .group_by("rank", "step")
        .agg(
            count=counts.sum(),
            linked=linked.sum(),
            transfers=(transfer & ~linked).sum(),
            first_ns=pl.col("start_ns").filter(counts).min(),
            last_ns=end.filter(counts).max(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in _COUNTS.items())
        .collect(engine="streaming")
    )
    return work


def _ranks_with_device(trace: Trace, ranks: list[int], cut: set[int]) -> set[int]:
    """The ranks that have a device, among ranks without recorded device work. Of `cut` ranks, device work may be missing."""
    if not ranks:
        return set()
    tracks = trace.tracks.filter(pl.col("rank").is_in(ranks), (pl.col("kind") == "stream") | pl.col("device").is_not_null())
    work = trace.spans.filter(pl.col("rank").is_in(ranks), pl.col("kind").is_in(DEVICE_WORK))
    work = work.select("rank", "track").unique().join(tracks.select("rank", "track"), on=["rank", "track"], how="semi")
    # A PyTorch trace lists every GPU of the machine; the tools of Ascend list only recorded chips.
    kind = pl.col("kind").cast(pl.String)
    recorded = ~kind.is_in(["cpu", "hostcpu"]) & ((kind != "gpu") | pl.lit(trace.meta.format == "mindinsight") | pl.col("rank").is_in(cut))
    devices = trace.devices.filter(pl.col("rank").is_in(ranks), recorded)
    calls = trace.spans.filter(pl.col("rank").is_in(ranks), pl.col("kind") == "api").select("rank", "name").unique()
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(LAUNCH))
    names = trace.spans.filter(pl.col("rank").is_in(ranks), pl.col("kind") == "op").select("rank", pl.col("name").cast(pl.String)).unique()
    on_gpu = names.filter(pl.col("name").str.contains(_GPU_OPERATORS), ~pl.col("name").is_in(_CPU_OPERATORS))
    columns = [frame.select(pl.col("rank").unique()).collect()["rank"] for frame in (work, devices, launches, on_gpu)]
    of_device = pl.col("device").cast(pl.String).str.contains("^(gpu|npu)")
    blocks = trace.allocations.filter(pl.col("rank").is_in(ranks), of_device).select(pl.col("rank").unique())
    return {int(rank) for column in [*columns, blocks.collect()["rank"]] for rank in column}


def _bounds(trace: Trace, counts: pl.DataFrame, steps: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int]]:
    """Per rank and window: first start and last end of work."""
    work = counts.drop_nulls(["first_ns"])
    if steps["window"].n_unique() > 1:
        work = work.drop_nulls("step")  # the window of work outside steps is unknown
    rows = with_windows(work, trace.meta, "first_ns").group_by("rank", "window").agg(pl.col("first_ns").min(), pl.col("last_ns").max())
    return {(rank, window): (first, last) for rank, window, first, last in rows.iter_rows()}


class _Part(NamedTuple):
    """The steps of one rank in one window, by start, and the first start and last end of work."""

    steps: pl.DataFrame
    starts: Ints
    ends: Ints
    counts: Ints
    first: int
    last: int

    @property
    def inside(self) -> Bools:
        return ((self.ends > self.first) & (self.starts < self.last)) | (self.counts > 0)

    def on_device(self, launches: Launches | None) -> Bools:
        """Whether each step is complete; `launches` is None if no launch call has work."""
        if launches is None:
            complete = np.asarray(self.inside & ~((self.counts == 0) & self._ran()), np.bool_)
            return complete & ~self._cut(complete, _NONE)
        flags = self.steps.select("step").join(launches.steps, on="step", how="left", maintain_order="left")
        lost, incomplete = (flags[name].fill_null(False).to_numpy() for name in ("lost", "incomplete"))
        # A device runs later than its host: the gap in its records may be in a later step than the launches.
        incomplete = incomplete | self.covered_by(launches.gaps)
        complete = np.asarray(~incomplete & ~((self.counts == 0) & (lost | self._ran())), np.bool_)
        return complete & ~self._cut(complete, launches.lost)

    def queued(self, returned: Ints) -> Bools:
        """The step in which the first work begins, if its launch call returned long before."""
        wait = self.first - next(iter(returned[np.searchsorted(returned, self.starts[0], "left") :]), self.first)
        begins = (self.starts < self.first) & (self.ends > self.first)
        return np.asarray(begins & (wait > np.maximum((self.ends - self.starts) * _EDGE, _QUEUED_NS)), np.bool_)

    def covered_by(self, times: intervals.Set) -> Bools:
        """Whether more than a few percent of each step on the device lie in these times."""
        start, end = (self.steps[f"device_{name}"].fill_null(self.steps[name]).to_numpy() for name in ("start_ns", "end_ns"))
        return np.asarray(intervals.covered(times, start, end) > _EDGE * (end - start), np.bool_)

    def _ran(self) -> Bools:
        """The steps that the device ran according to the source."""
        passes = self.steps["fp_start_ns"].is_not_null() & self.steps["bp_end_ns"].is_not_null()
        return np.asarray((passes | (self.steps["transfers"] > 0)).to_numpy(), np.bool_)

    def _cut(self, complete: Bools, lost: Ints) -> Bools:
        """The steps in which the range of work begins or ends half way."""
        starts, ends, count = self.starts, self.ends, self.counts
        edge = (ends - starts) * _EDGE
        backward = self.steps["bp_end_ns"].fill_null(self.first).to_numpy()
        begins, stops = (starts < self.first) & (ends > self.first), (starts < self.last) & (ends > self.last)
        late = np.append(lost, ends[-1])[np.searchsorted(lost, np.maximum(starts, self.last), "left")]
        early = np.append(lost, starts[0])[np.searchsorted(lost, np.minimum(ends, self.first), "left") - 1]
        cut = begins & ((early - starts > edge) | (backward < self.first))
        cut |= stops & ((ends - np.minimum(late, ends) > edge) | (backward - self.last > edge))
        others = np.where(complete & (count > 0), count, np.iinfo(np.int64).max)
        for at in np.flatnonzero(begins | stops):
            at_edge = (stops[at] and at + 1 < len(count) and not complete[at + 1]) or (begins[at] and at > 0 and not complete[at - 1])
            if at_edge:
                fewest = np.delete(others, at).min(initial=np.iinfo(np.int64).max)
                alone = fewest == np.iinfo(np.int64).max and bool(ends[at] - self.last > edge[at] or self.first - starts[at] > edge[at])
                cut[at] |= alone or (fewest < np.iinfo(np.int64).max and count[at] < fewest)
        return cut


_NONE = np.empty(0, np.int64)
_NO_LAUNCHES = pl.DataFrame(schema={"rank": pl.Int32, "step": pl.Int32, "launches": pl.Int64, "lost_launches": pl.Int64})


def _counts(rank: int) -> list[pl.Expr]:
    """Of the steps of launch calls: the columns of `_NO_LAUNCHES`."""
    return [pl.lit(rank, pl.Int32).alias("rank"), pl.col("step"), pl.col("launches"), pl.col("missing").alias("lost_launches")]


_QUEUED_NS = 1_000_000  # an idle device begins sooner with what is launched; on Ascend after up to 6 ms, less than 5 % of such steps
