"""The comments after the columns of tables and analyses in the source: what a column means, for the reference and for agents."""

import ast
import functools
import importlib
import inspect
import io
import tokenize
from types import ModuleType

from stepscope.model import ascend_tables, rank_tables, schema

_MODULES = (ascend_tables, rank_tables, schema)  # `schema.TABLES` contains all


def of_tables() -> dict[str, str]:
    """What one row of each table is."""
    return {name: text for module in _MODULES for name, text in above_keys(module, "TABLES").items()}


def of_table(name: str) -> dict[str, str]:
    """The meaning of each column of a table that has one."""
    return of_keys(next((module for module in _MODULES if name in module.TABLES), schema), name)


def of_analysis(name: str) -> dict[str, str]:
    """The meaning of each column of an analysis that has one."""
    return of_keys(importlib.import_module(importlib.import_module("stepscope.analyses").module_name(name)), "COLUMNS")


@functools.cache
def of_keys(module: ModuleType, name: str) -> dict[str, str]:
    """The comments after the keys of the dict with that name, or of the dict under that key."""
    lines = by_line(module)
    for node in ast.walk(ast.parse(_source(module))):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
        elif isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        for key, value in pairs:
            named = (isinstance(key, ast.Name) and key.id == name) or (isinstance(key, ast.Constant) and key.value == name)
            if named and isinstance(value, ast.Dict):
                keys = [key for key in value.keys if isinstance(key, ast.Constant)]
                return {str(key.value): lines[key.lineno] for key in keys if key.lineno in lines}
    return {}


@functools.cache
def above_keys(module: ModuleType, name: str) -> dict[str, str]:
    """The comment in the line above each key of the annotated dict with that name: what one row of a table is."""
    lines = by_line(module)
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and isinstance(node.value, ast.Dict):
            keys = [key for key in node.value.keys if isinstance(key, ast.Constant)]
            return {str(key.value): lines.get(key.lineno - 1, "") for key in keys}
    return {}


@functools.cache
def of_words(module: ModuleType, name: str) -> dict[str, str]:
    """The comments after the words of the tuple with that name."""
    lines = by_line(module)
    for node in ast.parse(_source(module)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Tuple):
            words = [word for word in node.value.elts if isinstance(word, ast.Constant)]
            return {str(word.value): lines[word.lineno] for word in words if word.lineno in lines}
    return {}


@functools.cache
def by_line(module: ModuleType) -> dict[int, str]:
    """The comments of a module by their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(_source(module)).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _source(module: ModuleType) -> str:
    """Empty for a package without its source."""
    try:
        return inspect.getsource(module)
    except OSError:
        return ""
