"""Folders of ranks for tests of summaries: small run folders with kernels, operators and collectives, one rank slower than the others."""

import hashlib
from pathlib import Path

import polars as pl

from stepscope.io import store
from stepscope.model.trace import Meta, Trace, complete

STEPS, STEP_NS = 6, 1_000_000


def write(folder: Path, ranks: int, *, slow: int = 1, first: int = 0) -> Path:
    """Run folders rank0, rank1, … in `folder`."""
    for rank in range(first, first + ranks):
        store.write(trace(rank, ranks, own_ns=700_000 if rank == slow else 500_000), folder / f"rank{rank}")
    return folder


def trace(rank: int, ranks: int, own_ns: int) -> Trace:
    """A rank that computes for `own_ns` in each step, then reduces until the end of the step."""
    rows: list[tuple[object, ...]] = []
    for step in range(STEPS):
        start = step * STEP_NS
        launch = len(rows) + 1
        rows += [
            ("step", 0, "train_step", start, STEP_NS, step, None, None),
            ("api", 0, "cudaLaunchKernel", start + 1_000, 2_000, step, None, None),
            ("kernel", 1, "matmul", start + 5_000, own_ns, step, launch, None),
            ("api", 0, "cudaLaunchKernel", start + 4_000, 2_000, step, None, None),
            ("communication", 1, "ncclAllReduce", start + 5_000 + own_ns, STEP_NS - own_ns - 10_000, step, launch + 2, 4096),
            ("data", 0, "loader", start + 500, 400, step, None, None),
        ]
    columns = ["kind", "track", "name", "start_ns", "dur_ns", "step", "flow_in", "bytes"]
    spans = complete(pl.DataFrame(rows, columns, orient="row").with_columns(rank=pl.lit(rank)))
    steps = pl.DataFrame({"rank": rank, "step": range(STEPS), "how": "marker"}).with_columns(
        start_ns=pl.col("step") * STEP_NS, end_ns=(pl.col("step") + 1) * STEP_NS
    )
    tracks = pl.DataFrame({"rank": [rank] * 2, "track": [0, 1], "kind": ["thread", "stream"], "device": [None, 0]})
    devices = pl.DataFrame({"rank": [rank], "device": [0], "name": ["NVIDIA H200"], "kind": ["gpu"]})
    meta = Meta(source=f"rank{rank}", format="chrome", framework="pytorch", world_size=ranks, ranks=[rank])
    return Trace({"spans": spans, "steps": steps, "tracks": tracks, "devices": devices}, meta)


def digests(folder: Path) -> dict[str, str]:
    """The content of each file."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
