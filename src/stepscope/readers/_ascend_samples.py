"""Counters of Ascend's timelines, under names like those of other chips."""

import re

import polars as pl

# Counters whose name here is another than the source's: pattern, name, unit, factor.
_COUNTERS = (
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


def samples_of(counters: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Samples under names like those of other chips, with the device behind: `aicore clock npu 0`."""
    columns = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}
    if counters.is_empty():
        return pl.DataFrame(schema=columns)
    # The accelerator that a sample is of stands behind the sample.
    which = pl.col("name").cast(pl.String).str.ends_with(" acc_id")
    behind = pl.when(which.shift(-1, fill_value=False) & ~which).then(pl.col("value").shift(-1).cast(pl.Int64, strict=False))
    name = pl.col("name").cast(pl.String).str.strip_suffix(" value")
    counters = counters.with_columns(
        name=pl.when(behind.is_not_null()).then(pl.format("{} acc {}", name, behind)).otherwise(pl.col("name").cast(pl.String))
    ).filter(~which)
    placed = counters.join(lanes.select("track", "device"), on="track", how="left", maintain_order="left")
    distinct = placed.select("name", "device").unique()
    named = [_counter(str(name), device) for name, device in distinct.iter_rows()]
    words = distinct.with_columns(pl.DataFrame(named, {"word": pl.String, "unit": pl.String, "factor": pl.Float64}, orient="row"))
    # The text of msprof says that a hit rate is in percent, and has shares; its database has percent.
    of_one = (pl.col("unit") == "percent") & pl.col("word").str.contains("Hit Rate") & (pl.col("value").max().over("word") <= 1)
    return placed.join(words, on=["name", "device"], how="left", nulls_equal=True, maintain_order="left").select(
        name="word", at_ns="at_ns", value=pl.col("value") * pl.col("factor") * pl.when(of_one).then(100.0).otherwise(1.0), unit="unit"
    )


def _counter(name: str, device: int | None) -> tuple[str, str | None, float]:
    where = "" if device is None else f" npu {device}"
    for pattern, word, unit, factor in _COUNTERS:
        if re.match(pattern, name):
            return word + where, unit, factor
    body, _, key = name.rpartition(" ")
    said = re.search(r"\(([^)]*)\)$", name)
    measure = said[1] if said else key if key in _UNITS else None
    if said:
        body = name[: said.start()].strip()
        repeated = re.match(r"^(.*[/ ](.+)) \2$", body)  # `HBM 0/Read Read(MB/s)`
        body = repeated[1] if repeated else body
    elif measure is None and key != "value":
        half = name[: len(name) // 2]
        body = half if name == f"{half} {half}" else name  # `Mata Bw Level Mata Bw Level`
    known, factor = _UNITS.get(measure or "", (measure, 1.0))
    return (body or name).replace("/", " ") + where, known, factor
