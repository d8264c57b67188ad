"""Result folders of torch_npu and MindSpore on Ascend, `*_ascend_pt` and `*_ascend_ms`: ASCEND_PROFILER_OUTPUT as text or as SQLite.

profiler_info_R.json, profiler_metadata.json        how it was recorded, the rank, the groups of ranks
ASCEND_PROFILER_OUTPUT/trace_view.json              the timeline
                       kernel_details.csv           what ran on the device, with shapes and counters of the chip
                       memory_record.csv, operator_memory.csv, npu_module_mem.csv
                       communication_matrix.json    transfers between ranks
                       ascend_*_profiler_R.db       all of it in one database
                       step_trace_time.csv, communication.json, analysis.db      sums of steps, calls of communication
FRAMEWORK/                                          the framework's own files, of the host
PROF_*/                                             what CANN and the device recorded, raw

Where nothing was exported yet, the raw files are read, and the framework's are joined with them. Where the timeline is missing or damaged,
the tables beside it are read.
"""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.readers import (
    Options,
    _ascend_database,
    _ascend_framework,
    _ascend_groups,
    _ascend_launches,
    _ascend_layers,
    _ascend_sums,
    _ascend_tables,
    _mindspore_host,
    chrome,
    msprof_output,
    prof,
)
from stepscope.readers._documents import LEADS_OUT, exact, files, lies_beside
from stepscope.readers._kineto import Problem
from stepscope.readers._prof_files import Clock, Notes, framework_clock, sides
from stepscope.trace import Meta, Trace

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_DATABASES = "ascend_*profiler*.db"
_MSPROF = "mindstudio_profiler_output"
FORMAT = "Ascend result folder (*_ascend_pt, *_ascend_ms)"


def sniff(path: Path) -> bool:
    if not path.is_dir():
        return False
    output = _output(path)
    telling = ("kernel_details.csv", "step_trace_time.csv", "operator_memory.csv")
    if any((output / name).is_file() for name in telling) or bool(files(output, _DATABASES)):
        return True
    described = output != path or bool(files(path, "profiler_info*.json"))
    if described and any((output / name).is_file() for name in _ascend_sums.FILES):
        return True
    if output != path and ((output / "trace_view.json").is_file() or _mindspore_host.claims(path / "FRAMEWORK")):
        return True
    return _ascend_framework.claims(path / "FRAMEWORK") or (
        bool(files(path, "profiler_info*.json")) and bool(_raw(path) or _exported(path))
    )


def read(path: Path, options: Options) -> Trace:
    output, problems = _output(path), list[Problem]()
    info = _described(path, problems)
    try:
        trace = _with_timeline(path, output, info, options, problems)
    except DataError as error:
        found = list[Problem]()
        rank = next((one for one in (info["rank"], options.rank) if one is not None), 0)
        sums = _ascend_sums.read(output, rank, _begin(info["said"]), found)
        if sums is None:
            raise
        where = Path(error.path).name if Path(error.path) != path else ""
        trace = _with_problems(sums, path, [*problems, Problem(where, f"{error.what} {error.where}".strip(), 1), *found])
    return _with_meta(trace, path, info)


def _with_timeline(path: Path, output: Path, info: dict[str, Any], options: Options, problems: list[Problem]) -> Trace:
    timeline, kernels = output / "trace_view.json", files(output, "kernel_details*.csv")
    databases = files(output, _DATABASES)
    framework = path / "FRAMEWORK"
    recorded = _ascend_framework.claims(framework) or _raw(path) or _exported(path)
    if not kernels and not databases and not timeline.is_file() and recorded:
        trace = _of_raw(path, info, options, problems)
    elif not kernels and not databases and _mindspore_host.claims(framework):
        trace = _mindspore_host.read(path / "FRAMEWORK", options, rank=info["rank"], problems=problems)
    elif timeline.is_file() or kernels:
        trace = _of_text(path, output, timeline, kernels, info, options, problems)
    elif databases:
        trace = _ascend_database.read(databases, options, rank=info["rank"], problems=problems)
    else:
        raise DataError(
            path, f"no timeline, no kernels and no database in it; expected trace_view.json, kernel_details.csv or {_DATABASES}"
        )
    lost = [problem] if (problem := _mindspore_host.missing(framework)) else []
    if kernels and not databases and not timeline.is_file():
        lost.append(Problem(timeline.name, f"missing, though {kernels[0].name} is there: all but the kernels is lost", 1))
    trace = _with_problems(trace, path, lost)
    if (kernels or databases or timeline.is_file()) and _ascend_framework.claims(framework):
        trace = _with_more(trace, path, info, options)
    return trace


