"""From columns of Chrome events to the tables, for the timelines of msprof, torch_npu and MindSpore on Ascend.

The name of a process gives its layer; process numbers differ between versions:

    Ascend Hardware             streams of a device; also a thread of iterations, `Step Trace(Model ID:1)`
    HCCL, Communication         operators (`Group 0 Communication`, `Communication Kernel`) and the planes that carry them out
    CANN                        calls of the host into Ascend's libraries
    Overlap Analysis            unions of the above: left out, because our analyses compute them
    AI Core Freq, HBM, ...      counters
    CPU OP, Scope Layer         MindSpore's host operators, and scopes
    anything else               the framework: Python, MindSpore
"""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.errors import DataError
from stepscope.model import intervals
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import nearest_around, steps_by_time
from stepscope.model.trace import Meta, Trace
from stepscope.readers import Options
from stepscope.readers.ascend.common.communication_tables import merged_args
from stepscope.readers.ascend.common.kernel_details import NO_KERNELS, KernelTable, Matches, end, match_kernels
from stepscope.readers.ascend.common.kinds import SERVING, classify, separate_collectives
from stepscope.readers.ascend.common.samples import counter_table
from stepscope.readers.ascend.common.step_sums import NO_SUMS, STEPS_FILE, DeviceSums, with_lost_kernels, with_step_sums
from stepscope.readers.ascend.common.steps import is_single_step, single_step, steps_of_kernels
from stepscope.readers.ascend.common.tables import COMMUNICATION_CORES, NO_PREPARING
from stepscope.readers.ascend.common.texts import json_lists
from stepscope.readers.ascend.common.tracks import describe_tracks, device_table, layers_of_spans, track_table, tracks_in
from stepscope.readers.chrome.kineto.scopes import assign_scopes
from stepscope.readers.chrome.kineto.spans import flow_spans, nest_spans, optional_rows
from stepscope.readers.chrome.kineto.steps import assign_steps, find_steps
from stepscope.readers.chrome.parts import close_pairs, load_part, part_files
from stepscope.readers.chrome.records import Report
from stepscope.readers.common.problems import Problem, problem_frame

# Args of tasks that have columns.
_TASK_ARGS = {
    "connection": (r'"connection_id":\s*"?([0-9]+)', pl.Int64),
    "task_type": (r'"[Tt]ask [Tt]ype":\s*"([^"]*)"', pl.String),
    "bytes": (r'"size\((?:Byte|B)\)":\s*"?([0-9]+)', pl.Int64),
    "src": (r'"src rank":\s*"?([0-9]+)', pl.Int64),
    "dst": (r'"dst rank":\s*"?([0-9]+)', pl.Int64),
    "transport": (r'"transport type":\s*"([^"]*)"', pl.String),
    "link": (r'"link type":\s*"([^"]*)"', pl.String),
    "iteration": (r'"Iteration ID":\s*"?([0-9]+)', pl.Int64),
    "fp": (r'"FP Start":\s*"?([0-9]+(?:\.[0-9]+)?)', pl.String),
    "bp": (r'"BP End":\s*"?([0-9]+(?:\.[0-9]+)?)', pl.String),
}


