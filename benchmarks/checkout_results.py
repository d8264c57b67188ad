"""What one checkout of stepscope makes of one input: compare_checkouts.py runs this with that checkout in PYTHONPATH.

python benchmarks/checkout_results.py INPUT OUT GIGABYTES [--exports]

Uses only public names, so that modules can move: `stepscope.open`, `Trace.tables`, `Trace.analyse`, `dir(trace)` and the command line.
"""

import contextlib
import io
import json
import re
import resource
import runpy
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

# Output name of each exporter: formats that write one file check its ending.
EXPORTS = {
    "chrome": "trace.json",
    "csv": "csv",
    "mindinsight": "mindinsight",
    "msprof": "msprof",
    "msprof_db": "msprof.db",
    "parquet": "parquet",
    "perfetto": "perfetto.json",
    "speedscope": "flames.speedscope.json",
}


def write_results(path: str, out: Path, memory: int, exports: bool) -> None:
    """Write all that the imported checkout makes of one input."""
    import stepscope

    resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
    with _error_in(out / "refused.txt"):
        trace = stepscope.open(path)
    if (out / "refused.txt").exists():
        return
    (out / "meta.json").write_text(json.dumps(_plain(trace.meta), default=str))
    _write_frames(out / "tables", {name: frame.collect for name, frame in trace.tables.items()})
    names = sorted(set(dir(trace)) - set(object.__dir__(trace)))  # the analyses: they are attributes, and nothing else is added
    _write_frames(out / "analyses", {name: partial(trace.analyse, name) for name in names})
    with contextlib.redirect_stdout(io.StringIO()) as text:
        _command("summary", path, "--format", "json")
    (out / "summary.json").write_text(text.getvalue())
    for name, output in EXPORTS.items() if exports else ():
        with contextlib.redirect_stderr(io.StringIO()) as text:
            _command("export", path, "--to", name, "-o", str(out / "exports" / output))
        (out / f"export_{name}.txt").write_text(text.getvalue().replace(str(out), "OUT"))
    for file in [*out.glob("exports/msprof/**/*_[0-9]*.*")]:
        file.rename(re.sub(r"_\d{14}(?=\.\w+$)", "", str(file)))  # the time of the export


@contextlib.contextmanager
def _error_in(file: Path) -> Iterator[None]:
    """Write an error to a file: it is a result like any other."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        file.write_text(f"{type(error).__name__}: {error}")


def _write_frames(folder: Path, frames: dict[str, Any]) -> None:
    folder.mkdir()
    for name, make in frames.items():
        with _error_in(folder / f"{name}.txt"):
            make().write_ipc(folder / f"{name}.arrow", compression="zstd")


def _plain(value: Any) -> Any:
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _command(*words: str) -> None:
    sys.argv = ["stepscope", *words]
    with contextlib.suppress(SystemExit):
        runpy.run_module("stepscope", run_name="__main__")


if __name__ == "__main__":
    write_results(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "--exports" in sys.argv)
