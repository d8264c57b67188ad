"""What an engine runs: the summary of some recordings, and the merge of some summaries. Both write a run folder.

This module imports neither Polars nor a reader: an engine sets their number of threads before they load.
"""

from pathlib import Path
from typing import Any

import msgspec

Progress = Any


class Part(msgspec.Struct, frozen=True):
    """A recording, with all windows of its process: files and formats on a file system, or the address of a file or folder."""

    sources: tuple[tuple[str, str], ...] = ()
    url: str = ""
    rank: int | None = None  # in this run; None: the rank that the recording contains
    expected_rank: int | None = None  # by its name
    size: int = 0  # bytes

    @property
    def name(self) -> str:
        return self.url or self.sources[0][0]


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Recordings that one task opens and summarizes together."""

    parts: tuple[Part, ...]


class Merge(msgspec.Struct, frozen=True, tag=True):
    """Summaries that become one; the last one gets the source of the run and the `problems` of parts that are lost."""

    source: str = ""
    problems: tuple[dict[str, Any], ...] = ()


class Status(msgspec.Struct, frozen=True):
    """The ranks and the number of spans of a summary, and the errors of the recordings that are not in it: one row of problems each."""

    ranks: tuple[int, ...] = ()
    spans: int = 0
    problems: tuple[dict[str, Any], ...] = ()


Task = Batch | Merge


def perform(task: Task, inputs: list[Path], out: Path, room: Path) -> Status:
    """Write the run folder `out`, with temporary files in `room`. Without readable recordings, there is no folder."""
    from stepscope.cluster import rank_summary

    if isinstance(task, Merge):
        return rank_summary.write_merged(task, inputs, out)
    return rank_summary.write_batch(task, out, room)
