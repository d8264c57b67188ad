# ruff: noqa: PTH100, PTH118, PTH120  every Python of the job waits for this: no pathlib
"""Put first on PYTHONPATH by `stepscope run`: every Python of the job runs this before its program. Must run on any Python 3."""

import importlib
import importlib.util
import os
import sys


def _chain(folder: str) -> None:
    """Leave no trace on sys.path, and run the sitecustomize that this one hides."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        sys.modules["sitecustomize"] = ours
        if error.name != "sitecustomize":
            raise


def _install(package: str) -> None:
    """The stepscope that started the job, also where another or none is installed."""
    spec = importlib.util.spec_from_file_location("stepscope", os.path.join(package, "__init__.py"), submodule_search_locations=[package])
    assert spec is not None and spec.loader is not None
    module = sys.modules["stepscope"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.import_module("stepscope.recording.hooks").install()


_folder = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("STEPSCOPE_RUN") and sys.version_info >= (3, 10):
    try:
        _install(os.path.dirname(os.path.dirname(_folder)))
    except Exception as _error:  # noqa: BLE001  the program runs in any case
        sys.stderr.write(f"stepscope: nothing is recorded here: {type(_error).__name__}: {_error}\n")
_chain(_folder)