def assemble(
    path: Path,
    reports: list[Report],
    problems: list[Problem],
    options: Options,
    *,
    format: str,
    kernels: KernelTable = NO_KERNELS,
    sums: DeviceSums = NO_SUMS,
    rank: int | None = None,
    device: int = 0,
) -> Trace:
    """The trace of decoded events whose columns are in the scratch folder. `device` is the number of streams without one."""
    scratch = options.scratch
    numbers: dict[tuple[int | str, int | str, str], int] = {}
    local = [np.array([numbers.setdefault(tuple(key), len(numbers)) for key in report.tracks], np.int32) for report in reports]  # type: ignore[arg-type]
    problems = [*problems, *(close_pairs(scratch, local) if part_files(scratch, "spans") else [])]
    matches, tracks = match_kernels(scratch, local, describe_tracks(numbers, reports, device), kernels, problems)
    if not part_files(scratch, "spans"):
        raise DataError(path, "no spans in it")
    spans = load_part(scratch, "spans", local).drop("external")
    spans, tracks = separate_collectives(spans, tracks)
    task_args = _task_args(scratch, local, tracks)
    spans = classify(spans.with_columns(correlation=task_args["connection"]), tracks, task_args, matches)
    spans, _ = nest_spans(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
    spans = _link_causes(spans, load_part(scratch, "flows", local), tracks, matches)
    spans = assign_scopes(spans)
    steps, spans = _assign_steps(spans, _iterations(spans, task_args, tracks), tracks, matches, kernels.file, sums, problems)
    steps = _with_sums(steps, spans, tracks, sums, problems)
    shown = ~pl.Series(_redundant(spans, tracks))
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": _add_passing_columns(spans, scratch, matches, task_args).filter(shown),
        "tracks": track_table(tracks, spans.filter(shown)),
        "steps": steps,
        "counters": counter_table(load_part(scratch, "counters", local), tracks),
        "links": _links(spans, task_args, tracks),
        "devices": device_table(tracks),
        "problems": problem_frame(problems, path),
    }
    rank = next((number for number in (rank, options.rank) if number is not None and number >= 0), 0)
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    processes = set(tracks["process"].drop_nulls())
    framework = "mindspore" if processes & {"MindSpore", "CPU OP", "Scope Layer"} else "pytorch" if (spans["kind"] == "op").any() else ""
    return Trace(ranked, Meta(format=format, framework=framework, ranks=[rank]))


def _task_args(scratch: Path, local: list[NDArray[np.int32]], tracks: pl.DataFrame) -> pl.DataFrame:
    """The columns of _TASK_ARGS for all spans; null on the framework's tracks, whose args are not parsed."""
    parsed = tracks_in(tracks, "hardware", "communication", "planes", "cann", "iterations")
    parts = []
    for file in part_files(scratch, "spans"):
        number = int(file.suffixes[0][1:])
        frame = pl.read_ipc(file, columns=["track", "args"])
        track = local[number][frame["track"].to_numpy()] if number < len(local) else frame["track"].to_numpy()
        text = frame["args"].set(pl.Series(~np.isin(track, parsed)), None)
        parts.append(pl.select(_extract(text, pattern, dtype).alias(name) for name, (pattern, dtype) in _TASK_ARGS.items()))
    return pl.concat(parts)


def _extract(text: pl.Series, pattern: str, dtype: type[pl.DataType]) -> pl.Series:
    values = text.str.extract(pattern)
    return values if dtype == pl.String else values.cast(dtype, strict=False)


def _link_causes(spans: pl.DataFrame, flows: pl.DataFrame, tracks: pl.DataFrame, matches: Matches) -> pl.DataFrame:
    """Spans with their cause: the launch of a task in CANN, the framework's operator of the task, the forward of a backward operator."""
    flow_in, op = _flow_causes(spans, flows)
    # Without an arrow, a launch and its task have the same connection.
    numbered = spans.select("span", "correlation").with_columns(layers_of_spans(spans, tracks)).filter(pl.col("correlation").is_not_null())
    calls = numbered.filter(pl.col("layer") == "cann").unique("correlation", keep="first", maintain_order=True)
    tasks = numbered.filter(pl.col("layer").is_in(["hardware", "communication"]) & pl.Series(flow_in[numbered["span"].to_numpy()] < 0))
    launched = tasks.join(calls.select("correlation", cause="span"), on="correlation")
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    is_op = (spans["kind"] == "op").to_numpy()
    with_op = np.flatnonzero(op >= 0)
    op[with_op] = nearest_around(is_op, spans["parent"].fill_null(-1).to_numpy(), op[with_op])
    # Without a flow from the launch, the operator is the cause.
    unlaunched = (flow_in < 0) & (op >= 0)
    flow_in[unlaunched] = op[unlaunched]
    op[is_op] = -1
    op_type = _op_types(spans, op, matches).cast(pl.Categorical)
    return spans.with_columns(optional_rows("flow_in", flow_in), optional_rows("op", op), op_type=op_type)


