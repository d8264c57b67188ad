"""Summaries of many ranks, made in several processes or on several machines."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.cluster.summaries import summarize

__all__ = ["summarize"]


def __getattr__(name: str) -> Any:
    import importlib

    if name != "summarize":
        raise AttributeError(f"module 'stepscope.cluster' has no attribute '{name}'")
    return importlib.import_module("stepscope.cluster.summaries").summarize
