"""A small file in the format of StragglerAnalysis: two stages, two replicas, two micro-batches, worked out by hand."""

from pathlib import Path

import polars as pl

META = "trial_name: BY\nrun_id: 0\ndp_size: 2\ndsp_size: 1\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 4\n"


def write(folder: Path, steps: tuple[int, ...] = (7, 8)) -> Path:
    """trace-BY.parquet and meta-BY.yaml. A forward pass takes 10 ms, on stage 1 of replica 1 26 ms; a backward pass takes 20 ms.

    Transfers take no time. All replicas meet after 122 ms, then the optimizer takes 5 ms.
    """
    rows = [row for step in steps for replica, forward in enumerate((10, 26)) for row in _replica(step, replica, forward)]
    columns = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
    frame = pl.DataFrame(rows, columns, orient="row").with_columns(pl.col("start_ts", "duration").cast(pl.Float64) / 1000)
    path = folder / "trace-BY.parquet"
    frame.write_parquet(path)
    (folder / "meta-BY.yaml").write_text(META)
    return path


def _replica(step: int, replica: int, f: int) -> list[tuple[object, ...]]:
    """Times in ms; stage 1 takes `f` for a forward pass, which is at least 10."""
    end = 122
    first = [
        *[("forward-compute", 0, 10, 0), ("forward-compute", 10, 10, 1), ("forward-send", 10, 0, 0), ("forward-send", 20, f - 10, 1)],
        *[("backward-recv", 20, 10 + f, 0), ("backward-compute", 30 + f, 20, 0), ("backward-recv", 50 + f, f, 1)],
        *[("backward-compute", 50 + 2 * f, 20, 1), ("gc", 70 + 2 * f, 0, 0)],
        *[("optimizer-clip-main-grad", 70 + 2 * f, end - 70 - 2 * f, 0), ("optimizer", end, 5, 0)],
    ]
    second = [
        *[("forward-recv", 0, 10, 0), ("forward-compute", 10, f, 0), ("backward-compute", 10 + f, 20, 0)],
        *[("backward-send", 30 + f, 0, 0), ("forward-recv", 10 + f, 0, 1), ("forward-compute", 30 + f, f, 1)],
        *[("backward-compute", 30 + 2 * f, 20, 1), ("backward-send", 50 + 2 * f, 0, 1), ("gc", 50 + 2 * f, 0, 0)],
        *[("optimizer-clip-main-grad", 50 + 2 * f, end - 50 - 2 * f, 0), ("optimizer", end, 5, 0)],
    ]
    stages = enumerate((first, second))
    return [
        (replica, stage, 2 * stage + replica, step, name, start, length, number, chunk, micro, stage if micro >= 0 else -1)
        for stage, operations in stages
        for name, start, length, number in operations
        for micro, chunk in [(number, 0) if name.endswith("compute") else (-1, -1)]
    ]
