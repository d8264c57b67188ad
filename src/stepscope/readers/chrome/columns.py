"""A piece of Chrome trace events, from JSON text to columns.

One Python object per event would dominate the time of reading. So JSON text is decoded into typed records, the records into columns, and
the columns are written to disk.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import polars as pl

from stepscope.readers.chrome.records import (
    HIGHEST_ADDRESS,
    RAW_LIST,
    Event,
    Hint,
    Memory,
    Records,
    Report,
    TrackKey,
    decode_memory,
    decode_records,
)
from stepscope.readers.chrome.text import JSON
from stepscope.readers.chrome.timestamps import MISSING, start_and_duration
from stepscope.readers.common.documents import replace_lone_surrogates

INSTANTS = ["i", "I", "R", "n"]
_PAIRED = ["B", "E", "b", "e", "S", "F"]
_ASYNC = frozenset("bneSTFp")
_FLOWS = ["s", "t", "f"]
# Ranges that users mark need not nest with other spans: an annotation begins inside the Python call that begins it, and those of a
# stream overlap its kernels. They get a separate track next to the thread or stream.
ANNOTATIONS = frozenset({"gpu_user_annotation", "user_annotation"})


def decode(text: bytes) -> tuple[Report, dict[str, pl.DataFrame]]:
    """Report and columns of a JSON array of events; text behind the array is handed back in the report."""
    report = Report()
    try:
        records = decode_records(text, report)
    except UnicodeDecodeError:
        return _decode_repaired(text.decode(errors="replace").encode(), "names that are not UTF-8, shown with a replacement character")
    except RecursionError:
        return Report(malformed="nested too deeply"), {}
    except msgspec.DecodeError as error:
        if (end := _array_end(error)) is not None:
            report, parts = decode(text[:end])
            report.rest = text[end:]
            return report, parts
        if (repaired := _repair(text, str(error))) is None:
            return Report(malformed=str(error)), {}
        return _decode_repaired(repaired, "JSON errors repaired: trailing commas, bare NaN, control characters or halves of characters")
    parts = _columns(records, report)
    report.rows = sum(part.height for part in parts.values())
    return report, parts


def _decode_repaired(text: bytes, description: str) -> tuple[Report, dict[str, pl.DataFrame]]:
    report, parts = decode(text)
    if not report.malformed:
        report.add_oddity(description, 0, count=0)
    return report, parts


def array_end(text: bytes) -> int | None:
    """The end of an array that more text follows; None where it is unknown."""
    try:
        RAW_LIST.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return _array_end(error)
    return None


def _array_end(error: Exception) -> int | None:
    trailing = re.search(r"trailing characters \(byte (\d+)\)", str(error))
    return int(trailing[1]) - 1 if trailing else None


_BARE_WORD = re.compile(rb"([:\[,]\s*)-?(?:nan|inf|infinity)(?=\s*[,\]}])", re.IGNORECASE)
_PRINTABLE = bytes(32 if code < 32 and code not in b"\t\r\n" else code for code in range(256))


def _repair(text: bytes, error: str) -> bytes | None:
    """The text without common errors of tools that write JSON themselves; None where it has none of these."""
    if comma := re.search(r"trailing comma in array \(byte (\d+)\)", error):
        at = text.rindex(b",", 0, int(comma[1]))
        return text[:at] + b" " + text[at + 1 :]
    repaired = _BARE_WORD.sub(rb"\1null", replace_lone_surrogates(text).translate(_PRINTABLE))
    return repaired if repaired != text else None


def _columns(records: Records, report: Report) -> dict[str, pl.DataFrame]:
    """The columns by part: spans, halves of spans, flows, memory, counters."""
    events = records.events
    frame = _event_frame(records, report)
    phase, has_time = pl.col("phase"), pl.col("start_ns") != MISSING
    memory = (pl.col("name") == "[memory]") & (phase == "i")
    is_complete, is_other = phase == "X", phase.is_in(["M", "C", *_PAIRED, *_FLOWS])
    _report_bad_times(frame, records, report)
    report.metadata = [
        (event.name, event.pid, event.tid, parse_args(bytes(event.args)))
        for event in (events[row] for row in frame["phase"].eq("M").arg_true())
    ]
    spans = frame.filter(has_time & ((is_complete & (pl.col("dur_ns") >= 0)) | ~(is_complete | is_other | memory)))
    parts = {
        "spans": spans.with_columns(
            dur_ns=pl.when(is_complete).then("dur_ns").otherwise(0),
            instant=phase.is_in(INSTANTS),
            known_phase=is_complete | phase.is_in(INSTANTS),
        ).drop("phase", "flow"),
        "pairs": frame.filter(has_time & phase.is_in(_PAIRED)).drop("dur_ns"),
        "flows": frame.filter(has_time & phase.is_in(_FLOWS)).select("phase", "category", "flow", "track", at_ns="start_ns"),
        "memory": _memory(frame, has_time & memory, records.numbers, report),
        "counters": _counters(frame, has_time & (phase == "C"), records.numbers, report),
    }
    return {name: part for name, part in parts.items() if part.height or name == "spans"}


def _event_frame(records: Records, report: Report) -> pl.DataFrame:
    """One row per event."""
    text, events, args = records.text, records.events, records.args
    start, duration = start_and_duration(text, events)
    empty = [b""] * len(events)  # columns whose key is not in the text need no look at each event
    hints = [(row, event.stepscope) for row, event in enumerate(events) if event.stepscope and event.stepscope.kind] \
        if b'"stepscope"' in text else []  # fmt: skip
    report.tracks, tracks = _tracks(events, bool(hints))
    external = [max(arg.external, arg.old_external) for arg in args] if b'"external id"' in text else [arg.external for arg in args]
    frame = pl.DataFrame(
        {
            "phase": pl.Series([event.ph for event in events], dtype=pl.String),
            "category": pl.Series([event.cat for event in events], dtype=pl.Categorical),
            "name": pl.Series([event.name for event in events], dtype=pl.Categorical),
            "track": pl.Series(tracks, dtype=pl.Int32),
            "flow": pl.Series([str(event.id) for event in events] if b'"id"' in text else [""] * len(events), dtype=pl.String),
            "start_ns": start,
            "dur_ns": duration,
            "correlation": _integers([arg.correlation for arg in args]),
            "external": _integers(external),
            "flops": _integers([arg.flops for arg in args]),
            "bytes": _integers([arg.bytes for arg in args]),
            "shapes": _texts([bytes(arg.shapes) for arg in args] if b'"Input Dims"' in text else empty).cast(pl.Categorical),
            "dtypes": _texts([bytes(arg.dtypes) for arg in args] if b'"Input type"' in text else empty).cast(pl.Categorical),
            "module": pl.Series([arg.module or None for arg in args], dtype=pl.Categorical),
            "args": _texts([bytes(event.args) for event in events]),
        }
    )
    return add_hints(frame, hints)


def _report_bad_times(frame: pl.DataFrame, records: Records, report: Report) -> None:
    is_complete, has_time, has_duration = pl.col("phase") == "X", pl.col("start_ns") != MISSING, pl.col("dur_ns") != MISSING
    for description, name, is_bad in (
        ("events without a usable time", "ts", ~has_time & (pl.col("phase") != "M")),
        ("complete events without a usable duration", "dur", has_time & is_complete & ~has_duration),
        ("events of negative duration", "dur", has_time & is_complete & has_duration & (pl.col("dur_ns") < 0)),
    ):
        rows = frame.select(is_bad.arg_true()).to_series()
        if len(rows):
            first = records.numbers[rows[0]]
            value = getattr(records.events[rows[0]], name)
            example = "" if isinstance(value, float) and math.isnan(value) else f'"{name}": {msgspec.json.encode(value).decode()}'
            report.add_oddity(description, first, records.bad_times.get(first, example), count=len(rows), lost=len(rows))


def parse_args(args: bytes) -> Any:
    try:
        return msgspec.json.decode(args)
    except (UnicodeDecodeError, msgspec.ValidationError):  # bytes that are no text, numbers that no column holds
        return JSON.decode(args.decode("utf-8", "replace"))
    except RecursionError:
        return {}


def add_hints(frame: pl.DataFrame, hints: list[tuple[int, Hint]]) -> pl.DataFrame:
    """The rows with `hint_kind` and `hint_type`, and with scope and category where stepscope's exporter wrote them."""
    empty = pl.Series("hint_kind", [None], dtype=pl.String).new_from_index(0, frame.height)
    if not hints:
        return frame.with_columns(empty, empty.alias("hint_type"))
    rows = [row for row, _ in hints]

    def column(values: pl.Series, name: str) -> pl.Series:
        return values.cast(pl.String).scatter(rows, [getattr(hint, name) for _, hint in hints])

    return frame.with_columns(
        hint_kind=column(empty.clone(), "kind"),
        hint_type=column(empty.clone(), "type"),
        module=column(frame["module"], "scope").cast(pl.Categorical),
        category=column(frame["category"], "category").cast(pl.Categorical),
    )


