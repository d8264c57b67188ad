"""A folder of CSV files, one per table that has rows; with `analyses`, one per analysis as well.

Text that a spreadsheet would run as a formula gets an apostrophe in front, and control characters become escapes (`\\u001b`).
"""

from pathlib import Path

import polars as pl
import polars.selectors as cs

from stepscope.errors import UsageError
from stepscope.exporters import draft_output
from stepscope.model.output import tables
from stepscope.model.trace import Trace, analysis_names


def export(trace: Trace, out: Path, *, overwrite: bool = False, analyses: bool = False) -> None:
    if overwrite and out.exists() and not (out.is_dir() and all(file.suffix == ".csv" and file.is_file() for file in out.iterdir())):
        raise UsageError(f"{out} contains more than CSV files, so it is not replaced; choose another name")
    with draft_output(out, overwrite=overwrite) as folder:
        folder.mkdir()
        for name, frame in trace.tables.items():
            _write(frame, folder / f"{name}.csv")
        # An analysis may have the name of a table.
        for name in analysis_names() if analyses else []:
            _write(trace.analyse(name).lazy(), folder / (f"{name}_analysis.csv" if name in trace.tables else f"{name}.csv"))


def _write(frame: pl.LazyFrame, file: Path) -> None:
    if frame.select(pl.len()).collect().item():
        safe = cs.string().map_batches(tables.csv_text, return_dtype=pl.String, is_elementwise=True)
        tables.finite(frame).with_columns(safe).sink_csv(file, maintain_order=True)
