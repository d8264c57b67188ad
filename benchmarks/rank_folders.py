"""Run folders of many ranks, for `cluster_scale.py`: one template of steps, operators, launches, kernels and collectives, with other times.

A step of 100 ms is a tenth of the spans of a rank. Ranks differ by 0.5 %, steps by 2 %; one rank in 100 computes 20 % longer.
"""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.io import store
from stepscope.model import schema
from stepscope.model.trace import Meta, Trace

STEPS, STEP_NS = 10, 100_000_000
COLLECTIVES = 20  # of a step
SLOWER, SLOW_EVERY = 1.2, 100
HOST, STREAM, COMMUNICATION = 0, 1, 2
_NAMES = 60  # of operators, and of kernels


def write_ranks(folder: Path, ranks: int, spans: int, *, seed: int = 7) -> None:
    """Run folders rank0, rank1, … of so many spans each."""
    random = np.random.default_rng(seed)
    base = _rank_template(spans)
    step_jitter = 1 + 0.02 * np.abs(random.standard_normal(STEPS))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = folder / "rank0"
    for rank in range(ranks):
        factor = (1 + 0.005 * random.standard_normal()) * (SLOWER if rank % SLOW_EVERY == SLOW_EVERY - 1 else 1.0)
        trace = _trace(_of_rank(base, rank, factor * step_jitter), rank, ranks)
        target = folder / f"rank{rank}"
        if rank == 0:
            store.write(trace, target)
            continue
        # The other files are the same: this is faster than a whole run folder.
        shutil.copytree(first, target, ignore=shutil.ignore_patterns(*(f"{name}.parquet" for name in _OF_RANK), store.RUN_JSON))
        for name in _OF_RANK:
            trace.tables[name].sink_parquet(
                target / f"{name}.parquet", compression="zstd", compression_level=1, row_group_size=store.ROW_GROUP
            )
        header = (first / store.RUN_JSON).read_text()
        (target / store.RUN_JSON).write_text(header.replace('"ranks": [\n    0\n  ]', f'"ranks": [\n    {rank}\n  ]'))


_OF_RANK = ("spans", "steps", "tracks", "devices")
SLOT_NS = int(STEP_NS * SLOWER * 1.2)  # all ranks leave a step together: the slowest one has time for its own work


def _rank_template(spans: int) -> pl.DataFrame:
    """The spans of all steps, in order, with times from 0 to 1 within their step."""
    template = _template(spans)
    ids = pl.col("span", "parent", "flow_in", "op")
    steps = [template.with_columns(ids + step * template.height, step=pl.lit(step, pl.Int32)) for step in range(STEPS)]
    texts = pl.col("name", "op_type").cast(pl.Categorical)
    return pl.concat(steps).sort("track", "step", "at").with_columns(texts, pl.col("kind").cast(schema.Kind), depth=pl.lit(0, pl.Int32))


