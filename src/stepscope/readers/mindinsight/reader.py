"""MindInsight's `profiler` folders of MindSpore 0.7 to 2.3: analyzed data of one or more ranks, on Ascend, GPU and CPU.

R is the rank. If several files have the same data, the most exact one is read:

    profiler_info_R.json                                  mode, parallel mode, versions, the offset of the rank's clock
    step_trace_raw_R_detail_time.csv                      steps and the collectives in them; counts of 10 ns
    output_timeline_data_R.txt                            each call on Ascend: name, stream, start and duration in ms
    {ascend,gpu}_timeline_display_R.json, timeline_display_R.json     the same, as Chrome events
    cpu_op_execute_timestamp_R.txt                        each call on the CPU
    aicore_intermediate_R_detail.csv, pynative_op_..., cpu_op_detail_info_R.csv, gpu_op_detail_info_R.csv, gpu_activity_data_R.csv
                                                          means over calls; aicpu_intermediate_R.csv has each call
    framework_raw_R.csv, flops_R.txt                      types, shapes, FLOPs by full name
    dynamic_shape_info_R.json                             operators of each step with their shapes
    hccl_raw_R.csv                                        links between ranks
    memory_usage_details_R.json, memory_usage_summary_R.json      predicted from the lifetimes of tensors
    pipeline_profiling_R.json, minddata_*, device_queue_profiling_R.txt, dataset_iterator_profiling_R.txt       see `minddata`

If a file has only means, each call is a span of the mean duration on a track of kind `other`, whose spans have no start times.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.trace import Meta, Trace, combine, complete, unread_problem
from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import add_rows, read_json, report_lost
from stepscope.readers.ascend.common.tracks import number_tracks
from stepscope.readers.capture import mindspore_host
from stepscope.readers.chrome import reader as chrome
from stepscope.readers.chrome.kineto import trace as kineto
from stepscope.readers.common.documents import files, printable_name
from stepscope.readers.common.name_parts import stream_number
from stepscope.readers.common.problems import Problem, problem_frame
from stepscope.readers.mindinsight import cluster, operator_means, side_files, timeline
from stepscope.readers.mindinsight.files import SPANS, Folder
from stepscope.readers.mindinsight.steps import COLUMN_PREFIX, assign_steps, load_steps

_PATTERNS = (
    *("step_trace_raw_*_detail_time.csv", "output_timeline_data_*.txt", "*timeline_display_*.json", "cpu_op_execute_timestamp_*.txt"),
    *("aicore_intermediate_*_detail.csv", "aicore_intermediate_*_type.csv", "aicpu_intermediate_*.csv", "pynative_op_intermediate_*.csv"),
    *("cpu_op_detail_info_*.csv", "gpu_op_detail_info_*.csv", "gpu_activity_data_*.csv", "cpu_op_type_info_*.csv"),
    *("gpu_op_type_info_*.csv", "framework_raw_*.csv", "dynamic_shape_info_*.json", "hccl_raw_*.csv", "memory_usage_details_*.json"),
    *("memory_usage_summary_*.json", "pipeline_profiling_*.json", "minddata_pipeline_raw_*.csv", "minddata_cpu_utilization_*.json"),
    *("device_queue_profiling_*.txt", "dataset_iterator_profiling_*.txt", "minddata_aicpu_*.txt", "minddata_getnext_profiling_*.txt"),
    *("*_cluster_analyse_*.csv", "flops_summary_*.json", "flops_[0-9]*.txt", "parallel_strategy_*.json"),
)
_RANK = re.compile(r"_([0-9]{1,9})(?:_detail_time|_detail|_type)?\.(?:csv|json|txt)$")
# Files that have nothing that the files above lack.
_REDUNDANT = re.compile(
    r"^(profiler_info|step_trace_point_info|min_cycle_counter|output_op_compute_time|.*timeline_summary|cpu_framework|cpu_ms_memory_record"
    r"|flops_scope|memory_usage|.*op_type_info|aicore_intermediate_\d+_type|pynative_op_intermediate_\d+_type|stepscope)_?.*$"
)
_TRACK = ["group", "label", "track_kind", "device", "tid"]
FORMAT = "MindInsight profiler folder"


def sniff(path: Path) -> bool:
    return path.is_dir() and any(_RANK.search(file.name) for pattern in _PATTERNS for file in files(path, pattern))


def read(path: Path, options: Options) -> Trace:
    names = (file.name for pattern in _PATTERNS for file in files(path, pattern))
    ranks = sorted({int(number[1]) for name in names if (number := _RANK.search(name)) is not None})
    if not ranks:
        raise DataError(path, "no rank has files in it")
    traces, unread = list[Trace](), list[tuple[DataError, int]]()
    for rank in ranks:
        try:
            traces.append(_read_export(path, rank, options) or _read_rank(Folder(path, rank, options)))
        except DataError as error:
            unread.append((error, rank))
    if not traces:
        raise unread[0][0]
    trace = combine(traces).with_problems([unread_problem(error, rank) for error, rank in unread])
    world_size = max((part.meta.world_size or 0 for part in traces), default=0) or None
    return add_rows(trace, {"problems": _unread_files(path)}).with_meta(world_size=world_size)


def _unread_files(path: Path) -> pl.DataFrame:
    """A remark about the files that no reader knows, one per kind of name."""
    read_files = {file.name for pattern in _PATTERNS for file in path.glob(pattern) if _RANK.search(file.name)}
    unknown = (file for file in path.iterdir() if file.is_file() and file.name not in read_files and not _REDUNDANT.match(file.name))
    kinds: dict[str, list[str]] = {}
    for name in sorted(printable_name(file.name) for file in unknown):
        kinds.setdefault(re.sub(r"\d+", "N", name), []).append(name)
    texts = ((names[0], "not read" if len(names) == 1 else f"{len(names)} files of this kind are not read") for names in kinds.values())
    return problem_frame([Problem(name, text, 0) for name, text in texts], path)


def _read_export(path: Path, rank: int, options: Options) -> Trace | None:
    """A folder of our own exporter: its timeline has every call, and the other files are sums of it."""
    header_file = path / f"stepscope_{rank}.json"
    displays = (path / f"{word}timeline_display_{rank}.json" for word in ("ascend_", "gpu_", ""))
    display = next((file for file in displays if file.is_file()), None)
    header = read_json(header_file, []) if header_file.is_file() else None
    if display is None or not isinstance(header, dict):
        return None
    scratch = options.scratch / f"timeline {rank}"
    scratch.mkdir()
    options = Options(scratch=scratch, partial=options.partial, rank=rank, progress=options.progress)
    decoded = chrome.decode_file(display, options)
    trace = kineto.assemble(display, header, decoded.reports, decoded.problems, options)
    return trace.with_meta(format="mindinsight", ranks=[rank])


def _read_rank(folder: Folder) -> Trace:
    steps, collectives = load_steps(folder)
    host = _host_trace(folder)
    hccl = folder.table("hccl_raw_{}.csv")
    spans = _load_spans(folder, steps, collectives, hccl, has_host=host is not None)
    memory, blocks = side_files.memory(folder)
    tables: dict[str, pl.DataFrame] = {
        "steps": steps.with_columns(pl.col("^(start|end|fp_start|bp_end)_ns$") + folder.shift_ns),
        "links": cluster.links(hccl, folder.rank, folder.problems),
        "pipeline": side_files.pipeline(folder),
        "devices": side_files.devices(folder),
        **(_span_tables(folder, spans) if spans.height else {}),
        "counters": pl.concat([memory, *side_files.queue_counters(folder, _first_start(steps, spans))]),
        "allocations": blocks,
        "sharded_operators": cluster.sharded_operators(folder.object("parallel_strategy_{}.json"), folder.problems),
    }
    meta = _meta(folder)
    tables["problems"] = problem_frame(folder.problems, folder.path)
    trace = Trace({name: rows.with_columns(rank=pl.lit(folder.rank, pl.Int32)) for name, rows in tables.items()}, meta)
    first_track = int(tables["tracks"]["track"].max() or 0) + 1 if "tracks" in tables else 0  # type: ignore[arg-type]
    return trace if host is None else _add_host(trace, host, folder.shift_ns, spans.height, first_track, has_steps=steps.height > 0)


def _load_spans(folder: Folder, steps: pl.DataFrame, collectives: pl.DataFrame, hccl: pl.DataFrame, *, has_host: bool) -> pl.DataFrame:
    """Device work and collectives with their times, then everything that has only durations."""
    operators = timeline.operators(folder)
    drawn = pl.concat([pl.DataFrame(schema=SPANS), *timeline.timelines(folder, operators)], how="diagonal_relaxed")
    call = ["kind", "name", "start_ns", "dur_ns"]
    if collectives.height:  # a timeline may have those of the step trace, too
        same = collectives.select(pl.col(name).cast(drawn.schema[name]) for name in call)
        drawn = drawn.join(same, on=call, how="anti", maintain_order="left")
    spans = pl.concat([drawn, collectives], how="diagonal_relaxed")
    has_kernels = (spans["kind"] == "kernel").any()
    ai_cpu = timeline.ai_cpu_calls(folder)
    if has_kernels and "AI_CPU" in spans["category"]:  # the same calls
        ai_cpu = ai_cpu.clear()
    elif has_kernels:  # without AI cores next to them, they would look like everything that the device did
        on_stream, ai_cpu = timeline.split_ai_cpu_calls(ai_cpu, spans, steps)
        spans = pl.concat([spans, on_stream], how="diagonal_relaxed")
    untimed = [
        *(operator_means.device_means(folder, operators) if not has_kernels else []),
        *([ai_cpu.drop("run_ns", strict=False)] if ai_cpu.height else []),
        *operator_means.dynamic_shapes(folder),
        *(operator_means.host_means(folder) if not has_host else []),
    ]
    calls = cluster.calls(hccl, folder.problems)
    if (spans["kind"] == "communication").any():
        spans = _add_wait_times(folder, assign_steps(spans, steps), calls)
    elif calls.height:
        untimed.append(_untimed_calls(folder, calls))
    return assign_steps(pl.concat([spans, _line_up(untimed, spans, steps)], how="diagonal_relaxed"), steps)


def _add_host(trace: Trace, host: Trace, shift_ns: int, first_span: int, first_track: int, *, has_steps: bool) -> Trace:
    """The trace with the spans of the host, whose numbers also start at 0."""
    tables = host.tables
    ids = [pl.col(name) + first_span for name in ("span", "parent", "op", "flow_in")]
    track = pl.col("track") + first_track
    tables["spans"] = tables["spans"].with_columns(*ids, track=track, start_ns=pl.col("start_ns") + shift_ns)
    tables["tracks"] = tables["tracks"].with_columns(track=track)
    if has_steps:
        tables["steps"] = tables["steps"].clear()
    # The counters of MindData are read with the other files.
    tables["counters"] = tables["counters"].filter(pl.col("name").cast(pl.String).str.contains("^(allocated|reserved)"))
    return add_rows(trace, {name: frame.collect() for name, frame in tables.items() if name != "pipeline"})


def _meta(folder: Folder) -> Meta:
    size, version = folder.info.get("rank_size"), folder.info.get("ms_version")
    names = ("context_mode", "parallel_mode", "stage_num", "is_heterogeneous")
    extra: dict[str, Any] = {key: folder.info[key] for key in names if key in folder.info}
    return Meta(
        format="mindinsight",
        framework="mindspore",
        versions={"mindspore": str(version)} if version else {},
        world_size=int(str(size)) if re.fullmatch(r"[0-9]{1,9}", str(size)) else None,
        ranks=[folder.rank],
        extra=extra,
    )


def _host_trace(folder: Folder) -> Trace | None:
    if folder.file("cpu_op_execute_timestamp_{}.txt") is None:
        folder.problems += [lost] if (lost := mindspore_host.missing_file_problem(folder.path, folder.rank)) else []
        return None
    return mindspore_host.read(folder.path, folder.options, rank=folder.rank, problems=[], minddata=False)


def _line_up(parts: list[pl.DataFrame], spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spans without start times, one after the other, after everything else: no step contains them."""
    if not parts:
        return pl.DataFrame(schema=SPANS)
    ends = pl.concat([spans.select(end_ns=pl.col("start_ns") + pl.col("dur_ns")), steps.select("end_ns")])["end_ns"]
    queued = pl.lit(ends.max() or 0) + pl.col("dur_ns").cum_sum().over("tid") - pl.col("dur_ns")
    return pl.concat(parts, how="diagonal_relaxed").with_columns(start_ns=queued)


