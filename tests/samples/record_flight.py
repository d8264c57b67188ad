"""Makes flight_recorder/torch-<version>/trace_rank_{0,1}: dumps of a real job in which rank 1 never calls the last all_reduce."""

import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as recorder

CALLS = 3  # of both ranks
SPAWN = multiprocessing.get_context("spawn")


def train(rank: int, meeting: str, folder: Path, ready: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.ones(4)
    for _ in range(CALLS):
        dist.all_reduce(x)
    # A completed call is noticed a little later.
    while not all(entry["retired"] for entry in pickle.loads(recorder._dump_fr_trace(True, True, False))["entries"]):
        time.sleep(0.01)
    pending = dist.all_reduce(x, async_op=True) if rank == 0 else None
    document = pickle.loads(recorder._dump_fr_trace(True, True, False))
    for entry in document["entries"]:
        entry["frames"] = [{**frame, "filename": name_of(frame["filename"])} for frame in entry["frames"]]
    (folder / f"trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))
    ready.wait()
    assert pending is None or not pending.is_completed()
    os._exit(0)


def name_of(path: str) -> str:
    """The path within a package or the samples: the rest shows the machine that recorded."""
    parts = Path(path).parts
    start = next((parts.index(name) for name in ("torch", "multiprocessing", "samples") if name in parts), len(parts) - 1)
    return "/".join(parts[start:])


def processes(folder: Path, meeting: str, ready: Any) -> Iterator[Any]:
    for rank in range(2):
        process = SPAWN.Process(target=train, args=(rank, meeting, folder, ready))
        process.start()
        yield process


if __name__ == "__main__":
    os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
    target = Path(__file__).parent / "flight_recorder" / f"torch-{torch.__version__.split('+')[0]}"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        ready = SPAWN.Barrier(2)  # a rank that leaves would end the call of the other with an error
        for process in list(processes(target, f"{temporary}/meeting", ready)):
            process.join()