def _template(spans: int) -> pl.DataFrame:
    """The spans of a step with times from 0 to 1: a step, a wait for input, operators in pairs, a launch in each, and its kernel."""
    launches = (spans // STEPS - 4) // 4
    parts = []
    at = (np.arange(launches) + 0.5) / (launches + 1) * 0.9 + 0.05
    width = 0.9 / (launches + 1)
    number = np.arange(launches)
    is_collective = number % (launches // COLLECTIVES) == 0
    base = 2
    ids = {kind: base + place * launches + number for place, kind in enumerate(("outer", "inner", "launch", "kernel"))}
    names = [f"aten::op{n % _NAMES}" for n in number]
    parts.append(
        pl.DataFrame(
            {"kind": ["step", "data"], "name": ["ProfilerStep", "DataLoader.__next__"], "at": [0.0, 0.0], "length": [1.0, 0.02]}
        ).with_columns(span=pl.Series([0, 1]), track=HOST, parent=pl.Series([None, 0], dtype=pl.Int64))
    )
    host = {"outer": (0.0, 0.9, 0), "inner": (0.1, 0.7, "outer"), "launch": (0.2, 0.3, "inner")}
    for kind, (offset, length, parent) in host.items():
        parts.append(
            pl.DataFrame(
                {
                    "kind": ["api" if kind == "launch" else "op"] * launches,
                    "name": ["cudaLaunchKernel"] * launches
                    if kind == "launch"
                    else names
                    if kind == "outer"
                    else [f"{name}_" for name in names],
                    "at": at + offset * width,
                    "length": np.full(launches, length * width),
                    "span": ids[kind],
                    "track": np.full(launches, HOST),
                    "parent": np.zeros(launches, np.int64) if parent == 0 else ids[str(parent)],
                }
            )
        )
    parts.append(
        pl.DataFrame(
            {
                "kind": np.where(is_collective, "communication", "kernel"),
                "name": np.where(is_collective, "ncclDevKernel_AllReduce_Sum_f32", [f"kernel_{n % _NAMES}" for n in number]),
                "at": at + 1.2 * width,
                "length": np.full(launches, 0.8 * width),
                "span": ids["kernel"],
                "track": np.where(is_collective, COMMUNICATION, STREAM),
                "flow_in": ids["launch"],
                "op": ids["inner"],
                "op_type": [f"{name}_" for name in names],
                "bytes": np.where(is_collective, 4 << 20, None).astype(object).tolist(),
            },
            schema_overrides={"bytes": pl.Int64},
        )
    )
    last = base + 4 * launches
    parts.append(  # the last collective of a step, which all ranks leave together, and its launch
        pl.DataFrame(
            {
                "kind": ["api", "communication"],
                "name": ["cudaLaunchKernel", "ncclDevKernel_AllReduce_Sum_f32"],
                "at": [0.955, 0.96],
                "length": [0.001, 0.0],
                "span": [last, last + 1],
                "track": [HOST, COMMUNICATION],
                "parent": [0, None],
                "flow_in": [None, last],
                "bytes": [None, 4 << 20],
                "is_last": [False, True],
            }
        )
    )
    return pl.concat(parts, how="diagonal_relaxed").with_columns(
        pl.col("span", "parent", "flow_in", "op").cast(pl.Int64), pl.col("is_last").fill_null(False)
    )


def _of_rank(base: pl.DataFrame, rank: int, factors: NDArray[np.float64]) -> pl.DataFrame:
    """The spans of a rank that computes for so many times the usual time in each step, and then waits for the others."""
    step = base["step"].to_numpy()
    scale = np.where((base["kind"] == "step").to_numpy(), float(SLOT_NS), STEP_NS * factors[step])
    start = np.round(base["at"].to_numpy() * scale).astype(np.int64) + step.astype(np.int64) * SLOT_NS
    length = np.round(base["length"].to_numpy() * scale).astype(np.int64)
    end = (step.astype(np.int64) + 1) * SLOT_NS - STEP_NS // 100
    length = np.where(base["is_last"].to_numpy(), end - start, length)
    times = {"start_ns": start, "dur_ns": length, "self_ns": length}
    return base.drop("at", "length", "is_last").with_columns(
        *(pl.Series(name, values) for name, values in times.items()), rank=pl.lit(rank, pl.Int32)
    )


def _trace(frame: pl.DataFrame, rank: int, ranks: int) -> Trace:
    steps = frame.filter(pl.col("kind") == "step").select(
        "rank", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), how=pl.lit("marker")
    )
    tracks = pl.DataFrame(
        {
            "rank": [rank] * 3,
            "track": [HOST, STREAM, COMMUNICATION],
            "kind": ["thread", "stream", "stream"],
            "device": [None, 0, 0],
            "label": ["main", "stream 7", "stream 9"],
        }
    )
    devices = pl.DataFrame({"rank": [rank], "device": [0], "name": ["NVIDIA H200"], "kind": ["gpu"]})
    meta = Meta(source=f"rank{rank}", format="chrome", framework="pytorch", world_size=ranks, ranks=[rank])
    return Trace({"spans": frame, "steps": steps, "tracks": tracks, "devices": devices}, meta)
