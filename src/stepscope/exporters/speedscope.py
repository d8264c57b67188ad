"""speedscope's JSON (speedscope.app, `speedscope FILE`), plain or gzip (a name that ends in .gz): a flame graph per thread and stream.

Frames are Python functions, modules, operators, runtime calls and kernels, in nanoseconds since the trace began. A flame graph is strictly
nested: a span that begins before its neighbour ends is shortened, and spans without a duration are left out. A trace of several ranks
becomes a folder of one file per rank.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.exporters._lines import filled, json_text
from stepscope.exporters._ranks import File, write_ranks
from stepscope.intervals import Ints
from stepscope.trace import Trace

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_TRACKS = ["thread", "stream", "communication"]


def export(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    write_ranks(trace, out, ".speedscope.json.gz", _write_to, overwrite=overwrite)


def _write_to(trace: Trace, rank: int, file: File) -> None:
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
    start, end = _nested(spans)
    begin = int(start.min()) if len(start) else 0
    shown = (
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
    for track, profile in _profiles(shown, tracks):
        file.write(separator + json_text(profile)[:-1].encode() + b',"events":[\n')
        file.write(",\n".join(_events(shown.filter(pl.col("track") == track))).encode() + b"\n]}")
        separator = b",\n"
    file.write(b"\n]}\n")


def _nested(spans: pl.DataFrame) -> tuple[Ints, Ints]:
    """Start and end of each span, within its parent and after the span beside it."""
    start, end = spans["start_ns"].to_numpy().copy(), spans["end"].to_numpy().copy()
    rows = spans.select("span", pl.int_range(pl.len()).alias("row"))
    parent = spans.select(span="parent").join(rows, on="span", how="left", maintain_order="left")["row"].fill_null(-1).to_numpy()
    depth, track = spans["depth"].to_numpy(), spans["track"].to_numpy()
    placed: list[Ints] = []  # the rows of each level above, in order
    for level in np.unique(depth):
        at = np.flatnonzero(depth == level)
        at = at[np.lexsort((start[at], track[at]))]
        above = parent[at]
        inside = above >= 0
        start[at[inside]] = np.maximum(start[at[inside]], start[above[inside]])
        end[at[inside]] = np.minimum(end[at[inside]], end[above[inside]])
        # What begins within another and outlasts it has no parent: it ends where something above it begins or ends.
        for upper in placed if not inside.all() else []:
            _clip(at[~inside], upper, track, start, end)
        before = pl.DataFrame({"track": track[at], "end": end[at]}).select(pl.col("end").cum_max().shift(1).over("track"))["end"]
        start[at] = np.maximum(start[at], before.fill_null(np.iinfo(np.int64).min).to_numpy())
        end[at] = np.maximum(end[at], start[at])
        placed.append(at)
    return start, end


def _clip(rows: Ints, upper: Ints, track: Ints, start: Ints, end: Ints) -> None:
    """End rows where the span of a level above ends that is open when they start, or else where the next one starts."""
    for one in np.unique(track[rows]):
        mine, theirs = rows[track[rows] == one], upper[track[upper] == one]
        if not len(theirs):
            continue
        place = np.searchsorted(start[theirs], start[mine], side="right")
        last = theirs[np.maximum(place - 1, 0)]
        following = np.where(place < len(theirs), start[theirs[np.minimum(place, len(theirs) - 1)]], np.iinfo(np.int64).max)
        open_now = (place > 0) & (start[mine] < end[last])
        end[mine] = np.maximum(start[mine], np.minimum(end[mine], np.where(open_now, end[last], following)))


def _profiles(spans: pl.DataFrame, tracks: pl.DataFrame) -> Iterator[tuple[int, dict[str, object]]]:
    """Each track that has spans, with what stands before its events."""
    ends = spans.group_by("track").agg(pl.col("start").min(), pl.col("end").max()).join(tracks, on="track").sort("track")
    for track, first, last, group, label in ends.select("track", "start", "end", "group", "label").iter_rows():
        name = " · ".join(part for part in (group, label) if part) or f"track {track}"
        yield track, {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": first, "endValue": last}


def _events(spans: pl.DataFrame) -> pl.Series:
    """Opening and closing events in order: at one moment what ends closes first, the innermost first, and the outermost opens first."""
    opens = spans.select("frame", at="start", closes=pl.lit(0), order="depth")
    closes = spans.select("frame", at="end", closes=pl.lit(1), order=-pl.col("depth"))
    ordered = pl.concat([opens, closes]).sort("at", pl.col("closes") == 0, "order", maintain_order=True)
    kind = pl.when(pl.col("closes") == 1).then(pl.lit("C")).otherwise(pl.lit("O"))
    return ordered.select(
        line=filled('{"type":"{}","frame":{},"at":{}}', kind, pl.col("frame").cast(pl.String), pl.col("at").cast(pl.String))
    )["line"]
