"""Names of core counters: those of Ascend's databases, and those of op_summary."""

import re

import polars as pl

ONLY_IN_TEXT = ("cube_utilization(%)", "memory_bound")
_UNITS = {"time": "(us)", "bw": "(GB/s)", "datas": "(KB)"}
_TOTALS = {"total_time": "aicore_time(us)", "aic_total_time": "aicore_time(us)", "aiv_total_time": "aiv_time(us)"}
_TIME = r"_time(\(us\))?$"


def database_name(name: str, names: list[str]) -> str:
    """The database name of a column of op_summary, which has the columns `names`: without its unit."""
    if name == "aicore_time(us)":
        return "aic_total_time" if any(column.startswith("aic_") for column in names) else "total_time"
    return "aiv_total_time" if name == "aiv_time(us)" else re.sub(r"\((us|GB/s|KB)\)$", "", name)


def text_name(name: str) -> str:
    """The column of op_summary for a database name."""
    part = re.search(r"(?:_|^)(time|bw|datas)(?:_\w+)?$", name)
    return _TOTALS.get(name) or (name + _UNITS[part[1]] if part else name)


def nanoseconds(name: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Values of op_summary in the units of a database: times in nanoseconds."""
    return pl.when(name.str.contains(_TIME)).then(value * 1000).otherwise(value)


def microseconds(name: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Values of a database in the units of op_summary: times in microseconds."""
    return pl.when(name.str.contains(_TIME)).then(value / 1000).otherwise(value)
