"""Chrome trace JSON as torch.profiler writes it, plain or gzip (a name that ends in .gz): for Perfetto, chrome://tracing, our reader.

Names, arguments, threads and nanoseconds are the source's own. A trace of several ranks becomes a folder of one file per rank. With
scopes=N the first N levels of the scope names (`Default/network/...`) stand on lanes of their own, when work of each ran.
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

from stepscope import intervals
from stepscope.analyses._scopes import stretches
from stepscope.errors import UsageError
from stepscope.exporters._lines import filled as _filled
from stepscope.exporters._lines import json_of as _json_of
from stepscope.exporters._lines import json_text as _json
from stepscope.exporters._ranks import File, write_ranks
from stepscope.readers._kineto import ALLOCATORS, nearest
from stepscope.step_assignment import DEVICE_WORK
from stepscope.trace import Trace

_BATCH = 1 << 15
_DEVICE_WORK = ["kernel", "copy", "set", "communication"]
# How the words of other sources are said in a trace of torch.profiler.
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


def export(trace: Trace, out: Path, *, overwrite: bool = False, scopes: int = 0) -> None:
    if scopes < 0:
        raise UsageError(f"scopes is {scopes}; expected how many levels of scopes get a lane")
    write_ranks(trace, out, ".json.gz", functools.partial(_write_to, scopes=scopes), overwrite=overwrite)


def _write_to(trace: Trace, rank: int, file: File, scopes: int) -> None:
    file.write(_json(header_of(trace, rank))[:-1].encode() + b',\n"traceEvents": [\n')
    write_events(trace, file, scopes)
    file.write(b"\n]}\n")


def write_events(trace: Trace, file: File, scopes: int = 0) -> None:
    """The events of a trace of one rank, with commas between them."""
    separator = b""
    for lines in itertools.chain(_events(trace), _scopes(trace, scopes)):
        if len(lines):
            file.write(separator + ",\n".join(lines).encode())
            separator = b",\n"


_SLOWING = ("with_stack", "stack_hz", "record_shapes", "profile_memory")  # options that say how much recording slowed the host


def header_of(trace: Trace, rank: int) -> dict[str, Any]:
    """What stands beside the events: where they come from, and small tables that they do not tell."""
    meta = trace.meta
    header: dict[str, Any] = {"schemaVersion": 1} if meta.framework == "pytorch" else {}
    header |= meta.versions | meta.extra | {name: int(bool(value)) for name, value in meta.options.items()}
    said = header.get("distributedInfo")
    if isinstance(said, dict) or rank or meta.world_size:
        header["distributedInfo"] = (said if isinstance(said, dict) else {}) | {"rank": rank}
        header["distributedInfo"] |= {"world_size": meta.world_size} if meta.world_size else {}
    header["deviceProperties"] = [
        {key: value for key, value in chip.items() if value is not None}
        for chip in trace.table("devices")
        .select(id="device", name="name", totalGlobalMem="memory_bytes", numSms="cores")
        .collect()
        .to_dicts()
    ]
    if meta.format != "chrome":
        tables = {name: trace.table(name).drop("rank").collect().to_dicts() for name in ("steps", "devices", "pipeline", "links")}
        tables["tracks"] = _tracks(trace).drop("pid_json", "tid_json").to_dicts()
        units = trace.table("counters").select(pl.col("name", "unit").cast(pl.String)).unique().drop_nulls().collect()
        options = {name: meta.options[name] for name in _SLOWING if name in meta.options}
        header["stepscope"] = {"framework": meta.framework, "options": options, **tables, "units": dict(units.iter_rows())}
        header["stepscope"]["steps_by_time"] = _steps_by_time(trace)
        header["stepscope"]["unprofiled_steps"] = [msgspec.to_builtins(one) for one in meta.unprofiled_steps]
    if (problems := trace.table("problems").drop("rank").collect()).height:
        header["stepscopeProblems"] = problems.to_dicts()  # what this file lacks because its source could not be read whole
    return header


def _steps_by_time(trace: Trace) -> bool:
    """Whether device work belongs to another step than its launch, as where steps are the device's own."""
    launches = trace.spans.select("rank", "step", flow_in="span")
    work = trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK), pl.col("flow_in").is_not_null())
    found = work.join(launches, on=["rank", "flow_in"], suffix="_launch").select(pl.col("step").ne_missing(pl.col("step_launch")).any())
    return bool(found.collect(engine="streaming").item())


