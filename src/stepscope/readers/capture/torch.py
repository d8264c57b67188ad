"""The PyTorch part of a capture: the columns that the collector copied from Kineto, in the form of the Chrome reader."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.errors import first_line
from stepscope.model import captures, schema
from stepscope.model.trace import Meta, Trace
from stepscope.readers import Options
from stepscope.readers.capture.tables import text_column
from stepscope.readers.chrome import reader as chrome
from stepscope.readers.chrome.columns import ANNOTATIONS, add_hints, memory_frame
from stepscope.readers.chrome.kineto.steps import STEP_LIKE
from stepscope.readers.chrome.kineto.trace import assemble
from stepscope.readers.chrome.parts import write_parts
from stepscope.readers.chrome.records import Args, Report, TrackKey, count_oddity, decode_args_array
from stepscope.readers.common.documents import as_dict
from stepscope.readers.common.problems import Problem, problem_frame

_FILE = "kineto.json"  # Kineto's own file, for recordings whose events could not be copied
Codes = tuple[NDArray[Any], list[str]]


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    cut_steps = [*header.get("cut_steps", []), *([header["open_step"]] if "open_step" in header else [])]
    if (path / _FILE).is_file():
        return _correct_file(chrome.read(path / _FILE, options), cut_steps)
    cut = _Cut(frozenset(f"ProfilerStep#{number}" for number in cut_steps), header.get("recorded_until_ns"))
    reports: list[Report] = []
    damaged: dict[str, str] = {}

    def decode_table(table: str, decode: Callable[[captures.Piece], tuple[Report, dict[str, pl.DataFrame]]]) -> None:
        for file in captures.files(path, table):
            try:
                report, parts = decode(captures.piece(file))
            except (*captures.DAMAGE, msgspec.DecodeError, pl.exceptions.PolarsError) as error:
                damaged[file.name] = first_line(error)
                continue
            write_parts(parts, options.scratch, len(reports))
            reports.append(report)

    decode_table("torch", lambda piece: _decode_spans(piece | {"name": _mark_partial_steps(piece, header.get("in_part", []))}, cut))
    if not reports:  # when the disk was full, allocations may have been written without operators
        report, parts = _decode_spans(_EMPTY_PIECE, cut)
        write_parts(parts, options.scratch, 0)
        reports.append(report)
    decode_table("torch_memory", lambda piece: _decode_memory(piece, header.get("pid", 0)))
    problems = [Problem(name, f"the column file is damaged ({why}): its events are lost", 1) for name, why in damaged.items()]
    if header.get("whole") and "pieces" not in header and "incomplete" not in header and not captures.files(path, "torch"):
        problems.append(Problem("torch.000000.npz", "missing, or no operator ran: there are no operators", 1))
    problems += [
        Problem("", count_oddity(oddity.occurrences, name), oddity.lost) for report in reports for name, oddity in report.oddities.items()
    ]
    if not any(report.events for report in reports):
        return Trace({"problems": problem_frame(problems, path.name)}, Meta(framework="pytorch"))
    torch_header = header.get("torch", {})
    reports[0].metadata = _track_metadata(reports, header.get("pid"), as_dict(torch_header.get("threads")))
    job = {"rank": header.get("rank", 0), "world_size": header.get("world_size", 1), "pg_config": header.get("pg_config", [])}
    return assemble(path, as_dict(torch_header.get("header")) | {"distributedInfo": job}, reports, problems, options)


_NO_ROWS: NDArray[Any] = np.zeros(0, np.int64)
_NO_TEXTS: Codes = (np.zeros(0, np.int32), [])
_EMPTY_PIECE: dict[str, Any] = {
    **dict.fromkeys(("start_ns", "dur_ns", "pid", "tid", "correlation", "external", "flow", "told"), _NO_ROWS),
    **dict.fromkeys(("category", "name", "meta"), _NO_TEXTS),
    "flow_end": np.zeros(0, np.bool_),
}


class _Cut(NamedTuple):
    """Steps that were recorded in part: their names, and the time after which no step is complete."""

    steps: frozenset[str]
    until_ns: int | None


def _mark_partial_steps(piece: dict[str, Any], partial_ranges: list[Any]) -> Codes:
    """The names. Names like those of steps get a mark where the range was open when recording began or ended."""
    codes, texts = piece["name"]
    partial_ranges = [entry for entry in partial_ranges if entry[0] in texts and re.match(STEP_LIKE, entry[0])]
    if not partial_ranges:
        return codes, texts
    codes, number_of = codes.astype(np.int32), {text: code for code, text in enumerate(texts)}
    annotated = _per_text(piece["category"], lambda text: text == "user_annotation")
    starts, ends = piece["start_ns"], piece["start_ns"] + piece["dur_ns"]
    for name, since_ns, until_ns in partial_ranges:
        at_border = ((starts >= since_ns) & (starts <= until_ns)) | ((ends >= since_ns) & (ends <= until_ns))
        rows = np.flatnonzero(annotated & at_border & (piece["name"][0] == number_of.get(name, -1)))
        if rows.size:
            codes[rows] = number_of.setdefault(f"{name} (in part)", len(number_of))
    return codes, [*texts, *(text for text, code in number_of.items() if code >= len(texts))]


def _decode_spans(piece: dict[str, Any], cut: _Cut) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of one piece."""
    report = Report(events=len(piece["start_ns"]))
    args, lost = _decode_args(piece["meta"][1])
    if lost:
        report.add_oddity("arguments that are not JSON", 0, count=lost)
    meta = np.full(len(piece["start_ns"]), -1, np.int32)
    meta[piece["told"]] = piece["meta"][0]
    annotated = _per_text(piece["category"], lambda text: text in ANNOTATIONS)
    track, report.tracks = _tracks(piece["pid"], piece["tid"], annotated)
    instant = _per_text(piece["category"], lambda text: text == "cpu_instant_event")
    frame = pl.DataFrame(
        {
            "category": _text_column(*piece["category"]),
            "name": _text_column(*piece["name"]),
            "track": track,
            "start_ns": piece["start_ns"],
            "dur_ns": np.where(instant, 0, piece["dur_ns"]).astype(np.int64),
            "correlation": _integers(piece["correlation"]),
            "external": _integers(piece["external"]),
            "flops": _integers(piece["flops"]) if "flops" in piece else pl.repeat(None, len(track), dtype=pl.Int64, eager=True),
            "bytes": _integers(np.array([*(arg.bytes for arg in args), -1])[meta]),  # code -1 is the last
            "shapes": _text_column(meta, [bytes(arg.shapes).decode() for arg in args]),
            "dtypes": _text_column(meta, [bytes(arg.dtypes).decode() for arg in args]),
            "module": _text_column(meta, [arg.module for arg in args]),
            "args": _text_column(meta, [f"{{{text}}}" if text else "" for text in piece["meta"][1]]).cast(pl.String),
            "instant": instant,
            "known_phase": np.ones(len(track), np.bool_),  # from a scalar and no rows, polars makes columns without a type
            "flow": piece["flow"].astype(np.int64),
            "flow_end": piece["flow_end"],
        }
    )
    incomplete = annotated & _per_text(piece["name"], lambda text: text in cut.steps)
    if cut.until_ns is not None:
        is_step = _per_text(piece["name"], lambda text: text.startswith("ProfilerStep#"))
        incomplete |= annotated & is_step & (piece["start_ns"] + piece["dur_ns"] > cut.until_ns)
    flows = frame.filter(pl.col("flow") > 0).select(
        phase=pl.when("flow_end").then(pl.lit("f")).otherwise(pl.lit("s")),
        category=pl.lit("fwdbwd").cast(pl.Categorical),
        flow=pl.col("flow").cast(pl.String),
        track="track",
        at_ns="start_ns",
    )
    spans = add_hints(frame, []).filter(~incomplete).drop("flow", "flow_end")
    return report, {"spans": spans} | ({"flows": flows} if flows.height else {})


