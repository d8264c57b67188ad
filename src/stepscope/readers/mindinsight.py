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

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope import intervals, schema
from stepscope.errors import DataError
from stepscope.readers import Options, _kineto, _minddata, _mindspore_host, chrome
from stepscope.readers import _mindinsight_cluster as cluster
from stepscope.readers._ascend_tables import column, number, read_csv, read_json, with_rows
from stepscope.readers._documents import exact, files, index, listed, mapped, readable
from stepscope.readers._kineto import Problem
from stepscope.readers._prof_files import number as fraction
from stepscope.trace import Meta, Trace, combine, complete

_COUNT_NS = 10
_MOST_CALLS = 10**7  # of one operator: more are damage, and would be as many spans
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
    traces = [_exported(path, rank, options) or _Rank(path, rank, options).trace() for rank in ranks]
    trace = combine(traces)
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
    own = Options(scratch=scratch, partial=options.partial, step_name=options.step_name, rank=rank, progress=options.progress)
    found = chrome.decoded(timeline, own)
    trace = _kineto.assemble(timeline, said, found.reports, found.problems, own)
    trace.meta.format, trace.meta.ranks = "mindinsight", [rank]
    return trace


_COUNTERS = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
_LANE = ["group", "label", "track_kind", "device", "tid"]
_SPANS = {
    "kind": pl.String, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "op_type": pl.String, "scope": pl.String,
    "category": pl.String, "shapes": pl.String, "dtypes": pl.String, "flops": pl.Int64, "step": pl.Int32, "args": pl.String,
    "group": pl.String, "label": pl.String, "track_kind": pl.String, "device": pl.Int32, "tid": pl.String,
}  # fmt: skip


