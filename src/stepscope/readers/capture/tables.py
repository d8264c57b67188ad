"""Tables of a capture as frames."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from stepscope.errors import first_line
from stepscope.model import captures


def load_table(path: Path, table: str, damaged: dict[str, str] | None = None, *, text: Any = pl.Categorical) -> pl.DataFrame:
    """All pieces that can be read; `damaged` gets the reason for each other piece, by the file's name."""
    pieces = []
    for file in captures.files(path, table):
        try:
            columns = captures.piece(file)
            texts = {name: text_column(*values, text) for name, values in columns.items() if isinstance(values, tuple)}
            pieces.append(pl.DataFrame(columns | texts))
        except (*captures.DAMAGE, pl.exceptions.PolarsError) as error:
            if damaged is not None:
                damaged[file.name] = first_line(error)
    return pl.concat(pieces, how="diagonal_relaxed") if pieces else pl.DataFrame()


def text_column(codes: NDArray[Any], texts: Sequence[str | None], text: Any = pl.Categorical) -> pl.Series:
    """A column of text from codes; -1 is null."""
    return pl.Series([*texts, None], dtype=pl.String).cast(text).gather(pl.Series(codes).replace(-1, len(texts)).cast(pl.UInt32))
