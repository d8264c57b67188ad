"""A module imports only from layers above its own; the frameworks are imported only where they are collected."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "stepscope"
LAYERS = [
    {"errors", "schema", "intervals", "units", "chips", "heap", "clock", "escapes", "sandbox"},
    {"parameters"},
    {"trace", "agents", "captures", "telling", "step_clock", "rounds", "query_process", "query_plan"},
    {"endings", "tables", "import_hooks", "step_assignment", "trace_windows"},
    {"step_choice"},
    {"collect", "readers", "store", "analyses", "cache", "queries", "query_engine", "pyramid"},
    {"reading", "run_groups"},
    {"cluster", "opening", "exporters", "timelines", "facts"},
    {"conversion", "sources", "step_on"},
    {"windows", "launching", "prof_folders"},
    {"profiler"},
    {"callbacks", "recorder"},
    {"jobs"},
    {"dynamic"},
    {"mindspore", "running"},
    {"startup"},
    {"web"},
    {"cli"},
    {"__main__"},
]
FRAMEWORKS = {"torch", "mindspore", "jax", "tensorflow", "ray"}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def layer(part: str) -> int:
    return next(index for index, names in enumerate(LAYERS) if part in names)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_up_only(path: Path) -> None:
    own = path.parts[0].removesuffix(".py")
    tree = ast.parse((PACKAGE / path).read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "stepscope" else [base]
        for name in names:
            root = name.split(".")[0]
            assert root not in FRAMEWORKS or own == "collect", f"{path}:{node.lineno} imports {root}"
            if root != "stepscope" or own == "__init__" or name in ("stepscope", "stepscope.__version__"):
                continue
            other = part_of(name)
            if other == own and own in ("analyses", "cli", "web", "readers", "exporters", "collect", "timelines", "running"):
                continue
            assert layer(other) < layer(own), f"{path}:{node.lineno}: {own} may not import {other}"


def test_importing_the_package_loads_no_heavy_library() -> None:
    import subprocess
    import sys

    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, stepscope; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "polars", "duckdb", "msgspec", "rich"} & set(loaded)