def _tracks(events: list[Event], has_hints: bool) -> tuple[list[TrackKey], list[int]]:
    """The tracks, and the track of each event."""
    tracks: dict[TrackKey, int] = {}
    if has_hints or {event.ph for event in events} & _ASYNC:
        numbers = [tracks.setdefault(_track_key(event), len(tracks)) for event in events]
        return list(tracks), numbers
    keys = [(event.pid, event.tid, event.cat) for event in events]  # the common case, without a call per event
    number_of = {
        key: tracks.setdefault((key[0], key[1], "annotation" if key[2] in ANNOTATIONS else ""), len(tracks)) for key in dict.fromkeys(keys)
    }
    return list(tracks), [number_of[key] for key in keys]


def _track_key(event: Event) -> TrackKey:
    if event.ph in _ASYNC:  # an async range belongs to no thread; those of one category share a track and stack up where they overlap
        return event.pid, "", "async " + (event.cat or event.name)
    beside = event.stepscope.beside if event.stepscope else event.cat in ANNOTATIONS
    return event.pid, event.tid, "annotation" if beside else ""


def _integers(values: list[int]) -> pl.Series:
    return null_at(-1, pl.Series(values, dtype=pl.Int64))


def null_at(missing: int, numbers: pl.Series) -> pl.Series:
    """The numbers, with null for one of them."""
    return numbers.set(numbers == missing, None)