def _events(trace: Trace) -> Iterator[pl.Series]:
    """The lines of all events, in portions: spans first, for a reader numbers lanes as they come."""
    tracks = _tracks(trace)
    yield from _spans(trace, tracks)
    yield from _flows(trace, tracks)
    yield from _steps(trace, tracks)
    yield from _memory(trace, tracks)
    yield _metadata(tracks)


def _tracks(trace: Trace) -> pl.DataFrame:
    """The lanes with process and thread as JSON: numbers where they are numbers."""
    tracks = trace.table("tracks").with_columns(pl.col("group", "kind").cast(pl.String)).collect()
    groups = {group: str(number) for number, group in enumerate(tracks["group"].unique(maintain_order=True).to_list())}
    tracks = tracks.with_columns(
        pid=pl.coalesce("pid", pl.col("group").replace_strict(groups, return_dtype=pl.String)),
        tid=pl.coalesce("tid", pl.col("track").cast(pl.String)),
    )
    return tracks.with_columns(
        _json_of(tracks["pid"], _number_or_text).alias("pid_json"), _json_of(tracks["tid"], _number_or_text).alias("tid_json")
    )


def _metadata(tracks: pl.DataFrame) -> pl.Series:
    """Names and order of processes and threads."""
    lines: dict[tuple[str, ...], str] = {}
    for row in tracks.sort("sort").iter_rows(named=True):
        process, label, here = row["group"] or "", row["label"] or "", f'"pid":{row["pid_json"]}'
        own_name = process.endswith(f" {row['pid']}") and row["kind"] != "stream"
        said = {
            "process_name": {"name": process.removesuffix(f" {row['pid']}") if own_name else process},
            "process_labels": {"labels": "CPU" if own_name else process},
            "process_sort_index": {"sort_index": row["sort"] or 0},
        }
        lines |= {
            (name, row["pid"]): f'{{"ph":"M","name":"{name}",{here},"args":{_json(args)}}}'
            for name, args in said.items()
            if (name, row["pid"]) not in lines
        }
        said = {"thread_sort_index": {"sort_index": row["sort"] or 0}}
        if row["kind"] != "async":  # ranges that annotate a stream share its thread: its name is the stream's
            said["thread_name"] = {"name": label.removesuffix(" annotations")}
        thread = f'{here},"tid":{row["tid_json"]}'
        lines |= {
            (name, row["pid"], row["tid"]): f'{{"ph":"M","name":"{name}",{thread},"args":{_json(args)}}}' for name, args in said.items()
        }
    return pl.Series(list(lines.values()), dtype=pl.String)


