"""Analyses: one module per question, in one folder per topic, with a docstring, COLUMNS, and a function of the same name.

The folders are the registry of `trace.analyse(name)`, the command line, the HTTP routes and the reference. `shared` has their building
blocks.
"""

import functools
from pathlib import Path


@functools.cache
def files() -> dict[str, Path]:
    """File of each analysis by its name; none is loaded."""
    return {
        file.stem: file
        for file in sorted(Path(__file__).parent.glob("*/*.py"))
        if not file.stem.startswith("_") and file.parent.name != "shared"
    }


def names() -> list[str]:
    return sorted(files())


def module_name(name: str) -> str:
    return f"{__name__}.{files()[name].parent.name}.{name}"
