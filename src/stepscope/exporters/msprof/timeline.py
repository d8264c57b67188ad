"""msprof's timelines: Chrome trace events of calls, tasks, communication, counters and overlap."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.exporters.common.json_lines import fill_template
from stepscope.exporters.msprof import marks as msprof_marks
from stepscope.exporters.msprof.iterations import step_events
from stepscope.exporters.msprof.summaries import kernels
from stepscope.exporters.msprof.tasks import LAYERS, NO_CONTEXT, NO_MODEL, Work, filter_rows, with_texts
from stepscope.exporters.msprof.trace_lines import (
    HARDWARE,
    metadata_lines,
    number_text,
    process_number,
    span_line,
    timestamp,
    with_json_texts,
)
from stepscope.model import intervals
from stepscope.model.columns import span_details
from stepscope.model.intervals import Ints

_FRAMEWORK, _CANN, _CLOCK, _COMMUNICATION, _OVERLAP = 6, 7, 15, 17, 20
_SAMPLES = {"NPU MEM": 18, "HBM": 19, "LLC": 21, "HCCS": 22, "PCIe": 23, "NIC": 24, "RoCE": 25, "DDR": 26, "QoS": 27, "Counters": 28}
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

    def of_layer(layer: str, lines: Iterator[pl.Series]) -> Iterator[pl.Series]:
        return lines if wanted is None or layer in wanted else iter(())

    yield from of_layer("step_trace", step_events(work))
    yield from _calls(work, wanted)
    for device in work.devices:
        yield from of_layer("ascend", _hardware(work, device))
        yield from of_layer("communication", _communication(work, device))
        yield from of_layer("freq", _clocks(work, device))
        yield from _samples(work, device, wanted)
        yield from of_layer("overlap_analyse", _overlap(work, device))


# The host


def _calls(work: Work, wanted: Collection[str] | None) -> Iterator[pl.Series]:
    layered = pl.col("level").is_in(list(LAYERS)) & (pl.col("kind") != "annotation")
    for place, name, calls in (
        (_FRAMEWORK, work.process or "framework", work.calls.filter(~layered)),
        (_CANN, "CANN", filter_rows(work.calls, layered)),
    ):
        marks = work.marks.filter(pl.col("device").is_null() & pl.lit(place == _FRAMEWORK))
        if (calls.is_empty() and marks.is_empty()) or (wanted is not None and ("cann" if place == _CANN else "msproftx") not in wanted):
            continue
        pid = process_number(work, place)
        threads = {tid: f"Thread {tid}" for tid in sorted({*calls["thread"].unique(), *marks["thread"].unique()})}
        yield metadata_lines(pid, place, name, "CPU", threads)
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
            yield with_json_texts(rows, "title", "mode", "level", "id", "item").select(span_line(pid, "title", "thread", args)).to_series()


# Tasks


def _hardware(work: Work, device: int) -> Iterator[pl.Series]:
    tasks = filter_rows(work.tasks, pl.col("device") == device)
    if tasks.is_empty():
        return
    pid = process_number(work, HARDWARE, device)
    threads = {tid: f"Stream {tid}" for tid in tasks["track_stream"].drop_nulls().unique().sort().to_list()}
    yield metadata_lines(pid, HARDWARE, "Ascend Hardware", f"NPU {device}", threads)
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
        rows = with_json_texts(portion.with_columns(title=named, type=kind), "title", "type")
        yield rows.select(span_line(pid, "title", "track_stream", args)).to_series()
        yield from _copies(portion.filter(pl.col("received_ns").is_not_null()), pid)
        yield from _arrows(_launches(work, callers, portion, device), host, pid)


def _copies(rows: pl.DataFrame, pid: int) -> Iterator[pl.Series]:
    """Copies as recorded by the scheduler, in addition to those of the task log."""
    if rows.height:
        args = fill_template(
            '{"Task Type":"other","Stream Id":{},"Task Id":{},"Receive Time":{},"Start Time":{},"End Time":{}}',
            "stream",
            "task",
            timestamp("received_ns"),
            timestamp("start_ns"),
            timestamp(pl.col("start_ns") + pl.col("dur_ns")),
        )
        yield rows.select(span_line(pid, pl.lit('"MemcopyAsync"'), "track_stream", args)).to_series()


class _Callers(NamedTuple):
    """Calls on the host, looked up by a sorted number: row numbers of the table of all calls, which is not copied."""

    number: Ints
    row: pl.Series
    calls: pl.DataFrame

    def with_call(self, rows: pl.DataFrame, number: str) -> pl.DataFrame:
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
        return by_span.with_call(tasks.with_columns(flow=pl.col("span").cast(pl.String)), "flow_in").select(columns)
    task_flow = sum(
        (pl.col(name).fill_null(0).cast(pl.Int128) * 2**bits for name, bits in (("stream", 64), ("task", 48), ("batch", 32))),
        pl.lit(device * 2**80, pl.Int128) + pl.col("context").fill_null(NO_CONTEXT).cast(pl.Int128),
    )
    called = pl.col("connection").cast(pl.Int128) * 2**32 + pl.col("context").fill_null(NO_CONTEXT).cast(pl.Int128)
    copy = pl.col("category") == "MEMCPY_ASYNC"
    rows = tasks.with_columns(flow=pl.when(copy).then(called).otherwise(task_flow).cast(pl.String))
    launched = by_span.with_call(rows.filter(pl.col("kind") == "kernel", pl.col("launched_ns").is_not_null()), "flow_in")
    others = by_connection.with_call(rows.filter(pl.col("category").is_in(_LAUNCHED)), "connection")
    return pl.concat([launched.with_columns(from_ns="launched_ns").select(columns), others.select(columns)])


def _host(work: Work) -> int:
    """The number of the process whose calls launch tasks."""
    return process_number(work, _CANN if work.calls["level"].is_in(list(LAYERS)).any() else _FRAMEWORK)


def _arrows(rows: pl.DataFrame, host: int, pid: int) -> Iterator[pl.Series]:
    if rows.height:
        start = fill_template(
            '{"name":"HostToDevice{}","ph":"s","cat":"HostToDevice","id":"{}","pid":' + str(host) + ',"tid":{},"ts":{}},\n',
            "flow",
            "flow",
            "thread",
            timestamp("from_ns"),
        )
        end = fill_template(
            '{"name":"HostToDevice{}","ph":"f","id":"{}","ts":{},"cat":"HostToDevice","pid":' + str(pid) + ',"tid":{},"bp":"e"}',
            "flow",
            "flow",
            timestamp("start_ns"),
            "track_stream",
        )
        yield rows.select(pl.concat_str(start, end)).to_series()


# Communication


def _communication(work: Work, device: int) -> Iterator[pl.Series]:
    operators = work.operators.filter(pl.col("device") == device).with_columns(pl.col("group").fill_null("unknown"))
    planes = work.planes.filter(pl.col("device") == device).with_columns(group=pl.col("communication_group").fill_null("unknown"))
    if operators.is_empty() and planes.is_empty():
        return
    pid = process_number(work, _COMMUNICATION, device)
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
    yield metadata_lines(pid, _COMMUNICATION, "Communication", f"NPU {device}", threads)
    track = pl.col("group").replace_strict(first, return_dtype=pl.Int64)
    if operators.height:
        yield (
            with_json_texts(operators.with_columns(tid=track), "name", "data_type", "algorithm")
            .select(
                span_line(
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
        yield from _arrows(_callers(work)[1].with_call(rows, "connection"), _host(work), pid)
    for portion in planes.iter_slices(_PORTION):
        rows = portion.with_columns(tid=track + 1 + pl.col("plane"))
        rows = with_json_texts(rows, "name", "notify_id", "task_type", "transport", "data_type", "link")
        keys = {key: column for column, key in span_details.KEYS["communication_tasks"].items()}
        args = pl.concat_str(
            [fill_template(f'"{key}":{{}}', number_text(keys[key]).fill_null("null")) for key in _PLANE_ARGS], separator=","
        )
        yield rows.select(span_line(pid, "name", "tid", pl.concat_str(pl.lit("{"), args, pl.lit("}")))).to_series()


# Counters


def _clocks(work: Work, device: int) -> Iterator[pl.Series]:
    """The clock of the cores: at the beginning, and each change. Ascend's exporter repeats it every millisecond."""
    rows = work.clocks.filter(pl.col("device") == device)
    if rows.height:
        pid = process_number(work, _CLOCK, device)
        yield metadata_lines(pid, _CLOCK, "AI Core Freq", f"NPU {device}", {})
        yield rows.select(
            fill_template(
                '{"name":"AI Core Freq","ts":{},"pid":' + str(pid) + ',"tid":0,"args":{"MHz":{}},"ph":"C"}',
                timestamp("at_ns"),
                number_text("mhz"),
            )
        ).to_series()


