"""Counters of cores under the names that databases of Ascend's tools give them, and under those of op_summary."""

import re

import polars as pl

# These are of op_summary alone.
ONLY_IN_TEXT = ("cube_utilization(%)", "memory_bound")
_UNITS = {"time": "(us)", "bw": "(GB/s)", "datas": "(KB)"}
_TOTALS = {"total_time": "aicore_time(us)", "aic_total_time": "aicore_time(us)", "aiv_total_time": "aiv_time(us)"}
_TIME = r"_time(\(us\))?$"


def in_database(name: str, names: list[str]) -> str:
    """Of a column of op_summary, one of `names`: without its unit. Times are nanoseconds there."""
    if name == "aicore_time(us)":
        return "aic_total_time" if any(one.startswith("aic_") for one in names) else "total_time"
    return "aiv_total_time" if name == "aiv_time(us)" else re.sub(r"\((us|GB/s|KB)\)$", "", name)


def in_text(name: str) -> str:
    """Of a database's name, the column of op_summary."""
    part = re.search(r"(?:_|^)(time|bw|datas)(?:_\w+)?$", name)
    return _TOTALS.get(name) or (name + _UNITS[part[1]] if part else name)


def nanoseconds(name: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Values as databases have them."""
    return pl.when(name.str.contains(_TIME)).then(value * 1000).otherwise(value)


def microseconds(name: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Values as op_summary has them, of names as databases have them."""
    return pl.when(name.str.contains(_TIME)).then(value / 1000).otherwise(value)
