"""Columns of decoded events on disk: one file per part (spans, pairs, flows, memory, counters) and piece, `spans.000003.arrow`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import units
from stepscope.readers.chrome.records import Report, TrackKey
from stepscope.readers.common.problems import Problem

TrackNumbers = Sequence[NDArray[np.int32]]  # of each piece: the track in the trace of each track in the piece

_EMPTY: dict[str, dict[str, Any]] = {
    "flows": {"phase": pl.String, "category": pl.Categorical, "flow": pl.String, "track": pl.Int32, "at_ns": pl.Int64},
    "memory": {
        "track": pl.Int32,
        "at_ns": pl.Int64,
        "address": pl.UInt64,
        "bytes": pl.Int64,
        "device_type": pl.Int32,
        "device_id": pl.Int32,
        "device": pl.String,
        "allocated": pl.Int64,
        "reserved": pl.Int64,
    },
    "counters": {"track": pl.Int32, "name": pl.Categorical, "at_ns": pl.Int64, "value": pl.Float64},
}


def write_parts(parts: dict[str, pl.DataFrame], folder: Path, piece: int) -> None:
    for part, frame in parts.items():
        frame.write_ipc(folder / f"{part}.{piece:06d}.arrow", compression="lz4")


def part_files(folder: Path, part: str) -> list[Path]:
    return sorted(folder.glob(f"{part}.*.arrow"))


def piece_number(file: Path) -> int:
    return int(file.suffixes[0][1:])


def number_tracks(reports: Sequence[Report]) -> tuple[dict[TrackKey, int], TrackNumbers]:
    """The number of each track in the trace, and per piece the numbers of its tracks."""
    tracks: dict[TrackKey, int] = {}
    return tracks, [np.array([tracks.setdefault(key, len(tracks)) for key in report.tracks], np.int32) for report in reports]


def load_part(folder: Path, part: str, track_numbers: TrackNumbers) -> pl.DataFrame:
    """The rows of all pieces, with the track numbers of the trace. Of spans, only the columns that joins need."""
    frames = []
    for file in part_files(folder, part):
        rows = pl.scan_ipc(file)
        frame = rows.select(pl.exclude("shapes", "dtypes", "args", "flops", "bytes")).collect() if part == "spans" else rows.collect()
        piece = piece_number(file)
        if "track" in frame.columns and piece < len(track_numbers):  # later pieces were made from rows with final numbers
            frame = frame.with_columns(pl.Series("track", track_numbers[piece][frame["track"].to_numpy()]))
        frames.append(frame)
    return pl.concat(frames) if frames else pl.DataFrame(schema=_EMPTY[part])


def close_pairs(folder: Path, track_numbers: TrackNumbers) -> Iterator[Problem]:
    """Write begin and end events as one more piece of spans. Such events are rare in training traces, so a loop is fast enough."""
    if not part_files(folder, "pairs"):
        return
    rows = load_part(folder, "pairs", track_numbers).sort("start_ns", maintain_order=True)
    latest = int(rows["start_ns"].max())  # type: ignore[arg-type]
    open_rows: dict[tuple[object, ...], list[int]] = {}
    begins, durations, unopened = [], [], 0
    for row, (phase, category, name, track, flow, at) in enumerate(
        rows.select("phase", "category", "name", "track", "flow", "start_ns").iter_rows()
    ):
        key: tuple[object, ...] = (track,) if phase in "BE" else (track, category, flow, name if phase in "SF" else "")
        if phase in "BbS":
            open_rows.setdefault(key, []).append(row)
        elif stack := open_rows.get(key):
            begin = stack.pop()
            begins.append(begin)
            durations.append(at - rows["start_ns"][begin])
        else:
            unopened += 1
    unclosed = [row for stack in open_rows.values() for row in stack]
    begins += unclosed
    durations += [latest - rows["start_ns"][row] for row in unclosed]
    spans = rows[begins].with_columns(dur_ns=pl.Series(durations, dtype=pl.Int64), instant=False, known_phase=True)
    spans = spans.select(pl.scan_ipc(part_files(folder, "spans")[0]).collect_schema().names())
    write_parts({"spans": spans}, folder, len(track_numbers))
    if unclosed:
        yield Problem("", f"{units.count(len(unclosed), 'range has', 'ranges have')} no end: shown up to the last event", 0)
    if unopened:
        yield Problem("", f"{units.count(unopened, 'end')} of ranges without a begin", unopened)
