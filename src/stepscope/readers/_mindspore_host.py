"""What MindSpore's own profiler leaves of the host: operators on the CPU, the memory pool, the input pipeline.

The files are those of `_mindspore_capture` and `_minddata`, in FRAMEWORK of a result folder or in a `profiler` folder of MindInsight.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.readers import Options, _mindspore_capture
from stepscope.readers._ascend_tables import with_rows
from stepscope.readers._documents import files
from stepscope.readers._kineto import Problem
from stepscope.trace import Trace


def claims(folder: Path) -> bool:
    return folder.is_dir() and next(iter(files(folder, "cpu_op_execute_timestamp_*.txt")), None) is not None


def missing(folder: Path, rank: int | str = "*") -> Problem | None:
    """What to say of a folder that has other files of MindSpore's profiler of the CPU, and not the one with its operators."""
    if files(folder, f"cpu_op_execute_timestamp_{rank}.txt"):
        return None
    names = ("cpu_framework_{}.txt", "cpu_op_detail_info_{}.csv", "cpu_op_type_info_{}.csv", "cpu_ms_memory_record_{}.txt")
    patterns = [name.format(rank) for name in names]
    beside = next((file.name for pattern in patterns for file in files(folder, pattern)), None)
    return (
        Problem(f"cpu_op_execute_timestamp_{rank}.txt", f"missing, though {beside} is there: the calls of operators are lost", 1)
        if beside
        else None
    )


def read(folder: Path, options: Options, *, rank: int | None, problems: list[Problem], minddata: bool = True) -> Trace:
    """The trace of these files, and of MindData's beside them if asked for."""
    rank = next((number for number in (rank, _rank(folder), options.rank) if number is not None), 0)
    header: dict[str, Any] = {"rank": rank, "mode": _mode(folder), "start_ns": 0}
    if (folder / f"cpu_op_execute_timestamp_{rank}.txt").is_file():
        header["files_of"] = str(rank)
    trace = _mindspore_capture.read_pieces([folder], folder, header, folder if minddata else folder / "nothing")
    trace.meta.ranks, trace.meta.format = [rank], "mindinsight"
    rows = pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
    return with_rows(trace, {"problems": rows.with_columns(file=pl.lit(str(folder)), rank=pl.lit(rank, pl.Int32))})


def _rank(folder: Path) -> int | None:
    file = next(iter(files(folder, "cpu_op_execute_timestamp_*.txt")), None)
    digits = file.stem.rpartition("_")[2] if file else ""
    return int(digits) if re.fullmatch(r"[0-9]{1,9}", digits) else None


def _mode(folder: Path) -> str:
    """In a graph, operators have scopes; one by one, hardly any has."""
    file = files(folder, "cpu_op_execute_timestamp_*.txt")[0]
    names = [line.partition(";")[0] for line in file.read_text("utf-8", "replace").splitlines() if line]
    return "graph" if sum("/" in name for name in names) > len(names) / 2 else "pynative"
