"""Result folders of torch_npu and MindSpore on Ascend, `*_ascend_pt` and `*_ascend_ms`: ASCEND_PROFILER_OUTPUT as text or as SQLite.

profiler_info_R.json, profiler_metadata.json        options of the recording, rank, groups of ranks
ASCEND_PROFILER_OUTPUT/trace_view.json              the timeline
                       kernel_details.csv           device work, with shapes and core counters
                       memory_record.csv, operator_memory.csv, npu_module_mem.csv
                       communication_matrix.json    transfers between ranks
                       ascend_*_profiler_R.db       all of it in one database
                       step_trace_time.csv, communication.json, analysis.db      sums of steps, communication calls
FRAMEWORK/                                          raw files of the framework on the host
PROF_*/                                             raw files of CANN and the device

Without exports, the raw files are read and joined with those of the framework. Without an intact timeline, the tables next to it are read.
"""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.model import intervals
from stepscope.model.trace import Meta, Trace
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_db import reader as ascend_db
from stepscope.readers.ascend.ascend_result import groups, totals
from stepscope.readers.ascend.common import layers
from stepscope.readers.ascend.common.communication_tables import add_wait_times, matrix_links, wait_times
from stepscope.readers.ascend.common.kernel_details import kernel_table
from stepscope.readers.ascend.common.memory_tables import allocations, memory_counters
from stepscope.readers.ascend.common.step_sums import ALWAYS, DeviceSums, counted_kernels, step_sums
from stepscope.readers.ascend.common.tables import add_rows, is_cut, read_json, read_slices
from stepscope.readers.ascend.framework import launches, records
from stepscope.readers.ascend.msprof_output import reader as msprof_output
from stepscope.readers.ascend.prof import reader as prof
from stepscope.readers.ascend.prof.files import Clock, Notes, framework_clock, sides
from stepscope.readers.capture import mindspore_host
from stepscope.readers.chrome import reader as chrome
from stepscope.readers.common.documents import OUTSIDE_LINK, as_dict, files, is_inside_folder, to_int
from stepscope.readers.common.problems import Problem, problem_frame

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_DATABASES = "ascend_*profiler*.db"
_MSPROF = "mindstudio_profiler_output"
_TABLES = ("kernel_details.csv", "step_trace_time.csv", "operator_memory.csv")
FORMAT = "Ascend result folder (*_ascend_pt, *_ascend_ms)"


class _Info(NamedTuple):
    """profiler_info_R.json, and the rank in it or in its name."""

    rank: int | None
    entries: dict[str, Any]

    def options(self) -> dict[str, Any]:
        return as_dict(as_dict(self.entries.get("config")).get("common_config"))


def sniff(path: Path) -> bool:
    if not path.is_dir():
        return False
    output = _output(path)
    if any((output / name).is_file() for name in _TABLES) or files(output, _DATABASES):
        return True
    has_info = bool(files(path, "profiler_info*.json"))
    if (output != path or has_info) and any((output / name).is_file() for name in totals.FILES):
        return True
    if output != path and ((output / "trace_view.json").is_file() or mindspore_host.has_operator_file(path / "FRAMEWORK")):
        return True
    return records.claims(path / "FRAMEWORK") or (has_info and bool(_raw(path) or _exported(path)))


def read(path: Path, options: Options) -> Trace:
    output, problems = _output(path), list[Problem]()
    info = _read_info(path, problems)
    try:
        trace = _read_timeline(path, output, info, options, problems)
    except DataError as error:
        more_problems = list[Problem]()
        rank = next((number for number in (info.rank, options.rank) if number is not None), 0)
        sums = totals.read(output, rank, _recording_start(info.entries), more_problems)
        if sums is None:
            raise
        where = Path(error.path).name if Path(error.path) != path else ""
        trace = _add_problems(sums, path, [*problems, Problem(where, f"{error.what} {error.where}".strip(), 1), *more_problems])
    return _add_meta(trace, path, info)


