"""One output file for a trace of one rank, or a folder with one file per rank."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import IO

from stepscope.errors import UsageError
from stepscope.exporters import draft_output
from stepscope.model.trace import Trace

File = IO[bytes] | gzip.GzipFile
_FILE_SUFFIXES = (".json", ".gz", ".pftrace", ".perfetto-trace")


def write_ranks(trace: Trace, out: Path, suffix: str, write: Callable[[Trace, int, File], None], *, overwrite: bool) -> None:
    """Call `write` for each rank. The files of a folder are named `rank0` and so on, with this suffix."""
    ranks = trace.meta.ranks or [0]
    if len(ranks) > 1 and out.name.endswith(_FILE_SUFFIXES):
        raise UsageError(
            f"the trace has {len(ranks)} ranks and {out.name} is one file: choose a rank (--rank), or give the name of a folder"
        )
    if overwrite and out.is_dir() and not all(file.name.endswith((".json", ".json.gz")) and file.is_file() for file in out.iterdir()):
        raise UsageError(f"{out} contains more than traces, so it is not replaced; choose another name")
    with draft_output(out, overwrite=overwrite) as draft:
        if len(ranks) == 1:
            _write_file(trace, ranks[0], draft, write)
        else:
            draft.mkdir()
            for rank in ranks:
                _write_file(trace.of_rank(rank), rank, draft / f"rank{rank}{suffix}", write)


def _write_file(trace: Trace, rank: int, file: Path, write: Callable[[Trace, int, File], None]) -> None:
    with file.open("wb") as plain:
        if file.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", 6, plain, mtime=0) as packed:
                write(trace, rank, packed)
        else:
            write(trace, rank, plain)
