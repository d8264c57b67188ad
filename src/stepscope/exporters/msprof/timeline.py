"""msprof's timelines: Chrome trace events of calls, tasks, communication and overlap; and of iterations.

Layers are processes. Their number contains the process, the position of the layer (5 bits) and the device (5 bits).
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from stepscope.exporters.common.json_lines import encode_distinct, fill_template, json_text
from stepscope.exporters.msprof import marks as msprof_marks
from stepscope.exporters.msprof.summaries import kernels, microseconds, reduces, us, with_input_waits
from stepscope.exporters.msprof.tasks import LAYERS, NO_CONTEXT, NO_MODEL, Work, only, with_texts
from stepscope.model import intervals, span_details
from stepscope.model.intervals import Ints

_HOST = 31
_FRAMEWORK, _CANN, _HARDWARE, _CLOCK, _COMMUNICATION, _OVERLAP = 6, 7, 14, 15, 17, 20
_SAMPLES = {"NPU MEM": 18, "HBM": 19, "LLC": 21, "HCCS": 22, "PCIe": 23, "NIC": 24, "RoCE": 25, "DDR": 26, "QoS": 27, "Counters": 28}
_STEPS = 70_000
_PORTION = 20_000
_PLANES = 1024
# Tasks other than kernels that have an arrow from their launch.
_LAUNCHED = ["EVENT_RECORD", "STREAM_WAIT_EVENT", "MEMCPY_ASYNC"]
_PLANE_ARGS = (
    *("notify_id", "duration estimated(us)", "stream id", "task id", "context id", "task type", "src rank", "dst rank"),
    *("transport type", "size(Byte)", "data type", "link type", "bandwidth(GB/s)", "model id"),
)


def events(work: Work, wanted: Collection[str] | None = None) -> Iterator[pl.Series]:
    """All lines of the timeline, in portions; `wanted` selects layers, with the names of msprof's configuration."""

    def of(layer: str, lines: Iterator[pl.Series]) -> Iterator[pl.Series]:
        return lines if wanted is None or layer in wanted else iter(())

    yield from of("step_trace", step_events(work))
    yield from _calls(work, wanted)
    for device in work.devices:
        yield from of("ascend", _hardware(work, device))
        yield from of("communication", _communication(work, device))
        yield from of("freq", _clocks(work, device))
        yield from _samples(work, device, wanted)
        yield from of("overlap_analyse", _overlap(work, device))


def _pid(work: Work, place: int, device: int = _HOST) -> int:
    return work.pid << 10 | place << 5 | device


def _metadata(pid: int, place: int, name: str, label: str, threads: dict[int, str], order: dict[int, int] | None = None) -> pl.Series:
    """The names of a process and its threads, and their order."""
    rows: list[dict[str, Any]] = [_meta("process_name", pid, 0, {"name": name})]
    for tid, thread in threads.items():
        rows.append(_meta("thread_name", pid, tid, {"name": thread}))
        if order is None or tid in order:
            rows.append(_meta("thread_sort_index", pid, tid, {"sort_index": order[tid] if order else tid}))
    rows += [_meta("process_labels", pid, 0, {"labels": label}), _meta("process_sort_index", pid, 0, {"sort_index": place})]
    return pl.Series([json_text(row) for row in rows], dtype=pl.String)


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "pid": pid, "tid": tid, "args": args, "ph": "M"}


