"""Run folder <-> Trace: a directory of Parquet files, one per table, and run.json. A folder that exists is complete."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import polars.selectors as cs
from polars.io.plugins import register_io_source

from stepscope.errors import DataError, UsageError, first_line
from stepscope.model import rank_tables, schema, units
from stepscope.model.trace import Meta, Trace
from stepscope.readers.common.name_parts import complete_table

RUN_JSON = "run.json"
# Increased when earlier releases cannot read the folders of this one. Columns and header entries that earlier ones lack have defaults.
FORMAT_VERSION = 1
# Large enough to compress well, small enough that an analysis of a few steps skips most of the file.
ROW_GROUP = 1 << 18
# Files up to this size are read completely when they are opened, in some hundredths of a second.
_CHECKED_SIZE = 4 << 20
_KEPT_SIZE = 64 << 10  # bytes in memory: these are not read again
_ARGS_BATCH = 1 << 16  # rows


def sniff(path: Path) -> bool:
    """Whether this is a run folder."""
    return (path / RUN_JSON).is_file()


def read(path: Path) -> Trace:
    """The trace of a run folder. Its tables are lazy: a column is read when it is used."""
    meta, written, empty = _header(path)
    tables = {}
    for name in schema.TABLES:
        file = path / f"{name}.parquet"
        if name in written or file.exists():
            if not file.is_file():
                raise DataError(file, "missing; the header of the run folder lists it")
            tables[name] = schema.empty(name) if empty.get(name) == file.stat().st_size else _scan(file, name)
    if "spans" not in tables and not meta.summary:
        raise DataError(path, "the run folder has no spans.parquet")
    _opened.pop(path, None)
    _opened[path] = None
    while len(_opened) > _REMEMBERED:
        _opened.pop(next(iter(_opened)), None)
    return Trace(tables, meta)


# Run folders that this process has opened, in order: tables are read later, and the errors of Polars do not name the file.
_opened: dict[Path, None] = {}
_REMEMBERED = 256


def named_damage(error: pl.exceptions.PolarsError) -> Exception:
    """A DataError that names the damaged file, where the error comes from a run folder; else the error itself."""
    if "parquet" in str(error).lower():
        for file in (file for folder in reversed(list(_opened)) for file in sorted(folder.glob("*.parquet"))):
            try:
                for _ in pl.scan_parquet(file, glob=False).collect_batches():
                    pass
            except (pl.exceptions.PolarsError, OSError) as damage:
                return DataError(file, f"damaged ({first_line(damage)})")
    return error


def write(trace: Trace, path: Path, *, overwrite: bool = False) -> None:
    """Write a run folder under a temporary name, then rename it."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        if not overwrite:
            raise UsageError(f"{path} exists; choose another name, or replace it (overwrite=True)")
        if not sniff(path):
            raise UsageError(f"{path} is not a run folder, so it is not replaced; choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        _write_header(trace, draft / RUN_JSON, empty=_write_tables(trace, draft))
        draft.chmod(0o777 & ~_umask())
        if path.exists():
            _replace(draft, path)
        else:
            draft.rename(path)
    except OSError as error:
        raise DataError(path, f"could not be written ({error.strerror or first_line(error)})") from error
    except (pl.exceptions.InvalidOperationError, pl.exceptions.SchemaError, pl.exceptions.ShapeError) as error:
        # Tables are lazy and computed while they are written: values that do not fit came from the source.
        raise _misfit(trace, error) from error
    except (pl.exceptions.PolarsError, RuntimeError) as error:  # RuntimeError: of a full disk, by one of the ways in which Polars writes
        raise DataError(path, f"could not be written ({first_line(error)})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _misfit(trace: Trace, error: Exception) -> DataError:
    return DataError(trace.meta.source, f"damaged: its values do not fit the tables ({first_line(error)})")


def _write_tables(trace: Trace, folder: Path) -> dict[str, int]:
    """Write every table, and return the sizes of the files without rows. Invalid rows are left out and reported in `problems`."""
    invalid_rows, empty = list[dict[str, Any]](), dict[str, int]()
    for name in sorted(_table_names(trace), key=lambda name: name == "problems"):
        frame = trace.table(name)
        if trace.meta.summary:  # categories are written in the order in which a process met them: not the same bytes in each
            frame = frame.with_columns(cs.categorical().cast(pl.String))
        file = folder / f"{name}.parquet"
        _sink(trace.with_problems(invalid_rows).problems if name == "problems" and invalid_rows else frame, file)
        if name != "problems" and (counts := schema.invalid_counts(pl.scan_parquet(file, glob=False), name)):
            _sink(frame.filter(schema.is_valid(name)), file)
            place = {"rank": trace.meta.ranks[0] if trace.meta.ranks else None, "file": trace.meta.source, "where": name}
            invalid_rows += [
                place | {"what": f"{units.count(count, 'row')} {fault}: left out", "lost": count} for fault, count in counts.items()
            ]
        if pl.scan_parquet(file, glob=False).select(pl.len()).collect().item() == 0:
            empty[name] = file.stat().st_size
    return empty


def in_memory(trace: Trace) -> Trace | None:
    """The trace as `write` and `read` return it, without files, except for the arguments of spans, which are large and seldom used.

    None for a trace with invalid rows.
    """
    tables = dict[str, pl.LazyFrame]()
    try:
        for name in _table_names(trace):
            # In one piece: Polars 2.1 panics on some groupings of tables in several pieces.
            kept = trace.table(name).select(pl.exclude("args")).collect().rechunk()
            if schema.invalid_counts(kept.lazy(), name):
                return None
            tables[name] = _with_args(kept, trace.table(name).select("args")) if "args" in schema.TABLES[name] else kept.lazy()
    except (pl.exceptions.InvalidOperationError, pl.exceptions.SchemaError, pl.exceptions.ShapeError) as error:
        raise _misfit(trace, error) from error
    return trace.with_tables(**tables)


def _with_args(spans: pl.DataFrame, args: pl.LazyFrame) -> pl.LazyFrame:
    """Spans with a column that is read only where it is used, which a horizontal concatenation does not do."""

    def batches(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Iterator[pl.DataFrame]:
        names = [*spans.columns, "args"] if columns is None else columns
        if "args" in names:
            parts = _joined(spans, args, predicate)
        else:
            parts = iter([spans.select(names) if predicate is None else spans.select(names).filter(predicate)])
        left = spans.height if rows is None else rows
        for part in parts:
            yield part.select(names).head(left)
            left -= min(left, part.height)

    return register_io_source(batches, schema={**spans.schema, "args": pl.String})


def _joined(spans: pl.DataFrame, args: pl.LazyFrame, predicate: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """The rows with `args`. Without a row that is wanted, no arguments are read."""
    wanted = None
    if predicate is not None and "args" not in predicate.meta.root_names():
        wanted, predicate = spans.select(wanted=predicate)["wanted"].fill_null(False), None
        if not wanted.any():
            yield spans.clear().with_columns(args=pl.lit(None, pl.String))
            return
    at = 0
    for batch in args.collect_batches(chunk_size=_ARGS_BATCH, maintain_order=True):
        part = spans.slice(at, batch.height).with_columns(batch["args"])
        part = part if wanted is None else part.filter(wanted.slice(at, batch.height))
        yield part if predicate is None else part.filter(predicate)
        at += batch.height


def move(folder: Path, path: Path, *, overwrite: bool = False) -> None:
    """Move a complete run folder to its place, on the same disk."""
    try:
        folder.chmod(0o777 & ~_umask())
        if overwrite and path.exists():
            _replace(folder, path)
        else:
            folder.rename(path)
    except OSError as error:
        raise DataError(path, f"could not be written ({error.strerror or first_line(error)})") from error


def _table_names(trace: Trace) -> list[str]:
    """The tables of a recording, or those of a summary."""
    return (
        [*rank_tables.KEPT, *rank_tables.TABLES]
        if trace.meta.summary
        else [name for name in schema.TABLES if name not in rank_tables.TABLES]
    )


def _write_header(trace: Trace, file: Path, empty: dict[str, int]) -> None:
    from stepscope import __version__

    devices = trace.devices.select("rank", "device", "name", "kind").collect().to_dicts()
    record = {"stepscope": __version__, "format_version": FORMAT_VERSION, "tables": _table_names(trace), "empty": empty, "devices": devices}
    file.write_bytes(msgspec.json.format(encode(record | msgspec.to_builtins(trace.meta))) + b"\n")


def _sink(frame: pl.LazyFrame, file: Path) -> None:
    frame.sink_parquet(file, compression="zstd", compression_level=1, row_group_size=ROW_GROUP, maintain_order=True)


def encode(record: dict[str, Any]) -> bytes:
    """The header as JSON."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:  # a lone surrogate, which JSON files may contain
        return msgspec.json.encode(_valid_text(record))


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(inner) for key, inner in value.items()}
    return [_valid_text(inner) for inner in value] if isinstance(value, list) else value


def _scan(file: Path, table: str) -> pl.LazyFrame:
    """A table, lazily. A small file is read at once, so that an error can name it. Typed columns that earlier releases lack are added."""
    try:
        frame = complete_table(pl.scan_parquet(file, glob=False), table)
        types = frame.collect_schema()
        for name, expected in schema.TABLES[table].items():
            if name in types and not schema.can_hold(types[name], expected):
                raise DataError(file, f"column '{name}' has the type {types[name]}; expected {expected}")
        if file.stat().st_size <= _CHECKED_SIZE:
            rows = schema.conform(frame, table).collect()
            if counts := schema.invalid_counts(rows.lazy(), table):
                raise DataError(file, ", ".join(f"{units.count(count, 'row')} {fault}" for fault, count in counts.items()))
            if table != "spans" and rows.estimated_size() <= _KEPT_SIZE:  # tables of few rows, which many analyses use
                frame = rows.lazy()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(file, f"not a complete Parquet file ({first_line(error)})") from error
    return frame


def _header(path: Path) -> tuple[Meta, list[str], dict[str, int]]:
    """The metadata in run.json, the names of the tables that were written, and the sizes of the files without rows."""
    file = path / RUN_JSON
    try:
        record: dict[str, Any] = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise DataError(file, error.strerror or first_line(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(file, f"not a run folder's header ({error})") from error
    version = record.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise DataError(file, "has no format_version; expected a whole number")
    if version > FORMAT_VERSION:
        raise DataError(file, f"written by a newer stepscope (format {version}; this one reads up to {FORMAT_VERSION}): upgrade stepscope")
    try:
        empty = msgspec.convert(record.get("empty", {}), dict[str, int])
        if isinstance(extra := record.get("extra"), dict) and "windows" in extra:  # earlier releases
            record.setdefault("windows", extra.pop("windows"))
        return msgspec.convert(record, Meta), msgspec.convert(record.get("tables", []), list[str]), empty
    except msgspec.ValidationError as error:
        raise DataError(file, str(error)) from error


def _replace(draft: Path, path: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    path.rename(old / "run")
    draft.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
