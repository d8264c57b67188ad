"""Steps of operators in compiled graphs, by call number.

The host's call of a compiled graph returns before its kernels have run, so their times do not show which call they belong to. But an
operator of a graph runs once (or n times, in a loop) per call of that graph: its kth run belongs to the kth call. MindSpore numbers
operators through all graphs of a process, so a name belongs to one graph. The number of runs and two bounds show which one: no operator
runs before its call begins, or after the next call of any graph has returned, since that call waits for the graph before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model import intervals, units
from stepscope.model.intervals import Ints
from stepscope.readers.common.problems import FileProblems

_BEFORE = -2  # runs of a call that began before the recording
_UNKNOWN = -1


def step_of_operators(ops: pl.DataFrame, calls: pl.DataFrame, steps: pl.DataFrame, compiled: set[str], problems: FileProblems) -> pl.Series:
    """The step of each operator: that of the host's call that it belongs to, else the step that it started in.

    `ops` and `steps` are sorted by start. `compiled` are the names known to be in a graph.
    """
    numbers, start = steps["step"].to_numpy(), ops["start_ns"].to_numpy()
    begins, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    by_time = intervals.enclosing(begins, ends, start)
    if calls.is_empty() or steps.is_empty() or ops.is_empty():
        return _step_numbers(numbers, by_time)
    host = _Calls.from_table(calls.sort("start_ns"))
    step_of_call = intervals.enclosing(begins, ends, host.start)
    call, uncertain = _call_of_operators(ops, host, step_of_call, compiled)
    if before := int((call == _BEFORE).sum()):
        message = f"{units.count(before, 'operator call')} of a graph that was called before the recording began: they belong to no step"
        problems.append(("steps", message, 0))
    if uncertain:
        message = (
            f"{units.count(uncertain, 'operator call')} may belong to the step before or after: they did not run in each call of a graph, "
            "and kernels were not waited for at the end of the step (sync_enable)"
        )
        problems.append(("steps", message, 0))
    has_call = call != _UNKNOWN
    return _step_numbers(numbers, np.where(has_call, np.where(call >= 0, step_of_call[np.maximum(call, 0)], -1), by_time))


def _step_numbers(numbers: Ints, index: Ints) -> pl.Series:
    if len(numbers) == 0:
        return pl.Series("step", [None] * len(index), pl.Int32)
    return pl.Series("step", numbers[np.maximum(index, 0)], pl.Int32).set(pl.Series(index < 0), None)


class _Calls(NamedTuple):
    """The host's calls of graphs, by start. `until` is the latest possible start of the last kernel of each."""

    start: Ints
    until: Ints
    first_end: int
    by_count: dict[int, list[Ints]]  # by number of calls: the calls of each such graph, in the order of their first calls

    @classmethod
    def from_table(cls, calls: pl.DataFrame) -> "_Calls":
        end = calls["end_ns"].to_numpy()
        following = np.append(end[1:], np.iinfo(np.int64).max)
        by_count: dict[int, list[Ints]] = {}
        graphs = calls.select("graph", row=pl.int_range(pl.len())).group_by("graph", maintain_order=True).agg("row")["row"]
        for rows in graphs:
            by_count.setdefault(len(rows), []).append(rows.to_numpy())
        return cls(calls["start_ns"].to_numpy(), np.where(calls["drained"].to_numpy(), end, following), int(end[0]), by_count)

    def graphs_at(self, count: int, at: int) -> list[Ints]:
        """The calls of each graph that was called `count` times and whose first call may have run an operator at this time."""
        calls = self.by_count.get(count, [])
        first = [rows[0] for rows in calls]
        # A later call begins later and ends later.
        begin = bisect_left(first, at, key=lambda call: self.until[call])
        end = bisect_right(first, at, key=lambda call: self.start[call])
        return calls[begin:end]


