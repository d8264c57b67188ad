"""Raw Ascend data of 2020 (MindSpore 1.0 and before): task log, training trace, and text from the framework and the AI CPU.

hwts.log.data.45.dev.profiler_default_tag.N.slice_k     starts and ends of tasks
training_trace.46.dev.profiler_default_tag.N.slice_k    tags of iterations and collectives
Framework.host.vm.task_desc_info.N.slice_k              operator, blocks, task, stream of the graph
Framework.host.vm.graph_desc_info.N.slice_k             type, formats, data types and shapes of operators
Framework.host.vm.point.N.slice_k                       the operators of the tags
DATA_PREPROCESS.dev.AICPU.N.slice_k                     AI CPU operators, as text

The files are in one folder or in its `data`. The only clock is the device's counter, in units of 10 ns; AI CPU operators have another one.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.errors import DataError
from stepscope.model.intervals import Ints
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.ascend.prof import steps as prof_steps
from stepscope.readers.ascend.prof.device.records import hwts
from stepscope.readers.ascend.prof.files import Notes, args_json, lines, raw_files, records

_TICK_NS = 10
_LATEST = 2**54  # years after the start of the chip: an invalid reading of the counter
_NAME = (
    r"(hwts\.log\.data\.\d+\.dev\.profiler_default_tag|training_trace\.\d+\.dev\.profiler_default_tag"
    r"|Framework\.host\.vm\.(?:task_desc_info|graph_desc_info|point)|DATA_PREPROCESS\.dev\.AICPU)\.([0-9]{1,6})\.slice_[0-9]+"
)
_TRACE = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("at", "<u8")])
_FORWARD, _BACKWARD, _ITERATION_END, _FIRST_COLLECTIVE = 1, 2, 255, 3
# MindSpore's numbers of data types.
_TYPES = {
    30: "bool",
    31: "int",
    32: "int8",
    33: "int16",
    34: "int32",
    35: "int64",
    36: "uint",
    37: "uint8",
    38: "uint16",
    39: "uint32",
    40: "uint64",
    41: "float",
    42: "float16",
    43: "float32",
    44: "float64",
}


def sniff(path: Path) -> bool:
    return any(re.fullmatch(_NAME, name) for folder in (path, path / "data") for name in raw_files(folder))


def read(path: Path, options: Options) -> Trace:
    notes = Notes(path)
    files_by_stream: dict[str, list[Path]] = {}
    numbers = set()
    for folder in (path, path / "data"):
        for name, file in raw_files(folder).items():
            if match := re.fullmatch(_NAME, name):
                files_by_stream.setdefault(re.sub(r"\.\d+\.", ".", match[1] + "."), []).append(file)
                numbers.add(int(match[2]))
    if len(numbers) > 1:
        raise DataError(path, f"raw data of several devices ({', '.join(map(str, sorted(numbers)))}); open one of them")
    device = numbers.pop()
    streams = {name: sorted(files, key=lambda file: int(file.name.rpartition("_")[2])) for name, files in files_by_stream.items()}
    descriptions = _operator_descriptions(streams)
    tags = records(streams.get("training_trace.dev.profiler_default_tag.", []), _TRACE, notes)
    tags = tags[tags["at"] < _LATEST]
    points = _points(streams)
    steps = _steps(tags, notes)
    numbered = steps.with_columns(model_id=pl.lit(0, pl.Int64), iteration="step")
    spans = [
        _operators(hwts(streams.get("hwts.log.data.dev.profiler_default_tag.", []), notes), descriptions, notes),
        _collectives(tags, points, descriptions),
        _aicpu(streams.get("DATA_PREPROCESS.dev.AICPU.", [])),
        # The files do not contain the model: there is only one.
        prof_steps.as_spans(numbered, "step", label=pl.lit("Step Trace"), tid=pl.lit("model 0")).drop("step"),
    ]
    _report_uncovered_steps(spans[0], steps, notes)
    return _assembled(device, pl.concat(spans, how="diagonal"), steps, points, notes, options)


def _report_uncovered_steps(tasks: pl.DataFrame, steps: pl.DataFrame, notes: Notes) -> None:
    """Report the steps after the end of the task log, which fills up long before the training trace: their operators are missing."""
    last = (tasks["start_ns"] + tasks["dur_ns"]).max()
    bare = steps.filter(pl.col("start_ns") > last).height if isinstance(last, int) else 0
    if bare:
        notes.add(
            "hwts.log.data", f"the task log ends in step {steps.height - bare} of {steps.height}: the operators of later steps are missing"
        )


def _operator_descriptions(streams: dict[str, list[Path]]) -> pl.DataFrame:
    """The operators that the framework describes: task, op (full name), name, scope, op_type, shapes, dtypes, args."""
    tasks = []
    for line in lines(streams.get("Framework.host.vm.task_desc_info.", [])):
        parts = line.rsplit(maxsplit=3)
        if len(parts) == 4 and all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts[1:]):  # more digits are damage
            tasks.append({"op": parts[0], "blocks": int(parts[1]), "task": int(parts[2]), "graph_stream": int(parts[3])})
    graph = [_operator(line) for line in lines(streams.get("Framework.host.vm.graph_desc_info.", [])) if line.startswith("op_name:")]
    texts = ("op", "op_type", "shapes", "dtypes", "tensors")
    about = pl.DataFrame(graph, schema=dict.fromkeys(texts, pl.String)).unique("op", keep="first")
    schema = {"op": pl.String, "blocks": pl.Int64, "task": pl.Int64, "graph_stream": pl.Int64}
    rows = pl.DataFrame(tasks, schema=schema).join(about, on="op", how="full", coalesce=True)
    return rows.with_columns(
        name="op",
        scope=pl.col("op").str.extract(r"^(.*)/[^/]*$"),
        op_type=pl.coalesce("op_type", pl.col("op").str.extract(r"([^/]*?)(?:-op[0-9]+)?$")),
        args=args_json({"full name": "op", "Task Id": "task", "Block Num": "blocks", "tensors": "tensors"}),
    ).drop("tensors")


def _operator(line: str) -> dict[str, Any]:
    """op_name:A op_type:B input_id:0 input_format:C input_data_type:43 input_shape:"1,2" ... output_id:0 ..."""
    fields = re.findall(r'(\w+):("[^"]*"|\S+)', line)
    about = dict(fields[:2])
    tensors: list[dict[str, str]] = []
    for key, value in fields[2:]:
        side, _, field = key.partition("_")
        if field == "id":
            tensors.append({"tensor": f"{side} {value}"})
        elif tensors:
            tensors[-1][field] = value.strip('"')
    inputs = [tensor for tensor in tensors if tensor["tensor"].startswith("input")]
    shapes = [[int(size) for size in re.findall(r"[0-9]{1,18}", tensor.get("shape", ""))] for tensor in inputs]
    types = [_TYPES.get(int(code), code) if re.fullmatch(r"[0-9]{1,9}", code := tensor.get("data_type", "")) else code for tensor in inputs]
    return {
        "op": about.get("op_name"),
        "op_type": about.get("op_type"),
        "shapes": _text(shapes),
        "dtypes": _text(types),
        "tensors": _text(tensors),
    }


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _points(streams: dict[str, list[Path]]) -> dict[int, str]:
    entries = (line.partition(" ") for line in lines(streams.get("Framework.host.vm.point.", [])))
    return {int(number): op.strip() for number, _, op in entries if re.fullmatch(r"[0-9]{1,9}", number) and op.strip()}


def _steps(tags: Any, notes: Notes) -> pl.DataFrame:
    """Iterations: each ends with its tag and starts at the end of the previous one; the first starts with its forward pass."""
    tags = tags[np.argsort(tags["at"], kind="stable")]
    at, tag = _ns(tags["at"]), tags["tag"]
    ends = at[tag == _ITERATION_END]
    if not len(ends):
        if len(tags):
            notes.add("training_trace", "no end of an iteration was recorded")
        return pl.DataFrame(schema=dict.fromkeys(("step", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns"), pl.Int64))
    of = np.searchsorted(ends, at)  # the end of an iteration is part of it
    rows = pl.DataFrame({"step": of + 1, "tag": tag.astype(np.int64), "at": at}).filter(pl.col("step") <= len(ends))
    steps = rows.group_by("step").agg(
        fp_start_ns=pl.col("at").filter(pl.col("tag") == _FORWARD).first(),
        bp_end_ns=pl.col("at").filter(pl.col("tag") == _BACKWARD).last(),
        first_ns=pl.col("at").min(),
        end_ns=pl.col("at").max(),
    )
    return (
        steps.sort("step")
        .with_columns(start_ns=pl.coalesce(pl.col("end_ns").shift(1), "fp_start_ns", "first_ns"))
        .select("step", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns")
    )


def _ns(ticks: Any) -> Ints:
    times: Ints = ticks.astype(np.int64) * _TICK_NS
    return times


def _operators(tasks: pl.DataFrame, descriptions: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """Executions of operators, matched by the number of the task: graph and device number streams differently."""
    known = descriptions.filter(pl.col("task").is_not_null()).unique("task", keep="first", maintain_order=True)
    tasks = tasks.filter(pl.col("end") < _LATEST)
    rows = tasks.join(known, on="task", how="left", maintain_order="left")
    unnamed = rows["op"].null_count()
    if unnamed:
        notes.add(
            "hwts.log.data", f"{unnamed} of {rows.height} tasks belong to no operator of the graph (collectives, events): shown as tasks"
        )
    start = pl.col("start").cast(pl.Int64)
    return rows.select(
        "op_type",
        "scope",
        "shapes",
        "dtypes",
        name=pl.coalesce("name", pl.format("task {}", "task")),
        kind=pl.when(pl.col("op").is_not_null()).then(pl.lit("kernel")).otherwise(pl.lit("other")),
        category=pl.lit("AI_CORE"),
        label=pl.format("Stream {}", "stream"),
        track_kind=pl.lit("stream"),
        tid=pl.col("stream").cast(pl.String),
        start_ns=start * _TICK_NS,
        dur_ns=(pl.col("end").cast(pl.Int64) - start) * _TICK_NS,
        args=pl.coalesce("args", args_json({"Task Id": "task"})),
        task="task",
        blocks="blocks",
    )


def _collectives(tags: Any, points: dict[int, str], descriptions: pl.DataFrame) -> pl.DataFrame:
    """Tags 3 and 4, 5 and 6, ... are the start and the end of a collective on its stream."""
    tags = tags[(tags["tag"] >= _FIRST_COLLECTIVE) & (tags["tag"] < _ITERATION_END)]
    tags = tags[np.argsort(tags["at"], kind="stable")]
    number = (tags["tag"].astype(np.int64) - _FIRST_COLLECTIVE) // 2
    rows = pl.DataFrame(
        {"number": number, "stream": tags["stream"].astype(np.int64), "is_start": tags["tag"] % 2 == 1, "at": _ns(tags["at"])}
    )
    key = ["number", "stream"]
    rows = rows.with_columns(end=pl.col("at").shift(-1).over(key), closed=~pl.col("is_start").shift(-1).over(key))
    rows = rows.filter(pl.col("is_start") & pl.col("closed"))
    names = pl.DataFrame(
        {"number": [(tag - _FIRST_COLLECTIVE) // 2 for tag in points if tag % 2 and tag >= _FIRST_COLLECTIVE],
         "op": [op for tag, op in points.items() if tag % 2 and tag >= _FIRST_COLLECTIVE]},
        schema={"number": pl.Int64, "op": pl.String},
    )  # fmt: skip
    about = descriptions.select("op", "scope", "op_type", "shapes", "dtypes").unique("op", keep="first")
    rows = rows.join(names, on="number", how="left", maintain_order="left").join(about, on="op", how="left", maintain_order="left")
    return rows.select(
        "shapes",
        "dtypes",
        op_type=pl.coalesce("op_type", pl.col("op").str.extract(r"([^/]*?)(?:-op[0-9]+)?$"), pl.lit("collective")),
        scope=pl.coalesce("scope", pl.col("op").str.extract(r"^(.*)/[^/]*$")),
        name=pl.coalesce("op", pl.format("collective {}", "number")),
        kind=pl.lit("communication"),
        category=pl.lit("COMMUNICATION"),
        label=pl.format("Communication on stream {}", "stream"),
        track_kind=pl.lit("stream"),
        tid=pl.col("stream").cast(pl.String),
        start_ns="at",
        dur_ns=pl.col("end") - pl.col("at"),
    )


def _aicpu(files: list[Path]) -> pl.DataFrame:
    """AI CPU operators: a line with the node and its times (microseconds of another clock), then a line with the thread."""
    text = "\n".join(lines(files))
    nodes = r"Node:(\S+), Run \w*tart:(\d{1,15})\b,.*?Run end:(\d{1,15})\b"
    threads = r"Thread\[.*?dispatchTime=(\d{1,15}) us, totalTime=(\d{1,15}) us"
    rows, open_nodes = [], []
    for match in re.finditer(f"(?s){nodes}|{threads}", text):
        name, start, end, dispatch, total = match.groups()
        if name is not None:
            open_nodes.append((name, int(start), int(end)))
        elif open_nodes:
            name, first, last = open_nodes.pop(0)
            rows.append({"op": name, "start": first, "end": last, "dispatch": int(dispatch), "total": int(total)})
    rows += [{"op": name, "start": first, "end": last} for name, first, last in open_nodes]
    schema = {"op": pl.String, "start": pl.Int64, "end": pl.Int64, "dispatch": pl.Int64, "total": pl.Int64}
    return pl.DataFrame(rows, schema=schema).select(
        name="op",
        scope=pl.col("op").str.extract(r"^(.*)/[^/]*$"),
        op_type=pl.col("op").str.extract(r"([^/]*?)(?:-op[0-9]+)?$"),
        kind=pl.lit("kernel"),
        category=pl.lit("AI_CPU"),
        label=pl.lit("AI CPU"),
        track_kind=pl.lit("stream"),
        tid=pl.lit("aicpu"),
        start_ns=pl.col("start") * 1000,
        dur_ns=(pl.col("end") - pl.col("start")).clip(0) * 1000,
        args=args_json({"total time(us)": "total", "dispatch time(us)": "dispatch"}),
    )


def _assembled(device: int, spans: pl.DataFrame, steps: pl.DataFrame, points: dict[int, str], notes: Notes, options: Options) -> Trace:
    if spans.is_empty() and steps.is_empty():
        notes.add("", "no readable spans or steps in these files", 1)
    rank = pl.lit(options.rank if options.rank is not None else device, pl.Int32)
    tracks = (
        spans.select("label", "track_kind", "tid")
        .unique(maintain_order=True)
        .sort(pl.col("label").str.starts_with("Communication"), pl.col("tid").cast(pl.Int64, strict=False))
    )
    tracks = tracks.with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32))
    spans = spans.join(tracks, on=["label", "track_kind", "tid"], how="left", maintain_order="left").sort("start_ns", maintain_order=True)
    if steps.height:
        spans = spans.join_asof(steps.select("step", "start_ns", until="end_ns"), on="start_ns")
        spans = spans.with_columns(step=pl.when(pl.col("start_ns") < pl.col("until")).then("step"))
    spans = complete(spans)
    details = spans.select("span", "task", "blocks", "iteration", model="model_id", is_step=pl.col("kind").cast(pl.String) == "step")
    details = details.filter(pl.any_horizontal(pl.col("task", "blocks").is_not_null()) | pl.col("is_step")).drop("is_step")
    tables = {
        "tasks": details,
        "spans": spans,
        "tracks": tracks.select(
            "track",
            "tid",
            "label",
            group=pl.lit(f"NPU {device}"),
            kind="track_kind",
            device=pl.lit(device),
            sort="track",
            pid=pl.lit(str(device)),
            stream=pl.when(pl.col("track_kind") == "stream").then(pl.col("tid").cast(pl.Int64, strict=False)),
        ),
        "steps": steps.with_columns(how=pl.lit("marker"), phase=pl.lit("train")),
        "devices": pl.DataFrame({"device": [device], "name": ["Ascend"], "kind": ["aicore"]}),
        "problems": notes.frame(),
    }
    options_ = {"fp_start": points.get(_FORWARD), "bp_end": points.get(_BACKWARD)}
    meta = Meta(
        source=str(notes.root),
        format="prof",
        framework="mindspore",
        ranks=[options.rank if options.rank is not None else device],
        extra={"points": {key: op for key, op in options_.items() if op}},
    )
    return Trace({name: rows.with_columns(rank=rank) for name, rows in tables.items()}, meta)
