"""What `collect.mindspore` leaves in a capture: files of MindSpore's CPU profiler and of MindData, graphs, moments of the loop.

mindspore/<piece>/cpu_op_execute_timestamp_R.txt    name;HostCpuOps;start_ns,duration_ms,0 start_ns,duration_ms,0 ...
mindspore/<piece>/cpu_framework_R.txt               type;operator;id;input_1:[2, 3];input_2:NoShape;  one line per call, as they ran
mindspore/<piece>/cpu_op_detail_info_R.csv          the type of each name
mindspore/<piece>/cpu_ms_memory_record_R.txt        the memory pool, since the process began to record
graphs/graph_build_N.ir                             see `_mindspore_graphs`
minddata/                                           see `_minddata`
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from stepscope import captures, intervals, schema, units
from stepscope.errors import DataError
from stepscope.intervals import Ints
from stepscope.readers import Options, _minddata
from stepscope.readers import _mindspore_calls as graph_calls
from stepscope.readers._ascend_tables import number, read_table
from stepscope.readers._documents import files
from stepscope.readers._kineto import Problem
from stepscope.readers._mindspore_graphs import Graphs, Node
from stepscope.readers._wall_clock import BETWEEN_TWO, WallClock, of_session
from stepscope.trace import Meta, Trace, complete

# Whole names: ReduceSum, BroadcastTo and Gather compute.
_COLLECTIVES = (
    r"^(?:(?:Dist|Inner)Comm\w+|AllReduce|AllGatherV?|ReduceScatterV?|All[tT]oAll\w*|NeighborExchange(?:V2)?|Broadcast|Reduce"
    r"|Send|Receive|Barrier|CollectiveGather|CollectiveScatter|BatchISendIRecv)$"
)
_ITEM_BYTES = {
    name: size
    for size, names in {
        1: "bool int8 uint8",
        2: "float16 bfloat16 int16 uint16",
        4: "float32 int32 uint32",
        8: "float64 int64 uint64 complex64",
        16: "complex128",
    }.items()
    for name in names.split()
}


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    pieces = sorted((path / "mindspore").glob("*")) + sorted(path.glob("*_ascend_ms/FRAMEWORK"))
    return read_pieces(pieces, path, header, path / "minddata")


def read_pieces(pieces: list[Path], path: Path, header: dict[str, Any], minddata: Path) -> Trace:
    """MindSpore's files in these folders, with what a capture at `path` has beside them, and MindData's in `minddata`."""
    problems: list[tuple[str, str, int]] = []  # file, what, lost
    parts = [
        _on_one_clock(found, of_session(header, number), problems)
        for number, piece in enumerate(pieces)
        if (found := _operators(piece, problems, header.get("files_of", "*"))) is not None
    ]
    ops = pl.concat(parts).sort("start_ns") if parts else _NO_OPERATORS
    if ops.is_empty() and not any(what.endswith(_CALLS_LOST) for _, what, _ in problems):
        problems.append(("mindspore", "no operator ran while this was recorded", 0))
    graphs = Graphs(sorted((path / "graphs").glob("*.ir")))
    ops = _described(ops, graphs, header, problems)
    for table in ("cells", "marks", "updates", "graph_calls", "steps", "ranges"):
        damaged: dict[str, str] = {}
        _table(path, f"mindspore_{table}", damaged)
        problems += [(name, f"the column file is damaged ({why}): its rows are lost", 1) for name, why in damaged.items()]
    cells = _table(path, "mindspore_cells")
    if header.get("blocking") and header.get("mode") == "pynative":
        ops = _in_cells(ops, cells)
    elif header.get("mode") == "pynative" and cells.height:
        problems.append(("mindspore", "operators have no module: PyNative mode runs them behind the Python code; "
                         "mindspore.runtime.launch_blocking() before the network makes them run in it", 0))  # fmt: skip
    steps, ops = _steps(path, ops, graphs, header, problems)
    spans, tracks = _placed(ops, _stepped(_beside(path, steps, cells), steps), header)
    tables = {
        "spans": spans,
        "tracks": tracks,
        "steps": steps,
        "counters": pl.concat([_memory(pieces, header, problems), *_minddata.counters(minddata, header, problems)]),
        "pipeline": _minddata.pipeline(minddata),
        "problems": pl.DataFrame(problems, {"file": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row"),
    }
    rank = pl.lit(int(header.get("rank", 0)), pl.Int32)
    extra = {key: header[key] for key in ("mode", "ascend") if header.get(key)}
    return Trace({name: rows.with_columns(rank=rank) for name, rows in tables.items()}, Meta(framework="mindspore", extra=extra))


_CALLS_LOST = "the calls of operators are lost"
_NO_OPERATORS = pl.DataFrame(
    schema={"name": pl.String, "op_type": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "inputs": pl.String}
)


def _operators(piece: Path, problems: list[tuple[str, str, int]], of: str) -> pl.DataFrame | None:
    """The calls of one piece, by start: name, op_type, start_ns, dur_ns, inputs (as the file has them). `of` is a rank, or any."""
    times = next(iter(files(piece, f"cpu_op_execute_timestamp_{of}.txt")), None)
    if times is None:
        return None
    if times.stat().st_size == 0 and files(piece, f"cpu_op_detail_info_{of}.csv"):  # where no operator ran, none of the files is written
        problems.append((times.name, f"the file is empty: {_CALLS_LOST}", 1))
    calls = (
        _lines(times)
        .select(fields=pl.col("line").str.splitn(";", 3))
        .unnest("fields")
        .select(name="field_0", calls=pl.col("field_2").str.strip_chars().str.split(" "))
        .explode("calls")
        .with_columns(pl.col("calls").str.splitn(",", 3))
        .unnest("calls")
    )
    calls = calls.select(
        "name",
        start_ns=pl.col("field_0").cast(pl.Int64, strict=False),
        dur_ns=(pl.col("field_1").cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False),
        short=pl.when(pl.col("name").str.contains("/")).then(pl.col("name").str.extract(r"([^/]*)$")).otherwise(pl.lit("")),
    ).sort("start_ns", maintain_order=True)
    whole = calls.filter(pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0) & pl.col("name").is_not_null())
    if calls.height and whole.is_empty():
        raise DataError(times, "expected name;HostCpuOps;start_ns,duration_ms,thread ...")
    if lost := calls.height - whole.height:
        problems.append((times.name, f"{units.count(lost, 'call')} without a start or a duration", lost))
    calls = whole
    nth = pl.int_range(pl.len()).over("short")
    calls = calls.with_columns(nth=nth).join(_types(piece, problems, of), on="name", how="left", maintain_order="left")
    calls = calls.with_columns(op_type=pl.coalesce("op_type", pl.col("name").str.extract(r"([^/]*?)(?:-op\d+)?$")))
    inputs = _inputs(piece, of).with_columns(nth=nth)
    # The files are two records of the same calls: of those with one short name the nth is the nth, where there are as many.
    counts = calls.group_by("short").len().join(inputs.group_by("short").len("lines"), on="short", how="left")
    unlike = counts.filter(pl.col("len") != pl.col("lines").fill_null(0), pl.col("short") != "")
    if unlike.height:
        operators = units.count(unlike.height, "operator")
        what = f"shapes of {operators} do not line up with the calls: left out, such as those of {unlike['short'][0]}"
        problems.append((f"{piece.parent.name}/{piece.name}", what, 0))
    inputs = inputs.join(unlike, on="short", how="anti").filter(pl.col("short") != "")
    return calls.join(inputs, on=["short", "nth"], how="left", maintain_order="left").select(_NO_OPERATORS.columns)


def _on_one_clock(calls: pl.DataFrame, wall: WallClock | None, problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    """Calls, whose times MindSpore takes from the wall clock, where that was set while they ran."""
    if wall is None:
        return calls
    first = calls["start_ns"].to_numpy()
    (start, starts), (end, ends) = wall.place(first), wall.place(first + calls["dur_ns"].to_numpy())
    certain = starts & ends & (end >= start)
    if lost := int((~certain).sum()):
        problems.append(("mindspore", f"{units.count(lost, 'call')} of operators {BETWEEN_TWO}", lost))
    return calls.with_columns(start_ns=pl.Series(start), dur_ns=pl.Series(end - start)).filter(pl.Series(certain))


def _lines(file: Path) -> pl.DataFrame:
    return pl.DataFrame({"line": file.read_text("utf-8", "replace").splitlines()}, {"line": pl.String}).filter(pl.col("line") != "")


def _types(piece: Path, problems: list[tuple[str, str, int]], of: str) -> pl.DataFrame:
    file = next(iter(files(piece, f"cpu_op_detail_info_{of}.csv")), None)
    rows = _csv(file, problems) if file else pl.DataFrame()
    if not {"full_op_name", "op_type"} <= set(rows.columns):
        return pl.DataFrame(schema={"name": pl.String, "op_type": pl.String})
    return rows.select(name="full_op_name", op_type="op_type").drop_nulls("name").unique("name", keep="first")


def _csv(file: Path, problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    noted: list[Problem] = []
    rows = read_table(file, noted)
    problems += [(problem.where, problem.what, problem.lost) for problem in noted]
    return rows


def _inputs(piece: Path, of: str) -> pl.DataFrame:
    file = next(iter(files(piece, f"cpu_framework_{of}.txt")), None)
    lines = _lines(file) if file else pl.DataFrame(schema={"line": pl.String})
    return lines.select(fields=pl.col("line").str.splitn(";", 4)).unnest("fields").select(short="field_1", inputs="field_3")


class _Facts(NamedTuple):
    """What is known of an operator with given inputs: few, however many calls there are."""

    scope: str | None
    shapes: str | None
    dtypes: str | None
    flops: int | None
    bytes: int | None
    args: str | None
    forward: str | None


def _described(ops: pl.DataFrame, graphs: Graphs, header: dict[str, Any], problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    """With scope, shapes, dtypes, flops, bytes and args."""
    distinct = ops.select("name", "op_type", "inputs").unique(maintain_order=True)
    facts, unknown = [], 0
    for name, type_, inputs in distinct.iter_rows():
        shapes = _shapes(inputs)
        node = graphs.node(name, shapes)
        unknown += node is None
        facts.append(_facts(name, type_, shapes, node, graphs.forward_of(name)))
    columns = {
        "scope": pl.String,
        "shapes": pl.String,
        "dtypes": pl.String,
        "flops": pl.Int64,
        "bytes": pl.Int64,
        "args": pl.String,
        "forward": pl.String,
    }
    described = pl.concat([distinct, pl.DataFrame(facts, columns, orient="row")], how="horizontal")
    if unknown and header.get("mode") == "graph" and header.get("base"):
        known = units.count(unknown, "operator is", "operators are")
        what = f"{known} in no graph that was compiled while the profiler was there: data types and lines are not known, and \
scopes of gradients are MindSpore's own, which are wrong where layers share an operator"
        problems.append(("graphs", what, 0))
    communication = pl.col("op_type").str.contains(_COLLECTIVES)
    return ops.join(described, on=["name", "op_type", "inputs"], how="left", nulls_equal=True, maintain_order="left").select(
        pl.exclude("inputs"), kind=pl.when(communication).then(pl.lit("communication")).otherwise(pl.lit("op"))
    )


def _shapes(inputs: str | None) -> list[list[int]] | None:
    """`input_1:[2, 3];input_2:NoShape;`"""
    if not inputs:
        return None
    found = [one.partition(":")[2] for one in inputs.strip(";").split(";")]
    sizes = [[size.strip() for size in one.strip("[]").split(",")] if one.startswith("[") else [] for one in found]
    if any(not re.fullmatch(r"-?[0-9]{0,18}", size) for shape in sizes for size in shape):
        return None  # damaged
    return [[int(size) for size in shape if size.strip("-")] for shape in sizes]


def _held(number: int | None) -> int | None:
    """The number, if a column can hold it; damaged shapes give any."""
    return number if number is not None and abs(number) < 2**63 else None


def _facts(name: str, type_: str, shapes: list[list[int]] | None, node: Node | None, forward: str | None) -> _Facts:
    if shapes is None and node:
        shapes = [value.shape for value in node.inputs]
    output = node.outputs[0].shape if node and node.outputs else None
    dtypes = [value.dtype for value in node.inputs] if node else None
    scope = name.rpartition("/")[0] or None
    args: dict[str, Any] = {}
    if node and node.lines:
        args["source"] = node.lines
    if node and node.group:
        args["Process Group Name"] = node.group
    if forward and scope:
        right = f"Gradients/{forward.rpartition('/')[0]}"
        grad = next((part for part in reversed(scope.split("/")) if part.startswith("Grad_")), None)
        right = f"{right}/{grad}" if grad else right
        if right != scope:
            args["scope_by_mindspore"], scope = scope, right
        args["forward"] = forward
    moved = [*node.inputs, *node.outputs] if node and re.match(_COLLECTIVES, type_) else []
    sizes = [math.prod(value.shape) * _ITEM_BYTES[value.dtype] for value in moved if value.dtype in _ITEM_BYTES]
    return _Facts(
        scope,
        _json(shapes),
        _json(dtypes),
        _held(_flops(type_, shapes, output)),
        _held(max(sizes, default=None)),
        _json(args or None),
        forward,
    )


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _flops(type_: str, shapes: list[list[int]] | None, output: list[int] | None) -> int | None:
    """A multiply-add is two; padding saves nothing, and a bias counts nothing."""
    formula = _FORMULAS.get(type_)
    if formula is None or not shapes or len(shapes) < 2 or any(size < 0 for shape in [*shapes, output or []] for size in shape):
        return None
    return formula(shapes, output)


def _product(shapes: list[list[int]], output: list[int] | None) -> int | None:
    """[..., m, k] x [..., k, n], either transposed: (mk)(kn)(mn) is the square of mnk, for each of the batch."""
    a, b = shapes[:2]
    if output:
        batch = math.prod(output[:-2])
        square = math.prod(a) * math.prod(b) * math.prod(output)
        if batch * math.prod(a[-2:]) != math.prod(a) or batch * math.prod(b[-2:]) != math.prod(b):
            return 2 * math.prod(output) * a[-1] if a[-1] in b[-2:] else None  # one of the two serves the whole batch
        return 2 * batch * math.isqrt(square // batch**3)
    inner = {size for size in a[-2:] if size in b[-2:]}  # without the output, which dimension is k shows only where they differ
    return 2 * math.prod(a) * math.prod(b[-2:]) // inner.pop() if len(inner) == 1 and a[:-2] == b[:-2] else None


def _convolution(shapes: list[list[int]], output: list[int] | None) -> int | None:
    """Each point of the output meets one filter once."""
    return 2 * math.prod(output) * math.prod(shapes[1][1:]) if output else None


_FORMULAS: dict[str, Callable[[list[list[int]], list[int] | None], int | None]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "MatMulExt", "BatchMatMulExt", "Mm", "Bmm"), _product),
    "Dense": lambda shapes, output: 2 * math.prod(shapes[0]) * shapes[1][0],
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    # Inputs are the output's gradient and the filter, or the output's gradient and the input: the filter is what comes out.
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInput"), lambda shapes, output: _convolution(shapes, shapes[0])),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilter"),
        lambda shapes, output: _convolution([[], output], shapes[0]) if output else None,
    ),
}


def _in_cells(ops: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Each operator's module: the innermost Cell that was being called. True only where kernels are launched one by one."""
    if cells.is_empty() or ops.is_empty():
        return ops
    cells = cells.sort("start_ns")
    begin = np.concatenate((cells["start_ns"].to_numpy(), ops["start_ns"].to_numpy()))
    finish = begin + np.concatenate((cells["dur_ns"].to_numpy(), np.zeros(ops.height, np.int64)))
    parent = intervals.nest(np.zeros(len(begin), np.int64), begin, finish).parent[cells.height :]
    inside = (parent >= 0) & (parent < cells.height)
    scope = cells["scope"].cast(pl.String).gather(np.where(inside, parent, 0)).set(pl.Series(~inside), None)
    return ops.with_columns(scope=pl.coalesce(scope, "scope"))