def _call_of_operators(ops: pl.DataFrame, host: _Calls, step_of_call: Ints, compiled: set[str]) -> tuple[Ints, int]:
    """The index of the call of each operator, and the number of operators whose step is uncertain."""
    start = ops["start_ns"].to_numpy()
    call = np.full(len(start), _UNKNOWN, np.int64)
    ambiguous: list[tuple[Ints, list[Ints]]] = []  # rows of a name that fits several graphs in different steps
    irregular: list[Ints] = []  # rows of a name in a graph that fits none: of a branch, or of a loop of varying length
    for name, rows in _rows_by_name(ops):
        if "/" not in name:
            continue  # PyNative mode calls it one by one
        candidates = _possible_calls(start[rows], host)
        if not candidates:
            if name in compiled:
                irregular.append(rows)
        elif all((_steps_of_calls(calls, step_of_call) == _steps_of_calls(candidates[0], step_of_call)).all() for calls in candidates[1:]):
            call[rows] = candidates[0]
        else:
            ambiguous.append((rows, candidates))
    uncertain = 0
    first, last = _call_extents(start, call, len(host.start))
    for rows, candidates in ambiguous:
        distances = [_distance(start[rows], calls, first, last) for calls in candidates]
        call[rows] = candidates[int(np.argmin(distances))]
        uncertain += len(rows) * (distances.count(min(distances)) > 1)
    for rows in irregular:
        latest = np.searchsorted(host.start, start[rows], "right") - 1  # the last call that had begun
        earlier = np.maximum(latest - 1, 0)
        either = (latest > 0) & (start[rows] <= host.until[earlier])
        call[rows] = np.where(either & (start[rows] < first[np.maximum(latest, 0)]), earlier, latest)
        call[rows[latest < 0]] = _BEFORE
        uncertain += int((either & (step_of_call[earlier] != step_of_call[np.maximum(latest, 0)])).sum())
    return call, uncertain