def _flow_causes(spans: pl.DataFrame, flows: pl.DataFrame) -> tuple[Ints, Ints]:
    """The spans at the start of the arrows that end at each span: its cause, and its operator; -1 for none."""
    flow_in, op = np.full(spans.height, -1, np.int64), np.full(spans.height, -1, np.int64)
    if flows.is_empty():
        return flow_in, op
    bound = flow_spans(spans, flows).to_frame().with_columns(flows["at_ns", "phase", "flow", "category"].get_columns())
    bound = bound.filter(pl.col("bound") >= 0).with_columns(pl.col("category").cast(pl.String))
    bound = bound.filter(~pl.col("category").str.starts_with("Data_aug"))
    starts = bound.filter(pl.col("phase") == "s").sort("at_ns").select("category", "flow", start="bound")
    # A task never starts before its launch, but a backward operator's flow may end before it starts in some versions.
    ends = bound.filter(pl.col("phase").is_in(["t", "f"])).select("category", "flow", end="bound")
    pairs = ends.join(starts.unique(["category", "flow"], keep="first"), on=["category", "flow"]).filter(pl.col("start") != pl.col("end"))
    from_operator = pairs["category"].is_in(["async_npu", "mindspore_to_npu"])
    for arrows, target in ((pairs.filter(~from_operator), flow_in), (pairs.filter(from_operator), op)):
        target[arrows["end"].to_numpy()] = arrows["start"].to_numpy()
    return flow_in, op


def _op_types(spans: pl.DataFrame, op: Ints, matches: Matches) -> pl.Expr:
    """Type of host operators: their name, or its last part. Type of device work: by the kernel table, its name or its operator."""
    name = pl.col("name").cast(pl.String)
    type_in_name = pl.when(name.str.contains("/")).then(name.str.extract(r"([^/]*?)(?:-op[0-9]+)?(?:_[0-9]+)?$")).otherwise(name)
    name_of_op = spans["name"].cast(pl.String).gather(np.maximum(op, 0)).set(pl.Series(op < 0), None)
    # The table gives a kernel inside a transfer the transfer's type.
    inside = (spans["kind"] == "kernel") & matches.values("core", spans.height).is_in(COMMUNICATION_CORES).fill_null(False)
    type_in_table = pl.Series(matches.values("op_type", spans.height)).zip_with(~inside, spans["name"].cast(pl.String))
    device = pl.col("kind").is_in(["kernel", "communication"]) | ((pl.col("kind") == "other") & name.str.contains(SERVING))
    path = pl.when(device & name.str.contains("/")).then(type_in_name)
    kernel_name = pl.when(pl.col("kind") == "kernel").then(name)
    return (
        pl.when(pl.col("kind") == "op")
        .then(type_in_name)
        .when(device)
        .then(pl.coalesce(type_in_table, path, name_of_op, kernel_name))
        .when(pl.Series(op >= 0))
        .then(name)
    )