def _steps(
    path: Path, ops: pl.DataFrame, graphs: Graphs, header: dict[str, Any], problems: list[tuple[str, str, int]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, and the operators with theirs.

    They are those that Model.train marked; else those between calls of Profiler.step(); else each call of an optimizer, or of a compiled
    function that uses one, ends a step; else each call of the compiled function that takes longest.
    """
    marks, updates, calls = (_table(path, f"mindspore_{name}") for name in ("marks", "updates", "graph_calls"))
    if (seen := _table(path, "mindspore_steps")).height:
        steps = _of_model(seen, marks, problems)
    elif marks.height > 1:
        steps = _of_marks(marks, updates)
        if "inferred" in marks.columns and marks["inferred"][1:].all():
            steps = graph_calls.steps_without_others(steps, calls, problems)
    elif updates.height:
        ends = graph_calls.training_calls(updates, problems)
        used = calls.filter(pl.col("start_ns") == ends["start_ns"][0]) if calls.height else calls
        what = f"{used['function'][0]}, which uses an optimizer" if used.height else "the optimizer"
        problems.append(("steps", f"no step markers: each step ends with a call of {what}", 0))
        steps = _of_calls(path, ops, ends, "train", marks, calls, header, problems)
    elif (ends := _longest(calls)).height > 1:
        problems.append(("steps", f"no step markers: each step ends with a call of {ends['function'][0]}", 0))
        trained = ops["name"].str.starts_with("Gradients/").any()
        steps = _of_calls(path, ops, ends, "train" if trained else None, marks, calls, header, problems)
    elif header.get("mode") == "graph" and calls.is_empty() and (found := graph_calls.repeated_graph(ops)):
        steps, step, partial = found
        problems.append(("steps", "no step markers: each step is one run of the graph", 0))
        if partial:
            which = units.count(partial, "operator call is", "operator calls are")
            what = f"{which} of a run of the graph that was not recorded whole, and of no step"
            problems.append(("steps", what, 0))
        ops = ops.with_columns(step=step)
        return _passes(steps, ops), ops
    elif ops.height:
        problems.append(("steps", "no step markers: the whole recording is one step (call Profiler.step(), or train with Model.train)", 0))
        end = pl.col("start_ns") + pl.col("dur_ns")
        steps = ops.select(step=pl.lit(0, pl.Int32), start_ns=pl.col("start_ns").min(), end_ns=end.max(), how=pl.lit("whole")).head(1)
        return steps, _stepped(ops, steps)
    else:
        steps = pl.DataFrame(schema={"step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "how": pl.String})
        return steps, _stepped(ops, steps)
    ops = ops.with_columns(step=graph_calls.step_of_operators(ops, calls, steps, graphs.names(), problems))
    return _passes(steps, ops), ops


def _longest(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of the compiled function that was called more than once and took longest on the host."""
    if calls.is_empty():
        return calls
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    callers = calls.group_by("caller", maintain_order=True).agg(pl.len(), length=length).filter(pl.col("len") > 1).sort("length")
    return calls.filter(pl.col("caller") == callers["caller"][-1]).sort("start_ns") if callers.height else calls.clear()


def _of_calls(
    path: Path,
    ops: pl.DataFrame,
    ends: pl.DataFrame,
    phase: str | None,
    marks: pl.DataFrame,
    calls: pl.DataFrame,
    header: dict[str, Any],
    problems: list[tuple[str, str, int]],
) -> pl.DataFrame:
    """Each of these calls ends a step. The first begins with its wait for data or its first call of a graph, where these are known."""
    number, begin = marks.row(0)[:2] if marks.height else (0, int(header.get("start_ns") or 0))
    steps = ends.select(
        step=pl.int_range(pl.len(), dtype=pl.Int32) + number,
        start_ns=pl.col("end_ns").shift(1, fill_value=begin),
        end_ns="end_ns",
        phase=pl.lit(phase, pl.String),
        how=pl.lit("inferred"),
    )
    steps = graph_calls.steps_without_others(steps, calls, problems)
    waits = _table(path, "mindspore_ranges")
    waits = waits.filter(pl.col("kind") == "data") if waits.height else waits
    for known in (waits, calls):
        inside = known.filter(pl.col("start_ns") >= steps["start_ns"][0], pl.col("start_ns") < ends["end_ns"][0]) if known.height else known
        if inside.height:
            first = graph_calls.start_of_first_step(ops, steps, int(inside["start_ns"].min()))  # type: ignore[arg-type]
            first_row = pl.int_range(pl.len()) == 0
            return steps.with_columns(start_ns=pl.when(first_row).then(pl.lit(first)).otherwise("start_ns"))
    return steps


def _of_model(seen: pl.DataFrame, marks: pl.DataFrame, problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    trained = seen.filter(pl.col("phase") == "train")
    seen = (trained if trained.height else seen).sort("start_ns")
    if marks.height:
        # Whoever counts steps, by Profiler.step() or `stepscope run`, will look for them by those numbers.
        counted = seen.select(at_ns="end_ns").join_asof(marks, on="at_ns")["step"]
        if counted.null_count() == 0 and counted.is_unique().all() and (marks.height > 1 or marks["step"][0] != 0):
            seen = seen.with_columns(step=counted)
        # The first mark is made when recording has begun: what beginning took is no part of a step.
        seen = seen.with_columns(start_ns=pl.col("start_ns").clip(pl.min_horizontal(marks["at_ns"][0], "end_ns")))
    if not seen["step"].is_unique().all():
        problems.append(("steps", "step numbers repeat, as of several calls of Model.train: counted on from the first", 0))
        seen = seen.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int32) + seen["step"][0])
    if sunk := seen.filter(pl.col("iterations") != 1).height:
        problems.append(
            (
                "steps",
                f"dataset sink mode: {units.count(sunk, 'step stands', 'steps stand')} for several iterations each, unseen by Python",
                0,
            )
        )
    phase = pl.when(pl.col("phase") == "eval").then(pl.lit("infer")).otherwise(pl.lit("train"))
    return seen.select("step", "start_ns", "end_ns", phase=phase, how=pl.lit("marker"))


def _of_marks(marks: pl.DataFrame, updates: pl.DataFrame) -> pl.DataFrame:
    """From mark to mark. What the last one began is a step if an optimizer was called in it before the recording ended."""
    after = updates.filter(pl.col("start_ns") > marks["at_ns"][-1]) if updates.height else updates
    end = after["end_ns"][0] if after.height == 1 else None
    return marks.select(
        "step", start_ns="at_ns", end_ns=pl.col("at_ns").shift(-1, fill_value=end), phase=pl.lit("train"), how=pl.lit("marker")
    ).drop_nulls("end_ns")


def _passes(steps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """When forward starts and backward ends, where scopes say which operator is a gradient: in graphs."""
    gradient = pl.col("name").str.starts_with("Gradients/")
    # An optimizer's counter depends on nothing, so it may run first.
    elsewhere = pl.col("op_type").is_in(["GetNext", "InitDataSetQueue", "AssignAdd"]) | pl.col("name").str.contains(
        r"/_?opt(?:im|imizer)?-"
    )
    forward = ~gradient & ~elsewhere
    found = (
        ops.group_by("step")
        .agg(
            fp_start_ns=pl.col("start_ns").filter(forward).min(),
            bp_end_ns=(pl.col("start_ns") + pl.col("dur_ns")).filter(gradient).max(),
        )
        .filter(pl.col("bp_end_ns").is_not_null(), pl.col("step").is_not_null())
    )
    return steps.join(found, on="step", how="left", maintain_order="left")


def _stepped(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    index = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), rows["start_ns"].to_numpy())
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, pl.Int32))
    return rows.with_columns(step=steps["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None))


def _beside(path: Path, steps: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """What Python saw: steps, batches, optimizers, modules; each with its thread (null: the one that trains) and a label for its track."""
    parts = [_marked(steps.filter(pl.col("how") != "whole"), "step", "ProfilerStep#{}")]
    if (calls := _table(path, "mindspore_graph_calls")).height:
        length = pl.col("end_ns") - pl.col("start_ns")
        parts.append(calls.select("start_ns", "tid", kind=pl.lit("api"), name="function", dur_ns=length, label=pl.lit("loop")))
    if (ranges := _table(path, "mindspore_ranges")).height:
        parts.append(ranges.with_columns(label=pl.lit("loop")))
    seen = _table(path, "mindspore_steps")
    if seen.height and "train" in set(seen["phase"]):  # else these are the steps
        parts.append(_marked(seen.filter(pl.col("phase") == "eval"), "annotation", "eval#{}"))
    if cells.height:
        parts.append(cells.with_columns(kind=pl.lit("scope"), name=pl.col("scope").str.extract(r"([^/]*)$"), label=pl.lit("modules")))
    return pl.concat(parts, how="diagonal_relaxed")


def _marked(steps: pl.DataFrame, kind: str, name: str) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    return steps.select(kind=pl.lit(kind), name=pl.format(name, "step"), start_ns="start_ns", dur_ns=length, label=pl.lit("steps"))


def _placed(ops: pl.DataFrame, beside: pl.DataFrame, header: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans on tracks. MindSpore does not say which thread ran an operator: those that overlap stand on lanes beside one another."""
    pid, main = str(header.get("pid", "")), str(header.get("main_tid", ""))
    lane = _lanes(ops["start_ns"].to_numpy(), ops["dur_ns"].to_numpy())
    keys = [("operators", "thread", main)]
    keys += [(f"operators {number + 1}", "thread", f"lane {number + 1}") for number in range(1, int(lane.max(initial=0)) + 1)]
    parts = [ops.with_columns(track=pl.Series(lane, dtype=pl.Int32))]
    beside = beside.with_columns(tid=(pl.col("tid") if "tid" in beside.columns else pl.lit(None)).cast(pl.String).fill_null(main))
    for (label, tid), rows in beside.group_by("label", "tid", maintain_order=True):
        parts.append(rows.drop("label", "tid").with_columns(track=pl.lit(len(keys), pl.Int32)))
        keys.append((str(label), "annotation", str(tid)))
    spans = pl.concat(parts, how="diagonal_relaxed").with_columns(
        category=pl.when(pl.col("op_type").is_not_null()).then(pl.lit("HostCpuOps"))
    )
    tracks = pl.DataFrame(
        [
            {"track": number, "group": f"python {pid}".strip(), "label": label, "kind": kind, "sort": number, "pid": pid, "tid": tid}
            for number, (label, kind, tid) in enumerate(keys)
        ],
        schema={name: schema.TABLES["tracks"][name] for name in ("track", "group", "label", "kind", "sort", "pid", "tid")},
    )
    return _forwards(complete(spans.sort("start_ns", maintain_order=True))), tracks


def _lanes(start: Ints, length: Ints) -> Ints:
    """The first lane that is free, for operators by start."""
    lane, ends = np.zeros(len(start), np.int64), [0]
    before = np.maximum.accumulate(start + length)[:-1] if len(start) else start
    if not (start[1:] < before).any():
        return lane  # one after the other, as nearly always
    for row, (begin, dur) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        free = next((number for number, end in enumerate(ends) if end <= begin), len(ends))
        ends[free:free + 1] = [begin + dur]  # fmt: skip
        lane[row] = free
    return lane


def _forwards(spans: pl.DataFrame) -> pl.DataFrame:
    """A gradient's `flow_in`: the call of its forward operator before it."""
    calls = spans.filter(pl.col("op_type").is_not_null()).select(forward="name", start_ns="start_ns", flow_in="span")
    wanted = spans.filter(pl.col("forward").is_not_null()).select("span", "forward", "start_ns")
    found = wanted.join_asof(calls, on="start_ns", by="forward", check_sortedness=False).select("span", "flow_in")
    return spans.drop("forward").join(found, on="span", how="left", maintain_order="left")


def _memory(pieces: list[Path], header: dict[str, Any], problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    """The pool's curve within the window. The file grows from window to window, so the last one has it all."""
    empty = pl.DataFrame(schema={"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String})
    of = header.get("files_of", "*")
    file = next((file for piece in reversed(pieces) for file in files(piece, f"cpu_ms_memory_record_{of}.txt")), None)
    rows = _csv(file, problems) if file else pl.DataFrame()
    if not {"Timestamp(ns)", "Total Allocated(Byte)", "Total Reserved(Byte)"} <= set(rows.columns):
        return empty
    at = pl.col("Timestamp(ns)")
    rows = rows.with_columns(at.cast(pl.Int64, strict=False))
    if wall := of_session(header, 0, whole=True):
        moments, certain = wall.place(rows[at.meta.output_name()].fill_null(0).to_numpy())
        rows = rows.with_columns(pl.Series(at.meta.output_name(), moments)).filter(pl.Series(certain))
    rows = rows.filter(at >= int(header.get("start_ns") or 0), at <= int(header.get("end_ns") or 2**62))
    names = {"allocated cpu": "Total Allocated(Byte)", "reserved cpu": "Total Reserved(Byte)"}
    return pl.concat(
        [empty]
        + [rows.select(name=pl.lit(name), at_ns=at, value=number(pl.col(column)), unit=pl.lit("bytes")) for name, column in names.items()]
    )


def _table(path: Path, table: str, damaged: dict[str, str] | None = None) -> pl.DataFrame:
    """A table of the capture, text as text."""
    parts = []
    for piece in captures.pieces(path, table, damaged):
        columns = {}
        for name, values in piece.items():
            if isinstance(values, tuple):
                columns[name] = pl.Series([*values[1], None], dtype=pl.String).gather(np.where(values[0] < 0, len(values[1]), values[0]))
            else:
                columns[name] = pl.Series(values)
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()
