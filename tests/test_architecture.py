"""A package imports only from the layers above its own; frameworks are imported only by the collectors."""

import ast
import importlib
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "stepscope"
ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"
# The table of layers in docs/architecture.md is the rule: one row per layer, the packages in backquotes in its second column.
LAYERS = [set(re.findall(r"`(\w+)`", row[1])) for row in re.findall(r"^\| (\d+) \|([^|]*)\|", ARCHITECTURE.read_text(), re.MULTILINE)]
FRAMEWORKS = {"torch", "mindspore", "jax", "tensorflow"}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def layer(part: str) -> int:
    return next(index for index, names in enumerate(LAYERS) if part in names)


def test_every_package_has_a_layer() -> None:
    entries = {path.parts[0].removesuffix(".py") for path in MODULES}
    assert set.union(*LAYERS) == entries - {"__init__"}


MOST_ENTRIES = 14
MORE_ENTRIES = {
    ".": (15, "13 packages; `errors.py` and `mindspore.py` are public names"),
    "server/dist/assets": (200, "written by the build of the pages"),
}
FORM = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}  # the form of a package, not its contents


@pytest.mark.parametrize("folder", sorted({".", *(str(parent) for path in MODULES for parent in path.parents), "server/dist/assets"}))
def test_a_folder_has_few_entries(folder: str) -> None:
    entries = {path.name for path in (PACKAGE / folder).iterdir() if path.suffix != ".so"} - FORM
    assert len(entries) <= MORE_ENTRIES.get(folder, (MOST_ENTRIES, ""))[0], f"group {folder} by topic: {sorted(entries)}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_up_only(path: Path) -> None:
    own = path.parts[0].removesuffix(".py")
    tree = ast.parse((PACKAGE / path).read_text())
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "stepscope" else [base]
        for name in names:
            root = name.split(".")[0]
            line = getattr(node, "lineno", 0)
            assert root != "ray" or path == Path("cluster/ray_engine.py"), f"{path}:{line} imports {root}"
            assert root not in FRAMEWORKS or path.parts[:2] == ("recording", "collectors"), f"{path}:{line} imports {root}"
            if root != "stepscope" or own == "__init__" or name in ("stepscope", "stepscope.__version__"):
                continue
            other = part_of(name)
            if other == own:
                continue
            assert layer(other) < layer(own), f"{path}:{line}: {own} may not import {other}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_file_has_at_most_450_lines_and_a_function_60_without_its_docstring(path: Path) -> None:
    text = (PACKAGE / path).read_text()
    assert len(text.splitlines()) <= 450
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documentation = node.body[0] if ast.get_docstring(node) is not None else None
            lines = node.end_lineno - node.lineno + 1
            lines -= documentation.end_lineno - documentation.lineno + 1 if documentation is not None else 0
            assert lines <= 60, f"{path}:{node.lineno}: {node.name} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_private_names_stay_in_their_package(path: Path) -> None:
    package = ["stepscope", *path.parent.parts]
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stepscope"):
            for alias in node.names:
                names = [*(node.module or "").split("."), alias.name]
                private = [at for at, name in enumerate(names) if re.match("_[^_]", name)]
                assert names[1:] == ["_ExperimentalConfig"] or all(package[:at] == names[:at] for at in private), (
                    f"{path}: {'.'.join(names)}"
                )


def walks() -> dict[str, list[str]]:
    """The stops of each walk in docs/architecture.md: the function at the beginning of each numbered line."""
    sections = re.split(r"^## ", ARCHITECTURE.read_text(), flags=re.MULTILINE)
    return {
        section.splitlines()[0]: re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
        for section in sections
        if section.startswith("From ")
    }


def test_there_are_three_walks_of_at_most_a_dozen_stops() -> None:
    assert len(walks()) == 3
    assert all(4 <= len(stops) <= 12 for stops in walks().values())
    numbered = re.findall(r"^\d+\. .*", ARCHITECTURE.read_text(), re.MULTILINE)
    promises = [line for line in numbered if line.partition(". ")[2].startswith("**")]
    assert sum(map(len, walks().values())) == len(numbered) - len(promises), "each stop begins with its function"


@pytest.mark.parametrize("stop", sorted({stop for stops in walks().values() for stop in stops}))
def test_each_stop_of_a_walk_exists(stop: str) -> None:
    module, names = stop, list[str]()
    while not (PACKAGE / module.replace(".", "/")).is_dir() and not (PACKAGE / f"{module.replace('.', '/')}.py").is_file():
        module, _, name = module.rpartition(".")
        names.insert(0, name)
    target = importlib.import_module(f"stepscope.{module}")
    for name in names:
        target = getattr(target, name)
    assert names and callable(target)


def test_importing_the_package_loads_no_heavy_library() -> None:
    import subprocess
    import sys

    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, stepscope; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "polars", "duckdb", "msgspec", "rich"} & set(loaded)
    assert {name for name in loaded if name.startswith("stepscope")} == {"stepscope"}


def test_importing_the_package_loads_no_module_of_the_library() -> None:
    import subprocess
    import sys

    # Without `site`, which loads modules that depend on the environment.
    code = "import sys; before = set(sys.modules); sys.path.append(sys.argv[1]); import stepscope; print(*set(sys.modules) - before)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code, str(PACKAGE.parent)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded == ["stepscope"]
