"""The MindSpore part of a capture: files of MindSpore's CPU profiler and of MindData, compiled graphs, times of the training loop.

mindspore/<piece>/          see `mindspore_files`
graphs/graph_build_N.ir     see `mindspore_graphs`
minddata/                   see `readers.common.minddata`
mindspore_*.npz             cells, marks, updates, graph_calls, steps, ranges: column files of the collector
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.model import intervals, schema
from stepscope.model.intervals import Ints
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.capture.mindspore_files import CALLS_LOST, load_memory, load_operators
from stepscope.readers.capture.mindspore_graphs import Graphs
from stepscope.readers.capture.mindspore_operators import describe_operators
from stepscope.readers.capture.mindspore_steps import assign_steps, find_steps
from stepscope.readers.capture.tables import load_table
from stepscope.readers.common import minddata as common_minddata
from stepscope.readers.common.problems import FileProblems

_TABLES = ("cells", "marks", "updates", "graph_calls", "steps", "ranges")


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    pieces = sorted((path / "mindspore").glob("*")) + sorted(path.glob("*_ascend_ms/FRAMEWORK"))
    return read_pieces(pieces, path, header, path / "minddata")


def read_pieces(pieces: list[Path], path: Path, header: dict[str, Any], minddata: Path) -> Trace:
    """MindSpore's files in these folders, with the tables and graphs of the capture at `path`, and MindData's files in `minddata`."""
    problems: FileProblems = []
    ops = load_operators(pieces, header, problems)
    if ops.is_empty() and not any(message.endswith(CALLS_LOST) for _, message, _ in problems):
        problems.append(("mindspore", "no operator ran while this was recorded", 0))
    graphs = Graphs(sorted((path / "graphs").glob("*.ir")))
    ops = describe_operators(ops, graphs, header, problems)
    damaged: dict[str, str] = {}
    tables = {name: load_table(path, f"mindspore_{name}", damaged, text=pl.String) for name in _TABLES}
    problems += [(name, f"the column file is damaged ({why}): its rows are lost", 1) for name, why in damaged.items()]
    cells = tables["cells"]
    if header.get("blocking") and header.get("mode") == "pynative":
        ops = _assign_cells(ops, cells)
    elif header.get("mode") == "pynative" and cells.height:
        message = (
            "operators have no module: PyNative mode runs them behind the Python code; "
            "mindspore.runtime.launch_blocking() before the network makes them run in it"
        )
        problems.append(("mindspore", message, 0))
    steps, ops = find_steps(tables, ops, graphs, header, problems)
    spans, tracks = _place_on_tracks(ops, assign_steps(_python_spans(tables, steps), steps), header)
    rows = {
        "spans": spans,
        "tracks": tracks,
        "steps": steps,
        "counters": pl.concat(
            [load_memory(pieces, header, problems), *common_minddata.counters(minddata, header, problems)], how="diagonal"
        ),
        "pipeline": common_minddata.pipeline(minddata),
        "problems": pl.DataFrame(problems, {"file": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row"),
    }
    rank = pl.lit(int(header.get("rank", 0)), pl.Int32)
    extra = {key: header[key] for key in ("mode", "ascend") if header.get(key)}
    return Trace({name: frame.with_columns(rank=rank) for name, frame in rows.items()}, Meta(framework="mindspore", extra=extra))


def _assign_cells(ops: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Operators with their module: the innermost Cell that was being called. Valid only where kernels are launched one by one."""
    if cells.is_empty() or ops.is_empty():
        return ops
    cells = cells.sort("start_ns")
    start = np.concatenate((cells["start_ns"].to_numpy(), ops["start_ns"].to_numpy()))
    end = start + np.concatenate((cells["dur_ns"].to_numpy(), np.zeros(ops.height, np.int64)))
    parent = intervals.nest(np.zeros(len(start), np.int64), start, end).parent[cells.height :]
    inside = (parent >= 0) & (parent < cells.height)
    scope = cells["scope"].gather(np.where(inside, parent, 0)).set(pl.Series(~inside), None)
    return ops.with_columns(scope=pl.coalesce(scope, "scope"))


