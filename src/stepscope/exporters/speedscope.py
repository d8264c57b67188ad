"""speedscope's JSON (speedscope.app, `speedscope FILE`), plain or gzip (a name that ends in .gz): a flame graph per thread and stream.

Frames are Python functions, modules, operators, runtime calls and kernels, in nanoseconds since the start of the trace. A flame graph is
strictly nested: a span that begins before its neighbor ends is shortened, and spans without a duration are left out. A trace of several
ranks becomes a folder of one file per rank.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.exporters.common.json_lines import fill_template, json_text
from stepscope.exporters.common.ranks import File, write_ranks
from stepscope.model.intervals import Ints
from stepscope.model.trace import Trace

FILE = "trace.speedscope.json.gz"
ENDINGS = (".json", ".gz")
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_TRACKS = ["thread", "stream", "communication"]


def export(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    write_ranks(trace, out, ".speedscope.json.gz", _write_file, overwrite=overwrite)


def _write_file(trace: Trace, rank: int, file: File) -> None:
    tracks = trace.tracks.filter(pl.col("kind").is_in(_TRACKS)).select("track", pl.col("group", "label").cast(pl.String)).collect()
    spans = (
        trace.spans.join(tracks.lazy().select("track"), on="track", how="semi")
        .select(
            "track",
            "span",
            "parent",
            "depth",
            "start_ns",
            pl.col("name").cast(pl.String).fill_null(""),
            end=pl.col("start_ns") + pl.col("dur_ns"),
        )
        .collect()
    )
    names = spans["name"].unique().sort()
    start, end = _nested_times(spans)
    begin = int(start.min()) if len(start) else 0
    frames = (
        spans.select("track", "depth", frame=spans["name"].replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64))
        .with_columns(start=pl.Series(start - begin), end=pl.Series(end - begin))
        .filter(pl.col("end") > pl.col("start"))
    )
    head = {
        "$schema": _SCHEMA,
        "name": Path(trace.meta.source).name,
        "exporter": "stepscope",
        "shared": {"frames": [{"name": name} for name in names]},
    }
    file.write(json_text(head)[:-1].encode() + b',"profiles":[')
    separator = b"\n"
    for track, profile in _profiles(frames, tracks):
        file.write(separator + json_text(profile)[:-1].encode() + b',"events":[\n')
        file.write(",\n".join(_events(frames.filter(pl.col("track") == track))).encode() + b"\n]}")
        separator = b",\n"
    file.write(b"\n]}\n")


def _nested_times(spans: pl.DataFrame) -> tuple[Ints, Ints]:
    """Start and end of each span, within its parent and after the previous span at its depth."""
    start, end = spans["start_ns"].to_numpy().copy(), spans["end"].to_numpy().copy()
    row_of = spans.select("span", pl.int_range(pl.len()).alias("row"))
    parent = spans.select(span="parent").join(row_of, on="span", how="left", maintain_order="left")["row"].fill_null(-1).to_numpy()
    depth, track = spans["depth"].to_numpy(), spans["track"].to_numpy()
    upper_levels: list[Ints] = []  # the rows of each level above, in order
    for level in np.unique(depth):
        rows = np.flatnonzero(depth == level)
        rows = rows[np.lexsort((start[rows], track[rows]))]
        has_parent = parent[rows] >= 0
        inner, outer = rows[has_parent], parent[rows][has_parent]
        start[inner], end[inner] = np.maximum(start[inner], start[outer]), np.minimum(end[inner], end[outer])
        # A span that begins within another and ends after it has no parent: it ends where a span above it begins or ends.
        for upper in upper_levels if not has_parent.all() else []:
            _clip(rows[~has_parent], upper, track, start, end)
        before = pl.DataFrame({"track": track[rows], "end": end[rows]}).select(pl.col("end").cum_max().shift(1).over("track"))["end"]
        start[rows] = np.maximum(start[rows], before.fill_null(np.iinfo(np.int64).min).to_numpy())
        end[rows] = np.maximum(end[rows], start[rows])
        upper_levels.append(rows)
    return start, end


def _clip(rows: Ints, upper: Ints, track: Ints, start: Ints, end: Ints) -> None:
    """End these spans where the span above that is open at their start ends, or else where the next one starts."""
    for number in np.unique(track[rows]):
        lower, above = rows[track[rows] == number], upper[track[upper] == number]
        if not len(above):
            continue
        place = np.searchsorted(start[above], start[lower], side="right")
        last = above[np.maximum(place - 1, 0)]
        next_start = np.where(place < len(above), start[above[np.minimum(place, len(above) - 1)]], np.iinfo(np.int64).max)
        is_open = (place > 0) & (start[lower] < end[last])
        end[lower] = np.maximum(start[lower], np.minimum(end[lower], np.where(is_open, end[last], next_start)))


def _profiles(spans: pl.DataFrame, tracks: pl.DataFrame) -> Iterator[tuple[int, dict[str, object]]]:
    """Each track that has spans, with the entries of its profile before the events."""
    ends = spans.group_by("track").agg(pl.col("start").min(), pl.col("end").max()).join(tracks, on="track").sort("track")
    for track, first, last, group, label in ends.select("track", "start", "end", "group", "label").iter_rows():
        name = " · ".join(part for part in (group, label) if part) or f"track {track}"
        yield track, {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": first, "endValue": last}


def _events(spans: pl.DataFrame) -> pl.Series:
    """Opening and closing events in order: at one time, spans close first, the innermost first; then they open, the outermost first."""
    opens = spans.select("frame", at="start", closes=pl.lit(0), order="depth")
    closes = spans.select("frame", at="end", closes=pl.lit(1), order=-pl.col("depth"))
    ordered = pl.concat([opens, closes]).sort("at", pl.col("closes") == 0, "order", maintain_order=True)
    kind = pl.when(pl.col("closes") == 1).then(pl.lit("C")).otherwise(pl.lit("O"))
    return ordered.select(
        line=fill_template('{"type":"{}","frame":{},"at":{}}', kind, pl.col("frame").cast(pl.String), pl.col("at").cast(pl.String))
    )["line"]
