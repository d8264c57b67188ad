"""A run folder: one Parquet file per table and run.json. Opens at once, here and in any tool that reads Parquet."""

from pathlib import Path

from stepscope.exporters import check_output
from stepscope.io import store
from stepscope.model.trace import Trace


def export(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    check_output(out, overwrite=overwrite)
    store.write(trace, out, overwrite=overwrite)
