"""A recording as a graph of dependent durations, which can be replayed with other durations.

Nodes are stretches of the host's program (cut where it launches work, waits, or a step begins), device tasks, transfers and the meetings
of collectives. A node starts when the nodes that it depends on have ended, each plus a lag. Lags are as recorded for the dependency that
the recording shows to be the binding one, and the usual ones of the rank for the others: so a replay with unchanged durations repeats the
recording, and a replay with changed ones shows which dependency binds next.

The host's program is one chain: PyTorch's autograd thread works while the main thread waits for it. It starts at the first step.
"""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.device_work import device_work
from stepscope.analyses.shared.ranks.counterparts import matched_calls
from stepscope.analyses.shared.replays.nodes import COMMUNICATION, COPY, INPUT, KERNEL, SYNC, Graph, Parts
from stepscope.analyses.shared.steps.coverage import unrecorded_steps
from stepscope.analyses.shared.steps.host_phases import host_spans, main_threads
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_TASK_KINDS = {"kernel": KERNEL, "copy": COPY, "set": COPY, "communication": COMMUNICATION}
_READ = "aten::_local_scalar_dense"  # of `item()`: waits for the device also where no call that waits is recorded
_CALL_NS = 3_000  # a call that waits for the device takes about this long if there is nothing to wait for
_EVENT_NS = 20_000  # work starts within this time after the work of another stream that it waits for
_QUEUED = 256  # launched tasks that have not started: launch calls then wait for a free slot
_SLOW_CALL = 10  # times the median launch call, and at least:
_SLOW_CALL_NS = 50_000
_FAR = (1 << 63) // 4  # of a dependency that does not exist
_HOST_WAIT_NS = 200_000  # a thread continues within this time after the end of a transfer on another thread


