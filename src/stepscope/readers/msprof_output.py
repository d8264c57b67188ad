"""What msprof exports: `mindstudio_profiler_output` (CANN 7 and later) and `device_N/timeline` with `device_N/summary` (before).

    msprof_*.json, msprof_slice_K_*.json                the timeline, also as several files
    step_trace_*.json                                   iterations, of all
    op_summary_*.csv, or .json                          what ran on the device, with shapes and counters of the chip
    msprof_DEVICE_MODEL_ITERATION.json, task_time_..., hccl_..., step_trace_...     the older layout: a file for each iteration
    start_info, info.json                               beside it: the time of day at which the clock began, the chip, the rank

Older timelines count from the start of the machine, newer ones are in the time of day.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.readers import Options, _ascend_layers, _ascend_tables, chrome
from stepscope.readers._documents import LEADS_OUT, exact, files, lies_beside
from stepscope.readers._kineto import Problem
from stepscope.trace import Trace

_YEAR_2000_NS = 946_684_800 * 10**9
FORMAT = "mindstudio_profiler_output"


def sniff(path: Path) -> bool:
    if not path.is_dir() or (path / "ASCEND_PROFILER_OUTPUT").is_dir():
        return False
    return bool(_timelines(path) or _summaries(path)) or (not _is_raw(path) and any(_older(path)))


def read(path: Path, options: Options) -> Trace:
    problems: list[Problem] = []
    folders = [path] if _timelines(path) or _summaries(path) else _older(path)
    if not folders:
        raise DataError(path, "no exported timeline in it; expected msprof_*.json or op_summary_*.csv")
    if len(folders) > 1:
        names = ", ".join(folder.parent.name for folder in folders)
        problems.append(Problem("", f"several devices: {names}; each can be opened by itself", 0))
    home = _home(folders[0])
    info, begin = _described(home, problems)
    reports: list[Any] = []
    for folder in folders:
        for file in _timelines(folder):
            found = _decoded(file, len(reports), options, problems)
            reports += found
        problems += _earlier(folder)
        if not _timelines(folder) and (known := _summaries(folder)):
            problems.append(Problem(known[0].name, "no timeline (msprof_*.json) is beside it: all but its kernels is unknown", 0))
    rows = _ascend_tables.slices([file for folder in folders for file in _summaries(folder)], problems)
    details = _ascend_tables.details(rows, "op_summary.csv", problems)
    trace = _ascend_layers.assemble(
        path, reports, problems, options, format="msprof_output", details=details, rank=_rank(info), device=_device(folders[0])
    )
    return _with_chip(_in_time_of_day(trace, begin), info)


def rank(path: Path) -> int | None:
    folder = next(iter([path] if _timelines(path) or _summaries(path) else _older(path)), path)
    return _rank(_described(_home(folder), [])[0])


def _timelines(folder: Path) -> list[Path]:
    """The files that make up one timeline: what an overview file holds need not be read again from its parts."""
    inside = _inside(folder, "timeline")
    for names in (("msprof_*.json",), ("task_time_*.json", "hccl_*.json")):
        found = [file for name in names for file in files(inside, name) if file.name != "msprof_slice.json"]
        if found:
            return [*_newest(found), *_newest(_iterations(inside))]
    return _newest(_iterations(inside))


def _iterations(inside: Path) -> list[Path]:
    return [file for file in files(inside, "step_trace_*.json") if not file.name.startswith("step_trace_summary")]  # a table


def _summaries(folder: Path) -> list[Path]:
    inside = _inside(folder, "summary")
    return _newest(files(inside, "op_summary_*.csv")) or _newest(files(inside, "op_summary_*.json"))


def _inside(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).is_dir() else folder


_NAME = re.compile(r"(?P<kind>.+?)(?:_slice_(?P<slice>\d+))?_(?P<at>\d{14,})\.\w+")


def _newest(found: list[Path]) -> list[Path]:
    """Whoever exports again adds files: of each kind, those of the last time. Slices are written in order; names without a time stay."""
    ends: dict[str, int] = {}  # of each kind, the slice before which there must be more
    chosen = []
    for file in sorted(found, key=_written, reverse=True):
        name = _NAME.fullmatch(file.name)
        number = int(name["slice"] or 0) if name else 0
        if name is None or number < ends.get(name["kind"], number + 1):
            chosen.append(file)
            if name is not None:
                ends[name["kind"]] = number
    return sorted(chosen, key=_in_order)


def _earlier(folder: Path) -> list[Problem]:
    read = {*_timelines(folder), *_summaries(folder)}
    inside = {_inside(folder, "timeline"), _inside(folder, "summary")}
    kinds = ("msprof_*.json", "task_time_*.json", "hccl_*.json", "op_summary_*.csv", "op_summary_*.json")
    there = {file for one in inside for kind in kinds for file in files(one, kind)} | {file for one in inside for file in _iterations(one)}
    last = {name["kind"]: name["at"] for file in sorted(read, key=_written) if (name := _NAME.fullmatch(file.name))}
    left = [file for file in there - read if (name := _NAME.fullmatch(file.name)) and name["at"] <= last.get(name["kind"], "")]
    return [Problem("", f"files of earlier exports are here, too, and not read: {len(left)}", 0)] if left else []


def _written(file: Path) -> tuple[str, int]:
    name = _NAME.fullmatch(file.name)
    return (name["at"], int(name["slice"] or 0)) if name else ("", 0)


def _older(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("device_*")) if (folder / "timeline").is_dir() or (folder / "summary").is_dir()]


def _is_raw(path: Path) -> bool:
    """A PROF directory that still has what was recorded is read from that."""
    return any(next(data.iterdir(), None) is not None for data in path.glob("*/data") if data.is_dir())


def _in_order(file: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]


def _home(folder: Path) -> Path:
    """Where start_info and info.json are: of the device itself, or of the first one."""
    if next(folder.glob("start_info*"), None):
        return folder
    around = folder.parent
    inside = [one for one in sorted(around.glob("device_*")) if one.resolve().is_relative_to(around.resolve())]
    return next((one for one in inside if next(one.glob("start_info*"), None)), around)


def _described(home: Path, problems: list[Problem]) -> tuple[dict[str, Any], dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in ("info.json*", "start_info*"):
        about = [file for file in files(home, name) if not file.name.endswith(".done")]
        problems += [Problem(file.name, LEADS_OUT, 1) for file in about if not lies_beside(file)]
        about = [file for file in about if lies_beside(file)]
        said = _ascend_tables.read_json(about[0], problems) if about else None
        found.append(said if isinstance(said, dict) else {})
    return found[0], found[1]


def _rank(info: dict[str, Any]) -> int | None:
    said = info.get("rank_id")
    return said if isinstance(said, int) and 0 <= said < 2**31 else None


def _device(folder: Path) -> int:
    """The older layout has a folder for each device, whose number is nowhere in its files."""
    number = folder.name.removeprefix("device_")
    return int(number) if number.isdecimal() else 0


def _decoded(file: Path, before: int, options: Options, problems: list[Problem]) -> list[Any]:
    """The file's events as more pieces of the scratch folder, behind those that are there."""
    scratch = options.scratch / file.name
    scratch.mkdir()
    try:
        found = chrome.decoded(file, Options(scratch=scratch, partial=options.partial, progress=options.progress))
    except DataError as error:
        if not options.partial and "holds no events" not in error.what:
            raise
        problems.append(Problem(file.name, f"{error.what} {error.where}".strip(), 0 if "holds no events" in error.what else 1))
        return []
    for piece in scratch.glob("*.arrow"):
        part, number, _ = piece.name.split(".")
        piece.rename(options.scratch / f"{part}.{int(number) + before:06d}.arrow")
    shutil.rmtree(scratch)
    problems += [Problem(f"{file.name} {problem.where}".strip(), problem.what, problem.lost) for problem in found.problems]
    return found.reports


