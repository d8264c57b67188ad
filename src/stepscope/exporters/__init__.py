"""One module per format: `export(trace, out, *, overwrite=False, ...)` writes the whole trace; the docstring says what comes out.

The folder is the registry. What is written appears under its name only when it is whole.
"""

import contextlib
import importlib
import inspect
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import DataError, UsageError


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


class Exporter(NamedTuple):
    """One module of `exporters/`: what comes out, its function and the parameters that only it has."""

    name: str
    about: str
    function: Callable[..., None]
    parameters: dict[str, inspect.Parameter]


def exporter(name: str) -> Exporter:
    module = importlib.import_module(f"{__name__}.{name}")
    parameters = dict(inspect.signature(module.export).parameters)
    own = {key: value for key, value in parameters.items() if value.kind is value.KEYWORD_ONLY and key != "overwrite"}
    return Exporter(name, (module.__doc__ or "").strip(), module.export, own)


def check_output(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace what exists, unless told to. An empty folder is nothing to lose."""
    if not out.exists():
        return
    if not out.is_file() and not out.is_dir():
        raise UsageError(f"{out} is neither a file nor a folder; choose another name")
    if not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} exists; choose another name, or replace it with --force (in Python: overwrite=True)")


@contextlib.contextmanager
def whole(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside `out` to write a file or folder to; it is renamed to `out` when all went well, and removed otherwise."""
    check_output(out, overwrite=overwrite)
    out = out.resolve()  # a link stays a link
    out.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".stepscope.", suffix=".tmp", dir=out.parent))
    try:
        draft = room / out.name
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
        shutil.rmtree(room, ignore_errors=True)