class _Rank:
    """The files of one rank."""

    def __init__(self, path: Path, rank: int, options: Options) -> None:
        self.path, self.rank, self.options = path, rank, options
        self.problems: list[Problem] = []
        self.info = self._object(f"profiler_info_{rank}.json")
        offset = self.info.get("diff_time")  # microseconds; a float of nanoseconds could not hold the time of day
        self.shift_ns = -round(1000 * fraction(offset)) if abs(fraction(offset)) < 2**52 else 0

    def trace(self) -> Trace:
        steps, transfers = self._steps()
        host = self._host()
        kinds = self._kinds()
        timeline = list(self._timelines(kinds))
        spans = pl.concat([pl.DataFrame(schema=_SPANS), *timeline, transfers], how="diagonal_relaxed")
        covered = {str(kind) for kind in spans.filter(pl.col("kind") == "kernel")["track_kind"].unique()}
        sums = [*(self._means(kinds) if not covered else []), *self._ai_cpu(), *self._dynamic(), *self._host_means(host is not None)]
        hccl = self._table("hccl_raw_{}.csv")
        told = cluster.calls(hccl, self.problems)
        if spans.filter(pl.col("kind") == "communication").height:
            spans = self._with_waits(spans, told)
        elif told.height:
            sums.append(self._unplaced(told))
        spans = pl.concat([spans, self._laid_out(sums, spans, steps)], how="diagonal_relaxed")
        spans = self._with_steps(spans, steps)
        tables: dict[str, pl.DataFrame] = {
            "steps": steps,
            "links": cluster.links(hccl, self.rank, self.problems),
            "pipeline": self._pipeline(),
            "devices": self._devices(),
        }
        if spans.height:
            tables |= self._placed(spans)
        memory, blocks = self._memory()
        tables["counters"] = pl.concat([memory, *self._queues(_first(steps, spans))])
        tables["allocations"] = blocks
        for name in ("start_ns", "end_ns", "fp_start_ns", "bp_end_ns"):
            if name in tables["steps"].columns:
                tables["steps"] = tables["steps"].with_columns(pl.col(name) + self.shift_ns)
        meta = self._meta()  # may have problems of its own
        tables["problems"] = self._noted()
        own = pl.lit(self.rank, pl.Int32)
        trace = Trace({name: rows.with_columns(rank=own) for name, rows in tables.items()}, meta)
        if host is not None:
            # Its spans and tracks are numbered from 0, too.
            first_span, first_track = spans.height, int(tables["tracks"]["track"].max() or 0) + 1 if "tracks" in tables else 0  # type: ignore[arg-type]
            moved = host.tables
            ids = [pl.col(name) + first_span for name in ("span", "parent", "op", "flow_in")]
            moved["spans"] = moved["spans"].with_columns(
                *ids, track=pl.col("track") + first_track, start_ns=pl.col("start_ns") + self.shift_ns
            )
            moved["tracks"] = moved["tracks"].with_columns(track=pl.col("track") + first_track)
            if steps.height:
                moved["steps"] = moved["steps"].clear()
            # MindData's part is read with the other files.
            moved["counters"] = moved["counters"].filter(pl.col("name").cast(pl.String).str.contains("^(allocated|reserved)"))
            trace = with_rows(trace, {name: frame.collect() for name, frame in moved.items() if name != "pipeline"})
        return trace

    def _file(self, name: str) -> Path | None:
        file = self.path / name.format(self.rank)
        return file if file.is_file() else None

    def _table(self, name: str) -> pl.DataFrame:
        file = self._file(name)
        return read_csv(file, self.problems) if file else pl.DataFrame()

    def _object(self, name: str) -> dict[str, Any]:
        file = self._file(name)
        found = read_json(file, self.problems) if file else None
        return found if isinstance(found, dict) else {}

    def _noted(self) -> pl.DataFrame:
        rows = pl.DataFrame(self.problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
        return rows.with_columns(file=pl.lit(str(self.path)))

    def _meta(self) -> Meta:
        size = self.info.get("rank_size")
        extra: dict[str, Any] = {
            key: self.info[key] for key in ("context_mode", "parallel_mode", "stage_num", "is_heterogeneous") if key in self.info
        }
        for name in (f"step_trace_point_info_{self.rank}.json", "step_trace_point_info.json"):
            if (points := self._object(name)) and "points" not in extra:
                extra["points"] = points
        if flops := self._object("flops_summary_{}.json"):
            extra["flops_summary"] = flops
        if strategy := cluster.strategy(self._object("parallel_strategy_{}.json"), self.rank, self.problems):
            extra["strategy_stages"] = strategy
        for file in files(self.path, f"*_cluster_analyse_*_{self.rank}.csv"):
            extra["cluster_analyse"] = read_csv(file, self.problems).to_dicts()
        version = self.info.get("ms_version")
        return Meta(
            format="mindinsight",
            framework="mindspore",
            versions={"mindspore": str(version)} if version else {},
            world_size=int(str(size)) if re.fullmatch(r"[0-9]{1,9}", str(size)) else None,
            ranks=[self.rank],
            extra=extra,
        )

    # Steps

    def _steps(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The steps, and the collectives in them: triples of columns, whatever their order."""
        columns = {
            name: schema.TABLES["steps"][name] for name in ("step", "phase", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns", "how")
        }
        none = pl.DataFrame(schema=columns), pl.DataFrame(schema=_SPANS)
        rows = self._table("step_trace_raw_{}_detail_time.csv")
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
            self.problems.append(Problem("step_trace_raw", f"{lost:,} steps without start or end", lost))
        found = [re.match(r"^stream_(\d+)_(.*)_start_point$", name) for name in rows.columns]
        transfers = [
            counted.select(
                kind=pl.lit("communication"),
                name=pl.lit(_collective(match[2])),
                start_ns=_counts(pl.col(match[0])),
                dur_ns=_counts(pl.col(match[0].replace("_start_point", "_end_point"))) - _counts(pl.col(match[0])),
                category=pl.lit("step trace"),
                step="step",
                group=pl.lit(f"NPU {self.rank}"),
                label=pl.lit(f"Stream {match[1]}"),
                track_kind=pl.lit("stream"),
                device=pl.lit(self.rank, pl.Int32),
                tid=pl.lit(match[1]),
            ).filter(pl.col("dur_ns") > 0)
            for match in found
            if match and match[0].replace("_start_point", "_end_point") in rows.columns
        ]
        return whole, pl.concat([none[1], *transfers], how="diagonal_relaxed")

    def _with_steps(self, spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
        if steps.is_empty() or spans.is_empty():
            return spans
        ordered = steps.sort("start_ns")
        index = intervals.enclosing(ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy(), spans["start_ns"].to_numpy())
        step = ordered["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None)
        return spans.with_columns(step=pl.coalesce("step", pl.when(pl.col("track_kind") != "other").then(step)))

    # What is known of an operator by its full name

    def _kinds(self) -> pl.DataFrame:
        """name (full), op_type, shapes, dtypes, args, flops. Older files have `full_op_name` and `op_type`."""
        rows = self._table("framework_raw_{}.csv")
        columns = {"name": pl.String, "op_type": pl.String, "shapes": pl.String, "dtypes": pl.String, "args": pl.String}
        known = pl.DataFrame(schema=columns)
        name = next((word for word in ("full_kernel_name", "full_op_name", "full_kernel_time") if word in rows.columns), None)
        if name:
            known = rows.select(name=name, op_type=column(rows, "kernel_type", "op_type"), info=column(rows, "op_info")).unique(
                "name", keep="first"
            )
            texts = [_operands(info) for info in known["info"]]
            told = pl.DataFrame(texts, dict.fromkeys(("shapes", "dtypes", "args"), pl.String), orient="row")
            known = pl.concat([known.select("name", "op_type"), told],
                              how="horizontal")  # fmt: skip
        return known.join(self._flops(), on="name", how="full", coalesce=True)

    def _flops(self) -> pl.DataFrame:
        """FLOPs of a call: cube and vector, in millions."""
        rows = self._table("flops_{}.txt")
        if rows.is_empty() or rows.width < 2:
            return pl.DataFrame(schema={"name": pl.String, "flops": pl.Int64})
        # A column says its unit; in the oldest files the millions go without saying.
        counts = [name for name in rows.columns[1:] if name.startswith("MFLOPs") or name == "FLOPs"]
        millions = pl.sum_horizontal(number(pl.col(name)) for name in counts or [rows.columns[1]])
        return rows.select(name=rows.columns[0], flops=(millions * 1e6).round().cast(pl.Int64, strict=False)).unique("name", keep="first")

    # What ran, each call

    def _host(self) -> Trace | None:
        if self._file("cpu_op_execute_timestamp_{}.txt") is None:
            return None
        return _mindspore_host.read(self.path, self.options, rank=self.rank, problems=[], minddata=False)

    def _timelines(self, kinds: pl.DataFrame) -> Iterator[pl.DataFrame]:
        rows = self._table("output_timeline_data_{}.txt")
        names = {name.split("(")[0]: name for name in rows.columns}
        if {"op_name", "stream_id", "start_time", "duration"} <= set(names):
            found = rows.select(
                name="op_name",
                start_ns=_minddata.milliseconds(pl.col(names["start_time"])),
                dur_ns=_minddata.milliseconds(pl.col(names["duration"])),
                stream="stream_id",
            )
            whole = found.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0))
            if lost := found.height - whole.height:
                self.problems.append(Problem("output_timeline_data", f"{lost:,} rows without a start or a duration", lost))
            yield self._on_streams(whole.join(kinds, on="name", how="left", maintain_order="left"))
            return
        base = self._file("min_cycle_counter_{}.txt")
        count = base.read_text("utf-8", "replace").strip() if base else ""
        origin = round(float(count)) * _COUNT_NS if _is_number(count) and abs(float(count)) < 2**56 else 0
        for name in ("ascend_timeline_display_{}.json", "timeline_display_{}.json", "gpu_timeline_display_{}.json"):
            if (file := self._file(name)) is not None:
                yield self._displayed(file, kinds, origin)
                return

    def _on_streams(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            kind=pl.lit("kernel"),
            name="name",
            start_ns="start_ns",
            dur_ns="dur_ns",
            op_type=pl.coalesce("op_type", _type("name")),
            scope=_scope("name"),
            category=pl.lit("AI_CORE"),
            shapes="shapes",
            dtypes="dtypes",
            flops="flops",
            args="args",
            group=pl.lit(f"NPU {self.rank}"),
            label=pl.format("Stream {}", "stream"),
            track_kind=pl.lit("stream"),
            device=pl.lit(self.rank, pl.Int32),
            tid="stream",
        )

    def _displayed(self, file: Path, kinds: pl.DataFrame, origin: int) -> pl.DataFrame:
        """Chrome events. The process says the device, 9000 the AI CPUs, 10000 communication; rows of scopes have a level."""
        scratch = self.options.scratch / f"timeline {self.rank}"
        scratch.mkdir()
        found = chrome.decoded(file, Options(scratch=scratch, partial=self.options.partial))
        self.problems += found.problems
        lanes: dict[tuple[Any, ...], int] = {}
        local = [np.array([lanes.setdefault(tuple(key), len(lanes)) for key in report.tracks], np.int32) for report in found.reports]
        spans = _kineto.load(scratch, "spans", local)
        args = pl.concat([pl.scan_ipc(one).select("args") for one in _kineto.files(scratch, "spans")]).collect()["args"]
        where = pl.DataFrame(
            [(number, str(key[0]), str(key[1])) for key, number in lanes.items()],
            {"track": pl.Int32, "pid": pl.String, "tid": pl.String},
            orient="row",
        )
        gpu = file.name.startswith("gpu")
        rows = (
            spans.select("track", "start_ns", "dur_ns", short=pl.col("name").cast(pl.String))
            .with_columns(
                args=args, full=args.str.extract(r'"(?:fullname|op_full_name)":\s*"([^"]*)"'), said=args.str.extract(r'"type":\s*"([^"]*)"')
            )
            .join(where, on="track", how="left", maintain_order="left")
            .with_columns(name=pl.coalesce("full", "short"))
            .join(kinds.drop("args"), on="name", how="left", maintain_order="left")
        )
        step = pl.col("short").str.contains(r"^\d+$")
        scope = pl.col("args").str.contains(r'"scope_level"') | (pl.col("tid") == "100001")
        communication = pl.col("pid") == "10000"
        ai_cpu = pl.col("pid") == "9000"
        on_stream = pl.col("tid").str.contains(r"^\d+$") & ~scope & ~step
        kind = (
            pl.when(step).then(pl.lit("step")).when(scope).then(pl.lit("scope")).when(communication).then(pl.lit("communication"))
            .when(ai_cpu | on_stream).then(pl.lit("kernel")).otherwise(pl.lit("annotation" if not gpu else "op"))
        )  # fmt: skip
        device = pl.when(~step & ~scope & (on_stream | communication | ai_cpu)).then(self.rank)
        type_ = pl.coalesce("op_type", pl.when(pl.lit(not gpu)).then("said"), _type("name"))
        return rows.select(
            kind=kind,
            name=pl.when(pl.lit(gpu)).then("short").otherwise("name"),
            start_ns=pl.col("start_ns") + origin,
            dur_ns="dur_ns",
            op_type=pl.when(kind.is_in(["kernel", "op", "communication"])).then(type_),
            scope=_scope("name"),
            category=pl.when(ai_cpu).then(pl.lit("AI_CPU")).when(on_stream).then(pl.lit("gpu kernel" if gpu else "AI_CORE")),
            shapes="shapes",
            dtypes="dtypes",
            flops="flops",
            args="args",
            group=pl.lit(f"{'GPU' if gpu else 'NPU'} {self.rank}"),
            label=pl.when(ai_cpu).then(pl.lit("AI CPU")).when(communication).then(pl.format("Communication {}", "tid"))
            .when(on_stream).then(pl.format("Stream {}", "tid")).otherwise("tid"),
            track_kind=pl.when(device.is_not_null()).then(pl.lit("stream"))
            .when(pl.lit(gpu) & ~step & ~scope).then(pl.lit("thread")).otherwise(pl.lit("annotation")),
            device=device.cast(pl.Int32),
            tid=pl.when(ai_cpu).then(pl.format("aicpu {}", "tid"))
            .when(communication).then(pl.format("communication {}", "tid")).otherwise("tid"),
        )  # fmt: skip

    def _ai_cpu(self) -> Iterator[pl.DataFrame]:
        """Each call on an AI CPU: times in ms, and when it ran in us; older files have no types of their own."""
        rows = self._table("aicpu_intermediate_{}.csv")
        if not {"total_time", "run_start"} <= set(rows.columns):
            return
        name = column(rows, "kernel_type", "node_type_name", "op_type")
        begin = number(pl.col("run_start"), 1000.0).round().cast(pl.Int64, strict=False)
        yield rows.select(
            kind=pl.lit("kernel"),
            name=name,
            start_ns=pl.when(begin > 0).then(begin),
            dur_ns=_minddata.milliseconds(pl.col("total_time")),
            op_type=name.str.extract(r"^([^-]*)"),
            category=pl.lit("AI_CPU"),
            args=pl.struct(pl.all()).struct.json_encode(),
            group=pl.lit(f"NPU {self.rank}"),
            label=pl.lit("AI CPU (calls without a place on the timeline)"),
            track_kind=pl.lit("other"),
            device=pl.lit(self.rank, pl.Int32),
            tid=pl.lit("aicpu"),
        ).filter(pl.col("name").is_not_null() & pl.col("dur_ns").is_not_null())

    # Means over calls

    def _means(self, kinds: pl.DataFrame) -> Iterator[pl.DataFrame]:
        rows = self._table("aicore_intermediate_{}_detail.csv")
        if rows.width:
            # Mean of a call in ms; older files have no frequency: there each operator counts once, as in their sums by type.
            name, calls = pl.col(rows.columns[0]), number(column(rows, "execution_frequency"))
            known = rows.select(name=name, mean_ns=_exact_ms(rows, "execution_time"), calls=calls.fill_null(1)).join(
                kinds, on="name", how="left", maintain_order="left"
            )
            yield self._mean_spans(known, "kernel", "AI_CORE", "NPU", "aicore_intermediate")
        rows = self._table("pynative_op_intermediate_{}_detail.csv")
        if rows.width:
            known = rows.select(
                name=pl.col(rows.columns[0]),
                mean_ns=_exact_ms(rows, "execution_time"),
                calls=number(column(rows, "execution_frequency")).fill_null(1),
            )
            yield self._mean_spans(
                known.join(kinds, on="name", how="left", maintain_order="left"), "kernel", "AI_CORE", "NPU", "pynative_op_intermediate"
            )
        rows = self._table("gpu_activity_data_{}.csv")
        if rows.width and "name" in rows.columns:
            known = rows.select(
                name="name", calls=number(column(rows, "occurrences")).fill_null(1),
                mean_ns=number(column(rows, "avg_duration(us)", "avg_duration"), 1000.0),
                total_ns=number(column(rows, "total_duration(us)", "total_duration"), 1000.0),
                op_type=column(rows, "op_full_name").str.extract(r"([^/]*?)(?:-op\d+)?$"),
                scope=column(rows, "op_full_name").str.extract(r"^(.*)/[^/]*$"),
                args=pl.struct(pl.all()).struct.json_encode(),
            )  # fmt: skip
            yield self._mean_spans(known, "kernel", "gpu kernel", "GPU", "gpu_activity_data")
        rows = self._table("gpu_op_detail_info_{}.csv")
        if "op_side" in rows.columns and self._file("cpu_op_detail_info_{}.csv"):
            rows = rows.filter(pl.col("op_side") != "Host")  # that file has them as well
        if rows.width and "op_full_name" in rows.columns:
            known = rows.select(
                name="op_full_name", op_type=column(rows, "op_type"), calls=number(column(rows, "op_occurrences")).fill_null(1),
                mean_ns=number(column(rows, "op_avg_time(us)"), 1000.0), total_ns=number(column(rows, "op_total_time(us)"), 1000.0),
                args=pl.struct(pl.all()).struct.json_encode(),
            )  # fmt: skip
            yield self._mean_spans(known, "op", "Device", "", "gpu_op_detail_info")

    def _host_means(self, each: bool) -> Iterator[pl.DataFrame]:
        rows = self._table("cpu_op_detail_info_{}.csv")
        if not each and rows.width and "full_op_name" in rows.columns:
            known = rows.select(
                name="full_op_name", op_type=column(rows, "op_type"), calls=number(column(rows, "op_occurrences")).fill_null(1),
                mean_ns=_exact_ms(rows, "op_avg_time(ms)"), total_ns=_exact_ms(rows, "op_total_time(ms)"),
                args=pl.struct(pl.all()).struct.json_encode(),
            )  # fmt: skip
            yield self._mean_spans(known, "op", "HostCpuOps", "", "cpu_op_detail_info")

    def _mean_spans(self, rows: pl.DataFrame, kind: str, category: str, device: str, file: str) -> pl.DataFrame:
        """As many spans as there were calls, which add up to the total."""
        have = set(rows.columns)
        total = pl.coalesce("total_ns", pl.col("mean_ns") * pl.col("calls")) if "total_ns" in have else pl.col("mean_ns") * pl.col("calls")
        timed = (pl.col("mean_ns") >= 0) & total.is_between(0, 2**62)
        whole = rows.filter(pl.col("name").is_not_null() & timed & pl.col("calls").is_between(1, _MOST_CALLS))
        if lost := rows.height - whole.height:
            self.problems.append(Problem(file, f"{lost:,} rows without a name, a time or a number of calls that can be", lost))
        if whole.height:
            self.problems.append(
                Problem(file, "only means over calls were recorded: each call is shown with the mean, and with no place in time", 0)
            )
        each = whole.with_columns(calls=pl.col("calls").cast(pl.Int64), total=total.round().cast(pl.Int64)).select(
            pl.all(), nth=pl.int_ranges(0, "calls")
        ).explode("nth")  # fmt: skip
        # A remainder of nanoseconds goes to the first calls, so that the sum is the source's.
        share = pl.col("total") // pl.col("calls") + (pl.col("nth") < pl.col("total") % pl.col("calls")).cast(pl.Int64)
        return each.select(
            kind=pl.lit(kind),
            name="name",
            start_ns=pl.lit(None, pl.Int64),
            dur_ns=share,
            op_type=pl.coalesce(pl.col("op_type") if "op_type" in have else None, _type("name")),
            scope=pl.coalesce(pl.col("scope") if "scope" in have else None, _scope("name")),
            category=pl.lit(category),
            shapes=pl.col("shapes") if "shapes" in have else pl.lit(None, pl.String),
            dtypes=pl.col("dtypes") if "dtypes" in have else pl.lit(None, pl.String),
            flops=pl.col("flops") if "flops" in have else pl.lit(None, pl.Int64),
            args=pl.col("args") if "args" in have else pl.lit(None, pl.String),
            group=pl.lit(f"{device} {self.rank}" if device else "operators"),
            label=pl.lit("means of calls, without a place in time"),
            track_kind=pl.lit("other"),
            device=pl.lit(self.rank if device else None, pl.Int32),
            tid=pl.lit(file),
        )

    def _dynamic(self) -> Iterator[pl.DataFrame]:
        """Operators and kernels of each step with their shapes: us, no start."""
        found = self._object("dynamic_shape_info_{}.json")
        for key, on_device in (("operator", False), ("kernel", True)):
            steps = found.get(key)
            rows, odd = [], 0
            for step, calls in steps.items() if isinstance(steps, dict) else []:
                for call in map(mapped, listed(calls)):
                    try:
                        shapes = "[" + ",".join(str(one) for one in call.get("shape_info") or []) + "]"
                        name = str(call.get("op_full_name") or call.get("op_name") or call.get("kernel_name") or call["op_type"])
                        name = str(call.get("kernel_name") or call.get("name") or name) if on_device else name
                        length, kind = exact(call.get("dur", call.get("duration")), 1000), call.get("op_type")
                        said = json.dumps(call)
                        rows.append((name, str(kind) if kind else None, length, index(call.get("step", step)), shapes, said))
                    except (KeyError, TypeError, ValueError):
                        odd += 1
            if odd:
                self.problems.append(Problem("dynamic_shape_info", f"{odd:,} calls without a name or a duration", odd))
            if rows:
                columns = {
                    "name": pl.String,
                    "op_type": pl.String,
                    "dur_ns": pl.Int64,
                    "step": pl.Int32,
                    "shapes": pl.String,
                    "args": pl.String,
                }
                yield pl.DataFrame(rows, columns, orient="row").select(
                    pl.all(),
                    kind=pl.lit("kernel" if on_device else "op"),
                    scope=_scope("name"),
                    start_ns=pl.lit(None, pl.Int64),
                    category=pl.lit("dynamic shape"),
                    group=pl.lit(f"GPU {self.rank}" if on_device else "operators"),
                    label=pl.lit(f"{key}s of each step, without a place in time"),
                    track_kind=pl.lit("other"),
                    device=pl.lit(self.rank if on_device else None, pl.Int32),
                    tid=pl.lit(f"dynamic {key}"),
                )

    def _laid_out(self, parts: list[pl.DataFrame], spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
        """Spans without a place in time, one after the other, behind everything that has one: no step is to hold them."""
        if not parts:
            return pl.DataFrame(schema=_SPANS)
        ends = [
            frame.select(last.max()).item()
            for frame, last in ((spans, pl.col("start_ns") + pl.col("dur_ns")), (steps, pl.col("end_ns")))
            if frame.height
        ]
        first = max((end for end in ends if end is not None), default=0)
        rows = pl.concat(parts, how="diagonal_relaxed")
        behind = first + pl.col("dur_ns").cum_sum().over("tid") - pl.col("dur_ns")
        return rows.with_columns(start_ns=behind)

    def _placed(self, spans: pl.DataFrame) -> dict[str, pl.DataFrame]:
        lanes = spans.select(_LANE).unique(maintain_order=True).with_row_index("track").with_columns(pl.col("track").cast(pl.Int32))
        placed = complete(spans.join(lanes, on=_LANE, how="left", nulls_equal=True, maintain_order="left").drop(_LANE))
        tracks = lanes.select(
            "track", "group", "label", "device", "tid", kind="track_kind", sort="track", pid=pl.col("group"),
        )  # fmt: skip
        return {"spans": placed.with_columns(start_ns=pl.col("start_ns") + self.shift_ns), "tracks": tracks}

    # Beside what ran

    def _devices(self) -> pl.DataFrame:
        columns = {"device": pl.Int32, "kind": pl.String, "memory_bytes": pl.Int64}
        names = {file.name for file in self.path.glob(f"*_{self.rank}*")}
        if any(
            name.startswith(("aicore", "aicpu", "ascend", "framework_raw", "output_", "pynative", "hccl", "timeline_")) for name in names
        ):
            kind = "aicore"
        elif any(name.startswith("gpu_") for name in names):
            kind = "gpu"
        elif any(name.startswith(("step_trace_raw", "memory_usage")) for name in names):
            kind = "aicore"
        else:
            return pl.DataFrame(schema=columns)
        capacity = self._object("memory_usage_summary_{}.json").get("capacity")
        size = round(float(str(capacity)) * 2**30) if _is_number(capacity) and 0 < float(str(capacity)) < 2**32 else None
        return pl.DataFrame([(self.rank, kind, size)], columns, orient="row")

    def _unplaced(self, told: pl.DataFrame) -> pl.DataFrame:
        return told.select(
            kind=pl.lit("communication"),
            name="name",
            start_ns=pl.lit(None, pl.Int64),
            dur_ns=pl.col("communication_ns") + pl.col("wait_ns"),
            category=pl.lit("hccl"),
            step="step",
            args=pl.struct("wait_ns", "communication_ns").struct.json_encode(),
            group=pl.lit(f"NPU {self.rank}"),
            label=pl.lit("communication of each step, without a place in time"),
            track_kind=pl.lit("other"),
            device=pl.lit(self.rank, pl.Int32),
            tid=pl.lit("hccl"),
        )

    def _with_waits(self, spans: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
        """The transfers on the timeline with the waits that hccl_raw says, by step and name: where a step has one of that name."""
        once = pl.len().over("step", "name") == 1
        calls = spans.filter(pl.col("kind") == "communication", pl.col("step").is_not_null()).filter(once).select("step", "name")
        known = told.filter(once).join(calls, on=["step", "name"], how="semi")
        if lost := told.height - known.height:
            self.problems.append(Problem("hccl_raw", f"{lost:,} waits of operators that are not on the timeline by that name", lost))
        said = known.select(
            "step", "name", kind=pl.lit("communication"), said=pl.struct("wait_ns", "communication_ns").struct.json_encode()
        )
        return spans.join(said, on=["step", "name", "kind"], how="left", maintain_order="left").with_columns(
            args=pl.coalesce("said", "args")
        ).drop("said")  # fmt: skip

    def _memory(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Tensors alive in the order of execution, of every graph: a microsecond for each node, as there are no times."""
        samples: list[tuple[str, int, float, str]] = []
        blocks: list[tuple[Any, ...]] = []
        device, first, odd = f"npu {self.rank}", 0, 0
        for graph in self._object("memory_usage_details_{}.json").values():
            if not isinstance(graph, dict):
                continue
            lines = [line for line in listed(graph.get("lines")) if _is_number(line)]
            samples += [(f"allocated {device}", (first + order) * 1000, float(line) * 2**30, "bytes") for order, line in enumerate(lines)]
            seen: set[str] = set()
            for tensors in listed(graph.get("breakdowns")):
                for tensor in listed(tensors):
                    text = json.dumps(tensor, sort_keys=True)
                    if text in seen:
                        continue
                    seen.add(text)
                    try:
                        size, start, end = exact(tensor["size"], 2**30), tensor.get("life_start"), tensor.get("life_end")
                        alloc = None if start is None else exact((first + exact(start)) * 1000)
                        free = None if end is None else exact((first + exact(end) + 1) * 1000)
                        said = [_text(tensor.get(key)) if key != "shape" else tensor.get(key) for key in _TENSOR]
                        shape = None if said[2] is None else json.dumps(said[2])
                        blocks.append((device, size, alloc, free, *said[:2], shape, *said[3:]))
                    except (KeyError, TypeError, ValueError):
                        odd += 1
            first += max(len(lines), len(listed(graph.get("nodes"))), 1)
        if first:
            self.problems.append(
                Problem(
                    "memory_usage_details",
                    "memory is MindSpore's prediction, in the order of execution: a microsecond stands for a node",
                    0,
                )
            )
        if odd:
            self.problems.append(Problem("memory_usage_details", f"{odd:,} tensors without a size", odd))
        texts: dict[str, type[pl.DataType]] = dict.fromkeys(("name", "dtype", "shape", "format", "category"), pl.String)
        return (
            pl.DataFrame(samples, _COUNTERS, orient="row"),
            pl.DataFrame(
                blocks,
                {"device": pl.String, "bytes": pl.Int64, "alloc_ns": pl.Int64, "free_ns": pl.Int64} | texts,
                orient="row",
                strict=False,
            ),
        )

    def _pipeline(self) -> pl.DataFrame:
        found = _minddata.pipeline(self.path, str(self.rank))
        if found.height:
            return found
        rows = self._table("minddata_pipeline_raw_{}.csv")
        if "op_id" not in rows.columns:
            return found
        return rows.select(
            op_id=pl.col("op_id").cast(pl.Int32, strict=False),
            op_type=column(rows, "op_type"),
            workers=column(rows, "num_workers").cast(pl.Int32, strict=False),
            parent=column(rows, "parent_id").cast(pl.Int32, strict=False),
            queue_capacity=column(rows, "output_queue_length").cast(pl.Int32, strict=False),
        )

    def _queues(self, first: int) -> Iterator[pl.DataFrame]:
        """Samples without times begin at the first moment that is known."""
        since = first + self.shift_ns
        noted: list[tuple[str, str, int]] = []
        header = {"monotonic_offset_ns": [self.shift_ns]}
        yield from _minddata.counters(self.path, header, noted, str(self.rank), since)
        yield from _minddata.machine(self.path, str(self.rank), self.shift_ns)
        if self._file("pipeline_profiling_{}.json") is None:
            rows = self._table("minddata_pipeline_raw_{}.csv")
            for row in rows.iter_rows(named=True):
                sizes = cluster.decoded(row.get("output_queue_size"))
                interval = row.get("sample_interval") or 1
                every = float(interval) * 1e6 if _is_number(interval) and abs(float(interval)) < 2**32 else 1e6
                if isinstance(sizes, list):
                    sizes = [size if _is_number(size) else None for size in sizes]
                    at = [round(every * nth) + since for nth in range(len(sizes))]
                    columns = {
                        "name": f"queue {row['op_id']} {row.get('op_type') or ''}".strip(),
                        "at_ns": at,
                        "value": sizes,
                        "unit": "rows",
                    }
                    yield pl.DataFrame(columns, _COUNTERS, strict=False)
        for name, scale in (("minddata_aicpu_{}.txt", 1e3), ("minddata_getnext_profiling_{}.txt", 1.0)):
            if (file := self._file(name)) is not None:
                yield self._get_next(file, scale)
        self.problems += [Problem(where, what, lost) for where, what, lost in noted]

    def _get_next(self, file: Path, scale: float) -> pl.DataFrame:
        """`GetNext_... start end size` of the queue on the device; microseconds on Ascend, nanoseconds on a GPU."""
        samples, odd = [], 0
        for line in file.read_text("utf-8", "replace").splitlines():
            cells = line.split()
            if not cells or not cells[0].startswith("GetNext"):
                continue
            try:
                begin, finish, size = float(cells[1]), float(cells[2]), float(cells[3])
                at = exact(finish, scale) + self.shift_ns
            except (ValueError, IndexError):
                odd += 1
                continue
            samples += [("queue device", at, size, "rows"), ("batch time device", at, (finish - begin) * scale / 1e6, "ms")]
        if odd:
            self.problems.append(Problem(file.name, f"{odd:,} lines without start, end and size", odd))
        return pl.DataFrame(samples, _COUNTERS, orient="row")


def _first(steps: pl.DataFrame, spans: pl.DataFrame) -> int:
    """The first moment of what has its place in time."""
    placed = spans.filter(pl.col("track_kind") != "other")["start_ns"]
    return min((int(column.min()) for column in (steps["start_ns"], placed) if column.count()), default=0)  # type: ignore[arg-type]


def _counts(text: pl.Expr) -> pl.Expr:
    """Counts of the system's clock; some versions write them as floats."""
    return (
        pl.coalesce(text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False).round().cast(pl.Int64, strict=False)) * _COUNT_NS
    )


def _exact_ms(rows: pl.DataFrame, name: str) -> pl.Expr:
    return number(column(rows, name), 1e6)


_TENSOR = ("tensor_name", "data_type", "shape", "format", "type")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _collective(rest: str) -> str:
    """`parallel_0` or `1_AllReduce-op5`: the operator where there is one."""
    named = re.match(r"^\d+_(.+)$", rest)
    return named[1] if named else rest


def _type(column: str) -> pl.Expr:
    return pl.col(column).str.extract(r"([^/]*?)(?:-op\d+)?$")


def _scope(column: str) -> pl.Expr:
    return pl.col(column).str.extract(r"^(.*)/[^/]*$")


def _operands(info: str | None) -> tuple[str | None, str | None, str | None]:
    """Shapes and types of the inputs: `{"input_0": {"format", "data_type", "shape"}, ...}`; a shape is text or a list."""
    found = cluster.decoded(info)
    if not isinstance(found, dict):
        return None, None, None
    inputs = [said for name, said in sorted(found.items(), key=_place) if str(name).startswith("input") and isinstance(said, dict)]
    shapes = [_shape(said.get("shape")) for said in inputs]
    dtypes = [str(said.get("data_type") or "").removeprefix("NUMBER_TYPE_").lower() for said in inputs]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":")), info


def _place(item: tuple[str, Any]) -> tuple[str, int]:
    word, _, number = str(item[0]).rpartition("_")
    return word, int(number) if number.isdecimal() else 0


def _shape(said: object) -> list[int]:
    sizes = said if isinstance(said, list) else str(said or "").strip("[]").split(",")
    return [int(size) for size in (str(one).strip() for one in sizes) if re.fullmatch(r"-?[0-9]{1,18}", size)]


def _is_number(value: object) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and np.isfinite(float(str(value)))
    except ValueError:
        return False