def _read_timeline(path: Path, output: Path, info: _Info, options: Options, problems: list[Problem]) -> Trace:
    timeline, kernels = output / "trace_view.json", files(output, "kernel_details*.csv")
    databases = files(output, _DATABASES)
    framework = path / "FRAMEWORK"
    recorded = records.claims(framework) or _raw(path) or _exported(path)
    if not kernels and not databases and not timeline.is_file() and recorded:
        trace = _read_raw(path, info, options, problems)
    elif not kernels and not databases and mindspore_host.has_operator_file(framework):
        trace = mindspore_host.read(framework, options, rank=info.rank, problems=problems)
    elif timeline.is_file() or kernels:
        trace = _read_text(path, timeline, kernels, info, options, problems)
    elif databases:
        if len(databases) > 1:  # of other ranks, or copies
            names = f"{len(databases)} databases: only {databases[0].name} is read"
            problems.append(Problem("", f"{names}. Open the others by their names.", 0))
        trace = ascend_db.read_database(databases[0], options, info.rank, problems)
    else:
        raise DataError(path, f"no timeline, kernels or database in it; expected trace_view.json, kernel_details.csv or {_DATABASES}")
    lost = [problem] if (problem := mindspore_host.missing_file_problem(framework)) else []
    if kernels and not databases and not timeline.is_file():
        lost.append(Problem(timeline.name, f"missing, though {kernels[0].name} exists: everything but the kernels is lost", 1))
    trace = _add_problems(trace, path, lost)
    if (kernels or databases or timeline.is_file()) and records.claims(framework):
        trace = _add_framework(trace, path, info)
    return trace


def _recording_start(info: dict[str, Any]) -> int:
    """The start of the recording in ns since 1970; 0 if it is unknown."""
    try:
        end, start = info["end_info"], info["start_info"]
        return to_int(end["collectionTimeEnd"]) - (to_int(end["MonotonicTimeEnd"]) - to_int(start["start_monotonic"]))
    except (KeyError, TypeError, ValueError):
        return 0


def rank(path: Path) -> int | None:
    return _read_info(path, []).rank


def first_step(path: Path) -> int | None:
    """The first step in step_trace_time.csv."""
    for file in files(_output(path), "step_trace_time*.csv"):
        with file.open("rb") as lines:
            match = re.match(rb"(?:\xef\xbb\xbf)?Step,[^\n]*\n(\d{1,9}),", lines.read(4096).replace(b"\r", b"").replace(b'"', b""))
        if match:
            return int(match[1])
    return None


def beside(path: Path) -> list[Path]:
    """The files around an output folder that are read with it, if the output folder itself is opened."""
    return [*_info_around(path), *groups.metadata_files(path)] if path.name == _OUTPUT else []


def _info_around(path: Path) -> list[Path]:
    return [file for file in files(path.parent, "profiler_info*.json") if is_inside_folder(file)] if path.name == _OUTPUT else []


def _output(path: Path) -> Path:
    return path / _OUTPUT if (path / _OUTPUT).is_dir() else path


def _raw(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("PROF_*")) if prof.sniff(folder)]


def _exported(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("PROF_*")) if msprof_output.sniff(folder) or msprof_output.sniff(folder / _MSPROF)]


def _read_raw(path: Path, info: _Info, options: Options, problems: list[Problem]) -> Trace:
    """A recording that was never exported: raw files of CANN and of the framework."""
    rank = info.rank if info.rank is not None else options.rank
    recorded = _raw(path) or _exported(path)
    options = msgspec.structs.replace(options, rank=rank)
    if not recorded:
        trace = Trace({}, Meta(ranks=[rank or 0]))
    elif prof.sniff(recorded[0]):
        trace = prof.read(recorded[0], options)
    else:
        trace = msprof_output.read(recorded[0] if msprof_output.sniff(recorded[0]) else recorded[0] / _MSPROF, options)
    if len(recorded) > 1:
        names = f"{len(recorded)} PROF directories: only {recorded[0].name} is read"
        problems.append(Problem("", f"{names}. Open the others by their names.", 0))
    if records.claims(path / "FRAMEWORK"):
        framework = records.read(path / "FRAMEWORK", _clock(path, info, problems), problems)
        trace = launches.add_framework(trace, framework).with_meta(framework=framework.name)
    trace = groups.add_groups(trace, groups.read(path, problems))
    return _add_problems(trace, path, problems)


def _add_framework(trace: Trace, path: Path, info: _Info) -> Trace:
    """The trace with host operators and memory from FRAMEWORK, if the exports lack them."""
    operators = trace.spans.filter(pl.col("kind") == "op").select(pl.len()).collect().item()
    blocks = trace.allocations.select(pl.len()).collect().item()
    if operators and blocks:
        return trace
    problems: list[Problem] = []
    framework = records.read(path / "FRAMEWORK", _clock(path, info, problems), problems)
    if blocks:
        framework = framework._replace(memory=framework.memory.clear())
    if not operators and framework.spans.height:
        return _add_problems(launches.add_framework(trace, framework), path, problems)
    names = trace.counters.select(pl.col("name").cast(pl.String)).unique().collect().to_series().to_list()
    rank = pl.lit(trace.meta.ranks[0], pl.Int32)
    added = {name: rows.with_columns(rank=rank) for name, rows in launches.memory_tables(framework).items()}
    if "counters" in added:
        added["counters"] = added["counters"].filter(~pl.col("name").is_in(names))
    return _add_problems(add_rows(trace, added), path, problems)


