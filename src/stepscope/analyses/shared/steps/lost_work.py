"""Signs that device work of a step was not recorded: launch calls without work, operators without kernels, waits for no work, sums."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model import intervals
from stepscope.model.intervals import Bools, Ints
from stepscope.model.memo import memoized
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace

LOST = 0.05  # of the launches of a step: fewer may be without work
_LINKED = 0.9  # of the calls of a name have work: then the work of the others is lost
LAUNCH = "(?i)launch"
# Each of these calls runs one kernel, unless a graph captures it, or a call inside it or around it runs the kernel.
_KERNEL_LAUNCH = "^(cu|cuda|hip)[A-Za-z]*LaunchKernel"
_RAW_LAUNCH = f"{_KERNEL_LAUNCH}|^aclrtLaunchKernel|^launch$|^KernelLaunch$"  # the exports of Ascend's tools lack some links
_BEGIN_CAPTURE, _END_CAPTURE = "(?i)Capture_?Begin|BeginCapture", "(?i)Capture_?End|EndCapture"
# Operators that always have a kernel on a device.
_MATRIX = r"^aten::(mm|bmm|mv|addmm|baddbmm|convolution|convolution_backward|cudnn_convolution|miopen_convolution)$"
_LONG_WAIT_NS = 10_000_000  # a call that waits for the device returns sooner after the last work; on Ascend after up to 6 ms
_STAGED_BYTES_PER_NS = 1  # from pageable memory: slow, so that the wait is not overestimated
_NONE = np.empty(0, np.int64)
_NONE_LOST = {"lost": pl.lit(False), "incomplete": pl.lit(False), "launches": pl.len().cast(pl.Int64), "missing": pl.lit(0, pl.Int64)}
# Sums of the source, and the kind of the work in them.
SUMS = {"device_computing_ns": "kernel", "device_communication_ns": "communication"}


def below_sums(trace: Trace, steps: pl.DataFrame) -> pl.Series:
    """Whether each step has less device work than the sums of its source."""
    below = np.zeros(steps.height, np.bool_)
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track")
    start, end = (steps[f"device_{name}"].fill_null(steps[name]).to_numpy() for name in ("start_ns", "end_ns"))
    for column, kind in SUMS.items():
        for rank in steps.filter(pl.col(column).is_not_null())["rank"].unique().to_list():
            at = np.flatnonzero(((steps["rank"] == rank) & steps[column].is_not_null()).to_numpy())
            work = trace.spans.filter(pl.col("rank") == rank, pl.col("kind") == kind).join(streams, on=["rank", "track"], how="semi")
            times = work.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
            recorded = intervals.covered(intervals.merge(times["start_ns"].to_numpy(), times["end_ns"].to_numpy()), start[at], end[at])
            sums = steps[column].gather(at).to_numpy()
            missing = sums - recorded
            below[at] |= (missing > LOST * sums) & (missing.sum() > LOST * sums)
    return pl.Series(below)


def steps_without_kernels(trace: Trace, rank: int) -> pl.DataFrame:
    """The steps of a rank without launch calls in which matrix operators have no device work, though others of their name have.

    Where no kernel is recorded at all, no operator has one: these steps have only copies.
    """
    spans = trace.spans.filter(pl.col("rank") == rank)
    none = pl.DataFrame(schema={"rank": pl.Int32, "step": pl.Int32})
    text = pl.col("name").cast(pl.String)
    work = spans.filter(pl.col("kind").is_in(DEVICE_WORK), pl.col("op").is_not_null()).select("kind", span="op").collect()
    if work.is_empty():
        return none
    ops = spans.filter(pl.col("kind") == "op")
    ops = ops.select("span", "name", "track", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    kernels = work.filter(pl.col("kind") == "kernel").select("span").unique()
    launchers = ops.join(kernels.lazy(), on="span", how="semi").select("track", "start_ns").collect()
    matrix = with_starts(ops.filter(text.str.contains(_MATRIX)).collect(), launchers, "track").with_columns(lost=~pl.col("starts"))
    if spans.filter(pl.col("kind") == "kernel").head(1).collect().height:
        matrix = matrix.filter(pl.col("name").is_in(matrix.filter(~pl.col("lost"))["name"].unique().implode()))
    steps = matrix.drop_nulls("step").group_by("step").agg(pl.col("lost").mean()).filter(pl.col("lost") > LOST)
    return steps.select(rank=pl.lit(rank, pl.Int32), step="step")


def with_starts(spans: pl.DataFrame, inner: pl.DataFrame, *key: str) -> pl.DataFrame:
    """The spans with `starts`: whether one of the inner spans with the same key starts in them."""
    times = {group: np.sort(rows["start_ns"].to_numpy()) for group, rows in inner.group_by(key)}
    parts = [spans.clear().with_columns(starts=pl.lit(False))]
    for group, rows in spans.group_by(key, maintain_order=True):
        inside = times.get(group, _NONE)
        first = np.searchsorted(inside, rows["start_ns"].to_numpy(), "left")
        last = np.searchsorted(inside, rows["end_ns"].to_numpy(), "right")
        parts.append(rows.with_columns(starts=pl.Series(first < last)))
    return pl.concat(parts)


class Launches(NamedTuple):
    """Launch calls of one rank."""

    lost: Ints  # start of the calls without work, in order
    returned: Ints  # end of the calls with work, in order
    steps: pl.DataFrame  # step, launches, missing: those without work, lost: whether there are any, incomplete: whether these are many
    gaps: intervals.Set  # when the missing work of incomplete steps ran, between recorded work


def launch_calls(trace: Trace, ranks: list[int]) -> dict[int, Launches]:
    """The launch calls of each of the ranks, and those without work."""
    names = _api_names(trace)
    launching = names.filter("launches")["name"].implode()
    spans = trace.spans.filter(pl.col("kind") == "api", pl.col("name").is_in(launching))
    calls = spans.select("rank", "span", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    on_device = _device_work(trace).select("rank", "flow_in").collect()
    calls_of, work_of = (rows.partition_by("rank", as_dict=True) for rows in (calls, on_device))
    result = {}
    for rank in ranks:
        rows = calls_of.get((rank,), calls.clear())
        rows = rows.filter(~pl.Series(_captured(trace, rank, names, rows["start_ns"].to_numpy()), dtype=pl.Boolean))
        launched = work_of.get((rank,), on_device.clear())["flow_in"].to_numpy()
        if np.isin(rows["span"].to_numpy(), launched).all():  # nearly always
            steps = rows.group_by("step").agg(**_NONE_LOST)
            result[rank] = Launches(_NONE, np.sort(rows["end_ns"].to_numpy()), steps, intervals.NONE)
        else:
            result[rank] = _partly_lost(trace, rank, names)
    return result


def launching_ranks(trace: Trace) -> set[int]:
    """The ranks that have launch calls."""
    calls = trace.spans.filter(pl.col("kind") == "api", pl.col("name").is_in(_api_names(trace).filter("launches")["name"].implode()))
    return set(calls.select(pl.col("rank").unique()).collect()["rank"])


@memoized
def _api_names(trace: Trace) -> pl.DataFrame:
    """Names of runtime calls, and whether each launches work. Few names, many calls: patterns are matched once per name."""
    text = pl.col("text").fill_null("")
    names: pl.DataFrame = trace.spans.filter(pl.col("kind") == "api").select(pl.col("name").unique()).collect()
    return names.with_columns(text=pl.col("name").cast(pl.String)).with_columns(
        launches=text.str.contains(LAUNCH), begin=text.str.contains(_BEGIN_CAPTURE), end=text.str.contains(_END_CAPTURE)
    )


def _device_work(trace: Trace) -> pl.LazyFrame:
    """Spans with a launch call on devices. Some kernels count as other work, as they only serve communication."""
    streams = trace.tracks.filter(pl.col("kind") == "stream").select("rank", "track")
    launched = trace.spans.filter(pl.col("flow_in").is_not_null()).select("rank", "track", "kind", "flow_in", "start_ns", "dur_ns")
    other = launched.filter(pl.col("kind") == "other").join(streams, on=["rank", "track"], how="semi")
    return pl.concat([launched.filter(pl.col("kind").is_in(DEVICE_WORK)), other])


def _partly_lost(trace: Trace, rank: int, names: pl.DataFrame) -> Launches:
    """The launch calls of a rank, some without work.

    Some calls launch nothing: a call that encloses another, or one that a graph captures. If the name of a call does not imply a kernel,
    nearly all calls of that name must have work, in at least one step.
    """
    spans = trace.spans.filter(pl.col("rank") == rank)
    calls = spans.filter(pl.col("kind") == "api")
    certain = _RAW_LAUNCH if trace.meta.format == "prof" else _KERNEL_LAUNCH
    launching = names.filter("launches").select("name", certain=pl.col("text").str.contains(certain))
    work = _device_work(trace).filter(pl.col("rank") == rank)
    work = work.group_by(span="flow_in").agg(first=pl.col("start_ns").min(), last=(pl.col("start_ns") + pl.col("dur_ns")).max())
    with_work = work.select("span")
    around = calls.join(with_work, on="span", how="semi").select(span="parent").drop_nulls().unique()
    launches = (
        calls.select("span", "parent", "name", "start_ns", "dur_ns", "step")
        .join(launching.lazy(), on="name")
        .join(work, on="span", how="left")
        .with_columns(lost=pl.col("first").is_null())
        .join(around.with_columns(has_child=True), on="span", how="left")
        .join(with_work.select(parent="span", has_parent=True), on="parent", how="left")
        .filter(~(pl.col("lost") & pl.col("certain") & (pl.col("has_child").fill_null(False) | pl.col("has_parent").fill_null(False))))
        .collect()
        .sort("start_ns")
    )
    launches = launches.filter(~pl.Series(_captured(trace, rank, names, launches["start_ns"].to_numpy()), dtype=pl.Boolean))
    shares = (
        launches.group_by("name", "step", "certain")
        .agg(share=1 - pl.col("lost").mean())
        .group_by("name", "certain")
        .agg(pl.col("share").max())
    )
    # A call of a certain name may enclose the one that launches; without any kernel, all of these calls show lost kernels.
    streams = trace.tracks.filter(pl.col("rank") == rank, pl.col("kind") == "stream").select("track").collect()["track"]
    kernel = (pl.col("kind") == "kernel") | ((pl.col("kind") == "communication") & pl.col("track").is_in(streams.implode()))
    no_kernels = pl.lit(spans.filter(kernel).head(1).collect().is_empty())
    usual = shares.select("name", usual=pl.when(pl.col("certain") & (no_kernels | (pl.col("share") > 0))).then(1.0).otherwise("share"))
    launches = launches.join(usual.filter(pl.col("usual") >= _LINKED), on="name", maintain_order="left")
    missing = (pl.col("usual") + pl.col("lost") - 1).sum()
    steps = launches.group_by("step").agg(
        pl.col("lost").any(), incomplete=missing > LOST * pl.len(), launches=pl.len().cast(pl.Int64), missing=missing.round().cast(pl.Int64)
    )
    return Launches(
        launches.filter("lost")["start_ns"].to_numpy(),
        launches.filter(~pl.col("lost")).select(pl.col("start_ns") + pl.col("dur_ns")).to_series().sort().to_numpy(),
        steps,
        _gaps(launches.join(steps.filter("incomplete"), on="step", how="left", maintain_order="left")),
    )


def waiting_ranks(trace: Trace) -> set[int]:
    """The ranks whose host may wait long for a device."""
    calls = trace.spans.filter(pl.col("dur_ns") >= _LONG_WAIT_NS, pl.col("kind").is_in(["sync", "api"]))
    return set(calls.select(pl.col("rank").unique()).collect()["rank"])


def waits_without_work(trace: Trace, rank: int) -> intervals.Set:
    """When the host waits long for a device that runs no recorded work: in synchronizing calls, and in copies until they start.

    Work that was launched before the recording began, or in a part that the file leaves out, is not recorded.
    """
    spans = trace.spans.filter(pl.col("rank") == rank)
    streams = trace.tracks.filter(pl.col("rank") == rank, pl.col("kind") == "stream").select("track").collect()["track"].implode()
    end = pl.col("start_ns") + pl.col("dur_ns")
    long = pl.col("dur_ns") >= _LONG_WAIT_NS
    syncs = spans.filter(pl.col("kind") == "sync", long, ~pl.col("track").is_in(streams)).select("start_ns", end_ns=end)
    copies = spans.filter(pl.col("kind") == "copy").select(span="flow_in", copy_ns="start_ns", copied_ns=end, copied_bytes="bytes")
    staged = (pl.col("copied_bytes").fill_null(0) / _STAGED_BYTES_PER_NS).cast(pl.Int64)
    blocking = (
        spans.filter(pl.col("kind") == "api", long)
        .join(copies, on="span")
        .filter(end >= pl.col("copied_ns"))
        .select("start_ns", end_ns=pl.col("copy_ns") - staged)
    )
    waits = pl.concat([syncs, blocking]).filter(pl.col("end_ns") - pl.col("start_ns") >= _LONG_WAIT_NS).collect()
    if waits.is_empty():
        return intervals.NONE
    on_device = (pl.col("kind") != "sync") & pl.col("track").is_in(streams)
    near = on_device & (end > waits["start_ns"].min()) & (pl.col("start_ns") < waits["end_ns"].max())
    work = spans.filter(near).select("start_ns", end_ns=end).collect()
    times = [intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()) for part in (waits, work)]
    bare = intervals.subtract(*times)
    lasting = bare.ends - bare.starts >= _LONG_WAIT_NS
    return intervals.Set(bare.starts[lasting], bare.ends[lasting])


def _gaps(launches: pl.DataFrame) -> intervals.Set:
    """From the end of the work before missing work to the start of the work after it."""
    gaps = launches.select(
        "lost", "incomplete", start=pl.max_horizontal("start_ns", pl.col("last").forward_fill()), end=pl.col("first").backward_fill()
    )
    gaps = gaps.filter("lost", "incomplete", pl.col("end") > pl.col("start"))
    return intervals.merge(gaps["start"].to_numpy(), gaps["end"].to_numpy())


def _captured(trace: Trace, rank: int, names: pl.DataFrame, starts: Ints) -> Bools:
    """Which launches a graph captures, so that they run nothing: launches between the start and the end of a capture."""
    marks = names.filter(pl.col("begin") | pl.col("end")).select("name", "begin")
    if marks.is_empty():
        return np.zeros(len(starts), np.bool_)
    calls = trace.spans.filter(pl.col("rank") == rank, pl.col("kind") == "api").select("name", "start_ns")
    captures = calls.join(marks.lazy(), on="name").sort("start_ns").collect()
    begun = np.append(False, captures["begin"].to_numpy())
    return np.asarray(begun[np.searchsorted(captures["start_ns"].to_numpy(), starts, "right")], np.bool_)
