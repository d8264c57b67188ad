"""Dumps of a flight recorder as PyTorch writes them, from a short description of what each rank called."""

import pickle
from pathlib import Path
from typing import Any

GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1]), "2": ("tp", [2, 3])}


def entry(record: int, group: str, number: int, name: str = "all_reduce", *, state: str = "scheduled", **fields: Any) -> dict[str, Any]:
    """One operation. Of a send or receive, `number` is that among the sends and receives of the group."""
    is_p2p = name.startswith(("send", "recv"))
    numbers = {"collective_seq_id": 0, "p2p_seq_id": number} if is_p2p else {"collective_seq_id": number, "p2p_seq_id": 0}
    return {
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 10 + record}],
        "record_id": record,
        "pg_id": int(group),
        "process_group": (group, GROUPS[group][0]),
        **numbers,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_700_000_000_000_000_000 + record * 1_000_000,
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600000,
        "is_p2p": is_p2p,
        **fields,
    }


def write(folder: Path, calls: dict[int, list[dict[str, Any]]], counts: dict[int, dict[str, tuple[int, int]]] | None = None) -> Path:
    """A dump per rank: `nccl_trace_rank_0`, ... `counts` has the numbers of the last enqueued and completed operation of each group."""
    folder.mkdir(exist_ok=True)
    for rank, entries in calls.items():
        of_rank = {name: group for name, group in GROUPS.items() if rank in group[1]}
        status = {name: dict(zip(("enqueued", "completed"), pair, strict=True)) for name, pair in (counts or {}).get(rank, {}).items()}
        document = {
            "version": "2.10",
            "pg_config": {name: {"name": name, "desc": text, "ranks": str(ranks)} for name, (text, ranks) in of_rank.items()},
            "pg_status": {
                name: {f"last_{state}_collective": pair.get(state, -1) for state in ("enqueued", "started", "completed")}
                for name, pair in status.items()
            },
            "entries": entries,
        }
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))
    return folder
