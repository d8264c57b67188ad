"""Run folder <-> Trace: a directory of Parquet files, one per table, and run.json. A folder that exists is whole."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope import schema, units
from stepscope.errors import DataError, UsageError
from stepscope.trace import Meta, Trace

RUN_JSON = "run.json"
# Raised when a later release could no longer read what this one writes. `_upgrade` brings earlier ones forward.
FORMAT_VERSION = 1
# Large enough to compress well, small enough that a question about a few steps skips most of the file.
ROW_GROUP = 1 << 18
# Files up to this size are read through when they are opened, which takes some hundredths of a second.
_READ_THROUGH = 4 << 20


def sniff(path: Path) -> bool:
    """Is this a run folder?"""
    return (path / RUN_JSON).is_file()


def read(path: Path) -> Trace:
    """The trace of a run folder; its tables are read when asked, column by column."""
    header, written = _header(path)
    tables = {}
    for name in schema.TABLES:
        file = path / f"{name}.parquet"
        if name in written or file.exists():
            if not file.is_file():
                raise DataError(file, "missing, though the run folder was written with it")
            tables[name] = _scan(file, name)
    if "spans" not in tables:
        raise DataError(path, "the run folder has no spans.parquet")
    _opened.pop(path, None)
    _opened[path] = None
    while len(_opened) > _REMEMBERED:
        _opened.pop(next(iter(_opened)), None)
    return Trace(tables, header)


# Run folders that this process has opened, the last one last: tables are read later, and Polars does not say which file is damaged.
_opened: dict[Path, None] = {}
_REMEMBERED = 256


def named_damage(error: pl.exceptions.PolarsError) -> Exception:
    """The error with the name of the damaged file, where it comes from a table of a run folder; else the error itself."""
    if "parquet" in str(error).lower():
        for file in (file for folder in reversed(list(_opened)) for file in sorted(folder.glob("*.parquet"))):
            try:
                for _ in pl.scan_parquet(file, glob=False).collect_batches():
                    pass
            except (pl.exceptions.PolarsError, OSError) as why:
                return DataError(file, f"damaged ({first_line(why)})")
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
        left_out = list[dict[str, Any]]()
        for name, frame in sorted(trace.tables.items(), key=lambda item: item[0] == "problems"):
            file = draft / f"{name}.parquet"
            _sink(trace.with_problems(left_out).problems if name == "problems" else frame, file)
            if name != "problems" and (wrong := schema.impossible(pl.scan_parquet(file, glob=False), name)):
                # Of whatever reader they come: no analysis is to meet them.
                _sink(frame.filter(schema.possible(name)), file)
                about = {"rank": trace.meta.ranks[0] if trace.meta.ranks else None, "file": trace.meta.source, "where": name}
                left_out += [
                    about | {"what": f"{units.count(count, 'row')} {words}: left out", "lost": count} for words, count in wrong.items()
                ]
        from stepscope import __version__

        devices = trace.devices.select("rank", "device", "name", "kind").collect().to_dicts()
        record = {"stepscope": __version__, "format_version": FORMAT_VERSION, "tables": list(trace.tables), "devices": devices}
        record |= msgspec.to_builtins(trace.meta)
        (draft / RUN_JSON).write_bytes(msgspec.json.format(_encoded(record)) + b"\n")
        draft.chmod(0o777 & ~_umask())
        if path.exists():
            _replace(draft, path)
        else:
            draft.rename(path)
    except OSError as error:
        raise DataError(path, f"could not be written ({error.strerror or first_line(error)})") from error
    except (pl.exceptions.InvalidOperationError, pl.exceptions.SchemaError, pl.exceptions.ShapeError) as error:
        # Tables are put together as they are written: what does not fit came from the source.
        raise DataError(trace.meta.source or path, f"damaged: its values do not fit the tables ({first_line(error)})") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(path, f"could not be written ({first_line(error)})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sink(frame: pl.LazyFrame, file: Path) -> None:
    frame.sink_parquet(file, compression="zstd", compression_level=1, row_group_size=ROW_GROUP, maintain_order=True)


def _encoded(record: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:  # half of a pair of surrogates, as JSON can hold it, is no text
        return msgspec.json.encode(_as_text(record))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(inner) for key, inner in value.items()}
    return [_as_text(inner) for inner in value] if isinstance(value, list) else value


def first_line(error: BaseException) -> str:
    """The first line of another library's error: our own are always one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _scan(file: Path, table: str) -> pl.LazyFrame:
    """A table as it will be read. Damage inside a small file is found now, where the file can be named."""
    try:
        frame = pl.scan_parquet(file, glob=False)
        have = frame.collect_schema()
        for name, want in schema.TABLES[table].items():
            if name in have and not schema.can_hold(have[name], want):
                raise DataError(file, f"column '{name}' has the type {have[name]}; expected {want}")
        if file.stat().st_size <= _READ_THROUGH:
            rows = schema.conform(frame, table).collect()
            if wrong := schema.impossible(rows.lazy(), table):
                raise DataError(file, ", ".join(f"{units.count(count, 'row')} {words}" for words, count in wrong.items()))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(file, f"not a whole Parquet file ({first_line(error)})") from error
    return frame


def _header(path: Path) -> tuple[Meta, list[str]]:
    """What run.json says of the recording, and the tables that were written."""
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
        return msgspec.convert(_upgrade(record, version), Meta), msgspec.convert(record.get("tables", []), list[str])
    except msgspec.ValidationError as error:
        raise DataError(file, str(error)) from error


def _upgrade(record: dict[str, Any], version: int) -> dict[str, Any]:
    """A header of an earlier format as the present one. Columns added since are null: `schema.conform` sees to that."""
    return record


def _replace(draft: Path, path: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    path.rename(old / "run")
    draft.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