def _add_problems(trace: Trace, path: Path, problems: list[Problem]) -> Trace:
    return add_rows(trace, {"problems": problem_frame(problems, path).with_columns(rank=pl.lit(trace.meta.ranks[0], pl.Int32))})


def _clock(path: Path, info: _Info, problems: list[Problem]) -> Clock:
    """The framework's clock: the counter that CANN reads on the host. Without CANN's files, profiler_info has its start."""
    folder = next((folder for folder in sorted(path.glob("PROF_*")) if folder.is_dir()), None)
    notes = Notes(path)
    host, devices = sides(folder, notes) if folder else (None, [])
    clock = framework_clock(info.entries, host, devices)
    if clock is None:
        problems.append(Problem("FRAMEWORK", "the start of the framework's clock is unknown: its times are read as nanoseconds", 0))
        return Clock(0, 0, Fraction(1))
    return clock


def _read_info(path: Path, problems: list[Problem]) -> _Info:
    around = sorted([*files(path, "profiler_info*.json"), *_info_around(path)])
    if path.name == _OUTPUT:
        problems += [Problem(file.name, OUTSIDE_LINK, 1) for file in files(path.parent, "profiler_info*.json") if file not in around]
    entries = as_dict(read_json(around[0], problems)) if around else {}
    in_name = re.search(r"_([0-9]{1,9})$", around[0].stem) if around else None
    rank = entries.get("rank_id")
    valid = isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31
    return _Info(rank if valid else int(in_name[1]) if in_name else None, entries)


def _read_text(path: Path, timeline: Path, kernels: list[Path], info: _Info, options: Options, problems: list[Problem]) -> Trace:
    """The text files of the output folder."""
    output = timeline.parent
    reports: list[Any] = []
    is_cut_timeline = False
    if timeline.is_file():
        try:
            decoded = chrome.decode_file(timeline, options)
            is_cut_timeline = decoded.cut
            reports, problems[:] = decoded.reports, [*problems, *decoded.problems]
        except DataError as error:  # the kernel table may be intact
            if not kernels:
                raise
            problems.append(Problem(timeline.name, f"{error.what} {error.where}".strip(), 1))
    table = kernel_table(read_slices(kernels, problems), "kernel_details.csv", problems)
    gaps = table.gaps if not reports else ALWAYS if is_cut_timeline else intervals.NONE
    cut = not reports and any(is_cut(file) for file in kernels)
    sums = DeviceSums(step_sums(output, problems), counted_kernels(output), cut, gaps)
    trace = layers.assemble(path, reports, problems, options, format="ascend_result", kernels=table, sums=sums, rank=info.rank)
    more_problems: list[Problem] = []
    memory = memory_counters(output, more_problems)
    in_timeline = trace.counters.select(pl.col("name").cast(pl.String), "at_ns").collect()
    added = {
        "counters": memory.join(in_timeline, on=["name", "at_ns"], how="anti", maintain_order="left"),
        "allocations": allocations(output, more_problems),
    }
    if info.options().get("profile_memory") is True:
        missing = [name for name in ("memory_record", "operator_memory") if not files(output, f"{name}*.csv")]
        more_problems += [Problem(f"{name}.csv", "missing, though profile_memory was on", 1) for name in missing]
    trace = add_wait_times(trace, wait_times(output, more_problems))
    has_links = trace.table("links").select(pl.len()).collect().item() > 0
    links = None if has_links else matrix_links(output, more_problems)
    trace = groups.add_groups(trace, groups.read(path, more_problems), links)
    added["problems"] = problem_frame(more_problems, path)
    rank = pl.lit(trace.meta.ranks[0], pl.Int32)
    return add_rows(trace, {name: rows.with_columns(rank=rank) for name, rows in added.items()})


def _add_meta(trace: Trace, path: Path, info: _Info) -> Trace:
    meta, entries = trace.meta, info.entries
    options = info.options() or as_dict(entries.get("profiler_parameters"))
    is_pytorch = meta.framework != "mindspore" and ("config" in entries or path.name.endswith("_ascend_pt"))
    names = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    versions = {key: str(entries[key]) for key in ("torch_npu_version", "ms_version", "cann_version") if entries.get(key)}
    return trace.with_meta(
        source="",
        format="ascend_result",
        framework="pytorch" if is_pytorch else meta.framework or "mindspore",
        versions=meta.versions | versions,
        options={key: bool(options[key]) for key in names if key in options},
        unprofiled_steps=[],
    )
