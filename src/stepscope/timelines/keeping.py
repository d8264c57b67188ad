"""Large timelines kept in the cache as plain arrays that are mapped into memory: they open at once, and take what is looked at."""

import functools
import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope import cache, pyramid
from stepscope.errors import UsageError
from stepscope.timelines.lanes import Group, Lane, Samples, Timeline, build
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


def opened(trace: Trace, name: str | None, ends: tuple[int, int] | None = None) -> Timeline:
    """The trace's timeline: from the cache, where it has one of this name; without a name, nothing is kept."""
    folder = _folder(name)
    if folder is not None and (folder / HEADER).is_file():
        try:
            found = read(folder)
        except (OSError, ValueError, msgspec.MsgspecError, pl.exceptions.PolarsError):  # damaged where it lies: made anew
            cache.discard(folder)
        else:
            cache.touch(folder)
            return found
    made = build(trace, ends)
    if folder is None or len(made.pyramid.events.start) + len(made.samples.at) < WORTH:
        return made
    try:
        draft = cache.draft()
    except OSError:  # a cache that cannot be written to
        return made
    try:
        write(made, draft / "timeline", trace.meta.source)
        (draft / "timeline").rename(folder)
    except OSError:  # the disk is full, or another process was faster
        if not (folder / HEADER).is_file():
            return made
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    cache.trim(folder)
    return read(folder)


def named(*how: object) -> str:
    """A name for what is made of this, by this release."""
    return hashlib.sha256(repr((how, _code())).encode()).hexdigest()[:32]


@functools.cache
def _code() -> list[tuple[str, int, int]]:
    here = Path(__file__).parents[1]
    files = [*here.glob("*.py"), *here.glob("analyses/*.py"), *here.glob("timelines/*.py")]
    return sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def write(timeline: Timeline, folder: Path, source: str = "") -> None:
    folder.mkdir()
    pyramid.write(timeline.pyramid, folder)
    for column in Samples._fields:
        np.save(folder / f"samples_{column}.npy", getattr(timeline.samples, column))
    timeline.labels.write_parquet(folder / "labels.parquet", compression="zstd", compression_level=1)
    about = {name: getattr(timeline, name) for name in ("origin", "end", "spans", "groups", "lanes")}
    (folder / HEADER).write_bytes(msgspec.json.encode(_Header(source, **about)))


def read(folder: Path) -> Timeline:
    header = msgspec.json.decode((folder / HEADER).read_bytes(), type=_Header)
    samples = Samples(*(pyramid.mapped(folder / f"samples_{column}.npy") for column in Samples._fields))
    labels = pl.read_parquet(folder / "labels.parquet", memory_map=False)
    about: dict[str, Any] = {name: getattr(header, name) for name in ("origin", "end", "spans", "groups", "lanes")}
    return Timeline(**about, pyramid=pyramid.read(folder), labels=labels, samples=samples)


def _folder(name: str | None) -> Path | None:
    try:
        return None if name is None else cache.folder() / name
    except UsageError:  # no cache to be had here
        return None
