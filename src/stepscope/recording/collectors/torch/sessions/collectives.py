"""Whether the collectives of a session are over, before the session of torch.profiler ends.

Gloo runs a collective on one of its own threads, and ends the range of the collective there, after the thread that waited for the result
has continued. A session that ended in between would be freed, and the end of the range would be written into the freed memory.

PyTorch's flight recorder gives proof: gloo's thread marks the entry of a collective as retired after the function that ends
the range has returned. The recorder keeps the latest collectives of all process groups in their order. If one of the entries is older than
the session, or none was dropped, the entries contain every collective of the session; if these are all retired, no range is open. NCCL ends
its ranges on the calling thread and needs no wait.
"""

import json
import os
import re
import time
from typing import Any

UNPROVEN_WAIT_S = 0.5  # without proof: longer than such a thread has to wait on a busy machine
_LONGEST_WAIT_S = 5.0  # for a collective that is known to run: another rank may never join it
_POLL_S = 0.005


class Collectives:
    """The collectives of gloo since this object was created."""

    def __init__(self) -> None:
        self._last_before = _last_enqueued()

    def wait(self, waited_s: float = 0.0) -> bool:
        """Wait until they are over. False where one still runs. `waited_s`: time since no new collective is recorded."""
        started = time.monotonic()
        while is_initialized():
            running = self._running()
            elapsed = time.monotonic() - started
            if running is None:
                time.sleep(max(UNPROVEN_WAIT_S - waited_s - elapsed, 0))
                return True
            if not running:
                return True
            if elapsed > _LONGEST_WAIT_S:
                return False
            time.sleep(_POLL_S)
        return True

    def are_over(self, waited_s: float) -> bool:
        """Whether they are over by now; without proof, after a wait."""
        if not is_initialized():
            return True
        running = self._running()
        return waited_s >= UNPROVEN_WAIT_S if running is None else not running

    def _running(self) -> int | None:
        """How many are not over, None where that is unknown."""
        entries = _dump(includeCollectives=True).get("entries")
        if entries is None:
            return None
        try:
            collectives = [entry for entry in entries if not entry["is_p2p"]]
            new = [entry for entry in collectives if entry["collective_seq_id"] > self._last_before.get(str(entry["pg_id"]), 0)]
            is_complete = len(new) < len(collectives) or min((entry["record_id"] for entry in entries), default=0) == 0
            return sum(not entry["retired"] for entry in new) if is_complete else None
        except (KeyError, TypeError):  # another release
            return None


def is_initialized() -> bool:
    import torch

    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _last_enqueued() -> dict[str, int]:
    """By process group: number of the last collective."""
    try:
        groups = _dump(includeCollectives=False).get("pg_status", {}) if is_initialized() else {}
        return {group: int(status["last_enqueued_collective"]) for group, status in groups.items()}
    except (KeyError, TypeError, ValueError, AttributeError):  # another release
        return {}


def _dump(**options: bool) -> dict[str, Any]:
    """The flight recorder of gloo, empty where it is turned off. Verified with PyTorch 2.13: earlier releases may leave gloo out."""
    import torch

    size = os.environ.get("TORCH_FR_BUFFER_SIZE") or os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") or "2000"
    release = tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2])
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None or release < (2, 13) or not size.isdecimal() or int(size) == 0:
        return {}
    try:
        trace = json.loads(dump(**options))
    except (TypeError, ValueError, RuntimeError):  # another release
        return {}
    # An enabled recorder without a collective lists no entries.
    return {"entries": [], **trace} if isinstance(trace, dict) else {}
