"""Other programs used the CPU while the run was recorded.

A statement: no core was free, and the processes of the run used less than half of the cores. All times of the host are longer than on a
free machine, and findings about them have a low confidence.
"""

from collections.abc import Iterator

from stepscope.analyses.advice.engine.findings import Evidence, Finding
from stepscope.analyses.advice.engine.machine import full_machine
from stepscope.analyses.advice.engine.run import Run

NEEDS = ("steps", "cpu")
APPLIES = ()
NOTICE = True
ALL_RANKS = True
LINK = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
FIX = {"": "# record again while no other program runs"}


def other_programs(run: Run) -> Iterator[Finding]:
    machine = full_machine(run.trace)
    if machine is None or machine.is_own or not machine.cores:
        return
    share = (machine.used_cores or 0.0) / machine.cores
    yield Finding(
        parameters={"busy": machine.busy_share, "cores": round(machine.cores), "used": share},
        evidence=Evidence("cpu_use", {"of": "process"}, {}, {"busy_share": machine.busy_share, "used_share": share}),
        statement=True,
    )
