"""Steps of operators in compiled graphs, by call number.

The host's call of a compiled graph returns before its kernels have run, so their times do not say which call they belong to. But an
operator of a graph runs once (or n times, in a loop) per call of that graph: its kth run belongs to the kth call. MindSpore numbers
operators through all graphs of a process, so that a name belongs to one graph; which one, the number of runs and two bounds tell: nothing
runs before its call begins, nor after the next call of any graph has returned, since that waits for the graph before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope import intervals, units
from stepscope.intervals import Ints

Problem = tuple[str, str, int]  # file, what, lost
_BEFORE = -2  # runs of a call that began before the recording
_UNKNOWN = -1


def step_of_operators(
    ops: pl.DataFrame, calls: pl.DataFrame, steps: pl.DataFrame, compiled: set[str], problems: list[Problem]
) -> pl.Series:
    """The step of each operator: that of the host's call it belongs to, else the one it started in.

    `ops` and `steps` are sorted by start. `compiled` are the names known to be in a graph.
    """
    numbers, start = steps["step"].to_numpy(), ops["start_ns"].to_numpy()
    begins, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    by_time = intervals.enclosing(begins, ends, start)
    if calls.is_empty() or steps.is_empty() or ops.is_empty():
        return _numbered(numbers, by_time)
    host = _Calls.of(calls.sort("start_ns"))
    step_of_call = intervals.enclosing(begins, ends, host.start)
    call, uncertain = _call_of_operators(ops, host, step_of_call, compiled)
    if before := int((call == _BEFORE).sum()):
        what = f"{units.count(before, 'operator call')} of a graph that was called before the recording began: they belong to no step"
        problems.append(("steps", what, 0))
    if uncertain:
        what = (
            f"{units.count(uncertain, 'operator call')} may belong to the step before or after: they did not run in each call of a graph, "
            "and kernels were not waited for at the end of the step (sync_enable)"
        )
        problems.append(("steps", what, 0))
    known = call != _UNKNOWN
    return _numbered(numbers, np.where(known, np.where(call >= 0, step_of_call[np.maximum(call, 0)], -1), by_time))


def _numbered(numbers: Ints, index: Ints) -> pl.Series:
    if len(numbers) == 0:
        return pl.Series("step", [None] * len(index), pl.Int32)
    return pl.Series("step", numbers[np.maximum(index, 0)], pl.Int32).set(pl.Series(index < 0), None)


class _Calls(NamedTuple):
    """The host's calls of graphs, by start. `until` is when the last kernel of each had started at the latest."""

    start: Ints
    until: Ints
    first_end: int
    by_count: dict[int, list[Ints]]  # the calls of each graph: of graphs called so often, by their first call

    @classmethod
    def of(cls, calls: pl.DataFrame) -> "_Calls":
        end = calls["end_ns"].to_numpy()
        following = np.append(end[1:], np.iinfo(np.int64).max)
        by_count: dict[int, list[Ints]] = {}
        graphs = calls.select("graph", row=pl.int_range(pl.len())).group_by("graph", maintain_order=True).agg("row")["row"]
        for rows in graphs:
            by_count.setdefault(len(rows), []).append(rows.to_numpy())
        return cls(calls["start_ns"].to_numpy(), np.where(calls["drained"].to_numpy(), end, following), int(end[0]), by_count)

    def graphs_at(self, count: int, at: int) -> list[Ints]:
        """The calls of those graphs that were called so often and whose first call may have run something then."""
        calls = self.by_count.get(count, [])
        first = [rows[0] for rows in calls]
        # A call that follows begins later, and is over later.
        begin = bisect_left(first, at, key=lambda call: self.until[call])
        end = bisect_right(first, at, key=lambda call: self.start[call])
        return calls[begin:end]


def _call_of_operators(ops: pl.DataFrame, host: _Calls, step_of_call: Ints, compiled: set[str]) -> tuple[Ints, int]:
    """Of each operator the index of its call, and how many are uncertain by a step."""
    start = ops["start_ns"].to_numpy()
    call = np.full(len(start), _UNKNOWN, np.int64)
    several: list[tuple[Ints, list[Ints]]] = []  # rows of a name that fits several graphs in different steps
    by_time: list[Ints] = []  # rows of a name in a graph that fits none: of a branch, or of a loop of varying length
    for name, rows in _rows_by_name(ops):
        if "/" not in name:
            continue  # PyNative mode calls it one by one
        fitting = _fitting(start[rows], host)
        if not fitting:
            if name in compiled:
                by_time.append(rows)
        elif all((_steps_of(fit, step_of_call) == _steps_of(fitting[0], step_of_call)).all() for fit in fitting[1:]):
            call[rows] = fitting[0]
        else:
            several.append((rows, fitting))
    uncertain = 0
    first, last = _extent(start, call, len(host.start))
    for rows, fitting in several:
        distances = [_distance(start[rows], fit, first, last) for fit in fitting]
        call[rows] = fitting[int(np.argmin(distances))]
        uncertain += len(rows) * (distances.count(min(distances)) > 1)
    for rows in by_time:
        begun = np.searchsorted(host.start, start[rows], "right") - 1
        earlier = np.maximum(begun - 1, 0)
        either = (begun > 0) & (start[rows] <= host.until[earlier])
        call[rows] = np.where(either & (start[rows] < first[np.maximum(begun, 0)]), earlier, begun)
        call[rows[begun < 0]] = _BEFORE
        uncertain += int((either & (step_of_call[earlier] != step_of_call[np.maximum(begun, 0)])).sum())
    return call, uncertain


