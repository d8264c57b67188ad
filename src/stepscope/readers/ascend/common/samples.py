"""Counters of Ascend's timelines, with the names that other chips' counters have."""

import re

import polars as pl

from stepscope.model.columns.counters import COLUMNS, of_device

# Counters that we rename: pattern, name, unit, factor.
_RENAMED = (
    (r"^AI Core Freq MHz$", "aicore clock", "Hz", 1e6),
    (r"^Device/Memory KB$", "memory used", "bytes", 1024.0),
    (r"^APP/Memory KB$", "process memory", "bytes", 1024.0),
)
_UNITS: dict[str, tuple[str | None, float]] = {
    "MB/s": ("bytes/s", 1e6),
    "KB/s": ("bytes/s", 1e3),
    "KB": ("bytes", 1024.0),
    "MB": ("bytes", 1048576.0),
    "%": ("percent", 1.0),
}


def counter_table(counters: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """Samples with the device at the end of their names: `aicore clock npu 0`."""
    if counters.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    # A sample of an accelerator is followed by a sample with the accelerator's number.
    text = pl.col("name").cast(pl.String)
    is_number = text.str.ends_with(" acc_id")
    accelerator = pl.when(is_number.shift(-1, fill_value=False) & ~is_number).then(pl.col("value").shift(-1).cast(pl.Int64, strict=False))
    numbered = pl.format("{} acc {}", text.str.strip_suffix(" value"), accelerator)
    counters = counters.with_columns(name=pl.when(accelerator.is_not_null()).then(numbered).otherwise(text)).filter(~is_number)
    counters = counters.join(tracks.select("track", "device"), on="track", how="left", maintain_order="left")
    distinct = counters.select("name", "device").unique()
    renamed = [_counter(str(name)) for name in distinct["name"]]
    names = distinct.with_columns(pl.DataFrame(renamed, {"counter": pl.String, "unit": pl.String, "factor": pl.Float64}, orient="row"))
    # msprof labels hit rates as percent, but its text files contain shares; its database contains percent.
    highest = pl.col("value").max().over("counter", "device")
    is_share = (pl.col("unit") == "percent") & pl.col("counter").str.contains("Hit Rate") & (highest <= 1)
    return counters.join(names, on=["name", "device"], how="left", nulls_equal=True, maintain_order="left").select(
        **of_device(pl.col("counter"), pl.when(pl.col("device").is_not_null()).then(pl.lit("npu")), pl.col("device")),
        at_ns="at_ns",
        value=pl.col("value") * pl.col("factor") * pl.when(is_share).then(100.0).otherwise(1.0),
        unit="unit",
    )


def _counter(name: str) -> tuple[str, str | None, float]:
    """The series, the unit and the factor of a counter."""
    for pattern, word, unit, factor in _RENAMED:
        if re.match(pattern, name):
            return word, unit, factor
    body, _, last = name.rpartition(" ")
    in_brackets = re.search(r"\(([^)]*)\)$", name)
    measure = in_brackets[1] if in_brackets else last if last in _UNITS else None
    if in_brackets:
        body = name[: in_brackets.start()].strip()
        repeated = re.match(r"^(.*[/ ](.+)) \2$", body)  # `HBM 0/Read Read(MB/s)`
        body = repeated[1] if repeated else body
    elif measure is None and last != "value":
        half = name[: len(name) // 2]
        body = half if name == f"{half} {half}" else name  # `Mata Bw Level Mata Bw Level`
    our_unit, factor = _UNITS.get(measure or "", (measure, 1.0))
    return (body or name).replace("/", " "), our_unit, factor
