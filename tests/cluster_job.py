"""A made-up job of many ranks with tensor, pipeline and data parallelism, a slow rank, a slow host and a slow link, as a run folder.

Each rank computes in every step; groups of 8 ranks (a host) meet in all-reduces, stages send and receive, and copies of a stage meet at
the end. `python tests/cluster_job.py RANKS FOLDER` writes the folder of its summary.
"""

import json
import sys
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.io import store
from stepscope.model.trace import Meta, Trace, complete

MS = 1_000_000
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
TP, PP, STEPS, STEP = 8, 4, 12, 100 * MS
SLOW_RANK, SLOW_HOST, SLOW_LINK = 13, 2, (8, 16)


def job(ranks: int = 256, steps: int = STEPS, seed: int = 7) -> Trace:
    """The trace: clocks of hosts differ by up to 40 ms."""
    chance = np.random.default_rng(seed)
    per_stage = ranks // PP
    number = np.arange(ranks)
    stage, host = number // per_stage, number // TP
    offset = chance.integers(-20, 20, host.max() + 1)[host] * MS * (host > 0)
    parts = [_step(number, stage, host, offset, step, chance) for step in range(steps)]
    spans = pl.concat(parts).sort("rank", "track", "start_ns")
    spans = pl.concat([complete(part) for part in spans.partition_by("rank", maintain_order=True)])
    begins = pl.DataFrame({"rank": np.repeat(number, steps), "step": np.tile(np.arange(steps), ranks)})
    start = np.tile(np.arange(steps), ranks) * STEP - np.repeat(offset, steps)
    stages = begins.with_columns(start_ns=pl.Series(start), end_ns=pl.Series(start + STEP), how=pl.lit("marker"))
    tables = {
        "spans": spans,
        "tracks": _tracks(number),
        "steps": stages,
        "hosts": pl.DataFrame({"rank": number, "host": [f"node-{place:03}" for place in host]}),
        "process_groups": _groups(number, per_stage),
        "links": _links(number, ranks, chance),
        "counters": _counters(number),
    }
    meta = Meta(source="made-up job", framework="pytorch", ranks=number.tolist(), world_size=ranks + 2)
    return Trace({name: rows.with_columns(pl.col("rank").cast(pl.Int32)) for name, rows in tables.items()}, meta)


def _step(number: Ints, stage: Ints, host: Ints, offset: Ints, step: int, chance: np.random.Generator) -> pl.DataFrame:
    ranks, random = len(number), chance
    load = np.where(host == SLOW_HOST, 9.0, 2.0) * MS * random.uniform(0.95, 1.05, ranks)
    compute = 50 * MS * random.normal(1, 0.006, ranks) * np.where(number == SLOW_RANK, 1.25, 1.0)
    begin: Floats = (step * STEP - offset).astype(np.float64)
    received = np.where(stage > 0, 4 * MS * stage, 0)
    at: Floats = begin + load + received
    rows = [_rows(number, 0, "data", "next", step, begin, load)]
    per_stage = ranks // PP
    later, earlier = number[stage > 0], number[stage < PP - 1]
    sent = (begin + load + offset)[earlier] - offset[earlier]
    rows += [
        _rows(earlier, 9, "communication", "ncclDevKernel_Send", step, sent, np.full(len(earlier), MS), peer=earlier + per_stage),
        _rows(later, 9, "communication", "ncclDevKernel_Recv", step, (begin + load)[later], received[later], peer=later - per_stage),
    ]
    for _ in range(2):
        rows.append(_rows(number, 7, "kernel", "gemm", step, at, compute / 2))
        at = at + compute / 2
        meet = np.maximum.reduceat((at + offset), np.arange(0, ranks, TP))[host] - offset
        rows.append(_rows(number, 8, "communication", "ncclDevKernel_AllReduce", step, at, meet + MS - at, host))
        at = (meet + MS).astype(np.float64)
    copies = stage * TP + number % TP
    last = np.array([(at + offset)[copies == place].max() for place in range(copies.max() + 1)])[copies] - offset
    rows.append(_rows(number, 8, "communication", "ncclDevKernel_AllReduce", step, at, last + 3 * MS - at, 10_000 + copies))
    at = last + 3 * MS
    arrived = np.maximum((at + offset)[earlier], (at + offset)[earlier + per_stage]) + MS - offset[earlier]
    rows += [
        _rows(later, 10, "communication", "ncclDevKernel_Send", step, at[later], np.full(len(later), MS), peer=later - per_stage),
        _rows(earlier, 10, "communication", "ncclDevKernel_Recv", step, at[earlier], arrived - at[earlier], peer=earlier + per_stage),
    ]
    return pl.concat(rows)


