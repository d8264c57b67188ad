"""A run in one answer: its conclusions and the largest figures, from analyses."""

from collections.abc import Awaitable, Callable
from typing import Any

import polars as pl

from stepscope.server.agents.rows import small

_TOP = 8
_RANKS = 16  # in an answer about many ranks
_BUDGET = 4_000  # bytes of each table
_CONCLUSION = ("topic", "rank", "severity", "text", "coverage")
_FACTS = ("format", "framework", "versions", "world_size")

Analyse = Callable[..., Awaitable[pl.DataFrame]]


async def summary(info: dict[str, Any], analyse: Analyse) -> dict[str, Any]:
    """Facts of the recording, conclusions, figures per rank, and the largest operators and kernels."""
    conclusions = await analyse("verdict", topic="overview")
    whole_run = conclusions.filter(pl.col("rank").is_null())
    types, kernels = await analyse("operator_types"), await analyse("kernels")
    device = types.filter(pl.col("device") != "cpu")
    ranks = info["ranks"]
    return {
        **{name: info[name] for name in _FACTS},
        "ranks": len(ranks),
        "first_ranks": ranks[:_RANKS],
        "devices": sorted({device["name"] for device in info["devices"] if device["name"]}),
        "spans": info["tables"]["spans"],
        "recorded_ns": int(info["end_ns"]) - int(info["origin_ns"]),
        "conclusions": _rows((whole_run if whole_run.height else conclusions).select(_CONCLUSION), _RANKS),
        "overview": _rows(await analyse("overview"), _RANKS),
        "operator_types": _largest(device if device.height else types, "type", "self_ns"),
        "kernels": _largest(kernels, "name", "total_ns"),
        "memory_peaks": _rows((await analyse("memory_peaks")).sort("peak_bytes", descending=True, nulls_last=True), _TOP),
        "problems": {"row_count": info["problem_count"], "rows": info["problems"][:_TOP]},
    }


def _largest(frame: pl.DataFrame, name: str, time: str) -> dict[str, Any]:
    """The rows with the most time over all ranks and devices."""
    summed = frame.group_by(pl.col(name).cast(pl.String), maintain_order=True).agg(pl.col("calls", time).sum())
    return _rows(summed.sort(time, descending=True, maintain_order=True), _TOP)


def _rows(frame: pl.DataFrame, limit: int) -> dict[str, Any]:
    return small(frame, limit=limit, budget=_BUDGET)
