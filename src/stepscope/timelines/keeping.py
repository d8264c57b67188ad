"""Large timelines kept in the cache as plain arrays that are mapped into memory: they open at once, and take what is looked at."""

import functools
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope import cache
from stepscope.errors import UsageError
from stepscope.timelines import columns, filling
from stepscope.timelines.lanes import Group, Lane, Timeline, build
from stepscope.trace import Trace

HEADER = "timeline.json"
# Fewer events are put together faster than files are found.
WORTH = 1 << 20


class _Header(msgspec.Struct):
    source: str
    origin: int
    end: int
    spans: int
    groups: list[Group]
    lanes: list[Lane]
    top: int
    files: dict[str, int]  # how many numbers stand in each


def opened(
    trace: Trace, name: str | None, ends: tuple[int, int] | None = None, heard: Callable[[float], None] = lambda share: None
) -> Timeline:
    """The trace's timeline: from the cache, where it has one of this name; without a name, nothing is kept."""
    folder = _folder(name)
    if folder is not None and (folder / HEADER).is_file():
        try:
            found = read(folder)
        except (OSError, ValueError, KeyError, msgspec.MsgspecError, pl.exceptions.PolarsError):  # damaged where it lies: made anew
            cache.discard(folder)
        else:
            cache.touch(folder)
            return found
    if folder is None or _size(trace) < WORTH:
        return build(trace, ends, None, heard)
    try:
        draft = cache.draft()
    except OSError:  # a cache that cannot be written to
        return build(trace, ends, None, heard)
    try:
        (draft / "timeline").mkdir()
        write(build(trace, ends, draft / "timeline", heard), draft / "timeline", trace.meta.source)
        (draft / "timeline").rename(folder)
    except OSError:  # the disk is full, or another process was faster
        if not (folder / HEADER).is_file():
            return build(trace, ends, None, heard)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    cache.trim(folder)
    return read(folder)


def _size(trace: Trace) -> int:
    return sum(int(table.select(pl.len()).collect().item()) for table in (trace.spans, trace.counters))


def named(*how: object) -> str:
    """A name for what is made of this, by this release."""
    return hashlib.sha256(repr((how, _code())).encode()).hexdigest()[:32]


@functools.cache
def _code() -> list[tuple[str, int, int]]:
    here = Path(__file__).parents[1]
    files = [*here.glob("*.py"), *here.glob("analyses/*.py"), *here.glob("timelines/*.py")]
    return sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


_INDEX = ("offsets", "lowest", "places", "first_chunk", "chunks", "sample_offsets", "least", "most")


def write(timeline: Timeline, folder: Path, source: str = "") -> None:
    """What the arrays that were written while it was built do not say."""
    made, sums, samples = timeline.pyramid, timeline.sums, timeline.samples
    index = made.events.offsets, made.lowest, made.places, sums.first, sums.places, samples.offsets, samples.least, samples.most
    for name, array in zip(_INDEX, index, strict=True):
        np.save(folder / f"{name}.npy", array)
    timeline.labels.write_parquet(folder / "labels.parquet", compression="zstd", compression_level=1)
    files = {name: (folder / name).stat().st_size // np.dtype(kind).itemsize for name, kind in filling.KINDS.items()}
    about = {name: getattr(timeline, name) for name in _ABOUT}
    (folder / HEADER).write_bytes(msgspec.json.encode(_Header(source, **about, top=made.top, files=files)))


_ABOUT = ("origin", "end", "spans", "groups", "lanes")


def read(folder: Path) -> Timeline:
    header = msgspec.json.decode((folder / HEADER).read_bytes(), type=_Header)
    offsets, lowest, places, first_chunk, chunks, sample_offsets, least, most = (np.load(folder / f"{name}.npy") for name in _INDEX)
    arrays = {name: columns.mapped(folder / name, kind, header.files[name]) for name, kind in filling.KINDS.items()}
    made, sums = filling.joined(offsets, header.top, lowest, places, first_chunk, chunks, arrays)
    samples = filling.Samples(sample_offsets, arrays["at"], arrays["value"], least, most)
    labels = pl.read_parquet(folder / "labels.parquet", memory_map=False)
    about: dict[str, Any] = {name: getattr(header, name) for name in _ABOUT}
    return Timeline(**about, pyramid=made, labels=labels, samples=samples, sums=sums)


def release(timeline: Timeline) -> None:
    """Give back the memory of what was looked at so far."""
    made = timeline.pyramid
    columns.release([*made.events, *made.buckets, made.long, *timeline.samples, *timeline.sums.entries])


def _folder(name: str | None) -> Path | None:
    try:
        return None if name is None else cache.folder() / name
    except UsageError:  # no cache to be had here
        return None
