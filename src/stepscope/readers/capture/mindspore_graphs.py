"""Graphs as MindSpore's compiler writes them (`graph_build_*.ir`): inputs, outputs, source lines and gradients of each operator."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Value(NamedTuple):
    """An input or an output: `float32` and its dimensions; a value that is no tensor has no dimensions."""

    dtype: str
    shape: list[int]


class Node(NamedTuple):
    """One operator of a graph."""

    name: str  # with its scope
    type: str
    inputs: list[Value]
    outputs: list[Value]
    group: str  # of processes, for communication
    unique_id: str
    forward_id: str  # of a gradient: the unique_id of its forward operator
    lines: list[str]  # of Python, outermost first: "file:line text"


class Graphs:
    """The operators of all graphs by name."""

    def __init__(self, files: list[Path]) -> None:
        self._nodes: dict[str, list[Node]] = {}
        self._forward: dict[str, str] = {}  # name of a gradient -> name of its forward operator
        for file in files:
            nodes = list(_parse_nodes(file))
            names = {node.unique_id: node.name for node in nodes if node.unique_id}
            for node in nodes:
                self._nodes.setdefault(node.name, []).append(node)
                if node.forward_id in names:
                    self._forward[node.name] = names[node.forward_id]

    def node(self, name: str, shapes: list[list[int]] | None) -> Node | None:
        """The operator of that name with these input shapes: several graphs may use one name."""
        return next((node for node in self._nodes.get(name, []) if shapes is None or _has_shapes(node, shapes)), None)

    def names(self) -> set[str]:
        return set(self._nodes)

    def forward_of(self, name: str) -> str | None:
        return self._forward.get(name)


def _has_shapes(node: Node, shapes: list[list[int]]) -> bool:
    """In a graph, the size -1 is any size, and the shape [-2] is any shape."""
    return all(
        value.shape == [-2]
        or (len(value.shape) == len(shape) and all(size in (-1, real) for size, real in zip(value.shape, shape, strict=True)))
        for value, shape in zip(node.inputs, shapes, strict=False)
    )


_NODE = re.compile(r"  %\d+\(.*?\) = (?:PrimFunc_)?(\w+)\(")
_NAME = re.compile(r"\s+# Fullname with scope: \((.*)\)")
_LINE = re.compile(r"\s+# In file (.+?):(\d+)(?:~\d+)?, \d+~\d+/\s*(.*?)\s*/$")


def _parse_nodes(file: Path) -> Iterator[Node]:
    head = type_ = name = signature = ""
    lines: list[str] = []
    for line in [*file.read_text("utf-8", "replace").splitlines(), "  %0(end) = End("]:
        if match := _NODE.match(line):
            if name:
                yield _parse_node(name, type_, head, signature, lines)
            head, type_, name, signature, lines = line, match[1], "", "", []
        elif line.startswith("      : (") and not signature:
            signature = line
        elif match := _NAME.match(line):
            name = match[1]
        elif (match := _LINE.match(line)) and not match[3].startswith("def "):  # the function around the next line
            lines.append(f"{match[1]}:{match[2]} {match[3]}")


def _parse_node(name: str, type_: str, head: str, signature: str, lines: list[str]) -> Node:
    inputs, _, outputs = signature.partition(") -> (")
    return Node(
        name,
        type_,
        _parse_values(inputs),
        _parse_values(outputs),
        _first_group(r'\bgroup: "([^"]*)"', head),
        _first_group(r'\bunique_id: "([^"]*)"', head),  # \b does not match before the second part of forward_unique_id
        _first_group(r'\bforward_unique_id: "([^"]*)"', head),
        lines,
    )


def _parse_values(text: str) -> list[Value]:
    """`<Ref[Tensor[Float32]], (6, 1, 5, 5), ref_key=...>, <Bool, NoShape>`"""
    values = []
    for value in re.findall(r"<((?:[^<>]|<[^<>]*>)*)>", text):
        dtype = _first_group(r"Tensor\[(\w+)\]", value) or value.partition(",")[0]
        shape = re.search(r"\]+, \(([-\d, ]*)\)", value)
        values.append(Value(dtype.lower(), [int(size) for size in re.findall(r"-?\d+", shape[1])] if shape else []))
    return values


def _first_group(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""