def _quoted(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Rows with these texts as JSON; nulls stay null."""
    return rows.with_columns(encode_distinct(rows[name], json_text).alias(name) for name in columns)


def _ts(column: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit('"'), microseconds(column), pl.lit('"'))


def _number(column: str | pl.Expr) -> pl.Expr:
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.String)


def _span(pid: int, name: pl.Expr | str, tid: pl.Expr | str, args: pl.Expr | None, more: str = "") -> pl.Expr:
    parts = [
        fill_template('{"name":{},"pid":' + str(pid) + ',"tid":{},"ts":{},"dur":{}', name, tid, _ts("start_ns"), _number(us("dur_ns"))),
        *([fill_template(',"args":{}', args)] if args is not None else []),
        pl.lit(more + ',"ph":"X"}'),
    ]
    return pl.concat_str(parts)


# The host


def _calls(work: Work, wanted: Collection[str] | None) -> Iterator[pl.Series]:
    layered = pl.col("level").is_in(list(LAYERS)) & (pl.col("kind") != "annotation")
    for place, name, calls in (
        (_FRAMEWORK, work.process or "framework", work.calls.filter(~layered)),
        (_CANN, "CANN", only(work.calls, layered)),
    ):
        marks = work.marks.filter(pl.col("device").is_null() & pl.lit(place == _FRAMEWORK))
        if (calls.is_empty() and marks.is_empty()) or (wanted is not None and ("cann" if place == _CANN else "msproftx") not in wanted):
            continue
        pid = _pid(work, place)
        threads = {tid: f"Thread {tid}" for tid in sorted({*calls["thread"].unique(), *marks["thread"].unique()})}
        yield _metadata(pid, place, name, "CPU", threads)
        if marks.height:
            yield from msprof_marks.on_host(work, pid)
        prefix = pl.col("level").replace_strict(LAYERS, default=None, return_dtype=pl.String) if place == _CANN else pl.lit(None, pl.String)
        title = pl.concat_str(prefix, pl.lit("@"), "name") if place == _CANN else pl.col("name")
        event = pl.col("event").fill_null(False)
        args = pl.concat_str(
            fill_template('{"Thread Id":{},"Mode":{},"level":{}', "thread", "mode", "level"),
            pl.when(event).then(fill_template(',"id":0,"item_id":{}', pl.col("item_id").cast(pl.String).fill_null("0"))),
            pl.when(~event).then(fill_template(',"id":{},"item_id":{}', "id", "item")),
            fill_template(',"connection_id":{}', "connection"),
            pl.lit("}"),
            ignore_nulls=True,
        )
        for portion in calls.iter_slices(_PORTION):
            rows = with_texts(portion).with_columns(
                title=title,
                mode=pl.coalesce("mode", "name"),
                item=pl.coalesce("item", pl.lit("0")),
                id=pl.when(pl.col("level") == "acl").then("name").otherwise(pl.lit("0")),
            )
            yield _quoted(rows, "title", "mode", "level", "id", "item").select(_span(pid, "title", "thread", args)).to_series()


# Tasks


def _hardware(work: Work, device: int) -> Iterator[pl.Series]:
    tasks = only(work.tasks, pl.col("device") == device)
    if tasks.is_empty():
        return
    pid = _pid(work, _HARDWARE, device)
    threads = {tid: f"Stream {tid}" for tid in tasks["track_stream"].drop_nulls().unique().sort().to_list()}
    yield _metadata(pid, _HARDWARE, "Ascend Hardware", f"NPU {device}", threads)
    kernel = pl.col("kind").is_in(["kernel", "communication"])
    named = pl.coalesce(pl.when(kernel).then(pl.coalesce("op_name", "name")), "category", "name")
    args = fill_template(
        '{"Model Id":{},"Task Type":{},"Physic Stream Id":{},"Task Id":{},"Batch Id":{},"Subtask Id":{},"connection_id":{}}',
        pl.col("model").fill_null(NO_MODEL),
        "type",
        "stream",
        pl.col("task").cast(pl.String).fill_null("null"),
        pl.col("batch").fill_null(0),
        pl.col("context").fill_null(NO_CONTEXT),
        pl.coalesce("connection", pl.lit(-1)),
    )
    kind = pl.coalesce(pl.when(kernel & pl.lit(work.brief)).then("runtime_type"), "category", "kind")
    callers = _callers(work)
    host = _host(work)
    yield from msprof_marks.on_device(work, pid, device)
    for portion in map(with_texts, tasks.iter_slices(_PORTION)):
        rows = _quoted(portion.with_columns(title=named, type=kind), "title", "type")
        yield rows.select(_span(pid, "title", "track_stream", args)).to_series()
        yield from _copies(portion.filter(pl.col("received_ns").is_not_null()), pid)
        yield from _arrows(_launches(work, callers, portion, device), host, pid)


def _copies(rows: pl.DataFrame, pid: int) -> Iterator[pl.Series]:
    """Copies as recorded by the scheduler, in addition to those of the task log."""
    if rows.height:
        args = fill_template(
            '{"Task Type":"other","Stream Id":{},"Task Id":{},"Receive Time":{},"Start Time":{},"End Time":{}}',
            "stream",
            "task",
            _ts("received_ns"),
            _ts("start_ns"),
            _ts(pl.col("start_ns") + pl.col("dur_ns")),
        )
        yield rows.select(_span(pid, pl.lit('"MemcopyAsync"'), "track_stream", args)).to_series()


class _Callers(NamedTuple):
    """Calls on the host, looked up by a sorted number: row numbers of the table of all calls, which is not copied."""

    number: Ints
    row: pl.Series
    calls: pl.DataFrame

    def of(self, rows: pl.DataFrame, number: str) -> pl.DataFrame:
        """Rows that have a call, with its `thread` and start (`from_ns`)."""
        rows = rows.filter(pl.col(number).is_not_null())
        wanted = rows[number].to_numpy().astype(np.int64)
        place = np.minimum(np.searchsorted(self.number, wanted), max(len(self.number) - 1, 0))
        known = pl.Series(self.number[place] == wanted) if len(self.number) else pl.Series([False] * rows.height, dtype=pl.Boolean)
        at = self.row.gather(pl.Series(place).filter(known))
        thread, start = self.calls["thread"].gather(at), self.calls["start_ns"].gather(at)
        return rows.filter(known).with_columns(thread.alias("thread"), start.alias("from_ns"))


def _callers(work: Work) -> tuple[_Callers, _Callers]:
    """Calls by span, and by connection; if several have the same connection, the first one."""
    callers = []
    for number in ("span", "connection"):
        row = work.calls.select(pl.all_horizontal(pl.col(number, "thread", "start_ns").is_not_null())).to_series().arg_true()
        numbers = work.calls[number].gather(row).to_numpy().astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        first = np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
        callers.append(_Callers(numbers[first], row.gather(order[first]), work.calls))
    return callers[0], callers[1]


def _launches(work: Work, callers: tuple[_Callers, _Callers], tasks: pl.DataFrame, device: int) -> pl.DataFrame:
    """Arrows to tasks: flow, from thread and time, to tid and time. The launch of a kernel is the time at which the runtime takes it."""
    by_span, by_connection = callers
    columns = ["flow", "thread", "from_ns", "start_ns", "track_stream"]
    if not work.tasks["task"].count():  # a source other than Ascend's: calls by span
        return by_span.of(tasks.with_columns(flow=pl.col("span").cast(pl.String)), "flow_in").select(columns)
    task_flow = sum(
        (pl.col(name).fill_null(0).cast(pl.Int128) * 2**bits for name, bits in (("stream", 64), ("task", 48), ("batch", 32))),
        pl.lit(device * 2**80, pl.Int128) + pl.col("context").fill_null(NO_CONTEXT).cast(pl.Int128),
    )
    called = pl.col("connection").cast(pl.Int128) * 2**32 + pl.col("context").fill_null(NO_CONTEXT).cast(pl.Int128)
    copy = pl.col("category") == "MEMCPY_ASYNC"
    rows = tasks.with_columns(flow=pl.when(copy).then(called).otherwise(task_flow).cast(pl.String))
    launched = by_span.of(rows.filter(pl.col("kind") == "kernel", pl.col("launched_ns").is_not_null()), "flow_in")
    others = by_connection.of(rows.filter(pl.col("category").is_in(_LAUNCHED)), "connection")
    return pl.concat([launched.with_columns(from_ns="launched_ns").select(columns), others.select(columns)])


def _host(work: Work) -> int:
    """The number of the process whose calls launch tasks."""
    return _pid(work, _CANN if work.calls["level"].is_in(list(LAYERS)).any() else _FRAMEWORK)


def _arrows(rows: pl.DataFrame, host: int, pid: int) -> Iterator[pl.Series]:
    if rows.height:
        start = fill_template(
            '{"name":"HostToDevice{}","ph":"s","cat":"HostToDevice","id":"{}","pid":' + str(host) + ',"tid":{},"ts":{}},\n',
            "flow",
            "flow",
            "thread",
            _ts("from_ns"),
        )
        end = fill_template(
            '{"name":"HostToDevice{}","ph":"f","id":"{}","ts":{},"cat":"HostToDevice","pid":' + str(pid) + ',"tid":{},"bp":"e"}',
            "flow",
            "flow",
            _ts("start_ns"),
            "track_stream",
        )
        yield rows.select(pl.concat_str(start, end)).to_series()


# Communication


def _communication(work: Work, device: int) -> Iterator[pl.Series]:
    operators = work.operators.filter(pl.col("device") == device).with_columns(pl.col("group").fill_null("unknown"))
    planes = work.planes.filter(pl.col("device") == device).with_columns(group=pl.col("communication_group").fill_null("unknown"))
    if operators.is_empty() and planes.is_empty():
        return
    pid = _pid(work, _COMMUNICATION, device)
    threads: dict[int, str] = {}
    first: dict[str, int] = {}
    free = 0
    for group in pl.concat([operators["group"], planes["group"]]).unique(maintain_order=True).to_list():
        first[group] = free
        threads[free] = f"Group {group} Communication"
        group_planes = planes.filter(pl.col("group") == group)["plane"].drop_nulls().unique().sort().to_list()
        last = group_planes[-1] if group_planes else -1
        # All planes up to the last one have a name, unless the number of the last one is invalid.
        threads |= {free + 1 + plane: f"Plane {plane}" for plane in (range(last + 1) if last < _PLANES else group_planes)}
        free += last + 2
    yield _metadata(pid, _COMMUNICATION, "Communication", f"NPU {device}", threads)
    track = pl.col("group").replace_strict(first, return_dtype=pl.Int64)
    if operators.height:
        yield (
            _quoted(operators.with_columns(tid=track), "name", "data_type", "algorithm")
            .select(
                _span(
                    pid,
                    "name",
                    "tid",
                    pl.concat_str(
                        pl.lit("{"),
                        fill_template('"rank_size":{},', "rank_size"),
                        fill_template('"connection_id":{},', "connection"),
                        fill_template('"model id":{}', pl.col("model").fill_null(NO_MODEL)),
                        fill_template(',"data_type":{}', "data_type"),
                        fill_template(',"alg_type":{}', "algorithm"),
                        fill_template(',"count":{}', "count"),
                        pl.lit("}"),
                        ignore_nulls=True,
                    ),
                )
            )
            .to_series()
        )
        rows = operators.filter(pl.col("connection").is_not_null()).with_columns(
            track_stream=track, flow=(pl.col("connection").cast(pl.Int128) * 2**32 - 1).cast(pl.String)
        )
        yield from _arrows(_callers(work)[1].of(rows, "connection"), _host(work), pid)
    for portion in planes.iter_slices(_PORTION):
        rows = portion.with_columns(tid=track + 1 + pl.col("plane"))
        rows = _quoted(rows, "name", "notify_id", "task_type", "transport", "data_type", "link")
        keys = {key: column for column, key in span_details.KEYS["communication_tasks"].items()}
        args = pl.concat_str([fill_template(f'"{key}":{{}}', _number(keys[key]).fill_null("null")) for key in _PLANE_ARGS], separator=",")
        yield rows.select(_span(pid, "name", "tid", pl.concat_str(pl.lit("{"), args, pl.lit("}")))).to_series()


# Counters


def _clocks(work: Work, device: int) -> Iterator[pl.Series]:
    """The clock of the cores: at the beginning, and each change. Ascend's exporter repeats it every millisecond."""
    rows = work.clocks.filter(pl.col("device") == device)
    if rows.height:
        pid = _pid(work, _CLOCK, device)
        yield _metadata(pid, _CLOCK, "AI Core Freq", f"NPU {device}", {})
        yield rows.select(
            fill_template(
                '{"name":"AI Core Freq","ts":{},"pid":' + str(pid) + ',"tid":0,"args":{"MHz":{}},"ph":"C"}', _ts("at_ns"), _number("mhz")
            )
        ).to_series()


def _samples(work: Work, device: int, wanted: Collection[str] | None) -> Iterator[pl.Series]:
    rows = work.samples.filter(pl.col("device") == device)
    for (layer,), part in rows.group_by("layer", maintain_order=True):
        if wanted is not None and str(layer).lower().replace(" ", "_") not in wanted:
            continue
        place = _SAMPLES[str(layer)]
        pid = _pid(work, place, device)
        yield _metadata(pid, place, str(layer), f"NPU {device}", {})
        named = _quoted(part, "counter", "field")
        yield named.select(
            fill_template(
                '{"name":{},"ts":{},"pid":' + str(pid) + ',"tid":0,"args":{{}:{}},"ph":"C"}',
                "counter",
                _ts("at_ns"),
                "field",
                _number("value"),
            )
        ).to_series()


# Overlap


def _overlap(work: Work, device: int) -> Iterator[pl.Series]:
    computed = kernels(work).filter(~pl.col("serves"))
    computing, communicating = (_union(frame.filter(pl.col("device") == device)) for frame in (computed, work.operators))
    # A kernel that serves communication is in neither set, and does not extend the range.
    tasks = only(work.tasks, pl.col("device") == device, ~(pl.col("serves") & (pl.col("category") != "AI_CPU")))
    if not len(computing.starts) and not len(communicating.starts):
        return
    pid = _pid(work, _OVERLAP, device)
    words = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    yield _metadata(pid, _OVERLAP, "Overlap Analysis", f"NPU {device}", dict(enumerate(words)), {})
    busy = intervals.join(computing, communicating)
    begin, end = int(busy.starts[0]), int(busy.ends[-1])
    if tasks.height:
        begin = min(begin, int(tasks["start_ns"].to_numpy().min()))
        end = max(end, int((tasks["start_ns"] + tasks["dur_ns"]).to_numpy().max()))
    free = intervals.gaps(busy, begin, end)
    for tid, part in enumerate((computing, communicating, intervals.subtract(communicating, computing), free)):
        for rows in pl.DataFrame({"start_ns": part.starts, "dur_ns": part.ends - part.starts}).iter_slices(_PORTION):
            yield rows.select(_span(pid, pl.lit(f'"{words[tid]}"'), pl.lit(str(tid)), None)).to_series()


def _union(rows: pl.DataFrame) -> intervals.Set:
    start = rows["start_ns"].to_numpy().astype(np.int64)
    return intervals.merge(start, start + rows["dur_ns"].to_numpy().astype(np.int64))


# Iterations


def step_events(work: Work) -> Iterator[pl.Series]:
    iterations = with_input_waits(work)
    models = {
        (device, model): place
        for place, (device, model) in enumerate(iterations.select("device", "model").unique(maintain_order=True).rows())
    }
    for device in work.devices:
        mine = {model: _STEPS + work.pid + place for (of, model), place in models.items() if of == device}
        if not mine:
            continue
        pid = _pid(work, _HARDWARE, device)
        threads = {tid: f"Step Trace(Model ID:{model})" for model, tid in mine.items()}
        yield _metadata(pid, _HARDWARE, "Ascend Hardware", f"NPU {device}", threads, {tid: _STEPS + model for model, tid in mine.items()})
        tid = pl.col("model").replace_strict(mine, return_dtype=pl.Int64)
        rows = iterations.filter(pl.col("device") == device).with_columns(tid=tid)
        yield from _iterations(rows, pid, work.pid)
        numbers = rows.select("step", "tid", "iteration")
        on_device = pl.col("device") == device
        yield _reduces(reduces(work).filter(on_device).join(numbers, on="step", maintain_order="left"), pid)
        yield _get_next(
            work.ranges.filter(on_device, pl.col("category") == "GetNext Time").join(numbers, on="step", maintain_order="left"), pid
        )


def _iterations(rows: pl.DataFrame, pid: int, process: int) -> Iterator[pl.Series]:
    forward, backward = _ts("fp_start_ns").fill_null('"N/A"'), _ts("bp_end_ns").fill_null('"N/A"')
    whole = rows.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    args = fill_template(
        '{"Iteration ID":{},"FP Start":{},"BP End":{},"Iteration End":{},"Iteration Time(us)":{}}',
        "iteration", forward, backward, _ts("end_ns"), _number(us("dur_ns")),
    )  # fmt: skip
    yield whole.select(_span(pid, fill_template('"Iteration {}"', "iteration"), "tid", args, ',"cat":"Iteration Time"')).to_series()
    both = rows.filter(pl.col("fp_start_ns").is_not_null(), pl.col("bp_end_ns").is_not_null())
    passes = both.with_columns(start_ns="fp_start_ns", dur_ns=pl.col("bp_end_ns") - pl.col("fp_start_ns"))
    args = fill_template(
        '{"Iteration ID":{},"FP Start":{},"BP End":{},"FP_BP Time(us)":{}}', "iteration", forward, backward, _number(us("dur_ns"))
    )
    yield passes.select(_span(pid, fill_template('"FP_BP Time {}"', "iteration"), "tid", args, ',"cat":"FP_BP Time"')).to_series()
    refresh = both.with_columns(start_ns="bp_end_ns", dur_ns=pl.col("end_ns") - pl.col("bp_end_ns"))
    args = fill_template(
        '{"Iteration ID":{},"BP End":{},"Iteration End":{},"Iteration Refresh(us)":{}}',
        "iteration", backward, _ts("end_ns"), _number(us("dur_ns")),
    )  # fmt: skip
    yield refresh.select(
        _span(pid, fill_template('"Iteration Refresh {}"', "iteration"), "tid", args, ',"cat":"Iteration Refresh"')
    ).to_series()
    # From the middle of the rest after the backward pass to the next forward pass: the input between them.
    name = fill_template('{"name":"Data_aug Bound {}","cat":"Data_aug Bound"', pl.col("iteration") - pl.col("other"))
    place = fill_template(',"pid":' + str(pid) + ',"tid":{},"id":"Data_aug Bound ' + str(process) + '_{}"', "tid", "tid")
    to = fill_template(',"ph":"t","ts":{}', _ts("fp_start_ns"))
    middle = pl.col("bp_end_ns") + (pl.col("end_ns") - pl.col("bp_end_ns")) // 2
    of = fill_template(',"ph":"s","ts":{}', _ts(middle))
    bound = pl.coalesce(us("bound_ns"), pl.lit(0.0))
    yield (
        both.with_columns(other=1)
        .select(pl.concat_str(name, to, place, fill_template(',"args":{"Iteration ID":{}}}', "iteration")))
        .to_series()
    )
    yield (
        both.with_columns(other=0)
        .select(pl.concat_str(name, of, place, fill_template(',"args":{"Data_aug Bound(us)":{}}}', _number(bound))))
        .to_series()
    )


def _reduces(rows: pl.DataFrame, pid: int) -> pl.Series:
    args = fill_template(
        '{"Iteration ID":{},"Reduce Start {}":{},"Reduce End {}":{}}',
        "iteration", "nth", _ts("start_ns"), "nth", _ts(pl.col("start_ns") + pl.col("dur_ns")),
    )  # fmt: skip
    return rows.select(_span(pid, fill_template('"Reduce_{}_{}"', "iteration", "nth"), "tid", args, ',"cat":"Reduce"')).to_series()


def _get_next(rows: pl.DataFrame, pid: int) -> pl.Series:
    args = fill_template(
        '{"GetNext Start":{},"GetNext End":{},"GetNext Time(us)":{}}',
        _ts("start_ns"), _ts(pl.col("start_ns") + pl.col("dur_ns")), _number(us("dur_ns")),
    )  # fmt: skip
    return rows.select(_span(pid, pl.lit('"GetNext"'), "tid", args, ',"cat":"GetNext Time"')).to_series()
