"""Files of MindSpore's own profiler about the host: operators on the CPU, the memory pool, the input pipeline.

They are those of `mindspore_files` and `readers.common.minddata`, in FRAMEWORK of a result folder or in a `profiler` folder of MindInsight.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import add_rows
from stepscope.readers.capture import mindspore
from stepscope.readers.common.documents import files
from stepscope.readers.common.problems import Problem, problem_frame


def has_operator_file(folder: Path) -> bool:
    return folder.is_dir() and bool(files(folder, "cpu_op_execute_timestamp_*.txt"))


def missing_file_problem(folder: Path, rank: int | str = "*") -> Problem | None:
    """A problem for a folder that has other files of the CPU profiler, but not the one with the operators."""
    name = f"cpu_op_execute_timestamp_{rank}.txt"
    if files(folder, name):
        return None
    others = ("cpu_framework_{}.txt", "cpu_op_detail_info_{}.csv", "cpu_op_type_info_{}.csv", "cpu_ms_memory_record_{}.txt")
    other = next((file.name for pattern in others for file in files(folder, pattern.format(rank))), None)
    return Problem(name, f"missing, though {other} is there: the calls of operators are lost", 1) if other else None


def read(folder: Path, options: Options, *, rank: int | None, problems: list[Problem], minddata: bool = True) -> Trace:
    """The trace of these files, and with `minddata` of MindData's files beside them."""
    rank = next((number for number in (rank, _rank_in_name(folder), options.rank) if number is not None), 0)
    header: dict[str, Any] = {"rank": rank, "mode": _execution_mode(folder), "start_ns": 0}
    if (folder / f"cpu_op_execute_timestamp_{rank}.txt").is_file():
        header["files_of"] = str(rank)
    trace = mindspore.read_pieces([folder], folder, header, folder if minddata else folder / "nothing")
    trace = trace.with_meta(ranks=[rank], format="mindinsight")
    return add_rows(trace, {"problems": problem_frame(problems, folder).with_columns(rank=pl.lit(rank, pl.Int32))})


def _rank_in_name(folder: Path) -> int | None:
    file = next(iter(files(folder, "cpu_op_execute_timestamp_*.txt")), None)
    digits = file.stem.rpartition("_")[2] if file else ""
    return int(digits) if re.fullmatch(r"[0-9]{1,9}", digits) else None


def _execution_mode(folder: Path) -> str:
    """In a graph, operators have scopes; in PyNative mode, hardly any has."""
    file = files(folder, "cpu_op_execute_timestamp_*.txt")[0]
    names = [line.partition(";")[0] for line in file.read_text("utf-8", "replace").splitlines() if line]
    return "graph" if sum("/" in name for name in names) > len(names) / 2 else "pynative"
