"""Typed columns of tables whose source has only names: of a counter its series and owner, of a track its stream, group and plane.

Readers that know these values fill the columns. `schema.conform` derives them where a table lacks them: counters of captures and of foreign
traces, and run folders of earlier releases. Names are parsed here and nowhere else.
"""

import functools
import re

import polars as pl

# Names of counters as docs/data_model.md lists them. Groups: series, owner, number. The first match counts.
_COUNTERS: tuple[tuple[str, dict[str, str]], ...] = (
    (r"(?P<series>allocated|reserved) ?(?P<owner>.*?)(?: (?P<number>0|[1-9]\d{0,17}))?", {}),
    (r"(?P<series>.+) (?P<owner>npu|gpu|tpu|xpu|cpu|cuda|rocm) (?P<number>0|[1-9]\d{0,17})", {}),
    (r"queue (?P<number>\d{1,9}) (?P<series>depth|wait)", {"owner": "loader"}),
    (r"queue (?P<owner>iterator|device queue|device)", {"series": "depth"}),
    (r"(?P<series>pipeline time|push time|batch time) (?P<owner>iterator|device queue)", {}),
    (r"queue (?P<number>\d{1,9})(?: .*)?", {"series": "depth", "owner": "operator"}),
    (r"(?P<series>cpu user|cpu system) (?P<number>\d{1,9})(?: .*)?", {"owner": "operator"}),
    (r"(?P<owner>process|data worker|child) (?P<number>[1-9]\d{0,17}) (?P<series>.+)", {}),
    (r"(?P<owner>process) (?P<series>cpu user|cpu system|memory|threads|(?:in)?voluntary switches)", {}),
)
_PARTS = pl.Struct({"series": pl.String, "owner": pl.String, "number": pl.Int64})
_LABEL, _TID = pl.col("label").cast(pl.String), pl.col("tid").cast(pl.String)
_GROUP = _LABEL.str.extract(r"^Group (.*) (?:Communication|Plane \d+)$")
_IS_STREAM = (
    (pl.col("kind").cast(pl.String) == "stream")
    & pl.col("device").is_not_null()
    & _GROUP.is_null()
    & ~_LABEL.str.starts_with("Reduce on stream").fill_null(False)
)


def _names_of(part: str) -> pl.Expr:
    return pl.col("name").cast(pl.String).map_batches(_counter_parts, return_dtype=_PARTS, is_elementwise=True).struct.field(part)


def _counter_parts(names: pl.Series) -> pl.Series:
    distinct = names.unique().drop_nulls()
    parts = pl.DataFrame({"name": distinct, "parts": pl.Series([counter_parts(name) for name in distinct], dtype=_PARTS)})
    return pl.DataFrame({"name": names}).join(parts, on="name", how="left", maintain_order="left")["parts"]


@functools.lru_cache(4096)
def counter_parts(name: str) -> dict[str, str | int | None]:
    """`HBM 0 Read npu 1`: the series `HBM 0 Read` of the owner `npu` with the number 1. A counter of the machine has no owner."""
    for pattern, values in _COUNTERS:
        if match := re.fullmatch(pattern, name, re.DOTALL):
            parts = values | match.groupdict()
            number = parts.get("number")
            return {"series": parts["series"], "owner": parts["owner"], "number": None if number is None else int(number)}
    return {"series": name, "owner": None, "number": None}


# Of each table: the columns that derived columns need, and the derived columns.
DERIVED: dict[str, tuple[set[str], dict[str, pl.Expr]]] = {
    "counters": ({"name"}, {part: _names_of(part) for part in ("series", "owner", "number")}),
    "tracks": (
        {"label", "tid", "kind", "device"},
        {
            "stream": pl.when(_IS_STREAM).then(_TID.str.extract(r"(\d{1,9})\s*$")).cast(pl.Int64),
            "communication_group": _GROUP,
            "plane": _LABEL.str.extract(r"^(?:Group .* )?Plane (\d{1,9})$").cast(pl.Int32, strict=False),
        },
    ),
}

# The owner of a counter with its number, as the tables name devices: `npu 0`, `cpu`.
OWNER = pl.when(pl.col("number").is_null()).then(pl.col("owner").cast(pl.String)).otherwise(
    pl.format("{} {}", pl.col("owner").cast(pl.String), pl.col("number"))
)  # fmt: skip
