"""A table as CSV, JSON, Parquet or Arrow: the same rows from the command line and from the server."""

import io
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from stepscope.errors import UsageError
from stepscope.model.parameters import suggestion
from stepscope.process.escapes import CONTROLS, escape

if TYPE_CHECKING:
    import polars as pl

_BATCH = 1 << 14
_LONGEST_FIND = 1000
# First characters of cells that spreadsheets run as formulas, from OWASP (CSV injection; the last four are the wide signs of
# Chinese and Japanese keyboards), and plain numbers, which are harmless.
_FORMULA, _NUMBER = r"^[=+\-@\t\n\r\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}]", r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_CONTROLS = CONTROLS.replace("\t", "").replace("\n", "")  # in a cell these two are harmless
_CONTROL = "[" + "".join(rf"\u{{{ord(character):x}}}" for character in _CONTROLS) + "]"


def chosen(frame: "pl.LazyFrame", *, sort: str | None = None, descending: bool = True, columns: str | None = None) -> "pl.LazyFrame":
    """The rows sorted by a column, with the columns in `a,b`."""
    names = frame.collect_schema().names()
    if sort:
        frame = frame.sort(_column(sort, names), descending=descending, nulls_last=True, maintain_order=True)
    if columns is not None:
        frame = frame.select(list(dict.fromkeys(_column(name.strip(), names) for name in columns.split(","))))
    return frame


def matching(frame: "pl.LazyFrame", find: str) -> "pl.LazyFrame":
    """Rows that contain all of these words, or match the /regular expression/, in any text column, ignoring case."""
    import polars as pl

    if len(find) > _LONGEST_FIND:  # each word is a search: tens of thousands would take hours
        raise UsageError(f"find has {len(find):,} characters; expected at most {_LONGEST_FIND:,}")
    texts = [name for name, dtype in frame.collect_schema().items() if isinstance(dtype, pl.String | pl.Categorical | pl.Enum)]
    whole = pl.concat_str((pl.col(name).cast(pl.String) for name in texts), separator="\n", ignore_nulls=True) if texts else pl.lit("")
    if find.startswith("/") and len(find) > 1:
        pattern = f"(?im){find[1:].removesuffix('/')}"
        try:
            pl.select(pl.lit("").str.contains(pattern))
        except pl.exceptions.ComputeError as error:
            raise UsageError(f"not a regular expression: {find}") from error
        return frame.filter(whole.str.contains(pattern))
    lower = whole.str.to_lowercase()
    return frame.filter(*(lower.str.contains(word, literal=True) for word in dict.fromkeys(find.lower().split())))


def write_csv(frame: "pl.LazyFrame", file: IO[str]) -> None:
    """CSV with a header. Text that a spreadsheet would run as a formula gets an apostrophe in front, control characters become escapes."""
    import polars as pl

    for index, batch in enumerate(batches(frame, header=True)):
        if index == 0:
            file.write(_csv_header(batch.columns))
        file.write(pl.DataFrame([csv_text(column) for column in flat(batch)]).write_csv(include_header=False))


def _csv_header(names: list[str]) -> str:
    import polars as pl

    return pl.DataFrame([[name] for name in csv_text(pl.Series(names))]).write_csv(include_header=False)


def csv_text(column: "pl.Series") -> "pl.Series":
    """Text that is safe in a spreadsheet and on a terminal. A number as text stays as it is."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    if column.str.contains(_CONTROL).any():
        column = column.str.replace_many({character: escape(character) for character in _CONTROLS})
    formula = column.str.contains(_FORMULA) & ~column.str.contains(_NUMBER)
    return ("'" + column).zip_with(formula, column).alias(column.name) if formula.any() else column


def write_json(frame: "pl.LazyFrame", file: IO[str], about: Mapping[str, Any]) -> None:
    """An object with the entries of `about`, the columns with their types, and the rows."""
    columns = [{"name": name, "type": _type_word(dtype)} for name, dtype in frame.collect_schema().items()]
    file.write(json_text({**about, "columns": columns})[:-1] + ',"rows":[')
    separator = "\n"
    for batch in batches(frame):
        for row in batch.iter_rows(named=True):
            file.write(separator + json_text(row))
            separator = ",\n"
    file.write("\n]}\n")


def arrow(frame: "pl.DataFrame") -> bytes:
    """An Arrow IPC stream of types that every reader supports: one chunk, no string views, categories as dictionaries."""
    import polars as pl

    buffer = io.BytesIO()
    frame.rechunk().write_ipc_stream(buffer, compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def json_text(value: Any) -> str:
    """Compact JSON. NaN and infinities, which JSON does not have, become null."""
    import msgspec

    return msgspec.json.encode(value).decode()


def flat(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Lists and structs as JSON text, for formats with plain values only."""
    import polars as pl

    nested = [column for column in frame if column.dtype.is_nested()]
    return frame.with_columns(
        pl.Series(column.name, [None if value is None else json_text(value) for value in column.to_list()], pl.String) for column in nested
    )


def plain(frame: "pl.LazyFrame") -> "pl.LazyFrame":
    """Categories as text, so that they compare, match and print like text."""
    import polars as pl
    import polars.selectors as cs

    return frame.with_columns((cs.categorical() | cs.enum()).cast(pl.String))


def finite(frame: "pl.LazyFrame") -> "pl.LazyFrame":
    """Categories as text, and null for every NaN and infinity."""
    import polars as pl
    import polars.selectors as cs

    return plain(frame).with_columns(pl.when(cs.float().is_finite()).then(cs.float()))


def batches(frame: "pl.LazyFrame", *, header: bool = False) -> Iterator["pl.DataFrame"]:
    """The rows in bounded batches. With `header`, an empty table is one empty batch."""
    empty = True
    for batch in finite(frame).collect_batches(chunk_size=_BATCH, maintain_order=True):
        if batch.height:
            empty = False
            yield batch
    if empty and header:
        yield finite(frame).head(0).collect()


def _column(name: str, columns: list[str]) -> str:
    if name not in columns:
        raise UsageError(f"no column '{name}'" + suggestion(name, columns))
    return name


def _type_word(dtype: "pl.DataType") -> str:
    import polars as pl

    if dtype.is_integer():
        return "integer"
    if dtype.is_float():
        return "number"
    if dtype == pl.Boolean:
        return "boolean"
    return "list" if dtype.is_nested() else "text"
