"""Exports of msprof: `mindstudio_profiler_output` (CANN 7 and later) and `device_N/timeline` with `device_N/summary` (before).

    msprof_*.json, msprof_slice_K_*.json                the timeline, also as several files
    step_trace_*.json                                   all iterations
    op_summary_*.csv, or .json                          device work, with shapes and core counters
    msprof_DEVICE_MODEL_ITERATION.json, task_time_..., hccl_..., step_trace_...     the older layout: a file per iteration
    start_info, info.json                               in the parent folder: time of day at the start of the clock, chip, rank

Older timelines count from the boot of the machine, newer ones have the time of day.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model import intervals
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.common import layers
from stepscope.readers.ascend.common.kernel_details import kernel_table
from stepscope.readers.ascend.common.step_sums import NO_SUMS
from stepscope.readers.ascend.common.tables import add_rows, read_json, read_slices
from stepscope.readers.chrome import reader as chrome
from stepscope.readers.common.documents import OUTSIDE_LINK, as_dict, as_list, files, is_inside_folder, to_int
from stepscope.readers.common.problems import Problem

_YEAR_2000_NS = 946_684_800 * 10**9
_INFO_FILES = ("info.json*", "start_info*")
_TASK_TIMELINES = ("task_time_*.json", "hccl_*.json")
_TIMES = {"spans": ["start_ns"], "steps": ["start_ns", "end_ns", "fp_start_ns", "bp_end_ns"], "counters": ["at_ns"]}
_NAME = re.compile(r"(?P<kind>.+?)(?:_slice_(?P<slice>\d+))?_(?P<at>\d{14,})\.\w+")
FORMAT = "mindstudio_profiler_output"


def sniff(path: Path) -> bool:
    if not path.is_dir() or (path / "ASCEND_PROFILER_OUTPUT").is_dir():
        return False
    return bool(_timelines(path) or _summaries(path)) or (not _is_raw(path) and any(_device_folders(path)))


def read(path: Path, options: Options) -> Trace:
    problems: list[Problem] = []
    folders = _folders(path)
    if not folders:
        raise DataError(path, "no exported timeline in it; expected msprof_*.json or op_summary_*.csv")
    if len(folders) > 1:
        names = ", ".join(folder.parent.name for folder in folders)
        problems.append(Problem("", f"several devices: {names}; each can be opened by itself", 0))
    info, clock = _read_info(_info_folder(folders[0]), problems)
    reports: list[Any] = []
    damaged: list[tuple[Path, DataError]] = []
    gaps = intervals.NONE
    for folder in folders:
        timelines = _timelines(folder)
        for file in timelines:
            try:
                decoded, part = _decode(file, len(reports), options, problems)
                reports, gaps = [*reports, *decoded], intervals.join(gaps, part)
            except DataError as error:
                damaged.append((file, error))
        problems += _unread_exports(folder)
        if not timelines and (summaries := _summaries(folder)):
            problems.append(Problem(summaries[0].name, "no timeline (msprof_*.json) next to it: only its kernels are shown", 0))
    if damaged and not reports:
        raise damaged[0][1]
    problems += [Problem(file.name, f"{error.what} {error.where}".strip(), 1) for file, error in damaged]
    rows = read_slices([file for folder in folders for file in _summaries(folder)], problems)
    kernels = kernel_table(rows, "op_summary.csv", problems)
    sums = NO_SUMS._replace(gaps=gaps)
    number, device = _rank(info), _device(folders[0])
    trace = layers.assemble(
        path, reports, problems, options, format="msprof_output", kernels=kernels, sums=sums, rank=number, device=device
    )
    return _add_chip(_in_time_of_day(trace, clock), info)


def rank(path: Path) -> int | None:
    folder = next(iter(_folders(path)), path)
    return _rank(_read_info(_info_folder(folder), [])[0])


def _folders(path: Path) -> list[Path]:
    return [path] if _timelines(path) or _summaries(path) else _device_folders(path)


def beside(path: Path) -> list[Path]:
    """The files around an output folder that describe the device, if only that folder is opened."""
    around = _info_folder(next(iter(_folders(path)), path))
    outside = [] if around.is_relative_to(path) else [file for pattern in _INFO_FILES for file in files(around, pattern)]
    return [file for file in outside if is_inside_folder(file)]


def _timelines(folder: Path) -> list[Path]:
    """The files of one timeline. If a file with everything exists, the files of its parts are not read."""
    inside = _subfolder(folder, "timeline")
    for names in (("msprof_*.json",), _TASK_TIMELINES):
        timelines = [file for name in names for file in files(inside, name) if file.name != "msprof_slice.json"]
        if timelines:
            return [*_newest(timelines), *_newest(_iteration_files(inside))]
    return _newest(_iteration_files(inside))


def _iteration_files(folder: Path) -> list[Path]:
    return [file for file in files(folder, "step_trace_*.json") if not file.name.startswith("step_trace_summary")]  # a table


def _summaries(folder: Path) -> list[Path]:
    inside = _subfolder(folder, "summary")
    return _newest(files(inside, "op_summary_*.csv")) or _newest(files(inside, "op_summary_*.json"))


def _subfolder(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).is_dir() else folder


def _newest(candidates: list[Path]) -> list[Path]:
    """The files of the last export of each kind: every export adds files. Slices are written in order; names without a time stay."""
    next_slice: dict[str, int] = {}  # by kind: the slice that follows those still missing
    newest = []
    for file in sorted(candidates, key=_export_time, reverse=True):
        name = _NAME.fullmatch(file.name)
        number = int(name["slice"] or 0) if name else 0
        if name is None or number < next_slice.get(name["kind"], number + 1):
            newest.append(file)
            if name is not None:
                next_slice[name["kind"]] = number
    return sorted(newest, key=_natural_order)


def _unread_exports(folder: Path) -> list[Problem]:
    """A remark about files of earlier exports."""
    read_files = {*_timelines(folder), *_summaries(folder)}
    folders = {_subfolder(folder, "timeline"), _subfolder(folder, "summary")}
    patterns = ("msprof_*.json", *_TASK_TIMELINES, "op_summary_*.csv", "op_summary_*.json")
    all_files = {file for inside in folders for pattern in patterns for file in files(inside, pattern)}
    all_files |= {file for inside in folders for file in _iteration_files(inside)}
    last = {name["kind"]: name["at"] for file in sorted(read_files, key=_export_time) if (name := _NAME.fullmatch(file.name))}
    names = [name for file in all_files - read_files if (name := _NAME.fullmatch(file.name))]
    count = sum(name["at"] <= last.get(name["kind"], "") for name in names)
    return [Problem("", f"files of earlier exports that are not read: {count}", 0)] if count else []


def _export_time(file: Path) -> tuple[str, int]:
    name = _NAME.fullmatch(file.name)
    return (name["at"], int(name["slice"] or 0)) if name else ("", 0)


def _device_folders(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("device_*")) if (folder / "timeline").is_dir() or (folder / "summary").is_dir()]


def _is_raw(path: Path) -> bool:
    """Whether a PROF directory still has its raw data, which is read instead."""
    return any(next(data.iterdir(), None) is not None for data in path.glob("*/data") if data.is_dir())


def _natural_order(file: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]


def _info_folder(folder: Path) -> Path:
    """The folder with start_info and info.json: that of the device, or of the first device."""
    if next(folder.glob("start_info*"), None):
        return folder
    parent = folder.parent
    devices = [device for device in sorted(parent.glob("device_*")) if device.resolve().is_relative_to(parent.resolve())]
    return next((device for device in devices if next(device.glob("start_info*"), None)), parent)


def _read_info(folder: Path, problems: list[Problem]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of info.json and start_info."""
    contents: list[dict[str, Any]] = []
    for pattern in _INFO_FILES:
        candidates = [file for file in files(folder, pattern) if not file.name.endswith(".done")]
        problems += [Problem(file.name, OUTSIDE_LINK, 1) for file in candidates if not is_inside_folder(file)]
        file = next(filter(is_inside_folder, candidates), None)
        contents.append(as_dict(read_json(file, problems)) if file else {})
    return contents[0], contents[1]