def _rows_by_name(ops: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    """The rows of each name, by start."""
    if ops.is_empty():
        return
    codes = ops["name"].rank("dense").to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield str(ops["name"][int(rows[0])]), rows


def _possible_calls(start: Ints, host: _Calls) -> list[Ints]:
    """For each graph that these runs of an operator may belong to: the call of each run."""
    runs = len(start)
    once, once_before = [(runs, 1, 0)], [(runs - 1, 1, 1)] if runs > 1 and start[0] <= host.first_end else []
    repeated = [(count, runs // count, 0) for count in host.by_count if runs > count and runs % count == 0]
    # Once per call; once per call and once before the recording; n times per call.
    for choices in (once, once_before, repeated):
        candidates = []
        for count, runs_per_call, before in choices:
            for graph_calls in host.graphs_at(count, int(start[before])):
                calls = np.repeat(graph_calls, runs_per_call)
                if ((host.start[calls] <= start[before:]) & (start[before:] <= host.until[calls])).all():
                    candidates.append(np.append(np.full(before, _BEFORE), calls))
        if candidates:
            return candidates
    return []


def _steps_of_calls(calls: Ints, step_of_call: Ints) -> Ints:
    return np.where(calls >= 0, step_of_call[np.maximum(calls, 0)], _BEFORE)


def _call_extents(start: Ints, call: Ints, count: int) -> tuple[Ints, Ints]:
    """Start of the first and of the last operator that is known to belong to each call."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    has_call = call >= 0
    np.minimum.at(first, call[has_call], start[has_call])
    np.maximum.at(last, call[has_call], start[has_call])
    return first, last


def _distance(start: Ints, calls: Ints, first: Ints, last: Ints) -> float:
    """The mean distance of these runs from the other operators of their calls: graphs run one after the other."""
    has_others = (calls >= 0) & (last[np.maximum(calls, 0)] >= 0)
    if not has_others.any():
        return float("inf")
    at, call = start[has_others], calls[has_others]
    return float(np.maximum(np.maximum(first[call] - at, at - last[call]), 0).mean())


def training_calls(updates: pl.DataFrame, problems: FileProblems) -> pl.DataFrame:
    """The calls that end a step, by start: where several optimizers take turns, those of one of them."""
    updates = updates.sort("start_ns")
    if "caller" not in updates.columns or updates["caller"].n_unique() == 1:
        return updates
    callers = (
        updates.with_columns(order=pl.int_range(pl.len()))
        .group_by("caller", maintain_order=True)
        .agg(first=pl.col("order").min(), last=pl.col("order").max(), calls=pl.len())
        .to_dicts()
    )
    ending = [caller["caller"] for caller in callers if not any(_follows_in_turn(other, caller) for other in callers)]
    if len(ending) < len(callers):
        message = f"{len(callers)} optimizers or training functions take turns: each step ends with the last of them"
        problems.append(("steps", message, 0))
    return updates.filter(pl.col("caller").is_in(ending))


def _follows_in_turn(caller: dict[str, int], other: dict[str, int]) -> bool:
    """Whether a caller takes turns with another, and is called after it or more often. Callers that do not take turns each have steps."""
    takes_turns = caller["first"] < other["last"] and other["first"] < caller["last"]
    if abs(caller["calls"] - other["calls"]) <= 1:
        return takes_turns and caller["first"] > other["first"]
    return takes_turns and caller["calls"] > other["calls"]


def steps_without_others(steps: pl.DataFrame, calls: pl.DataFrame, problems: FileProblems) -> pl.DataFrame:
    """Steps that begin after the functions that are called between them in some iterations only, such as every fifth evaluation."""
    if calls.is_empty() or steps.height < 2:
        return steps
    ends = steps["end_ns"].to_numpy()
    calls = calls.sort("start_ns")
    calls = calls.with_columns(iteration=pl.Series(np.searchsorted(ends, calls["start_ns"].to_numpy(), "right")))
    calls = calls.filter(pl.col("iteration") < steps.height, pl.col("start_ns") >= steps["start_ns"][0])
    present = calls.group_by("caller").agg(
        iterations=pl.col("iteration").n_unique(), later=pl.col("iteration").filter(pl.col("iteration") > 0).n_unique()
    )
    # Recording may have begun in the middle of the first iteration.
    regular = (pl.col("iterations") == steps.height) | ((pl.col("later") == steps.height - 1) & (steps.height > 2))
    regulars = present.filter(regular)["caller"].implode()
    first_calls = calls.filter(pl.col("caller").is_in(regulars)).group_by("iteration").agg(first_call_ns=pl.col("start_ns").min())
    others = (
        calls.filter(~pl.col("caller").is_in(regulars))
        .join(first_calls, on="iteration", how="left")
        .with_columns(
            first_call_ns=pl.coalesce(
                "first_call_ns", pl.col("iteration").replace_strict(range(steps.height), ends.tolist(), return_dtype=pl.Int64)
            )
        )
        .filter(pl.col("start_ns") < pl.col("first_call_ns"))
    )
    if others.is_empty():
        return steps
    for function, count in others.group_by("function", maintain_order=True).len().iter_rows():
        which = units.count(count, f"call of {function} is", f"calls of {function} are")
        problems.append(("steps", f"{which} between steps: their operators belong to no step", 0))
    after = others.group_by(row="iteration").agg(after_ns=pl.min_horizontal(pl.col("end_ns").max(), pl.col("first_call_ns").max()))
    return (
        steps.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
        .join(after.cast({"row": pl.Int64}), on="row", how="left", maintain_order="left")
        .with_columns(start_ns=pl.max_horizontal("start_ns", "after_ns"))
        .drop("row", "after_ns")
    )


def start_of_first_step(ops: pl.DataFrame, steps: pl.DataFrame, known_ns: int) -> int:
    """The start of the first step: `known_ns`, or the first operator of PyNative mode before it that all later steps have as well."""
    if steps.height < 3:
        return known_ns
    ends, starts = steps["end_ns"].to_numpy(), [known_ns]
    ops = ops.filter(pl.col("start_ns") >= steps["start_ns"][0], pl.col("start_ns") < ends[-1])
    for name, rows in _rows_by_name(ops):
        start = ops["start_ns"].to_numpy()[rows]
        counts = np.bincount(np.searchsorted(ends, start, "right"), minlength=steps.height)
        if "/" not in name and counts[0] >= counts[1] > 0 and (counts[1:] == counts[1]).all():
            starts.append(int(start[counts[0] - counts[1]]))
    return min(starts)


def repeated_graph(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, int] | None:
    """Steps where one graph ran repeatedly and its calls were not recorded: the kth runs of its operators are step k.

    Also returns the step of each operator, and the number of operators in a run that was recorded in part, at the beginning or the end.
    """
    # A name without a scope is shared by all operators of a type that PyNative mode calls.
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
            distances = [np.abs(start[rows][skip:skip + whole] - middle).mean() for skip in range(more + 1)]  # fmt: skip
            skip = int(np.argmin(distances))
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
    return steps, _step_numbers(np.arange(whole, dtype=np.int64), step), int(partial.sum())
