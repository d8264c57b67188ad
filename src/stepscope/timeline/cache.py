"""Large timelines in the cache: plain arrays that are mapped into memory, so that they open at once and use little of it."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.io import cache
from stepscope.model.trace import Trace
from stepscope.timeline import rows
from stepscope.timeline.construction import columns
from stepscope.timeline.construction.portions import OnProgress
from stepscope.timeline.layout import Group, Timeline, Track, build

HEADER = "timeline.json"
MIN_SPANS = 1 << 20  # smaller timelines are built faster than their files are opened


class _Header(msgspec.Struct):
    source: str
    origin: int
    end: int
    spans: int
    groups: list[Group]
    tracks: list[Track]
    top: int
    files: dict[str, int]  # the number of values in each


def open_timeline(
    trace: Trace, key: str | None, ends: tuple[int, int] | None = None, on_progress: OnProgress = lambda share: None
) -> Timeline:
    """The timeline of a trace; with a key, that of a large trace comes from the cache."""
    if key is None or _size(trace) < MIN_SPANS:
        return build(trace, ends, None, on_progress)

    def build_entry(room: Path) -> Path:
        (room / "timeline").mkdir()
        write(build(trace, ends, room / "timeline", on_progress), room / "timeline", trace.meta.source)
        return room / "timeline"

    try:
        return cache.get_or_build(key, build_entry, _load)
    except cache.UnusableError:
        return build(trace, ends, None, on_progress)


def _load(entry: Path) -> Timeline:
    try:
        return read(entry)
    except (msgspec.MsgspecError, pl.exceptions.PolarsError) as error:
        raise ValueError("damaged timeline") from error


def _size(trace: Trace) -> int:
    return sum(int(table.select(pl.len()).collect().item()) for table in (trace.spans, trace.counters))


def entry_key(*identity: object) -> str:
    """The key of a cache entry; it changes with the code that computes the entry."""
    code = cache.code_version("model", "io", "readers", "analyses", "timeline")
    return hashlib.sha256(repr((identity, code)).encode()).hexdigest()[:32]


_INDEX = ("offsets", "lowest", "places", "first_chunk", "chunks", "sample_offsets", "least", "most")


def write(timeline: Timeline, folder: Path, source: str = "") -> None:
    """Write the parts that `build` did not write: index, labels and header."""
    pyramid, sums, samples = timeline.pyramid, timeline.sums, timeline.samples
    index = pyramid.spans.offsets, pyramid.lowest, pyramid.places, sums.first, sums.places, samples.offsets, samples.least, samples.most
    for name, array in zip(_INDEX, index, strict=True):
        np.save(folder / f"{name}.npy", array)
    timeline.labels.write_parquet(folder / "labels.parquet", compression="zstd", compression_level=1)
    files = {name: (folder / name).stat().st_size // np.dtype(dtype).itemsize for name, dtype in rows.DTYPES.items()}
    fields = {name: getattr(timeline, name) for name in _FIELDS}
    (folder / HEADER).write_bytes(msgspec.json.encode(_Header(source, **fields, top=pyramid.top, files=files)))


_FIELDS = ("origin", "end", "spans", "groups", "tracks")


def read(folder: Path) -> Timeline:
    header = msgspec.json.decode((folder / HEADER).read_bytes(), type=_Header)
    offsets, lowest, places, first_chunk, chunks, sample_offsets, least, most = (np.load(folder / f"{name}.npy") for name in _INDEX)
    arrays = {name: columns.map_file(folder / name, dtype, header.files[name]) for name, dtype in rows.DTYPES.items()}
    pyramid, sums = rows.assemble(offsets, header.top, lowest, places, first_chunk, chunks, arrays)
    samples = rows.Samples(sample_offsets, arrays["at"], arrays["value"], least, most)
    labels = pl.read_parquet(folder / "labels.parquet", memory_map=False)
    fields: dict[str, Any] = {name: getattr(header, name) for name in _FIELDS}
    return Timeline(**fields, pyramid=pyramid, labels=labels, samples=samples, sums=sums)


def release(timeline: Timeline) -> None:
    """Free the memory of the mapped arrays that were read so far."""
    pyramid = timeline.pyramid
    columns.release([*pyramid.spans, *pyramid.buckets, pyramid.long, *timeline.samples, *timeline.sums.entries])