def _texts(values: list[bytes]) -> pl.Series:
    """The empty text is null. Arguments that were not decoded may hold bytes that are no text."""
    try:
        text = pl.Series(values, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        text = pl.Series([value.decode("utf-8", "replace") for value in values], dtype=pl.String)
    return text.set(text == "", None)


def _memory(frame: pl.DataFrame, is_memory: pl.Expr, numbers: Sequence[int], report: Report) -> pl.DataFrame:
    rows = frame.with_row_index("row").filter(is_memory)
    return memory_frame(rows, ("[" + ",".join(rows["args"].to_list()) + "]").encode(), [numbers[row] for row in rows["row"]], report)


def memory_frame(rows: pl.DataFrame, args: bytes, numbers: Sequence[int], report: Report) -> pl.DataFrame:
    """Memory events as columns: their tracks and times, and a JSON array of their arguments."""
    decoded = decode_memory(args, numbers, report)
    blocks: list[Memory] = [block for block in decoded if block is not None]
    if len(blocks) < len(decoded):
        rows = rows.filter(pl.Series([block is not None for block in decoded], dtype=pl.Boolean))
    return rows.select("track", at_ns="start_ns").with_columns(
        pl.Series("address", [block.address & HIGHEST_ADDRESS for block in blocks], dtype=pl.UInt64),
        pl.Series("bytes", [block.bytes for block in blocks], dtype=pl.Int64),
        pl.Series("device_type", [block.device_type for block in blocks], dtype=pl.Int32),
        pl.Series("device_id", [block.device_id for block in blocks], dtype=pl.Int32),
        pl.Series("device", [block.device or None for block in blocks], dtype=pl.String),
        _integers([block.allocated for block in blocks]).alias("allocated"),
        _integers([block.reserved for block in blocks]).alias("reserved"),
    )


def _counters(frame: pl.DataFrame, is_counter: pl.Expr, numbers: Sequence[int], report: Report) -> pl.DataFrame:
    rows = frame.with_row_index("row").filter(is_counter).select("row", "track", "name", "flow", "start_ns", "args")
    return counter_frame(((numbers[row], *values) for row, *values in rows.iter_rows()), report)


def counter_frame(events: Iterable[tuple[Any, ...]], report: Report) -> pl.DataFrame:
    """One row per number in the arguments of a counter event. Of each event: its number in the array, track, name, id, time, arguments."""
    samples = []
    for event, track, name, flow, time, args in events:
        for key, value in parse_args((args or "{}").encode()).items():
            if (number := _finite(value)) is not None:
                samples.append((track, f"{name}[{flow}] {key}" if flow else f"{name} {key}", time, number))
            else:
                example = f"{name} {key}: {msgspec.json.encode(value).decode()}"
                report.add_oddity("values of counters that are not numbers", event, example, lost=1)
    columns = {"track": pl.Int32, "name": pl.Categorical, "at_ns": pl.Int64, "value": pl.Float64}
    return pl.DataFrame(samples, schema=columns, orient="row")


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
