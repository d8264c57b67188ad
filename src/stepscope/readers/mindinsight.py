"""MindInsight's `profiler` folders, of MindSpore 0.7 to 2.3: files of analysed data, of one rank or many, on Ascend, GPU and CPU.

R is the rank. Of the same thing the most exact file counts:

    profiler_info_R.json                                  mode, parallel mode, versions, the offset of the rank's clock
    step_trace_raw_R_detail_time.csv                      steps and the collectives in them; counts of 10 ns
    output_timeline_data_R.txt                            what ran on Ascend, each call: name, stream, start and duration in ms
    {ascend,gpu}_timeline_display_R.json, timeline_display_R.json     the same, as Chrome events
    cpu_op_execute_timestamp_R.txt                        what ran on the CPU, each call
    aicore_intermediate_R_detail.csv, pynative_op_..., cpu_op_detail_info_R.csv, gpu_op_detail_info_R.csv, gpu_activity_data_R.csv
                                                          means over calls; aicpu_intermediate_R.csv has each call
    framework_raw_R.csv, flops_R.txt                      types, shapes, FLOPs by full name
    dynamic_shape_info_R.json                             operators of each step with their shapes
    hccl_raw_R.csv                                        links between ranks
    memory_usage_details_R.json, memory_usage_summary_R.json      predicted from the life of tensors
    pipeline_profiling_R.json, minddata_*, device_queue_profiling_R.txt, dataset_iterator_profiling_R.txt       see `_minddata`

Where a file has only means, each call is a span of the mean length on a track of kind `other`, which has no place in time.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope import intervals, schema, units
from stepscope.errors import DataError
from stepscope.readers import Options, _kineto, _mindinsight_beside, _mindinsight_means, _mindinsight_timeline, _mindspore_host, chrome
from stepscope.readers import _mindinsight_cluster as cluster
from stepscope.readers._ascend_tables import column, number, read_json, read_table, with_rows
from stepscope.readers._documents import files, mapped, readable
from stepscope.readers._kineto import Problem
from stepscope.readers._mindinsight_files import COUNT_NS, SPANS, Folder
from stepscope.trace import Meta, Trace, combine, complete, unread_problem

_PATTERNS = (
    *("step_trace_raw_*_detail_time.csv", "output_timeline_data_*.txt", "*timeline_display_*.json", "cpu_op_execute_timestamp_*.txt"),
    *("aicore_intermediate_*_detail.csv", "aicore_intermediate_*_type.csv", "aicpu_intermediate_*.csv", "pynative_op_intermediate_*.csv"),
    *(
        "cpu_op_detail_info_*.csv",
        "gpu_op_detail_info_*.csv",
        "gpu_activity_data_*.csv",
        "cpu_op_type_info_*.csv",
        "gpu_op_type_info_*.csv",
    ),
    *("framework_raw_*.csv", "dynamic_shape_info_*.json", "hccl_raw_*.csv", "memory_usage_details_*.json", "memory_usage_summary_*.json"),
    *("pipeline_profiling_*.json", "minddata_pipeline_raw_*.csv", "minddata_cpu_utilization_*.json", "device_queue_profiling_*.txt"),
    *("dataset_iterator_profiling_*.txt", "minddata_aicpu_*.txt", "minddata_getnext_profiling_*.txt", "*_cluster_analyse_*.csv"),
    *("flops_summary_*.json", "flops_[0-9]*.txt", "parallel_strategy_*.json"),
)
_RANK = re.compile(r"_([0-9]{1,9})(?:_detail_time|_detail|_type)?\.(?:csv|json|txt)$")
FORMAT = "MindInsight profiler folder"


def sniff(path: Path) -> bool:
    return path.is_dir() and any(_RANK.search(file.name) for pattern in _PATTERNS for file in files(path, pattern))


def read(path: Path, options: Options) -> Trace:
    of_ranks: dict[int, list[Path]] = {}
    for pattern in ("profiler_info_*.json", *_PATTERNS):
        for file in files(path, pattern):
            if (found := _RANK.search(file.name)) is not None:
                of_ranks.setdefault(int(found[1]), []).append(file)
    ranks = {rank: some for rank, some in sorted(of_ranks.items()) if any(not file.name.startswith("profiler_info") for file in some)}
    if not ranks:
        raise DataError(path, "no rank has files here")
    traces, unread = list[Trace](), list[tuple[DataError, int]]()
    for rank in ranks:
        try:
            traces.append(_exported(path, rank, options) or _trace(Folder(path, rank, options)))
        except DataError as error:
            unread.append((error, rank))
    if not traces:
        raise unread[0][0]
    trace = combine(traces).with_problems([unread_problem(error, rank) for error, rank in unread])
    if strategies := [found for one in traces if isinstance(found := one.meta.extra.get("strategy_stages"), list)]:
        # Each rank of an export of ours has those of all.
        trace.meta.extra["strategy_stages"] = list({str(row.get("rank")): row for rows in strategies for row in rows}.values())
    trace = with_rows(trace, {"problems": _unread(path)})
    trace.meta.world_size = max((one.meta.world_size or 0 for one in traces), default=0) or None
    return trace


# Sums of what other files have, and what only says what a name or a folder says, too.
_KNOWN_BESIDE = re.compile(
    r"^(profiler_info|step_trace_point_info|min_cycle_counter|output_op_compute_time|.*timeline_summary|cpu_framework|cpu_ms_memory_record"
    r"|flops_scope|memory_usage|.*op_type_info|aicore_intermediate_\d+_type|pynative_op_intermediate_\d+_type|stepscope)_?.*$"
)


def _unread(path: Path) -> pl.DataFrame:
    """A remark on the files that nothing here knows, one for each kind of name."""
    read = {file.name for pattern in _PATTERNS for file in path.glob(pattern) if _RANK.search(file.name)}
    names = sorted(
        readable(file.name) for file in path.iterdir() if file.is_file() and file.name not in read and not _KNOWN_BESIDE.match(file.name)
    )
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(re.sub(r"\d+", "N", name), []).append(name)
    rows = [(some[0], "not read" if len(some) == 1 else f"{len(some)} files of this kind are not read", 0) for some in kinds.values()]
    return pl.DataFrame(rows, {"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(file=pl.lit(str(path)))


def _exported(path: Path, rank: int, options: Options) -> Trace | None:
    """What `exporters/mindinsight` wrote: its timeline has every call, of which the other files are sums."""
    header = path / f"stepscope_{rank}.json"
    timeline = next((path / f"{word}timeline_display_{rank}.json" for word in ("ascend_", "gpu_", "")
                     if (path / f"{word}timeline_display_{rank}.json").is_file()), None)  # fmt: skip
    said = read_json(header, []) if header.is_file() else None
    if timeline is None or not isinstance(said, dict):
        return None
    scratch = options.scratch / f"timeline {rank}"
    scratch.mkdir()
    own = Options(scratch=scratch, partial=options.partial, rank=rank, progress=options.progress)
    found = chrome.decoded(timeline, own)
    trace = _kineto.assemble(timeline, said, found.reports, found.problems, own)
    trace.meta.format, trace.meta.ranks = "mindinsight", [rank]
    return trace


def _trace(folder: Folder) -> Trace:
    steps, transfers = _steps(folder)
    steps = _with_points(folder, _with_cluster_times(folder, steps))
    host = _host(folder)
    kinds = _mindinsight_timeline.kinds(folder)
    timeline = list(_mindinsight_timeline.timelines(folder, kinds))
    spans = pl.concat([pl.DataFrame(schema=SPANS), *timeline, transfers], how="diagonal_relaxed")
    covered = {str(kind) for kind in spans.filter(pl.col("kind") == "kernel")["track_kind"].unique()}
    ai_cpu = _mindinsight_timeline.ai_cpu(folder)
    if covered and "AI_CPU" in spans["category"]:  # the same calls
        ai_cpu = ai_cpu.clear()
    elif covered:  # without the AI cores beside them, they would look like all that the device did
        placed, ai_cpu = _mindinsight_timeline.ai_cpu_placed(ai_cpu, spans, steps)
        spans = pl.concat([spans, placed], how="diagonal_relaxed")
    sums = [
        *(_mindinsight_means.means(folder, kinds) if not covered else []),
        *([ai_cpu.drop("run_ns", strict=False)] if ai_cpu.height else []),
        *_mindinsight_means.dynamic(folder),
        *_mindinsight_means.of_host(folder, host is not None),
    ]
    hccl = folder.table("hccl_raw_{}.csv")
    told = cluster.calls(hccl, folder.problems)
    if spans.filter(pl.col("kind") == "communication").height:
        spans = _with_waits(folder, _with_steps(spans, steps), told)
    elif told.height:
        sums.append(_unplaced(folder, told))
    spans = pl.concat([spans, _laid_out(sums, spans, steps)], how="diagonal_relaxed")
    spans = _with_steps(spans, steps)
    tables: dict[str, pl.DataFrame] = {
        "steps": steps,
        "links": cluster.links(hccl, folder.rank, folder.problems),
        "pipeline": _mindinsight_beside.pipeline(folder),
        "devices": _mindinsight_beside.devices(folder),
    }
    if spans.height:
        tables |= _placed(folder, spans)
    memory, blocks = _mindinsight_beside.memory(folder)
    tables["counters"] = pl.concat([memory, *_mindinsight_beside.queues(folder, _first(steps, spans))])
    tables["allocations"] = blocks
    for name in ("start_ns", "end_ns", "fp_start_ns", "bp_end_ns"):
        if name in tables["steps"].columns:
            tables["steps"] = tables["steps"].with_columns(pl.col(name) + folder.shift_ns)
    meta = _meta(folder)  # may have problems of its own
    tables["problems"] = folder.noted()
    own = pl.lit(folder.rank, pl.Int32)
    trace = Trace({name: rows.with_columns(rank=own) for name, rows in tables.items()}, meta)
    if host is not None:
        # Its spans and tracks are numbered from 0, too.
        first_span, first_track = spans.height, int(tables["tracks"]["track"].max() or 0) + 1 if "tracks" in tables else 0  # type: ignore[arg-type]
        moved = host.tables
        ids = [pl.col(name) + first_span for name in ("span", "parent", "op", "flow_in")]
        moved["spans"] = moved["spans"].with_columns(
            *ids, track=pl.col("track") + first_track, start_ns=pl.col("start_ns") + folder.shift_ns
        )
        moved["tracks"] = moved["tracks"].with_columns(track=pl.col("track") + first_track)
        if steps.height:
            moved["steps"] = moved["steps"].clear()
        # MindData's part is read with the other files.
        moved["counters"] = moved["counters"].filter(pl.col("name").cast(pl.String).str.contains("^(allocated|reserved)"))
        trace = with_rows(trace, {name: frame.collect() for name, frame in moved.items() if name != "pipeline"})
    return trace


def _meta(folder: Folder) -> Meta:
    size = folder.info.get("rank_size")
    extra: dict[str, Any] = {
        key: folder.info[key] for key in ("context_mode", "parallel_mode", "stage_num", "is_heterogeneous") if key in folder.info
    }
    if strategy := cluster.strategy(folder.object("parallel_strategy_{}.json"), folder.rank, folder.problems):
        extra["strategy_stages"] = strategy
    version = folder.info.get("ms_version")
    return Meta(
        format="mindinsight",
        framework="mindspore",
        versions={"mindspore": str(version)} if version else {},
        world_size=int(str(size)) if re.fullmatch(r"[0-9]{1,9}", str(size)) else None,
        ranks=[folder.rank],
        extra=extra,
    )


# Steps


def _steps(folder: Folder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the collectives in them: triples of columns, whatever their order."""
    columns = {name: schema.TABLES["steps"][name] for name in ("step", "phase", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns", "how")}
    none = pl.DataFrame(schema=columns), pl.DataFrame(schema=SPANS)
    rows = folder.table("step_trace_raw_{}_detail_time.csv")
    if not {"step_num", "start_point", "end_point"} <= set(rows.columns):
        return none
    # The last row is the average, of which the number is `-`, or 0 in older files.
    counted = rows.with_columns(step=pl.col("step_num").cast(pl.Int32, strict=False)).filter(pl.col("step") > 0)
    steps = counted.select(
        step="step",
        phase=pl.lit("train" if "bp_point" in rows.columns else "infer"),
        start_ns=_counts(pl.col("start_point")),
        end_ns=_counts(pl.col("end_point")),
        fp_start_ns=_counts(column(rows, "fp_point", "fp")) if "fp_point" in rows.columns else pl.lit(None, pl.Int64),
        bp_end_ns=_counts(column(rows, "bp_point")),
        how=pl.lit("marker"),
    )
    whole = steps.filter(pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns")))
    if lost := steps.height - whole.height:
        folder.problems.append(Problem("step_trace_raw", f"{units.count(lost, 'step')} without start or end", lost))
    found = [re.match(r"^stream_(\d+)_(.*)_start_point$", name) for name in rows.columns]
    transfers = [
        counted.select(
            kind=pl.lit("communication"),
            name=pl.lit(_collective(match[1], match[2])),
            column=pl.lit(match[0].removesuffix("_start_point")),
            start_ns=_counts(pl.col(match[0])),
            dur_ns=_counts(pl.col(match[0].replace("_start_point", "_end_point"))) - _counts(pl.col(match[0])),
            category=pl.lit("step trace"),
            step="step",
            group=pl.lit(f"NPU {folder.rank}"),
            label=pl.lit(f"Stream {match[1]}"),
            track_kind=pl.lit("stream"),
            device=pl.lit(folder.rank, pl.Int32),
            tid=pl.lit(match[1]),
        ).filter(pl.col("dur_ns") > 0)
        for match in found
        if match and match[0].replace("_start_point", "_end_point") in rows.columns
    ]
    return whole, pl.concat([none[1], *transfers], how="diagonal_relaxed")


_CLUSTER_TIMES = {
    "computation_ns": ("computation_time", "computation"),
    "exposed_ns": ("communication_alone_time", "communication_alone"),
    "stage_ns": ("stage_time",),
    "receive_ns": ("receive_alone_time",),
    "collective_ns": ("collective_communication_alone_time", "collective_communication_time"),
}


def _with_cluster_times(folder: Folder, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with the times of *_cluster_analyse_*: a row for each step, in ms, then their average, except for a single step."""
    found = [read_table(file, folder.problems) for file in files(folder.path, f"*_cluster_analyse_*_{folder.rank}.csv")]
    if not found or found[0].is_empty():
        return steps
    rows = found[0].select(
        number(column(found[0], *names), 1e6).round().cast(pl.Int64).alias(name) for name, names in _CLUSTER_TIMES.items()
    )
    own = rows if rows.height == max(steps.height, 1) else rows.head(-1)
    if len(found) > 1:
        folder.problems.append(Problem("cluster_analyse", f"{len(found)} files of this rank: the first is read", 0))
    if steps.height and own.height != steps.height:
        sizes = f"{units.count(own.height, 'row')} for {units.count(steps.height, 'step')}"
        what = f"{sizes}: which row is of which step is not known, so none is read"
        folder.problems.append(Problem("cluster_analyse", what, own.height))
        return steps
    if steps.is_empty():
        folder.problems.append(
            Problem("cluster_analyse", f"{units.count(own.height, 'row')}, and no step trace that says when their steps were", own.height)
        )
        return steps
    return pl.concat([steps, own], how="horizontal")


def _with_points(folder: Folder, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with the operators that step_trace_point_info names: of all steps, or a list with those of each."""
    said = next((found for name in (f"step_trace_point_info_{folder.rank}.json", "step_trace_point_info.json")
                 if (file := folder.file(name)) is not None and (found := read_json(file, folder.problems))), None)  # fmt: skip
    each = [mapped(one) for one in said] if isinstance(said, list) else [mapped(said)] * steps.height
    if not any(each) or steps.is_empty():
        return steps
    if len(each) != steps.height:
        folder.problems.append(
            Problem("step_trace_point_info", f"points of {units.count(len(each), 'step')}, for {steps.height:,}: not read", len(each))
        )
        return steps
    texts = {f"{point}_op": [str(one[point]) if one.get(point) else None for one in each] for point in ("fp_start", "bp_end")}
    return steps.with_columns(pl.Series(name, values, pl.String) for name, values in texts.items())


def _with_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    if steps.is_empty() or spans.is_empty():
        return spans
    ordered = steps.sort("start_ns")
    index = intervals.enclosing(ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy(), spans["start_ns"].to_numpy())
    step = ordered["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None)
    return spans.with_columns(step=pl.coalesce("step", pl.when(pl.col("track_kind") != "other").then(step)))


def _counts(text: pl.Expr) -> pl.Expr:
    """Counts of the system's clock; some versions write them as floats."""
    return (
        pl.coalesce(text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False).round().cast(pl.Int64, strict=False)) * COUNT_NS
    )


_PLACE = r"^stream_\d+_\d+_"  # before the name of an operator


def _collective(stream: str, rest: str) -> str:
    """`1_AllReduce-op5`: the operator. Of `parallel_0`, which every stream has, the whole, as MindInsight's timeline calls it."""
    column = f"stream_{stream}_{rest}"
    return re.sub(_PLACE, "", column)


# What ran


def _host(folder: Folder) -> Trace | None:
    if folder.file("cpu_op_execute_timestamp_{}.txt") is None:
        folder.problems += [lost] if (lost := _mindspore_host.missing(folder.path, folder.rank)) else []
        return None
    return _mindspore_host.read(folder.path, folder.options, rank=folder.rank, problems=[], minddata=False)


def _laid_out(parts: list[pl.DataFrame], spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spans without a place in time, one after the other, behind everything that has one: no step is to hold them."""
    if not parts:
        return pl.DataFrame(schema=SPANS)
    ends = [
        frame.select(last.max()).item()
        for frame, last in ((spans, pl.col("start_ns") + pl.col("dur_ns")), (steps, pl.col("end_ns")))
        if frame.height
    ]
    first = max((end for end in ends if end is not None), default=0)
    rows = pl.concat(parts, how="diagonal_relaxed")
    behind = first + pl.col("dur_ns").cum_sum().over("tid") - pl.col("dur_ns")
    return rows.with_columns(start_ns=behind)


_LANE = ["group", "label", "track_kind", "device", "tid"]


def _placed(folder: Folder, spans: pl.DataFrame) -> dict[str, pl.DataFrame]:
    lanes = spans.select(_LANE).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
    placed = complete(spans.join(lanes, on=_LANE, how="left", nulls_equal=True, maintain_order="left").drop(_LANE))
    tracks = lanes.select(
        "track", "group", "label", "device", "tid", kind="track_kind", sort="track", pid=pl.col("group"),
    )  # fmt: skip
    return {"spans": placed.with_columns(start_ns=pl.col("start_ns") + folder.shift_ns), "tracks": tracks}


def _unplaced(folder: Folder, told: pl.DataFrame) -> pl.DataFrame:
    return told.select(
        kind=pl.lit("communication"),
        name="name",
        start_ns=pl.lit(None, pl.Int64),
        dur_ns=pl.col("communication_ns") + pl.col("wait_ns"),
        category=pl.lit("hccl"),
        step="step",
        args=pl.struct("wait_ns", "communication_ns").struct.json_encode(),
        group=pl.lit(f"NPU {folder.rank}"),
        label=pl.lit("communication of each step, without a place in time"),
        track_kind=pl.lit("other"),
        device=pl.lit(folder.rank, pl.Int32),
        tid=pl.lit("hccl"),
    )


def _with_waits(folder: Folder, spans: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """The transfers on the timeline with the waits that hccl_raw says, by step and name: where a step has one of that name.

    hccl_raw has the names of the step trace's columns, with or without stream and place before the operator.
    """
    calls = spans.with_row_index("at").filter(pl.col("kind") == "communication", pl.col("step").is_not_null())
    # The timeline may have them once more.
    calls = calls.filter(pl.col("column").is_not_null() | ~pl.col("column").is_not_null().any())
    calls = calls.select("at", "step", column=pl.coalesce("column", "name"), name=pl.col("name").str.replace(_PLACE, ""))
    told = told.with_row_index("wait").with_columns(column=pl.col("name").str.replace("_(start|end)_point$", ""))
    told = told.with_columns(name=pl.col("column").str.replace(_PLACE, ""))
    pairs = [pl.DataFrame(schema={"at": pl.UInt32, "wait": pl.UInt32})]
    for key in (["step", "column"], ["step", "name"]):
        left, right = (rows.join(pl.concat(pairs), on=by, how="anti") for rows, by in ((told, "wait"), (calls, "at")))
        once = pl.len().over(key) == 1
        pairs.append(left.filter(once).join(right.filter(once), on=key).select("at", "wait"))
    known = pl.concat(pairs).join(told, on="wait").select("at", said=pl.struct("wait_ns", "communication_ns").struct.json_encode())
    if lost := told.height - known.height:
        folder.problems.append(
            Problem("hccl_raw", f"{units.count(lost, 'wait')} of operators that are not on the timeline by that name", lost)
        )
    return spans.with_row_index("at").join(known, on="at", how="left", maintain_order="left").with_columns(
        args=pl.coalesce("said", "args")
    ).drop("at", "said")  # fmt: skip


def _first(steps: pl.DataFrame, spans: pl.DataFrame) -> int:
    """The first moment of what has its place in time."""
    placed = spans.filter(pl.col("track_kind") != "other")["start_ns"]
    return min((int(column.min()) for column in (steps["start_ns"], placed) if column.count()), default=0)  # type: ignore[arg-type]
