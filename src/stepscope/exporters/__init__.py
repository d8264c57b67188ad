"""One module per format: `export(trace, out, *, overwrite=False, ...)` writes the whole trace; the docstring describes the output.

The folder is the registry. The output gets its name only when it is complete.
"""

import contextlib
import functools
import importlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import DataError, UsageError


def names() -> list[str]:
    return sorted(_modules())


@functools.cache
def _modules() -> dict[str, str]:
    """Module of each exporter by its name: a file here, or the `exporter.py` of a folder."""
    root = Path(__file__).parent
    files = {file.stem: f"{__name__}.{file.stem}" for file in root.glob("*.py") if file.stem != "__init__"}
    return files | {file.parent.name: f"{__name__}.{file.parent.name}.exporter" for file in root.glob("*/exporter.py")}


class Exporter(NamedTuple):
    """One module of `exporters/`: a description of its output, its function and the parameters that only it has."""

    name: str
    about: str
    function: Callable[..., None]
    parameters: dict[str, inspect.Parameter]
    file: str | None  # `FILE` of the module: the name of its file, may contain strftime codes; None: it writes a folder
    endings: tuple[str, ...]  # `ENDINGS` of the module: of the names that its file may have


def exporter(name: str) -> Exporter:
    module = importlib.import_module(_modules()[name])
    parameters = inspect.signature(module.export).parameters.items()
    options = {key: value for key, value in parameters if value.kind is value.KEYWORD_ONLY and key != "overwrite"}
    file, endings = getattr(module, "FILE", None), getattr(module, "ENDINGS", ())
    return Exporter(name, (module.__doc__ or "").strip(), module.export, options, file, endings)


def check_output(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace existing output, unless `overwrite` is set. An empty folder may be replaced."""
    if not out.exists():
        return
    if not out.is_file() and not out.is_dir():
        raise UsageError(f"{out} is neither a file nor a folder; choose another name")
    if not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} exists; choose another name, or replace it with --force (in Python: overwrite=True)")


@contextlib.contextmanager
def draft_output(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path for a file or folder; it is renamed to `out` on success, and removed otherwise."""
    check_output(out, overwrite=overwrite)
    out = out.resolve()  # a link stays a link
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".stepscope.", suffix=".tmp", dir=out.parent))
    try:
        draft = folder / out.name
        yield draft
        if out.exists() and out.is_dir() != draft.is_dir():
            kind, other = ("folder", "file") if out.is_dir() else ("file", "folder")
            raise UsageError(f"{out} is a {kind}, so no {other} replaces it; choose another name")
        if out.is_dir():
            old = Path(tempfile.mkdtemp(prefix=".stepscope.", suffix=".old", dir=out.parent))
            out.rename(old / out.name)
            draft.rename(out)
            shutil.rmtree(old, ignore_errors=True)
        else:
            draft.replace(out)
    except OSError as error:
        raise DataError(out, f"could not be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