def _rows(
    ranks: Ints,
    track: int,
    kind: str,
    name: str,
    step: int,
    start: Floats,
    length: Floats,
    group: Ints | None = None,
    peer: Ints | None = None,
) -> pl.DataFrame:
    """Spans; `group` has the number of the group of each rank, `peer` the other side of a transfer."""
    columns = {"rank": ranks, "start_ns": np.asarray(start).astype(np.int64), "dur_ns": np.asarray(length).astype(np.int64)}
    table = pl.DataFrame(columns).with_columns(track=pl.lit(track), kind=pl.lit(kind), name=pl.lit(name), step=pl.lit(step))
    texts: list[str] | None = None
    if group is not None:
        texts = [json.dumps({"Process Group Name": f"group {place}"}) for place in group.tolist()]
    elif peer is not None:
        side = "Dst Rank" if name.endswith("Send") else "Src Rank"
        texts = [json.dumps({"Process Group Name": f"stages {track}", side: other}) for other in peer.tolist()]
    size = None if texts is None else 1 << 24
    return table.with_columns(bytes=pl.lit(size, pl.Int64), args=pl.Series(texts or [None] * len(ranks), dtype=pl.String))


def _tracks(number: Ints) -> pl.DataFrame:
    kinds = {
        0: ("thread", "main", None),
        7: ("stream", "stream 7", 0),
        8: ("stream", "stream 8", 0),
        9: ("stream", "stream 9", 0),
        10: ("stream", "stream 10", 0),
    }
    rows = [(int(rank), track, kind, label, device) for rank in number for track, (kind, label, device) in kinds.items()]
    return pl.DataFrame(
        rows, {"rank": pl.Int32, "track": pl.Int32, "kind": pl.String, "label": pl.String, "device": pl.Int32}, orient="row"
    )


def _groups(number: Ints, per_stage: int) -> pl.DataFrame:
    rows = []
    for rank in number.tolist():
        first, stage = rank // TP * TP, rank // per_stage
        tensor = range(first, first + TP)
        pipeline = range(rank % per_stage, len(number), per_stage)
        data = range(stage * per_stage + rank % TP, (stage + 1) * per_stage, TP)
        for name, members in (("tp", tensor), ("pp", pipeline), ("dp", data)):
            rows.append((rank, f"{name}{members[0]}", name, ",".join(map(str, members))))
    return pl.DataFrame(rows, {"rank": pl.Int32, "group": pl.String, "description": pl.String, "members": pl.String}, orient="row")


def _links(number: Ints, ranks: int, chance: np.random.Generator) -> pl.DataFrame:
    within = [(rank, rank // TP * TP + (rank + step) % TP, "HCCS") for rank in number.tolist() for step in range(1, TP)]
    across = [(rank, (rank + TP) % ranks, "RDMA") for rank in number.tolist()]
    table = pl.DataFrame(within + across, {"src": pl.Int32, "dst": pl.Int32, "transport": pl.String}, orient="row")
    speed = np.where(table["transport"] == "HCCS", 18.0, 20.0) * chance.normal(1, 0.02, table.height)
    slow = ((table["src"] == SLOW_LINK[0]) & (table["dst"] == SLOW_LINK[1])).to_numpy()
    length = (1 << 24) / np.where(slow, speed * 0.4, speed)
    return table.with_columns(rank="src", bytes=pl.lit(1 << 24), dur_ns=pl.Series(length).cast(pl.Int64))


def _counters(number: Ints) -> pl.DataFrame:
    clock = np.where(number == SLOW_RANK, 1400.0, 1800.0 + number % 5)
    common = {"at_ns": np.full(len(number), STEP), "unit": "MHz", "name": "aicore clock", "series": "clock", "owner": "npu", "number": 0}
    heat = 58.0 + number % 7 + np.where(number == SLOW_RANK, 25, 0)
    clocks = pl.DataFrame({"rank": number, "value": clock, **common})
    return pl.concat(
        [clocks, pl.DataFrame({"rank": number, "value": heat, **common, "unit": "C", "name": "temperature", "series": "temperature"})]
    )


def write(folder: Path, ranks: int, *, summary: bool = True) -> Path:
    trace = job(ranks)
    if summary:
        from stepscope.cluster.rank_summary import summary as summarized

        trace = summarized(trace)
    store.write(trace, folder)
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[1]))
