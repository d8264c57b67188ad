"""The PyTorch part of a capture: the columns that the collector took from Kineto, in the shape of those that the Chrome reader decodes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import captures, schema
from stepscope.readers import Options, chrome
from stepscope.readers import _chrome_events as events
from stepscope.readers._documents import mapped
from stepscope.readers._kineto import STEP_LIKE, Problem, assemble
from stepscope.trace import Meta, Trace

_FILE = "kineto.json"  # Kineto's own file: all there is where its events could not be taken over
Codes = tuple[NDArray[Any], list[str]]


def read(path: Path, header: dict[str, Any], options: Options) -> Trace:
    cut_steps = [*header.get("cut_steps", []), *([header["open_step"]] if "open_step" in header else [])]
    if (path / _FILE).is_file():
        return _as_recorded(chrome.read(path / _FILE, options), cut_steps)
    cut = _Cut(frozenset(f"ProfilerStep#{number}" for number in cut_steps), header.get("recorded_until_ns"))
    told = header.get("torch", {})
    reports: list[events.Report] = []
    damaged: dict[str, str] = {}

    def take(table: str, columns: Callable[[captures.Piece], tuple[events.Report, dict[str, pl.DataFrame]]]) -> None:
        for file in captures.files(path, table):
            try:
                report, parts = columns(captures.piece(file))
            except (*captures.DAMAGE, msgspec.DecodeError, pl.exceptions.PolarsError) as error:
                damaged[file.name] = captures.damage(error)
                continue
            events.write(parts, options.scratch, len(reports))
            reports.append(report)

    take("torch", lambda piece: _parts(piece | {"name": _names_in_part(piece, header.get("in_part", []))}, cut))
    if not reports:  # where the disk was full, allocations may have been written, and no operators
        report, parts = _parts(_NOTHING, cut)
        events.write(parts, options.scratch, 0)
        reports.append(report)
    take("torch_memory", lambda piece: _memory(piece, header.get("pid", 0)))
    problems = [Problem(name, f"the column file is damaged ({why}): its events are lost", 1) for name, why in damaged.items()]
    if header.get("whole") and "pieces" not in header and "incomplete" not in header and not captures.files(path, "torch"):
        problems.append(Problem("torch.000000.npz", "missing, or no operator ran: there are no operators", 1))
    problems += [Problem("", events.counted(noted.many, what), noted.lost) for report in reports for what, noted in report.problems.items()]
    if not any(report.events for report in reports):
        rows = pl.DataFrame(problems, {"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row")
        return Trace({"problems": rows.with_columns(file=pl.lit(path.name))}, Meta(framework="pytorch"))
    reports[0].metadata = _names(reports, header, told)
    job = {"rank": header.get("rank", 0), "world_size": header.get("world_size", 1)}
    return assemble(path, mapped(told.get("header")) | {"distributedInfo": job}, reports, problems, options)


_EMPTY: NDArray[Any] = np.zeros(0, np.int64)
_NO_WORDS: Codes = (np.zeros(0, np.int32), [])
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("start_ns", "dur_ns", "pid", "tid", "correlation", "external", "flow", "told"), _EMPTY),
    **dict.fromkeys(("category", "name", "meta"), _NO_WORDS),
    "flow_end": np.zeros(0, np.bool_),
}


class _Cut(NamedTuple):
    """Steps that were recorded in part: their names, or all that end later than this."""

    steps: frozenset[str]
    until_ns: int | None


def _names_in_part(piece: dict[str, Any], in_part: list[Any]) -> Codes:
    """The names; those that would be taken for steps say so where the range was open when recording began or ended."""
    codes, words = piece["name"]
    in_part = [entry for entry in in_part if entry[0] in words and re.match(STEP_LIKE, entry[0])]
    if not in_part:
        return codes, words
    codes, words, number = codes.astype(np.int32), list(words), {word: code for code, word in enumerate(words)}
    annotated = _per_word(piece["category"], [word == "user_annotation" for word in piece["category"][1]], False)
    starts, ends = piece["start_ns"], piece["start_ns"] + piece["dur_ns"]
    for name, since_ns, until_ns in in_part:
        at_border = ((starts >= since_ns) & (starts <= until_ns)) | ((ends >= since_ns) & (ends <= until_ns))
        rows = np.flatnonzero(annotated & at_border & (piece["name"][0] == number.get(name, -1)))
        if rows.size:
            codes[rows] = number.setdefault(f"{name} (in part)", len(number))
    return codes, [*words, *(word for word, code in number.items() if code >= len(words))]


def _parts(piece: dict[str, Any], cut: _Cut) -> tuple[events.Report, dict[str, pl.DataFrame]]:
    """Report and columns of one piece."""
    report = events.Report(events=len(piece["start_ns"]))
    said, lost = _arguments(piece["meta"][1])
    meta = np.full(len(piece["start_ns"]), -1, np.int32)
    meta[piece["told"]] = piece["meta"][0]
    if lost:
        report.note("arguments that are not JSON", 0, count=lost)
    words = piece["category"][1]
    apart = _per_word(piece["category"], [word in events._APART for word in words], False)
    track, report.tracks = _tracks(piece["pid"], piece["tid"], apart)
    instant = _per_word(piece["category"], [word == "cpu_instant_event" for word in words], False)
    frame = pl.DataFrame(
        {
            "category": _text(piece["category"]),
            "name": _text(piece["name"]),
            "track": track,
            "start_ns": piece["start_ns"],
            "dur_ns": np.where(instant, 0, piece["dur_ns"]).astype(np.int64),
            "correlation": _known(piece["correlation"]),
            "external": _known(piece["external"]),
            "flops": _known(piece["flops"]) if "flops" in piece else pl.repeat(None, len(track), dtype=pl.Int64, eager=True),
            "bytes": _known(_per_word((meta, []), [args.bytes for args in said], -1)),
            "shapes": _text((meta, [bytes(args.shapes).decode() for args in said])),
            "dtypes": _text((meta, [bytes(args.dtypes).decode() for args in said])),
            "module": _text((meta, [args.module for args in said])),
            "args": _text((meta, [f"{{{word}}}" if word else "" for word in piece["meta"][1]])).cast(pl.String),
            "instant": instant,
            "known": np.ones(len(track), np.bool_),  # of a scalar and no rows polars makes columns without a type
            "flow": piece["flow"].astype(np.int64),
            "flow_end": piece["flow_end"],
        }
    )
    frame = events._with_hints(frame, [])
    unfinished = apart & _per_word(piece["name"], [word in cut.steps for word in piece["name"][1]], False)
    if cut.until_ns is not None:
        marks = _per_word(piece["name"], [word.startswith("ProfilerStep#") for word in piece["name"][1]], False)
        unfinished |= apart & marks & (piece["start_ns"] + piece["dur_ns"] > cut.until_ns)
    flows = frame.filter(pl.col("flow") > 0).select(
        phase=pl.when("flow_end").then(pl.lit("f")).otherwise(pl.lit("s")),
        category=pl.lit("fwdbwd").cast(pl.Categorical),
        flow=pl.col("flow").cast(pl.String),
        track="track",
        at_ns="start_ns",
    )
    parts = {
        "spans": frame.filter(~unfinished).drop("flow", "flow_end"),
        "flows": flows,
    }
    return report, {name: part for name, part in parts.items() if part.height or name == "spans"}


def _memory(piece: dict[str, Any], pid: int) -> tuple[events.Report, dict[str, pl.DataFrame]]:
    """Report and columns of one piece of allocations."""
    track, lanes = _tracks(np.full(len(piece["tid"]), pid), piece["tid"], np.zeros(len(piece["tid"]), np.bool_))
    rows = pl.DataFrame({"track": track, "start_ns": piece["start_ns"]})
    report = events.Report(events=len(track), tracks=lanes)
    return report, {"memory": events.allocations(rows, piece["text"].tobytes(), report, range(len(track)))}


def _arguments(words: list[str]) -> tuple[list[events.Args], int]:
    """What becomes of the distinct arguments a column of its own; those that are not JSON, counted, have none."""
    try:
        return events._ARGS.decode("[{" + "},{".join(words) + "}]") if words else [], 0
    except (msgspec.DecodeError, msgspec.ValidationError):
        pass
    found, lost = [], 0
    for number, word in enumerate(words):
        try:
            found.append(events._ARGS.decode("[{" + word + "}]")[0])
        except (msgspec.DecodeError, msgspec.ValidationError):
            found.append(events.Args())
            words[number] = ""
            lost += 1
    return found, lost


def _tracks(pid: NDArray[Any], tid: NDArray[Any], apart: NDArray[np.bool_]) -> tuple[NDArray[np.int32], list[Any]]:
    """The track of each row, and what each track is."""
    pids, pid_code = np.unique(pid, return_inverse=True)
    tids, tid_code = np.unique(tid, return_inverse=True)
    keys, track = np.unique((pid_code * len(tids) + tid_code) * 2 + apart, return_inverse=True)
    lanes = [(int(pids[key // 2 // len(tids)]), int(tids[key // 2 % len(tids)]), "annotation" if key % 2 else "") for key in keys.tolist()]
    return track.astype(np.int32), lanes


def _names(reports: list[events.Report], header: dict[str, Any], told: dict[str, Any]) -> list[tuple[str, int | str, int | str, Any]]:
    """Names and order of processes and threads, as Kineto's own metadata events have them."""
    threads = mapped(told.get("threads"))
    found: list[tuple[str, int | str, int | str, Any]] = []
    lanes = {(pid, tid) for report in reports for pid, tid, _ in report.tracks}
    for pid in {pid for pid, _ in lanes}:
        host = pid == header.get("pid")
        label = "CPU" if host else f"GPU {pid}" if isinstance(pid, int) and pid >= 0 else "Overhead"
        found += [
            ("process_name", pid, 0, {"name": "python"}),
            ("process_labels", pid, 0, {"labels": label}),
            ("process_sort_index", pid, 0, {"sort_index": pid if host else 5_000_000}),
        ]
    for pid, tid in lanes:
        name = (
            f"stream {tid}"
            if pid != header.get("pid")
            else f"thread {tid} ({threads[str(tid)]})"
            if threads.get(str(tid))
            else f"thread {tid}"
        )
        found += [("thread_name", pid, tid, {"name": name}), ("thread_sort_index", pid, tid, {"sort_index": tid})]
    return found