def _rank(info: dict[str, Any]) -> int | None:
    number = info.get("rank_id")
    return number if isinstance(number, int) and 0 <= number < 2**31 else None


def _device(folder: Path) -> int:
    """The device of a folder of the older layout; its files do not contain the number."""
    number = folder.name.removeprefix("device_")
    return int(number) if number.isdecimal() else 0


def _decode(file: Path, first: int, options: Options, problems: list[Problem]) -> tuple[list[Any], intervals.Set]:
    """Decodes the events of a file into more files of the scratch folder, numbered from `first`; when it lacks events, if it is cut off."""
    scratch = options.scratch / file.name
    scratch.mkdir()
    try:
        decoded = chrome.decode_file(file, Options(scratch=scratch, partial=options.partial, progress=options.progress))
    except DataError as error:
        is_empty = "holds no events" in error.what
        if not options.partial and not is_empty:
            raise
        problems.append(Problem(file.name, f"{error.what} {error.where}".strip(), 0 if is_empty else 1))
        return [], intervals.NONE
    gaps = intervals.NONE
    if decoded.cut and (times := [pl.read_ipc(piece, columns=["start_ns", "dur_ns"]) for piece in scratch.glob("spans.*.arrow")]):
        ends = pl.concat(times).select(first=pl.col("start_ns").min(), last=(pl.col("start_ns") + pl.col("dur_ns")).max())
        gaps = intervals.merge(ends["first"].to_numpy(), ends["last"].to_numpy())
    for piece in scratch.glob("*.arrow"):
        part, number, _ = piece.name.split(".")
        piece.rename(options.scratch / f"{part}.{int(number) + first:06d}.arrow")
    shutil.rmtree(scratch)
    problems += [Problem(f"{file.name} {problem.where}".strip(), problem.what, problem.lost) for problem in decoded.problems]
    return decoded.reports, gaps