def _decode_memory(piece: dict[str, Any], pid: int) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of one piece of allocations."""
    count = len(piece["tid"])
    track, keys = _tracks(np.full(count, pid), piece["tid"], np.zeros(count, np.bool_))
    report = Report(events=count, tracks=keys)
    rows = pl.DataFrame({"track": track, "start_ns": piece["start_ns"]})
    return report, {"memory": memory_frame(rows, piece["text"].tobytes(), range(count), report)}


def _decode_args(texts: list[str]) -> tuple[list[Args], int]:
    """The distinct arguments; texts that are not JSON are emptied and counted."""
    try:
        return decode_args_array("[{" + "},{".join(texts) + "}]") if texts else [], 0
    except msgspec.DecodeError:
        pass
    args, lost = [], 0
    for number, text in enumerate(texts):
        try:
            args += decode_args_array("[{" + text + "}]")[:1]
        except msgspec.DecodeError:
            args.append(Args())
            texts[number] = ""
            lost += 1
    return args, lost


def _tracks(pid: NDArray[Any], tid: NDArray[Any], annotated: NDArray[np.bool_]) -> tuple[NDArray[np.int32], list[TrackKey]]:
    """The track of each row, and the tracks."""
    pids, pid_code = np.unique(pid, return_inverse=True)
    tids, tid_code = np.unique(tid, return_inverse=True)
    codes, track = np.unique((pid_code * len(tids) + tid_code) * 2 + annotated, return_inverse=True)
    threads = [divmod(code // 2, len(tids)) for code in codes.tolist()]
    roles = ["annotation" if code % 2 else "" for code in codes.tolist()]
    return track.astype(np.int32), [(int(pids[p]), int(tids[t]), role) for (p, t), role in zip(threads, roles, strict=True)]


def _track_metadata(reports: Sequence[Report], host_pid: Any, thread_names: dict[str, Any]) -> list[tuple[str, int | str, int | str, Any]]:
    """Names and order of processes and threads, as in Kineto's metadata events."""
    metadata: list[tuple[str, int | str, int | str, Any]] = []
    threads = {(pid, tid) for report in reports for pid, tid, _ in report.tracks}
    for pid in {pid for pid, _ in threads}:
        is_host = pid == host_pid
        label = "CPU" if is_host else f"GPU {pid}" if isinstance(pid, int) and pid >= 0 else "Overhead"
        metadata += [
            ("process_name", pid, 0, {"name": "python"}),
            ("process_labels", pid, 0, {"labels": label}),
            ("process_sort_index", pid, 0, {"sort_index": pid if is_host else 5_000_000}),
        ]
    for pid, tid in threads:
        own_name = f" ({thread_names[str(tid)]})" if thread_names.get(str(tid)) else ""
        name = f"thread {tid}{own_name}" if pid == host_pid else f"stream {tid}"
        metadata += [("thread_name", pid, tid, {"name": name}), ("thread_sort_index", pid, tid, {"sort_index": tid})]
    return metadata


