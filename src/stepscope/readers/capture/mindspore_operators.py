"""Scope, shapes, data types, FLOPs and bytes of MindSpore's operators, from the compiled graphs."""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import polars as pl

from stepscope.model import units
from stepscope.readers.capture.mindspore_graphs import Graphs, Node
from stepscope.readers.common.problems import FileProblems

Shapes = list[list[int]]

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


class _Description(NamedTuple):
    """The columns of an operator with given inputs: there are few of these, however many calls there are."""

    scope: str | None
    shapes: str | None
    dtypes: str | None
    flops: int | None
    bytes: int | None
    args: str | None
    forward: str | None


_COLUMNS = {name: pl.Int64 if name in ("flops", "bytes") else pl.String for name in _Description._fields}


def describe_operators(ops: pl.DataFrame, graphs: Graphs, header: dict[str, Any], problems: FileProblems) -> pl.DataFrame:
    """Operators with kind, scope, shapes, dtypes, flops, bytes, args and forward, and without inputs."""
    distinct = ops.select("name", "op_type", "inputs").unique(maintain_order=True)
    rows, unknown = [], 0
    for name, type_, inputs in distinct.iter_rows():
        shapes = _parse_shapes(inputs)
        node = graphs.node(name, shapes)
        unknown += node is None
        rows.append(_describe(name, type_, shapes, node, graphs.forward_of(name)))
    descriptions = pl.concat([distinct, pl.DataFrame(rows, _COLUMNS, orient="row")], how="horizontal")
    if unknown and header.get("mode") == "graph" and header.get("base"):
        operators = units.count(unknown, "operator is", "operators are")
        message = (
            f"{operators} in no graph that was compiled during the recording: data types and lines are unknown, and scopes of "
            "gradients are MindSpore's own, which are wrong where layers share an operator"
        )
        problems.append(("graphs", message, 0))
    is_collective = pl.col("op_type").str.contains(_COLLECTIVES)
    return ops.join(descriptions, on=["name", "op_type", "inputs"], how="left", nulls_equal=True, maintain_order="left").select(
        pl.exclude("inputs"), kind=pl.when(is_collective).then(pl.lit("communication")).otherwise(pl.lit("op"))
    )


def _parse_shapes(inputs: str | None) -> Shapes | None:
    """`input_1:[2, 3];input_2:NoShape;`"""
    if not inputs:
        return None
    texts = [entry.partition(":")[2] for entry in inputs.strip(";").split(";")]
    sizes = [[size.strip() for size in text.strip("[]").split(",")] if text.startswith("[") else [] for text in texts]
    if any(not re.fullmatch(r"-?[0-9]{0,18}", size) for shape in sizes for size in shape):
        return None  # damaged
    return [[int(size) for size in shape if size.strip("-")] for shape in sizes]


def _describe(name: str, type_: str, shapes: Shapes | None, node: Node | None, forward: str | None) -> _Description:
    if shapes is None and node:
        shapes = [value.shape for value in node.inputs]
    output = node.outputs[0].shape if node and node.outputs else None
    scope = name.rpartition("/")[0] or None
    args: dict[str, Any] = {}
    if node and node.lines:
        args["source"] = node.lines
    if node and node.group:
        args["Process Group Name"] = node.group
    if forward and scope:
        corrected = f"Gradients/{forward.rpartition('/')[0]}"
        gradient = next((part for part in reversed(scope.split("/")) if part.startswith("Grad_")), None)
        corrected = f"{corrected}/{gradient}" if gradient else corrected
        if corrected != scope:
            args["scope_by_mindspore"], scope = scope, corrected
        args["forward"] = forward
    moved = [*node.inputs, *node.outputs] if node and re.match(_COLLECTIVES, type_) else []
    sizes = [math.prod(value.shape) * _ITEM_BYTES[value.dtype] for value in moved if value.dtype in _ITEM_BYTES]
    return _Description(
        scope,
        _json(shapes),
        _json([value.dtype for value in node.inputs] if node else None),
        _int64(_flops(type_, shapes, output)),
        _int64(max(sizes, default=None)),
        _json(args or None),
        forward,
    )


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _int64(number: int | None) -> int | None:
    """The number, if a column can hold it; damaged shapes give any number."""
    return number if number is not None and abs(number) < 2**63 else None


def _flops(type_: str, shapes: Shapes | None, output: list[int] | None) -> int | None:
    """A multiply-add is two; padding saves nothing, and a bias counts nothing."""
    formula = _FORMULAS.get(type_)
    if formula is None or not shapes or len(shapes) < 2 or any(size < 0 for shape in [*shapes, output or []] for size in shape):
        return None
    return formula(shapes, output)


def _product(shapes: Shapes, output: list[int] | None) -> int | None:
    """[..., m, k] x [..., k, n], either transposed: (mk)(kn)(mn) is the square of mnk, for each matrix of the batch."""
    a, b = shapes[:2]
    if output:
        batch = math.prod(output[:-2])
        square = math.prod(a) * math.prod(b) * math.prod(output)
        if batch * math.prod(a[-2:]) != math.prod(a) or batch * math.prod(b[-2:]) != math.prod(b):
            return 2 * math.prod(output) * a[-1] if a[-1] in b[-2:] else None  # one of the two is used for the whole batch
        return 2 * batch * math.isqrt(square // batch**3)
    inner = {size for size in a[-2:] if size in b[-2:]}  # without the output, k is known only where the dimensions differ
    return 2 * math.prod(a) * math.prod(b[-2:]) // inner.pop() if len(inner) == 1 and a[:-2] == b[:-2] else None


def _convolution(shapes: Shapes, output: list[int] | None) -> int | None:
    """Each point of the output uses one filter once."""
    return 2 * math.prod(output) * math.prod(shapes[1][1:]) if output else None


_FORMULAS: dict[str, Callable[[Shapes, list[int] | None], int | None]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "MatMulExt", "BatchMatMulExt", "Mm", "Bmm"), _product),
    "Dense": lambda shapes, output: 2 * math.prod(shapes[0]) * shapes[1][0],
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    # The inputs are the gradient of the output and the filter, or the gradient of the output and the input: the output is the filter's.
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInput"), lambda shapes, output: _convolution(shapes, shapes[0])),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilter"),
        lambda shapes, output: _convolution([[], output], shapes[0]) if output else None,
    ),
}
