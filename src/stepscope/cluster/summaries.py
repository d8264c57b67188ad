"""`stepscope.cluster.summarize`: a run folder with the figures of every rank of a job, without its spans."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.cluster import remote
from stepscope.cluster.pool import pool
from stepscope.cluster.ray_engine import ray_engine
from stepscope.cluster.tasks import Batch, Merge, Part
from stepscope.cluster.tree import OnProgress, Tree
from stepscope.errors import DataError, UnknownFormatError, UsageError
from stepscope.io import discover, store
from stepscope.io.open_run import expected_rank
from stepscope.io.sources import find_sources, known_formats
from stepscope.model import units
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace, unread_problem

ENGINES = ("pool", "ray")
MEMORY = 700 << 20  # bytes of a worker: two of them and this process stay below 1.5 GB
_LEAST_MEMORY = 300 << 20  # Python with the libraries, and a small batch
_BATCH_SHARE = 1 / 64  # of the memory of a worker: files of this size become several times as large in memory
_BATCH_PARTS = 32


class Plan(NamedTuple):
    """The recordings of a run, and rows of `problems` for unreadable recordings and for remarks."""

    parts: list[Part]
    problems: list[dict[str, Any]]


def summarize(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    engine: str = "pool",
    address: str | None = None,
    workers: int | None = None,
    memory_per_worker: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> Trace | None:
    """Write the summary of the ranks at `path` to the run folder `output`, and return it; None if it is at an address.

    `path` and `output` are paths or addresses such as s3://bucket/job. Each rank is read once, in batches. With the engine pool, batches
    run in `workers` processes of this machine (default: one for each core); with ray, on the Ray cluster at `address` (auto, HOST:PORT,
    ray://HOST:PORT; local or None: a new one on this machine). `memory_per_worker` bounds a process in bytes (default: 700 MiB): a rank
    that needs more is left out. Ranks that cannot be read are rows of `problems`. The files of the summary are the same, whichever engine
    writes them.
    """
    check_word("engine", engine, ENGINES)
    if workers is not None and workers < 1:
        raise UsageError(f"workers is {workers}; expected 1 or more")
    if memory_per_worker is not None and memory_per_worker < _LEAST_MEMORY:
        raise UsageError(f"memory_per_worker is {units.size(memory_per_worker)}; expected at least {units.size(_LEAST_MEMORY)}")
    if address is not None and engine != "ray":
        raise UsageError("address is for the engine ray: add --engine ray")
    source, target = os.fspath(path), os.fspath(output)
    _check_output(target, overwrite=overwrite)
    plan = plan_of(source)
    batches = list(batches_of(plan.parts, memory_per_worker or MEMORY))
    with _room(target) as room, contextlib.ExitStack() as stack:
        chosen: Any
        if engine == "ray":
            chosen = stack.enter_context(ray_engine(address, workers, memory_per_worker))
        else:
            chosen = stack.enter_context(pool(workers or _cores(), memory_per_worker or MEMORY, room))
        tree = Tree(chosen, batches, on_progress)
        final = tree.run(lambda problems: Merge(source, (*plan.problems, *problems)))
        folder = room / "summary"
        chosen.fetch(final, folder)
        _publish(folder, target, overwrite=overwrite)
    return None if remote.is_address(target) else store.read(Path(target))


def plan_of(path: str) -> Plan:
    """The recordings at a path or an address."""
    if remote.is_address(path):
        return Plan(remote.parts_at(path), [])
    root, unread = Path(path), list[DataError]()
    groups = list(discover.groups(list(find_sources(root, unread.append)), unread))
    if not groups:
        raise next((e for e in unread if not isinstance(e, UnknownFormatError)), None) or UnknownFormatError(
            root, f"no trace in this folder. {known_formats()}"
        )
    parts = [_part(recording) for group in groups for recording in group.recordings]
    errors = [error for group in groups for error in group.unread] + discover.unread_alone(groups, unread)
    problems = [{"rank": None, "what": group.remark, "lost": 0} for group in groups if group.remark]
    return Plan(parts, problems + [unread_problem(error, discover.rank_of(Path(error.path))) for error in errors])


def batches_of(parts: list[Part], memory: int) -> Iterator[Batch]:
    """The recordings in their order, in batches that fit into the memory of a worker. They do not depend on the engine."""
    batch: list[Part] = []
    for part in parts:
        if batch and (len(batch) == _BATCH_PARTS or sum(other.size for other in batch) + part.size > _BATCH_SHARE * memory):
            yield Batch(tuple(batch))
            batch = []
        batch.append(part)
    if batch:
        yield Batch(tuple(batch))


def _part(recording: discover.Recording) -> Part:
    sources = tuple((str(source.path.absolute()), source.format) for source in recording.sources)
    return Part(sources, "", recording.rank, expected_rank(recording), sum(_size(source.path) for source in recording.sources))


def _size(path: Path) -> int:
    """Bytes of a recording; of a run folder those of its spans."""
    spans = path / "spans.parquet"
    try:
        if spans.is_file():
            return spans.stat().st_size
        return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except OSError:
        return 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_output(target: str, *, overwrite: bool) -> None:
    if remote.is_address(target):
        if not overwrite and remote.exists(target):
            raise UsageError(f"{target} exists; choose another name, or replace it (overwrite=True)")
        return
    path = Path(target)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        if not overwrite:
            raise UsageError(f"{target} exists; choose another name, or replace it (overwrite=True)")
        if not store.sniff(path) or not store.read(path).meta.summary:
            raise UsageError(f"{target} is not a summary, so it is not replaced; choose another name")


@contextlib.contextmanager
def _room(target: str) -> Iterator[Path]:
    """A temporary folder, on the disk of the output."""
    path = Path(target)
    if remote.is_address(target):
        folder = tempfile.mkdtemp(prefix="stepscope.")
    else:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.absolute().parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, target: str, *, overwrite: bool) -> None:
    if remote.is_address(target):
        remote.upload(folder, target)
        return
    store.move(folder, Path(target), overwrite=overwrite)
