"""Chrome trace JSON as torch.profiler writes it, plain or gzip (a name that ends in .gz): for Perfetto, chrome://tracing, our reader.

Names, arguments, threads and nanoseconds are those of the source. A trace of several ranks becomes a folder of one file per rank. With
scopes=N the first N levels of the scope names (`Default/network/...`) get tracks with the execution time of each scope.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.analyses.shared.scopes import scope_ranges
from stepscope.errors import UsageError
from stepscope.exporters.common.json_lines import encode_distinct, fill_template, json_text
from stepscope.exporters.common.ranks import File, write_ranks
from stepscope.model import intervals
from stepscope.model.columns.counters import OWNER
from stepscope.model.steps.step_assignment import DEVICE_WORK, nearest_around
from stepscope.model.trace import Trace
from stepscope.readers.chrome.kineto.memory import ALLOCATORS

_BATCH = 1 << 15
# The categories of torch.profiler for the kinds of other sources.
_CATEGORIES = {
    "step": "user_annotation",
    "op": "cpu_op",
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "set": "gpu_memset",
    "communication": "communication",
    "api": "cuda_runtime",
    "sync": "cuda_sync",
    "python": "python_function",
    "annotation": "user_annotation",
}
_DEVICE_TYPES = {"cpu": 0, "gpu": 1, "xpu": 12, "mps": 13, "mtia": 19, "npu": 20}

FILE = "trace.json.gz"
ENDINGS = (".json", ".gz")


def export(trace: Trace, out: Path, *, overwrite: bool = False, scopes: int = 0) -> None:
    if scopes < 0:
        raise UsageError(f"scopes is {scopes}; expected the number of scope levels that get a track")
    write_ranks(trace, out, ".json.gz", functools.partial(_write_file, scopes=scopes), overwrite=overwrite)


def _write_file(trace: Trace, rank: int, file: File, scopes: int) -> None:
    file.write(json_text(trace_header(trace, rank))[:-1].encode() + b',\n"traceEvents": [\n')
    write_events(trace, file, scopes)
    file.write(b"\n]}\n")


def write_events(trace: Trace, file: File, scopes: int = 0) -> None:
    """Write the events of a trace of one rank, with commas between them."""
    separator = b""
    for lines in itertools.chain(_event_lines(trace), _scope_lines(trace, scopes)):
        if len(lines):
            file.write(separator + ",\n".join(lines).encode())
            separator = b",\n"


_HEADER_TABLES = ("steps", "devices", "pipeline", "links", "sharded_operators")
_OVERHEAD_OPTIONS = ("with_stack", "stack_hz", "record_shapes", "profile_memory")  # they determine how much recording slowed the host


def trace_header(trace: Trace, rank: int) -> dict[str, Any]:
    """The header: the source, and small tables that the events do not contain."""
    meta = trace.meta
    header: dict[str, Any] = {"schemaVersion": 1} if meta.framework == "pytorch" else {}
    header |= meta.versions | meta.extra | {name: int(bool(value)) for name, value in meta.options.items()}
    header |= {"windows": msgspec.to_builtins(meta.windows)} if meta.windows else {}
    job = header.get("distributedInfo")
    if isinstance(job, dict) or rank or meta.world_size:
        header["distributedInfo"] = (job if isinstance(job, dict) else {}) | {"rank": rank}
        header["distributedInfo"] |= {"world_size": meta.world_size} if meta.world_size else {}
    if (groups := _process_groups(trace)) and "distributedInfo" in header:
        header["distributedInfo"]["pg_config"] = groups
    hosts = trace.table("hosts").select(pl.col("host").cast(pl.String)).collect()["host"].to_list()
    header |= {"host": hosts[0]} if hosts else {}
    devices = trace.table("devices").select(id="device", name="name", totalGlobalMem="memory_bytes", numSms="cores").collect()
    header["deviceProperties"] = [{key: value for key, value in chip.items() if value is not None} for chip in devices.to_dicts()]
    if meta.format != "chrome":
        tables = {name: trace.table(name).drop("rank").collect().to_dicts() for name in _HEADER_TABLES}
        tables["tracks"] = _tracks(trace).drop("pid_json", "tid_json").to_dicts()
        units = trace.table("counters").select(pl.col("name", "unit").cast(pl.String)).unique().drop_nulls().collect()
        options = {name: meta.options[name] for name in _OVERHEAD_OPTIONS if name in meta.options}
        header["stepscope"] = {"framework": meta.framework, "options": options, **tables, "units": dict(units.iter_rows())}
        header["stepscope"]["steps_by_time"] = _steps_by_time(trace)
        header["stepscope"]["unprofiled_steps"] = [msgspec.to_builtins(steps) for steps in meta.unprofiled_steps]
    if (problems := trace.table("problems").drop("rank").collect()).height:
        header["stepscopeProblems"] = problems.to_dicts()  # data that is missing because parts of the source could not be read
    return header


def _process_groups(trace: Trace) -> list[dict[str, Any]]:
    """The groups of the rank as torch.profiler writes them."""
    rows = trace.table("process_groups").select(pl.col("group", "description").cast(pl.String), "members").collect()
    return [
        {"pg_name": name, **({"pg_desc": text} if text else {}), "ranks": [int(rank) for rank in (members or "").split(",") if rank]}
        for name, text, members in rows.iter_rows()
    ]


def _steps_by_time(trace: Trace) -> bool:
    """Whether device work belongs to another step than its launch, as with steps that the device marked."""
    launches = trace.spans.select("rank", "step", flow_in="span")
    work = trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK), pl.col("flow_in").is_not_null())
    differs = work.join(launches, on=["rank", "flow_in"], suffix="_launch").select(pl.col("step").ne_missing(pl.col("step_launch")).any())
    return bool(differs.collect(engine="streaming").item())


def _event_lines(trace: Trace) -> Iterator[pl.Series]:
    """The lines of all events, in batches. Spans come first, since a reader numbers tracks in the order of the file."""
    tracks = _tracks(trace)
    yield from _span_lines(trace, tracks)
    yield from _flow_lines(trace, tracks)
    yield from _step_lines(trace, tracks)
    events, samples = _allocator_events(trace), _samples(trace)
    yield from _memory_lines(trace, tracks, events, samples)
    yield from _counter_lines(tracks, samples.join(events, on=_EVENT_KEY, how="anti", maintain_order="left"))
    yield _metadata_lines(tracks)


def _tracks(trace: Trace) -> pl.DataFrame:
    """The tracks with process and thread as JSON: numbers where they are numbers."""
    tracks = trace.table("tracks").with_columns(pl.col("group", "kind").cast(pl.String)).collect()
    groups = {group: str(number) for number, group in enumerate(tracks["group"].unique(maintain_order=True).to_list())}
    tracks = tracks.with_columns(
        pid=pl.coalesce("pid", pl.col("group").replace_strict(groups, return_dtype=pl.String)),
        tid=pl.coalesce("tid", pl.col("track").cast(pl.String)),
    )
    return tracks.with_columns(encode_distinct(tracks[name], _number_or_text).alias(f"{name}_json") for name in ("pid", "tid"))


def _metadata_lines(tracks: pl.DataFrame) -> pl.Series:
    """Names and order of processes and threads."""
    lines: dict[tuple[str, ...], str] = {}
    for row in tracks.sort("sort").iter_rows(named=True):
        group, label, pid = row["group"] or "", row["label"] or "", f'"pid":{row["pid_json"]}'
        is_host = group.endswith(f" {row['pid']}") and row["kind"] != "stream"
        process = {
            "process_name": {"name": group.removesuffix(f" {row['pid']}") if is_host else group},
            "process_labels": {"labels": "CPU" if is_host else group},
            "process_sort_index": {"sort_index": row["sort"] or 0},
        }
        for name, args in process.items():
            lines.setdefault((name, row["pid"]), f'{{"ph":"M","name":"{name}",{pid},"args":{json_text(args)}}}')
        thread = {"thread_sort_index": {"sort_index": row["sort"] or 0}}
        if row["kind"] != "async":  # annotations share the thread of their stream, which has the name of the stream
            thread["thread_name"] = {"name": label.removesuffix(" annotations")}
        for name, args in thread.items():
            lines[name, row["pid"], row["tid"]] = f'{{"ph":"M","name":"{name}",{pid},"tid":{row["tid_json"]},"args":{json_text(args)}}}'
    return pl.Series(list(lines.values()), dtype=pl.String)


def _span_lines(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    threads = tracks.select("track", "pid_json", "tid_json", track_kind="kind")
    is_chrome = trace.meta.format == "chrome"
    category = pl.col("category").cast(pl.String) if is_chrome else pl.col("kind").cast(pl.String).replace(_CATEGORIES)
    spans = trace.table("spans").with_columns(
        category=pl.when(category != "").then(category),
        source_category=pl.col("category").cast(pl.String),
        name=pl.col("name").cast(pl.String),
        args=pl.when(pl.col("args") != "{}").then("args"),
    )
    args = fill_template(',"args":{}', pl.col("args"))
    if not is_chrome:
        operators = trace.table("spans").select(pl.col("op").unique().drop_nulls()).collect().to_series()
        args = pl.concat_str(
            fill_template(',"args":{}', _torch_args(operators)), fill_template(',"stepscope":{}', _hint()), ignore_nulls=True
        )
    is_async, is_instant = pl.col("track_kind") == "async", pl.col("kind") == "instant"
    key = [
        fill_template(',"cat":{}', "category_json"),
        fill_template(',"name":{}', "name_json"),
        fill_template(',"pid":{}', "pid_json"),
        pl.when(~is_async).then(fill_template(',"tid":{}', "tid_json")),
    ]
    start, number = fill_template(',"ts":{}', _microseconds("start_ns")), fill_template(',"id":{}', "span")
    end = fill_template(',"ts":{}', _microseconds(pl.col("start_ns") + pl.col("dur_ns")))
    line = (
        pl.when(is_async & is_instant)
        .then(_line(pl.lit('{"ph":"n"'), *key, number, start, args))
        .when(is_async)
        .then(_line(pl.lit('{"ph":"b"'), *key, number, start, args, pl.lit('},\n{"ph":"e"'), *key, number, end))
        .when(is_instant)
        .then(_line(pl.lit('{"ph":"i","s":"t"'), *key, start, args))
        .otherwise(_line(pl.lit('{"ph":"X"'), *key, start, fill_template(',"dur":{}', _microseconds("dur_ns")), args))
    )
    for batch in spans.collect_batches(chunk_size=_BATCH, maintain_order=True):
        rows = batch.join(threads, on="track", how="left", maintain_order="left").with_columns(
            encode_distinct(batch["name"], json_text).alias("name_json"),
            encode_distinct(batch["category"], json_text).alias("category_json"),
        )
        yield rows.select(line).to_series()


def _torch_args(operators: pl.Series) -> pl.Expr:
    """The arguments of a span of another source, with its columns under the names of torch.profiler."""
    # Operator and device work share a number; a negative one cannot collide with those of the source.
    operator = pl.coalesce("op", pl.when(pl.col("span").is_in(operators.implode())).then("span"))
    columns = {
        "External id": -operator - 2,
        "Input Dims": pl.col("shapes").cast(pl.String),
        "Input type": pl.col("dtypes").cast(pl.String),
        "flops": pl.col("flops"),
        "bytes": pl.col("bytes"),
        "correlation": pl.col("correlation"),
    }
    args = pl.col("args").fill_null("{}").str.strip_chars()
    added = pl.concat_str(
        [
            pl.when(~args.str.contains(f'"{key}"', literal=True)).then(fill_template(f'"{key}":{{}},', value))
            for key, value in columns.items()
        ],
        ignore_nulls=True,
    )
    both = pl.concat_str(pl.lit("{"), added, args.str.slice(1)).str.replace(r",\s*\}$", "}")
    return pl.when((added == "") & pl.col("args").is_null()).then(None).otherwise(both)


def _hint() -> pl.Expr:
    """The columns of a span of another source that have no counterpart in this format."""
    kind, op_type, scope = (pl.col(name).cast(pl.String) for name in ("kind", "op_type", "scope"))
    is_beside = pl.col("track_kind") == "annotation"
    return pl.struct(kind=kind, type=op_type, scope=scope, category="source_category", beside=is_beside).struct.json_encode()


def _flow_lines(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    """An arrow from the cause of each span to the span. Its ends belong to the outermost spans that start at their times."""
    ends = trace.table("spans").filter(pl.col("flow_in").is_not_null()).select("span", "track", "start_ns", "kind", "flow_in")
    causes = trace.table("spans").select("span", "track", "start_ns")
    arrows = ends.join(causes, left_on="flow_in", right_on="span", suffix="_from").sort("span").collect()
    threads = tracks.select("track", "pid_json", "tid_json")
    category = pl.when(pl.col("kind").is_in(DEVICE_WORK)).then(pl.lit("ac2g")).otherwise(pl.lit("fwdbwd"))
    key = fill_template(',"cat":"{}","name":"{}","id":{}', category, category, "span")
    line = _line(
        pl.lit('{"ph":"s"'),
        key,
        fill_template(',"pid":{},"tid":{},"ts":{}', "pid_json_from", "tid_json_from", _microseconds("start_ns_from")),
        pl.lit('},\n{"ph":"f","bp":"e"'),
        key,
        fill_template(',"pid":{},"tid":{},"ts":{}', "pid_json", "tid_json", _microseconds("start_ns")),
    )
    for rows in arrows.iter_slices(_BATCH):
        rows = rows.join(threads, on="track", how="left", maintain_order="left")  # noqa: PLW2901
        rows = rows.join(threads, left_on="track_from", right_on="track", how="left", maintain_order="left", suffix="_from")  # noqa: PLW2901
        yield rows.select(line).to_series()


def _step_lines(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    """Markers on a track of their own, for steps without spans."""
    if trace.table("spans").filter(pl.col("kind") == "step").head(1).collect().height == 0:
        is_marked = ~pl.col("how").cast(pl.String).is_in(["whole", "inferred"])
        steps = trace.table("steps").filter(is_marked).with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
        line = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","pid":{},"tid":"steps","ts":{},"dur":{}}'
        process = pl.lit(_first_process(tracks))
        yield steps.select(fill_template(line, "step", process, _microseconds("start_ns"), _microseconds("dur_ns"))).to_series()


def _memory_lines(trace: Trace, tracks: pl.DataFrame, events: pl.DataFrame, samples: pl.DataFrame) -> Iterator[pl.Series]:
    """Allocations and releases as [memory] instants, with the totals of the memory counters at that time."""
    for total in ("allocated", "reserved"):
        totals = samples.filter(pl.col("total") == total).select(*_EVENT_KEY, pl.col("value").cast(pl.Int64, strict=False).alias(total))
        events = events.join(totals, on=_EVENT_KEY, how="left", maintain_order="left")
    events = _add_tracks(trace, events).join(tracks.select("track", "pid_json", "tid_json"), on="track", how="left", maintain_order="left")
    line = _line(
        pl.lit('{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]"'),
        fill_template(',"pid":{},"tid":{}', pl.col("pid_json").fill_null(_first_process(tracks)), pl.col("tid_json").fill_null('"memory"')),
        fill_template(',"ts":{},"args":{"Addr":{},"Bytes":{}', _microseconds("at_ns"), "address", "bytes"),
        fill_template(',"Device Type":{}', pl.col("owner").replace_strict(_DEVICE_TYPES, default=99, return_dtype=pl.Int32)),
        fill_template(',"Device Id":{}', pl.col("number").cast(pl.Int32, strict=False).fill_null(-1)),
        fill_template(',"stepscope device":"{}"', "device") if trace.meta.format != "chrome" else pl.lit(""),
        fill_template(',"Total Allocated":{}', "allocated"),
        fill_template(',"Total Reserved":{}', "reserved"),
        pl.lit("}"),
    )
    for rows in events.iter_slices(_BATCH):
        yield rows.select(line).to_series()


def _counter_lines(tracks: pl.DataFrame, samples: pl.DataFrame) -> Iterator[pl.Series]:
    """Counters, each with the last word of its name as the key: a reader joins name and key with a blank."""
    line = '{"ph":"C","name":{},"pid":{},"ts":{},"args":{{}:{}}}'
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value").cast(pl.String)).otherwise(pl.lit("null"))
    for rows in samples.iter_slices(_BATCH):
        name = encode_distinct(rows["name"], lambda text: json_text(text.rpartition(" ")[0] if " " in text else text)).alias("name")
        key = encode_distinct(rows["name"], lambda text: json_text(text.rpartition(" ")[2] if " " in text else "value")).alias("key")
        process = pl.lit(_first_process(tracks))
        yield rows.with_columns(name, key).select(fill_template(line, "name", process, _microseconds("at_ns"), "key", value)).to_series()


def _scope_lines(trace: Trace, levels: int) -> Iterator[pl.Series]:
    """A process for the scopes of each device, with a thread for each level."""
    scopes = scope_ranges(trace, levels) if levels else None
    if scopes is None or scopes.is_empty():
        return
    process = encode_distinct(scopes.select(pl.format("scopes of {}", "group")).to_series(), json_text).alias("pid")
    rows = scopes.with_columns(
        process, encode_distinct(scopes["scope"], json_text).alias("name"), dur_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    threads = rows.select("pid", "level").unique().sort("pid", "level")
    line = '{"ph":"M","name":"process_name","pid":{},"args":{"name":{}}}'
    yield rows.select("pid").unique().select(fill_template(line, "pid", "pid")).to_series()
    line = '{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{"name":"level {}"}}'
    yield threads.select(fill_template(line, "pid", "level", "level")).to_series()
    line = '{"ph":"X","cat":"scopes","name":{},"pid":{},"tid":{},"ts":{},"dur":{}}'
    yield rows.select(fill_template(line, "name", "pid", "level", _microseconds("start_ns"), _microseconds("dur_ns"))).to_series()


_EVENT_KEY = ["device", "at_ns", "nth"]  # the nth event of a device at one time


def _allocator_events(trace: Trace) -> pl.DataFrame:
    """Allocations and releases in the order of time; at one time and address, in the order of the blocks."""
    blocks = (
        trace.table("allocations")
        .select(pl.col("device", "owner", "op").cast(pl.String), "number", "address", "bytes", "alloc_ns", "free_ns")
        .sort("device", "address", pl.coalesce("alloc_ns", "free_ns"), maintain_order=True)
        .with_row_index("block")
        # This format pairs a release with its allocation by the address: a block without one gets a number of its own.
        .with_columns(address=pl.coalesce("address", pl.col("block").cast(pl.UInt64) + 1))
        .collect()
    )
    columns = ["block", "device", "owner", "number", "address", "op", "bytes", "at_ns", "release"]
    allocations = blocks.with_columns(at_ns="alloc_ns", release=False).select(columns)
    releases = blocks.with_columns(-pl.col("bytes"), op=pl.lit(None, pl.String), at_ns="free_ns", release=True).select(columns)
    events = pl.concat([allocations, releases]).drop_nulls("at_ns").sort("at_ns", "block", "release")
    return events.with_columns(nth=pl.int_range(pl.len()).over("device", "at_ns"))


def _samples(trace: Trace) -> pl.DataFrame:
    """Samples of the counters; those of allocators with the total that they count and the key of the memory event."""
    series = pl.col("series").cast(pl.String)
    is_total = (pl.col("unit").cast(pl.String) == "bytes") & series.is_in(["allocated", "reserved"]) & (OWNER != "")
    columns = {"total": pl.when(is_total).then(series), "device": pl.when(is_total).then(OWNER)}
    samples = trace.table("counters").select("at_ns", "value", pl.col("name").cast(pl.String), **columns).collect()
    return samples.with_columns(nth=pl.int_range(pl.len()).over("total", "device", "at_ns"))


def _add_tracks(trace: Trace, events: pl.DataFrame) -> pl.DataFrame:
    """Memory events on a track on which the allocating operator is the innermost span, so that readers find it."""
    is_op, name = pl.col("kind") == "op", pl.col("name").cast(pl.String)
    spans = trace.table("spans").filter(is_op).select("track", name, "start_ns", "dur_ns").collect()
    tracks = spans.select("track", op="name").unique()
    choices = events.with_row_index("event").select("event", "at_ns", "op").join(tracks, on="op").sort("event", "track")
    start, at = spans["start_ns"].to_numpy(), choices["at_ns"].to_numpy()
    nesting = intervals.nest(
        np.concatenate((spans["track"].to_numpy(), choices["track"].to_numpy())).astype(np.int64),
        np.concatenate((start, at)),
        np.concatenate((start + spans["dur_ns"].to_numpy(), at)),
    )
    # As in the reader: operators that only allocate are skipped, unless there is no other.
    innermost = nesting.parent[spans.height :]
    needs_memory = ~spans["name"].str.contains(ALLOCATORS).to_numpy()
    operator = nearest_around(needs_memory, nesting.parent[: spans.height], innermost)
    operator = np.where(operator >= 0, operator, innermost)
    if choices.height:
        choices = choices.filter(pl.Series(operator >= 0) & (spans["name"].gather(np.maximum(operator, 0)) == choices["op"]))
    first = choices.unique("event", keep="first", maintain_order=True).select("event", "track")
    return events.with_row_index("event").join(first, on="event", how="left", maintain_order="left")


def _first_process(tracks: pl.DataFrame) -> str:
    """The process for events without a thread: that of the first thread."""
    threads = tracks.filter(pl.col("kind") == "thread", pl.col("pid_json").str.contains(r"^\d+$")).sort("sort")
    return str(threads["pid_json"][0]) if threads.height else "0"


def _line(*parts: pl.Expr) -> pl.Expr:
    """An event; null parts are left out."""
    return pl.concat_str(*parts, pl.lit("}"), ignore_nulls=True)


def _microseconds(column: str | pl.Expr) -> pl.Expr:
    """Exact: the nanoseconds are the three digits after the point."""
    ns = pl.col(column) if isinstance(column, str) else column
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return fill_template("{}{}.{}", sign, ns.abs() // 1000, (ns.abs() % 1000).cast(pl.String).str.zfill(3))


def _number_or_text(text: str) -> str:
    return text if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else json_text(text)
