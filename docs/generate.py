"""Write docs/reference.md from the code and the answers in docs/cli.md from the program: `make docs`. A test compares."""

import argparse
import ast
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stepscope import exporters, readers, schema
from stepscope.cli import parser
from stepscope.cli.demo import RECORDING
from stepscope.parameters import bounds
from stepscope.trace import analysis, analysis_names

REFERENCE = Path(__file__).parent / "reference.md"
CLI = Path(__file__).parent / "cli.md"


def reference() -> str:
    """The whole page."""
    parts = [
        "# Reference",
        "Written by `make docs` from the code; edit the docstrings there, not this page.",
        "- [Commands](#commands)\n- [Analyses](#analyses)\n- [Tables](#tables)\n- [Readers](#readers)\n- [Exporters](#exporters)",
        "## Commands",
        *_commands(parser([])),
        "## Analyses",
        "An analysis is a function from a trace to one table: `trace.overlap()` in Python, `stepscope show overlap PATH` in a terminal. "
        "Each takes `rank`, to look at one rank only. Times are integers of nanoseconds; a share is 0 to 1.",
        *_analyses(),
        "## Tables",
        inspect.cleandoc(schema.__doc__ or ""),
        "`trace.spans` and the others are lazy Polars frames; `stepscope query` sees them as SQL tables; a run folder has one Parquet file "
        "for each.",
        *_tables(),
        "## Readers",
        "A reader is found by the content of a file, whatever its name. [Formats](formats.md) says what becomes of what.",
        *_readers(),
        "## Exporters",
        "`stepscope export PATH --to NAME -o OUT`",
        *_exporters(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answered(page: str) -> str:
    """A page whose console blocks hold what their commands answer, run one after another beside the recording that comes with stepscope."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(RECORDING, Path(folder) / RECORDING.name)
        return re.sub(r"(?<=^```console\n).*?(?=^```)", lambda block: _session(block[0], folder), page, flags=re.DOTALL | re.MULTILINE)


def _session(block: str, folder: str) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs, "STEPSCOPE_CACHE": f"{folder}/.cache", "COLUMNS": "110"}
    said = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            command = ["sh", "-c", line[2:]]
            done = subprocess.run(
                command, cwd=folder, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            said += f"{line}\n{done.stdout}"
    return said


def _commands(top: argparse.ArgumentParser) -> Iterator[str]:
    yield _arguments(top)
    for name, command in _subparsers(top):
        yield f"### {top.prog} {name}"
        yield f"`{_usage(command)}`"
        for paragraph in (command.description or "").split("\n\n"):
            yield f"```\n{paragraph}\n```" if "   " in paragraph else paragraph  # columns stay columns
        yield _arguments(command)
        yield f"```\n{inspect.cleandoc((command.epilog or '').partition('examples:')[2])}\n```"


def _subparsers(top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _usage(command: argparse.ArgumentParser) -> str:
    """Positional arguments and required flags; the others are in the table below it."""
    optional = ["[options]"] if any(action.option_strings and not action.required for action in _own(command)) else []
    needed = [f"{action.option_strings[0]} {action.metavar}" for action in _own(command) if action.option_strings and action.required]
    places = [str(action.metavar) if action.required else f"[{action.metavar}]" for action in _own(command) if not action.option_strings]
    return " ".join([command.prog, *optional, *needed, *places])


def _arguments(command: argparse.ArgumentParser) -> str:
    rows = []
    for action in _own(command):
        names, value = ", ".join(action.option_strings), "" if action.nargs == 0 else str(action.metavar)
        rows.append((f"`{' '.join(filter(None, (names, value)))}`", action.help or ""))
    return _grid(("argument", "meaning"), rows)


def _own(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)]


def _analyses() -> Iterator[str]:
    found = [analysis(name) for name in analysis_names()]
    yield _grid(("analysis", "question"), [(f"[`{one.name}`](#{one.name})", one.question.splitlines()[0]) for one in found])
    for one in found:
        yield f"### {one.name}"
        yield inspect.cleandoc(one.question)
        yield inspect.getdoc(one.function) or ""
        yield _parameters(one.parameters)
        yield _columns(one.columns, _comments(sys.modules[one.function.__module__], "COLUMNS"))


def _parameters(parameters: dict[str, inspect.Parameter]) -> str:
    rows = [
        (f"`{name}`", inspect.formatannotation(one.annotation), f"`{one.default!r}`", " to ".join(map(str, bounds(name, one).values())))
        for name, one in parameters.items()
    ]
    return _grid(("parameter", "type", "default", "bounds"), rows)


def _tables() -> Iterator[str]:
    tree = ast.parse(inspect.getsource(schema))
    tables = next(node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TABLES")
    assert isinstance(tables, ast.Dict)
    comments = _comments_by_line(schema)
    for key in tables.keys:
        assert isinstance(key, ast.Constant)
        name = str(key.value)
        yield f"### {name}"
        yield comments.get(key.lineno - 1, "")
        yield _columns(schema.TABLES[name], _comments(schema, name))
    yield "### Kinds of span"
    yield _grid(("kind", "what it is"), [(f"`{kind}`", comments.get(line, "")) for kind, line in _words("KINDS")])


def _words(name: str) -> Iterator[tuple[str, int]]:
    """The words of a tuple in schema.py, and the line each stands on."""
    tree = ast.parse(inspect.getsource(schema))
    value = next(node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
    assert isinstance(value, ast.Tuple)
    for word in value.elts:
        assert isinstance(word, ast.Constant)
        yield str(word.value), word.lineno


def _columns(columns: dict[str, Any], comments: dict[str, str]) -> str:
    rows = [(f"`{name}`", str(dtype).split("(")[0], comments.get(name, "")) for name, dtype in columns.items()]
    return _grid(("column", "type", "meaning"), rows)


def _comments(module: ModuleType, name: str) -> dict[str, str]:
    """What stands behind each key of the dict of that name, or of the dict under that key."""
    lines = _comments_by_line(module)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
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


def _comments_by_line(module: ModuleType) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(inspect.getsource(module)).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _readers() -> Iterator[str]:
    for name in readers.names():
        yield f"### {name}"
        yield inspect.getdoc(readers.module(name)) or ""


def _exporters() -> Iterator[str]:
    for name in exporters.names():
        found = exporters.exporter(name)
        yield f"### {name}"
        yield found.about
        yield _parameters(found.parameters)


def _grid(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table, without its last column where that is empty."""
    if not rows:
        return ""
    wide = len(header) if any(row[-1] for row in rows) else len(header) - 1
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line[:wide]) + " |" for line in lines)


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
    CLI.write_text(answered(CLI.read_text(encoding="utf-8")), encoding="utf-8")