def _assign_steps(
    spans: pl.DataFrame,
    iterations: pl.DataFrame,
    tracks: pl.DataFrame,
    matches: Matches,
    file: str,
    sums: DeviceSums,
    problems: list[Problem],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the spans with theirs: as the device, the kernel table or the framework marks them, in this order."""
    untimed = spans["track"].is_in(tracks_in(tracks, "untimed"))
    in_table = matches.values("step", spans.height).cast(pl.Int32, strict=False).set(untimed | (spans["kind"] == "step").any(), None)
    if iterations.height:
        steps, step = iterations, steps_by_time(spans, iterations)
    elif in_table.count():
        steps = steps_of_kernels(spans, in_table, sums.durations)
        step = steps_by_time(spans, steps)
        last = "the last step is shown until the end of its last kernel, and took longer"
        if (steps["how"] == "device").any():
            first = "a step is shown from its first kernel to that of the next step. The first step began earlier, and"
        else:
            first = f"the first step begins as in {STEPS_FILE}, and each step ends where the next one begins;"
            if sums.steps["preparing"].null_count():
                problems.append(Problem(STEPS_FILE, NO_PREPARING, 0))
        problems.append(Problem(file, f"only kernels have steps: {first} {last}", 0))
    else:
        steps, remark = find_steps(spans)
        problems += [remark] if remark else []
        if is_single_step(spans, steps):
            steps, spans = single_step(spans), spans.with_columns(step=pl.lit(1, pl.Int32))
        else:
            spans = assign_steps(spans, steps)
        step = spans["step"]
    numbers = step if iterations.height else pl.select(pl.coalesce(in_table, step)).to_series()
    return steps, spans.with_columns(step=numbers.set(untimed, None))


def _with_sums(steps: pl.DataFrame, spans: pl.DataFrame, tracks: pl.DataFrame, sums: DeviceSums, problems: list[Problem]) -> pl.DataFrame:
    """The steps with the sums of their device work: of their table, or of the tracks that the tools compute from all device work."""
    steps = with_step_sums(steps, sums.steps, problems)
    if "device_computing_ns" not in steps.columns:
        steps = steps.with_columns(
            pl.Series(name, [None] * steps.height if len(sums.gaps.starts) else _overlap_sums(steps, spans, tracks, track), pl.Int64)
            for name, track in (("device_computing_ns", "Computing"), ("device_communication_ns", "Communication"))
        )
    return with_lost_kernels(steps, sums, spans.filter(pl.col("kind") == "kernel").height, problems)


def _overlap_sums(steps: pl.DataFrame, spans: pl.DataFrame, tracks: pl.DataFrame, name: str) -> list[int | None]:
    """Per step the time on a track of the overlap analysis; null if there is no such analysis, or one for each of several devices."""
    overlap = tracks.filter(pl.col("layer") == "overlap")
    if overlap["pid"].n_unique() != 1:
        return [None] * steps.height
    rows = spans.join(overlap.select("track"), on="track", how="semi").filter(pl.col("name").cast(pl.String) == name)
    times = intervals.merge(rows["start_ns"].to_numpy(), (rows["start_ns"] + rows["dur_ns"]).to_numpy())
    covered: list[int | None] = intervals.covered(times, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()).tolist()
    return covered


def _iterations(spans: pl.DataFrame, task_args: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """Steps that the device marked. Those of several models are numbered together, in the order in which they ended."""
    rows = spans.select("track", "kind", "start_ns", "dur_ns").with_columns(task_args["iteration", "fp", "bp"].get_columns())
    models = tracks.filter(pl.col("layer") == "iterations").select("track", model=pl.col("label").str.extract(r"Model ID:\s*([0-9]+)"))
    rows = (
        rows.filter((pl.col("kind") == "step") & pl.col("iteration").is_not_null())
        .join(models, on="track")
        .with_columns(end_ns=end(), fp_start_ns=_timestamp("fp"), bp_end_ns=_timestamp("bp"))
        .unique(["model", "iteration", "start_ns"], keep="first")
        .sort("end_ns", "start_ns")
    )
    usable = rows["model"].n_unique() <= 1 and rows["iteration"].is_unique().all() and (rows["iteration"] < 2**31).all()
    return rows.select(
        "model",
        "start_ns",
        "end_ns",
        "fp_start_ns",
        "bp_end_ns",
        step=(pl.col("iteration") if usable else pl.int_range(1, pl.len() + 1)).cast(pl.Int32),
        phase=pl.when(pl.col("bp_end_ns").is_not_null()).then(pl.lit("train")),
        how=pl.lit("marker"),
    )


def _timestamp(column: str) -> pl.Expr:
    """Nanoseconds, from microseconds as text, some with the noise of a float at the end; null for 0."""
    parts = pl.col(column).str.splitn(".", 2).struct
    whole, fraction = parts.field("field_0").cast(pl.Int64, strict=False), parts.field("field_1").fill_null("0")
    digits = fraction.str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    timestamp = whole * 1000 + (digits + 500_000) // 1_000_000
    return pl.when(timestamp > 0).then(timestamp)


def _links(spans: pl.DataFrame, task_args: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """Transfers between two ranks: the tasks on planes that move bytes."""
    arguments = task_args["bytes", "src", "dst", "transport", "link"].get_columns()
    rows = spans.select("track", "step", "start_ns", "dur_ns").with_columns(arguments)
    on_plane = pl.col("track").is_in(tracks_in(tracks, "planes"))
    rows = rows.filter(on_plane & (pl.col("bytes") > 0) & (pl.col("dst") < 2**31) & (pl.col("src") < 2**31))
    operators = (
        spans.filter(pl.col("track").is_in(tracks_in(tracks, "communication")))
        .select("name", "start_ns", group="track", end_ns=end())
        .sort("start_ns")
    )
    rows = rows.join(_groups_of_planes(tracks), on="track", how="left", maintain_order="left").with_row_index("row")
    names = [pl.DataFrame(schema={"row": pl.UInt32, "op": pl.String})]
    for (group,), tasks in rows.group_by("group"):
        calls = operators.filter(pl.col("group") == group) if group is not None else operators
        if calls.height:
            index = intervals.enclosing(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy(), tasks["start_ns"].to_numpy())
            op = calls["name"].cast(pl.String).gather(np.maximum(index, 0)).set(pl.Series(index < 0), None)
            names.append(tasks.select("row").with_columns(op.alias("op")))
    rows = rows.join(pl.concat(names), on="row", how="left", maintain_order="left")
    valid = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED", ""]).not_()
    return rows.select("step", "op", "src", "dst", "bytes", "dur_ns", transport=pl.coalesce(pl.when(valid).then("link"), "transport"))


def _groups_of_planes(tracks: pl.DataFrame) -> pl.DataFrame:
    """track, group: the planes of a group follow the track of its operators."""
    rows = tracks.filter(pl.col("layer").is_in(["communication", "planes"]))
    rows = rows.sort("pid", "sort", pl.col("tid").cast(pl.Int64, strict=False), "track")
    group = pl.when(pl.col("layer") == "communication").then("track").forward_fill().over("pid", mapping_strategy="group_to_rows")
    return rows.select("track", "layer", group=group).filter(pl.col("layer") == "planes").select("track", "group")


def _redundant(spans: pl.DataFrame, tracks: pl.DataFrame) -> NDArray[np.bool_]:
    """Overlap tracks, which are sums of other tracks; and iterations that several files of one result contain."""
    layer = layers_of_spans(spans, tracks).fill_null("")
    marked = (layer == "iterations") | (spans["category"].cast(pl.String) == "Reduce").fill_null(False)
    repeated = marked.to_numpy() & ~spans.select(pl.struct("name", "start_ns", "dur_ns").is_first_distinct()).to_series().to_numpy()
    return np.asarray((layer == "overlap").to_numpy() | repeated)


def _add_passing_columns(spans: pl.DataFrame, scratch: Path, matches: Matches, task_args: pl.DataFrame) -> pl.LazyFrame:
    """The spans with the columns that are never in memory all at once, and with those of the kernel table."""
    passing = pl.concat([pl.scan_ipc(file).select("flops", "bytes", "shapes", "dtypes", "args") for file in part_files(scratch, "spans")])
    in_table = pl.DataFrame([matches.values(name, spans.height).alias(f"table_{name}") for name in ("shapes", "dtypes", "details")])
    size = task_args["bytes"]
    in_table = in_table.with_columns(task_bytes=pl.when((size > 0).fill_null(False)).then(size))
    whole = pl.concat(
        [spans.select(pl.exclude("correlation")).lazy(), spans.select("correlation").lazy(), in_table.lazy(), passing], how="horizontal"
    )
    # The text of shapes and types that torch_npu writes is in their columns.
    args = pl.col("args").str.replace_all(r'"Input (?:Dims|type)":\s*"(?:[^"\\]|\\.)*"(?:,\s*)?', "").str.replace(r",\s*\}$", "}")
    return whole.with_columns(
        shapes=pl.coalesce("table_shapes", _lists(pl.col("shapes"))),
        dtypes=pl.coalesce("table_dtypes", _lists(pl.col("dtypes"))),
        bytes=pl.coalesce("bytes", "task_bytes"),
        args=merged_args(args, pl.col("table_details")),
    ).drop("table_shapes", "table_dtypes", "table_details", "task_bytes")


def _lists(column: pl.Expr) -> pl.Expr:
    """torch_npu's text, `"2,3;\\r\\n;\\r\\n4"`, as JSON; other profilers write JSON."""
    text = column.cast(pl.String)
    return pl.when(text.str.starts_with('"')).then(json_lists(text)).otherwise(text)
