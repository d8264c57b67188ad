"""Tracks with the names and the order from Chrome's metadata events."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from stepscope.model import schema
from stepscope.readers.chrome.records import Report, TrackKey
from stepscope.readers.common.name_parts import add_track_columns, stream_number
from stepscope.readers.common.problems import Problem

Metadata = Mapping[tuple[str, int | str, int | str | None], Any]  # by name of the metadata event, pid and, for threads, tid

_TYPES: dict[str, type | tuple[type, ...]] = {
    "process_name": (str, int, float),
    "process_labels": str,
    "thread_name": (str, int, float),
    "process_sort_index": int,
    "thread_sort_index": int,
}


def track_table(keys: Mapping[TrackKey, int], spans: pl.DataFrame, reports: Sequence[Report], problems: list[Problem]) -> pl.DataFrame:
    """The table `tracks`, for tracks that have spans."""
    metadata = _read_metadata(reports, problems)
    # A stream that only communicates has no kernels; on the host, communication is an annotation.
    transfers = (pl.col("kind") == "communication") & ~pl.col("category").cast(pl.String).str.contains("annotation")
    streams = set(spans.filter(pl.col("kind").is_in(["kernel", "copy", "set"]) | transfers)["track"].unique())
    used = set(spans["track"].unique())
    device_keys = {(pid, tid) for (pid, tid, _), track in keys.items() if track in streams}
    rows = []
    for (pid, tid, role), track in keys.items():
        if track not in used:
            continue
        has_number = re.fullmatch(r"-?\d+", str(tid))
        default = f"{'stream' if (pid, tid) in device_keys else 'thread'} {tid}" if has_number else tid
        label = str(metadata.get(("thread_name", pid, tid), default)).strip()
        process, labels = metadata.get(("process_name", pid, None), ""), str(metadata.get(("process_labels", pid, None), ""))
        rows.append(
            {
                "track": track,
                "group": labels if labels and labels != "CPU" else f"{process or 'process'} {pid}".strip(),
                "label": {"": label, "annotation": f"{label} annotations"}.get(role, role.removeprefix("async ")),
                "kind": "stream" if track in streams else "annotation" if role == "annotation" else "async" if role else "thread",
                "device": pid if track in streams and isinstance(pid, int) and 0 <= pid < 1 << 31 else None,
                "sort": sort_key(metadata, pid, tid),
                "pid": str(pid),
                "tid": str(tid),
            }
        )
    if far := {str(pid) for pid, _ in device_keys if isinstance(pid, int) and pid >= 1 << 31}:
        problems.append(Problem("", f"{len(far):,} devices have unusable numbers, for example {min(far)[:60]}", 0))
    columns = ("track", "group", "label", "kind", "device", "sort", "pid", "tid")
    frame = pl.DataFrame(rows, schema={name: schema.TABLES["tracks"][name] for name in columns}, strict=False)
    is_stream = (pl.col("kind") == "stream") & pl.col("device").is_not_null()
    return frame.sort("sort", "track").with_columns(
        sort=pl.int_range(pl.len(), dtype=pl.Int32),
        stream=pl.when(is_stream).then(stream_number(pl.col("tid"))),
        communication_group=pl.lit(None, pl.String),
        plane=pl.lit(None, pl.Int64),
    )


def _read_metadata(reports: Sequence[Report], problems: list[Problem]) -> Metadata:
    metadata: dict[tuple[str, int | str, int | str | None], Any] = {}
    unusable: list[str] = []
    for report in reports:
        for name, pid, tid, args in report.metadata:
            if isinstance(args, dict) and args:
                value = next(iter(args.values()))
                if name not in _TYPES or (isinstance(value, _TYPES[name]) and not isinstance(value, bool)):
                    metadata[(name, pid, tid if name.startswith("thread") else None)] = value
                else:
                    unusable.append(f"{name} of {pid}: {value}")
    if unusable:
        example = unusable[0] if len(unusable[0]) <= 60 else f"{unusable[0][:59]}…"
        message = f"{len(unusable):,} names or sort indices of processes and threads are unusable, and ignored, for example {example}"
        problems.append(Problem("", message, 0))
    return metadata


def sort_key(metadata: Metadata, pid: int | str, tid: int | str) -> int:
    """The place of a track: by the sort index of its process, then of its thread."""
    indices = (metadata.get(("process_sort_index", pid, None), 0), metadata.get(("thread_sort_index", pid, tid), 0))
    process, thread = (index if isinstance(index, int) else 0 for index in indices)
    return max(min(process, 20_000), -20_000) * 100_000 + max(min(thread, 49_999), -49_999)


def restore_tracks(tracks: pl.DataFrame, source: pl.DataFrame) -> pl.DataFrame:
    """The tracks as they were in the trace that stepscope exported, where `source` has them."""
    if source.is_empty():
        return tracks
    key, beside = ["pid", "tid", "beside"], pl.col("kind") == "annotation"
    if source.select(pl.all_horizontal(pl.col("stream", "communication_group", "plane").is_null()).all()).item():  # of an earlier release
        source = add_track_columns(source.lazy()).collect()
    source = source.drop("track").with_columns(beside=beside).unique(key, keep="first")
    rows = tracks.with_columns(beside=beside)
    restored = rows.select("track", *key).join(source, on=key, how="inner")
    others = rows.join(source.select(key), on=key, how="anti")
    return pl.concat([restored.select(tracks.columns), others.select(tracks.columns)]).sort("sort", "track")