@memoized
def build(trace: Trace) -> Graph:
    """The graph of all steps whose device work is completely recorded."""
    steps = trace.steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "start_ns").collect()
    steps = steps.join(unrecorded_steps(trace), on=["rank", "step"], how="anti", maintain_order="left").filter(
        pl.col("end_ns") > pl.col("start_ns")
    )
    tasks = device_work(trace).filter(pl.col("end_ns") > pl.col("start_ns")).partition_by("rank", as_dict=True)
    host = (
        host_spans(trace)
        .filter(pl.col("kind").is_in(["op", "data", "sync", "communication"]))
        .select("rank", "thread", "track", "kind", "name", "span", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("rank", "start_ns", "end_ns", descending=[False, False, True])
        .collect()
        .partition_by("rank", as_dict=True)
    )
    main: dict[int, int] = dict(main_threads(trace).iter_rows())
    parts = Parts(matched_calls(trace) if steps["rank"].n_unique() > 1 else None)
    for (rank,), rows in steps.group_by("rank", maintain_order=True):
        number = int(str(rank))
        _Rank(number, rows, tasks.get((rank,)), host.get((rank,)), main.get(number, -1)).add_to(parts)
    return parts.graph()


class _Wait(NamedTuple):
    """Stretches in which the host's program waits for a task, by start; they do not overlap."""

    start: Ints
    end: Ints
    task: Ints


class _Rank:
    """The nodes of one rank."""

    def __init__(self, rank: int, steps: pl.DataFrame, tasks: pl.DataFrame | None, host: pl.DataFrame | None, main: int) -> None:
        self.rank, self.steps, self.host, self.main = rank, steps, host, main
        self.tasks = self._with_transfers(tasks)
        self.start, self.end = self.tasks["start_ns"].to_numpy(), self.tasks["end_ns"].to_numpy()
        self.kernels = (self.tasks["kind"] == "kernel").to_numpy()
        self.linked = self.tasks["launch_ns"].is_not_null().to_numpy()
        self.launch = np.minimum(self.tasks["launch_ns"].fill_null(0).to_numpy(), self.start)
        self.launched = np.maximum(self.tasks["launched_ns"].fill_null(0).to_numpy(), self.launch)
        self.by_end = np.argsort(self.end, kind="stable")
        self.steps_on_device = self._has_steps_of_device()
        self.threads = sorted({main, *self.tasks.filter("on_device")["launch_track"].drop_nulls().unique().to_list()})

    def _with_transfers(self, tasks: pl.DataFrame | None) -> pl.DataFrame:
        """Device tasks, and the transfers that threads of the host make beside the program."""
        columns: dict[Any, Any] = {"span": pl.Int64, "kind": pl.String, "track": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}
        columns |= {"launch_ns": pl.Int64, "launched_ns": pl.Int64, "launch_track": pl.Int32, "step": pl.Int32}
        parts = [pl.DataFrame(schema={**columns, "on_device": pl.Boolean})]
        if tasks is not None:
            parts.append(tasks.select(columns.keys()).cast(columns).with_columns(on_device=True))
        if self.host is not None:
            transfers = self.host.filter(pl.col("kind") == "communication")
            parts.append(
                transfers.select(
                    *("span", "kind", "track", "start_ns", "end_ns"),
                    launch_ns="start_ns",
                    launched_ns="start_ns",
                    launch_track="thread",
                    step=pl.lit(None),
                )
                .cast(columns)
                .with_columns(on_device=False)
            )
        return pl.concat(parts).sort("start_ns", "end_ns")

    def _has_steps_of_device(self) -> bool:
        """Whether steps are ranges of the device: work belongs to the step in which it starts, also where an earlier one launched it."""
        bounds = self.steps["start_ns"].to_numpy(), self.steps["end_ns"].to_numpy()
        launched, started = intervals.enclosing(*bounds, self.launch), intervals.enclosing(*bounds, self.start)
        moved = np.flatnonzero(self.linked & (started > launched) & (launched >= 0))
        numbers = self.tasks["step"].fill_null(-1).to_numpy()[moved]
        return bool(len(moved)) and bool((self.steps["step"].to_numpy()[started[moved]] == numbers).all())

    def add_to(self, parts: Parts) -> None:
        if self.tasks["on_device"].any() and not self.linked.any():
            self._add_without_program(parts)
            return
        waits = self._waits()
        marks = [self.steps["start_ns"].to_numpy(), self.steps["end_ns"].to_numpy(), self.launch[self.linked], waits.start, waits.end]
        inputs = self._inputs()
        cuts = np.unique(np.concatenate([*marks, inputs.starts, inputs.ends]))
        cuts = cuts[(cuts >= cuts[0]) & (cuts <= max(int(self.steps["end_ns"].to_numpy().max()), int(cuts[0])))]
        inside = intervals.enclosing(waits.start, waits.end, cuts)
        cuts = cuts[(inside < 0) | (cuts == np.append(waits.start, -1)[inside])]
        if len(cuts) < 2:
            return  # nothing of the program is known
        chain = self._add_chain(parts, cuts, waits, inputs)
        tasks = self._add_tasks(parts, cuts, chain)
        waiting = np.searchsorted(cuts[:-1], waits.start)
        valid = (waiting < len(chain)) & (waits.task >= 0)
        waiting, task, until = waiting[valid], waits.task[valid], waits.end[valid]
        parts.add_edges(chain[waiting], tasks[task], until - self.end[task], on_host=True)
        if self.steps_on_device:
            self._add_steps_of_work(parts, tasks)
        else:
            self._add_steps(parts, cuts, chain)

    def _add_without_program(self, parts: Parts) -> None:
        """Work follows work, with gaps as recorded: no launch is known that relates the device to the program.

        Kernels follow each other also where a transfer ended between them, and keep the gap: a shorter transfer makes nothing run at the
        same time that did not do so in the recording.
        """
        tasks = self._add_tasks(parts, np.zeros(1, np.int64), np.empty(0, np.int64))
        kernels = np.flatnonzero(self.kernels)
        before, last = self._last_over(self.start[kernels]), self._last_over(self.start[kernels], kernels)
        parts.add_edges(tasks[kernels], np.append(tasks, -1)[last], self.start[kernels] - np.append(self.end, 0)[before])
        self._add_steps_of_work(parts, tasks)

    def _add_steps_of_work(self, parts: Parts, tasks: Ints) -> None:
        """Steps begin and end after the work before them, with gaps as recorded."""
        cuts = np.unique(np.concatenate([self.steps["start_ns"].to_numpy(), self.steps["end_ns"].to_numpy()]))
        if len(cuts) < 2:
            return
        at, zero = cuts[1:], np.zeros(len(cuts) - 1, np.int64)
        chain = parts.add_nodes(self.rank, zero, at, at, zero, zero - 1, zero + 3, zero - 1)
        before, last = self._last_over(at), self._last_over(at, np.flatnonzero(self.kernels))
        for work in (before, last):
            parts.add_edges(chain, np.append(tasks, -1)[work], at - np.append(self.end, 0)[before])
        self._add_steps(parts, cuts, chain)

    def _add_steps(self, parts: Parts, cuts: Ints, chain: Ints) -> None:
        last = np.searchsorted(cuts, self.steps["end_ns"].to_numpy(), "left") - 1
        first = np.searchsorted(cuts, self.steps["start_ns"].to_numpy(), "left") - 1
        columns = {
            "first": np.where(first >= 0, chain[np.clip(first, 0, len(chain) - 1)], -1),
            "last": chain[np.clip(last, 0, len(chain) - 1)],
        }
        parts.add_steps(self.steps.with_columns(pl.Series(name, column) for name, column in columns.items()))

    def _add_chain(self, parts: Parts, cuts: Ints, waits: _Wait, inputs: intervals.Set) -> Ints:
        start, end = cuts[:-1], cuts[1:]
        kind = np.zeros(len(start), np.int64)
        kind[intervals.enclosing(inputs.starts, inputs.ends, start) >= 0] = INPUT
        waiting = np.isin(start, waits.start[waits.task >= 0])
        kind[waiting] = SYNC
        none = np.full(len(start), -1)
        order = np.where(waiting, 0, 1)
        chain = parts.add_nodes(self.rank, kind, start, end, np.where(waiting, 0, end - start), none, order, none)
        lag = np.where(waiting, np.minimum(end - start, _CALL_NS), 0)
        parts.add_edges(chain[1:], chain[:-1], lag[1:])
        return chain

    def _add_tasks(self, parts: Parts, cuts: Ints, chain: Ints) -> Ints:
        kinds = self.tasks["kind"].cast(pl.String).replace_strict(_TASK_KINDS, return_dtype=pl.Int64).to_numpy()
        step_start, step_end = self.steps["start_ns"].to_numpy(), self.steps["end_ns"].to_numpy()
        step = intervals.enclosing(step_start, step_end, self._step_times())
        step = np.where(step >= 0, step + parts._rows, -1)
        spans = self.tasks["span"].to_numpy()
        two = np.full(len(spans), 2)
        tasks = parts.add_nodes(self.rank, kinds, self.start, self.end, self.end - self.start, spans, two, step)
        before = self._before_on_stream()
        launched_by = np.searchsorted(cuts, self.launch, "right") - 2  # the stretch that ends with the launch
        launched_by = np.where(self.linked & (launched_by >= 0) & (launched_by < len(chain)), launched_by, -1)
        call = np.where(launched_by >= 0, cuts[np.clip(launched_by + 1, 0, len(cuts) - 1)], 0)
        after_call = np.where(launched_by >= 0, self.start - call, _FAR)
        after_task = np.where(before >= 0, self.start - self.end[before], _FAR)
        latency, gap = self._usual(after_call, after_task)
        lag_call, lag_task = np.minimum(after_call, latency), np.minimum(after_task, gap)
        rest = np.minimum(after_call - lag_call, after_task - lag_task)  # not explained by launch and stream
        other = self._last_over(self.start)
        after_other = np.where(other >= 0, self.start - self.end[other], _FAR)
        near = _EVENT_NS if len(chain) else _FAR  # without a program, nothing else explains a gap
        by_other = (rest > 0) & (after_other <= near) & (after_other < np.minimum(after_call, after_task))
        parts.add_edges(tasks, np.where(by_other, tasks[other], -1), after_other)
        late = (rest > 0) & ~by_other
        by_call = after_call - lag_call <= after_task - lag_task
        lag_call, lag_task = np.where(late & by_call, after_call, lag_call), np.where(late & ~by_call, after_task, lag_task)
        parts.add_edges(tasks, np.where(launched_by >= 0, np.append(chain, -1)[launched_by], -1), lag_call, on_host=True)
        parts.add_edges(tasks, np.where(before >= 0, tasks[before], -1), lag_task)
        return tasks

    def _step_times(self) -> Ints:
        """When the step that each task belongs to was running."""
        return self.start if self.steps_on_device else np.where(self.linked, self.launch, self.start)

    def _usual(self, after_call: Ints, after_task: Ints) -> tuple[int, int]:
        """From a launch to an idle stream until work starts, and from one task to the next that is already launched."""
        at_once = (after_call <= after_task) & (after_call < _FAR)
        queued = ~at_once & (after_task < 100_000)
        latency = int(np.median(after_call[at_once])) if at_once.any() else 0
        return latency, int(np.median(after_task[queued])) if queued.any() else 0

    def _before_on_stream(self) -> Ints:
        before = np.full(len(self.start), -1, np.int64)
        track = self.tasks["track"].to_numpy()
        for stream in np.unique(track):
            rows = np.flatnonzero(track == stream)
            by_end = rows[np.argsort(self.end[rows], kind="stable")]
            before[rows] = np.append(by_end, -1)[np.searchsorted(self.end[by_end], self.start[rows], "right") - 1]
        return before

    def _last_over(self, at: Ints, tasks: Ints | None = None) -> Ints:
        """The task, of these ones, that was over last at each time, -1 for none."""
        by_end = self.by_end if tasks is None else tasks[np.argsort(self.end[tasks], kind="stable")]
        return np.append(by_end, -1)[np.searchsorted(self.end[by_end], at, "right") - 1]

    def _inputs(self) -> intervals.Set:
        if self.host is None:
            return intervals.NONE
        rows = self.host.filter(pl.col("kind") == "data", pl.col("thread") == self.main)
        return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())

    def _waits(self) -> _Wait:
        """Calls of the program that waited for a task: synchronizations, reads of a value, copies that block, full launch queues."""
        if self.host is None and not self.linked.any():  # the step is known by its device work alone
            return _Wait(*self._waited(self.steps["start_ns"].to_numpy(), self.steps["end_ns"].to_numpy()))
        starts, ends, tasks = [], [], []
        for start, end, task in (self._synchronizations(), self._blocking_launches(), self._transfer_waits()):
            starts.append(start)
            ends.append(end)
            tasks.append(task)
        start, end, task = np.concatenate(starts), np.concatenate(ends), np.concatenate(tasks)
        by_start = np.lexsort((-end, start))
        start, end, task = start[by_start], end[by_start], task[by_start]
        if len(start):  # of calls inside each other the outermost waits
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end)[:-1])
            apart = start >= reach
            start, end, task = start[apart], end[apart], task[apart]
        return _Wait(start, end, task)

    def _synchronizations(self) -> tuple[Ints, Ints, Ints]:
        if self.host is None or len(self.end) == 0:
            return _NO_WAIT
        program = self.host.filter(pl.col("thread").is_in(self.threads))
        calls = program.filter(pl.col("kind") == "sync")
        reads = program.filter(pl.col("kind") == "op", pl.col("name").cast(pl.String) == _READ)
        calls = pl.concat([calls, reads]).sort("end_ns")
        return self._waited(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())

    def _waited(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Those of the calls in which a task ended, with the last one."""
        task = self._last_over(end)
        waited = (task >= 0) & (self.end[task] > start) if len(self.end) else np.zeros(len(start), np.bool_)
        return start[waited], end[waited], task[waited]

    def _blocking_launches(self) -> tuple[Ints, Ints, Ints]:
        taken = self.launched - self.launch
        of_program = (
            self.linked & self.tasks["on_device"].to_numpy() & self.tasks["launch_track"].is_in(self.threads).fill_null(False).to_numpy()
        )
        if not of_program.any():
            return _NO_WAIT
        slow = of_program & (taken > max(_SLOW_CALL * float(np.median(taken[of_program])), _SLOW_CALL_NS))
        blocked = np.flatnonzero(slow & (self.end <= self.launched))  # a copy from pageable memory, a read
        launches = np.sort(self.launch[of_program])
        queued = np.searchsorted(launches, self.launch, "right") - np.searchsorted(np.sort(self.start[of_program]), self.launch, "right")
        full = np.flatnonzero(slow & (self.end > self.launched) & (queued >= _QUEUED))
        waits = self._waited(self.launch[full], self.launched[full])
        return (
            np.append(self.launch[blocked], waits[0]),
            np.append(self.launched[blocked], waits[1]),
            np.append(blocked, waits[2]),
        )

    def _transfer_waits(self) -> tuple[Ints, Ints, Ints]:
        """Times in which the program ran no operator until a transfer on another thread ended."""
        transfers = np.flatnonzero(~self.tasks["on_device"].to_numpy())
        if self.host is None or len(transfers) == 0:
            return _NO_WAIT
        rows = self.host.filter(pl.col("kind").is_in(["op", "data", "sync"]))
        on_transfer = pl.col("thread").is_in(self.tasks["track"][transfers].unique().implode())
        beside, around = (
            intervals.merge(*(part[name].to_numpy() for name in ("start_ns", "end_ns")))
            for part in (rows.filter(~on_transfer), rows.filter(on_transfer))
        )
        sent = intervals.merge(self.start[transfers], self.end[transfers])
        # A thread that transfers may also run operators of the program, but operators around a transfer only wait for it.
        busy = intervals.join(beside, intervals.subtract(around, sent))
        if not len(busy.starts):
            return _NO_WAIT  # nothing of the program is recorded
        silent = intervals.gaps(busy, int(self.steps["start_ns"].to_numpy().min()), int(self.steps["end_ns"].to_numpy().max()))
        by_end = transfers[np.argsort(self.end[transfers], kind="stable")]
        last = np.append(by_end, -1)[np.searchsorted(self.end[by_end], silent.ends, "right") - 1]
        late = silent.ends - self.end[last]
        waited = (last >= 0) & (self.end[last] > silent.starts) & (late <= np.maximum(_HOST_WAIT_NS, (silent.ends - silent.starts) // 5))
        return silent.starts[waited], silent.ends[waited], last[waited]


_NO_WAIT = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
