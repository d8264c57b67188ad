"""Partial summaries: what the tasks of an engine write and merge. Only the last one becomes a run folder (`io/store.py`).

A folder with the metadata and one Arrow file for each table that has rows. It is removed after the merge: not compressed, not checked.
"""

import shutil
from pathlib import Path

import msgspec
import polars as pl
import polars.selectors as cs

from stepscope.io import store
from stepscope.model import rank_tables
from stepscope.model.trace import Meta, Trace, combine

_META = "meta.json"
_TABLES = [*rank_tables.KEPT, *rank_tables.TABLES]


def write(trace: Trace, folder: Path) -> None:
    """Write the summary of some ranks."""
    _make_empty(folder)
    # Categories are numbered in the order in which a process met them: files have the text.
    frames = pl.collect_all([trace.table(name).with_columns(cs.categorical().cast(pl.String)) for name in _TABLES])
    for name, frame in zip(_TABLES, frames, strict=True):
        if frame.height:
            frame.write_ipc(folder / f"{name}.arrow")
    _write_meta(trace.meta, folder)


def merge(folders: list[Path], out: Path) -> Meta:
    """Join partial summaries, in their order, and return the metadata of all."""
    _make_empty(out)
    meta = _joined_meta(folders)
    for name in _TABLES:
        if files := _files(folders, name):
            pl.concat([pl.scan_ipc(file) for file in files]).sink_ipc(out / f"{name}.arrow", maintain_order=True)
    _write_meta(meta, out)
    return meta


def read(folders: list[Path]) -> Trace:
    """Partial summaries as one trace, in their order."""
    tables = {name: pl.concat([pl.scan_ipc(file) for file in files]) for name in _TABLES if (files := _files(folders, name))}
    return Trace(tables, _joined_meta(folders))


def _make_empty(folder: Path) -> None:
    """A process that ended in the middle of this task may have left a part of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _files(folders: list[Path], name: str) -> list[Path]:
    return [file for folder in folders if (file := folder / f"{name}.arrow").exists()]


def _write_meta(meta: Meta, folder: Path) -> None:
    (folder / _META).write_bytes(store.encode(msgspec.to_builtins(meta)))


def _joined_meta(folders: list[Path]) -> Meta:
    return combine([Trace({}, msgspec.json.decode((folder / _META).read_bytes(), type=Meta)) for folder in folders]).meta