def _samples(work: Work, device: int, wanted: Collection[str] | None) -> Iterator[pl.Series]:
    rows = work.samples.filter(pl.col("device") == device)
    for (layer,), part in rows.group_by("layer", maintain_order=True):
        if wanted is not None and str(layer).lower().replace(" ", "_") not in wanted:
            continue
        place = _SAMPLES[str(layer)]
        pid = process_number(work, place, device)
        yield metadata_lines(pid, place, str(layer), f"NPU {device}", {})
        named = with_json_texts(part, "counter", "field")
        yield named.select(
            fill_template(
                '{"name":{},"ts":{},"pid":' + str(pid) + ',"tid":0,"args":{{}:{}},"ph":"C"}',
                "counter",
                timestamp("at_ns"),
                "field",
                number_text("value"),
            )
        ).to_series()


# Overlap


def _overlap(work: Work, device: int) -> Iterator[pl.Series]:
    computed = kernels(work).filter(~pl.col("serves"))
    computing, communicating = (_union(frame.filter(pl.col("device") == device)) for frame in (computed, work.operators))
    # A kernel that serves communication is in neither set, and does not extend the range.
    tasks = filter_rows(work.tasks, pl.col("device") == device, ~(pl.col("serves") & (pl.col("category") != "AI_CPU")))
    if not len(computing.starts) and not len(communicating.starts):
        return
    pid = process_number(work, _OVERLAP, device)
    words = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    yield metadata_lines(pid, _OVERLAP, "Overlap Analysis", f"NPU {device}", dict(enumerate(words)), {})
    busy = intervals.join(computing, communicating)
    begin, end = int(busy.starts[0]), int(busy.ends[-1])
    if tasks.height:
        begin = min(begin, int(tasks["start_ns"].to_numpy().min()))
        end = max(end, int((tasks["start_ns"] + tasks["dur_ns"]).to_numpy().max()))
    free = intervals.gaps(busy, begin, end)
    for tid, part in enumerate((computing, communicating, intervals.subtract(communicating, computing), free)):
        for rows in pl.DataFrame({"start_ns": part.starts, "dur_ns": part.ends - part.starts}).iter_slices(_PORTION):
            yield rows.select(span_line(pid, pl.lit(f'"{words[tid]}"'), pl.lit(str(tid)), None)).to_series()


def _union(rows: pl.DataFrame) -> intervals.Set:
    start = rows["start_ns"].to_numpy().astype(np.int64)
    return intervals.merge(start, start + rows["dur_ns"].to_numpy().astype(np.int64))