def _text(column: Codes) -> pl.Series:
    """Codes and words as text; the empty word is null."""
    codes, words = column
    text = pl.Series([*(word or None for word in words), None], dtype=pl.String).cast(pl.Categorical)
    return text.gather(pl.Series(np.where(codes < 0, len(words), codes)).cast(pl.UInt32))


def _per_word(column: Codes, values: list[Any], otherwise: Any) -> NDArray[Any]:
    """What holds for each word, for each row."""
    return np.array([*values, otherwise])[column[0]]  # -1 is the last


def _known(values: NDArray[Any]) -> pl.Series:
    """-1 is null."""
    numbers = pl.Series(values.astype(np.int64))
    return numbers.set(numbers < 0, None)


def _as_recorded(trace: Trace, cut_steps: list[int]) -> Trace:
    """Kineto's file counts its timestamps from one in its header, and does not know which steps were recorded in part."""
    said = trace.meta.extra.get("baseTimeNanoseconds", 0)
    base = said if isinstance(said, int) and 0 <= said < 2**62 else None
    if base is None:
        what = f"baseTimeNanoseconds is unusable: times count from an unknown moment, not from the time of day ({str(said)[:60]})"
        trace = trace.with_problems([{"rank": trace.meta.ranks[0], "file": _FILE, "where": "header", "what": what, "lost": 0}])
    moments = {"start_ns", "end_ns", "at_ns", "alloc_ns", "free_ns"}
    tables = {
        name: frame.with_columns(pl.col(column) + (base or 0) for column in frame.collect_schema().names() if column in moments)
        for name, frame in trace.tables.items()
    }
    if cut_steps:
        step = pl.col("name").cast(pl.String).is_in([f"ProfilerStep#{number}" for number in cut_steps])
        kind = pl.when(step & (pl.col("kind") == "step")).then(pl.lit("annotation", schema.Kind)).otherwise("kind")
        whole = ~pl.col("step").is_in(cut_steps) | pl.col("step").is_null()
        tables["spans"] = tables["spans"].with_columns(kind=kind, step=pl.when(whole).then("step"))
        tables["steps"] = tables["steps"].filter(whole)
    return Trace(tables, trace.meta)