def _in_time_of_day(trace: Trace, begin: dict[str, Any]) -> Trace:
    """Ranks of one job on one clock: what counts from the start of the machine is moved by what start_info says."""
    first, _ = trace.ends()
    try:
        offset = exact(exact(begin["collectionTimeBegin"]) * 1000 - exact(begin["clockMonotonicRaw"]))
    except (KeyError, ValueError):
        offset = None
    if first >= _YEAR_2000_NS:
        return trace
    tables = trace.tables
    if offset is None:
        note = pl.DataFrame({"what": ["times count from the start of the machine, and no start_info says when that was"], "lost": [0]})
        return _ascend_tables.with_rows(trace, {"problems": note.with_columns(rank=pl.lit(trace.meta.ranks[0], pl.Int32))})
    for name, columns in (
        ("spans", ["start_ns"]),
        ("steps", ["start_ns", "end_ns", "fp_start_ns", "bp_end_ns"]),
        ("counters", ["at_ns"]),
    ):
        tables[name] = tables[name].with_columns(pl.col(column) + offset for column in columns)
    return Trace(tables, trace.meta)


def _with_chip(trace: Trace, info: dict[str, Any]) -> Trace:
    """Cores and clock of the chip. Its name is not said."""
    units = info.get("DeviceInfo")
    device = units[0] if isinstance(units, list) and units else None
    if not isinstance(device, dict):
        return trace
    cores, clock = device.get("ai_core_num"), str(device.get("aic_frequency") or "")
    tables = trace.tables
    tables["devices"] = tables["devices"].with_columns(
        cores=pl.lit(cores if isinstance(cores, int) and 0 < cores < 2**20 else None, pl.Int32),
        clock_hz=pl.lit(int(clock) * 1_000_000 if re.fullmatch(r"[0-9]{1,6}", clock) else None, pl.Int64),
    )
    return Trace(tables, trace.meta)