def _python_spans(tables: dict[str, pl.DataFrame], steps: pl.DataFrame) -> pl.DataFrame:
    """Steps, batches, optimizers and modules, with their thread (null: the training thread) and a label for their track."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    parts = [_step_spans(steps.filter(pl.col("how") != "whole"), "step", "ProfilerStep#{}")]
    if (calls := tables["graph_calls"]).height:
        parts.append(calls.select("start_ns", "tid", kind=pl.lit("api"), name="function", dur_ns=duration, label=pl.lit("loop")))
    if (ranges := tables["ranges"]).height:
        parts.append(ranges.with_columns(label=pl.lit("loop")))
    model_steps = tables["steps"]
    if model_steps.height and "train" in set(model_steps["phase"]):  # without training, the evaluations are the steps
        parts.append(_step_spans(model_steps.filter(pl.col("phase") == "eval"), "annotation", "eval#{}"))
    if (cells := tables["cells"]).height:
        parts.append(cells.with_columns(kind=pl.lit("scope"), name=pl.col("scope").str.extract(r"([^/]*)$"), label=pl.lit("modules")))
    return pl.concat(parts, how="diagonal_relaxed")


def _step_spans(steps: pl.DataFrame, kind: str, name: str) -> pl.DataFrame:
    duration = pl.col("end_ns") - pl.col("start_ns")
    return steps.select(kind=pl.lit(kind), name=pl.format(name, "step"), start_ns="start_ns", dur_ns=duration, label=pl.lit("steps"))


def _place_on_tracks(ops: pl.DataFrame, others: pl.DataFrame, header: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans and tracks. MindSpore does not record the thread of an operator: operators that overlap get different tracks."""
    pid, main = str(header.get("pid", "")), str(header.get("main_tid", ""))
    number = _first_free_tracks(ops["start_ns"].to_numpy(), ops["dur_ns"].to_numpy())
    keys = [("operators", "thread", main)]
    keys += [(name, "thread", name) for name in (f"operators {extra}" for extra in range(2, int(number.max(initial=0)) + 2))]
    parts = [ops.with_columns(track=pl.Series(number, dtype=pl.Int32))]
    others = others.with_columns(tid=(pl.col("tid") if "tid" in others.columns else pl.lit(None)).cast(pl.String).fill_null(main))
    for (label, tid), rows in others.group_by("label", "tid", maintain_order=True):
        parts.append(rows.drop("label", "tid").with_columns(track=pl.lit(len(keys), pl.Int32)))
        keys.append((str(label), "annotation", str(tid)))
    spans = pl.concat(parts, how="diagonal_relaxed").with_columns(
        category=pl.when(pl.col("op_type").is_not_null()).then(pl.lit("HostCpuOps"))
    )
    tracks = pl.DataFrame(
        [
            {"track": track, "group": f"python {pid}".strip(), "label": label, "kind": kind, "sort": track, "pid": pid, "tid": tid}
            for track, (label, kind, tid) in enumerate(keys)
        ],
        schema={name: schema.TABLES["tracks"][name] for name in ("track", "group", "label", "kind", "sort", "pid", "tid")},
    )
    return _link_gradients(complete(spans.sort("start_ns", maintain_order=True))), tracks


def _first_free_tracks(start: Ints, duration: Ints) -> Ints:
    """The first free track of each operator, for operators sorted by start."""
    track, ends = np.zeros(len(start), np.int64), [0]
    latest_end = np.maximum.accumulate(start + duration)[:-1] if len(start) else start
    if not (start[1:] < latest_end).any():
        return track  # one after the other, as nearly always
    for row, (begin, length) in enumerate(zip(start.tolist(), duration.tolist(), strict=True)):
        free = next((number for number, end in enumerate(ends) if end <= begin), len(ends))
        ends[free : free + 1] = [begin + length]
        track[row] = free
    return track


def _link_gradients(spans: pl.DataFrame) -> pl.DataFrame:
    """Gradients with `flow_in`: the last call of their forward operator before them."""
    calls = spans.filter(pl.col("op_type").is_not_null()).select(forward="name", start_ns="start_ns", flow_in="span")
    gradients = spans.filter(pl.col("forward").is_not_null()).select("span", "forward", "start_ns")
    links = gradients.join_asof(calls, on="start_ns", by="forward", check_sortedness=False).select("span", "flow_in")
    return spans.drop("forward").join(links, on="span", how="left", maintain_order="left")
