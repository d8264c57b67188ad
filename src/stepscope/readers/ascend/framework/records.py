"""The raw files of torch_npu and MindSpore in the folder FRAMEWORK of a result folder.

    torch.op_range, mindspore.op_range              operators on the host
    torch.op_mark                                   the queue between the thread that calls operators and the thread that launches them
    torch.memory_usage, mindspore.memory_usage      blocks of the allocator
    torch.python_tracer_func, torch.python_tracer_hash, torch.gc_record       Python's calls and its garbage collector

Times are readings of the host's counter, or nanoseconds of the monotonic clock; only MindSpore's memory has the time of day.
"""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from stepscope.model import units
from stepscope.readers.ascend.framework import mindspore, torch
from stepscope.readers.ascend.framework.columns import MEMORY, SPANS, conform, find_file
from stepscope.readers.ascend.prof.files import Clock
from stepscope.readers.common.problems import Problem

_TORCH_FILES = ("torch.op_range", "torch.op_mark", "torch.memory_usage", "torch.python_tracer_func")
_FILES = (*_TORCH_FILES, "mindspore.op_range", "mindspore.memory_usage")


class Framework(NamedTuple):
    spans: pl.DataFrame
    memory: pl.DataFrame
    name: str  # pytorch, mindspore


def claims(folder: Path) -> bool:
    return folder.is_dir() and any(find_file(folder, name) for name in _FILES)


def read(folder: Path, clock: Clock, problems: list[Problem]) -> Framework:
    is_torch = any(find_file(folder, name) for name in _TORCH_FILES)
    parts = [pl.DataFrame(schema=SPANS)]
    for load_spans in torch.LOADERS if is_torch else [mindspore.operators]:
        rows = load_spans(folder, clock, problems)
        first = sum(part.height for part in parts)
        parts.append(conform(rows, SPANS).with_columns(pl.col("forward") + first))
    memory = torch.memory(folder, clock, problems) if is_torch else mindspore.memory(folder, problems)
    read_files = (*_FILES, "torch.gc_record", "torch.python_tracer_hash")
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("torch.", "mindspore.")) and not path.name.startswith(read_files):
            problems.append(Problem(path.name, f"not read: {units.count(path.stat().st_size, 'byte')}", 0))
    return Framework(pl.concat(parts), conform(memory, MEMORY), "pytorch" if is_torch else "mindspore")