def _rows_by_name(ops: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    """The rows of each name, by start."""
    if ops.is_empty():
        return
    codes = ops["name"].rank("dense").to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield str(ops["name"][int(rows[0])]), rows


def _fitting(start: Ints, host: _Calls) -> list[Ints]:
    """For each graph that these runs of an operator may be of: the call of each."""
    runs = len(start)
    once, once_before = [(runs, 1, 0)], [(runs - 1, 1, 1)] if runs > 1 and start[0] <= host.first_end else []
    several = [(count, runs // count, 0) for count in host.by_count if runs > count and runs % count == 0]
    for choices in (once, once_before, several):  # once in a call; the same, and once before the recording; n times in a call
        found = []
        for count, each, before in choices:
            for calls in host.graphs_at(count, int(start[before])):
                fit = np.repeat(calls, each)
                if ((host.start[fit] <= start[before:]) & (start[before:] <= host.until[fit])).all():
                    found.append(np.append(np.full(before, _BEFORE), fit))
        if found:
            return found
    return []


def _steps_of(calls: Ints, step_of_call: Ints) -> Ints:
    return np.where(calls >= 0, step_of_call[np.maximum(calls, 0)], _BEFORE)


def _extent(start: Ints, call: Ints, count: int) -> tuple[Ints, Ints]:
    """Of each call when the first and the last operator that is known to be of it started."""
    most = np.iinfo(np.int64).max
    first, last = np.full(count, most), np.full(count, -1)
    known = call >= 0
    np.minimum.at(first, call[known], start[known])
    np.maximum.at(last, call[known], start[known])
    return first, last


def _distance(start: Ints, calls: Ints, first: Ints, last: Ints) -> float:
    """How far these runs are from the other operators of their calls: graphs run one after the other."""
    known = (calls >= 0) & (last[np.maximum(calls, 0)] >= 0)
    if not known.any():
        return float("inf")
    at, of = start[known], calls[known]
    return float(np.maximum(np.maximum(first[of] - at, at - last[of]), 0).mean())


def training_calls(updates: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """The calls that end a step, by start: where several optimizers take turns, those of one of them."""
    updates = updates.sort("start_ns")
    if "caller" not in updates.columns or updates["caller"].n_unique() == 1:
        return updates
    order = pl.int_range(pl.len())
    callers = updates.with_columns(order=order).group_by("caller", maintain_order=True).agg(
        first=pl.col("order").min(), last=pl.col("order").max(), calls=pl.len()
    )  # fmt: skip
    kept = [
        one["caller"]
        for one in callers.iter_rows(named=True)
        if not any(_ends_the_step_of(other, one) for other in callers.iter_rows(named=True))
    ]
    if len(kept) < callers.height:
        what = f"{callers.height} optimizers or training functions take turns: each step ends with the last of them"
        problems.append(("steps", what, 0))
    return updates.filter(pl.col("caller").is_in(kept))


def _ends_the_step_of(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether one is called in turns with the other, and after it or more often. Those that follow one another each have steps."""
    in_turns = one["first"] < other["last"] and other["first"] < one["last"]
    if abs(one["calls"] - other["calls"]) <= 1:
        return in_turns and one["first"] > other["first"]
    return in_turns and one["calls"] > other["calls"]


def steps_without_others(steps: pl.DataFrame, calls: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """Steps begin after what is called between them in some iterations only, such as an evaluation every fifth."""
    if calls.is_empty() or steps.height < 2:
        return steps
    ends = steps["end_ns"].to_numpy()
    calls = calls.sort("start_ns").with_columns(
        iteration=pl.Series(np.searchsorted(ends, calls.sort("start_ns")["start_ns"].to_numpy(), "right"))
    )
    calls = calls.filter(pl.col("iteration") < steps.height, pl.col("start_ns") >= steps["start_ns"][0])
    present = calls.group_by("caller").agg(
        iterations=pl.col("iteration").n_unique(), later=pl.col("iteration").filter(pl.col("iteration") > 0).n_unique()
    )
    # Recording may have begun in the middle of the first iteration.
    regular = (pl.col("iterations") == steps.height) | ((pl.col("later") == steps.height - 1) & (steps.height > 2))
    regulars = present.filter(regular)["caller"].implode()
    begun = calls.filter(pl.col("caller").is_in(regulars)).group_by("iteration").agg(begun_ns=pl.col("start_ns").min())
    others = (
        calls.filter(~pl.col("caller").is_in(regulars))
        .join(begun, on="iteration", how="left")
        .with_columns(
            begun_ns=pl.coalesce("begun_ns", pl.col("iteration").replace_strict(range(steps.height), ends.tolist(), return_dtype=pl.Int64))
        )
        .filter(pl.col("start_ns") < pl.col("begun_ns"))
    )
    if others.is_empty():
        return steps
    for function, count in others.group_by("function", maintain_order=True).len().iter_rows():
        which = units.count(count, f"call of {function} is", f"calls of {function} are")
        problems.append(("steps", f"{which} between steps: their operators belong to no step", 0))
    after = others.group_by(row="iteration").agg(after_ns=pl.min_horizontal(pl.col("end_ns").max(), pl.col("begun_ns").max()))
    return (
        steps.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
        .join(after.cast({"row": pl.Int64}), on="row", how="left", maintain_order="left")
        .with_columns(start_ns=pl.max_horizontal("start_ns", "after_ns"))
        .drop("row", "after_ns")
    )


def start_of_first_step(ops: pl.DataFrame, steps: pl.DataFrame, known_ns: int) -> int:
    """Where the first step begins, at `known_ns` or before: with those operators of PyNative mode that all later steps have as well."""
    if steps.height < 3:
        return known_ns
    ends, before = steps["end_ns"].to_numpy(), [known_ns]
    ops = ops.filter(pl.col("start_ns") >= steps["start_ns"][0], pl.col("start_ns") < ends[-1])
    for name, rows in _rows_by_name(ops):
        start = ops["start_ns"].to_numpy()[rows]
        counts = np.bincount(np.searchsorted(ends, start, "right"), minlength=steps.height)
        if "/" not in name and counts[0] >= counts[1] > 0 and (counts[1:] == counts[1]).all():
            before.append(int(start[counts[0] - counts[1]]))
    return min(before)


def repeated_graph(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, int] | None:
    """Steps where one graph ran again and again and nothing tells when it was called: its operators' kth runs are step k.

    With the steps come the step of each operator, and how many are of a run that is not whole, at the beginning or the end.
    """
    # A name without a scope stands for all operators of a type that PyNative mode calls.
    by_name = [rows for name, rows in _rows_by_name(ops) if "/" in name]
    counts = np.array([len(rows) for rows in by_name])
    # Nearly all ran as often as one another, or once more where recording began or ended within a run.
    # The commonest number comes first: a few operators may lack runs that could not be read.
    numbers, how_many = np.unique(counts, return_counts=True)
    usual = numbers[np.argmax(how_many)] if len(numbers) else 0
    whole = next((int(count) for count in (usual, *numbers) if np.isin(counts, (count, count + 1, count + 2)).mean() >= 0.9), 0)
    if whole < 2:
        return None
    start = ops["start_ns"].to_numpy()
    step = np.full(len(start), -2, np.int64)  # -1: not whole
    middle = np.median(np.stack([start[rows] for rows in by_name if len(rows) == whole]), axis=0)
    for rows in by_name:
        more = len(rows) - whole
        if 0 <= more <= 2:
            apart = [np.abs(start[rows][skip:skip + whole] - middle).mean() for skip in range(more + 1)]  # fmt: skip
            skip = int(np.argmin(apart))
            step[rows] = -1
            step[rows[skip:skip + whole]] = np.arange(whole)  # fmt: skip
    end = start + ops["dur_ns"].to_numpy()
    begins = np.array([start[step == number].min() for number in range(whole)])
    partial = step == -1
    if not partial[start < begins[0]].any():
        begins[0] = start.min()  # operators called one by one come first
    steps = pl.DataFrame(
        {
            "step": np.arange(whole, dtype=np.int32),
            "start_ns": begins,
            "end_ns": np.append(begins[1:], end[step == whole - 1].max()),
        }
    ).with_columns(phase=pl.lit(None, pl.String), how=pl.lit("inferred"))
    others = step == -2
    step[others] = intervals.enclosing(begins, steps["end_ns"].to_numpy(), start)[others]
    return steps, _numbered(np.arange(whole, dtype=np.int64), step), int(partial.sum())