def _span_tables(folder: Folder, spans: pl.DataFrame) -> dict[str, pl.DataFrame]:
    spans, tracks = number_tracks(spans, _TRACK)
    return {
        "spans": complete(spans).with_columns(start_ns=pl.col("start_ns") + folder.shift_ns),
        "tracks": tracks.select(
            *("track", "group", "label", "device", "tid"),
            kind="track_kind",
            sort="track",
            pid="group",
            stream=pl.when(pl.col("track_kind") == "stream", pl.col("device").is_not_null()).then(stream_number(pl.col("tid"))),
        ),
    }


def _untimed_calls(folder: Folder, calls: pl.DataFrame) -> pl.DataFrame:
    return calls.select(
        "name",
        "step",
        kind=pl.lit("communication"),
        start_ns=pl.lit(None, pl.Int64),
        dur_ns=pl.col("communication_ns") + pl.col("wait_ns"),
        category=pl.lit("hccl"),
        args=pl.struct("wait_ns", "communication_ns").struct.json_encode(),
        **folder.track("other", "communication of each step, without start times", "hccl"),
    )


def _add_wait_times(folder: Folder, spans: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """The spans with the wait times of hccl_raw in the args of collectives: by step and name, if a step has one of that name.

    hccl_raw has the names of the step trace's columns, with or without the prefix before the operator.
    """
    calls = spans.with_row_index("row").filter(pl.col("kind") == "communication", pl.col("step").is_not_null())
    # The timeline may repeat the collectives of the step trace.
    calls = calls.filter(pl.col("column").is_not_null() | ~pl.col("column").is_not_null().any())
    calls = calls.select("row", "step", column=pl.coalesce("column", "name"), name=pl.col("name").str.replace(COLUMN_PREFIX, ""))
    times = times.with_row_index("entry").with_columns(column=pl.col("name").str.replace("_(start|end)_point$", ""))
    times = times.with_columns(name=pl.col("column").str.replace(COLUMN_PREFIX, ""))
    pairs = [pl.DataFrame(schema={"row": pl.UInt32, "entry": pl.UInt32})]
    for key in (["step", "column"], ["step", "name"]):
        left, right = (rows.join(pl.concat(pairs), on=by, how="anti") for rows, by in ((times, "entry"), (calls, "row")))
        is_unique = pl.len().over(key) == 1
        pairs.append(left.filter(is_unique).join(right.filter(is_unique), on=key).select("row", "entry"))
    matched = (
        pl.concat(pairs).join(times, on="entry").select("row", wait_args=pl.struct("wait_ns", "communication_ns").struct.json_encode())
    )
    fault = "of operators that are not on the timeline by that name"
    report_lost(folder.problems, "hccl_raw", times.height - matched.height, "wait", fault)
    spans = spans.with_row_index("row").join(matched, on="row", how="left", maintain_order="left")
    return spans.with_columns(args=pl.coalesce("wait_args", "args")).drop("row", "wait_args")


def _first_start(steps: pl.DataFrame, spans: pl.DataFrame) -> int:
    """The first start of a step, or of a span with a start time."""
    starts = pl.concat([steps["start_ns"], spans.filter(pl.col("track_kind") != "other")["start_ns"]])
    return int(str(starts.min() or 0))