def _begin(said: dict[str, Any]) -> int:
    """When recording began, in ns since 1970; 0 where nothing says it."""
    try:
        end, start = said["end_info"], said["start_info"]
        return exact(end["collectionTimeEnd"]) - (exact(end["MonotonicTimeEnd"]) - exact(start["start_monotonic"]))
    except (KeyError, TypeError, ValueError):
        return 0


def rank(path: Path) -> int | None:
    found: int | None = _described(path, [])["rank"]
    return found


def beside(path: Path) -> list[Path]:
    """What describes the result, where only the output folder in it is opened."""
    return [*_around(path), *_ascend_groups.described(path)] if path.name == _OUTPUT else []


def _around(path: Path) -> list[Path]:
    return [file for file in files(path.parent, "profiler_info*.json") if lies_beside(file)] if path.name == _OUTPUT else []


def _output(path: Path) -> Path:
    return path / _OUTPUT if (path / _OUTPUT).is_dir() else path


def _raw(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("PROF_*")) if prof.sniff(folder)]


def _exported(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.glob("PROF_*")) if msprof_output.sniff(folder) or msprof_output.sniff(folder / _MSPROF)]


def _of_raw(path: Path, info: dict[str, Any], options: Options, problems: list[Problem]) -> Trace:
    """Of what was recorded and never analysed: CANN's part, and the framework's."""
    rank = info["rank"] if info["rank"] is not None else options.rank
    recorded = _raw(path) or _exported(path)
    own = msgspec.structs.replace(options, rank=rank)
    if not recorded:
        trace = Trace({}, Meta(ranks=[rank or 0]))
    elif prof.sniff(recorded[0]):
        trace = prof.read(recorded[0], own)
    else:
        trace = msprof_output.read(recorded[0] if msprof_output.sniff(recorded[0]) else recorded[0] / _MSPROF, own)
    if len(recorded) > 1:
        problems.append(
            Problem("", f"{len(recorded)} PROF directories: {recorded[0].name} is read, the others can be opened by themselves", 0)
        )
    if _ascend_framework.claims(path / "FRAMEWORK"):
        found = _ascend_framework.read(path / "FRAMEWORK", _clock(path, info, problems), problems)
        trace = _ascend_launches.joined(trace, found)
        trace.meta.framework = found.name
    trace = _ascend_groups.with_groups(trace, _ascend_groups.read(path, problems))
    return _with_problems(trace, path, problems)


def _with_more(trace: Trace, path: Path, info: dict[str, Any], options: Options) -> Trace:
    """What the exports lack and FRAMEWORK has: operators of the host, and memory."""
    operators = trace.spans.filter(pl.col("kind") == "op").select(pl.len()).collect().item()
    blocks = trace.allocations.select(pl.len()).collect().item()
    if operators and blocks:
        return trace
    problems: list[Problem] = []
    found = _ascend_framework.read(path / "FRAMEWORK", _clock(path, info, problems), problems)
    if blocks:
        found = found._replace(memory=found.memory.clear())
    if not operators and found.spans.height:
        return _with_problems(_ascend_launches.joined(trace, found), path, problems)
    known = trace.counters.select(pl.col("name").cast(pl.String)).unique().collect().to_series().to_list()
    rank = pl.lit(trace.meta.ranks[0], pl.Int32)
    more = {name: rows.with_columns(rank=rank) for name, rows in _ascend_launches.memory(found).items()}
    if "counters" in more:
        more["counters"] = more["counters"].filter(~pl.col("name").is_in(known))
    return _with_problems(_ascend_tables.with_rows(trace, more), path, problems)


def _with_problems(trace: Trace, path: Path, problems: list[Problem]) -> Trace:
    rows = pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
    rank = pl.lit(trace.meta.ranks[0], pl.Int32)
    return _ascend_tables.with_rows(trace, {"problems": rows.with_columns(file=pl.lit(str(path)), rank=rank)})


