"""Whether other programs used the CPU while a run was recorded."""

from typing import NamedTuple

from stepscope.analyses.host.cpu_use import cpu_use
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

_OWN = 0.5  # of the cores


class FullMachine(NamedTuple):
    """A machine without a free core."""

    cores: float | None
    busy_share: float
    used_cores: float | None  # by the recorded processes

    @property
    def is_own(self) -> bool:
        """Whether the processes of the run keep at least half of the cores busy; if that is unknown, a full CPU counts as theirs."""
        return self.used_cores is None or not self.cores or self.used_cores >= _OWN * self.cores


def is_disturbed(trace: Trace) -> bool:
    """Whether other programs took cores from the run."""
    machine = full_machine(trace)
    return machine is not None and not machine.is_own


@memoized
def full_machine(trace: Trace) -> FullMachine | None:
    """The first machine of the run on which no core was free; None where there is none, or no samples."""
    trace = trace.whole
    full = [row for row in cpu_use(trace, of="machine").to_dicts() if row["verdict"] == "full"]
    if not full:
        return None
    used = cpu_use(trace, of="process")["busy_cores"].drop_nulls()
    complete = len(trace.meta.ranks) >= (trace.meta.world_size or 1)  # else ranks that are not open may use the rest
    busy = (full[0]["user_share"] or 0) + (full[0]["system_share"] or 0)
    return FullMachine(full[0]["cores"], busy, float(used.sum()) if used.len() and complete else None)