def _spans(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    lanes = tracks.select("track", "pid_json", "tid_json", lane="kind")
    category = pl.col("category").cast(pl.String)
    if trace.meta.format != "chrome":
        word = pl.col("kind").cast(pl.String)
        category = word.replace(_CATEGORIES)
    spans = trace.table("spans").with_columns(
        category=pl.when(category != "").then(category),
        own_category=pl.col("category").cast(pl.String),
        name=pl.col("name").cast(pl.String),
        args=pl.when(pl.col("args") != "{}").then("args"),
    )
    launchers = trace.table("spans").select(pl.col("op").unique().drop_nulls()).collect().to_series()
    for batch in spans.collect_batches(chunk_size=_BATCH, maintain_order=True):
        rows = batch.join(lanes, on="track", how="left", maintain_order="left").with_columns(
            _json_of(batch["name"], _json).alias("name_json"), _json_of(batch["category"], _json).alias("category_json")
        )
        apart, moment = pl.col("lane") == "async", pl.col("kind") == "instant"
        about = [
            _filled(',"cat":{}', "category_json"),
            _filled(',"name":{}', "name_json"),
            _filled(',"pid":{}', "pid_json"),
            pl.when(~apart).then(_filled(',"tid":{}', "tid_json")),
        ]
        args = _filled(',"args":{}', pl.col("args"))
        if trace.meta.format != "chrome":
            args = pl.concat_str(_filled(',"args":{}', _arguments(launchers)), _filled(',"stepscope":{}', _hint()), ignore_nulls=True)
        start, number = _filled(',"ts":{}', _microseconds("start_ns")), _filled(',"id":{}', "span")
        end = _filled(',"ts":{}', _microseconds(pl.col("start_ns") + pl.col("dur_ns")))
        line = (
            pl.when(apart & moment)
            .then(_line(pl.lit('{"ph":"n"'), *about, number, start, args))
            .when(apart)
            .then(_line(pl.lit('{"ph":"b"'), *about, number, start, args, pl.lit('},\n{"ph":"e"'), *about, number, end))
            .when(moment)
            .then(_line(pl.lit('{"ph":"i","s":"t"'), *about, start, args))
            .otherwise(_line(pl.lit('{"ph":"X"'), *about, start, _filled(',"dur":{}', _microseconds("dur_ns")), args))
        )
        yield rows.select(line).to_series()


def _arguments(launchers: pl.Series) -> pl.Expr:
    """What other sources say of a span, in the words of torch.profiler, besides their own arguments."""
    # Operator and device work share a number, which is negative so that none of the source's own is taken for it.
    operator = pl.coalesce("op", pl.when(pl.col("span").is_in(launchers.implode())).then("span"))
    said = [
        ("External id", -operator - 2),
        ("Input Dims", pl.col("shapes").cast(pl.String)),
        ("Input type", pl.col("dtypes").cast(pl.String)),
        ("flops", pl.col("flops")),
        ("bytes", pl.col("bytes")),
        ("correlation", pl.col("correlation")),
    ]
    own = pl.col("args").fill_null("{}").str.strip_chars()
    more = pl.concat_str(
        [pl.when(~own.str.contains(f'"{key}"', literal=True)).then(_filled(f'"{key}":{{}},', value)) for key, value in said],
        ignore_nulls=True,
    )
    both = pl.concat_str(pl.lit("{"), more, own.str.slice(1)).str.replace(r",\s*\}$", "}")
    return pl.when((more == "") & pl.col("args").is_null()).then(None).otherwise(both)


def _hint() -> pl.Expr:
    """What a reader of this format could not know of another source's span."""
    words = pl.struct(kind=pl.col("kind").cast(pl.String), type=pl.col("op_type").cast(pl.String), scope=pl.col("scope").cast(pl.String))
    return words.struct.with_fields(category="own_category", beside=pl.col("lane") == "annotation").struct.json_encode()


def _flows(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    """An arrow from each span's cause to it. Its ends belong to the outermost spans that start where they do."""
    ends = trace.table("spans").filter(pl.col("flow_in").is_not_null()).select("span", "track", "start_ns", "kind", "flow_in")
    causes = trace.table("spans").select("span", "track", "start_ns")
    pairs = ends.join(causes, left_on="flow_in", right_on="span", suffix="_from").sort("span").collect()
    lanes = tracks.select("track", "pid_json", "tid_json")
    word = pl.when(pl.col("kind").is_in(_DEVICE_WORK)).then(pl.lit("ac2g")).otherwise(pl.lit("fwdbwd"))
    for start in range(0, pairs.height, _BATCH):
        rows = pairs.slice(start, _BATCH).join(lanes, on="track", how="left", maintain_order="left")
        rows = rows.join(lanes, left_on="track_from", right_on="track", how="left", maintain_order="left", suffix="_from")
        rows = rows.with_columns(word=word)
        about = [_filled(',"cat":"{}","name":"{}","id":{}', "word", "word", "span")]
        yield rows.select(
            _line(
                pl.lit('{"ph":"s"'),
                *about,
                _filled(',"pid":{},"tid":{},"ts":{}', "pid_json_from", "tid_json_from", _microseconds("start_ns_from")),
                pl.lit('},\n{"ph":"f","bp":"e"'),
                *about,
                _filled(',"pid":{},"tid":{},"ts":{}', "pid_json", "tid_json", _microseconds("start_ns")),
            )
        ).to_series()


def _steps(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    """Markers on a lane of their own, where the steps are known but no span of theirs would tell a reader."""
    marked = trace.table("spans").filter(pl.col("kind") == "step")
    known = pl.col("how").cast(pl.String).is_in(["whole", "inferred"]).not_()
    if marked.head(1).collect().height == 0:
        steps = trace.table("steps").filter(known).with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
        yield steps.select(
            _filled(
                '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","pid":{},"tid":"steps","ts":{},"dur":{}}',
                "step",
                pl.lit(_first_process(tracks)),
                _microseconds("start_ns"),
                _microseconds("dur_ns"),
            )
        ).to_series()


def _memory(trace: Trace, tracks: pl.DataFrame) -> Iterator[pl.Series]:
    """Allocations and releases as [memory] instants that carry the totals; other counters as they are."""
    moments, samples = _allocator_events(trace), _samples(trace)
    key = ["device", "at_ns", "nth"]
    for what in ("allocated", "reserved"):
        totals = samples.filter(pl.col("what") == what).select(*key, pl.col("value").cast(pl.Int64, strict=False).alias(what))
        moments = moments.join(totals, on=key, how="left", maintain_order="left")
    process = pl.lit(_first_process(tracks))
    kind = pl.col("device").str.extract(r"^(\S+)").replace_strict(_DEVICE_TYPES, default=99, return_dtype=pl.Int32)
    placed = _placed(trace, moments).join(tracks.select("track", "pid_json", "tid_json"), on="track", how="left", maintain_order="left")
    for rows in placed.iter_slices(_BATCH):
        yield rows.select(
            _line(
                pl.lit('{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]"'),
                _filled(',"pid":{},"tid":{}', pl.coalesce("pid_json", process), pl.col("tid_json").fill_null('"memory"')),
                _filled(',"ts":{},"args":{"Addr":{},"Bytes":{}', _microseconds("at_ns"), "address", "bytes"),
                _filled(',"Device Type":{},"Device Id":{}', kind, pl.col("device").str.extract(r" (\d+)$").fill_null("-1")),
                _filled(',"stepscope device":"{}"', "device") if trace.meta.format != "chrome" else pl.lit(""),
                _filled(',"Total Allocated":{}', "allocated"),
                _filled(',"Total Reserved":{}', "reserved"),
                pl.lit("}"),
            )
        ).to_series()
    # A reader joins name and key of a counter with a blank: the last blank of the name parts them again.
    parts = pl.col("name").str.extract_groups(r"^(?:(?<series>.*) )?(?<value_name>.*)$")
    rest = samples.join(moments, on=key, how="anti", maintain_order="left").with_columns(parts).unnest("name")
    for rows in rest.iter_slices(_BATCH):
        alone = pl.col("series").is_null()
        named = rows.select(
            series=pl.when(alone).then("value_name").otherwise("series"), field=pl.when(alone).then(pl.lit("value")).otherwise("value_name")
        )
        yield (
            rows.with_columns(_json_of(named["series"], _json).alias("series"), _json_of(named["field"], _json).alias("field"))
            .select(
                _filled(
                    '{"ph":"C","name":{},"pid":{},"ts":{},"args":{{}:{}}}',
                    "series",
                    process,
                    _microseconds("at_ns"),
                    "field",
                    pl.when(pl.col("value").is_finite()).then(pl.col("value").cast(pl.String)).otherwise(pl.lit("null")),
                )
            )
            .to_series()
        )


def _scopes(trace: Trace, levels: int) -> Iterator[pl.Series]:
    """A process for the scopes of each device, with a thread for each level."""
    found = stretches(trace, levels) if levels else None
    if found is None or found.is_empty():
        return
    process = _json_of(found.select(pl.format("scopes of {}", "group")).to_series(), _json).alias("pid")
    rows = found.with_columns(process, _json_of(found["scope"], _json).alias("name"), dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    threads = rows.select("pid", "level").unique().sort("pid", "level")
    thread = '{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{"name":"level {}"}}'
    yield (
        rows.select("pid")
        .unique()
        .select(_filled('{"ph":"M","name":"process_name","pid":{},"args":{"name":{}}}', "pid", "pid"))
        .to_series()
    )
    yield threads.select(_filled(thread, "pid", "level", "level")).to_series()
    line = '{"ph":"X","cat":"scopes","name":{},"pid":{},"tid":{},"ts":{},"dur":{}}'
    yield rows.select(_filled(line, "name", "pid", "level", _microseconds("start_ns"), _microseconds("dur_ns"))).to_series()


def _allocator_events(trace: Trace) -> pl.DataFrame:
    """Allocations and releases in the order of time; at one moment and address, in the order of the blocks' lives."""
    blocks = (
        trace.table("allocations")
        .select(pl.col("device", "op").cast(pl.String), "address", "bytes", "alloc_ns", "free_ns")
        .sort("device", "address", pl.coalesce("alloc_ns", "free_ns"), maintain_order=True)
        .with_row_index("block")
        # This format pairs a release with its allocation by the address: a block without one gets a number of its own.
        .with_columns(address=pl.coalesce("address", pl.col("block").cast(pl.UInt64) + 1))
        .collect()
    )
    events = pl.concat(
        [
            blocks.select("block", "device", "address", "op", "bytes", at_ns="alloc_ns", release=False),
            blocks.select(
                "block", "device", "address", pl.lit(None, pl.String).alias("op"), -pl.col("bytes"), at_ns="free_ns", release=True
            ),
        ]
    )
    ordered = events.drop_nulls("at_ns").sort("at_ns", "block", "release")
    return ordered.with_columns(nth=pl.int_range(pl.len()).over("device", "at_ns"))


def _samples(trace: Trace) -> pl.DataFrame:
    """The counters; those of memory with what they count, on which device, and the how-manieth of their moment they are."""
    name = pl.col("name").cast(pl.String)
    words = name.str.extract_groups(r"^(?<what>allocated|reserved) (?<device>.+)$")
    samples = (
        trace.table("counters")
        .select("at_ns", "value", words.alias("words"), name=name, memory=pl.col("unit").cast(pl.String) == "bytes")
        .collect()
    )
    samples = samples.unnest("words").with_columns(pl.when("memory").then(pl.col("what", "device")))
    return samples.with_columns(nth=pl.int_range(pl.len()).over("what", "device", "at_ns"))


def _placed(trace: Trace, moments: pl.DataFrame) -> pl.DataFrame:
    """The moments with a track on which the operator that allocated is the innermost one: there a reader finds it again."""
    spans = (
        trace.table("spans").filter(pl.col("kind") == "op").select("track", pl.col("name").cast(pl.String), "start_ns", "dur_ns").collect()
    )
    where = spans.select("track", op="name").unique()
    tries = moments.with_row_index("moment").select("moment", "at_ns", "op").join(where, on="op").sort("moment", "track")
    start, at = spans["start_ns"].to_numpy(), tries["at_ns"].to_numpy()
    nesting = intervals.nest(
        np.concatenate((spans["track"].to_numpy(), tries["track"].to_numpy())).astype(np.int64),
        np.concatenate((start, at)),
        np.concatenate((start + spans["dur_ns"].to_numpy(), at)),
    )
    # As the reader does: what only allocates is passed over, unless nothing else is around.
    around = nesting.parent[spans.height :]
    wants = ~spans["name"].str.contains(ALLOCATORS).to_numpy()
    wanting = nearest(wants, nesting.parent[: spans.height], around)
    around = np.where(wanting >= 0, wanting, around)
    found = tries.filter(pl.Series(around >= 0) & (spans["name"].gather(np.maximum(around, 0)) == tries["op"])) if tries.height else tries
    first = found.unique("moment", keep="first", maintain_order=True).select("moment", "track")
    return moments.with_row_index("moment").join(first, on="moment", how="left", maintain_order="left")


def _first_process(tracks: pl.DataFrame) -> str:
    """The process that a thing of no thread is shown under: the one whose threads come first."""
    threads = tracks.filter(pl.col("kind") == "thread", pl.col("pid_json").str.contains(r"^\d+$")).sort("sort")
    return str(threads["pid_json"][0]) if threads.height else "0"


def _line(*parts: pl.Expr) -> pl.Expr:
    """An event; what is null is left out."""
    return pl.concat_str(*parts, pl.lit("}"), ignore_nulls=True)


def _microseconds(column: str | pl.Expr) -> pl.Expr:
    """Exactly: the nanoseconds are the three digits behind the point."""
    ns = pl.col(column) if isinstance(column, str) else column
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return _filled("{}{}.{}", sign, ns.abs() // 1000, (ns.abs() % 1000).cast(pl.String).str.zfill(3))


def _number_or_text(text: str) -> str:
    return text if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else _json(text)
