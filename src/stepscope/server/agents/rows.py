"""Rows of a table as a small answer: what does not fit is left out, and the answer says how to get it."""

import json
from typing import Any

import polars as pl

from stepscope.model.output.tables import finite
from stepscope.model.units import count

ROWS, MOST_ROWS = 50, 500  # by default, and at most
BYTES = 24_000  # of the rows as JSON: about 8,000 tokens
LONGEST = 600  # characters of a text; a list is cut in the same way
_LONGEST_FIELDS = 200  # of a nested value, characters per text


def small(frame: pl.DataFrame, *, offset: int = 0, limit: int = ROWS, budget: int = BYTES, longest: int = LONGEST) -> dict[str, Any]:
    """`columns` with their types, `rows`, `row_count` of the whole table, and `left_out`: what is missing here, or null."""
    rows, size, cut = list[dict[str, Any]](), 2, set[str]()
    wanted = finite(frame.lazy().slice(offset, limit)).collect()
    for row in wanted.iter_rows(named=True):
        values = {name: _shortened(value, longest, name, cut) for name, value in row.items()}
        size += len(json.dumps(values, ensure_ascii=False, default=str).encode()) + 1
        if size > budget and rows:
            break
        rows.append(values)
    return {
        "columns": {name: str(dtype).split("(")[0] for name, dtype in frame.schema.items()},
        "rows": rows,
        "row_count": frame.height,
        "left_out": left_out(frame.height, offset, len(rows), size > budget and len(rows) < wanted.height, cut),
    }


def left_out(total: int, offset: int, shown: int, is_large: bool, cut: set[str]) -> str | None:
    """The sentence about the rows and texts that an answer does not contain."""
    texts = []
    if shown < total:
        before = f"rows {offset + 1:,} to {offset + shown:,}" if shown else "no rows"
        why = f" (an answer has at most {BYTES:,} bytes)" if is_large else ""
        how = f"use offset={offset + shown} for the next ones, " if offset + shown < total else ""
        texts.append(f"{before} of {count(total, 'row')} are shown{why}: {how}sort, find and columns to choose, or sql to aggregate")
    if cut:
        names = ", ".join(sorted(cut))
        texts.append(f"long values of {names} are cut, marked with …: sql with substr() returns any part of them")
    return "; ".join(texts) or None


def _shortened(value: Any, longest: int, name: str, cut: set[str]) -> Any:
    if isinstance(value, str) and len(value) > longest:
        cut.add(name)
        return f"{value[:longest]}… ({len(value):,} characters)"
    if isinstance(value, bytes):
        return _shortened(value.hex(), longest, name, cut)
    if isinstance(value, dict):
        return {key: _shortened(item, longest, name, cut) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items, size = [], 0
        for item in value:
            items.append(_shortened(item, _LONGEST_FIELDS, name, cut))
            size += len(str(items[-1]))
            if size > longest * 4:
                cut.add(name)
                return [*items, f"… ({len(value):,} items)"]
        return items
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