def _clock(path: Path, info: dict[str, Any], problems: list[Problem]) -> Clock:
    """The framework reads the same counter as CANN does on the host; without CANN's files, the result folder itself says how it counts."""
    folder = next((one for one in sorted(path.glob("PROF_*")) if one.is_dir()), None)
    notes = Notes(path)
    host, devices = sides(folder, notes) if folder else (None, [])
    clock = framework_clock(info["said"], host, devices, notes)
    if clock is None:
        problems.append(Problem("FRAMEWORK", "nothing says where the framework's clock begins: its times are taken as nanoseconds", 0))
        return Clock(0, 0, Fraction(1))
    return clock


def _described(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """What stands beside the output: the rank, what was asked for, versions."""
    about = sorted([*files(path, "profiler_info*.json"), *_around(path)])
    outside = [file.name for file in files(path.parent, "profiler_info*.json") if file not in about] if path.name == _OUTPUT else []
    problems += [Problem(name, LEADS_OUT, 1) for name in outside]
    said = _ascend_tables.read_json(about[0], problems) if about else None
    said = said if isinstance(said, dict) else {}
    named = re.search(r"_([0-9]{1,9})$", about[0].stem) if about else None
    rank = said.get("rank_id")
    rank = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31 else int(named[1]) if named else None
    return {"rank": rank, "said": said}


def _of_text(
    path: Path, output: Path, timeline: Path, kernels: list[Path], info: dict[str, Any], options: Options, problems: list[Problem]
) -> Trace:
    reports: list[Any] = []
    if timeline.is_file():
        try:
            found = chrome.decoded(timeline, options)
            reports, problems[:] = found.reports, [*problems, *found.problems]
        except DataError as error:
            # The table of kernels may still be whole.
            if not kernels:
                raise
            problems.append(Problem(timeline.name, f"{error.what} {error.where}".strip(), 1))
    details = _ascend_tables.details(_ascend_tables.slices(kernels, problems), "kernel_details.csv", problems)
    trace = _ascend_layers.assemble(path, reports, problems, options, format="ascend_result", details=details, rank=info["rank"])
    rank = pl.lit(trace.meta.ranks[0], pl.Int32)
    more_problems: list[Problem] = []
    memory = _ascend_tables.memory_counters(output, more_problems)
    sampled = trace.counters.select(pl.col("name").cast(pl.String), "at_ns").collect()  # some stand in the timeline, too
    more = {
        "counters": memory.join(sampled, on=["name", "at_ns"], how="anti", maintain_order="left"),
        "allocations": _ascend_tables.allocations(output, more_problems),
    }
    more_problems += _missing_memory(output, info["said"])
    trace = _ascend_tables.with_waits(trace, _ascend_tables.waits(output, more_problems))
    summed = trace.table("links").select(pl.len()).collect().item() == 0
    links = _ascend_tables.matrix_links(output, more_problems) if summed else None
    trace = _ascend_groups.with_groups(trace, _ascend_groups.read(path, more_problems), links)
    more["problems"] = pl.DataFrame(
        more_problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row"
    ).with_columns(file=pl.lit(str(path)))
    return _ascend_tables.with_rows(trace, {name: rows.with_columns(rank=rank) for name, rows in more.items()})


def _missing_memory(output: Path, said: dict[str, Any]) -> list[Problem]:
    """The tables of memory that are not there, though the profiler was asked for them: it writes both."""
    config = said.get("config")
    common = config.get("common_config") if isinstance(config, dict) else None
    if not isinstance(common, dict) or common.get("profile_memory") is not True:
        return []
    names = [name for name in ("memory_record", "operator_memory") if not files(output, f"{name}*.csv")]
    return [Problem(f"{name}.csv", "missing, though profile_memory was on", 1) for name in names]


def _with_meta(trace: Trace, path: Path, info: dict[str, Any]) -> Trace:
    said = info["said"]
    config = said.get("config")
    common = (config.get("common_config") if isinstance(config, dict) else None) or said.get("profiler_parameters")
    common = common if isinstance(common, dict) else {}
    pytorch = trace.meta.framework != "mindspore" and ("config" in said or path.name.endswith("_ascend_pt"))
    options = {
        key: bool(common[key]) for key in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules") if key in common
    }
    versions = {key: str(said[key]) for key in ("torch_npu_version", "ms_version", "cann_version") if said.get(key)}
    trace.meta = Meta(
        format="ascend_result",
        framework="pytorch" if pytorch else trace.meta.framework or "mindspore",
        versions=trace.meta.versions | versions,
        world_size=trace.meta.world_size,
        ranks=trace.meta.ranks,
        options=options,
        extra=trace.meta.extra,
    )
    return trace