def _text_column(codes: NDArray[Any], texts: list[str]) -> pl.Series:
    """The empty text is null."""
    return text_column(codes, [text or None for text in texts])


def _per_text(column: Codes, matches: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Of each row, whether its text matches; False for rows without a text."""
    codes, texts = column
    return np.array([*map(matches, texts), False])[codes]  # code -1 is the last


def _integers(values: NDArray[Any]) -> pl.Series:
    """-1 is null."""
    numbers = pl.Series(values.astype(np.int64))
    return numbers.set(numbers < 0, None)


def _correct_file(trace: Trace, cut_steps: list[int]) -> Trace:
    """The trace of Kineto's file with times of the day, and without steps that were recorded in part, which the file does not mark."""
    entry = trace.meta.extra.get("baseTimeNanoseconds", 0)
    base = entry if isinstance(entry, int) and 0 <= entry < 2**62 else None
    if base is None:
        message = f"baseTimeNanoseconds is unusable: times count from an unknown time, not from the time of day ({str(entry)[:60]})"
        trace = trace.with_problems([{"rank": trace.meta.ranks[0], "file": _FILE, "where": "header", "what": message, "lost": 0}])
    times = {"start_ns", "end_ns", "at_ns", "alloc_ns", "free_ns"}
    tables = {
        name: frame.with_columns(pl.col(column) + (base or 0) for column in frame.collect_schema().names() if column in times)
        for name, frame in trace.tables.items()
    }
    if cut_steps:
        is_cut = pl.col("name").cast(pl.String).is_in([f"ProfilerStep#{number}" for number in cut_steps])
        kind = pl.when(is_cut & (pl.col("kind") == "step")).then(pl.lit("annotation", schema.Kind)).otherwise("kind")
        is_whole = ~pl.col("step").is_in(cut_steps) | pl.col("step").is_null()
        tables["spans"] = tables["spans"].with_columns(kind=kind, step=pl.when(is_whole).then("step"))
        tables["steps"] = tables["steps"].filter(is_whole)
    return Trace(tables, trace.meta)