def _in_time_of_day(trace: Trace, clock: dict[str, Any]) -> Trace:
    """The trace with the time of day: times since the boot of the machine are shifted by start_info, so that ranks share a clock."""
    if trace.ends()[0] >= _YEAR_2000_NS:
        return trace
    try:
        offset = to_int(to_int(clock["collectionTimeBegin"]) * 1000 - to_int(clock["clockMonotonicRaw"]))
    except (KeyError, ValueError):
        text = "times count from the boot of the machine, and no start_info has the time of the boot"
        note = pl.DataFrame({"what": [text], "lost": [0], "rank": trace.meta.ranks[:1]})
        return add_rows(trace, {"problems": note})
    tables = trace.tables
    for name, columns in _TIMES.items():
        tables[name] = tables[name].with_columns(pl.col(column) + offset for column in columns)
    return Trace(tables, trace.meta)


def _add_chip(trace: Trace, info: dict[str, Any]) -> Trace:
    """The trace with cores and clock of the chip. info.json does not have its name."""
    device = next(iter(as_list(info.get("DeviceInfo"))), None)
    if not isinstance(device, dict):
        return trace
    cores, clock = device.get("ai_core_num"), str(device.get("aic_frequency") or "")
    tables = trace.tables
    tables["devices"] = tables["devices"].with_columns(
        cores=pl.lit(cores if isinstance(cores, int) and 0 < cores < 2**20 else None, pl.Int32),
        clock_hz=pl.lit(int(clock) * 1_000_000 if re.fullmatch(r"[0-9]{1,6}", clock) else None, pl.Int64),
    )
    return Trace(tables, trace.meta)
